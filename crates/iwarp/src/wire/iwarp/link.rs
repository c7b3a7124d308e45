// SPDX-License-Identifier: MIT OR Apache-2.0

//! One stream of a queue pair: reading it ([`receive`]), writing it ([`send`]), and its end
//! ([`close`]).
//!
//! An [`Endpoint`] and its links are two types because a queue pair outlives its streams, and gets
//! another after a reset, while threads may still be moving the one before. They hold that link,
//! which is closed and does nothing any more; had the endpoint the stream itself, they would take
//! the new one for theirs.
//!
//! With one type, each thread would have to check at each step whether the stream is still the one
//! that it started with. Poll groups, timers and tokens know only links.
//!
//! # Writers of the fields
//!
//! - `waker`: the thread that attaches the link, or the worker that moves it past TCP, once.
//! - `itself`, `endpoint`, `may_hold`, `stream`, `budget`, `_loan`, `spare`, `fate`: the
//!   thread that attaches the link, before it is shared.
//! - `rx` (framing, the part of a message unit that has come, whether the end is held): the
//!   receiver, which holds the receive token.
//! - `tx` (bytes that are built and not sent, the time at which sending is tried again for want of
//!   memory): the transmitter, which holds the transmit token.
//! - `local` (which end offers a way past TCP): the receiver that sees what the peer would do.
//! - `writing`: the transmitter.
//! - `flags`: each bit changes by one atomic read-modify-write. A transmitter that finds the socket
//!   full sets `WRITE_BLOCKED`, and the driver that finds room clears it. A posting thread that
//!   expects another post, or a driver whose acknowledgement waits for one, sets `HELD` with
//!   `WRITE_BLOCKED`, and the next thread that transmits clears both. `AWAITS_WRITING` belongs to a
//!   thread that tells the poll groups what to wait for, `READ_STALLED` to the receiver. The
//!   receiver sets `END_HELD`, and the worker clears it. The receiver sets `READ_ENDED` at FIN, the
//!   transmitter `WRITE_ENDED` after the last byte, and any thread that finds the stream broken or
//!   closes it sets both; nobody clears them. The first thread that closes the link sets `CLOSED`.
//!   The thread that sets the timer sets `PEER_WATCHED`; the worker that looks and a caller that
//!   sets a timeout clear it. The worker that is told of the cable sets and clears `HALTED`.
//! - `lingering`: the first thread that finds the connection ending, under its lock.
//! - `reactor` (the place in an async runtime's reactor): the task that drives a session and the
//!   thread that closes the link, under its lock. The receiver notes there whether the last read
//!   took all there was, and the task that drives notes whether posts are gathered.
//! - `watch`: the transmitter, a caller that sets a timeout, the worker that looks, under its lock.
//! - `memberships`: the thread that attaches the link and the one that closes it, under its lock.
//! - `dealt`: the transmitter says that more is awaited, threads that receive say what they have
//!   told the core, which they have locked.
//! - `direct_reads`, `direct_writes`: threads that post, with the core locked.

mod attach;
mod captured;
mod close;
mod dealt;
mod direct;
mod fate;
mod flags;
mod local;
mod pipes;
mod reactor;
mod receive;
mod send;
mod shared;
mod spare;
mod waiting;
mod watch;

use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use iwarp_mem::{Guard, MemoryTable};
use iwarp_os::{Interest, Ready};
use iwarp_proto::mpa::startup::Negotiated;
use iwarp_proto::qp::Source;
use iwarp_types::{AccessError, Accessor, RemoteAccess, Wanted};

pub(crate) use self::attach::Agreed;
use self::close::Intent;
use self::dealt::Dealt;
use self::flags::{
    AWAITS_WRITING, CLOSED, END_HELD, Flags, HALTED, HELD, READ_ENDED, READ_STALLED, WRITE_BLOCKED,
    WRITE_ENDED,
};
use self::local::Local;
use self::reactor::Reactor;
use self::receive::{Received, Rx};
use self::send::{TRANSMIT_BUDGET, Tx};
use self::shared::Seen;
use self::spare::Spare;
use self::watch::Watch;
use crate::engine::endpoint::Endpoint;
use crate::engine::fate::Fate;
use crate::engine::group::{Group, Member, MemberWaker, Memberships, ready_of};
use crate::engine::local::is_within_host;
use crate::engine::mover::{
    AtOnce, DirectAtomic, DirectRead, DirectWrite, ReactorStream, StreamMover,
};
use crate::engine::policy::habits::Arrival;
use crate::engine::poll_set::By;
use crate::engine::send_memory::Loan;
use crate::engine::sync::{AtomicU64, Mutex, Ordering};
use crate::engine::token::Token;
use crate::engine::worker::Deadline;
use crate::engine::writing::Writing;
use crate::faults;
use crate::port::canonical;
use crate::port::local::LocalPort;
use crate::port::{Descriptors, Port, Vitals};
use crate::report::Object;

/// A stream bound to a queue pair.
#[derive(Debug)]
pub(crate) struct Link {
    itself: Weak<Self>,
    endpoint: Arc<Endpoint>,
    /// See [`Port::may_hold`].
    may_hold: bool,
    /// Of a stream without a descriptor, and of one that has moved past TCP.
    waker: OnceLock<Arc<MemberWaker>>,
    /// The part of this end in moving the stream past TCP.
    local: Local,
    rx: Token<Rx>,
    tx: Token<Tx>,
    flags: Flags,
    /// Before the stream, which it has the descriptor of.
    reactor: Reactor,
    stream: Box<dyn Port>,
    writing: Writing,
    lingering: Mutex<Option<Deadline>>,
    watch: Watch,
    /// Bytes that are built and wait.
    budget: usize,
    _loan: Loan,
    /// The device's transmit queues.
    spare: Arc<Spare>,
    /// Its fate, if the log tells of it.
    fate: Option<Arc<Fate>>,
    memberships: Memberships,
    /// Reads that this end has carried out by itself.
    direct_reads: AtomicU64,
    direct_writes: AtomicU64,
    dealt: Dealt,
}

impl Member for Link {
    fn descriptors(&self) -> Descriptors<'_> {
        self.stream.descriptors()
    }

    fn waker(&self) -> Option<&Arc<MemberWaker>> {
        self.waker.get().filter(|_| self.stream.local().is_none() || self.is_woken())
    }

    fn looks_itself(&self) -> bool {
        self.is_woken()
    }

    fn interest_of_descriptors(&self) -> Interest {
        // TCP is never full any more.
        if self.has_moved() { self.interest().without(Interest::WRITE) } else { self.interest() }
    }

    fn reported(&self) {
        if let Some(port) = self.stream.local() {
            port.line_speaks();
        }
    }

    fn interest(&self) -> Interest {
        let flags = self.flags.load();
        let mut interest = Interest::NONE;
        if flags & HALTED != 0 {
            return interest;
        }
        if flags & (READ_ENDED | READ_STALLED) == 0 {
            interest = interest | Interest::READ;
        }
        if flags & AWAITS_WRITING != 0 {
            interest = interest | Interest::WRITE;
        }
        interest
    }

    fn readiness(&self, token: u64) -> Option<Ready> {
        ready_of(self.stream.readiness(), self.interest(), token)
    }

    fn ready(&self, ready: Ready, by: By) {
        let Ready { readable, writable, hangup, error, .. } = ready;
        let mut seen = None;
        if writable {
            self.end_blocking(by);
        }
        if (hangup || error) && self.flags.has(READ_STALLED | END_HELD | HALTED) {
            // The stream is not read, which would tell.
            let error = self.stream.take_error().err();
            self.failed(&error.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()));
        } else if readable || hangup || error {
            seen = self.receive(by).seen;
        }
        if writable {
            seen = None;
            self.send();
            if self.awaits_in_vain() {
                self.update_interest();
            }
        }
        self.answer(by, seen);
    }

    #[inline]
    fn can_be_tried(&self) -> bool {
        let flags = self.flags.load();
        let is_full = flags & (WRITE_BLOCKED | HELD) == WRITE_BLOCKED;
        !is_full && flags & (READ_STALLED | END_HELD | READ_ENDED | HALTED) == 0
    }

    fn attempt(&self, by: By) -> bool {
        let sent = self.end_blocking(by) && self.send();
        let Received { moved, seen } = self.receive(by);
        let moved = moved || sent;
        if moved {
            self.answer(by, seen);
        }
        moved
    }

    fn awaits_in_vain(&self) -> bool {
        self.flags.load() & (AWAITS_WRITING | WRITE_BLOCKED) == AWAITS_WRITING
    }

    fn update_interest(&self) {
        // A thread that blocks the stream from now on sees that nobody waits, or is seen.
        self.memberships.update(self, || self.flags.await_as_blocked());
    }

    fn memberships(&self) -> &Memberships {
        &self.memberships
    }
}

impl StreamMover for Link {
    fn transmit(&self) {
        self.send();
    }

    fn deliver(&self) {
        let Received { seen, .. } = self.receive(By::Post);
        self.answer(By::Post, seen);
    }

    fn carry_on(&self) {
        self.resume();
        self.send();
        self.settle();
    }

    /// The poll groups report it as if it could be written again.
    fn hold(&self) {
        if let Some(before) = self.flags.set_unless(WRITE_BLOCKED, WRITE_BLOCKED | HELD) {
            self.awaits_from(before);
        }
    }

    fn gathers(&self) -> bool {
        self.reactor.gathers()
    }

    fn is_writing(&self) -> bool {
        self.writing.is_on()
    }

    fn is_closed(&self) -> bool {
        self.flags.has(CLOSED)
    }

    fn has_moved(&self) -> bool {
        self.stream.local().is_some_and(LocalPort::has_switched)
    }

    fn moves(&self) -> bool {
        self.stream.local().is_some_and(LocalPort::may_send)
    }

    fn moves_without_crc(&self) -> bool {
        self.stream.local().is_some_and(LocalPort::may_send_bare)
    }

    fn is_within_host(&self) -> bool {
        is_within_host(self.stream.ends())
    }

    fn read_at_once(&self, read: &DirectRead<'_>) -> bool {
        self.read_from_peer(read)
    }

    fn write_at_once(&self, write: &DirectWrite<'_>) -> AtOnce {
        self.write_to_peer(write)
    }

    fn update_at_once(&self, atomic: &DirectAtomic<'_>) -> AtOnce {
        self.update_at_peer(atomic)
    }

    fn was_done_at_once(&self, read: u64, written: u64) {
        self.count_done(read, written);
    }

    fn direct_writes(&self) -> u64 {
        self.direct_writes.load(Ordering::Relaxed)
    }

    fn direct_reads(&self) -> u64 {
        self.direct_reads.load(Ordering::Relaxed)
    }

    fn show_nothing(&self) {
        if let Some(port) = self.stream.local() {
            port.show_nothing();
        }
    }

    fn cable(&self, is_pulled: bool) {
        if is_pulled {
            self.halt();
        } else {
            self.go_on();
        }
    }

    fn settle_receiving(&self) {
        self.rx.settle();
    }

    fn set_patience(&self, patience: Option<Duration>) {
        self.keep_patience(patience);
        self.patience_changed();
    }

    fn have_capture(&self) {
        if !self.is_closed() {
            self.tell_capture();
        }
    }

    fn break_off(&self) {
        self.stream.reset_on_close();
        self.detach();
    }

    fn describe(&self, to: &mut Object) {
        let ends = self.stream.ends();
        if let Some(local) = ends.local {
            to.text("local", canonical(local));
        }
        to.text("peer", canonical(ends.peer));
        to.text("path", if self.has_moved() { "memory" } else { "tcp" });
        to.flag("full", self.flags.has(WRITE_BLOCKED));
        to.flag("read_stalled", self.flags.has(READ_STALLED));
        to.flag("read_ended", self.flags.has(READ_ENDED));
        to.flag("write_ended", self.flags.has(WRITE_ENDED));
        to.number("direct_reads", self.direct_reads());
        to.number("direct_writes", self.direct_writes());
        if let Some(vitals) = self.vitals() {
            let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            to.count("unacknowledged", vitals.outstanding);
            to.number("retransmits", vitals.retransmits);
            to.number("window_probes", vitals.probes);
            to.number("last_ack_ms", millis(vitals.last_ack));
            to.number("last_data_ms", millis(vitals.last_data));
        }
    }

    fn peer(&self) -> String {
        self.stream.ends().name().to_string()
    }

    fn vitals(&self) -> Option<Vitals> {
        // TCP knows nothing of what goes past it.
        if self.has_moved() { None } else { self.stream.vitals().ok()? }
    }

    fn in_reactor(self: Arc<Self>) -> Arc<dyn ReactorStream> {
        self
    }
}

impl Link {
    /// `terms`: what MPA start-up has agreed on; none for a core that is not iWARP's.
    pub(crate) fn new(
        endpoint: &Arc<Endpoint>,
        stream: Box<dyn Port>,
        terms: Option<&Negotiated>,
        loan: Loan,
        fate: Option<Arc<Fate>>,
    ) -> Arc<Self> {
        let options = &endpoint.engine.options;
        stream.limit_unsent(loan.octets());
        endpoint.access_directly(false);
        Arc::new_cyclic(|itself| Self {
            itself: Weak::clone(itself),
            rx: Token::new(Rx::new(
                terms,
                endpoint.who,
                endpoint.pd_of_receives(),
                stream.local().is_some(),
            )),
            tx: Token::new(Tx::new(terms, endpoint.who, options.mulpdu, &*stream)),
            may_hold: stream.may_hold(),
            waker: MemberWaker::of(&*stream).map_or_else(OnceLock::new, OnceLock::from),
            local: Local::new(terms, &*stream, options.local),
            flags: Flags::new(if faults::is_pulled() { HALTED } else { 0 }),
            reactor: Reactor::new(),
            stream,
            writing: Writing::new(),
            lingering: Mutex::new(None),
            watch: Watch::new(Some(options.user_timeout)),
            budget: TRANSMIT_BUDGET.min(loan.octets()),
            _loan: loan,
            spare: endpoint.engine.kept_or(|| Spare::new(options.workers)),
            fate,
            memberships: Memberships::default(),
            direct_reads: AtomicU64::new(0),
            direct_writes: AtomicU64::new(0),
            dealt: Dealt::new(),
            endpoint: Arc::clone(endpoint),
        })
    }

    /// Puts the stream into a poll group.
    pub(crate) fn join(self: &Arc<Self>, group: &Arc<Group>) -> io::Result<()> {
        let member = Arc::clone(self) as Arc<dyn Member>;
        self.memberships.join(group, &member, || self.is_closed())
    }

    /// Ends [`StreamMover::hold`].
    #[inline]
    fn release(&self) {
        if self.flags.has(HELD) {
            self.flags.clear_if(HELD, HELD | WRITE_BLOCKED);
        }
    }

    /// From the return of this call on no bytes pass, and the peer accesses no memory by itself.
    fn halt(&self) {
        self.flags.set(HALTED);
        self.endpoint.access_directly(false);
        StreamMover::show_nothing(self);
        self.rx.quiesce();
        self.tx.quiesce();
        self.update_interest();
    }

    /// Ends [`Self::halt`].
    fn go_on(&self) {
        self.flags.clear(HALTED);
        if let Some(port) = self.stream.local().filter(|port| port.has_switched()) {
            self.endpoint.access_directly(port.may_read());
        }
        self.update_interest();
        self.receive(By::Worker);
        self.send();
        self.settle();
    }

    /// Sending waits until the stream can be written again.
    fn await_writing(&self) {
        let before = self.flags.set(WRITE_BLOCKED);
        self.awaits_from(before);
    }

    /// The stream is blocked from now on; before, its flags were these.
    fn awaits_from(&self, before: u32) {
        if before & AWAITS_WRITING == 0 {
            self.update_interest();
        }
    }

    /// The stream can be written, or is to be tried. False when nothing waits for that.
    #[inline]
    fn end_blocking(&self, by: By) -> bool {
        if !self.flags.has(WRITE_BLOCKED) {
            return false;
        }
        let before = self.flags.clear_if(WRITE_BLOCKED, WRITE_BLOCKED | HELD);
        if by == By::Worker && before.is_some_and(|before| before & HELD != 0) {
            self.endpoint.with_habits(|_, habits| habits.found_by_worker());
        }
        before.is_some()
    }

    /// Sends and ends what follows from what was received, as it was `seen` last.
    fn answer(&self, by: By, seen: Option<Seen>) {
        // Habits decide whether an acknowledgement waits.
        let seen = seen.filter(|seen| seen.wanted != Wanted::Acknowledgement);
        // A completion that was postponed may have ended the connection since.
        let seen = seen.filter(|_| !self.endpoint.has_overrun());
        let (wanted, waits, intent) = match seen {
            Some(Seen { wanted, intent, .. }) => (wanted, false, intent),
            None => self.look_at_arrival(by),
        };
        match wanted {
            Wanted::Nothing => self.settle_as(intent),
            _ if waits => self.wait_for_company(),
            _ => match self.send_on().1 {
                Some(intent) => self.settle_as(intent),
                None => self.settle(),
            },
        }
    }

    /// The answer that is due, true if it may wait for company, and the end of the stream.
    fn look_at_arrival(&self, by: By) -> (Wanted, bool, Intent) {
        let endpoint = &self.endpoint;
        let how = match by {
            By::Worker if !endpoint.is_asleep() => Arrival::Unasked,
            By::Worker | By::Caller => Arrival::Expected,
            By::Post => Arrival::InPost,
        };
        endpoint.with_habits(|core, habits| {
            let wanted = core.wanted();
            habits.arrived(core.arrivals(), how, || endpoint.nanos());
            let waits = wanted == Wanted::Acknowledgement
                && by != By::Worker
                && !endpoint.is_asleep()
                && habits.may_wait_for_company(endpoint.polls_in_vain());
            (wanted, waits, Intent::of(core))
        })
    }

    /// The peer learns what was received by the way, as the program is about to post. The poll
    /// groups see to it that it is not forgotten where it does not.
    fn wait_for_company(&self) {
        let now = self.endpoint.nanos();
        self.endpoint.groups().iter().for_each(|group| group.handover.lease_in_full(now));
        self.hold();
    }

    fn guard<'m>(&'m self, source: &Source, write: bool) -> Result<Guard<'m>, AccessError> {
        let Endpoint { engine, who, .. } = &*self.endpoint;
        let memory: &MemoryTable = &engine.memory;
        match *source {
            // The memory that is written to is a receive's.
            Source::Local(sge) if write => {
                let pd = self.endpoint.pd_of_receives();
                memory.guard_local(Accessor { pd, ..*who }, sge, write)
            }
            Source::Local(sge) => memory.guard_local(*who, sge, write),
            Source::Remote { stag, to, len } => {
                let access = if write { RemoteAccess::Write } else { RemoteAccess::Read };
                memory.guard_remote(*who, stag, to, u64::from(len), access)
            }
        }
    }
}

/// The error for the protocol of a system call on `guard` that found its memory gone.
fn bad_address(guard: &Guard<'_>) -> AccessError {
    // Should it have come back meanwhile, it was gone nevertheless.
    guard.find().err().unwrap_or(AccessError::BadAddress(guard.as_ptr().addr() as u64))
}
