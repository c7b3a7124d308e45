// SPDX-License-Identifier: MIT OR Apache-2.0

//! A completion queue: the completions that wait, and what a poll that finds none does.
//!
//! The events of completions are raised by the thread that completes, which holds the endpoint's
//! `core` and this queue's lock.
//!
//! The owners of a queue's slots have a list of their own. (Considered: `slab`, which has no
//! `try_reserve`, and `slotmap`, whose keys would make each completion 8 bytes longer for a
//! generation that nothing needs.)
//!
//! # Writers of the fields
//!
//! - `number`, `group`, `channel`, `events`: the thread that creates it, before it is shared.
//! - `queue` (completions, owners, depth, the notification asked for, collectors): threads that
//!   complete requests, with the endpoint's `core` locked, and callers that poll, collect, arm or
//!   resize. Guard: its lock.
//! - `len`: as `queue`; read without the lock.
//! - `asleep` (looks that may be the last before the program sleeps): set by the thread that arms
//!   the queue, cleared by the completion that it waits for, counted down by polls. Guard: the lock
//!   of `queue`, or compare and exchange.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};

use iwarp_mem::OutOfMemory;
use iwarp_types::{WcStatus, WorkCompletion};

use crate::engine::Engine;
use crate::engine::census::{self, Described, Kind, Place};
use crate::engine::channel::ChannelCore;
use crate::engine::event::AsyncEvent;
use crate::engine::event_queue::AsyncQueue;
use crate::engine::group::{Group, Polled};
use crate::engine::policy::Behaviours;
use crate::engine::policy::arming::Arming;
use crate::engine::policy::backoff::Rest;
use crate::engine::policy::table::LOOP;
use crate::engine::poll_set::{By, PollSet};
use crate::engine::slots::Returned;
use crate::engine::sync::{AtomicU32, Mutex, Ordering};
use crate::engine::worker;
use crate::flaw::{self, Flaw};
use crate::port::local::{Channel, KnownQueue};
use crate::report::Object;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct CqCore {
    number: u64,
    queue: Mutex<Queue>,
    /// Completions that wait, so that a look costs no lock.
    len: AtomicU32,
    /// Not [`AWAKE`]: the program may sleep on the channel's descriptor, and the worker is
    /// responsible, at once or ([`DOZING`]) when a lease is over. Polls that are its last look
    /// before that, and one more.
    asleep: AtomicU32,
    group: Arc<Group>,
    channel: Option<Arc<ChannelCore>>,
    events: Arc<AsyncQueue>,
}

#[derive(Debug)]
struct Queue {
    completions: VecDeque<Entry>,
    /// The work queues that complete here.
    owners: Vec<Option<Arc<Returned>>>,
    vacant: Vec<u32>,
    depth: usize,
    notify: Notify,
    arming: Arming,
    /// Callers that take what completes meanwhile.
    collectors: usize,
    overrun: bool,
}

/// A completion and the slots that it frees when it is polled.
#[derive(Debug)]
struct Entry {
    completion: WorkCompletion,
    owner: u32,
    slots: u32,
}

/// The program does not sleep.
const AWAKE: u32 = 0;

/// Each poll may be followed by sleep, and is taken for one of many of an event loop.
const DOZING: u32 = u32::MAX;

/// The owner of completions whose work queue has forgotten them.
const FORGOTTEN: u32 = u32::MAX;

impl Queue {
    /// Takes up to `max` completions, oldest first.
    #[inline]
    fn drain(&mut self, max: usize, mut f: impl FnMut(WorkCompletion)) -> usize {
        let Self { completions, owners, .. } = self;
        let n = max.min(completions.len());
        for Entry { completion, owner, slots } in (0..n).map_while(|_| completions.pop_front()) {
            free(owners, owner, slots);
            f(completion);
        }
        if completions.is_empty() {
            // It begins anew at its first place, which is in the CPU's nearest cache.
            completions.clear();
        }
        n
    }

    /// Frees the slots of this owner's completions, which free none later when they are polled.
    fn forget(&mut self, owner: u32) {
        let Self { completions, owners, .. } = self;
        for entry in completions.iter_mut().filter(|entry| entry.owner == owner) {
            free(owners, owner, entry.slots);
            entry.owner = FORGOTTEN;
        }
    }
}

#[inline]
fn free(owners: &[Option<Arc<Returned>>], owner: u32, slots: u32) {
    if let Some(Some(returned)) = owners.get(owner as usize) {
        returned.add(slots);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Notify {
    Off,
    Solicited,
    Next,
}

impl CqCore {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        depth: usize,
        channel: Option<Arc<ChannelCore>>,
        events: Arc<AsyncQueue>,
    ) -> io::Result<Arc<Self>> {
        // All that it can hold, so that no completion is ever in want of memory. Unused memory is
        // not touched: a queue that was emptied begins anew at its first place.
        let mut completions = VecDeque::new();
        completions.try_reserve_exact(depth).map_err(|_| OutOfMemory)?;
        iwarp_mem::afford()?;
        let group = Group::new(engine.group_worker(), engine.options.without);
        if let Some(channel) = &channel {
            channel.attach(Arc::clone(&group) as Arc<dyn PollSet>)?;
        }
        let this = Arc::new(Self {
            number: group.id(),
            queue: Mutex::new(Queue {
                completions,
                owners: Vec::new(),
                vacant: Vec::new(),
                depth,
                notify: Notify::Off,
                arming: Arming::new(engine.options.without),
                collectors: 0,
                overrun: false,
            }),
            len: AtomicU32::new(0),
            asleep: AtomicU32::new(AWAKE),
            group,
            channel,
            events,
        });
        let described: Weak<dyn Described> = Arc::<Self>::downgrade(&this);
        census::enter(this.place(), described);
        Ok(this)
    }

    fn place(&self) -> Place {
        census::of(Kind::CompletionQueue, self)
    }

    pub(crate) const fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// True if the program may sleep until the worker completes something.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) != AWAKE
    }

    /// The number of completions that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.len.load(Ordering::Acquire) as usize
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// From now on a work queue completes here; `returned` counts the slots that it gets back.
    pub(crate) fn enter(&self, returned: Arc<Returned>) -> Result<u32, OutOfMemory> {
        let mut queue = self.queue.lock();
        let Queue { owners, vacant, .. } = &mut *queue;
        if let Some(owner) = vacant.pop() {
            owners[owner as usize] = Some(returned);
            return Ok(owner);
        }
        owners.try_reserve(1).map_err(|_| OutOfMemory)?;
        // All may leave, which is to need no memory.
        vacant.try_reserve(owners.len() + 1).map_err(|_| OutOfMemory)?;
        owners.push(Some(returned));
        Ok((owners.len() - 1) as u32)
    }

    /// Detaches this owner's completions: its slots are free at once, and polling them frees none.
    pub(crate) fn forget(&self, owner: u32) {
        self.queue.lock().forget(owner);
    }

    /// Ends [`Self::enter`].
    pub(crate) fn leave(&self, owner: u32) {
        let mut queue = self.queue.lock();
        queue.forget(owner);
        let left = queue.owners[owner as usize].take();
        queue.vacant.push(owner);
        drop((queue, left));
    }

    /// Adds a completion of the work queue that has entered as `owner`, and how many of its slots
    /// are free again when it is polled. False when the queue is full: it is lost then.
    pub(crate) fn push(&self, completion: WorkCompletion, owner: u32, slots: u32) -> bool {
        let mut queue = self.queue.lock();
        if queue.completions.len() >= queue.depth {
            free(&queue.owners, owner, slots);
            if !std::mem::replace(&mut queue.overrun, true) {
                self.events.push(AsyncEvent::CqError { cq: self.number });
            }
            return false;
        }
        let solicited = completion.solicited || completion.status != WcStatus::Success;
        queue.completions.push_back(Entry { completion, owner, slots });
        self.len.store(queue.completions.len() as u32, Ordering::Release);
        let due = match queue.notify {
            Notify::Off => false,
            Notify::Solicited => solicited,
            Notify::Next => true,
        };
        if due && queue.collectors == 0 {
            self.raise(&mut queue);
        }
        true
    }

    /// Raises the event that was asked for.
    fn raise(&self, queue: &mut Queue) {
        queue.notify = Notify::Off;
        if self.group.known.is_any() {
            self.group.known.disarm();
        }
        if worker::is_turning() {
            queue.arming.raised_by_worker();
        }
        self.asleep.store(AWAKE, Ordering::Relaxed);
        self.group.handover.end_linger();
        if let Some(channel) = &self.channel {
            channel.push(self.number);
        }
    }

    /// The caller takes what completes until the result ends, so that it need not raise an event,
    /// which would pass through the channel only to be taken by the caller as well.
    pub(crate) fn collecting(&self) -> Collecting<'_> {
        self.queue.lock().collectors += 1;
        Collecting(self)
    }

    /// Completions it can hold.
    pub(crate) fn depth(&self) -> usize {
        self.queue.lock().depth
    }

    /// Changes that number, as [`CompletionQueue::resize`](crate::CompletionQueue::resize).
    pub(crate) fn resize(&self, depth: usize) -> io::Result<()> {
        let mut queue = self.queue.lock();
        if depth == 0 || queue.completions.len() > depth {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let more = depth - queue.completions.len();
        queue.completions.try_reserve_exact(more).map_err(|_| OutOfMemory)?;
        queue.depth = depth;
        Ok(())
    }

    /// Drops the completions of the queue pair with this number.
    pub(crate) fn discard(&self, qp: u32) {
        let mut queue = self.queue.lock();
        let Queue { completions, owners, .. } = &mut *queue;
        completions.retain(|Entry { completion, owner, slots }| {
            let is_others = completion.qp.0 != qp;
            if !is_others {
                free(owners, *owner, *slots);
            }
            is_others
        });
        self.len.store(queue.completions.len() as u32, Ordering::Release);
    }

    fn take(&self, out: &mut Vec<WorkCompletion>, max: usize) -> usize {
        if self.len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut queue = self.queue.lock();
        out.reserve(max.min(queue.completions.len()));
        let n = queue.drain(max, |completion| out.push(completion));
        if flaw::is(Flaw::CompletionTwice) && n > 2 {
            out.extend_from_within(out.len() - 1..);
        }
        self.len.store(queue.completions.len() as u32, Ordering::Release);
        n
    }

    fn take_each(&self, max: usize, f: impl FnMut(WorkCompletion)) -> usize {
        if self.len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut queue = self.queue.lock();
        let n = queue.drain(max, f);
        self.len.store(queue.completions.len() as u32, Ordering::Release);
        n
    }

    /// Takes the oldest completion there is, and moves nothing.
    #[inline]
    pub(crate) fn take_one(&self) -> Option<WorkCompletion> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut queue = self.queue.lock();
        let Queue { completions, owners, .. } = &mut *queue;
        let Entry { completion, owner, slots } = completions.pop_front()?;
        free(owners, owner, slots);
        if completions.is_empty() {
            // As in `drain`.
            completions.clear();
        }
        self.len.store(queue.completions.len() as u32, Ordering::Release);
        Some(completion)
    }

    /// Takes up to `max` completions. If there are none the caller thread moves the group's streams
    /// first.
    pub(crate) fn poll(&self, out: &mut Vec<WorkCompletion>, max: usize) -> usize {
        self.poll_by(|cq| cq.take(out, max))
    }

    /// As [`Self::poll`], but calls `f` with each completion while the queue is locked.
    pub(crate) fn poll_each(&self, max: usize, mut f: impl FnMut(WorkCompletion)) -> usize {
        self.poll_by(|cq| cq.take_each(max, &mut f))
    }

    fn poll_by(&self, mut take: impl FnMut(&Self) -> usize) -> usize {
        let holds = self.group.polls.count();
        let n = take(self);
        if n > 0 {
            if holds {
                self.group.drive(By::Caller);
            }
            self.group.handover.found();
            return n;
        }
        if self.is_last_look() {
            self.group.drive(By::Caller);
            return take(self);
        }
        let mut call = self.group.handover.poll();
        let polled = self.group.poll();
        let n = take(self);
        if n > 0 || polled == Polled::Moved {
            call.found();
        } else {
            call.found_nothing();
            // An event loop may poll with a lock held that its other threads spin for.
            if self.asleep.load(Ordering::Relaxed) != DOZING {
                self.rest(polled);
            }
        }
        n
    }

    /// True if a poll is the program's last look before it goes to sleep, which begins no lease.
    /// False if it goes on polling.
    fn is_last_look(&self) -> bool {
        let looks = self.asleep.load(Ordering::Relaxed);
        if looks <= 1 || looks == DOZING {
            return false;
        }
        // A completion may just have ended it.
        let relaxed = Ordering::Relaxed;
        self.asleep.compare_exchange(looks, looks - 1, relaxed, relaxed).is_ok()
    }

    /// A program that polls an empty queue must not keep the CPU from its peer.
    fn rest(&self, polled: Polled) {
        let rest = match polled {
            Polled::Nothing(rest) => rest,
            Polled::Moved => return,
            // The thread that drives may need this CPU.
            Polled::Taken => return self.group.clock().yield_now(),
        };
        if rest == Rest::None {
            return;
        }
        let others = self.group.lend_a_hand();
        if rest == Rest::Lend || others == Some(true) {
            return;
        }
        match rest {
            // The descriptors that the others wait for would not wake it.
            Rest::Sleep(time) if others.is_none() => {
                let came = self.group.sleep(time);
                self.group.has_rested(|backoff| backoff.has_slept(came));
            }
            _ => {
                let clock = self.group.clock();
                let before = clock.nanos();
                clock.yield_now();
                let took = clock.nanos() - before;
                self.group.has_yielded(took);
            }
        }
    }

    /// Has the next completion, or the next solicited one, raise an event on the channel, once.
    pub(crate) fn request_notify(&self, solicited_only: bool) {
        let sleeps = self.channel.as_ref().is_some_and(|channel| !channel.is_driven());
        let lingers = {
            let mut queue = self.queue.lock();
            let again = queue.notify != Notify::Off;
            let lingers = sleeps && queue.arming.armed(again, self.group.polls.all());
            // The wider request wins, as with ibv_req_notify_cq.
            if !solicited_only {
                queue.notify = Notify::Next;
            } else if queue.notify == Notify::Off {
                queue.notify = Notify::Solicited;
            }
            let looks = match sleeps {
                true if lingers => DOZING,
                true => LOOP + 1,
                false => AWAKE,
            };
            self.asleep.store(looks, Ordering::Relaxed);
            if sleeps && self.group.known.is_any() {
                self.arm_for_others(queue.notify == Notify::Solicited);
            }
            lingers
        };
        if lingers {
            self.group.linger();
        } else if sleeps {
            self.group.leave_to_worker();
        }
    }

    /// Processes that know the queue signal the channel's descriptor, on which the program may
    /// sleep.
    fn arm_for_others(&self, solicited_only: bool) {
        if let Some(events) = self.channel.as_ref().and_then(|channel| channel.share()) {
            self.group.known.arm(events, solicited_only);
        }
    }

    /// The process at the other end of `by` brings about completions here, and is to know the queue
    /// as it is told by `tell`. Does nothing where no program waits for events.
    pub(crate) fn become_known(&self, by: &Arc<Channel>, tell: impl FnOnce(&KnownQueue)) {
        if self.channel.is_some() && !self.group.without(Behaviours::ALERTS) {
            self.group.known.by(by, tell);
        }
    }
}

/// No completion raises an event while one of these exists. If some are left at its end, the event
/// that was asked for is raised.
#[derive(Debug)]
pub(crate) struct Collecting<'a>(&'a CqCore);

impl Collecting<'_> {
    /// Ends it, and has the next completion raise an event. True where some wait already, for which
    /// the caller comes back.
    pub(crate) fn end_armed(self) -> bool {
        let mut queue = self.0.queue.lock();
        // Not dropped: it ends here.
        std::mem::forget(self);
        queue.collectors -= 1;
        queue.notify = Notify::Next;
        !queue.completions.is_empty()
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.collectors -= 1;
        if queue.collectors == 0 && queue.notify != Notify::Off && !queue.completions.is_empty() {
            self.0.raise(&mut queue);
        }
    }
}

impl Described for CqCore {
    fn describe(&self, to: &mut Object) {
        let queue = self.queue.lock();
        to.number("number", self.number);
        to.count("depth", queue.depth);
        to.count("waiting", queue.completions.len());
        let armed = match queue.notify {
            Notify::Off => "no",
            Notify::Solicited => "solicited",
            Notify::Next => "next",
        };
        to.text("armed", armed);
        to.flag("overrun", queue.overrun);
        drop(queue);
        to.number("polls", self.group.polls.all());
        if let Some(channel) = &self.channel {
            to.object("channel", |to| channel.describe(to));
        }
    }
}

impl Drop for CqCore {
    fn drop(&mut self) {
        census::leave(self.place());
        if let Some(channel) = &self.channel {
            channel.detach(&(Arc::clone(&self.group) as Arc<dyn PollSet>));
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use iwarp_types::{QpId, WcOp};

    use super::*;
    use crate::Device;

    /// An armed queue whose channel only the library waits at.
    fn armed() -> (Arc<CqCore>, Arc<ChannelCore>) {
        let pd = Device::open().unwrap().alloc_pd();
        let core = pd.core.check().unwrap();
        let channel = ChannelCore::new().unwrap();
        channel.set_driven();
        let events = Arc::clone(&core.events);
        let cq = CqCore::new(&core.engine, 8, Some(Arc::clone(&channel)), events).unwrap();
        cq.request_notify(false);
        (cq, channel)
    }

    fn complete(cq: &CqCore) {
        assert!(cq.push(WorkCompletion::new(1, QpId(1), WcOp::Send, WcStatus::Success), 0, 0));
    }

    #[test]
    fn a_collected_completion_raises_no_event() {
        let (cq, channel) = armed();
        let collecting = cq.collecting();
        complete(&cq);
        assert!(cq.take_one().is_some());
        drop(collecting);
        assert_eq!(channel.take_ready(), None);
        // It is armed still.
        complete(&cq);
        assert!(channel.take_ready().is_some());
    }

    #[test]
    fn a_completion_left_by_the_last_collector_raises_the_event() {
        let (cq, channel) = armed();
        let collectors = [cq.collecting(), cq.collecting()];
        complete(&cq);
        for collecting in collectors {
            assert_eq!(channel.take_ready(), None);
            drop(collecting);
        }
        assert!(channel.take_ready().is_some());
        drop(cq.collecting());
        assert_eq!(channel.take_ready(), None, "it was raised once");
    }

    #[test]
    fn a_collector_that_comes_back_learns_what_it_leaves() {
        let (cq, channel) = armed();
        let collecting = cq.collecting();
        complete(&cq);
        assert!(collecting.end_armed());
        assert_eq!(channel.take_ready(), None);
        assert!(cq.take_one().is_some());
        assert!(!cq.collecting().end_armed());
        complete(&cq);
        assert!(channel.take_ready().is_some());
    }
}
