// SPDX-License-Identifier: MIT OR Apache-2.0

//! A queue pair's core behind its lock, and where its completions go.
//!
//! Short messages, several in a row, are judged, placed and reported while the lock is held once,
//! and so are they decided on and framed. If another thread ends the stream while bytes are being
//! placed, a word of three states withholds its events ([`placing`]), not that lock.
//!
//! # Writers of the fields
//!
//! A *receiver* and a *transmitter* hold the token of that direction of a link.
//!
//! - `engine`, `who`, `depth`, `send_cq`, `recv_cq`, `send_owner`, `recv_owner`, `srq`, `parks`,
//!   `qp_type`, `events`, `number`, `packets`: the thread that creates the queue pair, before it is
//!   shared.
//! - `core` (the core, its choice of wires, slots, link, mux, habits of the program, timeout,
//!   number of the connection): caller threads that post, poll or change the state, and the worker,
//!   under its lock. Of these, `program` (who is told of the connection, whether the handle is
//!   gone, whether the process exits, receives held back) also belongs to the thread that attaches
//!   a stream, the one that drops the handle, the exit handler, and threads that complete requests.
//!   `timer` belongs to the thread that sets an earlier one, and to the worker when it fires.
//! - `borrowed`: the receiver adds; a completion, a reset and the last drop subtract. Guard:
//!   `core`, or the last reference.
//! - `placing` (idle, placing, events withheld): the receiver, under the receive token; the thread
//!   that ends the stream, only from placing to withheld, with `core` locked. Likewise `carrying`,
//!   of the transmitter under its token.
//! - `postpones`: set by a thread that completes a receive which waits, cleared by the one that
//!   reports it; `core` locked. It is read without.
//! - `annex`: made by the program before the queue pair is connected; filled by the worker, under
//!   its own lock, when a stream gets a ring.
//! - `accesses_directly`: cleared by the thread that makes a link, set by the link's transmitter
//!   when the stream has moved past TCP to a process whose memory this one can read.
//! - `overran`: set with `core` locked by a thread that hands on a completion for which a queue has
//!   no room; nothing clears it, and threads that see it look at the core once more.
//! - `wants_timer`: set with `core` locked by any thread that has called the core, cleared by the
//!   one that then sets the timer.

mod attach;
mod close;
mod core;
mod describe;
mod direct;
mod events;
mod exchange;
mod hurt;
mod placing;
mod post;
mod postponed;
mod refusal;
mod report;
mod timer;

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use iwarp_mem::OutOfMemory;
use iwarp_types::{Accessor, PdId, QpId, QpType, Receive, ReceivePool, Time, WorkCompletion};

pub(crate) use self::attach::Adoption;
pub(crate) use self::core::{CoreConfig, EndpointCore, Multicast, NO_RECEIVE, WireCore};
pub(crate) use self::exchange::{Choice, PacketListener};
use self::hurt::Hurt;
use self::placing::Placing;
use self::postponed::{Postponed, Postpones};
use crate::engine::Engine;
use crate::engine::census::{self, Described};
use crate::engine::cq::CqCore;
use crate::engine::ended::{ConnectionObserver, Ended};
use crate::engine::event::AsyncEvent;
use crate::engine::event_queue::AsyncQueue;
use crate::engine::fate::Fate;
use crate::engine::group::Group;
use crate::engine::mover::{PacketMover, StreamMover};
use crate::engine::numbers::Number;
use crate::engine::observe::{Counters, Observed};
use crate::engine::options::Personality;
use crate::engine::policy::habits::Habits;
use crate::engine::profile::Profile;
use crate::engine::slots::{ReceiveSlots, SendSlots};
use crate::engine::srq::{Parking, SrqCore};
use crate::engine::sync::{AtomicBool, AtomicU8, AtomicU32, Mutex, Ordering};
use crate::faults;
use crate::port::local::{Annex, Channel, KnownQueue};

/// See the [module](self).
pub(crate) struct Endpoint {
    pub(crate) engine: Arc<Engine>,
    /// The device that it is on.
    pub(crate) profile: Arc<Profile>,
    /// The number of its port; 0 as long as it is on none.
    port: AtomicU8,
    pub(crate) who: Accessor,
    core: Mutex<Locked>,
    /// Send work requests that may be outstanding.
    depth: usize,
    send_cq: Arc<CqCore>,
    recv_cq: Arc<CqCore>,
    /// Owners as which its queues have entered the completion queues.
    send_owner: u32,
    recv_owner: u32,
    srq: Option<Arc<SrqCore>>,
    /// Receives of that queue that were taken and have not completed.
    borrowed: AtomicU32,
    /// Messages may wait for receives.
    parks: bool,
    /// Its type.
    qp_type: QpType,
    events: Arc<AsyncQueue>,
    placing: Placing,
    /// As `placing`, of the transmitter, which carries out requests that were posted before.
    carrying: Placing,
    /// Some receives have completed and were not reported yet.
    postpones: Postpones,
    /// The core has asked for a call at some time.
    wants_timer: AtomicBool,
    overran: AtomicBool,
    /// Its stream may carry out Reads at once.
    accesses_directly: AtomicBool,
    leaves_to_do: AtomicBool,
    /// Not given to another queue pair while anything still refers to it.
    number: Number,
    /// Brings the packets that come for the number.
    packets: Option<Arc<dyn PacketMover<Self>>>,
    /// Called when a stream of it moves to shared memory.
    when_moved: OnceLock<Moved>,
    /// There, and empty until a stream of it has a ring, if the program wants it.
    annex: OnceLock<Mutex<Option<Annex>>>,
}

/// See [`Endpoint::when_moved`].
struct Moved(Box<dyn Fn() + Send + Sync>);

/// See [`Endpoint::set_patience`].
#[derive(Clone, Copy)]
pub(crate) struct Patience(pub(crate) Option<Duration>);

/// The parts of an endpoint.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) core: Box<dyn EndpointCore>,
    /// The wires that may take its place.
    pub(crate) choice: Option<Box<dyn Choice>>,
    /// Brings the packets that come for its number, if any may.
    pub(crate) packets: Option<Arc<dyn PacketMover<Endpoint>>>,
    pub(crate) config: CoreConfig,
    /// The device that it is on.
    pub(crate) profile: Arc<Profile>,
    /// Its requests are counted.
    pub(crate) counted: bool,
}

/// The state that an endpoint's lock keeps.
struct Locked {
    core: Box<dyn EndpointCore>,
    /// The wires that may take its place.
    choice: Option<Box<dyn Choice>>,
    habits: Habits,
    sends: SendSlots,
    receives: ReceiveSlots,
    /// Receives come from a shared queue.
    shares: bool,
    /// The program allows itself Reads and Atomics.
    reads: bool,
    link: Option<Arc<dyn StreamMover>>,
    /// Serves a core over packets, or a choice that listens, from RTR on.
    mux: Option<Arc<dyn PacketMover<Endpoint>>>,
    /// The time that the transport may hear nothing of the peer, where the program has said so.
    patience: Option<Patience>,
    /// Number of the connection that `link` is or was; 0 where there was none since the reset.
    connection: u64,
    /// When the worker is going to call the core.
    timer: Option<Time>,
    program: Program,
}

/// The parties that the program still wants to be told.
#[derive(Default)]
struct Program {
    /// Is told how the connection fares.
    observer: Option<Arc<dyn ConnectionObserver>>,
    /// Fate of its connection, if the log tells of it.
    fate: Option<Arc<Fate>>,
    /// Its handle is gone: it wants no completions any more.
    gone: bool,
    /// The process exits: flushed receives that the program has not asked for are held back.
    exits: bool,
    held_back: Vec<WorkCompletion>,
    postponed: Postponed,
    /// The event that says why the queue pair has ended, unless a work request does.
    verdict: Option<AsyncEvent>,
    /// Its requests, where they are counted or told to an observer.
    observed: Option<Box<Observed>>,
    /// There if completions may have faults on purpose.
    hurt: Option<Box<Hurt>>,
}

impl Locked {
    /// Counts the requests that have ended without a completion, unless the core has ends that were
    /// not told yet: those of a stream that has ended under a receiver, or of the post at hand.
    fn catch_up(&mut self) {
        if let Some(observed) = &mut self.program.observed
            && !self.core.has_events()
        {
            observed.catch_up(self.core.outstanding().0);
        }
    }
}

impl Program {
    /// The core has found that the connection has ended.
    fn ended(&self, why: Ended) {
        if let Some(fate) = &self.fate {
            fate.ended(why);
        }
        self.tell(why);
    }

    /// Says for the log why the connection ends.
    fn ends(&self, why: impl FnOnce() -> String) {
        if let Some(fate) = &self.fate {
            fate.ends(why());
        }
    }

    fn tell(&self, why: Ended) {
        if let Some(observer) = &self.observer {
            observer.disconnected(why);
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.send_cq.leave(self.send_owner);
        self.recv_cq.leave(self.recv_owner);
        self.return_borrowed();
        census::leave(self.place());
        let mux = self.core.lock().mux.take();
        if let Some(mux) = mux {
            mux.forget(self);
        }
        if self.qp_type == QpType::Ud
            && let Some(mux) = &self.packets
        {
            mux.detach(None, self);
        }
    }
}

/// Attaching a link has checked the type of its core, once for the life of both.
#[inline]
fn of_its_kind<R>(result: Option<R>) -> R {
    result.unwrap_or_else(|| unreachable!("a link is of its core's kind"))
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("qp", &self.who.qp).finish_non_exhaustive()
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
        let Shape { core, choice, packets, config, profile, counted } = shape;
        let habits = Habits::new(config.max_send_wr, 0, engine.options.without);
        let parks = profile.options.personality == Personality::Roce;
        let sends = SendSlots::new(config.max_send_wr, engine.options.strict);
        let receives = ReceiveSlots::new(config.max_recv_wr);
        let received = srq.as_ref().map_or(receives.returned(), |srq| srq.returned());
        let (sent, received) = (Arc::clone(sends.returned()), Arc::clone(received));
        let observer = engine.options.observer.clone();
        let is_observed = counted || observer.is_some();
        let observe = || Observed::new(number.value(), config.max_send_wr, observer);
        let observed = is_observed.then(observe).transpose()?;
        let send_owner = send_cq.enter(sent)?;
        let recv_owner = recv_cq.enter(received).inspect_err(|_| send_cq.leave(send_owner))?;
        let this = Arc::new(Self {
            engine,
            profile,
            port: AtomicU8::new(0),
            who: Accessor { pd: config.pd, qp: QpId(number.value()) },
            core: Mutex::new(Locked {
                core,
                choice,
                habits,
                sends,
                receives,
                shares: srq.is_some(),
                reads: true,
                link: None,
                mux: None,
                patience: None,
                connection: 0,
                timer: None,
                program: Program { observed, ..Program::default() },
            }),
            depth: config.max_send_wr,
            send_owner,
            recv_owner,
            send_cq,
            recv_cq,
            srq,
            borrowed: AtomicU32::new(0),
            parks,
            qp_type: config.qp_type,
            events,
            placing: Placing::new(),
            carrying: Placing::new(),
            postpones: Postpones::new(),
            wants_timer: AtomicBool::new(false),
            overran: AtomicBool::new(false),
            accesses_directly: AtomicBool::new(false),
            leaves_to_do: AtomicBool::new(false),
            number,
            packets,
            when_moved: OnceLock::new(),
            annex: OnceLock::new(),
        });
        let described: Weak<dyn Described> = Arc::<Self>::downgrade(&this);
        census::enter(this.place(), described);
        // Behind that: rules that come at this moment find it there.
        if faults::are_on() {
            faults::created(this.id());
            Arc::clone(&this).have_faults();
        }
        Ok(this)
    }

    pub(crate) fn id(&self) -> u32 {
        self.number.value()
    }

    /// The port that it is on, or its device as long as it is on none: it has the addresses of any
    /// port then.
    #[inline]
    pub(crate) fn home(&self) -> &Profile {
        self.profile.port_or_any(self.port())
    }

    /// The number of its port; 0 as long as it is on none.
    pub(crate) fn port(&self) -> u8 {
        self.port.load(Ordering::Relaxed)
    }

    /// Puts it on a port, whose number is checked, or on none (0).
    pub(crate) fn set_port(&self, number: u8) {
        self.port.store(number, Ordering::Relaxed);
    }

    /// Its operations so far; `None` where they are not counted.
    pub(crate) fn counters(&self) -> Option<Counters> {
        let mut locked = self.core.lock();
        locked.catch_up();
        locked.program.observed.as_ref()?.counters()
    }

    /// Its type.
    pub(crate) const fn qp_type(&self) -> QpType {
        self.qp_type
    }

    pub(crate) const fn number(&self) -> &Number {
        &self.number
    }

    /// True if packets for its number come here.
    pub(crate) const fn has_packets(&self) -> bool {
        self.packets.is_some()
    }

    /// The protection domain of the memory of its receives.
    pub(crate) fn pd_of_receives(&self) -> PdId {
        self.srq.as_ref().map_or(self.who.pd, |srq| srq.pd())
    }

    /// The source of receives that are not the queue pair's own.
    pub(crate) fn pool(&self) -> &impl ReceivePool {
        self
    }

    /// Calls `f` with the core locked, then hands its events on before another thread can add some:
    /// completions are in order because the lock is.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut dyn EndpointCore) -> R) -> R {
        self.with_habits(|core, _| f(core))
    }

    /// As [`Self::with`], with what is known of the program.
    pub(crate) fn with_habits<R>(
        &self,
        f: impl FnOnce(&mut dyn EndpointCore, &mut Habits) -> R,
    ) -> R {
        let mut locked = self.core.lock();
        let Locked { core, habits, .. } = &mut *locked;
        let result = f(&mut **core, habits);
        self.hand_on(&mut locked);
        let Locked { core, timer, .. } = &*locked;
        if core.may_want_time() {
            self.note_time(core.poll_timeout(), *timer);
        }
        result
    }

    /// As [`Self::with`], for the wing whose core it is.
    #[inline]
    pub(crate) fn with_own<C: WireCore, R>(&self, f: impl FnOnce(&mut C) -> R) -> R {
        of_its_kind(self.with_of(false, |core, _| f(core), |_: &mut C, _| ()))
    }

    /// As [`Self::with_own`], for the thread that takes apart bytes that have come: receives that
    /// complete may have to wait. Calls `then` when the core's events are handed on, with what is
    /// known of the program.
    #[inline]
    pub(crate) fn with_receiving<C: WireCore, R>(
        &self,
        f: impl FnOnce(&mut C) -> R,
        then: impl FnOnce(&mut C, &mut Habits),
    ) -> R {
        of_its_kind(self.with_of(true, |core, _| f(core), then))
    }

    /// As [`Self::with`], for a wing whose core it may be, and with its fate; `None` where it is
    /// not.
    #[inline]
    pub(crate) fn with_if<C: WireCore, R>(
        &self,
        f: impl FnOnce(&mut C, Option<&Fate>) -> R,
    ) -> Option<R> {
        self.with_of(false, f, |_: &mut C, _| ())
    }

    #[inline(always)]
    fn with_of<C: WireCore, R>(
        &self,
        receiving: bool,
        f: impl FnOnce(&mut C, Option<&Fate>) -> R,
        then: impl FnOnce(&mut C, &mut Habits),
    ) -> Option<R> {
        let mut locked = self.core.lock();
        let Locked { core, habits, sends, link, timer, program, .. } = &mut *locked;
        let core = core.of::<C>()?;
        let result = f(core, program.fate.as_deref());
        if receiving && core.has_events() {
            program.postponed.more = self.is_to_postpone(link.as_deref());
        }
        self.hand_on_of(core, sends, program, link);
        if receiving {
            program.postponed.more = false;
        }
        then(core, habits);
        if core.may_want_time() {
            self.note_time(core.poll_timeout(), *timer);
        }
        Some(result)
    }

    /// True if a completion found no room in its queue, by which the connection ends.
    #[inline]
    pub(crate) fn has_overrun(&self) -> bool {
        self.overran.load(Ordering::Acquire)
    }

    /// The core asks for a call at that time, and the worker is going to call it at another.
    fn note_time(&self, wanted: Option<Time>, timer: Option<Time>) {
        let Some(at) = wanted else { return };
        // A call that comes earlier asks again, so most of these need no other lock.
        if timer.is_none_or(|earlier| at < earlier) || at <= self.now() {
            self.wants_timer.store(true, Ordering::Relaxed);
        }
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

    /// The process at the other end of the channel brings about completions in both completion
    /// queues, and is told as which it knows them: see [`CqCore::become_known`].
    pub(crate) fn become_known(
        &self,
        by: &Arc<Channel>,
        receives: impl FnOnce(&KnownQueue),
        sends: impl FnOnce(&KnownQueue),
    ) {
        self.recv_cq.become_known(by, receives);
        self.send_cq.become_known(by, sends);
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
        self.groups().iter().fold(0, |sum, group| sum.wrapping_add(group.polls.in_vain()))
    }

    /// The program may sleep until the worker completes something.
    pub(crate) fn is_asleep(&self) -> bool {
        self.send_cq.is_asleep() || self.recv_cq.is_asleep()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.with(|core| core.is_connected())
    }

    /// Requests that may be posted at this moment: sends and receives.
    pub(crate) fn room(&self) -> (usize, usize) {
        let core = self.core.lock();
        (core.sends.room(core.core.outstanding().0), core.receives.room())
    }

    /// Calls `tell` each time that a stream of it moves to shared memory. To be called once.
    pub(crate) fn when_moved(&self, tell: Box<dyn Fn() + Send + Sync>) {
        let _ = self.when_moved.set(Moved(tell));
    }

    /// See [`Self::when_moved`]. To be called without locks.
    pub(crate) fn tell_moved(&self) {
        if let Some(Moved(tell)) = self.when_moved.get() {
            tell();
        }
    }

    /// Keeps the annex of streams that move to shared memory, for [`Self::annex`].
    pub(crate) fn keep_annex(&self) {
        self.annex.get_or_init(Mutex::default);
    }

    /// A stream of it has a ring, and this beside it.
    pub(crate) fn set_annex(&self, annex: impl FnOnce() -> Option<Annex>) {
        if let Some(kept) = self.annex.get() {
            *kept.lock() = annex();
        }
    }

    /// The annex of its last stream, also when that is over.
    pub(crate) fn annex(&self) -> Option<Annex> {
        self.annex.get()?.lock().clone()
    }

    pub(crate) fn link(&self) -> Option<Arc<dyn StreamMover>> {
        self.core.lock().link.clone()
    }

    fn mux(&self) -> Option<Arc<dyn PacketMover<Self>>> {
        self.core.lock().mux.clone()
    }

    pub(crate) fn carry_on(self: &Arc<Self>) {
        if let Some(link) = self.link() {
            link.carry_on();
        } else if let Some(mux) = self.mux() {
            mux.transmit(self);
        }
    }

    fn return_borrowed(&self) {
        if let Some(srq) = &self.srq {
            srq.returned().add(self.borrowed.swap(0, Ordering::Relaxed));
        }
    }

    /// The queue pair's number, as the memory table knows it.
    pub(crate) const fn qp_id(&self) -> QpId {
        self.who.qp
    }
}
