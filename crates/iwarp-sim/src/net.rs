// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two ends and the octets between them.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use iwarp_proto::mpa::rx::Deframer;
use iwarp_proto::mpa::startup::Negotiated;
use iwarp_proto::mpa::tx::Framer;
use iwarp_proto::mpa::wire::{MAX_ULPDU, MIN_MULPDU};
use iwarp_proto::qp::{
    Config, Disposition, Event, Extensions, Piece, Qp, Receiver, Source, Transmit, Transmitter,
};
use iwarp_types::{Accessor, PdId, QpId, Stag, Time, WcStatus};

use crate::bank::{Bank, Role, WINDOWS};
use crate::choice::Choices;
use crate::host::{Flaw, Host, Intervention};
use crate::model::{Model, Posted, Verdict, count_of, farewell_of};
use crate::wire::{Rules, Segment, Target, WireCheck, crc32c};

/// One direction of the stream.
#[derive(Debug, Default)]
pub struct Link {
    /// Octets under way.
    pub flying: VecDeque<u8>,
    /// Octets that may be under way.
    pub capacity: usize,
    /// The receiving end does not read.
    pub stalled: bool,
    /// The sending end shut it down.
    pub fin: bool,
    /// Everything behind this many octets is lost, and a FIN comes instead.
    pub cut_at: Option<u64>,
    /// This octet is changed.
    pub corrupt_at: Option<u64>,
    /// Octets that were sent.
    pub sent: u64,
    /// A defect.
    pub flaw: Flaw,
}

impl Link {
    fn push(&mut self, octets: &[u8]) {
        let start = self.sent;
        self.sent += octets.len() as u64;
        let kept = match self.cut_at {
            Some(cut) if cut <= self.sent => {
                self.fin = true;
                &octets[..cut.saturating_sub(start) as usize]
            }
            _ => octets,
        };
        let at = self.flying.len();
        self.flying.extend(kept);
        if let Some(corrupt) = self.corrupt_at
            && corrupt >= start
            && let Some(octet) = self.flying.get_mut(at + (corrupt - start) as usize)
        {
            *octet ^= 0x10 << (corrupt % 4);
        }
        match self.flaw {
            Flaw::LinkDrops if kept.len() > 40 => {
                self.flying.remove(at + kept.len() / 2);
            }
            Flaw::LinkChanges if kept.len() > 40 => self.flying[at + kept.len() / 2] ^= 1,
            Flaw::LinkStops => self.flying.truncate(at),
            _ => {}
        }
    }
}

/// The knowledge of a memory window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WindowUse {
    /// Not bound.
    #[default]
    Free,
    /// A bind or invalidation is under way.
    Changing,
    /// The peer may use it: offset of its first octet, octets.
    Granted(u64, u64),
    /// The peer is to invalidate it.
    GivenUp,
}

/// The way in which an end came to its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Code of its own fault.
    pub fault: Option<(u8, u8, u8)>,
    /// Code of the Terminate that it received.
    pub terminated: Option<(u8, u8, u8)>,
    /// It saw the peer close in good order.
    pub disconnected: bool,
    /// It was told that the stream is lost.
    pub lost: bool,
    /// The last receive of the shared queue was reached.
    pub last_receive: bool,
    /// Drained events that are due.
    pub drains_due: u32,
    first_fpdu: bool,
}

/// One end of the stream.
pub struct End {
    /// Its queue pair.
    pub qp: Rc<RefCell<Qp>>,
    /// Its memory and oracle.
    pub host: Host,
    tx: Transmitter<Framer>,
    rx: Receiver<Deframer>,
    out: Transmit,
    check: WireCheck,
    /// The terms that were agreed.
    pub terms: Negotiated,
    inbox: Vec<u8>,
    wanted: usize,
    eof: bool,
    /// Next work request number.
    pub next_wr: u64,
    /// Messages posted that consume a receive of the peer's.
    pub receives_used: usize,
    /// Receives that the peer's messages wait for: their numbers, and octets they must have.
    pub debts: BTreeMap<usize, u32>,
    /// Its windows.
    pub windows: [WindowUse; WINDOWS],
    /// Set if its region for passing use is being invalidated: source, sink.
    pub passing: [bool; 2],
    /// Its outcome.
    pub outcome: Outcome,
    scratch: Vec<u8>,
    segments: Vec<Segment>,
}

/// The deviations that may happen without the oracle calling them wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tolerance {
    /// Faults, losses and what follows from them.
    pub faults: bool,
    /// The stream does not arrive as it was sent: no model of what arrives.
    pub garbage: bool,
}

/// Two ends, connected.
pub struct Net {
    /// The ends.
    pub ends: [End; 2],
    /// `links[e]` carries what end `e` sends.
    pub links: [Link; 2],
    /// The deviations that may happen.
    pub tolerance: Tolerance,
    /// The time.
    pub now: Time,
    moment: u64,
    flaw: Flaw,
    /// The stream was reset.
    pub broken: bool,
    /// Segments that went out where no model follows them.
    pub seen: Vec<Segment>,
    /// Octets that were taken in all.
    pub octets: u64,
    /// A digest of everything that happened.
    pub digest: u64,
}

/// Identity of an end.
pub const fn accessor(e: usize) -> Accessor {
    Accessor { pd: PdId(10 + e as u32), qp: QpId(100 + e as u32) }
}

impl End {
    /// An end in Full Operation.
    pub fn new(
        e: usize,
        config: Config,
        terms: Negotiated,
        bank: Bank,
        seed: u64,
        rate: u64,
        now: Time,
    ) -> Self {
        let mut qp = Qp::new(config);
        qp.modify(iwarp_types::QpState::Init).expect("Reset may become Init");
        qp.establish(&terms, now);
        let qp = Rc::new(RefCell::new(qp));
        let who = accessor(e);
        let mut model = Model::default();
        model.rtr = terms.rtr;
        model.greets = config.extensions == iwarp_proto::qp::Extensions::Ask;
        model.refuses = config.extensions == iwarp_proto::qp::Extensions::Refuse;
        model.nudges =
            config.nudge.is_some() && terms.role == iwarp_proto::mpa::startup::Role::Initiator;
        model.ord = [usize::from(terms.ord), usize::from(terms.spare_ord)];
        model.ird = usize::from(terms.inbound());
        model.own = config.extensions == iwarp_proto::qp::Extensions::Ask;
        model.acknowledges = config.acknowledge && terms.outbound() > 0;
        model.parks = config.park.is_some();
        model.streams = !terms.crc && !terms.receive_markers;
        model.gated = terms.role == iwarp_proto::mpa::startup::Role::Responder;
        let rules = Rules { crc: terms.crc, markers: terms.send_markers, max_ulpdu: MIN_MULPDU };
        Self {
            host: Host::new(bank, model, Rc::clone(&qp), seed, rate),
            tx: Transmitter::new(terms.framer(), who, MIN_MULPDU),
            rx: Receiver::new(terms.deframer(), who),
            out: Transmit::new(0),
            check: WireCheck::new(rules),
            terms,
            qp,
            inbox: Vec::new(),
            wanted: 0,
            eof: false,
            next_wr: 1,
            debts: BTreeMap::new(),
            receives_used: usize::from(terms.rtr == Some(iwarp_proto::mpa::startup::Rtr::Send)),
            windows: [WindowUse::Free; WINDOWS],
            passing: [false; 2],
            outcome: Outcome::default(),
            scratch: Vec::new(),
            segments: Vec::new(),
        }
    }

    /// True if it has asked its peer to tell the number of messages received.
    fn is_told_farewell(&self) -> bool {
        let qp = self.qp.borrow();
        let config = qp.config();
        config.extensions == iwarp_proto::qp::Extensions::Ask && config.acknowledge
    }

    /// The number of the peer's octets that it has taken as long as it worked, as a stack
    /// acknowledges them that closes without reading on; `None` where messages among them wait for
    /// a receive.
    fn has_received(&self) -> Option<u64> {
        let model = self.host.model.borrow();
        (!model.has_waiting()).then_some(model.consumed)
    }

    /// Changes the MULPDU from now on.
    pub fn set_mulpdu(&mut self, mulpdu: usize) {
        self.tx.set_mulpdu(mulpdu);
        self.check.allow(mulpdu.clamp(MIN_MULPDU, MAX_ULPDU));
    }

    /// True if the queue pair works.
    pub fn is_up(&self) -> bool {
        self.qp.borrow().is_connected()
    }

    /// True if it has built octets that were not taken, or could build some.
    pub fn wants_to_send(&self) -> bool {
        !self.out.is_empty() || self.qp.borrow_mut().wants_transmit()
    }

    /// True if a Terminate was seen on the wire.
    pub const fn has_terminated(&self) -> bool {
        self.check.is_terminated()
    }

    fn note_broken(&self) -> Verdict {
        match self.host.broken.borrow_mut().take() {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }
}

impl Net {
    /// Connects two ends.
    pub fn new(ends: [End; 2], tolerance: Tolerance, now: Time) -> Self {
        for (e, end) in ends.iter().enumerate() {
            let mut model = end.host.model.borrow_mut();
            model.blind = tolerance.garbage;
            model.bids_farewell = ends[1 - e].is_told_farewell();
        }
        let link = || Link { capacity: 64 * 1024, ..Link::default() };
        Self {
            ends,
            links: [link(), link()],
            tolerance,
            now,
            moment: 0,
            flaw: Flaw::None,
            broken: false,
            seen: Vec::new(),
            octets: 0,
            digest: 0,
        }
    }

    /// Puts a defect in everywhere.
    pub fn set_flaw(&mut self, flaw: Flaw) {
        self.flaw = flaw;
        self.links[0].flaw = flaw;
        self.links[1].flaw = flaw;
        self.ends[0].host.set_flaw(flaw);
        self.ends[1].host.set_flaw(flaw);
    }

    /// Adds to the digest.
    pub fn note(&mut self, what: u64) {
        self.digest = (self.digest ^ what).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    /// A new moment in the life of the memories.
    pub fn tick(&mut self) {
        for end in &mut self.ends {
            let reading = end.host.model.borrow().has_requests();
            self.moment = end.host.bank.borrow_mut().tick(reading).max(self.moment);
        }
    }

    /// End `e` builds octets, at most `budget` of them, and hands at most `most` to the link.
    pub fn send(&mut self, e: usize, budget: usize, most: usize) -> Verdict {
        let end = &mut self.ends[e];
        let wants = end.qp.borrow_mut().wants_transmit();
        let before = end.out.len();
        end.tx.transmit(&*end.qp, &end.host, &mut end.out, budget);
        let built = end.out.len() > before;
        end.note_broken()?;
        if built && !wants {
            return Err("built octets although it wanted nothing to be sent".into());
        }
        let idle = !built && end.out.is_empty() && end.host.interventions.borrow().is_empty();
        if idle && end.qp.borrow_mut().wants_transmit() {
            return Err("wants to send and builds nothing".into());
        }
        self.react(e);
        self.poll(e)?;
        self.hand_over(e, most)
    }

    /// The link takes octets of end `e`.
    fn hand_over(&mut self, e: usize, most: usize) -> Verdict {
        let (end, link) = (&mut self.ends[e], &mut self.links[e]);
        let disposition = end.qp.borrow().disposition();
        if disposition == Disposition::Abort {
            self.reset(e);
            return self.poll(e);
        }
        let room = link.capacity.saturating_sub(link.flying.len());
        let n = match self.flaw {
            // Whole FPDUs.
            Flaw::CountLost => end.out.len(),
            _ => end.out.len().min(room).min(most),
        };
        end.scratch.clear();
        let mut refused = None;
        for piece in end.out.pieces() {
            let (at, left) = (end.scratch.len(), n - end.scratch.len());
            match piece {
                _ if left == 0 => break,
                Piece::Staged(range) => {
                    let octets = end.out.octets(range.clone());
                    end.scratch.extend_from_slice(&octets[..octets.len().min(left)]);
                }
                Piece::Memory(source) => {
                    end.scratch.resize(at + source.len().min(left), 0);
                    let fetched = end.host.fetch(accessor(e), source, &mut end.scratch[at..]);
                    if let Err(error) = fetched {
                        // The framing cannot be kept.
                        end.scratch.truncate(at);
                        refused = Some(error);
                        break;
                    }
                }
            }
        }
        end.note_broken()?;
        if end.host.model.borrow().disconnected {
            end.check.may_abandon_response = true;
        }
        let n = end.scratch.len();
        end.segments.clear();
        end.check.feed(&end.scratch, &mut end.segments).map_err(|broken| broken.0)?;
        end.tx.taken(&*end.qp, &mut end.out, n);
        end.host.model.borrow_mut().taken += n as u64;
        let mut segments = std::mem::take(&mut end.segments);
        if self.flaw == Flaw::CountLost {
            let (start, octets) = (link.sent, &mut end.scratch);
            segments
                .retain(|segment| !(count_of(segment).is_some() && lose(segment, start, octets)));
        }
        link.push(&end.scratch);
        self.octets += n as u64;
        self.note(n as u64);
        for mut segment in segments.iter().cloned() {
            let said = (farewell_of(&segment), count_of(&segment));
            if let Target::Tagged { to, .. } = &mut segment.target {
                *to = match (self.flaw, said) {
                    (Flaw::FarewellHigh, (Some(count), _)) => count + 1,
                    (Flaw::FarewellLow, (Some(count), _)) => count.saturating_sub(1),
                    (Flaw::CountHigh, (_, Some(count))) => count + 1,
                    (Flaw::CountLow, (_, Some(count))) => count.saturating_sub(1),
                    _ => *to,
                };
            }
            if self.tolerance.garbage {
                if segment.opcode == 7 {
                    let p = &segment.payload;
                    self.ends[e].host.model.borrow_mut().terminate =
                        Some((p[0] >> 4, p[0] & 0x0f, p[1]));
                }
                self.seen.push(segment);
                continue;
            }
            let end = &self.ends[e];
            let arriving = end.host.model.borrow_mut().sent(segment, &end.host.bank.borrow())?;
            self.ends[1 - e].host.model.borrow_mut().arrives(arriving)?;
        }
        let end = &mut self.ends[e];
        end.segments = segments;
        if let Some(error) = refused {
            // Octets that stood before it are taken.
            end.tx.lost(&*end.qp, &end.out, 0, error);
            end.host.model.borrow_mut().disturbed = true;
            if !self.tolerance.faults {
                return Err("octets that wait to be sent lost their access".into());
            }
            self.reset(e);
        } else if disposition == Disposition::Finish && end.out.is_empty() {
            if !end.check.is_at_boundary() && !self.broken {
                return Err("stream finished inside an FPDU".into());
            }
            self.links[e].fin = true;
        }
        self.poll(e)
    }

    /// The stream breaks, for both ends.
    pub fn reset(&mut self, e: usize) {
        self.broken = true;
        self.ends[e].out.clear();
        self.links[e].fin = true;
        self.ends[e].eof = true;
        self.links[1 - e].flying.clear();
        let peer = &mut self.ends[1 - e];
        peer.eof = true;
        peer.host.model.borrow_mut().disturbed = true;
        peer.qp.borrow_mut().lost();
        peer.out.clear();
        self.links[1 - e].fin = true;
        self.links[e].flying.clear();
    }

    /// End `e` reads at most `most` octets of the stream, straight into memory if `directly` and
    /// the core says where.
    pub fn receive(&mut self, e: usize, most: usize, directly: bool) -> Verdict {
        let n = self.links[1 - e].flying.len().min(most);
        let end = &mut self.ends[e];
        if end.eof {
            self.links[1 - e].flying.clear();
            return Ok(());
        }
        let was_up = end.is_up();
        // A stream that stands still is not read, nor its end looked for.
        let n = if end.rx.is_stalled() && was_up { 0 } else { n };
        if directly
            && was_up
            && end.inbox.is_empty()
            && n > 0
            && let Some(direct) = end.rx.direct()
        {
            return self.receive_directly(e, direct.target, n);
        }
        let link = &mut self.links[1 - e];
        let known = end.inbox.len();
        end.inbox.extend(link.flying.drain(..n));
        let available = end.inbox.len();
        let used = end.rx.receive(&*end.qp, &end.host, &end.host, &mut end.inbox);
        end.note_broken()?;
        let is_up = end.is_up();
        if used > available {
            return Err("more octets used than there were".into());
        }
        let stalled = end.rx.is_stalled();
        if stalled != end.qp.borrow().is_stalled() {
            return Err(format!("stalled: the receiver says {stalled}"));
        }
        if was_up && is_up && available > known && !stalled {
            let enough = available >= end.wanted;
            // Enough once the length field was there.
            if known > 0 && (used > 0) != enough && (!enough || known >= 6) {
                return Err(format!("wanted {} octets, had {available}, used {used}", end.wanted));
            }
        }
        end.inbox.drain(..used);
        if is_up {
            end.wanted = end.rx.wanted(&end.inbox);
            if end.wanted <= end.inbox.len() && !stalled {
                return Err(format!("wants {} of {} octets", end.wanted, end.inbox.len()));
            }
        }
        if was_up && !self.tolerance.garbage {
            let mut model = end.host.model.borrow_mut();
            let mut position = model.consumed + used as u64;
            let sure = is_up && !model.disturbed;
            let mut corrupted = false;
            if let Some(at) = link.corrupt_at {
                // The FPDU with the changed octet must not pass.
                corrupted = position > at;
                position = position.min(at);
            }
            let bank = &mut end.host.bank.borrow_mut();
            model.consumed(position, sure, bank, self.moment)?;
            if corrupted && is_up {
                return Err("a changed octet went through".into());
            }
        }
        self.note(used as u64);
        let received = self.ends[1 - e].has_received();
        let (end, link) = (&mut self.ends[e], &self.links[1 - e]);
        if link.fin && link.flying.is_empty() && !end.eof && !stalled {
            end.eof = true;
            let mut believed = None;
            end.rx.eof(&*end.qp, end.inbox.len(), || {
                believed = received;
                received
            });
            if let Some(position) = believed {
                end.host.model.borrow_mut().received_by_peer(position);
            }
        }
        self.react(e);
        self.poll(e)
    }

    fn receive_directly(&mut self, e: usize, target: Source, n: usize) -> Verdict {
        use iwarp_types::Memory;
        let n = n.min(target.len());
        let end = &mut self.ends[e];
        let octets: Vec<u8> = self.links[1 - e].flying.drain(..n).collect();
        let placed = match target {
            Source::Local(sge) => end.host.place_local(accessor(e), sge, &octets),
            Source::Remote { stag, to, .. } => {
                end.host.place_remote(accessor(e), stag, to, &octets)
            }
        };
        if let Err(error) = placed {
            end.rx.direct_refused(error);
        }
        end.rx.received_directly(n);
        end.note_broken()?;
        end.host.model.borrow_mut().consumed += n as u64;
        end.wanted = end.rx.wanted(&end.inbox);
        self.react(e);
        self.poll(e)
    }

    /// Follows up what somebody else did to end `e` in the middle of a call.
    pub fn react(&mut self, e: usize) {
        let done = std::mem::take(&mut *self.ends[e].host.interventions.borrow_mut());
        for intervention in done {
            match intervention {
                Intervention::Aborted | Intervention::Lost => self.reset(e),
                Intervention::Paused => self.ends[e].outcome.drains_due += 1,
                _ => {}
            }
        }
    }

    /// Takes and judges what end `e` reports.
    pub fn poll(&mut self, e: usize) -> Verdict {
        loop {
            let event = self.ends[e].qp.borrow_mut().poll_event();
            let Some(event) = event else { break };
            let times = match (self.flaw, event) {
                (Flaw::LoseCompletion, Event::SendCompleted(_)) => 0,
                (Flaw::RepeatCompletion, Event::ReceiveCompleted(_)) => 2,
                _ => 1,
            };
            for _ in 0..times {
                self.judge(e, event).map_err(|why| format!("end {e}: {why}"))?;
            }
        }
        let end = &self.ends[e];
        if end.is_up() {
            end.host.model.borrow().check_prompt().map_err(|why| format!("end {e}: {why}"))?;
        }
        Ok(())
    }

    fn judge(&mut self, e: usize, event: Event) -> Verdict {
        let tolerant = self.tolerance.faults;
        let garbage = self.tolerance.garbage;
        let peer_terminate = self.ends[1 - e].host.model.borrow().terminate;
        let end = &mut self.ends[e];
        let in_error = end.qp.borrow().state() == iwarp_types::QpState::Err;
        let host = &end.host;
        let closing = host.model.borrow().disconnected || end.outcome.disconnected;
        match event {
            Event::SendCompleted(wc) => {
                let posted = host.model.borrow_mut().send_completed(&wc, in_error)?;
                let refused = wc.status == WcStatus::RemoteInvalidRequest
                    && host.model.borrow().extensions_may_fail;
                if wc.status != WcStatus::Success && !tolerant && !closing && !refused {
                    return Err(format!("{:?} ended as {:?}", posted.op, wc.status));
                }
                end.ended(&posted, wc.status);
                self.note(wc.wr_id ^ (wc.status as u64) << 32);
            }
            Event::ReceiveCompleted(wc) => {
                let mut model = host.model.borrow_mut();
                if garbage {
                    judge_blindly(&mut model, &wc, in_error)?;
                } else {
                    model.recv_completed(&wc, in_error, &host.bank.borrow())?;
                }
                if wc.status != WcStatus::Success && !tolerant && !closing {
                    return Err(format!("receive ended as {:?}", wc.status));
                }
                drop(model);
                if let Some(stag) = wc.invalidated {
                    if host.bank.borrow().memory.is_valid(stag) {
                        return Err(format!("{stag:?} is reported invalidated and is valid"));
                    }
                    end.invalidated(stag);
                }
                self.note(wc.wr_id ^ (wc.status as u64) << 40);
            }
            Event::FirstHeard => {
                if std::mem::replace(&mut end.outcome.first_fpdu, true) {
                    return Err("first FPDU reported twice".into());
                }
            }
            Event::Disconnected => end.outcome.disconnected = true,
            Event::Terminated(code) => {
                let code = (code.layer, code.etype, code.code);
                end.outcome.terminated = Some(code);
                if !tolerant || (!garbage && peer_terminate != Some(code)) {
                    return Err(format!("Terminate {code:?}, the peer sent {peer_terminate:?}"));
                }
            }
            Event::Fault(fault) => {
                let code = fault.code();
                if end.outcome.fault.is_some() {
                    return Err("second fault".into());
                }
                end.outcome.fault = Some((code.layer, code.etype, code.code));
                if !tolerant {
                    return Err(format!("fault: {fault}"));
                }
                host.model.borrow_mut().disturbed = true;
            }
            Event::Lost => {
                end.outcome.lost = true;
                if !tolerant {
                    return Err("stream lost".into());
                }
            }
            Event::SilentSends(_) => {}
            Event::HeldBack => return Err("nobody asked to be told of work that waits".into()),
            Event::NoReceive if end.qp.borrow().has_parked() => {}
            Event::NoReceive => return Err("no message waits for a receive".into()),
            Event::OtherDevice => return Err("neither end has said what programs see".into()),
            Event::SendQueueDrained => {
                if end.outcome.drains_due == 0 {
                    return Err("send queue drained, which nobody asked for".into());
                }
                end.outcome.drains_due -= 1;
            }
            Event::LastReceiveReached => {
                if std::mem::replace(&mut end.outcome.last_receive, true) {
                    return Err("last receive reached twice".into());
                }
            }
        }
        Ok(())
    }

    /// All is at rest: what an end has received has completed at the other one, if it can
    /// learn that.
    pub fn check_complete(&self) -> Verdict {
        for e in 0..2 {
            let (end, peer) = (&self.ends[e], &self.ends[1 - e]);
            let tells = peer.qp.borrow().config().extensions == Extensions::Ask;
            let hears = end.is_told_farewell() && !end.rx.is_stalled();
            if tells && hears && end.is_up() && peer.is_up() {
                let model = end.host.model.borrow();
                let verdict = model.check_complete(&peer.host.model.borrow());
                verdict.map_err(|why| format!("end {e}: {why}"))?;
            }
        }
        Ok(())
    }

    /// Both ends' memory is what the oracle says, and what was agreed is kept.
    pub fn check_memory(&mut self) -> Verdict {
        for (e, end) in self.ends.iter().enumerate() {
            if let Some((role, at)) = end.host.bank.borrow().mismatch() {
                return Err(format!("end {e}: octet {at} of {role:?} is not what it has to be"));
            }
        }
        Ok(())
    }

    /// Receives were posted to end `e`: what waits for them is delivered, if anything does.
    pub fn look_again(&mut self, e: usize) -> Verdict {
        if self.ends[e].qp.borrow().has_parked() { self.receive(e, 0, false) } else { Ok(()) }
    }

    /// True if octets are under way, or could be made.
    pub fn is_busy(&self) -> bool {
        (0..2).any(|e| !self.links[e].flying.is_empty() || self.ends[e].wants_to_send())
    }

    /// Lets everything go on until nothing moves.
    pub fn run_dry(&mut self, rng: &mut Choices<'_>) -> Verdict {
        for end in &self.ends {
            end.host.leave_alone();
        }
        let mut idle = 0;
        let mut rounds = 0u32;
        while idle < 3 {
            let before = (self.octets, self.progress());
            self.tick();
            for e in 0..2 {
                self.links[e].stalled = false;
                self.links[e].capacity = self.links[e].capacity.max(4096);
                self.send(e, 128 * 1024, usize::MAX)?;
                let most = rng.range(1, 64 * 1024) as usize;
                self.receive(1 - e, most.max(1000), rng.one_in(2))?;
            }
            let same = before == (self.octets, self.progress());
            idle = if same { idle + 1 } else { 0 };
            rounds += 1;
            if rounds > 100_000 {
                return Err("never comes to rest".into());
            }
        }
        for e in 0..2 {
            // Unless the peer does not read, for want of receives.
            let held_up = self.ends[1 - e].rx.is_stalled();
            if self.ends[e].wants_to_send() && !self.ends[e].eof && !held_up {
                return Err(format!("end {e}: wants to send and does not"));
            }
        }
        Ok(())
    }

    fn progress(&self) -> [usize; 6] {
        let (a, b) = (&self.ends[0], &self.ends[1]);
        [
            self.links[0].flying.len(),
            self.links[1].flying.len(),
            a.host.model.borrow().completions as usize,
            b.host.model.borrow().completions as usize,
            a.host.model.borrow().consumed as usize,
            b.host.model.borrow().consumed as usize,
        ]
    }

    /// Sets the clock forward, as far as somebody waits for it.
    pub fn pass_time(&mut self) -> bool {
        let due = self.ends.iter().filter_map(|end| end.qp.borrow().poll_timeout()).min();
        let Some(due) = due else { return false };
        // A time that is past: somebody only wants to know it.
        self.now = self.now.max(due);
        for end in &self.ends {
            end.qp.borrow_mut().handle_timeout(self.now);
        }
        true
    }

    /// Gives the memories back.
    pub fn into_banks(self) -> [Bank; 2] {
        self.ends.map(|end| end.host.bank.into_inner())
    }
}

impl End {
    /// Follows what a finished request means for windows and regions.
    fn ended(&mut self, posted: &Posted, status: WcStatus) {
        use iwarp_types::Access;
        use iwarp_types::SendOp;
        match posted.op {
            SendOp::Bind(bind) => {
                let number = (bind.window.index() as usize) % 64;
                let zero = bind.access.contains(Access::ZERO_BASED);
                self.windows[number] = match status {
                    WcStatus::Success => {
                        WindowUse::Granted(if zero { 0 } else { bind.addr }, bind.length)
                    }
                    _ => WindowUse::Free,
                };
            }
            SendOp::LocalInvalidate(stag) | SendOp::Read { invalidate: Some(stag), .. } => {
                self.invalidated(stag);
            }
            _ => {}
        }
    }

    fn invalidated(&mut self, stag: Stag) {
        let mut bank = self.host.bank.borrow_mut();
        for (number, role) in [Role::Passing, Role::PassingSink].into_iter().enumerate() {
            if bank.region(role).stag == stag {
                bank.renew(role);
                self.passing[number] = false;
            }
        }
        if let Some(number) = bank.memory.windows.iter().position(|window| window.stag == stag) {
            self.windows[number] = WindowUse::Free;
        }
    }
}

/// Takes the STag away by which a Write of nothing says more, in `octets`, which stand at `start`
/// of the stream. False where a marker stands within it.
fn lose(segment: &Segment, start: u64, octets: &mut [u8]) -> bool {
    const LENGTH: [u8; 2] = [0, 14];
    let end = (segment.end - start) as usize;
    let fpdu = end.checked_sub(20).and_then(|at| octets.get_mut(at..end));
    let Some(fpdu) = fpdu.filter(|fpdu| fpdu.starts_with(&LENGTH)) else { return false };
    fpdu[4..8].fill(0);
    let crc = crc32c(&fpdu[..16]);
    fpdu[16..].copy_from_slice(&crc.to_le_bytes());
    true
}

/// Of a stream that no model follows: in order, once, and no longer than the buffer.
fn judge_blindly(model: &mut Model, wc: &iwarp_types::WorkCompletion, in_error: bool) -> Verdict {
    let Some(recv) = model.recvs.get(model.ended_recvs) else {
        return Err(format!("completion of receive {} which is not posted", wc.wr_id));
    };
    if recv.wr_id != wc.wr_id {
        return Err(format!("receive {} overtakes {}", wc.wr_id, recv.wr_id));
    }
    let immediate = wc.immediate.is_some();
    if wc.status == WcStatus::Success && u64::from(wc.byte_len) > recv.capacity() && !immediate {
        return Err(format!("{} octets received into {}", wc.byte_len, recv.capacity()));
    }
    if wc.status == WcStatus::Flushed && !in_error {
        return Err("receive flushed although the queue pair is not in error".into());
    }
    model.ended_recvs += 1;
    model.completions += 1;
    Ok(())
}
