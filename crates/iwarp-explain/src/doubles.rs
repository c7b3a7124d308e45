// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets that were captured twice: on their way out and in, or by two interfaces of a bridge.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use crate::ip::Packet;

/// Packets among which the first is looked for.
const RECENT: usize = 64;
/// The time within which a packet comes the second time.
const TWICE: Duration = Duration::from_millis(5);

/// A packet of late.
#[derive(Clone, Copy, Debug)]
struct Recent {
    hash: u64,
    at: Duration,
    ends: [IpAddr; 2],
    /// The other end has sent something since, so it may have been sent again.
    answered: bool,
}

/// The packets of late.
#[derive(Debug, Default)]
pub(crate) struct Doubles {
    recent: VecDeque<Recent>,
}

impl Doubles {
    /// True if the packet, whose bytes from the IP header on are `data`, was captured a moment ago.
    pub(crate) fn is_second(&mut self, packet: &Packet<'_>, data: &[u8], at: Duration) -> bool {
        // Packets with a number of their own are never equal.
        let numbered = packet.identification.is_some_and(|(number, _)| number != 0);
        let ends = [packet.source, packet.destination];
        let hash = hash(packet, data);
        let is_first = |recent: &Recent| {
            recent.hash == hash
                && at.saturating_sub(recent.at) <= TWICE
                && (numbered || !recent.answered)
        };
        if self.recent.iter().any(is_first) {
            return true;
        }
        for recent in &mut self.recent {
            recent.answered |= recent.ends == [ends[1], ends[0]];
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Recent { hash, at, ends, answered: false });
        false
    }
}

/// A hash of all but what a router between may change: the time to live and the sum over the
/// header.
fn hash(packet: &Packet<'_>, data: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let (before, after) = match packet.source {
        IpAddr::V4(_) => (8, 12),
        IpAddr::V6(_) => (7, 8),
    };
    // The protocol stands between the two in IPv4.
    packet.protocol.hash(&mut hasher);
    data.get(..before).hash(&mut hasher);
    data.get(after..).hash(&mut hasher);
    hasher.finish()
}
