// SPDX-License-Identifier: MIT OR Apache-2.0

//! The contract of a queue pair over datagrams.

use core::time::Duration;

use iwarp_types::{Core, Memory, Reason, ReceivePool, Time};

use crate::config::Attributes;
use crate::wire::{Burst, Counters, Packet, Path};

/// A core whose messages are packets: one queue pair among many that share a datagram port.
///
/// As with any [`Core`], whoever drives it holds its lock, nothing here waits, and a posted request
/// ends in exactly one event. A packet that may not be for this queue pair, or says nothing, is
/// dropped without a word. A port may lose packets, hand them out twice, late and in another order;
/// it never hands out one whose ICRC is wrong.
pub trait DatagramCore: Core<Terminated = Reason, Fault = Reason> {
    /// Takes over what the program set. The owner calls it before [`Core::modify`] to the state that
    /// the attributes belong to.
    fn set_attributes(&mut self, attributes: &Attributes);

    /// Takes a packet that has come by `path` (its source is the sender).
    fn receive<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        path: &Path,
        now: Time,
        memory: &M,
        receives: &dyn ReceivePool,
    );

    /// A packet that came by `path` tells that packets of this queue pair met congestion. Types
    /// without acknowledgements have no rate that they could lower.
    fn congested(&mut self, _path: &Path, _now: Time) {}

    /// Builds packets until there is nothing to send or `burst` is full. What is in the burst
    /// counts as sent; a port that cannot send it keeps it, or loses it as a network does.
    fn transmit<M: Memory + ?Sized>(&mut self, burst: &mut Burst, now: Time, memory: &M);

    /// The packets that [`Self::transmit`] has built left so much later than it was told: the wait
    /// for their answers begins with that.
    fn sent_late(&mut self, _by: Duration) {}

    /// The counts since the last call; the port counts packets.
    fn take_counters(&mut self) -> Counters {
        Counters::default()
    }
}
