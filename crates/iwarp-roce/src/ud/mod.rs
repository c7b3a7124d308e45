// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs of the type UD: each message is one packet, to a queue pair that its request names
//! (ROCE-114).
//!
//! There are no acknowledgements, and PSNs are not checked: the program sees loss, duplicates and
//! reordering as they happen. A receive gets 40 octets ahead of the payload (ROCE-118), the GRH,
//! which tells the way that the packet has come.

use alloc::vec::Vec;
use core::net::IpAddr;

use iwarp_types::{
    Destination, Memory, PostError, ReceivePool, SendOp, SendRequest, SourceQp, Time, WcOp,
    WcStatus,
};

use crate::config::{Attributes, Config};
use crate::core::DatagramCore;
use crate::wire::{
    BTH_LEN, Bth, Burst, Deth, Header, ICRC_LEN, MULTICAST_QP, Message, Packet, Path, Position,
    SendTail, Transport, grh, padding,
};
use crate::work::{Arrival, Done, Drops, Turn, Work, work_core};

/// The top bit of a Q_Key: a request with it means the Q_Key of its own queue pair (ROCE-117).
const OWN_QKEY: u32 = 1 << 31;
/// Octets of a DETH.
const DETH_LEN: usize = 8;

/// A queue pair of the type UD. See the [module](self).
#[derive(Debug)]
pub struct Ud {
    work: Work,
    /// The multicast groups that it is attached to.
    groups: Vec<IpAddr>,
}

impl Ud {
    /// A queue pair in [`QpState::Reset`](iwarp_types::QpState::Reset).
    pub fn new(config: Config) -> Self {
        Self { work: Work::new(config), groups: Vec::new() }
    }

    /// The settings with which it was made.
    pub const fn config(&self) -> &Config {
        &self.work.config
    }

    /// The numbers of packets that it has dropped, since it was in Reset.
    pub const fn drops(&self) -> &Drops {
        &self.work.drops
    }

    /// Attaches it, in any state, to a multicast group: it gets the packets that the port takes for
    /// that group (ROCE-129). A second attach changes nothing.
    ///
    /// # Errors
    ///
    /// [`PostError::Invalid`] for an address that is not multicast (ROCE-127),
    /// [`PostError::OutOfMemory`].
    pub fn attach(&mut self, group: IpAddr) -> Result<(), PostError> {
        if !group.is_multicast() {
            return Err(PostError::Invalid);
        }
        if !self.is_attached(group) {
            self.groups.try_reserve(1)?;
            self.groups.push(group);
        }
        Ok(())
    }

    /// Detaches it from a multicast group; false where it was not attached.
    pub fn detach(&mut self, group: IpAddr) -> bool {
        let place = self.groups.iter().position(|attached| *attached == group);
        place.map(|place| self.groups.swap_remove(place)).is_some()
    }

    /// True if it is attached to a multicast group.
    pub fn is_attached(&self, group: IpAddr) -> bool {
        self.groups.contains(&group)
    }

    /// The status of a request that is not to be sent: UD has Sends of one packet, without
    /// invalidation, to a destination (ROCE-114, ROCE-115).
    fn judge(&self, request: &SendRequest<'_>) -> Option<WcStatus> {
        let is_send = matches!(
            request.op,
            SendOp::Send { invalidate: None, .. } | SendOp::SendImmediate { .. }
        );
        if !is_send || request.destination.is_none() {
            return Some(WcStatus::LocalQpOperation);
        }
        let fits = request.payload.len() <= self.work.attributes.mtu.octets() as u64;
        (!fits).then_some(WcStatus::LocalLength)
    }

    /// The groups outlast a reset.
    const fn reset(&self) {}

    /// True if a packet is for this queue pair (ROCE-011, ROCE-012, ROCE-116); else counts the
    /// reason.
    fn admits(&mut self, packet: &Packet<'_>, deth: &Deth, path: &Path) -> bool {
        let header = &packet.header;
        let is_mine = match header.bth.dest_qp {
            MULTICAST_QP => self.is_attached(path.address.destination),
            number => number == self.work.config.qp.0,
        };
        let Work { attributes, drops, .. } = &mut self.work;
        let reason = if !is_mine {
            &mut drops.stray
        } else if !attributes.pkey.admits(header.bth.pkey) {
            &mut drops.pkey
        } else if attributes.qkey != deth.qkey {
            &mut drops.qkey
        } else {
            return true;
        };
        *reason += 1;
        false
    }
}

work_core!(Ud, judge, reset);

impl DatagramCore for Ud {
    fn set_attributes(&mut self, attributes: &Attributes) {
        self.work.attributes = *attributes;
    }

    fn receive<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        path: &Path,
        _: Time,
        memory: &M,
        receives: &dyn ReceivePool,
    ) {
        let tail = match packet.header.message {
            Message::Send { position: Position::Only, tail } => Some(tail),
            _ => None,
        };
        let immediate = match tail {
            Some(SendTail::Plain) => Ok(None),
            Some(SendTail::Immediate(data)) => Ok(Some(data)),
            Some(SendTail::Invalidate(_)) | None => Err(()),
        };
        let over_ipv4 = path.address.destination.is_ipv4();
        let source = packet.header.deth.and_then(|deth| SourceQp::new(deth.source_qp, over_ipv4));
        let (Ok(immediate), Some(deth), Some(source), true, Transport::Ud) =
            (immediate, packet.header.deth, source, self.work.receives(), packet.header.transport)
        else {
            self.work.drops.stray += 1;
            return;
        };
        if !self.admits(packet, &deth, path) || !self.work.hold_receive(receives) {
            return;
        }
        let payload = packet.payload.len();
        let prefix = grh::write(path, udp_payload(payload, immediate.is_some()));
        let len = (prefix.len() + payload) as u64;
        if len > self.work.capacity() {
            self.work.drops.too_short += 1;
            return;
        }
        let placed = self.work.place(0, &prefix, memory)
            && self.work.place(prefix.len() as u64, packet.payload, memory);
        if placed {
            self.work.complete_receive(&Arrival {
                op: WcOp::Recv,
                byte_len: len as u32,
                immediate,
                solicited: packet.header.bth.solicited,
                source_qp: Some(source),
            });
        }
    }

    fn transmit<M: Memory + ?Sized>(&mut self, burst: &mut Burst, _: Time, memory: &M) {
        let (qp, attributes) = (self.work.config.qp, self.work.attributes);
        self.work.transmit(burst, |turn, burst| send(turn, burst, qp.0, &attributes, memory));
    }
}

/// Octets behind the UDP header of a packet with so many octets of payload.
const fn udp_payload(payload: usize, immediate: bool) -> usize {
    let immediate = if immediate { 4 } else { 0 };
    BTH_LEN + DETH_LEN + immediate + payload + padding(payload) + ICRC_LEN
}

fn send<M: Memory + ?Sized>(
    turn: &mut Turn<'_>,
    burst: &mut Burst,
    qp: u32,
    attributes: &Attributes,
    memory: &M,
) -> Done {
    let (solicited, tail) = match turn.wqe.op {
        SendOp::Send { solicited, .. } => (solicited, SendTail::Plain),
        SendOp::SendImmediate { solicited, data } => (solicited, SendTail::Immediate(data)),
        _ => return Done::Failed(WcStatus::LocalQpOperation),
    };
    let Some(Destination { address, qp: dest_qp, qkey }) = turn.wqe.destination else {
        return Done::Failed(WcStatus::LocalQpOperation);
    };
    let qkey = if qkey & OWN_QKEY == 0 { qkey } else { attributes.qkey };
    let bth = Bth { pkey: attributes.pkey, ..Bth::new(dest_qp, turn.psn) };
    let header = Header {
        bth: bth.soliciting(solicited),
        transport: Transport::Ud,
        deth: Some(Deth { qkey, source_qp: qp }),
        message: Message::Send { position: Position::Only, tail },
    };
    let path = Path { address, ..attributes.path };
    turn.push(burst, &path, &header, turn.wqe.length, memory)
}

#[cfg(test)]
mod tests;
