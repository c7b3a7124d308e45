// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings of a connection manager, and the source of its random numbers.

use core::time::Duration;

use iwarp_types::CommIds;

use super::own_kind::OwnKind;
use super::time::TimeCode;
use crate::wire::Mtu;

/// The settings with which a connection manager is made.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// GUID of the device, one for all processes that share it (ROCE-139).
    pub guid: u64,
    /// Its communication ids, drawn at random (ROCE-148).
    pub comm_ids: CommIds,
    /// The largest path MTU that the device can have; a REQ with a larger one is refused
    /// (ROCE-168).
    pub mtu: Mtu,
    /// The time that either end takes to answer: told to the peer, and waited for.
    pub response_timeout: TimeCode,
    /// The time that a packet lives on its way.
    pub packet_lifetime: TimeCode,
    /// The time that this end takes to acknowledge a packet.
    pub ack_delay: TimeCode,
    /// Times that a message is sent again for want of an answer; at most 15.
    pub max_retries: u8,
    /// The time that an MRA asks for (ROCE-162).
    pub service_timeout: TimeCode,
    /// The facts that ends of our own kind are told; `None` tells none.
    pub own_kind: Option<OwnKind>,
    /// Refusals and answers to datagram requests that are kept for repeated requests.
    pub stored_answers: usize,
}

impl Default for Settings {
    /// Every message is sent again after 1.6 s, 15 times. A peer of Linux waits 4.6 s.
    fn default() -> Self {
        Self {
            guid: 0,
            comm_ids: CommIds::default(),
            mtu: Mtu::Mtu4096,
            response_timeout: TimeCode::new(18),
            packet_lifetime: TimeCode::new(16),
            ack_delay: TimeCode::new(15),
            max_retries: 15,
            service_timeout: TimeCode::new(24),
            own_kind: None,
            stored_answers: 64,
        }
    }
}

impl Settings {
    /// Local ACK timeout of queue pairs, as a REQ tells it.
    pub(super) fn ack_timeout(&self) -> TimeCode {
        TimeCode::ack_timeout(self.ack_delay, self.packet_lifetime)
    }

    /// The time after which a REQ is sent again.
    pub(super) fn interval(&self) -> Duration {
        self.packet_lifetime.duration() * 2 + self.response_timeout.duration()
    }

    pub(super) fn retries(&self) -> u8 {
        self.max_retries.min(15)
    }
}

/// Source of random numbers. They keep strangers from guessing communication ids and PSNs, so
/// outside of tests they come from the system.
pub trait Random {
    /// The next number.
    fn next(&mut self) -> u32;
}

/// Random numbers that a seed repeats: for tests and simulators.
#[derive(Clone, Debug)]
pub struct Seeded(pub u64);

impl Random for Seeded {
    /// SplitMix64.
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32 ^ mixed as u32
    }
}
