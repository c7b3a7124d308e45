// SPDX-License-Identifier: MIT OR Apache-2.0

//! The thread that serves what no caller drives: poll groups, connection set-up, and everything
//! that has a time. A simulator has workers without threads, and says when they take their turns.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_os::thread::{self, Thread};
use iwarp_os::{Epoll, EventFd, EventFdKind, Events, FdPlace, Interest, Ready};
use iwarp_types::Time;

use crate::capture;
use crate::engine::attend;
use crate::engine::handover::Cause;
use crate::engine::policy::table::FEW;
use crate::engine::poll_set::PollSet;
use crate::engine::pool::prepare_thread;
use crate::engine::sync::{AtomicBool, Mutex, Ordering};
use crate::engine::tasks::{Tasks, WAKE, next_id};
use crate::engine::users::{self, Keeper, Lookout};
use crate::flaw::{self, Flaw};
use crate::port::Clock;

thread_local! {
    /// This thread is in a worker's turn.
    static IN_TURN: Cell<bool> = const { Cell::new(false) };
}

/// True if this thread does a worker's work at the moment, and not a caller's.
pub(crate) fn is_turning() -> bool {
    IN_TURN.get()
}

/// See the [module](self).
pub(crate) struct Worker {
    /// The clock of everything that it looks after.
    clock: Clock,
    /// Their epoll is the one on which the thread sleeps.
    tasks: Arc<Tasks>,
    wake: EventFd,
    stop: AtomicBool,
    state: Mutex<WorkerState>,
    thread: Mutex<Option<Thread>>,
    has_thread: bool,
}

/// The state that the one that turns a worker keeps from turn to turn.
#[derive(Debug)]
pub(crate) struct Turner {
    events: Events,
}

#[derive(Default)]
struct WorkerState {
    groups: HashMap<u64, Weak<dyn PollSet>>,
    accept_sets: HashMap<u64, Weak<dyn PollSet>>,
    /// Ordered by their time, and by their number if the times are equal.
    timers: BTreeMap<(Time, u64), Due>,
    serial: u64,
    /// The group that [`Worker::other_group`] named last.
    helped: u64,
    sleep: Sleep,
}

/// The act of the thread.
#[derive(Default)]
enum Sleep {
    /// It works, and looks at the timers before it sleeps.
    #[default]
    Awake,
    Until(Time),
    Forever,
}

enum Due {
    Look(u64),
    Call(Box<dyn FnOnce() + Send>),
    Timed(Weak<dyn Timed>),
}

/// Something that has times of its own, called without an allocation for each.
pub(crate) trait Timed: Send + Sync {
    /// The time has come.
    fn due(self: Arc<Self>);
}

/// A call to come, which dropping this cancels unless it is under way.
#[derive(Debug)]
pub(crate) struct Deadline {
    worker: Arc<Worker>,
    key: (Time, u64),
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let cancelled = self.worker.state.lock().timers.remove(&self.key);
        // Without the lock: with it may go the last reference to what it would have worked on.
        drop(cancelled);
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl Keeper for Worker {
    fn wake(&self) {
        Self::wake(self);
    }
}

impl Worker {
    /// Starts the thread, which goes by the system's clock.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let worker = Arc::new(Self::new(Clock::system(), true)?);
        let its = Arc::clone(&worker);
        users::enter();
        users::add_keeper(Arc::downgrade(&worker) as Weak<dyn Keeper>);
        *worker.thread.lock() = Some(thread::spawn_blocked("iwarp", move || its.run())?);
        Ok(worker)
    }

    /// One that its owner turns, by [`Self::turn`].
    pub(crate) fn without_thread(clock: Clock) -> io::Result<Arc<Self>> {
        Self::new(clock, false).map(Arc::new)
    }

    fn new(clock: Clock, has_thread: bool) -> io::Result<Self> {
        let worker = Self {
            clock,
            tasks: Tasks::new()?,
            wake: EventFd::new(EventFdKind::Counter, FdPlace::Internal)?,
            stop: AtomicBool::new(false),
            state: Mutex::new(WorkerState::default()),
            thread: Mutex::new(None),
            has_thread,
        };
        worker.tasks.epoll().add(&worker.wake, WAKE, Interest::READ)?;
        // A sandbox that forbids waiting is noticed here, not by connections that never move.
        worker.tasks.epoll().wait(&mut Events::with_capacity(1), Some(Duration::ZERO))?;
        Ok(worker)
    }

    /// The clock of everything that it looks after.
    pub(crate) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// True if it has a thread, and so takes its turns by itself.
    pub(crate) const fn has_thread(&self) -> bool {
        self.has_thread
    }

    /// Ends the thread, and waits for that unless it is the caller.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|thread| !thread.is_current()) {
            thread.join();
        }
        // A task that waits here for descriptors and times holds the worker that it waits at.
        self.tasks.clear();
        let timers = std::mem::take(&mut self.state.lock().timers);
        drop(timers);
    }

    /// A number that nothing else has, at no worker.
    pub(crate) fn next_id(&self) -> u64 {
        next_id()
    }

    /// The tasks that its thread serves.
    pub(crate) const fn tasks(&self) -> &Arc<Tasks> {
        &self.tasks
    }

    /// Looks after a group from now on, until [`Self::forget_group`]. The epoll is the group's.
    pub(crate) fn add_group(
        &self,
        id: u64,
        group: Weak<dyn PollSet>,
        epoll: &Epoll,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        state.groups.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.tasks.epoll().add(epoll, id, Interest::READ.one_shot())?;
        state.groups.insert(id, group);
        Ok(())
    }

    /// The group is gone.
    pub(crate) fn forget_group(&self, id: u64) {
        self.state.lock().groups.remove(&id);
    }

    /// Looks after the sockets of a listener, likewise, until it is dropped.
    pub(crate) fn add_accept_set(
        &self,
        id: u64,
        set: Weak<dyn PollSet>,
        epoll: &Epoll,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        state.accept_sets.retain(|_, set| set.strong_count() > 0);
        state.accept_sets.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
        state.accept_sets.insert(id, set);
        self.tasks.epoll().add(epoll, id, Interest::READ.one_shot())
    }

    /// Another group than the one with that number: each in its turn, where there are few.
    pub(crate) fn other_group(&self, own: u64) -> Option<Arc<dyn PollSet>> {
        let mut state = self.state.lock();
        if state.groups.len() > FEW as usize {
            return None;
        }
        let helped = state.helped;
        let others = state.groups.keys().copied().filter(|id| *id != own);
        // The one behind it, or the first again.
        let next = others.min_by_key(|id| (*id <= helped, *id))?;
        state.helped = next;
        state.groups.get(&next)?.upgrade()
    }

    /// Its epoll reports a poll set once from now on, at once if something is ready.
    pub(crate) fn report_once(&self, id: u64, epoll: &Epoll) {
        let armed = self.tasks.epoll().modify(epoll, id, Interest::READ.one_shot());
        if let Err(error) = armed {
            tracing::error!(%error, "cannot wait for a poll group");
        }
    }

    /// Looks at a poll set at that time of its clock.
    pub(crate) fn look_again(&self, set: &dyn PollSet, at: u64) {
        self.push_timer(Time(Duration::from_nanos(at)), Due::Look(set.id()));
    }

    /// Calls `what` on the worker's thread at that time.
    pub(crate) fn at(&self, at: Time, what: Box<dyn FnOnce() + Send>) {
        self.push_timer(at, Due::Call(what));
    }

    /// Calls `what` on the worker's thread as soon as it can.
    pub(crate) fn soon(&self, what: Box<dyn FnOnce() + Send>) {
        self.at(self.clock.now(), what);
    }

    /// Calls `what` after a pause, if `of` is still there.
    pub(crate) fn after<T: Send + Sync + 'static>(
        &self,
        pause: Duration,
        of: &Weak<T>,
        what: impl FnOnce(&T) + Send + 'static,
    ) {
        let of = Weak::clone(of);
        let call = move || {
            if let Some(of) = of.upgrade() {
                what(&of);
            }
        };
        self.at(self.clock.now().plus(pause), Box::new(call));
    }

    /// As [`Self::at`], unless the result is dropped before.
    pub(crate) fn deadline(self: &Arc<Self>, at: Time, what: Box<dyn FnOnce() + Send>) -> Deadline {
        Deadline { worker: Arc::clone(self), key: self.push_timer(at, Due::Call(what)) }
    }

    /// Calls `what`, unless the result is dropped before.
    pub(crate) fn deadline_of(self: &Arc<Self>, at: Time, what: Weak<dyn Timed>) -> Deadline {
        Deadline { worker: Arc::clone(self), key: self.push_timer(at, Due::Timed(what)) }
    }

    /// Has this worker write the packets of the process's capture, for as long as it runs.
    pub(crate) fn write_captures(worker: Weak<Self>) {
        capture::write_later_by(move || {
            worker.upgrade().is_some_and(|worker| worker.write_capture_later())
        });
    }

    /// Writes the packets of the process's capture that wait, a little later. False if the worker
    /// stops.
    fn write_capture_later(&self) -> bool {
        let goes_on = !self.stop.load(Ordering::SeqCst);
        if goes_on {
            self.at(self.clock.now().plus(capture::DELAY), Box::new(capture::write_out));
        }
        goes_on
    }

    fn push_timer(&self, at: Time, what: Due) -> (Time, u64) {
        let mut state = self.state.lock();
        state.serial += 1;
        let key = (at, state.serial);
        state.timers.insert(key, what);
        let too_late = match state.sleep {
            Sleep::Awake => false,
            Sleep::Until(until) => at < until,
            Sleep::Forever => true,
        };
        drop(state);
        if too_late && !flaw::is(Flaw::TimerWakesNobody) {
            self.wake();
        }
        key
    }

    pub(super) fn wake(&self) {
        // Only fails when the counter is full, and then the thread is awake.
        let _ = self.wake.signal();
    }

    fn run(&self) {
        let mut turner = self.turner();
        // Now rather than in the midst of traffic.
        prepare_thread();
        let _staying = iwarp_mem::stay_admitted_to_faults();
        let mut lookout = Lookout::default();
        while !self.stop.load(Ordering::SeqCst) {
            let own = lookout.look(|| self.clock.now());
            let timeout = self.fall_asleep().into_iter().chain(own).min();
            if let Err(error) = self.turn(&mut turner, timeout) {
                tracing::error!(%error, "the worker cannot wait any more");
                return;
            }
        }
    }

    /// For [`Self::turn`].
    pub(crate) fn turner(&self) -> Turner {
        Turner { events: Events::with_capacity(64) }
    }

    /// One turn: sleeps until something is ready, for `timeout` at most, and does what is ready and
    /// what is due. [`Self::fall_asleep`] comes before it.
    pub(crate) fn turn(&self, turner: &mut Turner, timeout: Option<Duration>) -> io::Result<()> {
        let waited = self.tasks.epoll().wait(&mut turner.events, timeout);
        self.state.lock().sleep = Sleep::Awake;
        match waited {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        IN_TURN.set(true);
        for ready in turner.events.iter() {
            self.dispatch(ready);
        }
        self.run_timers();
        IN_TURN.set(false);
        Ok(())
    }

    /// From now on a timer that is set for an earlier time wakes it. Returns the time for which it
    /// may sleep.
    pub(crate) fn fall_asleep(&self) -> Option<Duration> {
        let mut state = self.state.lock();
        let first = state.timers.keys().next().map(|(at, _)| *at);
        state.sleep = first.map_or(Sleep::Forever, Sleep::Until);
        Some(first?.0.saturating_sub(self.clock.now().0))
    }

    /// The time at which it has said that it wakes, if nothing is ready before; `None`: never.
    pub(crate) fn sleeps_until(&self) -> Option<Time> {
        match self.state.lock().sleep {
            Sleep::Awake => Some(Time::default()),
            Sleep::Until(at) => Some(at),
            Sleep::Forever => None,
        }
    }

    fn dispatch(&self, ready: Ready) {
        if ready.token == WAKE {
            let _ = self.wake.drain();
            return;
        }
        if let Some(set) = self.poll_set(ready.token) {
            attend::look_after(&*set, Cause::Fired, 0);
        } else if let Some(task) = self.tasks.find(ready.token) {
            task.ready(ready);
        }
    }

    /// The poll set with that number.
    fn poll_set(&self, id: u64) -> Option<Arc<dyn PollSet>> {
        let state = self.state.lock();
        state.groups.get(&id).or_else(|| state.accept_sets.get(&id))?.upgrade()
    }

    fn run_timers(&self) {
        loop {
            let (at, due) = {
                let mut state = self.state.lock();
                match state.timers.first_entry() {
                    Some(first) if first.key().0 <= self.clock.now() => first.remove_entry(),
                    _ => return,
                }
            };
            match due {
                Due::Call(what) => what(),
                Due::Timed(what) => {
                    if let Some(what) = what.upgrade() {
                        what.due();
                    }
                }
                Due::Look(id) => {
                    if let Some(set) = self.poll_set(id) {
                        let at = u64::try_from(at.0.0.as_nanos()).unwrap_or(u64::MAX);
                        attend::look_after(&*set, Cause::Time, at);
                    }
                }
            }
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;
    use crate::engine::group::Group;
    use crate::engine::policy::Behaviours;

    #[test]
    fn an_idle_poller_helps_the_other_groups_in_turn() {
        let worker = Worker::start().unwrap();
        let group = || {
            let group = Group::new(&worker, Behaviours::empty());
            PollSet::epoll(&*group).unwrap();
            group
        };
        let idle = group();
        assert!(worker.other_group(idle.id()).is_none(), "there is only its own");
        let others = [group(), group()];
        let mut helped: Vec<u64> =
            (0..4).map(|_| worker.other_group(idle.id()).expect("two others").id()).collect();
        helped.sort_unstable();
        let [a, b] = others.each_ref().map(|group| group.id());
        assert_eq!(helped, [a, a, b, b]);
        let crowd: Vec<_> = (0..FEW).map(|_| group()).collect();
        assert!(worker.other_group(idle.id()).is_none(), "too many to look at");
        drop(crowd);
        worker.stop();
    }
}
