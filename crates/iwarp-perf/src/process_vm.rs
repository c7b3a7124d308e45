// SPDX-License-Identifier: MIT OR Apache-2.0

//! The system's own copy between two processes: one call of `process_vm_writev` or
//! `process_vm_readv` for each message, while the other process sleeps.

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::octets::{self, Messages};
use super::task::{Contender, Flow, Side, Spec, Task, Times};

const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// The server's memory, by the addresses that it has there.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub(super) struct Shown {
    process: i32,
    inbox: usize,
    outbox: usize,
}

/// The server's end: memory of its own. The system changes it, so it is of atomics.
pub(super) struct Open {
    inbox: Vec<AtomicU8>,
    outbox: Vec<AtomicU8>,
}

impl Open {
    pub(super) fn new(spec: &Spec) -> Self {
        let memory = || (0..spec.max_size).map(|_| AtomicU8::new(0)).collect();
        Self { inbox: memory(), outbox: memory() }
    }

    pub(super) fn shown(&self) -> Shown {
        Shown {
            process: Pid::this().as_raw(),
            inbox: self.inbox.as_ptr().expose_provenance(),
            outbox: self.outbox.as_ptr().expose_provenance(),
        }
    }
}

impl Contender for Open {
    fn prepare(&mut self, task: &Task, _: Side) -> Result<()> {
        ensure!(task.size <= self.inbox.len(), "the message is longer than the memory for it");
        let last = octets::last(task, task.size);
        for (place, octet) in self.outbox.iter().zip(last) {
            place.store(octet, Ordering::Relaxed);
        }
        for place in &self.inbox[..task.size] {
            place.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    fn measure(&mut self, _: &Task, _: &mut Times) -> Result<Duration> {
        bail!("the client measures")
    }

    fn serve(&mut self, _: &Task) -> Result<()> {
        Ok(())
    }

    fn verify(&mut self, task: &Task, _: Side) -> Result<()> {
        if task.flow == Flow::Request {
            return Ok(());
        }
        let inbox = &self.inbox[..task.size];
        let found: Vec<u8> = inbox.iter().map(|place| place.load(Ordering::Relaxed)).collect();
        octets::verify(task, &found)
    }
}

/// The client's end.
pub(super) struct Reach {
    theirs: Shown,
    /// The error with which the system refuses it.
    refused: Option<Errno>,
    /// Each is written by one call.
    messages: Messages,
    /// Room for the bytes that are read.
    sink: Vec<u8>,
}

impl Reach {
    /// Tries whether the system lets this process do it.
    pub(super) fn new(theirs: Shown) -> Result<Self> {
        let another = theirs.process > 0 && theirs.process != Pid::this().as_raw();
        ensure!(another, "{} is no other process", theirs.process);
        let refused = read(theirs, &mut [0]).and_then(|_| write(theirs, &[0])).err();
        Ok(Self { theirs, refused, messages: Messages::default(), sink: Vec::new() })
    }

    fn write(&self, octets: &[u8]) -> Result<()> {
        let written = write(self.theirs, octets).context("process_vm_writev")?;
        ensure!(written == octets.len(), "process_vm_writev has written {written} bytes only");
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        let read = read(self.theirs, &mut self.sink).context("process_vm_readv")?;
        ensure!(read == self.sink.len(), "process_vm_readv has read {read} bytes only");
        Ok(())
    }
}

fn write(theirs: Shown, octets: &[u8]) -> nix::Result<usize> {
    let to = RemoteIoVec { base: theirs.inbox, len: octets.len() };
    process_vm_writev(Pid::from_raw(theirs.process), &[IoSlice::new(octets)], &[to])
}

fn read(theirs: Shown, room: &mut [u8]) -> nix::Result<usize> {
    let from = RemoteIoVec { base: theirs.outbox, len: room.len() };
    process_vm_readv(Pid::from_raw(theirs.process), &mut [IoSliceMut::new(room)], &[from])
}

impl Contender for Reach {
    fn prepare(&mut self, task: &Task, _: Side) -> Result<()> {
        self.messages.prepare(task, task.size);
        octets::clear(&mut self.sink, task.size);
        Ok(())
    }

    fn measure(&mut self, task: &Task, times: &mut Times) -> Result<Duration> {
        let start = Instant::now();
        times.begin();
        match task.flow {
            Flow::Stream => {
                for _ in 1..task.count {
                    self.write(self.messages.get(false))?;
                }
                self.write(self.messages.get(true))?;
            }
            // Two calls for a round trip, so that half of it is one.
            Flow::PingPong => {
                for number in 1..=task.count {
                    let octets = self.messages.get(number == task.count);
                    self.write(octets)?;
                    self.write(octets)?;
                    times.lap();
                }
            }
            Flow::Request => {
                for _ in 0..task.count {
                    self.read()?;
                    times.lap();
                }
            }
            flow => bail!("process_vm_writev does not measure {flow:?}"),
        }
        Ok(start.elapsed())
    }

    fn serve(&mut self, _: &Task) -> Result<()> {
        bail!("the server serves")
    }

    fn verify(&mut self, task: &Task, _: Side) -> Result<()> {
        if task.flow == Flow::Request { octets::verify(task, &self.sink) } else { Ok(()) }
    }

    fn hindrance(&self) -> Option<String> {
        let error = self.refused?;
        let scope = std::fs::read_to_string(YAMA).ok();
        let scope = scope.map_or_else(
            || "a sandbox or a container's seccomp profile forbids them".to_owned(),
            |scope| {
                format!(
                    "kernel.yama.ptrace_scope, which is {}, or a container's seccomp profile \
                     forbids them",
                    scope.trim()
                )
            },
        );
        Some(format!(
            "process_vm_writev and process_vm_readv are left out ({}): {scope}",
            error.desc()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_reached_is_told() {
        let shown = |process| Shown { process, inbox: 8, outbox: 8 };
        let reach = Reach::new(shown(i32::MAX)).expect("it has been tried");
        let why = reach.hindrance().expect("there is no such process");
        assert!(why.contains("process_vm_writev") && why.contains("left out"), "{why}");
        // One's own memory is not to be changed behind the compiler's back.
        for process in [0, -1, Pid::this().as_raw()] {
            assert!(Reach::new(shown(process)).is_err(), "{process}");
        }
    }
}
