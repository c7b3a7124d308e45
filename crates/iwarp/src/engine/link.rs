//! One stream of a queue pair: who reads it, who writes it, and when it is over.

mod pipes;
mod receive;
mod send;
mod watch;

use std::io;
use std::sync::{Arc, Weak};

use iwarp_mem::{Guard, MemoryTable};
use iwarp_os::{Interest, Ready};
use iwarp_proto::mpa::startup::Negotiated;
use iwarp_proto::qp::{Source, Transmit};
use iwarp_types::{AccessError, Accessor, Disposition, RemoteAccess, Wanted};

use self::pipes::{Incoming, Outgoing};
use self::send::{FIRST_MSS_CHECK, TRANSMIT_BUDGET};
use self::watch::Watch;
use crate::engine::any_core::AnyCore;
use crate::engine::endpoint::Endpoint;
use crate::engine::gather::Gather;
use crate::engine::group::Group;
use crate::engine::options::Options;
use crate::engine::piggyback::Piggyback;
use crate::engine::poll_set::By;
use crate::engine::send_memory::Loan;
use crate::engine::sync::{AtomicBool, Mutex, Ordering};
use crate::engine::token::Token;
use crate::engine::worker::Deadline;
use crate::port::Port;
use crate::report;

/// A stream bound to a queue pair.
#[derive(Debug)]
pub(crate) struct Link {
    stream: Box<dyn Port>,
    /// See [`Port::may_hold`].
    may_hold: bool,
    receive: Token<Receive>,
    transmit: Token<Send>,
    write_blocked: AtomicBool,
    /// The poll groups wait for that to end. They may do so longer than it lasts: changing it costs
    /// a system call, which a program that polls can do without.
    awaits_writing: AtomicBool,
    /// That is not so, but the posts or acknowledgements that wait go out together.
    held: AtomicBool,
    gather: Gather,
    piggyback: Piggyback,
    /// There is no memory to send; it is tried again.
    starved: AtomicBool,
    /// Nothing is read until there are receives ([`Incoming::is_stalled`]).
    read_stalled: AtomicBool,
    /// The peer has closed, and the queue pair does not know yet.
    end_held: AtomicBool,
    read_ended: AtomicBool,
    write_ended: AtomicBool,
    lingering: Mutex<Option<Deadline>>,
    watch: Watch,
    /// Octets that are built and wait.
    budget: usize,
    _loan: Loan,
    closed: AtomicBool,
    groups: Mutex<Vec<(Weak<Group>, u64)>>,
}

#[derive(Debug)]
struct Receive {
    incoming: Incoming,
    /// Octets of a message unit of which the rest has not come.
    partial: Vec<u8>,
}

#[derive(Debug)]
struct Send {
    outgoing: Outgoing,
    out: Option<Transmit>,
    sent: u64,
    next_mss_check: u64,
}

impl Link {
    pub(crate) fn new(
        stream: Box<dyn Port>,
        terms: Option<&Negotiated>,
        who: Accessor,
        options: &Options,
        loan: Loan,
        depth: usize,
    ) -> Self {
        let fixed_mulpdu = options.mulpdu;
        stream.limit_unsent(loan.octets());
        let outgoing = Outgoing::new(terms, who, fixed_mulpdu, || stream.max_segment());
        let next_mss_check = if fixed_mulpdu.is_some() { u64::MAX } else { FIRST_MSS_CHECK };
        Self {
            receive: Token::new(Receive {
                incoming: Incoming::new(terms, who),
                partial: Vec::new(),
            }),
            transmit: Token::new(Send { outgoing, out: None, sent: 0, next_mss_check }),
            may_hold: stream.may_hold(),
            stream,
            write_blocked: AtomicBool::new(false),
            awaits_writing: AtomicBool::new(false),
            held: AtomicBool::new(false),
            gather: Gather::new(depth),
            piggyback: Piggyback::new(),
            starved: AtomicBool::new(false),
            read_stalled: AtomicBool::new(false),
            end_held: AtomicBool::new(false),
            read_ended: AtomicBool::new(false),
            write_ended: AtomicBool::new(false),
            lingering: Mutex::new(None),
            watch: Watch::new(Some(options.user_timeout)),
            budget: TRANSMIT_BUDGET.min(loan.octets()),
            _loan: loan,
            closed: AtomicBool::new(false),
            groups: Mutex::new(Vec::new()),
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
        self.closed.load(Ordering::Acquire)
    }

    /// Puts the stream into a poll group.
    pub(crate) fn join(
        self: &Arc<Self>,
        endpoint: &Arc<Endpoint>,
        group: &Arc<Group>,
    ) -> io::Result<()> {
        let mut groups = self.groups.lock();
        // Whoever closes it leaves the groups afterwards, under this lock.
        if self.is_closed() || groups.iter().any(|(other, _)| other.as_ptr() == Arc::as_ptr(group))
        {
            return Ok(());
        }
        let token = group.add(endpoint, self)?;
        groups.push((Arc::downgrade(group), token));
        // It asks other links, and may ask this one.
        drop(groups);
        group.note_change();
        Ok(())
    }

    pub(crate) const fn gather(&self) -> &Gather {
        &self.gather
    }

    pub(crate) const fn piggyback(&self) -> &Piggyback {
        &self.piggyback
    }

    /// Waits a moment for whoever is receiving.
    pub(crate) fn settle_receiving(&self) {
        self.receive.settle();
    }

    /// Nothing is sent until the next call that drives the stream, which the poll groups
    /// report as if it could be written again, or until a post that does not wait.
    pub(crate) fn hold(&self) {
        if !self.write_blocked.load(Ordering::SeqCst) {
            self.held.store(true, Ordering::SeqCst);
            self.await_writing();
        }
    }

    /// Ends [`Self::hold`].
    fn release(&self) {
        if self.held.load(Ordering::SeqCst) && self.held.swap(false, Ordering::SeqCst) {
            self.write_blocked.store(false, Ordering::SeqCst);
            self.piggyback.released(false);
        }
    }

    /// Nothing is sent until the stream can be written again.
    fn await_writing(&self) {
        self.write_blocked.store(true, Ordering::SeqCst);
        // Whoever ends the waiting says so before it looks at the other flag.
        if !self.awaits_writing.load(Ordering::SeqCst) {
            self.update_interest();
        }
    }

    /// The stream can be written, or is to be tried. False when nothing waits for that.
    fn end_blocking(&self, by: By) -> bool {
        let blocked = self.write_blocked.load(Ordering::SeqCst)
            && self.write_blocked.swap(false, Ordering::SeqCst);
        if blocked && self.held.swap(false, Ordering::SeqCst) {
            self.gather.released(by == By::Worker);
            self.piggyback.released(by == By::Worker);
        }
        blocked
    }

    /// What poll groups are to wait for.
    pub(crate) fn interest(&self) -> Interest {
        let mut interest = Interest::NONE;
        if !self.read_ended.load(Ordering::SeqCst) && !self.read_stalled.load(Ordering::SeqCst) {
            interest = interest | Interest::READ;
        }
        if self.awaits_writing.load(Ordering::SeqCst) {
            interest = interest | Interest::WRITE;
        }
        interest
    }

    /// Whether reading and writing find out all that the poll groups would report, at no greater
    /// cost. Not where a full socket waits for room: it would be filled in small pieces.
    pub(crate) fn can_be_tried(&self) -> bool {
        let others = [&self.read_stalled, &self.end_held, &self.read_ended];
        let is_full =
            self.write_blocked.load(Ordering::SeqCst) && !self.held.load(Ordering::SeqCst);
        !is_full && others.iter().all(|flag| !flag.load(Ordering::SeqCst))
    }

    /// Tells the poll groups what to wait for.
    pub(crate) fn update_interest(&self) {
        self.tell_interest(|group, token, interest| group.update(self, token, interest));
    }

    /// Has a poll group wait again for a stream that it has silenced, if it is still to.
    pub(crate) fn restore(&self, silent: &Group) {
        self.tell_interest(|group, token, interest| {
            if std::ptr::eq(group, silent) {
                group.restore(self, token, interest);
            } else {
                group.update(self, token, interest);
            }
        });
    }

    fn tell_interest(&self, tell: impl Fn(&Group, u64, Interest)) {
        let groups = self.groups.lock();
        // Whoever is blocked from now on sees that nobody waits, or is seen.
        self.awaits_writing.store(false, Ordering::SeqCst);
        if self.write_blocked.load(Ordering::SeqCst) {
            self.awaits_writing.store(true, Ordering::SeqCst);
        }
        let interest = self.interest();
        for (group, token) in groups.iter() {
            if let Some(group) = group.upgrade() {
                tell(&group, *token, interest);
            }
        }
    }

    /// Whether callers of another group that it is in look after it.
    pub(crate) fn is_leased_beside(&self, group: &Group) -> bool {
        let groups = self.groups.lock();
        let mut others = groups.iter().filter(|(other, _)| !std::ptr::eq(other.as_ptr(), group));
        others.any(|(other, _)| {
            other.upgrade().is_some_and(|other| other.handover.is_leased(other.clock().nanos()))
        })
    }

    /// The poll groups report that it can be written, and nobody wants to know.
    pub(crate) fn awaits_in_vain(&self) -> bool {
        self.awaits_writing.load(Ordering::SeqCst) && !self.write_blocked.load(Ordering::SeqCst)
    }

    /// Leaves all groups, so that the stream is closed when nobody uses it any more.
    fn leave_groups(&self) {
        let groups = std::mem::take(&mut *self.groups.lock());
        for (group, token) in groups {
            if let Some(group) = group.upgrade() {
                group.remove(self, token);
            }
        }
    }
}

/// What a system call on `guard` that found its memory gone is to the protocol.
fn bad_address(guard: &Guard<'_>) -> AccessError {
    // Should it have come back meanwhile, it was gone nevertheless.
    guard.find().err().unwrap_or(AccessError::BadAddress(guard.as_ptr().addr() as u64))
}

/// What a queue pair wants done with its stream.
#[derive(Clone, Copy)]
struct State {
    disposition: Disposition,
    connected: bool,
}

impl State {
    fn of(core: &AnyCore) -> Self {
        Self { disposition: core.disposition(), connected: core.is_connected() }
    }
}

impl Endpoint {
    /// Something is ready on the stream.
    pub(crate) fn ready(self: &Arc<Self>, link: &Arc<Link>, ready: Ready, by: By) {
        let Ready { readable, writable, hangup, error, .. } = ready;
        if writable {
            link.end_blocking(by);
        }
        let unread = &[&link.read_stalled, &link.end_held];
        if (hangup || error) && unread.iter().any(|flag| flag.load(Ordering::SeqCst)) {
            // Nobody will read what would tell.
            let error = link.stream.take_error().err();
            let error = error.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
            self.stream_failed(link, &error);
        } else if readable || hangup || error {
            self.receive(link);
        }
        if writable {
            self.transmit(link);
            if link.awaits_in_vain() {
                link.update_interest();
            }
        }
        self.note_arrivals(self.answer(link, by), by);
    }

    /// Sends what waits and receives what is there, without knowing whether that can be. False
    /// when it cannot.
    pub(crate) fn try_stream(self: &Arc<Self>, link: &Arc<Link>, by: By) -> bool {
        let sent = link.end_blocking(by) && self.transmit(link);
        let moved = self.receive(link) || sent;
        if moved {
            self.note_arrivals(self.answer(link, by), by);
        }
        moved
    }

    /// Receives are there for messages that wait.
    pub(crate) fn deliver(self: &Arc<Self>, link: &Arc<Link>) {
        self.receive(link);
        self.answer(link, By::Post);
    }

    /// Sends and ends what follows from what was received. How many messages that were.
    fn answer(self: &Arc<Self>, link: &Arc<Link>, by: By) -> u64 {
        let (wanted, arrivals, state) =
            self.with(|core| (core.wanted(), core.arrivals(), State::of(core)));
        match wanted {
            Wanted::Nothing => self.settle_as(link, state),
            Wanted::Acknowledgement if by != By::Worker && self.may_wait_for_company(link) => {}
            _ => {
                self.transmit(link);
                self.settle(link);
            }
        }
        arrivals
    }

    /// Whether the peer learns what was received by the way, as the program is about to post. The
    /// poll groups see to it that it is not forgotten where it does not.
    fn may_wait_for_company(&self, link: &Link) -> bool {
        if self.is_asleep() || !link.piggyback.is_to_wait(self.polls_in_vain()) {
            return false;
        }
        let now = self.nanos();
        self.groups().iter().for_each(|group| group.handover.lease_in_full(now));
        link.hold();
        true
    }

    /// Goes on reading a stream that stood still, if it does no more.
    pub(crate) fn resume(self: &Arc<Self>, link: &Arc<Link>) {
        if link.read_stalled.load(Ordering::SeqCst) && !self.with(|core| core.is_stalled()) {
            self.receive(link);
        }
    }

    fn guard<'m>(&'m self, source: &Source, write: bool) -> Result<Guard<'m>, AccessError> {
        let memory: &MemoryTable = &self.engine.memory;
        match *source {
            Source::Local(sge) => memory.guard_local(self.who, sge, write),
            Source::Remote { stag, to, len } => {
                let access = if write { RemoteAccess::Write } else { RemoteAccess::Read };
                memory.guard_remote(self.who, stag, to, u64::from(len), access)
            }
        }
    }

    /// The transport says that the connection is over.
    #[cold]
    fn stream_failed(self: &Arc<Self>, link: &Link, error: &io::Error) {
        link.read_ended.store(true, Ordering::SeqCst);
        link.write_ended.store(true, Ordering::SeqCst);
        let silent = matches!(
            error.kind(),
            // What the network said last, when the time for an answer had passed.
            io::ErrorKind::TimedOut
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
        );
        let (qp, peer) = (self.id(), link.stream.ends().name());
        if !self.is_connected() {
            tracing::debug!(qp, %peer, %error, "stream failed");
        } else if silent {
            report!(WARN, qp, %peer, "the peer does not answer any more: connection given up");
        } else {
            report!(WARN, qp, %peer, %error, "the connection broke");
        }
        self.with(|core| if silent { core.timed_out() } else { core.lost() });
    }

    /// Nothing would tell when something comes: the connection is over.
    pub(crate) fn lose(self: &Arc<Self>, link: &Arc<Link>, error: &io::Error) {
        if !link.is_closed() {
            self.stream_failed(link, error);
            self.settle(link);
        }
    }

    /// Closes the stream once both directions are over, and makes sure that this happens in time
    /// once one of them is to end.
    pub(crate) fn settle(self: &Arc<Self>, link: &Arc<Link>) {
        self.settle_as(link, self.with(|core| State::of(core)));
    }

    fn settle_as(self: &Arc<Self>, link: &Arc<Link>, state: State) {
        let State { disposition, connected } = state;
        if disposition == Disposition::Open && connected {
            return;
        }
        if disposition == Disposition::Finish && !link.write_ended.load(Ordering::SeqCst) {
            // Nothing may be left to send, but the peer waits for our end of the stream.
            self.transmit(link);
        }
        let ended =
            link.write_ended.load(Ordering::SeqCst) && link.read_ended.load(Ordering::SeqCst);
        match disposition {
            Disposition::Abort => {
                link.stream.reset_on_close();
                self.close_link(link);
            }
            _ if ended => self.close_link(link),
            Disposition::Finish | Disposition::Open => self.linger(link),
        }
    }

    /// From now on the peer has a bounded time to take what was accepted and to close.
    fn linger(self: &Arc<Self>, link: &Arc<Link>) {
        let mut lingering = link.lingering.lock();
        if lingering.is_some() || link.is_closed() {
            return;
        }
        let weak = (Arc::downgrade(self), Arc::downgrade(link));
        let deadline = self.now().plus(self.engine.options.linger);
        *lingering = Some(self.engine.worker.deadline(
            deadline,
            Box::new(move || {
                if let (Some(endpoint), Some(link)) = (weak.0.upgrade(), weak.1.upgrade())
                    && !link.is_closed()
                {
                    tracing::debug!(qp = endpoint.id(), "peer did not close in time: reset");
                    link.stream.reset_on_close();
                    endpoint.with(|core| core.lost());
                    endpoint.close_link(&link);
                }
            }),
        ));
    }

    fn close_link(self: &Arc<Self>, link: &Arc<Link>) {
        self.drop_link(link);
        self.link_closed(link);
    }

    /// The stream is not used any more; it is closed when its last user lets go of it.
    pub(crate) fn drop_link(&self, link: &Link) {
        if link.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        link.write_ended.store(true, Ordering::SeqCst);
        link.read_ended.store(true, Ordering::SeqCst);
        link.leave_groups();
        link.transmit.request(|send| self.give_back(send));
    }
}
