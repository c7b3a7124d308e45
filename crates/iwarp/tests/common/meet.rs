// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs that are connected without the connection manager.

use std::net::IpAddr;
use std::time::Duration;

use iwarp::port::{ManualClock, MemoryNetwork, Platform};
use iwarp::{
    CompletionQueue, Device, Gid, Options, Payload, Peer, ProtectionDomain, QpState, QueuePair,
    QueuePairAttributes, RecvRequest, SendRequest, Sge, WcStatus, WorkCompletion,
};

use crate::common::{all_access, next, succeeded};

pub const LOOPBACK: &str = "127.0.0.1";
/// The longest pause between two attempts.
pub const PAUSE: Duration = Duration::from_millis(500);

/// A device to make queue pairs on, and the address that it tells.
pub struct TestHost {
    pub device: Device,
    pub pd: ProtectionDomain,
    pub gid: Gid,
}

impl TestHost {
    pub fn new() -> Self {
        Self::with(Options::default(), LOOPBACK)
    }

    pub fn with(options: Options, addr: &str) -> Self {
        Self::of(Device::with_options(options).unwrap(), addr)
    }

    pub fn of(device: Device, addr: &str) -> Self {
        let gid = gid(&device, addr.parse().unwrap()).expect("no such address");
        Self { pd: device.alloc_pd(), device, gid }
    }

    /// An end in its first state.
    pub fn end(&self) -> Side {
        let cq = || self.device.create_cq(256, None).unwrap();
        self.end_on(cq(), cq())
    }

    pub fn end_on(&self, send_cq: CompletionQueue, recv_cq: CompletionQueue) -> Side {
        let attributes =
            QueuePairAttributes::new(&send_cq, &recv_cq).max_send_wr(64).max_recv_wr(64);
        let qp = self.pd.create_addressable_qp(&attributes).unwrap();
        let memory = self.pd.allocate(64, all_access()).unwrap();
        Side { qp, send_cq, recv_cq, memory, gid: self.gid.clone() }
    }

    /// Two ends, the lower one first.
    pub fn ordered(&self) -> (Side, Side) {
        let (one, other) = (self.end(), self.end());
        if one.qp.number() < other.qp.number() { (one, other) } else { (other, one) }
    }
}

/// A host in memory where attempts to connect are made, and given up, by a clock of the test's: an
/// attempt that finds no peer is over before the clock goes on.
#[derive(Default)]
pub struct Model {
    network: MemoryNetwork,
    pub clock: ManualClock,
}

impl Model {
    pub fn host(&self) -> TestHost {
        let network = self.network.host(LOOPBACK.parse().unwrap());
        let platform = Platform { network, clock: self.clock.clone().into(), datagrams: None };
        TestHost::of(Device::on_platform(Options::default(), platform).unwrap(), LOOPBACK)
    }

    /// Two ends, connected.
    pub fn couple(&self, host: &TestHost) -> (Side, Side) {
        let (a, b) = (host.end(), host.end());
        a.all_the_way(&b);
        b.all_the_way(&a);
        self.clock.advance(PAUSE);
        exchange(&a, &b);
        (a, b)
    }
}

/// The entry of the GID table with that address.
pub fn gid(device: &Device, addr: IpAddr) -> Option<Gid> {
    device.gids().unwrap().into_iter().find(|gid| gid.addr == addr)
}

/// One end.
pub struct Side {
    pub qp: QueuePair,
    pub send_cq: CompletionQueue,
    pub recv_cq: CompletionQueue,
    memory: iwarp::MemoryRegion,
    pub gid: Gid,
}

impl Side {
    pub fn init(&self) {
        self.qp.modify(QpState::Init).unwrap();
        assert_eq!(self.qp.state(), QpState::Init);
    }

    /// Itself as a peer, for an end with the GID `own`.
    pub fn as_peer_of(&self, own: &Gid) -> Peer {
        Peer::new(own, self.gid.addr, self.qp.number(), self.qp.psn())
    }

    pub fn rtr(&self, peer: &Self) {
        self.qp.connect_to(&peer.as_peer_of(&self.gid)).unwrap();
        assert_eq!(self.qp.state(), QpState::Rtr);
    }

    pub fn rts(&self) {
        self.qp.modify(QpState::Rts).unwrap();
        assert_eq!(self.qp.state(), QpState::Rts);
    }

    pub fn all_the_way(&self, peer: &Self) {
        self.init();
        self.rtr(peer);
        self.rts();
    }

    pub fn sge(&self, len: usize) -> Sge {
        self.memory.sge(0, len)
    }

    pub fn post_recv(&self, wr_id: u64) {
        self.qp.post_recv(&RecvRequest::new(wr_id, &[self.sge(64)])).unwrap();
    }

    pub fn send(&self, wr_id: u64, octets: &[u8]) {
        let request = SendRequest::send(wr_id, Payload::Inline(octets)).signaled();
        self.qp.post_send(&request).unwrap();
    }

    pub fn sent(&self) -> WorkCompletion {
        succeeded(next(&self.send_cq))
    }

    /// The bytes that a receive brought.
    pub fn received(&self) -> Vec<u8> {
        let completion = succeeded(next(&self.recv_cq));
        let mut octets = vec![0; completion.byte_len as usize];
        self.memory.buffer().unwrap().read_at(0, &mut octets);
        octets
    }

    pub fn status(&self) -> WcStatus {
        next(&self.send_cq).status
    }
}

/// A message each way.
pub fn exchange(one: &Side, other: &Side) {
    for (from, to) in [(one, other), (other, one)] {
        to.post_recv(1);
        from.send(2, b"hello");
        assert_eq!(to.received(), b"hello");
        assert_eq!(from.sent().wr_id, 2);
    }
}
