// SPDX-License-Identifier: MIT OR Apache-2.0

//! One run of the command, to its end or to the time limit.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::apart;

/// The lines of output that are kept.
const LINES: usize = 6;

/// The runs that are wanted.
pub(super) struct Plan<'a> {
    pub(super) command: &'a [OsString],
    pub(super) timeout: Duration,
    /// Exit statuses that are no failures.
    pub(super) expected: Vec<i32>,
    /// Each in a network of its own.
    pub(super) apart: bool,
}

/// A run that is over.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) outcome: Outcome,
    /// Names of the faults that have fired.
    pub(super) fired: Vec<String>,
    /// The end of what it has written.
    pub(super) output: String,
    pub(super) took: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Passed,
    Failed(i32),
    Signal(i32),
    Hung,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passes"),
            Self::Failed(status) => write!(f, "fails with status {status}"),
            Self::Signal(number) => write!(f, "dies by signal {number}"),
            Self::Hung => f.write_str("hangs"),
        }
    }
}

/// Removes its files when it is dropped.
struct Files {
    record: PathBuf,
    output: PathBuf,
}

impl Files {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = |what| {
            let name = format!("iwarp-torture-{}-{number}-{what}", std::process::id());
            env::temp_dir().join(name)
        };
        Self { record: path("record"), output: path("output") }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.record);
        let _ = fs::remove_file(&self.output);
    }
}

impl Plan<'_> {
    /// Runs the command once, with these faults.
    pub(super) fn attempt(&self, faults: Option<&str>) -> Result<Attempt> {
        let files = Files::new();
        let mut command = apart::this_program(self.apart)?;
        command.args(["run", "--force"]);
        if let Some(faults) = faults {
            command.args(["--faults", &format!("{faults}; record={}", files.record.display())]);
        }
        command.arg("--").args(self.command);
        let output = File::create(&files.output)
            .with_context(|| format!("cannot write to {}", files.output.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        // A group of its own, so that all that it starts is ended with it.
        command.process_group(0);
        let start = Instant::now();
        let mut child = command.spawn().context("cannot start the command")?;
        let status = wait(&mut child, self.timeout);
        let took = start.elapsed();
        if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait();
        let outcome = self.judge(status?);
        Ok(Attempt { outcome, fired: fired(&files.record), output: end_of(&files.output), took })
    }

    fn judge(&self, status: Option<ExitStatus>) -> Outcome {
        let Some(status) = status else { return Outcome::Hung };
        match (status.code(), status.signal()) {
            (Some(0), _) => Outcome::Passed,
            (Some(code), _) if self.expected.contains(&code) => Outcome::Passed,
            // As shells say it of what they have started.
            (Some(code), _) if (129..=192).contains(&code) => Outcome::Signal(code - 128),
            (Some(code), _) => Outcome::Failed(code),
            (None, signal) => Outcome::Signal(signal.unwrap_or(0)),
        }
    }
}

/// `None` where it takes longer.
fn wait(child: &mut Child, timeout: Duration) -> Result<Option<ExitStatus>> {
    let pid = Pid::from_raw(child.id().cast_signed()).context("no process")?;
    let deadline = Instant::now() + timeout;
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => {
            let limit = Timespec::try_from(timeout)?;
            let mut ended = [PollFd::new(&fd, PollFlags::IN)];
            retry_on_intr(|| poll(&mut ended, Some(&limit)))?;
            Ok(child.try_wait()?)
        }
        // Before Linux 5.3, and in some sandboxes.
        Err(_) => loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(10));
        },
    }
}

fn fired(record: &Path) -> Vec<String> {
    let text = fs::read_to_string(record).unwrap_or_default();
    let mut names: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("fired ")).map(str::to_owned).collect();
    // Processes of one name have faults of one name.
    names.sort_unstable();
    names.dedup();
    names
}

fn end_of(output: &Path) -> String {
    let text = fs::read(output).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let end = &lines[lines.len().saturating_sub(LINES)..];
    end.iter().map(|line| format!("  | {line}")).collect::<Vec<_>>().join("\n")
}
