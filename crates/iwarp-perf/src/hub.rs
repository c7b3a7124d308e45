// SPDX-License-Identifier: MIT OR Apache-2.0

//! Raw TCP's target of many clients: one thread serves them all, as RDMA's target does.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::octets::{self, Messages};
use super::patience::PATIENCE;
use super::task::{Contender, Flow, Side, Spec, Task, Times};
use super::tcp::{Stream, accept};

/// The connections, and the bytes that are sent on each.
pub(super) struct Hub {
    lines: Vec<Line>,
    messages: Messages,
}

/// One client's connection.
struct Line {
    stream: Stream,
    /// Room for one message.
    sink: Vec<u8>,
    /// Bytes of the round that were moved.
    done: u64,
    /// The client has asked for the bytes, or was told that they are there.
    told: bool,
}

impl Hub {
    pub(super) fn accept(spec: &Spec, listener: &TcpListener) -> Result<Self> {
        let line = |stream| Line { stream, sink: Vec::new(), done: 0, told: false };
        let lines = accept(spec, listener)?.into_iter().map(line).collect();
        Ok(Self { lines, messages: Messages::default() })
    }

    /// Congestion control in force.
    pub(super) fn congestion(&self) -> Option<String> {
        self.lines.first()?.stream.congestion()
    }

    /// Calls `work` with each line that is ready for what `awaits` says, until no line awaits
    /// anything.
    fn serve_each(
        &mut self,
        awaits: impl Fn(&Line) -> PollFlags,
        mut work: impl FnMut(&mut Line, &Messages) -> Result<()>,
    ) -> Result<()> {
        let Self { lines, messages } = self;
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        loop {
            let of = |line: &Line| awaits(line);
            let ready: Vec<bool> = {
                let mut polled: Vec<_> = lines
                    .iter()
                    .filter(|line| !of(line).is_empty())
                    .map(|line| PollFd::new(line.stream.socket(), of(line)))
                    .collect();
                if polled.is_empty() {
                    return Ok(());
                }
                ensure!(poll(&mut polled, Some(&patience))? > 0, "raw TCP: nothing has come");
                polled.iter().map(|fd| !fd.revents().is_empty()).collect()
            };
            let awaited = lines.iter_mut().filter(|line| !awaits(line).is_empty());
            for (line, _) in awaited.zip(ready).filter(|(_, ready)| *ready) {
                work(line, messages)?;
            }
        }
    }
}

impl Line {
    /// Reads what is there of a message; tells the client when it was the last of `all` bytes.
    fn receive(&mut self, all: u64) -> Result<()> {
        let at = (self.done % self.sink.len() as u64) as usize;
        match self.stream.socket().read(&mut self.sink[at..]) {
            Ok(0) => bail!("the peer has closed its raw TCP connection"),
            Ok(n) => self.done += n as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("raw TCP"),
        }
        if self.done == all {
            self.told = true;
            self.stream.socket().write_all(&[1])?;
        }
        Ok(())
    }

    /// Takes the client's request, or writes what there is room for of `all` bytes.
    fn send(&mut self, all: u64, messages: &Messages) -> Result<()> {
        if !self.told {
            self.stream.socket().read_exact(&mut [0])?;
            self.told = true;
            return Ok(());
        }
        let len = messages.get(false).len() as u64;
        let at = (self.done % len) as usize;
        let octets = messages.get(self.done - at as u64 + len == all);
        match self.stream.socket().write(&octets[at..]) {
            Ok(n) => self.done += n as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("raw TCP"),
        }
        Ok(())
    }
}

impl Contender for Hub {
    fn prepare(&mut self, task: &Task, _: Side) -> Result<()> {
        ensure!(task.connections == self.lines.len(), "the number of clients differs");
        ensure!(task.list == 1, "raw TCP of many clients writes message by message");
        self.messages.prepare(task, task.size);
        for line in &mut self.lines {
            line.stream.set_spins(true)?;
            octets::clear(&mut line.sink, task.size);
            (line.done, line.told) = (0, false);
        }
        Ok(())
    }

    fn measure(&mut self, _: &Task, _: &mut Times) -> Result<Duration> {
        bail!("the clients measure")
    }

    fn serve(&mut self, task: &Task) -> Result<()> {
        let all = task.each() * task.size as u64;
        match task.flow {
            Flow::Stream => {
                let awaits = |line: &Line| flags(PollFlags::IN, !line.told);
                self.serve_each(awaits, |line, _| line.receive(all))
            }
            Flow::Fetch => {
                let awaits = |line: &Line| match line.told {
                    false => PollFlags::IN,
                    true => flags(PollFlags::OUT, line.done < all),
                };
                self.serve_each(awaits, |line, messages| line.send(all, messages))
            }
            _ => bail!("raw TCP of many clients cannot do {:?}", task.flow),
        }
    }

    fn verify(&mut self, task: &Task, _: Side) -> Result<()> {
        if task.flow != Flow::Stream {
            return Ok(());
        }
        self.lines.iter().try_for_each(|line| octets::verify(task, &line.sink))
    }
}

fn flags(flags: PollFlags, when: bool) -> PollFlags {
    if when { flags } else { PollFlags::empty() }
}
