// SPDX-License-Identifier: MIT OR Apache-2.0

//! A datagram network that remembers what passes.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use iwarp_types::{Path, Trains};

use super::around::{Wrap, around, pass_on};
use super::{BurstCursor, DatagramNetwork, DatagramPort, DatagramSettings, Intake, Packets, Sent};
use crate::port::{Direction, lock};

/// The packets that have passed at the ports of a network, in the order in which they did. A clone
/// is another handle of the record, which grows without limit.
#[derive(Clone, Debug, Default)]
pub struct PacketRecording {
    passed: Arc<Mutex<Vec<PassedPacket>>>,
}

/// A packet that passed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassedPacket {
    /// The time at which the call to send began, or that to receive ended.
    pub at: Instant,
    /// The way of the packet, from its sender to its receiver.
    pub path: Path,
    /// The direction, as the recorded port sees it.
    pub direction: Direction,
    /// All behind the UDP header, with the ICRC.
    pub octets: Vec<u8>,
}

impl PacketRecording {
    /// Records what passes at the ports of `network` that are made through the result.
    pub fn around(&self, network: Arc<dyn DatagramNetwork>) -> Arc<dyn DatagramNetwork> {
        around(network, self.clone())
    }

    /// All that has passed so far.
    pub fn passed(&self) -> Vec<PassedPacket> {
        self.with(|passed| passed.clone())
    }

    fn with<R>(&self, work: impl FnOnce(&mut Vec<PassedPacket>) -> R) -> R {
        work(&mut lock(&self.passed))
    }
}

impl Wrap for PacketRecording {
    fn settings(&self, asked: &DatagramSettings) -> DatagramSettings {
        *asked
    }

    fn wrap(&self, port: Box<dyn DatagramPort>) -> Box<dyn DatagramPort> {
        Box::new(Recorded { recording: self.clone(), port })
    }
}

/// A port.
#[derive(Debug)]
struct Recorded {
    recording: PacketRecording,
    port: Box<dyn DatagramPort>,
}

impl DatagramPort for Recorded {
    fn send_until(
        &self,
        burst: &dyn Trains,
        cursor: &mut BurstCursor,
        end: usize,
    ) -> io::Result<Sent> {
        let before = *cursor;
        // Locked meanwhile: the record has a packet before the answer to it.
        self.recording.with(|passed| {
            let at = Instant::now();
            let sent = self.port.send_until(burst, cursor, end)?;
            // The last train of these is lost, and the place is behind it.
            let lost = matches!(sent, Sent::TooLong(_)).then(|| cursor.trains - 1);
            for index in before.trains..=cursor.trains {
                let Some(train) = burst.train(index).filter(|_| Some(index) != lost) else {
                    continue;
                };
                let first = if index == before.trains { before.packets } else { 0 };
                let behind = if index == cursor.trains { cursor.packets } else { train.packets };
                let packets = train.octets.chunks(train.segment.max(1)).take(behind).skip(first);
                passed.extend(packets.map(|octets| PassedPacket {
                    at,
                    path: *train.path,
                    direction: Direction::Sent,
                    octets: octets.to_vec(),
                }));
            }
            Ok(sent)
        })
    }

    fn receive_all(&self, take: &mut dyn FnMut(&mut Packets<'_>)) -> io::Result<Intake> {
        let mut came = Vec::new();
        let intake = self.port.receive_all(&mut |packets| {
            came.extend(packets.map(|(path, octets)| PassedPacket {
                at: Instant::now(),
                path,
                direction: Direction::Received,
                octets: octets.to_vec(),
            }));
        })?;
        self.recording.with(|passed| passed.extend_from_slice(&came));
        take(&mut came.iter().map(|packet| (packet.path, &packet.octets[..])));
        Ok(intake)
    }

    pass_on!(port);
}
