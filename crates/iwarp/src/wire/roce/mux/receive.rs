// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets that arrive at a datagram port: checked, and handed to the queue pairs that they are
//! for.

use std::io;
use std::iter;
use std::mem;
use std::sync::Arc;

use iwarp_mem::OutOfMemory;
use iwarp_roce::wire::icrc::IdMemory;
use iwarp_roce::wire::{Counters, GSI_QP, MULTICAST_QP, Path, Received, receive};
use iwarp_types::{QpType, Time};

use super::Mux;
use crate::engine::endpoint::Endpoint;
use crate::port::Packets;
use crate::wire::roce::packets::{Arrived, slow_down, take_counters, take_packets};

/// Calls of the port before others get their turn.
const CALLS: usize = 16;

/// Packets that a queue pair gets under one lock: a thread that posts waits no longer than for
/// these.
const RUN: usize = 32;

/// Peers whose way of numbering packets is remembered.
const PEERS: usize = 256;

/// The state that belongs to the holder of the receive token.
#[derive(Debug)]
pub(super) struct Rx {
    touched: Touched,
    checks: Checks,
}

/// Queue pairs that have received something in this turn, and whether they have something to send.
#[derive(Debug, Default)]
struct Touched(Vec<(Arc<Endpoint>, bool)>);

/// Finds out which packets are valid, and so handed to queue pairs.
#[derive(Debug)]
struct Checks {
    /// The numbers that peers give to their packets.
    ids: IdMemory,
    counters: Counters,
    /// Queue pairs of whose packets the network tells that they met congestion.
    congested: Vec<(u32, Path)>,
}

impl Rx {
    pub(super) fn new() -> Result<Self, OutOfMemory> {
        let ids = IdMemory::new(PEERS).map_err(|_| OutOfMemory)?;
        let checks = Checks { ids, counters: Counters::default(), congested: Vec::new() };
        Ok(Self { touched: Touched::default(), checks })
    }
}

impl Touched {
    fn note(&mut self, endpoint: Arc<Endpoint>, wants: bool) {
        match self.0.iter_mut().rev().find(|(other, _)| Arc::ptr_eq(other, &endpoint)) {
            Some((_, wanted)) => *wanted = wants,
            None => self.0.push((endpoint, wants)),
        }
    }
}

impl Checks {
    /// The next valid packet. No queue pair is told of the others.
    // The packet is made where it goes, rather than copied there.
    #[inline(always)]
    fn next<'a>(&mut self, packets: &mut Packets<'a>, now: Time) -> Option<Arrived<'a>> {
        loop {
            let (path, octets) = packets.next()?;
            match receive(&path, octets, now, &mut self.ids, &mut self.counters) {
                Some(Received::Packet(packet)) => return Some((path, packet)),
                // Each is told once in a while at most, so more is nonsense.
                Some(Received::Congestion { qp }) if self.congested.len() < RUN => {
                    self.congested.push((qp, path));
                }
                _ => {}
            }
        }
    }
}

impl Mux {
    /// Receives what is there. False when this thread has seen nothing come.
    pub(super) fn receive(&self) -> bool {
        let mut moved = false;
        self.rx.request(|rx| moved |= self.receive_some(rx));
        moved
    }

    fn receive_some(&self, rx: &mut Rx) -> bool {
        let mut moved = false;
        let Rx { touched, checks } = rx;
        for _ in 0..CALLS {
            // A look that finds nothing, as most do while a caller polls, does not ask for the
            // time.
            let received = self.port.receive_all(&mut |packets| {
                let now = self.clock.now();
                if self.counted.is_by_port() {
                    self.hand_out_by_port(packets, now, checks, touched);
                } else {
                    self.hand_out(packets, now, checks, touched);
                }
            });
            match received {
                Ok(intake) => {
                    moved = true;
                    if !intake.more {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.rest(&error);
                    break;
                }
            }
        }
        if moved {
            self.counted.add(|| mem::take(&mut checks.counters));
        }
        for (number, path) in checks.congested.drain(..) {
            if let Some(endpoint) = self.queue_pair(number) {
                slow_down(&endpoint, &path, self.clock.now());
            }
        }
        for (endpoint, wants) in touched.0.drain(..) {
            if wants {
                self.send_for(&endpoint);
            } else {
                endpoint.watch_time();
            }
            self.counted.add_of(&endpoint, || take_counters(&endpoint));
        }
        moved
    }

    /// Hands packets out, and counts those of each address by themselves.
    fn hand_out_by_port(
        &self,
        packets: &mut Packets<'_>,
        now: Time,
        checks: &mut Checks,
        touched: &mut Touched,
    ) {
        let mut packets = packets.peekable();
        while let Some((path, _)) = packets.peek() {
            let to = path.address.destination;
            let interface = self.port.arrived_at(to).filter(|_| to.is_multicast());
            let mut run =
                iter::from_fn(|| packets.next_if(|(path, _)| path.address.destination == to));
            self.hand_out(&mut run, now, checks, touched);
            self.counted.add_at(to, interface, &mem::take(&mut checks.counters));
        }
    }

    /// Hands packets out: those that follow each other to one queue pair under one lock.
    fn hand_out(
        &self,
        packets: &mut Packets<'_>,
        now: Time,
        checks: &mut Checks,
        touched: &mut Touched,
    ) {
        let mut next = checks.next(packets, now);
        while let Some((path, packet)) = &next {
            let (number, to) = (packet.header.bth.dest_qp, path.address.destination);
            if number == GSI_QP {
                self.gsi.receive(path, packet);
            } else if number == MULTICAST_QP {
                for endpoint in self.attached(to) {
                    let wants = take_packets(&endpoint, &mut next, |_| false);
                    touched.note(endpoint, wants);
                }
            } else if let Some(endpoint) = self.queue_pair(number) {
                // Connected queue pairs check the way of their packets themselves.
                let is_checked = endpoint.qp_type() == QpType::Ud && endpoint.profile.is_bound();
                if is_checked && !endpoint.home().has_lately(to, now) {
                    checks.counters.unknown_qp += 1;
                    next = checks.next(packets, now);
                    continue;
                }
                let mut left = RUN;
                let wants = take_packets(&endpoint, &mut next, |next| {
                    *next = checks.next(packets, now);
                    left -= 1;
                    next.as_ref().is_some_and(|(path, more)| {
                        left > 0
                            && more.header.bth.dest_qp == number
                            && (!is_checked || path.address.destination == to)
                    })
                });
                touched.note(endpoint, wants);
                if left < RUN {
                    // The last that was looked at was not taken.
                    continue;
                }
            } else {
                checks.counters.unknown_qp += 1;
            }
            next = checks.next(packets, now);
        }
    }
}
