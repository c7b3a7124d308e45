// SPDX-License-Identifier: MIT OR Apache-2.0

//! The traffic of RDMA programs in a round.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use iwarp::{AtomicOp, Payload, SendOp, SendRequest, Sge};

use super::octets;
use super::patience::Pace;
use super::rdma::{End, Rdma, SEND, memory, put};
use super::task::{Contender, Flow, Idle, Op, Side, Task, Times, Wait, mark};
use super::ways::Ways;

/// Bytes of the message that says that all is there.
const CONFIRMATION: [u8; 4] = *b"done";
/// Work requests posted in one call at most.
pub(super) const MOST: usize = 64;

impl Contender for Rdma {
    fn prepare(&mut self, task: &Task, side: Side) -> Result<()> {
        ensure!(task.connections <= self.ends.len(), "there are fewer connections");
        let wait = if side == Side::Client { task.wait } else { task.server_wait };
        self.prepare_to_sleep(wait)?;
        for end in &self.ends[..task.connections] {
            ensure!(end.outstanding == 0 && end.received == 0, "an earlier round left something");
            let size = task.size;
            match (task.flow, side) {
                (Flow::Dial | Flow::Rest, _) => bail!("no flow of messages: {:?}", task.flow),
                (Flow::Stream | Flow::Push, Side::Client) => {
                    put(end.outbox(), 0, 0, size);
                    put(end.last(), task.seed, task.mark(), size);
                }
                (Flow::Stream | Flow::Push, Side::Server) => clear(end, size),
                (Flow::Fetch | Flow::Request, Side::Client) => clear(end, size),
                (Flow::Fetch | Flow::Request, Side::Server) => {
                    end.counter().store(task.seed, Ordering::Release);
                    put(end.outbox(), task.seed, task.mark(), size);
                }
                (Flow::PingPong, _) => {
                    clear(end, size);
                    put(end.outbox(), task.seed, task.mark(), size);
                }
            }
        }
        Ok(())
    }

    fn measure(&mut self, task: &Task, times: &mut Times) -> Result<Duration> {
        let start = Instant::now();
        times.begin();
        match (task.flow, task.op) {
            (Flow::Stream, Op::Write | Op::Send) => {
                self.pour(task)?;
                self.await_confirmation(task)?;
            }
            (Flow::Push, Op::Write) => {
                self.pour(task)?;
                self.look(task)?;
            }
            (Flow::PingPong, Op::Write) => {
                for number in 0..task.count {
                    self.write_ping(task, task.wait, number)?;
                    self.await_ping(task, task.wait, number)?;
                    times.lap();
                }
            }
            (Flow::PingPong, Op::Send) => {
                for _ in 0..task.count {
                    self.send_ping(task)?;
                    self.until(task.wait, |ends| ends[0].outstanding == 0 && ends[0].received > 0)?;
                    self.ends[0].received -= 1;
                    times.lap();
                }
            }
            (Flow::Fetch | Flow::Request, Op::Read | Op::FetchAdd | Op::CompareSwap) => {
                self.fetch(task, times)?;
            }
            _ => bail!("{:?} cannot do {:?}", task.op, task.flow),
        }
        Ok(start.elapsed())
    }

    fn serve(&mut self, task: &Task) -> Result<()> {
        let wait = task.server_wait;
        match (task.flow, task.op) {
            (Flow::Stream, Op::Write | Op::Send) => self.drain(task),
            (Flow::PingPong, Op::Write) => {
                for number in 0..task.count {
                    self.await_ping(task, wait, number)?;
                    self.write_ping(task, wait, number)?;
                }
                self.until(Wait::Poll, |ends| ends[0].outstanding == 0)
            }
            (Flow::PingPong, Op::Send) => {
                for _ in 0..task.count {
                    self.until(wait, |ends| ends[0].received > 0)?;
                    self.ends[0].received -= 1;
                    self.send_ping(task)?;
                }
                self.until(wait, |ends| ends[0].outstanding == 0)
            }
            (flow, _) if flow.is_one_sided() => Ok(()),
            _ => bail!("{:?} cannot do {:?}", task.op, task.flow),
        }
    }

    fn verify(&mut self, task: &Task, side: Side) -> Result<()> {
        for end in &self.ends[..task.connections] {
            let inbox = memory(end.inbox());
            let last = task.seed.wrapping_add(task.each());
            match (task.op, task.flow, side) {
                (Op::FetchAdd | Op::CompareSwap, _, Side::Client) => {
                    let found = end.found_value();
                    ensure!(found == last - 1, "the last Atomic found {found}, not {}", last - 1);
                }
                (Op::FetchAdd | Op::CompareSwap, _, Side::Server) => {
                    let counter = end.counter().load(Ordering::Acquire);
                    ensure!(counter == last, "Atomics left {counter}, not {last}");
                }
                (Op::Read, _, Side::Client) | (_, Flow::Stream | Flow::Push, Side::Server) => {
                    octets::verify_buffer(task, inbox, task.size)?;
                }
                (Op::Write, Flow::PingPong, _) => {
                    let mut found = vec![0; task.size];
                    inbox.read_at(0, &mut found);
                    let last = found.last_mut().expect("messages have bytes");
                    ensure!(
                        *last == mark(task.count - 1),
                        "the last byte is not the last message's"
                    );
                    *last = task.mark();
                    octets::verify(task, &found)?;
                }
                (Op::Send, Flow::PingPong, _) => octets::verify_buffer(task, inbox, task.size)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn idle(&mut self) -> Option<Idle> {
        let memory_each = self.crowd.as_ref()?.memory_each;
        let connections = self.crowd.as_ref()?.len();
        Some(Idle { connections, memory_each, empty_poll: self.empty_poll() })
    }

    fn ways(&self) -> Ways {
        self.all_ways()
    }

    fn direct(&self) -> u64 {
        self.all_direct()
    }

    fn hindrance(&self) -> Option<String> {
        self.path_hindrance().map(str::to_owned)
    }
}

impl Rdma {
    /// Streams messages to the peer.
    fn pour(&mut self, task: &Task) -> Result<()> {
        let calls = task.each() / task.list as u64;
        let mut pace = Pace::new(task);
        for call in 1..=calls {
            pace.keep(task.list * task.connections);
            for at in 0..task.connections {
                self.wait_for_room(task, at)?;
                if task.op == Op::Send {
                    self.wait_for_credit(at, task.list as u64)?;
                }
                let end = &mut self.ends[at];
                let op = if task.op == Op::Send { SEND } else { end.write() };
                let sge = end.outbox().sge(0, task.size);
                let last = if call == calls { end.last().sge(0, task.size) } else { sge };
                post_list(end, task.list, |_| op, sge, last)?;
            }
        }
        Ok(())
    }

    /// Waits until the peer says that all is there, on every connection.
    fn await_confirmation(&mut self, task: &Task) -> Result<()> {
        if task.op == Op::Write && task.server_wait.sleeps() {
            // Writes do not wake the server.
            for at in 0..task.connections {
                self.send(at, Payload::Inline(&[]))?;
            }
        }
        self.until(task.wait, |ends| {
            ends[..task.connections].iter().all(|end| end.received > 0 && end.outstanding == 0)
        })?;
        for end in &mut self.ends[..task.connections] {
            end.received -= 1;
        }
        Ok(())
    }

    /// Reads the last byte of the last message at the peer. A Read is answered when the Writes
    /// before it have been placed (RFC 5040 §5.5).
    fn look(&mut self, task: &Task) -> Result<()> {
        for end in &mut self.ends[..task.connections] {
            let sges = [end.found_octet()];
            let request = end.request(end.read_back(task.size - 1), Payload::Sges(&sges), 1);
            end.post(&[request])?;
        }
        self.until(task.wait, |ends| ends[..task.connections].iter().all(|e| e.outstanding == 0))?;
        for end in &self.ends[..task.connections] {
            let found = end.found_value() as u8;
            ensure!(found == task.mark(), "the last byte written reads {found:#04x}");
        }
        Ok(())
    }

    /// Receives all messages, and confirms them.
    fn drain(&mut self, task: &Task) -> Result<()> {
        let (size, mark, wait) = (task.size, task.mark(), task.server_wait);
        let there = |end: &End| end.last_octet(size).load(Ordering::Acquire) == mark;
        let sends = match task.op {
            Op::Send => task.each(),
            _ if wait.sleeps() => 1,
            _ => 0,
        };
        if sends > 0 {
            let all = |ends: &[End]| ends.iter().all(|end| end.received >= sends);
            self.until(wait, |ends| all(&ends[..task.connections]))?;
            for end in &mut self.ends[..task.connections] {
                end.received -= sends;
            }
        } else if wait == Wait::Memory {
            for at in 0..task.connections {
                self.spin(at, size, mark)?;
            }
        } else {
            self.until(wait, |ends| ends[..task.connections].iter().all(there))?;
        }
        for at in 0..task.connections {
            self.send(at, Payload::Inline(&CONFIRMATION))?;
        }
        self.until(wait, |ends| ends[..task.connections].iter().all(|end| end.outstanding == 0))
    }

    /// Reads or changes the peer's memory, so many at a time on each connection.
    fn fetch(&mut self, task: &Task, times: &mut Times) -> Result<()> {
        let calls = task.each() / task.list as u64;
        let mut value = task.seed;
        for _ in 0..calls {
            for at in 0..task.connections {
                self.wait_for_room(task, at)?;
                let end = &mut self.ends[at];
                let sge = match task.op {
                    Op::Read => end.inbox().sge(0, task.size),
                    _ => end.found(),
                };
                let (read, (stag, to)) = (end.read(), end.peer_counter());
                let op = |number: usize| match task.op {
                    Op::Read => read,
                    Op::FetchAdd => {
                        SendOp::Atomic { stag, to, op: AtomicOp::FetchAdd { add: 1, mask: 0 } }
                    }
                    _ => SendOp::Atomic {
                        stag,
                        to,
                        op: AtomicOp::CompareSwap {
                            compare: value + number as u64,
                            compare_mask: u64::MAX,
                            swap: value + number as u64 + 1,
                            swap_mask: u64::MAX,
                        },
                    },
                };
                post_list(end, task.list, op, sge, sge)?;
            }
            value += task.list as u64;
            if task.depth == 1 {
                self.until(task.wait, |ends| ends[0].outstanding == 0)?;
                times.lap();
            }
        }
        self.until(task.wait, |ends| ends[..task.connections].iter().all(|e| e.outstanding == 0))
    }

    fn wait_for_room(&mut self, task: &Task, at: usize) -> Result<()> {
        let room = |end: &End| end.outstanding + task.list <= task.depth;
        if room(&self.ends[at]) { Ok(()) } else { self.until(task.wait, |ends| room(&ends[at])) }
    }

    fn send_ping(&mut self, task: &Task) -> Result<()> {
        let sges = [self.ends[0].outbox().sge(0, task.size)];
        self.send(0, Payload::Sges(&sges))
    }

    /// Writes one message that differs from the one before in its last byte, and takes its
    /// completion.
    fn write_ping(&mut self, task: &Task, wait: Wait, number: u64) -> Result<()> {
        let end = &mut self.ends[0];
        memory(end.outbox()).write_at(task.size - 1, &[mark(number)]);
        let (op, sge) = (end.write(), end.outbox().sge(0, task.size));
        post_list(end, 1, |_| op, sge, sge)?;
        if wait == Wait::Memory {
            // As ib_write_lat does: its own completion it polls for.
            self.until(Wait::Poll, |ends| ends[0].outstanding == 0)?;
        }
        Ok(())
    }

    fn await_ping(&mut self, task: &Task, wait: Wait, number: u64) -> Result<()> {
        let (size, mark) = (task.size, mark(number));
        match wait {
            Wait::Memory => self.spin(0, size, mark),
            Wait::Poll => self.until(wait, |ends| {
                ends[0].outstanding == 0 && ends[0].last_octet(size).load(Ordering::Acquire) == mark
            }),
            Wait::Events | Wait::Fd => bail!("no event comes of a Write"),
        }
    }
}

/// Posts `n` work requests in one call, of which the last raises the completion.
fn post_list(
    end: &mut End,
    n: usize,
    op: impl Fn(usize) -> SendOp,
    sge: Sge,
    last: Sge,
) -> Result<()> {
    let (sge, last) = ([sge], [last]);
    if n == 1 {
        return end.post(&[end.request(op(0), Payload::Sges(&last), 1)]);
    }
    let nothing = end.request(SEND, Payload::Inline(&[]), 0);
    let mut requests: [SendRequest<'_>; MOST] = [nothing; MOST];
    for (number, request) in requests[..n].iter_mut().enumerate() {
        let (sges, stands_for) = if number + 1 == n { (&last, n) } else { (&sge, 0) };
        *request = end.request(op(number), Payload::Sges(sges), stands_for);
    }
    end.post(&requests[..n])
}

/// Clears the bytes that are looked at afterwards.
fn clear(end: &End, size: usize) {
    memory(end.inbox()).write_at(0, &vec![0; size]);
}
