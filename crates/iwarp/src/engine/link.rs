// SPDX-License-Identifier: MIT OR Apache-2.0

//! One stream of a queue pair: who reads it ([`receive`]), who writes it ([`send`]), and when it is
//! over ([`close`]).
//!
//! Why an [`Endpoint`] and its links are two types: a queue pair outlives its streams, and gets
//! another after a reset, while threads may still be moving the one before. They hold that link, which
//! is closed and does nothing any more; had the endpoint the stream itself, they would take the new
//! one for theirs.

mod close;
mod flags;
mod pipes;
#[cfg(feature = "tokio")]
mod reactor;
mod receive;
mod send;
mod waker;
mod watch;

use std::io;
use std::sync::Arc;

use iwarp_mem::{Guard, MemoryTable};
use iwarp_os::{Interest, Ready};
use iwarp_proto::mpa::startup::Negotiated;
use iwarp_proto::qp::Source;
use iwarp_types::{AccessError, Accessor, RemoteAccess, Wanted};

use self::close::Intent;
use self::flags::{
    AWAITS_WRITING, CLOSED, END_HELD, Flags, HELD, READ_ENDED, READ_STALLED, WRITE_BLOCKED,
};
#[cfg(feature = "tokio")]
use self::reactor::Reactor;
use self::receive::Rx;
use self::send::{TRANSMIT_BUDGET, Tx};
pub(crate) use self::waker::{LinkWaker, ready_of};
use self::watch::Watch;
use crate::engine::endpoint::Endpoint;
use crate::engine::fate::Fate;
use crate::engine::group::{Awaited, Group, Member, Memberships};
use crate::engine::policy::habits::Arrival;
use crate::engine::poll_set::By;
use crate::engine::send_memory::Loan;
use crate::engine::sync::{AtomicBool, Mutex};
use crate::engine::token::Token;
use crate::engine::worker::Deadline;
use crate::port::{Descriptors, Port};

/// A stream bound to a queue pair.
#[derive(Debug)]
pub(crate) struct Link {
    endpoint: Arc<Endpoint>,
    /// See [`Port::may_hold`].
    may_hold: bool,
    /// Of a stream without a descriptor.
    waker: Option<Arc<LinkWaker>>,
    rx: Token<Rx>,
    tx: Token<Tx>,
    flags: Flags,
    /// Before the stream, which it has the descriptor of.
    #[cfg(feature = "tokio")]
    reactor: Reactor,
    stream: Box<dyn Port>,
    /// The stream is given bytes whose work requests have not completed yet.
    writing: AtomicBool,
    lingering: Mutex<Option<Deadline>>,
    watch: Watch,
    /// Bytes that are built and wait.
    budget: usize,
    _loan: Loan,
    /// Where the log tells of it.
    fate: Option<Arc<Fate>>,
    memberships: Memberships,
}

impl Awaited for Link {
    fn descriptors(&self) -> Descriptors<'_> {
        self.stream.descriptors()
    }

    fn waker(&self) -> Option<&LinkWaker> {
        self.waker.as_deref()
    }

    fn interest(&self) -> Interest {
        let flags = self.flags.load();
        let mut interest = Interest::NONE;
        if flags & (READ_ENDED | READ_STALLED) == 0 {
            interest = interest | Interest::READ;
        }
        if flags & AWAITS_WRITING != 0 {
            interest = interest | Interest::WRITE;
        }
        interest
    }

    #[cfg(feature = "tokio")]
    fn has_other_sleeper(&self) -> bool {
        self.reactor.is_in()
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
    ) -> Self {
        let options = &endpoint.engine.options;
        stream.limit_unsent(loan.octets());
        Self {
            rx: Token::new(Rx::new(terms, endpoint.who, endpoint.pd_of_receives())),
            tx: Token::new(Tx::new(terms, endpoint.who, options.mulpdu, &*stream)),
            may_hold: stream.may_hold(),
            waker: LinkWaker::of(&*stream),
            flags: Flags::new(),
            #[cfg(feature = "tokio")]
            reactor: Reactor::new(),
            stream,
            writing: AtomicBool::new(false),
            lingering: Mutex::new(None),
            watch: Watch::new(Some(options.user_timeout)),
            budget: TRANSMIT_BUDGET.min(loan.octets()),
            _loan: loan,
            fate,
            memberships: Memberships::default(),
            endpoint: Arc::clone(endpoint),
        }
    }

    pub(crate) fn stream(&self) -> &dyn Port {
        &*self.stream
    }

    /// See [`Port::may_hold`].
    pub(crate) const fn may_hold(&self) -> bool {
        self.may_hold
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.flags.has(CLOSED)
    }

    /// Bytes that are built at most before the stream takes some.
    pub(crate) const fn budget(&self) -> usize {
        self.budget
    }

    /// Puts the stream into a poll group.
    pub(crate) fn join(self: &Arc<Self>, group: &Arc<Group>) -> io::Result<()> {
        self.memberships.join(group, &Member::Stream(Arc::clone(self)), || self.is_closed())
    }

    /// Leaves all groups, so that the stream is closed when nobody uses it any more.
    fn leave_groups(&self) {
        self.memberships.leave(self);
    }

    pub(crate) const fn memberships(&self) -> &Memberships {
        &self.memberships
    }

    /// Nothing is sent until the next call that drives the stream, which the poll groups
    /// report as if it could be written again, or until a post that does not wait.
    pub(crate) fn hold(&self) {
        if let Some(before) = self.flags.set_unless(WRITE_BLOCKED, WRITE_BLOCKED | HELD) {
            self.awaits_from(before);
        }
    }

    /// Whether what was posted may be left to a task, which will send it soon. To be asked after the
    /// post.
    #[inline]
    pub(crate) fn gathers(&self) -> bool {
        #[cfg(feature = "tokio")]
        return self.reactor.gathers();
        #[cfg(not(feature = "tokio"))]
        false
    }

    /// Ends [`Self::hold`].
    #[inline]
    fn release(&self) {
        if self.flags.has(HELD) {
            self.flags.clear_if(HELD, HELD | WRITE_BLOCKED);
        }
    }

    /// Nothing is sent until the stream can be written again.
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

    /// Whether reading and writing find out all that the poll groups would report, at no greater
    /// cost. Not where a full socket waits for room: it would be filled in small pieces.
    #[inline]
    pub(crate) fn can_be_tried(&self) -> bool {
        let flags = self.flags.load();
        let is_full = flags & (WRITE_BLOCKED | HELD) == WRITE_BLOCKED;
        !is_full && flags & (READ_STALLED | END_HELD | READ_ENDED) == 0
    }

    /// Tells the poll groups what to wait for.
    pub(crate) fn update_interest(&self) {
        // A thread that blocks the stream from now on sees that nobody waits, or is seen.
        self.memberships.update(self, || self.flags.await_as_blocked());
    }

    /// The poll groups report that it can be written, and nobody wants to know.
    #[inline]
    pub(crate) fn awaits_in_vain(&self) -> bool {
        self.flags.load() & (AWAITS_WRITING | WRITE_BLOCKED) == AWAITS_WRITING
    }

    /// Something is ready on the stream.
    pub(crate) fn ready(self: &Arc<Self>, ready: Ready, by: By) {
        let Ready { readable, writable, hangup, error, .. } = ready;
        if writable {
            self.end_blocking(by);
        }
        if (hangup || error) && self.flags.has(READ_STALLED | END_HELD) {
            // Nobody will read what would tell.
            let error = self.stream.take_error().err();
            self.failed(&error.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()));
        } else if readable || hangup || error {
            self.receive();
        }
        if writable {
            self.transmit();
            if self.awaits_in_vain() {
                self.update_interest();
            }
        }
        self.answer(by);
    }

    /// Sends what waits and receives what is there, without knowing whether that can be. False
    /// when it cannot.
    pub(crate) fn try_stream(self: &Arc<Self>, by: By) -> bool {
        let sent = self.end_blocking(by) && self.transmit();
        let moved = self.receive() || sent;
        if moved {
            self.answer(by);
        }
        moved
    }

    /// Receives are there for messages that wait.
    pub(crate) fn deliver(self: &Arc<Self>) {
        self.receive();
        self.answer(By::Post);
    }

    /// Sends and ends what follows from what was received.
    fn answer(self: &Arc<Self>, by: By) {
        let endpoint = &self.endpoint;
        let how = match by {
            By::Worker if !endpoint.is_asleep() => Arrival::Unasked,
            By::Worker | By::Caller => Arrival::Expected,
            By::Post => Arrival::InPost,
        };
        let (wanted, waits, intent) = endpoint.with_habits(|core, habits| {
            let wanted = core.wanted();
            habits.arrived(core.arrivals(), how, || endpoint.nanos());
            let waits = wanted == Wanted::Acknowledgement
                && by != By::Worker
                && !endpoint.is_asleep()
                && habits.may_wait_for_company(endpoint.polls_in_vain());
            (wanted, waits, Intent::of(core))
        });
        match wanted {
            Wanted::Nothing => self.settle_as(intent),
            _ if waits => self.wait_for_company(),
            _ => {
                self.transmit();
                self.settle();
            }
        }
    }

    /// The peer learns what was received by the way, as the program is about to post. The poll groups
    /// see to it that it is not forgotten where it does not.
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
