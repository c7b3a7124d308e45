// SPDX-License-Identifier: MIT OR Apache-2.0

//! A small world for the queue pair's tests: registered memory, an end of a stream driven by
//! hand, two ends connected with each other, and a raw peer that sends octets of its own making.

mod acknowledge;
mod at_once;
mod atomics;
mod closing;
mod completions;
mod counts;
mod farewell;
mod faults;
mod gone;
mod hello;
mod immediate;
mod invalidate;
mod late;
mod octets;
mod offers;
mod own_immediate;
mod park;
mod read_requests;
mod reads;
mod records;
mod refusals;
mod runs;
mod sends;
mod splits;
mod states;
mod terminate;
mod twins;
mod vectors;
mod writes;

use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::convert::Infallible;
use core::time::Duration;

use iwarp_types::mock::{Host, Region, Touch};
use iwarp_types::{
    Access, AccessError, AtomicOp, Bind, Invalidator, Memory, Payload, PdId, PostError, QpId,
    QpState, Receive, RecvRequest, SendOp, SendRequest, Sge, Stag, TaggedOffset, Time, WcOp,
    WcStatus, WorkCompletion,
};

use super::{
    Config, Disposition, Event, Extensions, Piece, Qp, Receiver, Source, Transmit, Transmitter,
};
use crate::framing::{Deframe, Frame};
use crate::mpa::rx::Deframer;
use crate::mpa::startup::{Negotiated, Role};
use crate::mpa::tx::Framer;

/// Local memory of an end, not open to the peer.
const LOCAL: u32 = 0x0000_1111;
const LOCAL_BASE: u64 = 0x10_0000;
/// Memory of an end that is open to the peer for everything.
const OPEN: u32 = 0x0000_2222;
const OPEN_BASE: u64 = 0x20_0000;
/// Octets of either.
const SIZE: usize = 0x2_0000;

const PD: PdId = PdId(7);
const QP: QpId = QpId(3);

/// Terms of a stream on which both ends agree in everything but their role.
fn terms(role: Role) -> Negotiated {
    Negotiated {
        role,
        rev: 2,
        enhanced: true,
        crc: true,
        send_markers: false,
        receive_markers: false,
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

/// A queue pair as most tests want it: 32 elements, and a peer known to have RFC 7306.
fn config() -> Config {
    Config {
        qp: QP,
        pd: PD,
        max_send_sge: 32,
        max_recv_sge: 32,
        extensions: Extensions::Assume,
        ..Config::default()
    }
}

/// A queue pair in Full Operation.
fn established(config: Config, terms: &Negotiated) -> Qp {
    let mut qp = Qp::new(config);
    for state in [QpState::Init, QpState::Rtr] {
        qp.modify(state).unwrap();
    }
    qp.establish(terms, Time::default());
    qp
}

/// One end of a stream, over MPA if it is not said over what.
struct End<F = Framer, D = Deframer> {
    qp: RefCell<Qp>,
    host: Host,
    rx: Receiver<D>,
    tx: Transmitter<F>,
    out: Transmit,
    /// Octets that arrived and were not used.
    inbox: Vec<u8>,
}

impl End {
    fn new(config: Config, terms: &Negotiated) -> Self {
        Self::around(established(config, terms), terms)
    }

    /// An end with a queue pair that the test has prepared.
    fn around(qp: Qp, terms: &Negotiated) -> Self {
        Self::over((terms.framer(), terms.deframer()), 1442, qp)
    }
}

impl<F: Frame, D: Deframe> End<F, D> {
    /// An end whose segments go over this framing, with ULPDUs of so many octets.
    fn over((framer, deframer): (F, D), mulpdu: usize, qp: Qp) -> Self {
        let host = Host::default();
        let all = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC
            | Access::MW_BIND;
        host.register(PD, LOCAL, LOCAL_BASE, SIZE, Access::LOCAL_WRITE | Access::MW_BIND);
        host.register(PD, OPEN, OPEN_BASE, SIZE, all);
        let who = qp.accessor();
        Self {
            qp: RefCell::new(qp),
            host,
            rx: Receiver::new(deframer, who),
            tx: Transmitter::new(framer, who, mulpdu),
            out: Transmit::new(1 << 20),
            inbox: Vec::new(),
        }
    }

    /// Octets arrive.
    fn arrive(&mut self, octets: &[u8]) {
        self.inbox.extend_from_slice(octets);
        loop {
            let used = self.rx.receive(&self.qp, &self.host, &self.host, &mut self.inbox);
            self.inbox.drain(..used);
            if used == 0 || self.inbox.is_empty() {
                return;
            }
        }
    }

    /// The peer closed its side.
    fn eof(&mut self) {
        self.eof_behind(None);
    }

    /// The peer closed its side, after its transport had acknowledged our stream so far.
    fn eof_behind(&mut self, acknowledged: Option<u64>) {
        self.rx.eof(&self.qp, self.inbox.len(), || acknowledged);
    }

    /// Builds what can be built; nothing is taken.
    fn build(&mut self) {
        self.tx.transmit(&self.qp, &self.host, &mut self.out, usize::MAX);
    }

    /// The stream takes up to `max` octets.
    fn take(&mut self, max: usize) -> Vec<u8> {
        self.build();
        let mut octets = Vec::new();
        for piece in self.out.pieces() {
            match piece {
                Piece::Staged(range) => octets.extend_from_slice(self.out.octets(range.clone())),
                Piece::Memory(source) => {
                    let from = octets.len();
                    octets.resize(from + source.len(), 0);
                    let (who, dst) = (self.qp.borrow().accessor(), &mut octets[from..]);
                    match *source {
                        Source::Local(sge) => self.host.gather_local(who, sge, dst, None),
                        Source::Remote { stag, to, .. } => {
                            self.host.gather_remote(who, stag, to, dst, None)
                        }
                    }
                    .expect("memory that was built into the stream");
                }
            }
        }
        octets.truncate(max);
        self.tx.taken(&self.qp, &mut self.out, octets.len());
        octets
    }

    /// Octets that the stream has taken.
    fn sent(&self) -> u64 {
        self.tx.position()
    }

    /// The stream takes everything.
    fn take_all(&mut self) -> Vec<u8> {
        let mut octets = Vec::new();
        loop {
            let more = self.take(usize::MAX);
            if more.is_empty() {
                return octets;
            }
            octets.extend(more);
        }
    }

    fn events(&self) -> Vec<Event> {
        core::iter::from_fn(|| self.qp.borrow_mut().poll_event()).collect()
    }

    /// Completions of sends and receives; other events are dropped.
    fn completions(&self) -> Vec<WorkCompletion> {
        self.events().into_iter().filter_map(completion).collect()
    }

    fn try_post(&self, wr_id: u64, op: SendOp, sges: &[Sge]) -> Result<(), PostError> {
        let payload = Payload::Sges(sges);
        let request = SendRequest::new(wr_id, op, payload).signaled();
        self.qp.borrow_mut().post_send(&request)
    }

    fn post(&self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        self.try_post(wr_id, op, sges).unwrap();
    }

    fn post_fenced(&self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        let payload = Payload::Sges(sges);
        let request = SendRequest::new(wr_id, op, payload).signaled().fenced();
        self.qp.borrow_mut().post_send(&request).unwrap();
    }

    fn post_inline(&self, wr_id: u64, op: SendOp, octets: &[u8]) {
        let payload = Payload::Inline(octets);
        let request = SendRequest::new(wr_id, op, payload).signaled();
        self.qp.borrow_mut().post_send(&request).unwrap();
    }

    fn receive(&self, wr_id: u64, sges: &[Sge]) {
        self.qp.borrow_mut().post_recv(&RecvRequest::new(wr_id, sges)).unwrap();
    }

    fn state(&self) -> QpState {
        self.qp.borrow().state()
    }

    fn disposition(&self) -> Disposition {
        self.qp.borrow().disposition()
    }
}

fn completion(event: Event) -> Option<WorkCompletion> {
    match event {
        Event::SendCompleted(wc) | Event::ReceiveCompleted(wc) => Some(wc),
        _ => None,
    }
}

/// Identifier, status and operation of completions.
fn outcomes(completions: &[WorkCompletion]) -> Vec<(u64, WcStatus, WcOp)> {
    completions.iter().map(|wc| (wc.wr_id, wc.status, wc.op)).collect()
}

/// The outcome of a request that ended well.
fn success(wr_id: u64, op: WcOp) -> (u64, WcStatus, WcOp) {
    (wr_id, WcStatus::Success, op)
}

/// The outcome of a request that was flushed.
fn flushed(wr_id: u64, op: WcOp) -> (u64, WcStatus, WcOp) {
    (wr_id, WcStatus::Flushed, op)
}

/// That time.
fn at(millis: u64) -> Time {
    Time(Duration::from_millis(millis))
}

/// `len` octets at offset `at` of [`LOCAL`].
fn local(at: u64, len: u32) -> Sge {
    Sge { addr: LOCAL_BASE + at, length: len, lkey: Stag(LOCAL) }
}

const SEND: SendOp = SendOp::SEND;

/// Octets that tell their place.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(7).wrapping_add((i >> 8) as u8) ^ seed).collect()
}

/// A Write to offset `at` of the peer's [`OPEN`].
fn write_op(at: u64) -> SendOp {
    SendOp::Write { stag: Stag(OPEN), to: TaggedOffset(OPEN_BASE + at) }
}

/// A Read from offset `at` of the peer's [`OPEN`].
fn read_op(at: u64) -> SendOp {
    SendOp::Read { stag: Stag(OPEN), to: TaggedOffset(OPEN_BASE + at), invalidate: None }
}

/// A FetchAdd at offset `at` of the peer's [`OPEN`].
fn add_op(at: u64, add: u64) -> SendOp {
    SendOp::Atomic {
        stag: Stag(OPEN),
        to: TaggedOffset(OPEN_BASE + at),
        op: AtomicOp::FetchAdd { add, mask: 0 },
    }
}

/// Two ends of one stream.
struct Pair<F = Framer, D = Deframer> {
    a: End<F, D>,
    b: End<F, D>,
}

impl Pair {
    fn new() -> Self {
        Self::with(config(), |_| {})
    }

    /// Two ends of `config` whose terms `change` may alter.
    fn with(config: Config, change: impl Fn(&mut Negotiated)) -> Self {
        let [mut a, mut b] = [terms(Role::Initiator), terms(Role::Responder)];
        change(&mut a);
        change(&mut b);
        Self { a: End::new(config, &a), b: End::new(config, &b) }
    }
}

impl<F: Frame, D: Deframe> Pair<F, D> {
    /// Moves octets in pieces of `step` until nothing moves any more.
    fn run_in_steps(&mut self, step: usize) {
        loop {
            let there = self.a.take(step);
            self.b.arrive(&there);
            let back = self.b.take(step);
            self.a.arrive(&back);
            if there.is_empty() && back.is_empty() {
                return;
            }
        }
    }

    fn run(&mut self) {
        self.run_in_steps(usize::MAX);
    }
}

/// An end whose peer is the test: it makes ULPDUs octet by octet ([`octets`]) and looks at those
/// that come back.
struct Raw {
    end: End,
    framer: Framer,
    deframer: Deframer,
    back: Vec<u8>,
}

impl Raw {
    /// The end is a responder and has seen a first FPDU, so that it may send.
    fn new() -> Self {
        let mut raw = Self::responder(config(), |_| {});
        raw.send(&octets::tagged(octets::WRITE, true, 0, 0, &[]));
        assert_eq!(raw.end.events(), [Event::FirstHeard]);
        raw
    }

    fn responder(config: Config, change: impl FnOnce(&mut Negotiated)) -> Self {
        Self::with(config, Role::Responder, change)
    }

    fn initiator(config: Config, change: impl FnOnce(&mut Negotiated)) -> Self {
        Self::with(config, Role::Initiator, change)
    }

    fn with(config: Config, role: Role, change: impl FnOnce(&mut Negotiated)) -> Self {
        let mut terms = terms(role);
        change(&mut terms);
        Self {
            end: End::new(config, &terms),
            framer: Framer::new(terms.crc, terms.receive_markers),
            deframer: Deframer::new(terms.crc, terms.send_markers),
            back: Vec::new(),
        }
    }

    /// The octets of an FPDU, at this place of the stream.
    fn fpdu(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.framer.frame_len(ulpdu.len())];
        self.framer
            .write(&mut out, &[], ulpdu.len(), |at, dst, crc| {
                dst.copy_from_slice(&ulpdu[at..at + dst.len()]);
                if let Some(crc) = crc {
                    crc.update(dst);
                }
                Ok::<_, Infallible>(())
            })
            .unwrap();
        out
    }

    fn send(&mut self, ulpdu: &[u8]) {
        let fpdu = self.fpdu(ulpdu);
        self.end.arrive(&fpdu);
    }

    /// The ULPDUs that come back.
    fn back(&mut self) -> Vec<Vec<u8>> {
        let octets = self.end.take_all();
        self.back.extend(octets);
        let mut ulpdus = Vec::new();
        while let Some(fpdu) = self.deframer.next(&mut self.back).unwrap() {
            ulpdus.push(self.back[fpdu.start..fpdu.start + fpdu.len].to_vec());
            self.back.drain(..fpdu.consumed);
        }
        assert!(self.back.is_empty(), "whole FPDUs only");
        ulpdus
    }

    /// Sends `ulpdu`, which is at fault, and returns what follows the DDP header of the
    /// Terminate that must be all that comes back.
    fn refuse(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        self.send(ulpdu);
        self.terminate()
    }

    /// The octets behind the DDP header of the Terminate that is all that comes back.
    fn terminate(&mut self) -> Vec<u8> {
        let back = self.back();
        assert_eq!(back.len(), 1, "one Terminate and nothing else: {back:02x?}");
        let (head, body) = back[0].split_at(18);
        assert_eq!(head, octets::untagged(octets::TERMINATE, true, 0, 2, 1, 0, &[]));
        assert_eq!(self.end.disposition(), Disposition::Finish);
        assert_eq!(self.end.state(), QpState::Err);
        body.to_vec()
    }
}

/// A Terminate's payload: code, M, D and R with what they announce.
fn quoting(code: [u8; 2], length: usize, ddp_header: &[u8], rdma_header: &[u8]) -> Vec<u8> {
    let flags = if rdma_header.is_empty() { 0xc0 } else { 0xe0 };
    let [high, low] = (length as u16).to_be_bytes();
    let mut expected = vec![code[0], code[1], flags, 0, high, low];
    expected.extend_from_slice(ddp_header);
    expected.extend_from_slice(rdma_header);
    expected
}
