// SPDX-License-Identifier: MIT OR Apache-2.0

//! A completion channel: the events that wait, and the callers that wait for them.
//!
//! C programs cancel threads that wait. Such a thread sleeps in the C library's `poll`, called from
//! a frame that owns nothing (`CompletionChannel::look`). A thread-local holds the thread's place
//! among those that serve the connections, and its destructor runs however the thread ends.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_mem::OutOfMemory;
use iwarp_os::{Epoll, EventFd, EventFdKind, Events, FdPlace, Interest, ProcessOwned};

use crate::engine::clock::now;
use crate::engine::poll_set::{By, PollSet, Waiting};
use crate::engine::server::Server;
use crate::engine::sync::{AtomicBool, AtomicU8, Mutex, Ordering};
use crate::report::Object;

/// Events taken in a row without waiting for them here, after which the program is taken to sleep
/// elsewhere.
const TAKEN_READY: u8 = 8;

/// So many poll groups are tried in turn as quickly as the system is asked which of them is ready.
const FEW: usize = 2;

/// So many times in a row less one the descriptor is not looked at where no alert is found.
const UNLOOKED: u8 = 16;

/// Armings at which a descriptor is looked at that may become non-blocking.
const LOOKS: u8 = 64;

/// Token of the descriptor that says that events wait; groups have their own numbers.
const EVENT: u64 = 0;

/// Completion events that wait, and the poll groups that can bring more.
#[derive(Debug)]
pub(crate) struct ChannelCore {
    events: Mutex<Waitlist>,
    /// Readable while events wait, but for those which a caller that is awake is about to take; and
    /// once another process has sent a message of which it is to tell.
    fd: Arc<EventFd>,
    /// The event descriptor and the groups, for a caller that blocks.
    epoll: Epoll,
    groups: Mutex<Vec<Weak<dyn PollSet>>>,
    /// The program waits here, in a call of the library, and not in `poll` on the descriptor.
    blocks: AtomicBool,
    taken_ready: AtomicU8,
    /// A task or an event loop sleeps on `epoll` and moves the connections.
    has_driver: AtomicBool,
    /// Other processes may signal the descriptor.
    is_shared: AtomicBool,
    /// Armings that are left in which the program may have made the descriptor non-blocking before
    /// others may signal it.
    looks: AtomicU8,
    /// Takes events for which no caller waits.
    server: Option<Server>,
}

/// Events, each the number of its completion queue, and how the descriptor counts them.
#[derive(Debug, Default)]
struct Waitlist {
    events: VecDeque<u64>,
    /// Callers that move connections and look here before they sleep.
    awake: usize,
    /// Events of which the descriptor does not tell: at most one for each caller that is awake.
    untold: usize,
    /// Signals of the descriptor that tell of the others: one for each event, as a program that
    /// waits for edges is woken by each.
    told: u64,
    /// Alerts of other processes whose signals were not taken from the descriptor yet, less those
    /// whose signals were taken before the alerts were found.
    due: i64,
    /// Times in a row that the descriptor was not looked at.
    unlooked: u8,
    /// The number of times that a caller woke.
    wakes: usize,
    /// The one that moved its connections is gone.
    ended: bool,
}

impl Waitlist {
    /// The oldest event, of which the descriptor tells no more, and whether another process has
    /// signalled that beside it: then the caller answers it.
    fn pop(&mut self, fd: &EventFd) -> Option<(u64, bool)> {
        let event = self.events.pop_front()?;
        Some((event, self.took(1, fd)))
    }

    /// As [`Self::pop`]; the descriptor goes on telling of what another process has signalled.
    fn pop_only(&mut self, fd: &EventFd) -> Option<u64> {
        let (event, is_alerted) = self.pop(fd)?;
        if is_alerted {
            self.alert_again(fd);
        }
        Some(event)
    }

    /// The descriptor is to tell of what another process has signalled, which was taken from it.
    fn alert_again(&mut self, fd: &EventFd) {
        self.due += 1;
        let _ = fd.signal();
    }

    /// So many events were taken out. True if another process has signalled the descriptor, which
    /// tells no more of it.
    fn took(&mut self, events: usize, fd: &EventFd) -> bool {
        self.untold = self.untold.saturating_sub(events);
        if self.told == 0 || self.events.len() > self.untold {
            return false;
        }
        self.takes_signals(fd)
    }

    /// Takes all signals from the descriptor. True if another process has made some of them.
    fn takes_signals(&mut self, fd: &EventFd) -> bool {
        let told = std::mem::take(&mut self.told);
        let alerts = self.drain(fd).saturating_sub(told);
        self.due = self.due.saturating_sub_unsigned(alerts);
        alerts > 0
    }

    /// The descriptor tells of the events that no caller takes.
    fn tell(&mut self, fd: &EventFd) {
        self.told += 1;
        let _ = fd.signal();
    }

    /// The number of signals there were.
    fn drain(&self, fd: &EventFd) -> u64 {
        let signals = fd.drain().unwrap_or(0);
        if self.ended {
            let _ = fd.signal();
        }
        signals
    }

    /// True if another process has signalled the descriptor since this was asked.
    fn was_alerted(&mut self, fd: &EventFd) -> bool {
        if self.told > 0 {
            return false;
        }
        self.unlooked = 0;
        self.takes_signals(fd) && !self.ended
    }

    /// True if the signals of all alerts that were found were taken: if no more are found, there
    /// are none. Now and then false, for processes that signal without need.
    fn has_all_signals(&mut self) -> bool {
        self.unlooked = self.unlooked.wrapping_add(1);
        self.due == 0 && self.unlooked < UNLOOKED
    }

    /// A caller that was awake sleeps, or takes no more.
    fn leave(&mut self, channel: &ChannelCore) {
        self.awake -= 1;
        if self.untold > self.awake {
            self.untold = self.awake;
            channel.tell(self);
        }
    }
}

/// A caller that moves connections: an event that comes meanwhile is taken by it, and not by way of
/// the descriptor, which would cost two or three system calls.
pub(crate) struct Awake<'a> {
    channel: &'a ChannelCore,
    /// The ready group that is moved first: another each time, so that no queue pair starves.
    first: usize,
}

impl Awake<'_> {
    fn has_event(&self) -> bool {
        !self.channel.events.lock().events.is_empty()
    }

    /// Takes an event if there is one; the caller may go to sleep now.
    pub(crate) fn take(self) -> Option<u64> {
        let channel = self.channel;
        // Not dropped: it leaves under the lock that is held here.
        std::mem::forget(self);
        let mut list = channel.events.lock();
        let event = list.pop_only(&channel.fd);
        list.leave(channel);
        event
    }
}

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.channel.events.lock().leave(self.channel);
    }
}

impl ChannelCore {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        Self::on(EventFd::new(EventFdKind::Counter, FdPlace::Program)?)
    }

    /// One whose events `server` takes where no caller waits for them.
    pub(crate) fn served(server: Server) -> io::Result<Arc<Self>> {
        Self::with(EventFd::new(EventFdKind::Counter, FdPlace::Internal)?, Some(server))
    }

    /// One of whose events this descriptor tells.
    pub(crate) fn on(fd: EventFd) -> io::Result<Arc<Self>> {
        Self::with(fd, None)
    }

    fn with(fd: EventFd, server: Option<Server>) -> io::Result<Arc<Self>> {
        iwarp_mem::afford()?;
        let core = Self {
            events: Mutex::default(),
            fd: Arc::new(fd),
            epoll: Epoll::new(FdPlace::Internal)?,
            groups: Mutex::new(Vec::new()),
            blocks: AtomicBool::new(false),
            taken_ready: AtomicU8::new(0),
            has_driver: AtomicBool::new(false),
            is_shared: AtomicBool::new(false),
            looks: AtomicU8::new(LOOKS),
            server,
        };
        core.epoll.add(&*core.fd, EVENT, Interest::READ)?;
        Ok(Arc::new(core))
    }

    pub(crate) fn attach(&self, group: Arc<dyn PollSet>) -> io::Result<()> {
        let mut groups = self.groups.lock();
        groups.try_reserve(1).map_err(|_| OutOfMemory)?;
        // So that each has room for an event at any time.
        let most = groups.len() + 1;
        let mut events = self.events.lock();
        let more = most.saturating_sub(events.events.len());
        events.events.try_reserve(more).map_err(|_| OutOfMemory)?;
        drop(events);
        self.epoll.add(group.epoll()?, group.id(), Interest::READ)?;
        groups.push(Arc::downgrade(&group));
        Ok(())
    }

    pub(crate) fn detach(&self, group: &Arc<dyn PollSet>) {
        // Both are ours and open.
        let _ = group.epoll().map(|epoll| self.epoll.delete(epoll));
        self.groups.lock().retain(|other| !std::ptr::addr_eq(other.as_ptr(), Arc::as_ptr(group)));
        self.discard(group.id());
    }

    /// For other processes: events that the program has not taken, and whether a thread of it waits
    /// for some in a call of this library.
    pub(crate) fn describe(&self, to: &mut Object) {
        to.count("events", self.events.lock().events.len());
        to.flag("blocks", self.blocks.load(Ordering::Relaxed));
    }

    /// Drops the events of the completion queue with this number.
    pub(crate) fn discard(&self, number: u64) {
        let mut list = self.events.lock();
        let before = list.events.len();
        list.events.retain(|event| *event != number);
        let gone = before - list.events.len();
        if gone > 0 && list.took(gone, &self.fd) {
            list.alert_again(&self.fd);
        }
    }

    /// The descriptor is changed under the lock of the events, so that it is readable exactly
    /// while there are some that no caller is about to take.
    pub(crate) fn push(&self, cq: u64) {
        let mut list = self.events.lock();
        if list.events.try_reserve(1).is_err() {
            // There was room for one of each queue.
            tracing::error!(cq, "out of memory: only one of several completion events is reported");
            return;
        }
        list.events.push_back(cq);
        if list.untold < list.awake {
            list.untold += 1;
        } else {
            self.tell(&mut list);
        }
    }

    /// Tells of an event that no caller takes: the server, or else by the descriptor.
    fn tell(&self, list: &mut Waitlist) {
        if !self.server.as_ref().is_some_and(Server::call) {
            list.tell(&self.fd);
        }
    }

    /// As [`Self::push`], unless one of that queue waits already.
    pub(crate) fn push_once(&self, cq: u64) {
        if !self.events.lock().events.contains(&cq) {
            self.push(cq);
        }
    }

    /// The oldest event. Where another process has signalled the descriptor, what it has sent is
    /// moved first, and there is an event in any case: the program may have found the descriptor
    /// readable, and would wait here.
    fn pop(&self) -> Option<u64> {
        let mut list = self.events.lock();
        let mut found = list.pop(&self.fd);
        if found.is_none() {
            if !self.is_shared.load(Ordering::Relaxed) {
                return None;
            }
            if list.has_all_signals() {
                drop(list);
                if self.finds_no_alert() {
                    return None;
                }
                list = self.events.lock();
                // Another thread may have brought one meanwhile, of which the descriptor tells.
                found = list.pop(&self.fd);
            }
        }
        let (event, is_alerted) = match found {
            Some((event, is_alerted)) => (Some(event), is_alerted),
            None => (None, list.was_alerted(&self.fd)),
        };
        drop(list);
        if is_alerted { self.answer_alert(event) } else { event }
    }

    /// False if other processes have signalled the descriptor, or are about to. Spares a system
    /// call where the queues are few.
    fn finds_no_alert(&self) -> bool {
        let groups = self.groups.lock();
        let is_alerted =
            |set: &Weak<dyn PollSet>| set.upgrade().is_some_and(|set| set.is_alerted());
        groups.len() <= FEW && !groups.iter().any(is_alerted)
    }

    #[cold]
    fn answer_alert(&self, event: Option<u64>) -> Option<u64> {
        let awake = self.wake();
        let some = self.drive_alerted();
        match event {
            Some(_) => event,
            // A process signals a moment after what it has sent can be found: its event may have
            // been taken already.
            None => awake.take().or(some),
        }
    }

    /// Moves what other processes have sent that have signalled the descriptor, or are about to.
    /// The number of one of the queues in which they complete.
    fn drive_alerted(&self) -> Option<u64> {
        let sets: Vec<_> = self.groups.lock().iter().filter_map(Weak::upgrade).collect();
        let alerts: Vec<_> = sets.iter().map(|set| set.alerts()).collect();
        let due = alerts.iter().sum::<u64>();
        self.events.lock().due += due.cast_signed();
        let alerted = sets.iter().zip(alerts).filter(|(_, alerts)| *alerts > 0).map(|(set, _)| set);
        alerted.clone().for_each(|set| set.answer_alert());
        let known = || sets.iter().find(|set| set.may_be_alerted()).or(sets.first());
        alerted.into_iter().next().or_else(known).map(|set| set.id())
    }

    /// Another process may signal the descriptor from now on, if this returns it. A signal may come
    /// a moment after its event was taken, and then has an event without a completion. Programs
    /// whose calls wait rely on one, so others signal no descriptor of theirs.
    pub(crate) fn share(&self) -> Option<&Arc<EventFd>> {
        if self.server.is_some() {
            // No thread may be looking at the descriptor.
            return None;
        }
        if !self.is_shared.load(Ordering::Relaxed) {
            // A descriptor that never becomes so is not asked for ever.
            let left = self.looks.load(Ordering::Relaxed).checked_sub(1)?;
            self.looks.store(left, Ordering::Relaxed);
            self.fd.is_nonblocking().ok().filter(|is| *is)?;
            self.is_shared.store(true, Ordering::Relaxed);
        }
        Some(&self.fd)
    }

    /// The server of its events, where it has one.
    pub(crate) const fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    pub(crate) fn wake(&self) -> Awake<'_> {
        let mut list = self.events.lock();
        list.awake += 1;
        list.wakes = list.wakes.wrapping_add(1);
        Awake { channel: self, first: list.wakes }
    }

    /// True if the thread that waits for the next event moves the connections meanwhile, so that
    /// the worker may stay away.
    pub(crate) fn is_driven(&self) -> bool {
        self.blocks.load(Ordering::Relaxed) || self.has_driver.load(Ordering::Relaxed)
    }

    /// An event was there already, so the program may have slept on the descriptor.
    pub(crate) fn take_ready(&self) -> Option<u64> {
        let event = self.pop()?;
        if self.blocks.load(Ordering::Relaxed)
            && self.taken_ready.fetch_add(1, Ordering::Relaxed) >= TAKEN_READY
        {
            self.blocks.store(false, Ordering::Relaxed);
        }
        Some(event)
    }

    /// From now on the one that waits for its events moves the connections meanwhile.
    pub(crate) fn set_driven(&self) {
        self.has_driver.store(true, Ordering::Relaxed);
    }

    /// Readable while events wait.
    pub(crate) const fn event_fd(&self) -> &Arc<EventFd> {
        &self.fd
    }

    /// Ends a channel whose connections a task or an event loop moved: the descriptor is readable
    /// from now on, and to wait is an error.
    pub(crate) fn end(&self) {
        self.has_driver.store(false, Ordering::Relaxed);
        self.events.lock().ended = true;
        let _ = self.fd.signal();
    }

    /// Readable while events wait or a connection is ready.
    pub(crate) fn readiness(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn will_block(&self) {
        self.taken_ready.store(0, Ordering::Relaxed);
        self.blocks.store(true, Ordering::Relaxed);
    }

    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<u64>> {
        if let Some(event) = self.take_ready() {
            return Ok(Some(event));
        }
        let mut seat = Seat::take()?;
        let result = self.wait_with(&mut seat, timeout);
        seat.leave();
        seat.keep();
        result
    }

    fn wait_with(&self, seat: &mut Seat, timeout: Option<Duration>) -> io::Result<Option<u64>> {
        let deadline = timeout.map(|timeout| now().plus(timeout));
        self.sit_down(seat);
        loop {
            let mut list = self.events.lock();
            let (event, ended) = (list.pop_only(&self.fd), list.ended);
            drop(list);
            if let Some(event) = event {
                return Ok(Some(event));
            }
            let left = deadline.map(|deadline| deadline.0.saturating_sub(now().0));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            if ended {
                // No event would end the wait.
                let why = "what drove this channel's connections is gone";
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, why));
            }
            self.will_block();
            seat.find(&self.epoll, left)?;
            let awake = self.wake();
            self.drive_ready(seat, &awake);
            self.hear_alert(&awake);
            if let Some(event) = awake.take() {
                return Ok(Some(event));
            }
        }
    }

    /// A caller has slept on the descriptor among others. If nothing else has woken it, another
    /// process may have.
    fn hear_alert(&self, awake: &Awake<'_>) {
        if self.is_shared.load(Ordering::Relaxed)
            && !awake.has_event()
            && self.events.lock().was_alerted(&self.fd)
        {
            let _ = self.drive_alerted();
        }
    }

    /// Moves what was found ready, until an event has come: what is left is ready the next time.
    fn drive_ready(&self, seat: &mut Seat, awake: &Awake<'_>) {
        let Seat { ready, waiting, .. } = seat;
        let sets = ready.iter().filter(|ready| ready.token != EVENT);
        for event in rotated(sets, awake.first) {
            let group = waiting.iter().find(|waiting| waiting.set().id() == event.token);
            let Some(waiting) = group else {
                // A queue that was made meanwhile.
                self.wait_on_groups(waiting);
                break;
            };
            waiting.drive();
            if awake.has_event() {
                break;
            }
        }
    }

    /// Moves what is ready of the few poll groups that there are, without a look at which it is,
    /// until an event has come. False where nothing was ready, or where they are many.
    fn try_few(seat: &mut Seat, awake: &Awake<'_>) -> bool {
        let Seat { waiting, .. } = seat;
        if waiting.len() > FEW {
            return false;
        }
        let mut moved = false;
        for waiting in rotated(waiting.iter(), awake.first) {
            moved |= waiting.set().drive(By::Caller);
            if awake.has_event() {
                break;
            }
        }
        moved
    }

    pub(crate) fn look(&self) -> io::Result<Look> {
        let mut seat = Seat::take()?;
        let result = self.look_with(&mut seat);
        if !matches!(result, Ok(Look::Nothing(_))) {
            seat.leave();
        }
        seat.keep();
        result
    }

    fn look_with(&self, seat: &mut Seat) -> io::Result<Look> {
        let event = if seat.is_at(self) {
            self.look_again(seat)?
        } else {
            seat.leave();
            if let Some(event) = self.take_ready() {
                return Ok(Look::Event(event));
            }
            self.sit_down(seat);
            self.pop()
        };
        if let Some(event) = event {
            return Ok(Look::Event(event));
        }
        self.will_block();
        Ok(Look::Nothing(self.epoll.as_raw_fd()))
    }

    /// A caller that slept on the descriptor looks for what woke it.
    fn look_again(&self, seat: &mut Seat) -> io::Result<Option<u64>> {
        let awake = self.wake();
        if !awake.has_event() && !Self::try_few(seat, &awake) {
            seat.find(&self.epoll, Some(Duration::ZERO))?;
            self.drive_ready(seat, &awake);
            self.hear_alert(&awake);
        }
        Ok(awake.take())
    }

    /// This thread will not look again, at any channel.
    pub(crate) fn stop_looking() {
        let Ok(mut seat) = Seat::take() else { return };
        seat.leave();
        seat.keep();
    }

    fn sit_down(&self, seat: &mut Seat) {
        self.wait_on_groups(&mut seat.waiting);
        seat.channel = std::ptr::from_ref(self).addr();
    }

    fn wait_on_groups(&self, waiting: &mut Vec<Waiting>) {
        let groups = self.groups.lock();
        let groups = groups.iter().filter_map(Weak::upgrade);
        let before = waiting.len();
        waiting.extend(groups.map(Waiting::on));
        waiting.drain(..before);
    }
}

/// The seat that a blocked caller needs; kept by its thread for the next time. A thread that is
/// cancelled while it waits gives it back by its end: the destructors of thread-locals run then,
/// while nothing on its stack may be waiting for one.
struct Seat {
    ready: Events,
    waiting: Vec<Waiting>,
    /// Address of the channel where it waits; 0 where it does not.
    channel: usize,
}

/// From the one with the number `first` (of as many as there are) on, once round.
fn rotated<T>(list: impl Iterator<Item = T> + Clone, first: usize) -> impl Iterator<Item = T> {
    let len = list.clone().count();
    list.cycle().skip(first.checked_rem(len).unwrap_or(0)).take(len)
}

thread_local! {
    /// This thread has, or had, a [`SEAT`]: without memory the C library cannot note that one is to
    /// be dropped with the thread, and ends the process.
    static HAS_SEAT: Cell<bool> = const { Cell::new(false) };
    static SEAT: Cell<Option<ProcessOwned<Seat>>> = const { Cell::new(None) };
}

impl Seat {
    fn take() -> io::Result<Self> {
        if !HAS_SEAT.get() {
            iwarp_mem::afford()?;
            HAS_SEAT.set(true);
        }
        let kept = SEAT.try_with(Cell::take).ok().flatten().and_then(ProcessOwned::into_alive);
        Ok(kept.unwrap_or_else(|| Self {
            ready: Events::with_capacity(16),
            waiting: Vec::new(),
            channel: 0,
        }))
    }

    /// Waits until something is ready; finds nothing if a signal came.
    fn find(&mut self, epoll: &Epoll, timeout: Option<Duration>) -> io::Result<()> {
        match epoll.wait(&mut self.ready, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// A thread that is ending keeps none: the worker has what it looked after.
    fn keep(self) {
        let _ = SEAT.try_with(|seat| seat.set(Some(ProcessOwned::new(self))));
    }

    fn is_at(&self, channel: &ChannelCore) -> bool {
        self.channel == std::ptr::from_ref(channel).addr()
    }

    fn leave(&mut self) {
        self.waiting.clear();
        self.channel = 0;
    }
}

/// The findings of [`CompletionChannel::look`](crate::CompletionChannel::look).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Look {
    /// The completion queue with this number raised an event.
    Event(u64),
    /// No event yet. Look again when this descriptor is readable.
    Nothing(RawFd),
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    fn channel() -> Arc<ChannelCore> {
        ChannelCore::new().unwrap()
    }

    fn is_readable(channel: &ChannelCore) -> bool {
        let fd = channel.event_fd().as_fd();
        iwarp_os::poll::wait_readable([fd], Some(Duration::ZERO)).unwrap() == [true]
    }

    #[test]
    fn an_event_for_a_caller_that_is_awake_does_not_pass_through_the_descriptor() {
        let channel = channel();
        let awake = channel.wake();
        channel.push(7);
        assert!(awake.has_event() && !is_readable(&channel));
        assert_eq!(awake.take(), Some(7));
        channel.push(8);
        assert!(is_readable(&channel));
    }

    #[test]
    fn events_that_a_caller_leaves_make_the_descriptor_readable() {
        let channel = channel();
        let awake = channel.wake();
        channel.push(7);
        drop(awake);
        assert!(is_readable(&channel));
        assert_eq!(channel.take_ready(), Some(7));
        assert!(!is_readable(&channel));
    }

    #[test]
    fn each_caller_that_is_awake_stands_for_one_event() {
        let channel = channel();
        let callers = [channel.wake(), channel.wake()];
        (1..=3).for_each(|event| channel.push(event));
        assert!(is_readable(&channel), "the third is nobody's");
        // A thread that was not awake comes first.
        assert_eq!(channel.take_ready(), Some(1));
        let taken = callers.map(Awake::take);
        assert_eq!(taken, [Some(2), Some(3)]);
        assert!(!is_readable(&channel));
    }

    /// A program that sleeps in an edge-triggered epoll is woken by each, though it takes none.
    #[test]
    fn each_event_signals_the_descriptor() {
        let channel = ChannelCore::new().unwrap();
        (1..=3).for_each(|cq| channel.push(cq));
        assert_eq!(channel.event_fd().drain().unwrap(), 3);
        (1..=2).for_each(|cq| assert_eq!(channel.take_ready(), Some(cq)));
        (4..=5).for_each(|cq| channel.push(cq));
        assert_eq!(channel.event_fd().drain().unwrap(), 2);
    }

    #[test]
    fn events_of_a_queue_that_is_gone_are_counted_no_more() {
        let channel = channel();
        let awake = channel.wake();
        [5, 5, 6, 5].into_iter().for_each(|event| channel.push(event));
        channel.discard(5);
        assert_eq!(awake.take(), Some(6));
        assert!(!is_readable(&channel));
    }

    #[test]
    fn each_begins_once_in_a_round() {
        let first = |turn| rotated([1, 2, 3].iter(), turn).copied().collect::<Vec<_>>();
        assert_eq!([first(0), first(1), first(5)], [[1, 2, 3], [2, 3, 1], [3, 1, 2]]);
        assert_eq!(rotated([0; 0].iter(), 4).count(), 0);
    }
}
