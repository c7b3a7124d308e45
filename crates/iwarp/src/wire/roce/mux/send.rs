// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets that go out by a datagram port: built by queue pairs in turn, and given to the system.
//!
//! A socket that is full drops what comes. RC finds out how much its peer takes by what is
//! acknowledged; UC and UD hear nothing, so what they send at once half fills a receive buffer of
//! the usual size, and the rest follows at a rate that a peer which is awake keeps up with.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_mem::OutOfMemory;
use iwarp_roce::wire::{Burst, Counters, Path};
use iwarp_types::{QpType, Time};

use super::{Mux, PACED};
use crate::engine::endpoint::Endpoint;
use crate::engine::options::Wire;
use crate::engine::sync::{Mutex, Ordering};
use crate::engine::worker::{Deadline, Timed};
use crate::port::{DatagramCounters, DatagramPort, Pace, Sent};
use crate::report;
use crate::wire::roce::outbox::Outbox;
use crate::wire::roce::packets::{fill, sent_late, wants_packets};

/// Bytes that are built in one go.
const BUDGET: usize = 256 * 1024;

/// Trains that are built in one go, and turns of queue pairs that build them.
const TRAINS: usize = 1024;

/// The size of the system's receive buffer by default (`net.core.rmem_default`).
const BUFFER: usize = 212_992;

/// The rate at which a peer takes packets out of it, in bytes a second and with the overhead of
/// each.
const RATE: u64 = 2_000_000_000;

/// The room that is waited for before a queue pair goes on.
const LEAST: u64 = BUFFER as u64 / 4;

/// Packets that the port has taken so much later than they were built left late.
const LATE: Duration = Duration::from_millis(1);

/// A caller that polls goes on by itself, so the worker takes a little longer.
const LAZE: Duration = Duration::from_micros(20);

/// The state that belongs to the holder of the transmit token.
#[derive(Debug)]
pub(super) struct Tx {
    outbox: Outbox,
    /// Queue pairs that have something to send, before those that wait for the token's holder.
    turns: VecDeque<Arc<Endpoint>>,
    /// The pace of UC and UD.
    pace: Pace,
    /// Queue pairs whose packets are in the outbox, with the trains that these are in.
    senders: Vec<(Weak<Endpoint>, Range<usize>)>,
    /// Queue pairs that wait for the pace, and what wakes them.
    paced: VecDeque<Arc<Endpoint>>,
    alarm: Option<(Time, Deadline)>,
    /// When the first packets in the outbox were built, in nanoseconds of the clock.
    built: u64,
    /// Packets that the port took, and did not, when they were last counted.
    counted: (u64, u64),
}

impl Tx {
    pub(super) fn new(port: &dyn DatagramPort) -> Result<Self, OutOfMemory> {
        let mut outbox = Outbox::new(port, BUDGET);
        outbox.reserve(TRAINS)?;
        let mut senders = Vec::new();
        senders.try_reserve_exact(TRAINS).map_err(|_| OutOfMemory)?;
        Ok(Self {
            outbox,
            turns: VecDeque::new(),
            pace: Pace::for_buffer(RATE, BUFFER),
            senders,
            paced: VecDeque::new(),
            alarm: None,
            built: 0,
            counted: (0, 0),
        })
    }

    /// Counts what happened since the last time.
    fn count(&mut self, port: &dyn DatagramPort) -> Counters {
        let DatagramCounters { sent, lost, too_long, .. } = port.counters();
        let now = (sent, lost.wrapping_add(too_long));
        let before = mem::replace(&mut self.counted, now);
        Counters {
            sent_pkts: now.0.wrapping_sub(before.0),
            send_err: now.1.wrapping_sub(before.1),
            ..Counters::default()
        }
    }
}

/// Queue pairs that have something to send, in the order of their turns.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<VecDeque<Arc<Endpoint>>>);

impl Waiting {
    fn push(&self, endpoint: &Arc<Endpoint>) {
        let mut waiting = self.0.lock();
        // It mostly stands there once, and a second turn does no harm.
        if waiting.back().is_none_or(|last| !Arc::ptr_eq(last, endpoint)) {
            waiting.push_back(Arc::clone(endpoint));
        }
    }

    /// Moves all of them behind those of `turns`.
    fn take(&self, turns: &mut VecDeque<Arc<Endpoint>>) {
        let mut waiting = self.0.lock();
        if turns.is_empty() {
            mem::swap(&mut *waiting, turns);
        } else {
            turns.append(&mut waiting);
        }
    }
}

/// The end of a queue pair's turn.
enum Turn {
    /// It has nothing more to send.
    Done,
    /// The burst is full.
    Full,
    /// It has to wait until then.
    Paced(Time),
}

impl Timed for Mux {
    fn due(self: Arc<Self>) {
        self.transmit_waiting();
    }
}

impl Mux {
    /// Sends what the queue pair has to send, now or when there is room.
    pub(super) fn send_for(&self, endpoint: &Arc<Endpoint>) {
        self.waiting.push(endpoint);
        self.transmit_waiting();
    }

    /// Sends what all of them have.
    pub(super) fn transmit_waiting(&self) {
        self.tx.request(|tx| {
            while self.transmit_some(tx) {}
            self.counted.add(|| tx.count(&*self.port));
        });
    }

    /// False when there is nothing more to send, or no room.
    fn transmit_some(&self, tx: &mut Tx) -> bool {
        if self.is_blocked() {
            return false;
        }
        let have_had_turns = self.fill(tx);
        if tx.outbox.is_empty() {
            return false;
        }
        let flushed = if self.counted.is_by_port() {
            self.flush_by_port(tx)
        } else {
            tx.outbox.flush(&*self.port)
        };
        match flushed {
            Ok(Sent::All) => {
                self.tell_late(tx);
                // A thread that has added something since then has left the token a note.
                !have_had_turns
            }
            Ok(Sent::Full) => {
                self.await_room();
                false
            }
            Ok(Sent::TooLong(path)) => {
                // The trains behind it were not tried yet.
                tell_too_long(&tx.senders, tx.outbox.trains_taken() - 1, &path);
                true
            }
            Err(error) => {
                report!(WARN, "cannot send packets: {error}");
                false
            }
        }
    }

    /// Gives the port what it takes, and counts the packets of each address by themselves.
    fn flush_by_port(&self, tx: &mut Tx) -> io::Result<Sent> {
        loop {
            let Some((source, end)) = tx.outbox.next_run() else {
                return tx.outbox.flush(&*self.port);
            };
            let sent = tx.outbox.flush_until(&*self.port, end);
            self.counted.add_at(source, None, &tx.count(&*self.port));
            if !matches!(sent, Ok(Sent::All)) || tx.outbox.is_empty() {
                return sent;
            }
        }
    }

    /// Tells queue pairs whose packets had to wait for room, or for this thread's CPU.
    fn tell_late(&self, tx: &Tx) {
        let late = Duration::from_nanos(self.clock.nanos().saturating_sub(tx.built));
        if late >= LATE {
            let senders = tx.senders.iter().filter_map(|(endpoint, _)| endpoint.upgrade());
            senders.for_each(|endpoint| sent_late(&endpoint, late));
        }
    }

    /// Has queue pairs put packets into the outbox, if the port has taken all that were there
    /// before. True if all that waited have had their turns.
    fn fill(&self, tx: &mut Tx) -> bool {
        let Tx { outbox, turns, pace, senders, paced, alarm, built, counted: _ } = tx;
        let Some(burst) = outbox.fill(&*self.port) else { return false };
        if alarm.as_ref().is_some_and(|(at, _)| *at <= self.clock.now()) {
            *alarm = None;
        }
        if burst.is_empty() {
            senders.clear();
            *built = self.clock.nanos();
        }
        self.gsi.transmit(burst, self.port.local_addr().port());
        self.waiting.take(turns);
        // Queue pairs that waited have their turn before others.
        let mut before = paced.len();
        let have_had_turns = loop {
            if burst.is_full() || senders.len() >= TRAINS {
                break false;
            }
            let endpoint = if before > 0 { paced.pop_front() } else { turns.pop_front() };
            before = before.saturating_sub(1);
            let Some(endpoint) = endpoint else { break true };
            let trains = burst.trains().len();
            // There is none before the first.
            let last = trains.wrapping_sub(1);
            let before = burst.packets_of(last);
            let turn = turn_of(&endpoint, burst, pace);
            endpoint.watch_time();
            // Its first packets may have become part of the last train that there was.
            let grown = burst.packets_of(last) > before;
            let added = trains - usize::from(grown)..burst.trains().len();
            if !added.is_empty() {
                senders.push((Arc::downgrade(&endpoint), added));
            }
            match turn {
                Turn::Done => {}
                Turn::Full => self.waiting.push(&endpoint),
                Turn::Paced(at) => {
                    if alarm.is_none() {
                        let (at, this): (_, Weak<Self>) =
                            (at.plus(LAZE), Weak::clone(&self.itself));
                        *alarm = Some((at, endpoint.engine.worker.deadline_of(at, this)));
                    }
                    if !paced.iter().any(|other| Arc::ptr_eq(other, &endpoint)) {
                        paced.push_back(endpoint);
                    }
                }
            }
        };
        if paced.is_empty() {
            *alarm = None;
            self.flags.fetch_and(!PACED, Ordering::Relaxed);
        } else {
            self.flags.fetch_or(PACED, Ordering::Relaxed);
        }
        have_had_turns
    }

    /// Goes on where queue pairs wait for the pace.
    pub(super) fn transmit_paced(&self) {
        if self.flags.load(Ordering::Relaxed) & PACED != 0 {
            self.transmit_waiting();
        }
    }
}

/// A queue pair puts packets into the burst, as many as it may.
fn turn_of(endpoint: &Endpoint, burst: &mut Burst, pace: &mut Pace) -> Turn {
    let now = endpoint.now();
    let before = burst.weight();
    let is_paced = endpoint.qp_type() != QpType::Rc;
    if is_paced {
        let room = pace.room(now);
        if room < LEAST {
            return if wants_packets(endpoint) {
                Turn::Paced(pace.when(LEAST, now))
            } else {
                Turn::Done
            };
        }
        burst.limit(Some(usize::try_from(room).unwrap_or(usize::MAX)));
    }
    let more = fill(endpoint, burst);
    burst.limit(None);
    if is_paced {
        pace.spend(burst.weight() - before, now);
    }
    match more {
        true if burst.is_full() => Turn::Full,
        true if is_paced => Turn::Paced(pace.when(LEAST, now)),
        _ => Turn::Done,
    }
}

/// Packets of that train are longer than the path carries. Queue pairs whose peer is at its end
/// cannot go on; of datagrams others may be shorter.
fn tell_too_long(senders: &[(Weak<Endpoint>, Range<usize>)], train: usize, path: &Path) {
    report!(
        WARN,
        to = %path.address.destination,
        "packets are longer than the path carries: choose a smaller path MTU"
    );
    let of_train = senders.iter().filter(|(_, trains)| trains.contains(&train));
    for endpoint in of_train.filter_map(|(endpoint, _)| endpoint.upgrade()) {
        if endpoint.qp_type() != QpType::Ud && endpoint.wire() == Some(Wire::Roce) {
            endpoint.with(|core| core.fail_locally("packets are longer than the path carries"));
        }
    }
}
