// SPDX-License-Identifier: MIT OR Apache-2.0

//! The processes that live as long as a soak: what they hold, over time.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The resources that a process holds at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) after: Duration,
    pub(super) rss_kib: u64,
    pub(super) files: u64,
    pub(super) threads: u64,
}

/// The samples of a process.
#[derive(Debug)]
pub(super) struct Watch {
    start: Instant,
    pid: u32,
    pub(super) samples: Vec<Sample>,
    /// Its sample when it was first idle, after some connections; `None` where it never is.
    pub(super) warm: Option<Sample>,
}

/// More memory than this, and than a quarter of what it was, is growth: allocators keep some for
/// each thread that there was at a time.
const SLACK_KIB: u64 = 16 << 10;
/// The number of files that may be open besides: those that are made once, when they are first
/// needed.
const SLACK_FILES: u64 = 2;

/// Of a process that is never idle, so many samples at least say something: it has begun by then.
const ENOUGH: usize = 20;

impl Watch {
    pub(super) fn new(pid: u32) -> Self {
        Self { start: Instant::now(), pid, samples: Vec::new(), warm: None }
    }

    /// Looks; `None` when the process is gone.
    pub(super) fn look(&mut self) -> Option<Sample> {
        let sample = look(&Path::new("/proc").join(self.pid.to_string()), self.start.elapsed())?;
        self.samples.push(sample);
        Some(sample)
    }

    /// Looks at all of them each second, until it is over.
    pub(super) fn look_at(all: &[Arc<Mutex<Self>>], over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            for watch in all {
                watch.lock().expect("not poisoned").look();
            }
            thread::sleep(Duration::from_secs(1));
        }
    }

    /// True if the last samples agree in files and threads.
    pub(super) fn is_settled(&self) -> bool {
        let Some(last) = self.samples.last_chunk::<4>() else { return false };
        last.iter().all(|one| (one.files, one.threads) == (last[0].files, last[0].threads))
    }

    /// The things of which it has too much at the end, in words.
    ///
    /// Files and threads are compared with what it had when it was idle at the beginning; memory,
    /// and everything of a process that is never idle, with the most of the first quarter, in which
    /// everything has happened once.
    pub(super) fn growth(&self) -> Vec<String> {
        let Some(last) = self.samples.last() else { return Vec::new() };
        if self.warm.is_none() && self.samples.len() < ENOUGH {
            return Vec::new();
        }
        let quarter = self.samples.len().div_ceil(4);
        let (early, late) = (&self.samples[..quarter], &self.samples[3 * self.samples.len() / 4..]);
        let before = |what: fn(&Sample) -> u64| early.iter().map(what).max().unwrap_or(0);
        let after = |what: fn(&Sample) -> u64| match self.warm {
            Some(_) => what(last),
            None => late.iter().map(what).min().unwrap_or(0),
        };
        let idle = |what: fn(&Sample) -> u64| self.warm.as_ref().map_or_else(|| before(what), what);
        let rss = before(|sample| sample.rss_kib).max(idle(|sample| sample.rss_kib));
        let mut found = Vec::new();
        let mut compare = |what: &str, before: u64, after: u64, slack: u64| {
            if after > before + slack {
                found.push(format!("{what} grew from {before} to {after}"));
            }
        };
        compare("descriptors", idle(|s| s.files), after(|s| s.files), SLACK_FILES);
        compare("threads", idle(|s| s.threads), after(|s| s.threads), 0);
        compare("RSS in KiB", rss, after(|s| s.rss_kib), SLACK_KIB.max(rss / 4));
        found
    }

    /// The most there was of something.
    pub(super) fn most(&self, what: impl Fn(&Sample) -> u64) -> u64 {
        self.samples.iter().map(what).max().unwrap_or(0)
    }
}

fn look(proc: &Path, after: Duration) -> Option<Sample> {
    let status = fs::read_to_string(proc.join("status")).ok()?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some(Sample {
        after,
        rss_kib: number("VmRSS:")?,
        files: fs::read_dir(proc.join("fd")).ok()?.count() as u64,
        threads: number("Threads:")?,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ENOUGH, Sample, Watch, look};

    fn watch(samples: &[(u64, u64, u64)]) -> Watch {
        let mut watch = Watch::new(1);
        let sample =
            |&(rss_kib, files, threads)| Sample { after: Duration::ZERO, rss_kib, files, threads };
        watch.samples = samples.iter().map(sample).collect();
        watch.warm = watch.samples.first().copied();
        watch
    }

    #[test]
    fn growth_is_noticed_and_noise_is_not() {
        assert!(watch(&[(9000, 20, 3), (30_000, 90, 9), (20_000, 22, 3)]).growth().is_empty());
        for last in [(9000, 23, 3), (9000, 20, 4), (26_000, 20, 3)] {
            assert_eq!(watch(&[(9000, 20, 3), (9500, 90, 9), last]).growth().len(), 1, "{last:?}");
            let samples = [[(9000, 20, 3); ENOUGH], [last; ENOUGH]].concat();
            let busy = Watch { warm: None, ..watch(&samples) };
            assert_eq!(busy.growth().len(), 1, "{last:?}");
        }
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let own = look("/proc/self".as_ref(), Duration::ZERO).unwrap();
        assert!(own.rss_kib > 100 && own.files >= 3 && own.threads >= 1, "{own:?}");
    }
}
