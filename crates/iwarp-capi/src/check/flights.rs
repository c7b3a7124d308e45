// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests that the device has: from the post to the end, which the program may not have polled.
//!
//! Requests of a send queue end in their order. Those of receive queues end in any, as a shared
//! queue serves several queue pairs.

use std::collections::{HashMap, VecDeque};

use iwarp::{Payload, RecvRequest, SendOp, SendRequest, Sge};

use super::place::Place;

/// A queue of requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Queue {
    /// Of the queue pair with this number.
    Sends(u32),
    /// Likewise.
    Receives(u32),
    /// A shared receive queue by the number that the engine gives it.
    Shared(u64),
}

/// The peer's memory that a request names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    pub(super) key: u32,
    pub(super) at: u64,
    pub(super) length: u64,
}

#[derive(Debug)]
pub(super) struct Flight {
    pub(super) number: u64,
    pub(super) wr_id: u64,
    /// A completion tells of its end if all is well.
    pub(super) signalled: bool,
    /// The device writes to its memory.
    pub(super) sink: bool,
    pub(super) elements: Vec<Sge>,
    pub(super) remote: Option<Remote>,
    pub(super) place: Place,
    /// Of the bytes that it sends.
    pub(super) digest: Option<u64>,
}

impl Flight {
    pub(super) fn of_send(request: &SendRequest<'_>) -> Self {
        let length = request.payload.len();
        let (sink, remote) = match request.op {
            SendOp::Write { stag, to } | SendOp::WriteImmediate { stag, to, .. } => {
                (false, Some((stag, to, length)))
            }
            SendOp::Read { stag, to, .. } => (true, Some((stag, to, length))),
            SendOp::Atomic { stag, to, .. } => (true, Some((stag, to, 8))),
            _ => (false, None),
        };
        let remote = remote.map(|(stag, to, length)| Remote { key: stag.0, at: to.0, length });
        let elements = match request.payload {
            Payload::Sges(elements) => elements.to_vec(),
            _ => Vec::new(),
        };
        let (wr_id, signalled) = (request.wr_id, request.signaled);
        let place = Place::here();
        Self { number: 0, wr_id, signalled, sink, elements, remote, place, digest: None }
    }

    pub(super) fn of_receive(request: &RecvRequest<'_>) -> Self {
        Self {
            number: 0,
            wr_id: request.wr_id,
            signalled: true,
            sink: true,
            elements: request.sges.to_vec(),
            remote: None,
            place: Place::here(),
            digest: None,
        }
    }

    pub(super) fn uses(&self, key: u32) -> bool {
        self.elements.iter().any(|element| element.length > 0 && element.lkey.0 == key)
    }

    pub(super) fn length(&self) -> u64 {
        self.elements.iter().map(|element| u64::from(element.length)).sum()
    }
}

#[derive(Debug, Default)]
pub(super) struct Flights {
    of: HashMap<Queue, VecDeque<Flight>>,
    posted: u64,
}

impl Flights {
    /// Enters a request, which gets a number.
    pub(super) fn enter(&mut self, queue: Queue, mut flight: Flight) -> &Flight {
        self.posted += 1;
        flight.number = self.posted;
        let flights = self.of.entry(queue).or_default();
        flights.push_back(flight);
        &flights[flights.len() - 1]
    }

    /// A request of a send queue has ended, and those before it.
    pub(super) fn sent(&mut self, pair: u32, wr_id: u64) -> Vec<Flight> {
        let Some(flights) = self.of.get_mut(&Queue::Sends(pair)) else { return Vec::new() };
        match flights.iter().position(|flight| flight.wr_id == wr_id) {
            Some(last) => flights.drain(..=last).collect(),
            None => Vec::new(),
        }
    }

    /// A receive of a queue pair has ended. Where it is not known which queue it was of, all that
    /// may be are taken for ended.
    pub(super) fn received(&mut self, pair: u32, wr_id: u64) -> Vec<Flight> {
        let own = self.of.get_mut(&Queue::Receives(pair));
        if let Some(flight) = own.and_then(|flights| take(flights, wr_id)) {
            return vec![flight];
        }
        let shared = self.of.iter_mut().filter(|(queue, _)| matches!(queue, Queue::Shared(_)));
        shared.filter_map(|(_, flights)| take(flights, wr_id)).collect()
    }

    /// A queue is gone, or empty.
    pub(super) fn forget(&mut self, queue: Queue) -> VecDeque<Flight> {
        self.of.remove(&queue).unwrap_or_default()
    }

    /// All shared receive queues are gone, or some of them.
    pub(super) fn forget_shared(&mut self) -> Vec<Flight> {
        let shared = self.of.extract_if(|queue, _| matches!(queue, Queue::Shared(_)));
        shared.flat_map(|(_, flights)| flights).collect()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (Queue, &Flight)> {
        self.of.iter().flat_map(|(queue, flights)| flights.iter().map(|flight| (*queue, flight)))
    }
}

fn take(flights: &mut VecDeque<Flight>, wr_id: u64) -> Option<Flight> {
    let at = flights.iter().position(|flight| flight.wr_id == wr_id)?;
    flights.remove(at)
}
