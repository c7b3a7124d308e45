// SPDX-License-Identifier: MIT OR Apache-2.0

//! A stream within the host that moves from TCP to memory that both processes share.
//!
//! The responder offers it, once the peer's hello frame says that it would move; the initiator
//! follows the offer (`engine/local`). The worker then gives the stream its ring. Each direction
//! switches between two message units, so that the CRCs of the rest may be left out.
//!
//! A connection within the host is *decided* when it moves, or when this end knows why it cannot;
//! the log has a line for either. One that is not decided goes on by TCP. With
//! `IWARP_LOCAL=require` it has a bounded time for that, and ends if it cannot move.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_proto::mpa::startup::{Negotiated, Role};
use iwarp_proto::qp::{PeerIsLocal, Qp};
use iwarp_types::{Extensions, Time};

use super::Link;
use super::flags::{READ_STALLED, WRITE_BLOCKED};
use crate::engine::group::MemberWaker;
use crate::engine::local::{Cause, Hindrance, LocalEnd, Locals, Offer, PATIENCE, have_one_address};
use crate::engine::mover::StreamMover;
use crate::engine::options::LocalPath;
use crate::engine::sync::{AtomicBool, AtomicU8, AtomicU32, Mutex, Ordering};
use crate::engine::timers::Alarm;
use crate::port::local::Way;
use crate::port::{Ends, Port, Readiness, Wake, Waker, WakerSlot};
use crate::report;

/// No part, or no more.
const DONE: u8 = 0;
const OFFERS: u8 = 1;
const FOLLOWS: u8 = 2;
/// The peer has an offer, and may decline.
const OFFERED: u8 = 3;
/// The stream cannot move, and a peer that would is told.
const STAYS: u8 = 4;

/// Receives after which a word of the peer that has not come is not waited for any more: each looks
/// at the core once more.
const LOOKS: u32 = 1024;

/// The time by which an alarm is late in a process that was stopped.
const STOPPED: Duration = Duration::from_secs(1);

/// The part of this end in the agreement that is still to be played, and what came of it.
#[derive(Debug)]
pub(super) struct Local {
    part: AtomicU8,
    /// Receives that have looked.
    looks: AtomicU32,
    /// The poll groups that it joins from now on are woken by what comes past TCP.
    woken: AtomicBool,
    /// It is known whether the stream moves.
    decided: AtomicBool,
    /// The end of the time in which it has to move.
    alarm: Mutex<Option<Alarm>>,
    /// The reason to stay with TCP, unless the peer has only closed it.
    suspected: Mutex<Option<Hindrance>>,
}

impl Local {
    /// `way`: the one that the program wants within the host.
    pub(super) fn new(terms: Option<&Negotiated>, stream: &dyn Port, way: LocalPath) -> Self {
        let may_move = stream.local().is_some();
        let part = match terms.map(|terms| terms.role) {
            _ if way == LocalPath::Off => DONE,
            Some(Role::Responder) if may_move => OFFERS,
            Some(Role::Initiator) if may_move => FOLLOWS,
            Some(_) if !stream.is_systems() && have_one_address(stream.ends()) => STAYS,
            _ => DONE,
        };
        Self {
            part: AtomicU8::new(part),
            looks: AtomicU32::new(0),
            woken: AtomicBool::new(false),
            decided: AtomicBool::new(part == DONE),
            alarm: Mutex::default(),
            suspected: Mutex::default(),
        }
    }

    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.part.load(Ordering::Relaxed) != DONE
    }

    /// True if the part was this one, and is the next from now on.
    fn goes_on(&self, part: u8, next: u8) -> bool {
        let (done, not) = (Ordering::Relaxed, Ordering::Relaxed);
        self.part.compare_exchange(part, next, done, not).is_ok()
    }

    /// True if the core is to be looked at once more.
    fn looks_again(&self) -> bool {
        self.looks.fetch_add(1, Ordering::Relaxed) < LOOKS
    }
}

impl Link {
    /// The connection is there. A reason to stay with TCP that is known already is told now.
    pub(super) fn begin_to_agree(&self) {
        let options = &self.endpoint.engine.options;
        match self.local.part.load(Ordering::Relaxed) {
            DONE => {}
            STAYS => self.decide(Cause::Wrapped.into()),
            _ if options.extensions != Extensions::Ask => self.stay(Cause::NoHello.into()),
            _ if options.local == LocalPath::Require => self.bound_agreement(),
            _ => {}
        }
    }

    /// Has the connection end unless it moves in time.
    fn bound_agreement(&self) {
        let timers = &self.endpoint.engine.timers;
        let due = timers.now().plus(PATIENCE);
        let weak = Weak::clone(&self.itself);
        let end = move || {
            if let Some(link) = weak.upgrade() {
                link.agreement_is_late(due);
            }
        };
        let alarm = timers.at(due, Box::new(end));
        *self.local.alarm.lock() = Some(alarm);
    }

    /// Looks whether the peer has said that it would move, or has offered it.
    #[cold]
    pub(super) fn agree(&self) {
        let part = self.local.part.load(Ordering::Relaxed);
        // The queue pair may have another stream by now, even another core.
        let word = self.endpoint.with_if(|qp: &mut Qp, _| Word::of(qp));
        let Some(word) = word.filter(|_| !self.is_closed()) else { return };
        if word.is_awaited(part) && (self.is_required() || self.local.looks_again()) {
            return;
        }
        let is_willing = matches!(word, Word::Willing | Word::Offered(_));
        let next = if part == OFFERS && is_willing { OFFERED } else { DONE };
        // Another thread may be at it.
        if part == DONE || !self.local.goes_on(part, next) {
            return;
        }
        if iwarp_mem::afford().is_err() {
            return self.stay(Cause::Memory.into());
        }
        let end: Weak<dyn LocalEnd> = Weak::<Self>::clone(&self.itself);
        let locals = self.locals();
        match (part, word) {
            (OFFERS, Word::Willing | Word::Offered(_)) => match locals.offer(end) {
                Ok(Offer { name, secret }) => {
                    let offer = iwarp_proto::qp::Offer { name, secret };
                    self.endpoint.with_if(|qp: &mut Qp, _| qp.offer(offer));
                    self.send();
                }
                Err(why) => self.decline(why),
            },
            (FOLLOWS, Word::Offered(offer)) => {
                if let Some(end) = end.upgrade() {
                    locals.follow(offer, end);
                }
            }
            (STAYS, _) if is_willing => self.decline(Cause::Wrapped.into()),
            // The initiator may come still.
            (OFFERED, Word::Willing | Word::Offered(_)) => {}
            (_, word) => self.stay(word.hindrance()),
        }
    }

    /// The time is over in which the connection was to move.
    #[cold]
    fn agreement_is_late(&self, due: Time) {
        if self.is_closed() || self.local.decided.load(Ordering::Acquire) {
            return;
        }
        // A word of the peer may stand behind what is not read or sent, or have come while this
        // process was stopped.
        let is_behind = self.endpoint.engine.timers.now() > due.plus(STOPPED);
        if is_behind || self.flags.has(READ_STALLED | WRITE_BLOCKED) {
            return self.bound_agreement();
        }
        // The queue pair may have another stream by now, even another core.
        if let Some(word) = self.endpoint.with_if(|qp: &mut Qp, _| Word::of(qp)) {
            let suspected = self.local.suspected.lock().take();
            self.judge(suspected.unwrap_or_else(|| word.hindrance()));
        }
    }

    fn is_required(&self) -> bool {
        self.endpoint.engine.options.local == LocalPath::Require
    }

    /// It seems to be known why the connection stays with TCP. A process that is gone may have
    /// closed its connections before, and what it has sent is to be received.
    #[cold]
    fn decide(&self, why: Hindrance) {
        if self.is_required() && why.may_be_an_end() {
            *self.local.suspected.lock() = Some(why);
        } else {
            self.judge(why);
        }
    }

    /// True if a connection ends that stays with TCP for this reason. An address of this host may
    /// lead to another one, so that the peer's process has to have been reached.
    fn ends_by(&self, why: Hindrance) -> bool {
        self.is_required() && (have_one_address(self.stream.ends()) || why.is_of_neighbours())
    }

    #[cold]
    fn judge(&self, why: Hindrance) {
        if self.is_closed() || why.cause == Cause::Ended {
            return;
        }
        if self.local.decided.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.ends_by(why) {
            self.endpoint.with(|core| {
                // One that the program ends sends the rest by TCP.
                if core.is_connected() {
                    core.fail_locally(why.line_of_demand());
                }
            });
            self.send();
            self.settle();
            return;
        }
        let (qp, peer) = (self.endpoint.id(), self.stream.ends().name());
        let error = why.error().map(tracing::field::display);
        report!(fate INFO, qp, %peer, error, "the connection stays with TCP: {}", why.line());
    }

    fn locals(&self) -> Arc<Locals> {
        let engine = &self.endpoint.engine;
        let make = || {
            let readers = engine.options.local.reaches_memory().then(|| engine.memory.readers());
            let shares = engine.options.local == LocalPath::Share;
            Locals::new(&engine.worker, engine.options.demands_crc, readers, shares)
        };
        let kept: Arc<Arc<Locals>> = engine.kept_or(make);
        Arc::clone(&kept)
    }

    /// True if what comes past TCP wakes the poll groups.
    #[inline]
    pub(super) fn is_woken(&self) -> bool {
        self.local.woken.load(Ordering::Acquire)
    }

    /// Has the poll groups woken by what comes past TCP, or no more.
    fn rejoin(self: &Arc<Self>, woken: bool) -> io::Result<()> {
        if self.local.woken.load(Ordering::Acquire) == woken {
            return Ok(());
        }
        // In this order: a thread that has the link join a group meanwhile has it join as it is
        // from now on, or has it leave as well.
        self.local.woken.store(woken, Ordering::Release);
        self.memberships.leave(&**self);
        for group in self.endpoint.groups() {
            self.join(group)?;
        }
        if let Some(port) = self.stream.local() {
            // Marked while it was in no group.
            port.waker().wake(Readiness::all());
        }
        Ok(())
    }

    /// The poll groups learn by the channel what comes, before the stream moves.
    fn join_channel(&self, way: &Way) -> io::Result<()> {
        self.endpoint.groups().into_iter().try_for_each(|group| group.add_channel(&way.channel))
    }
}

impl LocalEnd for Link {
    fn ends(&self) -> Ends {
        self.stream.ends()
    }

    fn waker(&self) -> Arc<WakerSlot> {
        self.stream.local().map_or_else(Arc::default, |port| Arc::clone(port.waker()))
    }

    fn move_to(&self, way: Way) -> io::Result<()> {
        let (Some(port), Some(link)) = (self.stream.local(), self.itself.upgrade()) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if self.is_closed() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.join_channel(&way)?;
        let waker = Arc::new(MemberWaker::default());
        port.set_waker(Waker::new(Arc::clone(&waker) as Arc<dyn Wake>));
        let channel = Arc::clone(&way.channel);
        if !port.set_way(way) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.endpoint.become_known(
            &channel,
            |receives| port.receives_complete_in(receives),
            |sends| port.sends_complete_in(sends),
        );
        // Before the peer knows that this end has the way, and may leave something there.
        self.endpoint.set_annex(|| port.annex());
        let _ = self.waker.set(waker);
        link.rejoin(true).inspect_err(|error| self.lose(error))
    }

    fn send_by_way(&self, crc: bool) {
        let Some(port) = self.stream.local() else { return };
        self.local.part.store(DONE, Ordering::Relaxed);
        if !self.local.decided.swap(true, Ordering::AcqRel) {
            let (qp, peer) = (self.endpoint.id(), self.stream.ends().name());
            let crc = if crc { "on" } else { "off" };
            report!(fate INFO, qp, %peer, crc, "the connection moves from TCP to shared memory");
        }
        port.permit(crc);
        // The transmitter switches before its next message unit.
        self.send();
        self.settle();
        self.endpoint.tell_moved();
    }

    fn stay(&self, why: Hindrance) {
        self.local.part.store(DONE, Ordering::Relaxed);
        if let Some(link) = self.itself.upgrade()
            && let Err(error) = link.rejoin(false)
        {
            self.lose(&error);
        }
        self.decide(why);
    }

    fn decline(&self, why: Hindrance) {
        if self.is_closed() {
            return;
        }
        // As above.
        self.endpoint.with_if(|qp: &mut Qp, _| {
            if qp.peer_is_local() == PeerIsLocal::Willing {
                qp.decline(why.code().into());
            }
        });
        self.send();
        self.stay(why);
    }
}

/// The last word of the peer on whether the stream moves.
#[derive(Clone, Copy, Debug)]
enum Word {
    /// It has said nothing yet.
    None,
    /// It does not say what only this library says.
    Foreign,
    Unwilling,
    Willing,
    Offered(Offer),
    Declined(u8),
}

impl Word {
    fn of(qp: &Qp) -> Self {
        match (qp.peer_is_local(), qp.heard_decline(), qp.heard_offer()) {
            (PeerIsLocal::Unknown, ..) => Self::None,
            (PeerIsLocal::Foreign, ..) => Self::Foreign,
            (PeerIsLocal::Unwilling, ..) => Self::Unwilling,
            (PeerIsLocal::Willing, Some(code), _) => {
                Self::Declined(u8::try_from(code).unwrap_or(0))
            }
            (PeerIsLocal::Willing, None, Some(iwarp_proto::qp::Offer { name, secret })) => {
                Self::Offered(Offer { name, secret })
            }
            (PeerIsLocal::Willing, None, None) => Self::Willing,
        }
    }

    /// True if an end with that part expects another one.
    const fn is_awaited(self, part: u8) -> bool {
        match self {
            Self::None => true,
            Self::Willing => matches!(part, FOLLOWS | OFFERED),
            Self::Offered(_) => part == OFFERED,
            Self::Foreign | Self::Unwilling | Self::Declined(_) => false,
        }
    }

    /// The reason to stay with TCP if this was the last one.
    fn hindrance(self) -> Hindrance {
        match self {
            Self::None | Self::Willing | Self::Offered(_) => Cause::Late.into(),
            Self::Foreign => Cause::PeerForeign.into(),
            Self::Unwilling => Cause::PeerUnwilling.into(),
            Self::Declined(code) => Hindrance::at_peer(code),
        }
    }
}
