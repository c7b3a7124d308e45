// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member as the engine drives it.

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use iwarp_types::CommIds;

use super::broker::Listening;
use super::member::Member;
use super::protocol::Mad;
use crate::port::{DatagramShare, Descriptors};

impl DatagramShare for Member {
    fn descriptors(&self) -> Descriptors<'_> {
        self.descriptor().map_or(Descriptors::none(), Descriptors::one)
    }

    fn turn(&mut self, now: Duration) {
        // In a forked child there is nothing to do.
        let _ = Self::turn(self, now);
    }

    fn next_timeout(&self) -> Option<Duration> {
        Self::next_timeout(self)
    }

    fn allocate_qpn(&mut self) -> io::Result<u32> {
        Self::allocate_qpn(self)
    }

    fn free_qpn(&mut self, number: u32) {
        Self::free_qpn(self, number);
    }

    fn ports(&self) -> io::Result<RangeInclusive<u16>> {
        Self::ports(self)
    }

    fn comm_ids(&mut self) -> io::Result<CommIds> {
        Self::comm_ids(self)
    }

    fn listen(&mut self, service: u64) -> io::Result<Listening> {
        Self::listen(self, service)
    }

    fn listening(&self, service: u64) -> Option<Listening> {
        Self::listening(self, service)
    }

    fn unlisten(&mut self, service: u64) {
        Self::unlisten(self, service);
    }

    fn next_mad(&mut self) -> Option<Mad> {
        Self::next_mad(self)
    }
}
