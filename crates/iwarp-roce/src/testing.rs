// SPDX-License-Identifier: MIT OR Apache-2.0

//! The things that tests of queue pairs have in common: an end with its memory, and the packets
//! between two.

use std::vec::Vec;

use iwarp_types::mock::Host;
use iwarp_types::{
    Access, AddressVector, Event, Payload, PdId, QpId, QpState, RecvRequest, SendOp, SendRequest,
    Sge, Stag, TaggedOffset, Time, WcStatus, WorkCompletion,
};

use crate::wire::{Burst, Header, ICRC_LEN, Mtu, Numbering, Packet, Path, Psn};
use crate::{Attributes, Config, DatagramCore};

/// The protection domain.
pub(crate) const PD: PdId = PdId(7);
/// The region of each end, with all rights, and its first address.
pub(crate) const REGION: u32 = 0x100;
pub(crate) const BASE: u64 = 0x1000;
/// Octets of it.
pub(crate) const SIZE: usize = 64 * 1024;

/// A packet on its way: without its ICRC, which the port has looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) path: Path,
    pub(crate) octets: Vec<u8>,
}

impl Sent {
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.octets).expect("a packet")
    }

    /// A copy with another header.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Header)) -> Self {
        let Packet { mut header, payload } = self.packet();
        change(&mut header);
        Self::new(self.path, &header, payload)
    }

    /// A copy with another payload.
    pub(crate) fn carrying(&self, payload: &[u8]) -> Self {
        Self::new(self.path, &self.packet().header, payload)
    }

    pub(crate) fn new(path: Path, header: &Header, payload: &[u8]) -> Self {
        let mut octets = [0; Header::MAX_LEN].to_vec();
        let len = header.write(payload.len(), &mut octets);
        octets.truncate(len);
        octets.extend(payload);
        octets.resize(octets.len() + crate::wire::padding(payload.len()), 0);
        Self { path, octets }
    }
}

/// A queue pair and its memory.
#[derive(Debug)]
pub(crate) struct End<C> {
    pub(crate) core: C,
    pub(crate) host: Host,
}

/// The address of end `n`.
pub(crate) fn address(from: u8, to: u8) -> AddressVector {
    AddressVector::new([10, 0, 0, from].into(), [10, 0, 0, to].into())
}

/// Attributes of end 1 or 2, which talk to each other: queue pairs 0x11 and 0x12.
pub(crate) fn attributes(end: u8) -> Attributes {
    Attributes {
        path: Path::new(address(end, 3 - end), 0xc000),
        dest_qp: 0x10 + u32::from(3 - end),
        mtu: Mtu::Mtu256,
        sq_psn: Psn::new(0xff_fffe),
        rq_psn: Psn::new(0xff_fffe),
        access: Access::REMOTE,
        qkey: 0x1234,
        ..Attributes::default()
    }
}

/// The settings with which end 1 or 2 is made.
pub(crate) fn config(end: u8) -> Config {
    Config {
        qp: QpId(0x10 + u32::from(end)),
        pd: PD,
        max_send_wr: 8,
        max_recv_wr: 8,
        ..Config::default()
    }
}

impl<C: DatagramCore> End<C> {
    /// An end in Rts.
    pub(crate) fn new(core: C, attributes: &Attributes) -> Self {
        let mut end = Self { core, host: Host::default() };
        let rights = Access::REMOTE | Access::LOCAL_WRITE;
        end.host.register(PD, REGION, BASE, SIZE, rights);
        end.core.set_attributes(attributes);
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            end.core.modify(state).unwrap();
        }
        end
    }

    /// Posts a receive of octets of the region.
    pub(crate) fn receive(&mut self, wr_id: u64, at: u64, length: u32) {
        self.core.post_recv(&RecvRequest::new(wr_id, &[sge(at, length)])).unwrap();
    }

    /// Posts a request that is signalled.
    pub(crate) fn post(&mut self, request: SendRequest<'_>) {
        self.core.post_send(&request.signaled()).unwrap();
    }

    /// Posts a signalled request with inline octets.
    pub(crate) fn post_inline(&mut self, wr_id: u64, op: SendOp, octets: &[u8]) {
        self.post(SendRequest::new(wr_id, op, Payload::Inline(octets)));
    }

    /// All packets that it has to send.
    pub(crate) fn packets(&mut self) -> Vec<Sent> {
        packets(|burst| self.core.transmit(burst, Time::default(), &self.host))
    }

    /// Takes a packet.
    pub(crate) fn take(&mut self, sent: &Sent) {
        let (core, host) = (&mut self.core, &self.host);
        core.receive(&sent.packet(), &sent.path, Time::default(), host, host);
    }

    /// Takes packets, and returns what it tells then.
    pub(crate) fn told<'a>(&mut self, sent: impl IntoIterator<Item = &'a Sent>) -> Vec<Event> {
        sent.into_iter().for_each(|packet| self.take(packet));
        self.events()
    }

    /// Takes its events.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.core.poll_event()).collect()
    }

    /// Octets of the region.
    pub(crate) fn octets(&self, at: u64, len: usize) -> Vec<u8> {
        self.host.octets(REGION)[at as usize..][..len].to_vec()
    }
}

/// Asserts that a request is taken, and ends as what its queue pair does not do: nothing is sent.
pub(crate) fn assert_refused<C: DatagramCore>(mut end: End<C>, request: &SendRequest<'_>) {
    end.post(*request);
    assert!(end.packets().is_empty(), "{request:?}");
    assert_eq!(ended(&end.events()), [(request.wr_id, WcStatus::LocalQpOperation)], "{request:?}");
    assert_eq!(end.core.state(), QpState::Sqe);
}

/// The packets that something puts into a burst.
pub(crate) fn packets(fill: impl FnOnce(&mut Burst)) -> Vec<Sent> {
    let mut burst = Burst::new(Numbering::Zero, 1 << 20);
    fill(&mut burst);
    let sent = |(path, octets): (&Path, &[u8])| Sent {
        path: *path,
        octets: octets[..octets.len() - ICRC_LEN].to_vec(),
    };
    burst.packets().map(sent).collect()
}

/// Octets of the region, `at` behind its start.
pub(crate) fn sge(at: u64, length: u32) -> Sge {
    Sge { addr: BASE + at, length, lkey: Stag(REGION) }
}

/// That place as a peer's buffer.
pub(crate) fn remote(at: u64) -> (Stag, TaggedOffset) {
    (Stag(REGION), TaggedOffset(BASE + at))
}

/// Octets that tell their places apart.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// The ends of the requests, in order: their numbers and statuses.
pub(crate) fn ended(events: &[Event]) -> Vec<(u64, WcStatus)> {
    completions(events).iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

/// The completions among events.
pub(crate) fn completions(events: &[Event]) -> Vec<WorkCompletion> {
    let completion = |event: &Event| match event {
        Event::SendCompleted(wc) | Event::ReceiveCompleted(wc) => Some(*wc),
        _ => None,
    };
    events.iter().filter_map(completion).collect()
}
