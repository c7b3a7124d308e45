// SPDX-License-Identifier: MIT OR Apache-2.0

//! The share of a process that has its host for itself.

use std::collections::HashSet;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use iwarp_types::CommIds;

use super::DatagramShare;
use crate::port::Descriptors;
use crate::port::share::{Listening, Mad};

/// All of the port: on a network in memory every device is a host. Packets for QP 1 come to its
/// port.
#[derive(Debug)]
pub struct WholePort {
    next: u32,
    used: HashSet<u32>,
    services: HashSet<u64>,
}

/// As on a host where processes share: numbers of one slot.
const FIRST: u32 = 1 << 18;
const END: u32 = FIRST + (1 << 17);
const PORTS: RangeInclusive<u16> = (END >> 8) as u16..=(END >> 8) as u16 + 511;

impl Default for WholePort {
    fn default() -> Self {
        Self { next: FIRST, used: HashSet::new(), services: HashSet::new() }
    }
}

impl DatagramShare for WholePort {
    fn descriptors(&self) -> Descriptors<'_> {
        Descriptors::none()
    }

    fn turn(&mut self, _: Duration) {}

    fn next_timeout(&self) -> Option<Duration> {
        None
    }

    fn allocate_qpn(&mut self) -> io::Result<u32> {
        if self.used.len() >= (END - FIRST) as usize {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        loop {
            let number = self.next;
            self.next = if number + 1 == END { FIRST } else { number + 1 };
            if self.used.insert(number) {
                return Ok(number);
            }
        }
    }

    fn free_qpn(&mut self, number: u32) {
        self.used.remove(&number);
    }

    fn ports(&self) -> io::Result<RangeInclusive<u16>> {
        Ok(PORTS)
    }

    fn comm_ids(&mut self) -> io::Result<CommIds> {
        Ok(CommIds::default())
    }

    fn listen(&mut self, service: u64) -> io::Result<Listening> {
        self.services.insert(service);
        Ok(Listening::Granted)
    }

    fn listening(&self, service: u64) -> Option<Listening> {
        self.services.contains(&service).then_some(Listening::Granted)
    }

    fn unlisten(&mut self, service: u64) {
        self.services.remove(&service);
    }

    fn next_mad(&mut self) -> Option<Mad> {
        None
    }
}
