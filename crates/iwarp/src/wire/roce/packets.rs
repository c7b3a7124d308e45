// SPDX-License-Identifier: MIT OR Apache-2.0

//! RoCE v2's core behind its endpoint's lock: packets as the device's datagram port brings and
//! takes them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use iwarp_roce::wire::{Burst, Counters, Packet, Path};
use iwarp_roce::{DatagramCore as _, Qp, Ud};
use iwarp_types::{Core as _, PostError, Time, Wanted};

use super::fate::of_packets;
use super::prospect::{ask, listener_for};
use crate::engine::endpoint::{Endpoint, Multicast, WireCore};
use crate::engine::fate::Fate;
use crate::engine::options::Wire;

impl WireCore for Qp {
    fn wire(&self) -> Option<Wire> {
        Some(Wire::Roce)
    }

    fn takes_packets(&self) -> bool {
        true
    }

    fn multicast(&mut self) -> Option<&mut dyn Multicast> {
        self.ud().map(|ud| ud as &mut dyn Multicast)
    }

    fn begin_fate(&self, qp: u32) -> Option<Arc<Fate>> {
        of_packets(qp, self.attributes()?)
    }
}

impl Multicast for Ud {
    fn attach(&mut self, group: IpAddr) -> Result<bool, PostError> {
        let is_new = !self.is_attached(group);
        self.attach(group).map(|()| is_new)
    }

    fn detach(&mut self, group: IpAddr) -> bool {
        self.detach(group)
    }
}

/// True if there are packets to be sent.
pub(super) fn wants_packets(endpoint: &Endpoint) -> bool {
    endpoint.with(|core| core.wanted()) != Wanted::Nothing
}

/// Builds packets. True if there are more.
pub(super) fn fill(endpoint: &Endpoint, burst: &mut Burst) -> bool {
    let more = endpoint.with_if(|core: &mut Qp, fate| {
        // Not before: a thread may wait for the lock, or for a CPU, longer than for an answer.
        let now = endpoint.now();
        let _admitted = iwarp_mem::admit_faults();
        let before = burst.octets();
        core.transmit(burst, now, &*endpoint.engine.memory);
        if let Some(fate) = fate {
            fate.sent(burst.octets() - before);
        }
        core.wanted() != Wanted::Nothing
    });
    more.unwrap_or_else(|| {
        ask(endpoint, burst);
        false
    })
}

/// Takes packets for the queue pair's number: the first, and those that `more` brings. True if
/// there are packets to be sent then.
pub(super) fn take_packets<'a>(
    endpoint: &Endpoint,
    (path, packet): (Path, Packet<'a>),
    mut more: impl FnMut() -> Option<(Path, Packet<'a>)>,
) -> bool {
    if let Some(wants) = give_core(endpoint, (path, packet), &mut more) {
        return wants;
    }
    let Some(listener) = listener_for(endpoint, &packet, &path) else { return false };
    listener.heard_packet();
    // It is the first of the connection.
    give_core(endpoint, (path, packet), &mut more).unwrap_or(false)
}

/// `None` where the core takes no packets.
fn give_core<'a>(
    endpoint: &Endpoint,
    (mut path, mut packet): (Path, Packet<'a>),
    more: &mut impl FnMut() -> Option<(Path, Packet<'a>)>,
) -> Option<bool> {
    let memory = &*endpoint.engine.memory;
    endpoint.with_if(|core: &mut Qp, fate| {
        let now = endpoint.now();
        let _admitted = iwarp_mem::admit_faults();
        loop {
            if let Some(fate) = fate {
                fate.received(packet.octets());
            }
            core.receive(&packet, &path, now, memory, endpoint.pool());
            match more() {
                Some(next) => (path, packet) = next,
                None => return core.wanted() != Wanted::Nothing,
            }
        }
    })
}

/// Packets of the endpoint's core left so much later than they were built.
pub(super) fn sent_late(endpoint: &Endpoint, by: Duration) {
    endpoint.with_if(|core: &mut Qp, _| core.sent_late(by));
}

/// The counts of the endpoint's core since the last call; none of a core for a stream.
pub(super) fn take_counters(endpoint: &Endpoint) -> Counters {
    endpoint.with_if(|core: &mut Qp, _| core.take_counters()).unwrap_or_default()
}

/// A packet that came by `path` tells that the network is congested.
pub(super) fn slow_down(endpoint: &Endpoint, path: &Path, now: Time) {
    endpoint.with_if(|core: &mut Qp, _| core.congested(path, now));
}
