// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds for later steps while earlier ones wait for processes and for the network.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::dist::Build;
use crate::sanitizer::{self, Sanitizer};
use crate::{shell, steps};

/// The first step that leaves CPU time.
pub(crate) const FROM: &str = "test";

type Builds = fn() -> Result<Vec<Command>>;

/// Builds for a step, and the steps that build in the same folder: when one of these begins, the
/// builds end.
struct Builder {
    step: &'static str,
    ends_with: &'static [&'static str],
    builds: Builds,
}

const BUILDS: &[Builder] = &[
    Builder { step: "e2e", ends_with: &["e2e"], builds: || Ok(vec![Build::Ci.command()]) },
    Builder {
        step: "asan",
        ends_with: &["asan"],
        builds: || sanitizer::builds(Sanitizer::Address, sanitizer::GATE),
    },
    Builder { step: "loom", ends_with: &["loom"], builds: steps::loom_builds },
    Builder {
        step: "tsan",
        ends_with: &["tsan"],
        builds: || sanitizer::builds(Sanitizer::Thread, sanitizer::CRATES),
    },
    Builder {
        step: "asan-library",
        ends_with: &["asan", "asan-library"],
        builds: || sanitizer::builds(Sanitizer::Address, sanitizer::IN_TURN),
    },
];

/// A build: the steps that end it, and the command.
type Ordered = (&'static [&'static str], Command);

/// Builds that are under way, until this value is dropped. They run when nothing else wants a CPU,
/// so on a machine with other work perhaps not at all: a step that begins ends its own, and goes on
/// from what is there.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    now: Mutex<Now>,
    /// Told when a build has ended.
    ended: Condvar,
}

/// The state of the builds.
#[derive(Default)]
struct Now {
    /// Steps that have begun: nothing that they end is built any more.
    begun: Vec<&'static str>,
    /// The build under way: the steps that end it, and its process group.
    building: Option<(&'static [&'static str], Pid)>,
    /// No build is started any more.
    over: bool,
}

impl Now {
    fn is_wanted(&self, ends_with: &[&str]) -> bool {
        !self.over && !self.begun.iter().any(|step| ends_with.contains(step))
    }
}

impl Ahead {
    /// Starts the builds for the named steps.
    pub(crate) fn start(names: &[&str]) -> Result<Self> {
        let mut commands = Vec::new();
        for builder in BUILDS.iter().filter(|builder| names.contains(&builder.step)) {
            let builds = (builder.builds)()?.into_iter();
            commands.extend(builds.map(|command| (builder.ends_with, command)));
        }
        Ok(Self::of(commands))
    }

    fn of(commands: Vec<Ordered>) -> Self {
        let shared = Arc::new(Shared::default());
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                commands.iter().for_each(|(ends_with, command)| shared.build(ends_with, command))
            }
        });
        Self { shared, thread: Some(thread) }
    }

    /// Ends the builds that are in the way of a step that begins, and waits for their end.
    pub(crate) fn make_way(&self, step: &'static str) {
        let mut now = self.shared.now.lock().expect("not poisoned");
        now.begun.push(step);
        while let Some((ends_with, group)) = now.building
            && ends_with.contains(&step)
        {
            end(group);
            now = self.shared.ended.wait(now).expect("not poisoned");
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        {
            let mut now = self.shared.now.lock().expect("not poisoned");
            now.over = true;
            if let Some((_, group)) = now.building {
                end(group);
            }
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Ends Cargo and its compilers, which outlive a Cargo that is ended by itself. None of them needs
/// a signal if they have just ended.
fn end(group: Pid) {
    let _ = kill_process_group(group, Signal::TERM);
}

impl Shared {
    fn build(&self, ends_with: &'static [&'static str], command: &Command) {
        let mut command = shell::when_idle(command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = {
            let mut now = self.now.lock().expect("not poisoned");
            if !now.is_wanted(ends_with) {
                return;
            }
            let Ok(child) = command.process_group(0).spawn() else { return };
            now.building = Some((ends_with, Pid::from_child(&child)));
            child
        };
        let _ = child.wait();
        self.now.lock().expect("not poisoned").building = None;
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn sleep() -> Command {
        let mut sleep = Command::new("sleep");
        sleep.arg("100");
        sleep
    }

    fn await_that(ahead: &Ahead, is: impl Fn(&Now) -> bool) {
        let start = Instant::now();
        while !is(&ahead.shared.now.lock().unwrap()) {
            assert!(start.elapsed() < Duration::from_secs(60), "never");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn builds_end_with_the_value() {
        let ahead = Ahead::of(vec![(&["a"], sleep()), (&["b"], sleep())]);
        let start = Instant::now();
        await_that(&ahead, |now| now.building.is_some());
        drop(ahead);
        assert!(start.elapsed() < Duration::from_secs(90));
    }

    #[test]
    fn a_step_that_begins_ends_its_builds_and_no_others() {
        let ahead =
            Ahead::of(vec![(&["a"], sleep()), (&["a", "c"], sleep()), (&["b", "c"], sleep())]);
        let builds = |now: &Now, step| now.building.is_some_and(|(steps, _)| steps.contains(&step));
        await_that(&ahead, |now| builds(now, "a"));
        ahead.make_way("a");
        await_that(&ahead, |now| builds(now, "b"));
        ahead.make_way("d");
        assert!(builds(&ahead.shared.now.lock().unwrap(), "b"));
        ahead.make_way("c");
        assert!(ahead.shared.now.lock().unwrap().building.is_none());
    }
}
