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
use crate::report::Object;

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

    fn describe(&self, to: &mut Object) {
        if let Some(attributes) = self.attributes() {
            to.object("packets", |to| {
                to.text("local", attributes.path.address.source);
                to.text("peer", attributes.path.address.destination);
                to.number("peer_qp", attributes.dest_qp);
                to.count("mtu", attributes.mtu.octets());
            });
        }
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

/// A valid packet and the way that it came by.
pub(super) type Arrived<'a> = (Path, Packet<'a>);

/// Takes packets for the queue pair's number: the one in `at_hand`, if there is one, and those that
/// `more` puts there, as long as it says that they are for that number, too. They are looked at
/// where they lie: each has more than two hundred bytes. True if there are packets to be sent then.
pub(super) fn take_packets<'a>(
    endpoint: &Endpoint,
    at_hand: &mut Option<Arrived<'a>>,
    mut more: impl FnMut(&mut Option<Arrived<'a>>) -> bool,
) -> bool {
    if let Some(wants) = give_core(endpoint, at_hand, &mut more) {
        return wants;
    }
    let Some((path, packet)) = at_hand else { return false };
    let Some(listener) = listener_for(endpoint, packet, path) else { return false };
    listener.heard_packet();
    // It is the first of the connection.
    give_core(endpoint, at_hand, &mut more).unwrap_or(false)
}

/// `None` where the core takes no packets.
fn give_core<'a>(
    endpoint: &Endpoint,
    at_hand: &mut Option<Arrived<'a>>,
    more: &mut impl FnMut(&mut Option<Arrived<'a>>) -> bool,
) -> Option<bool> {
    let memory = &*endpoint.engine.memory;
    endpoint.with_if(|core: &mut Qp, fate| {
        let now = endpoint.now();
        let _admitted = iwarp_mem::admit_faults();
        while let Some((path, packet)) = at_hand {
            if let Some(fate) = fate {
                fate.received(packet.octets());
            }
            core.receive(packet, path, now, memory, endpoint.pool());
            if !more(at_hand) {
                break;
            }
        }
        core.wanted() != Wanted::Nothing
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
