// SPDX-License-Identifier: MIT OR Apache-2.0

//! A network that remembers what passes.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::around::{Held, Wrap, around, gathered, pass_on};
use super::{Ends, IoPart, IoPartMut, Network, Port, Readiness};

/// The bytes that have passed on the connections of a network, in the order in which they did. A
/// clone is another handle of the record, which grows without limit.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    all: Arc<Mutex<RecordingState>>,
}

#[derive(Debug, Default)]
struct RecordingState {
    connections: usize,
    passed: Vec<Passed>,
}

/// Something that passed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passed {
    /// The connection, counted from 0.
    pub connection: usize,
    /// The time at which the call to send began, or that to receive ended.
    pub at: Instant,
    /// The ends of the connection.
    pub ends: Ends,
    /// The direction, as the recorded end sees it.
    pub direction: Direction,
    /// The bytes; none where the stream ended.
    pub octets: Vec<u8>,
}

/// The direction that bytes went in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// To the peer.
    Sent,
    /// From the peer.
    Received,
}

impl Recording {
    /// Records what passes on the connections of `network` that are made through the result.
    pub fn around(&self, network: Arc<dyn Network>) -> Arc<dyn Network> {
        around(network, self.clone())
    }

    /// All that has passed so far.
    pub fn passed(&self) -> Vec<Passed> {
        self.with(|state| state.passed.clone())
    }

    /// The stream of one direction of a connection so far.
    pub fn stream(&self, connection: usize, direction: Direction) -> Vec<u8> {
        self.with(|state| {
            let its =
                |passed: &&Passed| passed.connection == connection && passed.direction == direction;
            state.passed.iter().filter(its).flat_map(|passed| passed.octets.clone()).collect()
        })
    }

    fn with<R>(&self, work: impl FnOnce(&mut RecordingState) -> R) -> R {
        work(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Wrap for Recording {
    fn wrap(&self, port: Box<dyn Port>) -> io::Result<Box<dyn Port>> {
        let number = self.with(|state| {
            state.connections += 1;
            state.connections - 1
        });
        let recording = self.clone();
        Ok(Box::new(Recorded { recording, number, port, held: Held::default() }))
    }
}

/// A connection.
#[derive(Debug)]
struct Recorded {
    recording: Recording,
    number: usize,
    port: Box<dyn Port>,
    held: Held,
}

impl Recorded {
    fn note(&self, direction: Direction, octets: &[u8]) {
        let (connection, ends) = (self.number, self.port.ends());
        let octets = octets.to_vec();
        let passed = Passed { connection, at: Instant::now(), ends, direction, octets };
        self.recording.with(|state| state.passed.push(passed));
    }
}

impl Port for Recorded {
    fn send(&self, parts: &[IoPart<'_>], more: bool) -> io::Result<usize> {
        let octets = gathered(parts, usize::MAX)?;
        // Noted before the peer can answer.
        self.recording.with(|state| {
            let at = Instant::now();
            let sent = self.port.send(&[IoPart::new(&octets)], more)?;
            let (connection, ends) = (self.number, self.port.ends());
            let octets = octets[..sent].to_vec();
            state.passed.push(Passed { connection, at, ends, direction: Direction::Sent, octets });
            Ok(sent)
        })
    }

    fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        let note = |octets: &[u8]| self.note(Direction::Received, octets);
        self.held.receive(&*self.port, parts, usize::MAX, note)
    }

    fn has_input(&self) -> io::Result<bool> {
        Ok(!self.held.is_empty() || self.port.has_input()?)
    }

    fn readiness(&self) -> Readiness {
        self.held.readiness() | self.port.readiness()
    }

    fn may_hold(&self) -> bool {
        true
    }

    pass_on!(port);
}
