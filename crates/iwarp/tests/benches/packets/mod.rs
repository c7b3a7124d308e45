// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two queue pairs that speak RoCE v2 over a network in memory, in virtual time and without
//! threads: a count has the queue pairs, the mux and that network in it, and no system call.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use iwarp::port::{MemoryDatagrams, MemoryNetwork};
use iwarp::{
    Access, AddressVector, CompletionQueue, DatagramAttributes, Destination, Device, MemoryRegion,
    Options, Payload, ProtectionDomain, QpState, QpType, QueuePair, QueuePairAttributes,
    RecvRequest, SendOp, SendRequest, Wire, WorkCompletion,
};

use crate::common::scene::Scene;
use crate::common::succeeded;

const SIZE: usize = 64;
/// Bytes in front of a datagram in its receive.
const GRH: usize = 40;
const QKEY: u32 = 0x1234;
/// The time between two messages: longer than the pace of UD wants for one.
const PAUSE: Duration = Duration::from_micros(10);

/// One of the two ends.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    ip: IpAddr,
    _pd: ProtectionDomain,
    _device: Device,
}

/// A sender and a receiver of messages.
pub(crate) struct Pair {
    scene: Arc<Scene>,
    from: End,
    to: End,
    /// The destination of datagrams; connected queue pairs have none.
    destination: Option<Destination>,
}

impl End {
    fn new(device: Device, ip: IpAddr, qp_type: QpType) -> Self {
        let pd = device.alloc_pd();
        let cq = device.create_cq(64, None).expect("a completion queue");
        let attributes = QueuePairAttributes::new(&cq, &cq).qp_type(qp_type);
        let qp = match qp_type {
            QpType::Rc => pd.create_addressable_qp(&attributes),
            _ => pd.create_qp(&attributes),
        };
        let memory = pd.allocate(GRH + SIZE, Access::LOCAL_WRITE).expect("memory");
        Self { qp: qp.expect("a queue pair"), cq, memory, ip, _pd: pd, _device: device }
    }

    fn go(&self, attributes: &DatagramAttributes) {
        self.qp.modify(QpState::Init).expect("an ordinary transition");
        self.qp.set_datagram(attributes).expect("attributes of a peer");
        for state in [QpState::Rtr, QpState::Rts] {
            self.qp.modify(state).expect("an ordinary transition");
        }
    }

    fn way_to(&self, peer: &Self) -> DatagramAttributes {
        DatagramAttributes::default()
            .address(AddressVector::new(self.ip, peer.ip))
            .dest_qp(peer.qp.number())
            .sq_psn(self.qp.psn())
            .rq_psn(peer.qp.psn())
            .timeout(14)
    }
}

impl Pair {
    pub(crate) fn new(qp_type: QpType) -> Self {
        let (scene, streams, datagrams) =
            (Scene::new(), MemoryNetwork::new(), MemoryDatagrams::new(1));
        let options = Options::for_any_program().wire(Wire::Roce);
        let [from, to] = [1, 2].map(|last| {
            let ip = IpAddr::from([10, 0, 0, last]);
            let packets = Some(datagrams.host(ip));
            End::new(scene.device(options.clone(), streams.host(ip), packets), ip, qp_type)
        });
        let mut destination = None;
        if qp_type == QpType::Ud {
            for end in [&from, &to] {
                end.go(&DatagramAttributes::with_qkey(QKEY));
            }
            let address = AddressVector::new(from.ip, to.ip);
            destination = Some(Destination { address, qp: to.qp.number(), qkey: QKEY });
        } else {
            from.go(&from.way_to(&to));
            to.go(&to.way_to(&from));
        }
        Self { scene, from, to, destination }
    }

    pub(crate) fn post_recv(&self) {
        self.to.qp.post_recv(&RecvRequest::new(2, &[self.to.memory.whole()])).expect("room");
    }

    pub(crate) fn send(&self) {
        let sges = [self.from.memory.sge(0, SIZE)];
        let request = SendRequest::new(1, SendOp::SEND, Payload::Sges(&sges)).signaled();
        let request = self.destination.iter().fold(request, SendRequest::to);
        self.from.qp.post_send(&request).expect("room");
    }

    /// Polls once for the message, which has come.
    pub(crate) fn receive(&self) -> WorkCompletion {
        succeeded(self.to.cq.poll_one().expect("a message"))
    }

    /// Polls once for the sender's completion, which is there or has come.
    pub(crate) fn sent(&self) -> WorkCompletion {
        succeeded(self.from.cq.poll_one().expect("a completion"))
    }

    /// Lets some time pass.
    pub(crate) fn pause(&self) {
        self.scene.clock.advance(PAUSE);
        self.scene.turn();
    }
}
