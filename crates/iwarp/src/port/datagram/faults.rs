// SPDX-License-Identifier: MIT OR Apache-2.0

//! A datagram network that loses, repeats, reorders and damages packets, as a seed says.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use iwarp_types::{Numbering, OutboundTrain, Path, Trains};

use super::around::{Wrap, around, pass_on};
use super::{BurstCursor, DatagramNetwork, DatagramPort, DatagramSettings, Intake, Packets, Sent};
use crate::port::faults::Draws;
use crate::port::lock;

/// The fate of packets: equal for equal seeds and equal calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DatagramFaults {
    /// Of 65,536 packets so many are lost.
    pub lost: u16,
    /// So many come twice.
    pub repeated: u16,
    /// So many come before some of those that were sent before them and not received yet.
    pub reordered: u16,
    /// Of so many one bit is changed.
    pub damaged: u16,
    /// Of 65,536 packets that are to be sent so many find the port full.
    pub full: u16,
}

impl DatagramFaults {
    /// The network with these faults, drawn from `seed`, for what each port sends and for what it
    /// receives. Each packet goes by itself: the system cuts none from one send.
    pub fn around(self, seed: u64, network: Arc<dyn DatagramNetwork>) -> Arc<dyn DatagramNetwork> {
        around(network, Source { faults: self, seed, ports: AtomicU64::new(0) })
    }

    /// The number of times that a packet comes.
    pub(in crate::port) fn copies(&self, draws: &mut Draws) -> usize {
        if happens(draws, self.lost) {
            return 0;
        }
        1 + usize::from(happens(draws, self.repeated))
    }

    /// The number of packets before it that one of these copies overtakes.
    pub(in crate::port) fn overtakes(&self, draws: &mut Draws) -> usize {
        if happens(draws, self.reordered) { 1 + draws.below(8) as usize } else { 0 }
    }

    /// The packet with one bit changed, where that is its fate.
    pub(in crate::port) fn damaged(&self, draws: &mut Draws, packet: &[u8]) -> Option<Vec<u8>> {
        (!packet.is_empty() && happens(draws, self.damaged)).then(|| {
            let mut changed = packet.to_vec();
            let bit = draws.below(changed.len() as u64 * 8) as usize;
            changed[bit / 8] ^= 1 << (bit % 8);
            changed
        })
    }

    /// True if a packet that is to be sent finds the port full.
    pub(in crate::port) fn finds_it_full(&self, draws: &mut Draws) -> bool {
        happens(draws, self.full)
    }
}

fn happens(draws: &mut Draws, of_65536: u16) -> bool {
    of_65536 > 0 && draws.below(1 << 16) < u64::from(of_65536)
}

/// Gives each port faults of its own.
#[derive(Debug)]
struct Source {
    faults: DatagramFaults,
    seed: u64,
    ports: AtomicU64,
}

impl Wrap for Source {
    /// Identifications of packets that are cut from one send count on, and their ICRCs with them: a
    /// lost one would spoil those behind it.
    fn settings(&self, asked: &DatagramSettings) -> DatagramSettings {
        DatagramSettings { segmenting: false, ..*asked }
    }

    fn wrap(&self, port: Box<dyn DatagramPort>) -> Box<dyn DatagramPort> {
        let number = self.ports.fetch_add(1, Ordering::Relaxed);
        let way = |direction: u64| {
            let draws = Draws::of(self.seed, number * 2 + direction);
            Mutex::new(Way { draws, waiting: Waiting::default() })
        };
        Box::new(Faulty { port, faults: self.faults, sending: way(0), receiving: way(1) })
    }
}

/// One direction.
#[derive(Debug)]
struct Way {
    draws: Draws,
    waiting: Waiting,
}

impl Way {
    /// Has a packet wait for its turn, as its fate is.
    fn carry(&mut self, faults: DatagramFaults, path: &Path, packet: &[u8]) {
        for _ in 0..faults.copies(&mut self.draws) {
            let waiting = &mut self.waiting.0;
            let place = waiting.len().saturating_sub(faults.overtakes(&mut self.draws));
            let octets = faults.damaged(&mut self.draws, packet);
            waiting.insert(place, (*path, octets.unwrap_or_else(|| packet.to_vec())));
        }
    }
}

/// Packets that go on next: as a burst, each a train by itself.
#[derive(Debug, Default)]
struct Waiting(VecDeque<(Path, Vec<u8>)>);

impl Trains for Waiting {
    fn numbering(&self) -> Numbering {
        Numbering::Zero
    }

    fn train(&self, index: usize) -> Option<OutboundTrain<'_>> {
        let Self(packets) = self;
        let (path, octets) = packets.get(index)?;
        Some(OutboundTrain { path, segment: octets.len(), packets: 1, octets })
    }
}

impl Waiting {
    /// Sends what is taken.
    fn flush(&mut self, port: &dyn DatagramPort) -> io::Result<Sent> {
        let mut cursor = BurstCursor::default();
        let sent = port.send(self, &mut cursor);
        let Self(packets) = self;
        match sent {
            Ok(Sent::All | Sent::Full) => drop(packets.drain(..cursor.trains)),
            // Packets of one train are equally long.
            Ok(Sent::TooLong(_)) | Err(_) => packets.clear(),
        }
        sent
    }
}

/// A port.
#[derive(Debug)]
struct Faulty {
    port: Box<dyn DatagramPort>,
    faults: DatagramFaults,
    sending: Mutex<Way>,
    receiving: Mutex<Way>,
}

/// The fate of a burst, with the place behind a train that is too long.
fn behind(sent: Sent, cursor: &mut BurstCursor) -> Sent {
    if matches!(sent, Sent::TooLong(_)) && cursor.packets > 0 {
        *cursor = BurstCursor { trains: cursor.trains + 1, packets: 0 };
    }
    sent
}

impl DatagramPort for Faulty {
    /// Packets of one train overtake each other, and wait here until they are taken.
    fn send_until(
        &self,
        burst: &dyn Trains,
        cursor: &mut BurstCursor,
        end: usize,
    ) -> io::Result<Sent> {
        let way = &mut *lock(&self.sending);
        // Packets of the last train of an earlier call that found the port full.
        match way.waiting.flush(&*self.port)? {
            Sent::All => {}
            // Packets of a burst that was given up since.
            Sent::TooLong(_) if *cursor == BurstCursor::default() => {}
            sent => return Ok(behind(sent, cursor)),
        }
        while let Some(train) = burst.train(cursor.trains).filter(|_| cursor.trains < end) {
            let mut is_full = false;
            for packet in train.octets.chunks(train.segment.max(1)).skip(cursor.packets) {
                is_full = self.faults.finds_it_full(&mut way.draws);
                if is_full {
                    break;
                }
                way.carry(self.faults, train.path, packet);
                cursor.packets += 1;
            }
            if !is_full {
                *cursor = BurstCursor { trains: cursor.trains + 1, packets: 0 };
            }
            match way.waiting.flush(&*self.port)? {
                Sent::All if is_full => return Ok(Sent::Full),
                Sent::All => {}
                sent => return Ok(behind(sent, cursor)),
            }
        }
        Ok(Sent::All)
    }

    fn receive_all(&self, take: &mut dyn FnMut(&mut Packets<'_>)) -> io::Result<Intake> {
        let mut came = VecDeque::new();
        let intake = self.port.receive_all(&mut |packets| {
            let way = &mut *lock(&self.receiving);
            packets.for_each(|(path, packet)| way.carry(self.faults, &path, packet));
            // A port of both families hands out those of each.
            came.append(&mut way.waiting.0);
        })?;
        let packets = came.len();
        take(&mut came.iter().map(|(path, packet)| (*path, &packet[..])));
        Ok(Intake { packets, ..intake })
    }

    pass_on!(port);
}
