// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ends commands that run for too long, and says what they waited for.

use std::fmt::Write as _;
use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The time that a command that runs tests may take, builds included. The longest takes a third of
/// this.
pub(crate) const LONGEST: Duration = Duration::from_secs(20 * 60);

/// A process with a deadline, until this value is dropped.
pub(crate) struct Deadline {
    /// Closed by the drop, which ends the thread.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Deadline {
    /// Kills the process and all processes below it after so long, with a report on standard error.
    pub(crate) fn of(pid: u32, after: Duration) -> Self {
        let (alive, dropped) = mpsc::channel();
        let watch = move || {
            if dropped.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                let family = family(pid);
                eprintln!("no end after {} s; what there is:", after.as_secs());
                for &member in &family {
                    eprint!("{}", threads(member));
                }
                for member in family.iter().filter_map(|&pid| Pid::from_raw(pid.cast_signed())) {
                    // One that has just ended needs none.
                    let _ = kill_process(member, Signal::KILL);
                }
            }
        };
        Self { alive: Some(alive), thread: Some(thread::spawn(watch)) }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The process and all below it, parents first.
fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut at = 0;
    while at < family.len() {
        for task in tasks(family[at]) {
            let children = fs::read_to_string(task + "/children").unwrap_or_default();
            family.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        at += 1;
    }
    family
}

fn tasks(pid: u32) -> impl Iterator<Item = String> {
    let dir = fs::read_dir(format!("/proc/{pid}/task"));
    dir.into_iter().flatten().flatten().map(|entry| entry.path().display().to_string())
}

/// The command line of a process, then a line for each thread: name, state, and the kernel function
/// and system call in which it waits.
fn threads(pid: u32) -> String {
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut text = format!("{pid} {}\n", command.replace('\0', " "));
    for task in tasks(pid) {
        let read = |name| fs::read_to_string(format!("{task}/{name}")).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or_default();
        let (name, within, call) = (read("comm"), read("wchan"), read("syscall"));
        let state = state.trim();
        let _ = writeln!(text, "    {}: {state}, {within}, {}", name.trim(), call.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    #[test]
    fn a_command_that_does_not_end_is_ended_with_its_children() {
        let mut shell = Command::new("sh");
        let mut child =
            shell.args(["-c", "cat; true"]).stdin(Stdio::piped()).spawn().expect("a shell");
        eventually(|| family(child.id()).get(1).is_some_and(|&cat| threads(cat).contains("cat")));
        let cat = family(child.id())[1];
        // Waiting would close it, which ends cat.
        let _input = child.stdin.take();
        let deadline = Deadline::of(child.id(), Duration::ZERO);
        assert!(!child.wait().expect("its end").success());
        drop(deadline);
        // A new parent may be in no hurry to take note of it.
        let status = || fs::read_to_string(format!("/proc/{cat}/status"));
        eventually(|| status().map_or(true, |status| status.contains("\nState:\tZ")));
    }

    fn eventually(mut is: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is() {
            assert!(start.elapsed() < Duration::from_secs(20), "never");
            thread::yield_now();
        }
    }

    #[test]
    fn a_command_that_ends_in_time_is_left_alone() {
        let mut child = Command::new("true").spawn().expect("true");
        let deadline = Deadline::of(child.id(), Duration::from_mins(1));
        assert!(child.wait().expect("its end").success());
        drop(deadline);
    }
}
