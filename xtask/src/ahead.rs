// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds for later steps while earlier ones wait for processes and for the network.

use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use anyhow::Result;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::dist::Build;
use crate::sanitizer::{self, Sanitizer};
use crate::{shell, steps};

/// The first step that leaves CPU time.
pub(crate) const FROM: &str = "test";

type Builds = fn() -> Result<Vec<Command>>;

/// Builds of these steps, in target directories and profiles in which no step before them builds.
const BUILDS: &[(&str, Builds)] = &[
    ("e2e", || Ok(vec![Build::Ci.command()])),
    ("asan", || sanitizer::builds(Sanitizer::Address, sanitizer::GATE)),
    ("loom", steps::loom_builds),
    ("asan-library", || sanitizer::builds(Sanitizer::Address, sanitizer::IN_TURN)),
    ("tsan", || sanitizer::builds(Sanitizer::Thread, sanitizer::CRATES)),
];

/// Builds that are under way, until this value is dropped. They run when nothing else wants a CPU,
/// so on a machine with other work perhaps not at all: a step whose turn has come ends its own and
/// goes on from what is there.
pub(crate) struct Ahead {
    now: Arc<Mutex<Now>>,
    thread: Option<JoinHandle<()>>,
}

/// What is being built.
struct Now {
    /// Steps that have begun: nothing is built for them any more.
    begun: Vec<&'static str>,
    /// The step that needs it, and the process.
    building: Option<(&'static str, OwnedFd)>,
    /// Nothing is started any more.
    over: bool,
}

impl Ahead {
    /// Starts those of the named steps.
    pub(crate) fn start(names: &[&str]) -> Result<Self> {
        let mut commands = Vec::new();
        for (step, builds) in BUILDS.iter().filter(|(name, _)| names.contains(name)) {
            commands.extend(builds()?.into_iter().map(|command| (*step, command)));
        }
        Ok(Self::of(commands))
    }

    fn of(commands: Vec<(&'static str, Command)>) -> Self {
        let now = Arc::new(Mutex::new(Now { begun: Vec::new(), building: None, over: false }));
        let thread = thread::spawn({
            let now = Arc::clone(&now);
            move || commands.iter().for_each(|(step, command)| build(step, command, &now))
        });
        Self { now, thread: Some(thread) }
    }

    /// Ends what is built for a step that begins.
    pub(crate) fn make_way(&self, step: &'static str) {
        let mut now = self.now.lock().expect("not poisoned");
        now.begun.push(step);
        if let Some((_, process)) = now.building.take_if(|(of, _)| *of == step) {
            end(&process);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        {
            let mut now = self.now.lock().expect("not poisoned");
            now.over = true;
            if let Some((_, process)) = now.building.take() {
                end(&process);
            }
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Cargo ends its compilers; a process that has just ended needs no signal.
fn end(process: &OwnedFd) {
    let _ = pidfd_send_signal(process, Signal::INT);
}

fn build(step: &'static str, command: &Command, now: &Mutex<Now>) {
    let mut command = shell::when_idle(command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = {
        let mut now = now.lock().expect("not poisoned");
        if now.over || now.begun.contains(&step) {
            return;
        }
        let Ok(child) = command.spawn() else { return };
        let process = Pid::from_child(&child);
        now.building = pidfd_open(process, PidfdFlags::empty()).ok().map(|process| (step, process));
        child
    };
    let _ = child.wait();
    now.lock().expect("not poisoned").building = None;
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
        while !is(&ahead.now.lock().unwrap()) {
            assert!(start.elapsed() < Duration::from_secs(20), "never");
            thread::yield_now();
        }
    }

    #[test]
    fn builds_end_with_the_value() {
        let ahead = Ahead::of(vec![("a", sleep()), ("b", sleep())]);
        let start = Instant::now();
        await_that(&ahead, |now| now.building.is_some());
        drop(ahead);
        assert!(start.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn a_step_that_begins_ends_its_builds_and_no_others() {
        let ahead = Ahead::of(vec![("a", sleep()), ("a", sleep()), ("b", sleep())]);
        await_that(&ahead, |now| now.building.as_ref().is_some_and(|(step, _)| *step == "a"));
        ahead.make_way("a");
        await_that(&ahead, |now| now.building.as_ref().is_some_and(|(step, _)| *step == "b"));
        ahead.make_way("c");
        assert!(ahead.now.lock().unwrap().building.is_some());
    }
}
