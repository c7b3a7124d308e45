// SPDX-License-Identifier: MIT OR Apache-2.0

//! The program at the other end, around the protocol core: lends memory, sends back what it
//! receives, and carries out orders. It does in simulated time what `iwarp conform --target` and
//! `--call` do over sockets.

use std::cell::RefCell;
use std::time::Duration;

use iwarp_conform::order::{self, CANNOT, DONE, Request};
use iwarp_conform::peer::{self, Lent, Offer};
use iwarp_proto::mpa::rx::Deframer;
use iwarp_proto::mpa::startup::{Config as Terms, Initiator, Negotiated, Responder};
use iwarp_proto::mpa::tx::Framer;
use iwarp_proto::qp::{
    Config, Disposition, Event, Piece, Qp, Receiver, Source, Transmit, Transmitter,
};
use iwarp_types::mock::{Host, Invalidation};
use iwarp_types::{
    Access, Extensions, Memory, Payload, PdId, QpId, QpState, RecvRequest, SendOp, SendRequest,
    Sge, Stag, Time, WcStatus, WorkCompletion,
};

use super::orders::{has_bytes, operation};

/// Bytes of each piece of memory that is lent.
const LENT: usize = 65_536;
const RECEIVES: usize = 4;
const ROOM: usize = 256;
/// A Send of these bytes asks for no more receives than are posted.
const NO_MORE: &[u8] = b"no more receives";
const DEPTH: u16 = 4;

const PD: PdId = PdId(7);
const OTHER: PdId = PdId(8);
/// The memory that orders read into and write from.
const RW: u32 = 0x0000_1100;
const INBOX: u32 = 0x0000_9100;
const BASE: u64 = 0x40_0000;
/// The time that the program takes to accept: bytes behind a Request come before its Reply.
const THOUGHT: Duration = Duration::from_millis(20);
/// As in the library: silence after which an initiator sends a Write of nothing, for peers that
/// wait for its first FPDU.
const NUDGE: Duration = Duration::from_millis(200);
/// The work requests of an order, among the numbers of Sends.
const ORDERED: u64 = 2 << 32;

/// The bytes that go to the tester.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Chunk {
    Bytes(Vec<u8>),
    Fin,
    Reset,
}

/// The options that a seed chooses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) crc: bool,
    pub(super) markers: bool,
    pub(super) mulpdu: usize,
    /// Takes it that the tester has RFC 7306, which it does not say.
    pub(super) assume: bool,
    pub(super) defect: Option<Defect>,
}

/// The errors that a program may make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Defect {
    /// Memory that is lent for reading may be written too.
    Generous,
    /// An order is done when its work requests are posted.
    Hasty,
}

#[derive(Debug)]
enum TargetState {
    /// A server that waits for its Request.
    Listening(Responder),
    /// A server that is about to accept.
    Thinking(Responder, Time),
    /// A client that waits for its Reply.
    Calling(Box<Initiator>),
    Operating(Box<Core>),
    Closed,
}

/// A queue pair in Full Operation.
#[derive(Debug)]
struct Core {
    qp: RefCell<Qp>,
    rx: Receiver<Deframer>,
    tx: Transmitter<Framer>,
    out: Transmit,
    finished: bool,
}

#[derive(Debug)]
pub(super) struct Target {
    state: TargetState,
    host: Host,
    offer: Vec<u8>,
    manner: Manner,
    inbox: Vec<u8>,
    /// Work requests that are posted and have not completed: receives, sends.
    posted: (usize, usize),
    next_send: u64,
    /// Work requests of an order that have not completed.
    ordered: usize,
    more: bool,
    /// Its acts that no program may see.
    pub(super) wrong: Vec<String>,
}

impl Target {
    fn new(manner: Manner) -> Self {
        let host = Host::default();
        let all = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC;
        let generous = manner.defect == Some(Defect::Generous);
        let regions = [
            ("rw", RW, PD, all),
            ("ro", 0x0000_2200, PD, if generous { all } else { Access::REMOTE_READ }),
            ("wo", 0x0000_3300, PD, Access::LOCAL_WRITE | Access::REMOTE_WRITE),
            ("other", 0x0000_4400, OTHER, all),
        ];
        let pattern = peer::pattern(LENT);
        let mut offer = Offer { receives: RECEIVES as u32, room: ROOM as u32, ..Offer::default() };
        for (number, (name, stag, pd, access)) in regions.into_iter().enumerate() {
            let base = BASE * (number as u64 + 1);
            host.register(pd, stag, base, LENT, access);
            host.fill(stag, 0, &pattern);
            // As the library has it: what several streams may use no peer invalidates.
            host.change(stag, |region| region.invalidation = Invalidation::Local);
            offer.lent.insert(name.to_owned(), Lent { stag, to: base, len: LENT as u32 });
        }
        host.register(PD, INBOX, BASE * 9, RECEIVES * ROOM, Access::LOCAL_WRITE);
        Self {
            state: TargetState::Closed,
            host,
            offer: offer.encode(),
            manner,
            inbox: Vec::new(),
            posted: (0, 0),
            next_send: 1 << 32,
            ordered: 0,
            more: true,
            wrong: Vec::new(),
        }
    }

    fn terms(manner: Manner) -> Terms {
        let Manner { crc, markers, .. } = manner;
        Terms { crc, markers, ird: DEPTH, ord: DEPTH, ..Terms::default() }
    }

    /// A server, to which a tester has just connected.
    pub(super) fn server(manner: Manner, now: Time) -> Self {
        let state = TargetState::Listening(Responder::new(Self::terms(manner), now));
        Self { state, ..Self::new(manner) }
    }

    /// A client that has just connected to a tester, and the Request that it sends.
    pub(super) fn client(manner: Manner, now: Time) -> (Self, Vec<u8>) {
        let target = Self::new(manner);
        let initiator =
            Initiator::new(Self::terms(manner), &target.offer, now).expect("valid terms");
        let request = initiator.request().to_vec();
        (Self { state: TargetState::Calling(Box::new(initiator)), ..target }, request)
    }

    /// When it wants to be woken.
    pub(super) fn alarm(&self) -> Option<Time> {
        match &self.state {
            TargetState::Listening(responder) => Some(responder.deadline()),
            TargetState::Thinking(_, until) => Some(*until),
            TargetState::Calling(initiator) => Some(initiator.deadline()),
            TargetState::Operating(core) => core.qp.borrow().poll_timeout(),
            TargetState::Closed => None,
        }
    }

    /// The time that [`Self::alarm`] named has come.
    pub(super) fn wake(&mut self, now: Time) -> Vec<Chunk> {
        match std::mem::replace(&mut self.state, TargetState::Closed) {
            TargetState::Thinking(responder, _) => self.accept(&responder, now),
            TargetState::Listening(_) | TargetState::Calling(_) | TargetState::Closed => {
                vec![Chunk::Fin]
            }
            TargetState::Operating(core) => {
                core.qp.borrow_mut().handle_timeout(now);
                self.state = TargetState::Operating(core);
                self.work()
            }
        }
    }

    fn accept(&mut self, responder: &Responder, now: Time) -> Vec<Chunk> {
        if !self.inbox.is_empty() {
            // The initiator may send nothing before the Reply.
            return vec![Chunk::Fin];
        }
        let (reply, terms) = responder.accept(DEPTH, DEPTH, &self.offer).expect("a Request came");
        self.operate(&terms, now);
        let mut chunks = vec![Chunk::Bytes(reply)];
        chunks.extend(self.work());
        chunks
    }

    fn operate(&mut self, terms: &Negotiated, now: Time) {
        let extensions = if self.manner.assume { Extensions::Assume } else { Extensions::Ask };
        let nudge = Some(NUDGE);
        let mut qp =
            Qp::new(Config { qp: QpId(3), pd: PD, extensions, nudge, ..Config::default() });
        qp.modify(QpState::Init).expect("Reset may become Init");
        let who = qp.accessor();
        let core = Core {
            rx: Receiver::new(terms.deframer(), who),
            tx: Transmitter::new(terms.framer(), who, self.manner.mulpdu),
            out: Transmit::new(1 << 20),
            finished: false,
            qp: RefCell::new(qp),
        };
        for slot in 0..RECEIVES {
            self.post(&core, slot);
        }
        core.qp.borrow_mut().establish(terms, now);
        self.state = TargetState::Operating(Box::new(core));
    }

    fn sge(slot: usize, len: usize) -> Sge {
        let addr = BASE * 9 + (slot * ROOM) as u64;
        Sge { addr, length: len as u32, lkey: Stag(INBOX) }
    }

    fn post(&mut self, core: &Core, slot: usize) {
        let sges = [Self::sge(slot, ROOM)];
        let posted = core.qp.borrow_mut().post_recv(&RecvRequest::new(slot as u64, &sges));
        self.posted.0 += usize::from(posted.is_ok());
    }

    /// Bytes have come, or the end of the stream.
    pub(super) fn take(&mut self, chunk: Chunk, now: Time) -> Vec<Chunk> {
        match chunk {
            Chunk::Bytes(bytes) => self.inbox.extend(bytes),
            Chunk::Reset => {
                if let TargetState::Operating(core) = &self.state {
                    core.qp.borrow_mut().lost();
                    self.work();
                }
                self.check_end();
                self.state = TargetState::Closed;
                return Vec::new();
            }
            Chunk::Fin => {
                if let TargetState::Operating(core) = &mut self.state {
                    core.rx.eof(&core.qp, self.inbox.len(), || None);
                    let chunks = self.work();
                    self.check_end();
                    return chunks;
                }
                self.state = TargetState::Closed;
                return vec![Chunk::Fin];
            }
        }
        match std::mem::replace(&mut self.state, TargetState::Closed) {
            TargetState::Listening(mut responder) => match responder.receive(&self.inbox) {
                Ok(None) => self.state = TargetState::Listening(responder),
                Ok(Some((_, used))) => {
                    self.inbox.drain(..used);
                    self.state = TargetState::Thinking(responder, Time(now.0 + THOUGHT));
                }
                Err(_) => return vec![Chunk::Fin],
            },
            TargetState::Calling(mut initiator) => match initiator.receive(&self.inbox) {
                Ok(None) => self.state = TargetState::Calling(initiator),
                Ok(Some((reply, used))) if reply.accepted => {
                    self.inbox.drain(..used);
                    self.operate(&reply.negotiated, now);
                    return self.work();
                }
                Ok(Some(_)) | Err(_) => return vec![Chunk::Fin],
            },
            TargetState::Operating(core) => {
                self.state = TargetState::Operating(core);
                return self.work();
            }
            state @ (TargetState::Thinking(..) | TargetState::Closed) => self.state = state,
        }
        Vec::new()
    }

    /// Receives, answers and sends until nothing moves any more.
    fn work(&mut self) -> Vec<Chunk> {
        let TargetState::Operating(mut core) =
            std::mem::replace(&mut self.state, TargetState::Closed)
        else {
            return Vec::new();
        };
        let mut chunks = Vec::new();
        loop {
            let used = core.rx.receive(&core.qp, &self.host, &self.host, &mut self.inbox);
            self.inbox.drain(..used);
            let mut moved = used > 0;
            while let Some(event) = { core.qp.borrow_mut().poll_event() } {
                self.follow(&core, event);
                moved = true;
            }
            let sent = self.send(&mut core);
            moved |= !sent.is_empty();
            if !sent.is_empty() {
                chunks.push(Chunk::Bytes(sent));
            }
            if !moved {
                break;
            }
        }
        let disposition = core.qp.borrow().disposition();
        if disposition != Disposition::Open && !core.finished {
            core.finished = true;
            let finish = disposition == Disposition::Finish;
            chunks.push(if finish { Chunk::Fin } else { Chunk::Reset });
        }
        self.state = TargetState::Operating(core);
        chunks
    }

    fn follow(&mut self, core: &Core, event: Event) {
        match event {
            Event::ReceiveCompleted(received) => {
                self.posted.0 -= 1;
                if received.status != WcStatus::Success {
                    return;
                }
                let slot = received.wr_id as usize;
                let mut len = received.byte_len as usize;
                if let Some(immediate) = received.immediate {
                    self.host.fill(INBOX, slot * ROOM, &immediate);
                    len = immediate.len();
                }
                let data = self.host.octets(INBOX)[slot * ROOM..slot * ROOM + len].to_vec();
                self.more &= data != NO_MORE;
                match order::decode(&data, LENT) {
                    Some(order) => self.obey(core, &order.expect("the cases have right ones")),
                    None => self.say(core, &data),
                }
                if self.more {
                    self.post(core, slot);
                }
            }
            Event::SendCompleted(sent) => {
                self.posted.1 -= 1;
                if sent.wr_id == ORDERED && self.ordered > 0 {
                    self.follow_order(core, &sent);
                }
            }
            _ => {}
        }
    }

    /// Sends bytes that are taken at once: a receive may be filled again before they are sent.
    fn say(&mut self, core: &Core, data: &[u8]) {
        let request = SendRequest::new(self.next_send, SendOp::SEND, Payload::Inline(data));
        let posted = core.qp.borrow_mut().post_send(&request.signaled());
        self.posted.1 += usize::from(posted.is_ok());
        self.next_send += 1;
    }

    fn obey(&mut self, core: &Core, requests: &[Request]) {
        for request in requests {
            let addr = BASE + request.at as u64;
            let sge = [Sge { addr, length: request.length as u32, lkey: Stag(RW) }];
            let payload = Payload::Sges(if has_bytes(request) { &sge } else { &[] });
            let request = SendRequest::new(ORDERED, operation(request), payload);
            let posted = core.qp.borrow_mut().post_send(&request.signaled());
            self.posted.1 += usize::from(posted.is_ok());
        }
        if self.manner.defect == Some(Defect::Hasty) {
            return self.say(core, DONE);
        }
        self.ordered = requests.len();
    }

    /// A work request of an order has completed.
    fn follow_order(&mut self, core: &Core, sent: &WorkCompletion) {
        match sent.status {
            WcStatus::Success => {
                self.ordered -= 1;
                if self.ordered == 0 {
                    self.say(core, DONE);
                }
            }
            // No message was sent, and the connection lives.
            WcStatus::RemoteInvalidRequest => {
                self.ordered = 0;
                self.say(core, &[CANNOT, b"not sent to such a peer"].concat());
            }
            _ => {}
        }
    }

    fn send(&mut self, core: &mut Core) -> Vec<u8> {
        core.tx.transmit(&core.qp, &self.host, &mut core.out, usize::MAX);
        let mut bytes = Vec::new();
        let who = core.qp.borrow().accessor();
        for piece in core.out.pieces() {
            match piece {
                Piece::Staged(range) => bytes.extend_from_slice(core.out.octets(range.clone())),
                Piece::Memory(source) => {
                    let at = bytes.len();
                    bytes.resize(at + source.len(), 0);
                    let gathered = match *source {
                        Source::Local(sge) => {
                            self.host.gather_local(who, sge, &mut bytes[at..], None)
                        }
                        Source::Remote { stag, to, .. } => {
                            self.host.gather_remote(who, stag, to, &mut bytes[at..], None)
                        }
                    };
                    gathered.expect("this program takes no memory away");
                }
            }
        }
        core.tx.taken(&core.qp, &mut core.out, bytes.len());
        bytes
    }

    /// The stream has ended, so that nothing may be left of what was posted.
    fn check_end(&mut self) {
        if self.posted != (0, 0) && matches!(self.state, TargetState::Operating(_)) {
            self.wrong.push(format!("{:?} requests never complete", self.posted));
        }
    }
}
