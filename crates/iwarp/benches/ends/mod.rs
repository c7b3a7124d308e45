// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two ends of a connection in one thread: queue pairs, registered memory, and between them a
//! stream that is a buffer. The code that the engine runs, without system calls and locks.
#![allow(dead_code, unreachable_pub, reason = "every bench uses a part of it")]

use std::cell::RefCell;
use std::sync::Arc;

use iwarp::{
    Access, Buffer, CompletionQueue, Device, Extensions, QpState, QueuePair, QueuePairAttributes,
    RecvRequest, SendOp, SendRequest, Sge, Stag, TaggedOffset, WcStatus, WorkCompletion,
};
use iwarp_mem::{MemoryTable, Scope};
use iwarp_proto::mpa::rx::Deframer;
use iwarp_proto::mpa::startup::{Negotiated, Role};
use iwarp_proto::mpa::tx::Framer;
use iwarp_proto::mpa::wire::mulpdu;
use iwarp_proto::qp::{Config, Event, Piece, Qp, Receiver, Source, Transmit, Transmitter};
use iwarp_types::{Memory, NoPool, PdId, QpId, Time};

pub const SEND: SendOp = SendOp::SEND;

/// Bytes that one TCP segment takes (EMSS): within a host, and with an MTU of 1500.
const LOOPBACK: usize = 65_483;
pub const ETHERNET: usize = 1448;

/// Bytes of memory that either end has registered.
pub const MEMORY: usize = 1 << 20;

/// As the engine: bytes staged, or waiting in the stream, at most.
const STAGING: usize = 256 << 10;

const PD: PdId = PdId(1);

/// Terms that the two ends agree on.
#[derive(Clone, Copy)]
pub struct Terms {
    pub crc: bool,
    pub markers: bool,
    pub emss: usize,
}

impl Terms {
    pub const CRC: Self = Self { crc: true, markers: false, emss: LOOPBACK };
    pub const PLAIN: Self = Self { crc: false, markers: false, emss: LOOPBACK };

    fn of(self, role: Role) -> Negotiated {
        Negotiated {
            role,
            rev: 2,
            enhanced: true,
            crc: self.crc,
            send_markers: self.markers,
            receive_markers: self.markers,
            ird: 4,
            ord: 4,
            spare_ird: 0,
            spare_ord: 0,
            peer_ird: Some(4),
            peer_ord: Some(4),
            rtr: None,
            peer_to_peer: false,
            fault: None,
        }
    }
}

/// One end.
pub struct End {
    qp: RefCell<Qp>,
    memory: MemoryTable,
    stag: Stag,
    transmitter: Transmitter<Framer>,
    receiver: Receiver<Deframer>,
    out: Transmit,
}

/// An initiator and a responder.
pub fn ends(terms: Terms) -> (End, End) {
    (End::new(terms, Role::Initiator), End::new(terms, Role::Responder))
}

impl End {
    fn new(terms: Terms, role: Role) -> Self {
        let agreed = terms.of(role);
        let config =
            Config { qp: QpId(2), pd: PD, extensions: Extensions::Assume, ..Config::default() };
        let mut qp = Qp::new(config);
        for state in [QpState::Init, QpState::Rtr] {
            qp.modify(state).expect("an ordinary transition");
        }
        qp.establish(&agreed, Time::default());
        let memory = MemoryTable::new();
        let buffer = Arc::new(Buffer::new(MEMORY));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let stag = memory.register_buffer(PD, &buffer, access, Scope::Domain).expect("memory");
        let who = qp.accessor();
        Self {
            qp: RefCell::new(qp),
            memory,
            stag,
            transmitter: Transmitter::new(agreed.framer(), who, mulpdu(terms.emss, terms.markers)),
            receiver: Receiver::new(agreed.deframer(), who),
            out: Transmit::new(STAGING),
        }
    }

    fn sge(&self, len: usize) -> Sge {
        Sge { addr: 0, length: len as u32, lkey: self.stag }
    }

    /// A Write to the start of the peer's memory.
    pub fn write_to(peer: &Self) -> SendOp {
        SendOp::Write { stag: peer.stag, to: TaggedOffset(0) }
    }

    /// Posts a request with the first `len` bytes of the memory.
    pub fn post(&self, op: SendOp, len: usize) {
        let sges = [self.sge(len)];
        let request = SendRequest::new(1, op, &sges).signaled();
        self.qp.borrow_mut().post_send(&request).expect("room");
    }

    /// Posts a receive for `len` bytes.
    pub fn post_recv(&self, len: usize) {
        self.qp.borrow_mut().post_recv(&RecvRequest::new(2, &[self.sge(len)])).expect("room");
    }

    /// Builds what can be built at once and returns how many bytes wait for the stream.
    pub fn build(&mut self) -> usize {
        self.transmitter.transmit(&self.qp, &self.memory, &mut self.out, STAGING);
        self.out.len()
    }

    /// Appends what waits for the stream to `wire`: what the system call does.
    pub fn copy_out(&self, wire: &mut Vec<u8>) {
        let who = self.qp.borrow().accessor();
        for piece in self.out.pieces() {
            match piece {
                Piece::Staged(range) => wire.extend_from_slice(self.out.octets(range.clone())),
                Piece::Memory(Source::Local(sge)) => {
                    let from = wire.len();
                    wire.resize(from + sge.length as usize, 0);
                    let dst = &mut wire[from..];
                    self.memory.gather_local(who, *sge, dst, None).expect("own memory");
                }
                Piece::Memory(Source::Remote { .. }) => unreachable!("nobody reads"),
            }
        }
    }

    /// The stream took everything that waited.
    pub fn taken(&mut self) {
        let n = self.out.len();
        self.transmitter.taken(&self.qp, &mut self.out, n);
    }

    /// Builds all there is to send into `wire`.
    pub fn send_all(&mut self, wire: &mut Vec<u8>) {
        while self.build() > 0 {
            self.copy_out(wire);
            self.taken();
        }
    }

    /// Takes whole FPDUs apart.
    pub fn receive(&mut self, wire: &mut [u8]) {
        let mut used = 0;
        while used < wire.len() {
            let step = self.receiver.receive(&self.qp, &self.memory, &NoPool, &mut wire[used..]);
            assert!(step > 0, "whole FPDUs");
            used += step;
        }
    }

    /// Takes the completions and counts them.
    pub fn completions(&self) -> usize {
        let mut qp = self.qp.borrow_mut();
        let mut count = 0;
        while let Some(event) = qp.poll_event() {
            match event {
                Event::SendCompleted(wc) | Event::ReceiveCompleted(wc) => {
                    assert_eq!(wc.status, WcStatus::Success);
                    count += 1;
                }
                Event::FirstHeard => {}
                other => panic!("{other:?}"),
            }
        }
        count
    }
}

/// A completion queue that can be filled without a connection: a queue pair in the error state
/// flushes each receive as it is posted.
pub struct Ring {
    qp: QueuePair,
    pub cq: CompletionQueue,
    _device: Device,
}

impl Ring {
    pub fn new() -> Self {
        let device = Device::open().expect("a device");
        let cq = device.create_cq(1024, None).expect("a completion queue");
        let qp =
            device.alloc_pd().create_qp(&QueuePairAttributes::new(&cq, &cq)).expect("a queue pair");
        qp.modify(QpState::Err).expect("any state may become Err");
        Self { qp, cq, _device: device }
    }

    /// Adds a completion.
    pub fn push(&self) {
        self.qp.post_recv(&RecvRequest::new(3, &[])).expect("room");
    }

    /// Takes `n` completions, which must be there.
    pub fn poll(&self, into: &mut Vec<WorkCompletion>, n: usize) {
        into.clear();
        assert_eq!(self.cq.poll(into, n), n);
    }
}
