//! A queue pair's core behind its lock, and where its completions go.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_mem::OutOfMemory;
use iwarp_proto::mpa::startup::Negotiated;
use iwarp_proto::qp::{Qp, Shared};
use iwarp_types::{
    Accessor, Cause, Core, Event, Payload, PdId, PostError, QpId, QpState, Reason, Receive,
    ReceivePool, RecvRequest, SendRequest, Time, TransitionError, WcStatus, WorkCompletion,
};

use crate::engine::Engine;
use crate::engine::any_core::AnyCore;
use crate::engine::awaiting::{self, Awaiting};
use crate::engine::cq::CqCore;
use crate::engine::event::{AsyncEvent, AsyncQueue};
use crate::engine::group::Group;
use crate::engine::link::Link;
use crate::engine::live::Connection;
use crate::engine::numbers::Number;
use crate::engine::options::Personality;
use crate::engine::poll_set::By;
use crate::engine::slots::{ReceiveSlots, SendSlots};
use crate::engine::srq::{Parking, SrqCore};
use crate::engine::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use crate::port::Port;
use crate::report;

/// What happens to a connection, for whoever made it. Called with the queue pair locked: take
/// a note, nothing more.
pub(crate) trait Observer: Send + Sync {
    /// The peer's first message unit was validated (only on the accepting side).
    fn first_heard(&self) {}
    /// The stream ended, in whatever way.
    fn disconnected(&self, why: Ended);
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Ended {
    /// In good order, by the peer or by this side.
    Closed,
    /// The peer broke it off, and said why (in iWARP by a Terminate).
    Terminated(Reason),
    /// This side found a fault, and told the peer this reason (in iWARP by a Terminate).
    Fault(Reason),
    /// The transport broke.
    Lost,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("the connection was closed in good order"),
            Self::Terminated(why) => write!(f, "the peer terminated the connection: {why}"),
            Self::Fault(why) => write!(f, "the peer broke a rule: {why}"),
            Self::Lost => f.write_str("the connection broke"),
        }
    }
}

/// See the [module](self).
pub(crate) struct Endpoint {
    pub(crate) engine: Arc<Engine>,
    pub(crate) who: Accessor,
    core: Mutex<Locked>,
    /// Send work requests that may be outstanding.
    depth: usize,
    send_cq: Arc<CqCore>,
    recv_cq: Arc<CqCore>,
    /// Under which its queues have entered the completion queues.
    send_owner: u32,
    recv_owner: u32,
    srq: Option<Arc<SrqCore>>,
    /// Receives of that queue that were taken and have not completed.
    borrowed: AtomicU32,
    /// Messages may wait for receives.
    parks: bool,
    events: Arc<AsyncQueue>,
    observer: Mutex<Option<Arc<dyn Observer>>>,
    /// Somebody takes octets apart at this moment and may be placing some.
    receiving: AtomicBool,
    /// That is why events were not handed on.
    withheld: AtomicBool,
    /// The core has asked for a call at some time.
    wants_timer: AtomicBool,
    /// When the next call is going to be made, in nanoseconds.
    timer: AtomicU64,
    awaiting: Awaiting,
    /// The program's handle is gone: nobody wants completions any more.
    abandoned: AtomicBool,
    /// Flushed receives that the program has not asked for; `None` before the process exits.
    held_back: Mutex<Option<Vec<WorkCompletion>>>,
    /// There may be some: a look costs no lock.
    holds_back: AtomicBool,
    /// Nobody else's as long as anything knows the queue pair by it.
    number: Number,
}

/// Looks for an answer before the caller's CPU is offered to others.
const TRIES_BEFORE_YIELD: u32 = 16;

/// No timer.
const NEVER: u64 = u64::MAX;

/// How a list of requests was posted: up to the one that was refused.
pub(crate) type Posted = Result<(), (usize, PostError)>;

/// See [`Endpoint::set_patience`].
#[derive(Clone, Copy)]
struct Patience(Option<Duration>);

/// What an endpoint is made of: its core, how large its queues are, and whose it is.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) core: AnyCore,
    pub(crate) pd: PdId,
    /// Send work requests that may be outstanding.
    pub(crate) max_send_wr: usize,
    /// Receive work requests that may be outstanding.
    pub(crate) max_recv_wr: usize,
    /// Messages may wait for receives.
    pub(crate) parks: bool,
}

/// What an endpoint's lock keeps.
struct Locked {
    core: AnyCore,
    sends: SendSlots,
    receives: ReceiveSlots,
    /// Receives come from a shared queue.
    shares: bool,
    link: Option<Arc<Link>>,
    /// How long the transport may hear nothing of the peer, where the program has said so.
    patience: Option<Patience>,
    /// Number of the connection that `link` is or was; 0 where there was none since the reset.
    connection: u64,
}

impl Locked {
    fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        if !self.sends.has_room() {
            return Err(PostError::QueueFull);
        }
        self.core.post_send(request)?;
        self.sends.take();
        Ok(())
    }

    fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // With a shared queue it has none of its own, and says so itself.
        if !self.receives.has_room() && !self.shares {
            return Err(PostError::QueueFull);
        }
        self.core.post_recv(request)?;
        self.receives.take();
        Ok(())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.send_cq.leave(self.send_owner);
        self.recv_cq.leave(self.recv_owner);
        self.return_borrowed();
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("qp", &self.who.qp).finish_non_exhaustive()
    }
}

/// For the pipelines of a link, which a core of another kind has not.
impl Shared for Endpoint {
    /// As [`Endpoint::with`].
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut Qp) -> R) -> R {
        let mut locked = self.core.lock();
        let Locked { core, sends, link, .. } = &mut *locked;
        let qp = core.iwarp();
        let result = f(qp);
        self.hand_on_of(qp, sends, link);
        if qp.may_want_time() {
            self.wants_timer.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl ReceivePool for Endpoint {
    fn take(&self, into: &mut Receive) -> bool {
        let taken = self.srq.as_ref().is_some_and(|srq| srq.take(into));
        if taken {
            self.borrowed.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }
}

impl Parking for Endpoint {
    fn deliver(self: Arc<Self>) {
        self.deliver_parked();
    }

    fn fail(&self) {
        self.with(|core| core.fail_locally("out of memory"));
    }
}

impl Connection for Endpoint {
    fn id(&self) -> u32 {
        self.id()
    }

    fn hold_back_receives(&self) {
        self.held_back.lock().get_or_insert_default();
        self.holds_back.store(true, Ordering::SeqCst);
    }

    fn end(self: Arc<Self>) {
        self.hear_out();
        self.end_by(|_| true, AnyCore::disconnect);
    }
}

impl Endpoint {
    pub(crate) fn new(
        engine: Arc<Engine>,
        number: Number,
        shape: Shape,
        send_cq: Arc<CqCore>,
        recv_cq: Arc<CqCore>,
        srq: Option<Arc<SrqCore>>,
        events: Arc<AsyncQueue>,
    ) -> Result<Arc<Self>, OutOfMemory> {
        let sends = SendSlots::new(shape.max_send_wr);
        let receives = ReceiveSlots::new(shape.max_recv_wr);
        let received = srq.as_ref().map_or(receives.returned(), |srq| srq.returned());
        let (sent, received) = (Arc::clone(sends.returned()), Arc::clone(received));
        let send_owner = send_cq.enter(sent)?;
        let recv_owner = recv_cq.enter(received).inspect_err(|_| send_cq.leave(send_owner))?;
        Ok(Arc::new(Self {
            engine,
            who: Accessor { pd: shape.pd, qp: QpId(number.value()) },
            core: Mutex::new(Locked {
                core: shape.core,
                sends,
                receives,
                shares: srq.is_some(),
                link: None,
                patience: None,
                connection: 0,
            }),
            depth: shape.max_send_wr,
            send_owner,
            recv_owner,
            send_cq,
            recv_cq,
            srq,
            borrowed: AtomicU32::new(0),
            parks: shape.parks,
            events,
            observer: Mutex::new(None),
            receiving: AtomicBool::new(false),
            withheld: AtomicBool::new(false),
            wants_timer: AtomicBool::new(false),
            timer: AtomicU64::new(NEVER),
            awaiting: Awaiting::new(),
            abandoned: AtomicBool::new(false),
            held_back: Mutex::new(None),
            holds_back: AtomicBool::new(false),
            number,
        }))
    }

    pub(crate) fn id(&self) -> u32 {
        self.number.value()
    }

    pub(crate) const fn number(&self) -> &Number {
        &self.number
    }

    /// Where receives come from that are not the queue pair's own.
    pub(crate) fn pool(&self) -> &impl ReceivePool {
        self
    }

    /// Calls `f` with the core locked, then hands its events on before anybody else can add
    /// some: completions are in order because the lock is.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut AnyCore) -> R) -> R {
        let mut locked = self.core.lock();
        let result = f(&mut locked.core);
        self.hand_on(&mut locked);
        if locked.core.may_want_time() {
            self.wants_timer.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Runs a stream that MPA start-up has agreed on. Whatever happens to it is told to
    /// `observer`, after `established` was called: from then on work can be posted. `connection`
    /// is a number of [`Worker::next_id`](crate::engine::worker::Worker::next_id).
    pub(crate) fn attach(
        self: &Arc<Self>,
        stream: Box<dyn Port>,
        terms: &Negotiated,
        connection: u64,
        observer: Option<Arc<dyn Observer>>,
        established: impl FnOnce(),
    ) -> io::Result<()> {
        let establish = |core: &mut AnyCore| core.iwarp().establish(terms, self.now());
        self.attach_by(establish, stream, Some(terms), connection, observer, established)
    }

    /// As [`Self::attach`], for a queue pair that the program itself takes through its states.
    pub(crate) fn attach_in_place(
        self: &Arc<Self>,
        stream: Box<dyn Port>,
        terms: &Negotiated,
    ) -> io::Result<()> {
        let connection = self.engine.worker.next_id();
        let establish = |core: &mut AnyCore| core.iwarp().establish_in_place(terms, self.now());
        self.attach_by(establish, stream, Some(terms), connection, None, || {})
    }

    /// Runs a connected stream on a core that is not iWARP's, without any start-up.
    pub(crate) fn attach_other(
        self: &Arc<Self>,
        stream: Box<dyn Port>,
        observer: Arc<dyn Observer>,
    ) -> io::Result<()> {
        let connection = self.engine.worker.next_id();
        let establish = |core: &mut AnyCore| core.other().establish(self.now());
        self.attach_by(establish, stream, None, connection, Some(observer), || {})
    }

    /// `terms`: for iWARP's core, and only for that.
    fn attach_by(
        self: &Arc<Self>,
        establish: impl FnOnce(&mut AnyCore),
        stream: Box<dyn Port>,
        terms: Option<&Negotiated>,
        connection: u64,
        observer: Option<Arc<dyn Observer>>,
        established: impl FnOnce(),
    ) -> io::Result<()> {
        iwarp_mem::afford()?;
        iwarp_mem::keep_fault_handler();
        let loan = self.engine.send_memory.lend();
        let options = &self.engine.options;
        let link = Arc::new(Link::new(stream, terms, self.who, options, loan, self.depth));
        let patience = {
            let mut core = self.core.lock();
            if core.core.is_iwarp() != terms.is_some()
                || core.link.is_some()
                || core.core.is_outlived()
            {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            self.engine.live.add(self)?;
            *self.observer.lock() = observer;
            establish(&mut core.core);
            core.link = Some(Arc::clone(&link));
            core.connection = connection;
            self.hand_on(&mut core);
            core.patience
        };
        if let Some(Patience(patience)) = patience {
            link.set_patience(patience);
        }
        established();
        let joined = link
            .join(self, self.recv_cq.group())
            .and_then(|()| link.join(self, self.send_cq.group()));
        if let Err(error) = joined {
            self.abort();
            return Err(error);
        }
        if link.may_hold() {
            // What it took in with the start-up frame nothing else reports.
            self.deliver(&link);
        }
        self.transmit(&link);
        self.settle(&link);
        Ok(())
    }

    /// Posts requests in order until one is refused; sends what can be sent at once.
    pub(crate) fn post_send(self: &Arc<Self>, requests: &[SendRequest<'_>]) -> Posted {
        let (result, link) = self.post(requests, Locked::post_send, |core| core.link.clone());
        if let Some(link) = link {
            link.piggyback().posted(|| self.polls_in_vain());
            let _calls =
                (self.recv_cq.group().handover.call(), self.send_cq.group().handover.call());
            let awaits = self.awaiting.posted(|| self.nanos());
            if self.may_gather(&link, requests) {
                let now = self.nanos();
                self.send_cq.group().note_hold(now);
                self.recv_cq.group().handover.lease_in_full(now);
                link.hold();
                return result;
            }
            self.transmit(&link);
            let now = self.nanos();
            link.gather().sent(now);
            if awaits && !self.is_asleep() {
                self.await_answer(&link, now);
            }
        }
        result
    }

    /// Posts in order until one is refused, and says which; then what `link` takes of the core.
    fn post<R>(
        &self,
        requests: &[R],
        post: impl Fn(&mut Locked, &R) -> Result<(), PostError>,
        link: impl FnOnce(&Locked) -> Option<Arc<Link>>,
    ) -> (Posted, Option<Arc<Link>>) {
        let mut core = self.core.lock();
        let mut numbered = requests.iter().enumerate();
        let result = numbered.try_for_each(|(number, request)| {
            post(&mut core, request).map_err(|error| (number, error))
        });
        self.hand_on(&mut core);
        let link = link(&core);
        (result, link)
    }

    /// Whether what was posted goes out with what is going to be posted.
    fn may_gather(&self, link: &Link, requests: &[SendRequest<'_>]) -> bool {
        if self.awaiting.is_likely() || self.is_asleep() {
            return false;
        }
        let octets = || requests.iter().map(|request| octets(&request.payload)).sum();
        link.gather().posted(self.send_cq.group().polls(), octets, || self.nanos())
    }

    /// The time by the device's clock.
    pub(crate) fn now(&self) -> Time {
        self.engine.clock.now()
    }

    /// The time by the device's clock, as the hot path reads it.
    pub(crate) fn nanos(&self) -> u64 {
        self.engine.clock.nanos()
    }

    /// The poll groups of its completion queues, receives' and sends'.
    pub(crate) fn groups(&self) -> [&Arc<Group>; 2] {
        [self.recv_cq.group(), self.send_cq.group()]
    }

    /// A caller that looked after the groups has left: where some thread sleeps until the worker
    /// completes something, the worker is responsible at once.
    pub(crate) fn leave_to_worker_if_asleep(&self) {
        for cq in [&self.recv_cq, &self.send_cq] {
            if cq.is_asleep() {
                cq.group().leave_to_worker();
            }
        }
    }

    /// A number that changes when a completion queue is polled in vain.
    pub(crate) fn polls_in_vain(&self) -> u32 {
        self.groups().iter().fold(0, |sum, group| sum.wrapping_add(group.polls_in_vain()))
    }

    /// The program may sleep until the worker completes something.
    pub(crate) fn is_asleep(&self) -> bool {
        self.send_cq.is_asleep() || self.recv_cq.is_asleep()
    }

    /// The program spins on memory until the peer answers: receives in its stead. The worker stays
    /// away meanwhile, and until the program has had time to post again.
    fn await_answer(&self, link: &Link, start: u64) {
        let groups = self.groups();
        groups.iter().for_each(|group| group.handover.lease_in_full(start));
        let before = groups[0].arrivals();
        let mut tries = 0;
        let came = loop {
            groups[0].drive(By::Post);
            if groups[0].arrivals() != before {
                break true;
            }
            if link.is_closed() || self.nanos() - start > awaiting::LONGEST_WAIT {
                break false;
            }
            tries += 1;
            if tries > TRIES_BEFORE_YIELD {
                self.engine.clock.yield_now();
            }
        };
        self.awaiting.awaited(came);
        if !came {
            groups.iter().for_each(|group| group.leave_to_worker());
        }
    }

    /// The peer has sent so many messages: learns whether the program waits for answers, and how.
    pub(crate) fn note_arrivals(&self, arrivals: u64, by: By) {
        if !self.awaiting.has_news(arrivals) {
            return;
        }
        self.recv_cq.group().note_arrival();
        match by {
            By::Worker if !self.is_asleep() => self.awaiting.answered(self.nanos()),
            By::Worker | By::Caller => self.awaiting.is_driven(),
            By::Post => {}
        }
    }

    pub(crate) fn post_recv(self: &Arc<Self>, requests: &[RecvRequest<'_>]) -> Posted {
        let (result, waiting) = self.post(requests, Locked::post_recv, |core| {
            let waiting = core.core.has_parked() || core.core.is_stalled();
            if waiting { core.link.clone() } else { None }
        });
        if let Some(link) = waiting {
            self.deliver(&link);
        }
        result
    }

    /// There may be receives in the shared receive queue, for which messages wait here.
    fn deliver_parked(self: &Arc<Self>) {
        if let Some(link) = self.link()
            && self.has_parked()
        {
            self.deliver(&link);
        }
    }

    /// Whether messages wait for receives.
    pub(crate) fn has_parked(&self) -> bool {
        self.parks && self.with(|core| core.has_parked() || core.is_stalled())
    }

    /// Has the shared receive queue call when it has receives, if messages wait for some. False
    /// when it has some already.
    pub(crate) fn await_receives(self: &Arc<Self>) -> bool {
        match &self.srq {
            Some(srq) if self.has_parked() => srq.await_receives(self),
            _ => true,
        }
    }

    /// The transport may hear nothing of the peer for so long while something is under way;
    /// `None`: as long as the system likes.
    pub(crate) fn set_patience(self: &Arc<Self>, patience: Option<Duration>) {
        let link = {
            let mut core = self.core.lock();
            core.patience = Some(Patience(patience));
            core.link.clone()
        };
        if let Some(link) = link {
            link.set_patience(patience);
            self.patience_changed(&link);
        }
    }

    /// Changes the state; going to Reset drops the stream.
    pub(crate) fn modify(self: &Arc<Self>, to: QpState) -> Result<(), TransitionError> {
        self.hold_back_no_more();
        let dropped = {
            let mut core = self.core.lock();
            let was_connected = core.core.is_connected();
            let mut dropped = None;
            if to == QpState::Reset {
                dropped = core.link.take();
                core.connection = 0;
            }
            core.core.modify(to)?;
            if to == QpState::Reset {
                self.forget_work(&mut core);
            }
            self.hand_on(&mut core);
            if was_connected && !core.core.is_connected() {
                self.ended(Ended::Closed);
            }
            dropped
        };
        if let Some(link) = dropped {
            link.stream().reset_on_close();
            self.drop_link(&link);
            self.engine.live.remove(self);
        }
        self.carry_on();
        Ok(())
    }

    /// Ends the connection in good order.
    pub(crate) fn disconnect(self: &Arc<Self>) {
        self.hold_back_no_more();
        self.hear_out();
        self.end_by(|_| true, AnyCore::disconnect);
    }

    /// The same, unless the queue pair has another connection by now.
    pub(crate) fn disconnect_if(self: &Arc<Self>, connection: u64) {
        self.hold_back_no_more();
        self.hear_out();
        self.end_by(|core| core.connection == connection, AnyCore::disconnect);
    }

    /// Takes in what has come by now. A program may leave on a message of which another thread has
    /// yet to see what stands behind it: the peer's question whether it was received.
    fn hear_out(self: &Arc<Self>) {
        if !self.is_connected() {
            return;
        }
        if let Some(link) = self.link() {
            self.deliver(&link);
            link.settle_receiving();
        }
    }

    /// No connection could be had.
    pub(crate) fn unreachable(self: &Arc<Self>) {
        self.end_by(|core| core.link.is_none(), AnyCore::unreachable);
    }

    /// Ends the connection with a reset.
    pub(crate) fn abort(self: &Arc<Self>) {
        self.end_by(|_| true, AnyCore::abort);
    }

    fn end_by(
        self: &Arc<Self>,
        which: impl FnOnce(&Locked) -> bool,
        end: impl FnOnce(&mut AnyCore),
    ) {
        {
            let mut core = self.core.lock();
            if !which(&core) {
                return;
            }
            let was_connected = core.core.is_connected();
            end(&mut core.core);
            self.hand_on(&mut core);
            // The core tells what the peer did, not what it was told to do itself.
            if was_connected {
                self.ended(Ended::Closed);
            }
        }
        self.carry_on();
    }

    /// The program is done with the queue pair. What it was told is sent goes out still.
    pub(crate) fn abandon(self: &Arc<Self>) {
        self.abandoned.store(true, Ordering::SeqCst);
        self.disconnect();
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.with(|core| core.is_connected())
    }

    /// Requests that may be posted at this moment: sends and receives.
    pub(crate) fn room(&self) -> (usize, usize) {
        let core = self.core.lock();
        (core.sends.room(core.core.outstanding().0), core.receives.room())
    }

    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.core.lock().link.clone()
    }

    fn carry_on(self: &Arc<Self>) {
        if let Some(link) = self.link() {
            self.resume(&link);
            self.transmit(&link);
            self.settle(&link);
        }
    }

    /// The stream is closed.
    pub(crate) fn link_closed(self: &Arc<Self>, link: &Arc<Link>) {
        let mut core = self.core.lock();
        if core.link.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, link)) {
            core.link = None;
            self.engine.live.remove(self);
        }
    }

    /// Sets the timer that the core asks for: only while operations wait to learn what the peer
    /// can do, at the start of a connection, and while a full park holds it up.
    pub(crate) fn watch_time(self: &Arc<Self>) {
        if !self.wants_timer.load(Ordering::Relaxed) {
            return;
        }
        self.wants_timer.store(false, Ordering::Relaxed);
        let Some(at) = self.with(|core| core.poll_timeout()) else { return };
        if at <= self.now() {
            return self.tell_time();
        }
        let nanos = u64::try_from(at.0.as_nanos()).unwrap_or(NEVER);
        // An earlier call asks again.
        if self.timer.fetch_min(nanos, Ordering::SeqCst) <= nanos {
            return;
        }
        let weak: Weak<Self> = Arc::downgrade(self);
        self.engine.worker.at(
            at,
            Box::new(move || {
                if let Some(endpoint) = weak.upgrade() {
                    endpoint.timer.store(NEVER, Ordering::SeqCst);
                    endpoint.tell_time();
                }
            }),
        );
    }

    fn tell_time(self: &Arc<Self>) {
        self.with(|core| core.handle_timeout(self.now()));
        self.carry_on();
        self.watch_time();
    }

    /// Calls `work`, which places octets. A stream that others end meanwhile flushes its work
    /// requests only afterwards: what was reported flushed is not written to any more.
    pub(crate) fn receiving(&self, work: impl FnOnce()) {
        // Octets are placed only after a look at the core, whose lock shows this to whoever ends the
        // stream under it.
        self.receiving.store(true, Ordering::Relaxed);
        work();
        // That one says first that events are withheld, then looks whether this is going on: one of
        // the two sees the other.
        self.receiving.store(false, Ordering::SeqCst);
        if self.withheld.load(Ordering::SeqCst) {
            self.withheld.store(false, Ordering::SeqCst);
            self.hand_on(&mut self.core.lock());
        }
    }

    /// Hands the core's events on. A completion queue that is full loses no other's stream: the
    /// queue pair whose completion it was fails (RFC 5042 §6.4.6).
    #[inline]
    fn hand_on(&self, locked: &mut Locked) {
        let Locked { core, sends, link, .. } = locked;
        match core {
            AnyCore::Iwarp(qp) => self.hand_on_of(qp, sends, link),
            AnyCore::Other(core) => self.hand_on_of(&mut **core, sends, link),
        }
    }

    #[inline]
    fn hand_on_of(
        &self,
        core: &mut (impl Core + ?Sized),
        sends: &mut SendSlots,
        link: &Option<Arc<Link>>,
    ) {
        if !core.has_events() {
            return;
        }
        if !core.is_connected() {
            self.withheld.store(true, Ordering::SeqCst);
            if self.receiving.load(Ordering::SeqCst) {
                return;
            }
        }
        let mut overrun = false;
        loop {
            while let Some(event) = core.poll_event() {
                overrun |= !self.hand_on_one(event, sends, link.as_deref());
            }
            if !overrun || !core.is_connected() {
                return;
            }
            core.fail_locally("completion queue overrun");
            overrun = false;
        }
    }

    /// Writes down why a connection ended before its time.
    #[cold]
    fn report_terminate(&self, link: Option<&Link>, reason: Reason, fault: Option<&dyn Cause>) {
        let peer = link.map(|link| tracing::field::display(link.stream().ends().name()));
        let (qp, code, meaning) = (self.id(), reason.notation(), reason.name());
        let hint = reason.is_no_receive().then(|| self.hint_on_receives(fault.is_some())).flatten();
        match fault {
            Some(fault) => {
                report!(
                    WARN,
                    qp,
                    peer,
                    %code,
                    meaning,
                    %fault,
                    hint,
                    "this end terminated the connection"
                );
            }
            None => {
                report!(WARN, qp, peer, %code, meaning, hint, "the peer terminated the connection");
            }
        }
    }

    /// perftest's ib_send_bw, for one, has credits where its own end is an RNIC, and waits for ever
    /// for those of a peer that is none.
    #[cold]
    fn report_other_device(&self, link: Option<&Link>) {
        let peer = link.map(|link| tracing::field::display(link.stream().ends().name()));
        let (here, there) = match self.engine.options.personality {
            Personality::Iwarp => ("iwarp", "roce"),
            Personality::Roce => ("roce", "iwarp"),
        };
        report!(
            burst 1,
            WARN,
            peer,
            "the device is {here} here and {there} at the peer: where the programs do not \
             understand each other, give both ends the same --personality"
        );
    }

    /// What to try when a Send found no receive, which over InfiniBand would have waited.
    fn hint_on_receives(&self, here: bool) -> Option<&'static str> {
        match (here, self.engine.options.personality) {
            (true, Personality::Iwarp) => Some(
                "a message came before its receive was posted: try --personality roce \
                 (IWARP_PERSONALITY=roce), with which messages wait",
            ),
            (true, Personality::Roce) => None,
            (false, _) => Some(
                "a message came before the peer had posted its receive: try --personality roce \
                 (IWARP_PERSONALITY=roce) there, with which messages wait",
            ),
        }
    }

    /// False when a completion queue was full.
    #[inline(always)]
    fn hand_on_one<T: Into<Reason>, F: Cause>(
        &self,
        event: Event<T, F>,
        sends: &mut SendSlots,
        link: Option<&Link>,
    ) -> bool {
        match event {
            Event::SilentSends(count) => sends.pass_over(count),
            Event::SendCompleted(completion) => {
                let slots = sends.report();
                return self.is_abandoned()
                    || self.send_cq.push(completion, self.send_owner, slots);
            }
            Event::ReceiveCompleted(completion) => return self.received(completion),
            Event::FirstHeard => {
                if let Some(observer) = &*self.observer.lock() {
                    observer.first_heard();
                }
            }
            Event::OtherDevice => self.report_other_device(link),
            Event::Disconnected => self.ended(Ended::Closed),
            Event::Terminated(reason) => {
                let reason = reason.into();
                self.report_terminate(link, reason, None);
                self.report_fatal();
                self.ended(Ended::Terminated(reason));
            }
            Event::Fault(fault) => {
                if let Some((addr, remote)) = fault.bad_address() {
                    self.report_bad_address(addr, remote);
                } else {
                    self.report_terminate(link, fault.reason(), Some(&fault));
                    self.report_fatal();
                }
                self.ended(Ended::Fault(fault.reason()));
            }
            Event::Lost => self.ended(Ended::Lost),
            Event::SendQueueDrained => {
                self.events.push(AsyncEvent::SendQueueDrained { qp: self.id() });
            }
            Event::LastReceiveReached => {
                self.events.push(AsyncEvent::LastReceiveReached { qp: self.id() });
            }
        }
        true
    }

    /// The program itself ends what it has posted, be it in an exit handler.
    fn hold_back_no_more(&self) {
        if !self.holds_back.swap(false, Ordering::SeqCst) {
            return;
        }
        let held_back = self.held_back.lock().take();
        for completion in held_back.into_iter().flatten() {
            self.received(completion);
        }
    }

    /// Keeps a flushed receive from a program whose process exits. False where it is to have it.
    #[cold]
    fn hold_back(&self, completion: &WorkCompletion) -> bool {
        let mut held_back = self.held_back.lock();
        match &mut *held_back {
            Some(held_back) if completion.status == WcStatus::Flushed => {
                held_back.push(*completion);
                true
            }
            _ => false,
        }
    }

    /// False when the completion queue was full.
    fn received(&self, completion: WorkCompletion) -> bool {
        if self.holds_back.load(Ordering::Relaxed) && self.hold_back(&completion) {
            return true;
        }
        if self.srq.is_some() {
            self.borrowed.fetch_sub(1, Ordering::Relaxed);
        }
        if self.is_abandoned() {
            if let Some(srq) = &self.srq {
                srq.returned().add(1);
            }
            return true;
        }
        self.recv_cq.push(completion, self.recv_owner, 1)
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// The queue pair is as new: nothing completes of what was posted before.
    fn forget_work(&self, core: &mut Locked) {
        self.send_cq.forget(self.send_owner);
        self.recv_cq.forget(self.recv_owner);
        core.sends.reset();
        core.receives.reset();
        self.return_borrowed();
    }

    fn return_borrowed(&self) {
        if let Some(srq) = &self.srq {
            srq.returned().add(self.borrowed.swap(0, Ordering::Relaxed));
        }
    }

    /// Once for each stream, which has ended by it.
    fn report_bad_address(&self, addr: u64, remote: bool) {
        let qp = self.id();
        let whose = if remote { "the peer's access to" } else { "a request of the program's with" };
        report!(
            WARN,
            "queue pair {qp:#08x}: {whose} address {addr:#x} failed, as the memory was unmapped, \
             protected or truncated while it was registered: connection terminated",
        );
        if !remote {
            self.report_fatal();
        } else if !self.abandoned.load(Ordering::Relaxed) {
            self.events.push(AsyncEvent::QpAccessError { qp });
        }
    }

    fn report_fatal(&self) {
        if !self.is_abandoned() {
            self.events.push(AsyncEvent::QpFatal { qp: self.id() });
        }
    }

    fn ended(&self, why: Ended) {
        if let Some(observer) = &*self.observer.lock() {
            observer.disconnected(why);
        }
    }

    /// The queue pair's number, as the memory table knows it.
    pub(crate) const fn qp_id(&self) -> QpId {
        self.who.qp
    }
}

fn octets(payload: &Payload<'_>) -> usize {
    match payload {
        Payload::Inline(octets) => octets.len(),
        Payload::Sges(sges) => sges.iter().map(|sge| sge.length as usize).sum(),
    }
}
