// SPDX-License-Identifier: MIT OR Apache-2.0

//! The contract of a queue pair over datagrams.

use core::time::Duration;

use iwarp_types::{Core, Memory, Reason, ReceivePool, Time};

use crate::config::Attributes;
use crate::wire::{Burst, Counters, Packet, Path};

/// A core whose messages are packets: one queue pair among many that share a datagram port.
///
/// As with any [`Core`], its driver holds its lock, no call waits, and a posted request ends in
/// exactly one event. A packet that may not be for this queue pair, or says nothing, is dropped
/// without an answer (ROCE-019). A port may lose packets, hand them out twice, late and in another
/// order; it never hands out one whose ICRC is wrong.
pub trait DatagramCore: Core<Terminated = Reason, Fault = Reason> {
    /// Takes over the attributes that the program set. The owner calls it before [`Core::modify`]
    /// to the state that the attributes belong to.
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

    /// A packet that came by `path` tells that packets of this queue pair met congestion: at most
    /// the pace changes (ROCE-143). Types without acknowledgements have no rate to lower.
    fn congested(&mut self, _path: &Path, _now: Time) {}

    /// Builds packets until there is nothing to send or `burst` is full. Packets in the burst count
    /// as sent; a port that cannot send them keeps them, or loses them as a network does.
    fn transmit<M: Memory + ?Sized>(&mut self, burst: &mut Burst, now: Time, memory: &M);

    /// The packets that [`Self::transmit`] has built left `by` later than it was told: the wait for
    /// their answers begins then.
    fn sent_late(&mut self, _by: Duration) {}

    /// The counts since the last call; the port counts packets.
    fn take_counters(&mut self) -> Counters {
        Counters::default()
    }
}
