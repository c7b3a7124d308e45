// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds for later steps while earlier ones wait for processes and for the network.

use std::mem;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use anyhow::Result;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::sanitizer::{self, Sanitizer};
use crate::{shell, steps};

/// The first step that leaves CPU time.
pub(crate) const FROM: &str = "programs";

type Builds = fn() -> Result<Vec<Command>>;

/// Builds of these steps, each in a target directory that no other step uses.
const BUILDS: &[(&str, Builds)] = &[
    ("loom", steps::loom_builds),
    ("asan", || sanitizer::builds(Sanitizer::Address)),
    ("tsan", || sanitizer::builds(Sanitizer::Thread)),
];

/// Builds that are under way, until this value is dropped. They run when nothing else wants a CPU.
/// A step that needs one which is not ready waits for it as Cargo does, by the lock of the target
/// directory, and builds again what failed here, with its messages.
pub(crate) struct Ahead {
    now: Arc<Mutex<Now>>,
    thread: Option<JoinHandle<()>>,
}

enum Now {
    Nothing,
    Building(OwnedFd),
    /// Nothing is started any more.
    Over,
}

impl Ahead {
    /// Starts those of the named steps.
    pub(crate) fn start(names: &[&str]) -> Result<Self> {
        let mut commands = Vec::new();
        for (_, builds) in BUILDS.iter().filter(|(name, _)| names.contains(name)) {
            commands.extend(builds()?);
        }
        let now = Arc::new(Mutex::new(Now::Nothing));
        let thread = thread::spawn({
            let now = Arc::clone(&now);
            move || commands.iter().for_each(|command| build(command, &now))
        });
        Ok(Self { now, thread: Some(thread) })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let now = mem::replace(&mut *self.now.lock().expect("not poisoned"), Now::Over);
        if let Now::Building(process) = now {
            // One that has just ended needs none.
            let _ = pidfd_send_signal(process, Signal::TERM);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn build(command: &Command, now: &Mutex<Now>) {
    let mut command = shell::when_idle(command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = {
        let mut now = now.lock().expect("not poisoned");
        if matches!(*now, Now::Over) {
            return;
        }
        let Ok(child) = command.spawn() else { return };
        let process = Pid::from_child(&child);
        if let Ok(process) = pidfd_open(process, PidfdFlags::empty()) {
            *now = Now::Building(process);
        }
        child
    };
    let _ = child.wait();
    let mut now = now.lock().expect("not poisoned");
    if matches!(*now, Now::Building(_)) {
        *now = Now::Nothing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn builds_end_with_the_value() {
        let now = Arc::new(Mutex::new(Now::Nothing));
        let thread = thread::spawn({
            let now = Arc::clone(&now);
            move || {
                let mut sleep = Command::new("sleep");
                sleep.arg("100");
                [&sleep, &sleep].into_iter().for_each(|command| build(command, &now));
            }
        });
        let start = Instant::now();
        while !matches!(*now.lock().unwrap(), Now::Building(_)) {
            assert!(start.elapsed() < Duration::from_secs(20), "never");
            thread::yield_now();
        }
        drop(Ahead { now, thread: Some(thread) });
        assert!(start.elapsed() < Duration::from_secs(50));
    }
}
