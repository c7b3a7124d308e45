//! A completion channel: the events that wait, and the callers that wait for them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
#[cfg(feature = "tokio")]
use std::os::fd::{AsFd, BorrowedFd};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_mem::OutOfMemory;
use iwarp_os::{Epoll, EventFd, EventFdKind, Events, FdPlace, Interest, ProcessOwned};

use crate::engine::clock::now;
use crate::engine::poll_set::{PollSet, Waiting};
use crate::engine::sync::{AtomicBool, AtomicU8, Mutex, Ordering};

/// Events taken in a row without waiting for them here, after which the program is taken to sleep
/// elsewhere.
const TAKEN_READY: u8 = 8;

/// Token of the descriptor that says that events wait; groups have their own numbers.
const EVENT: u64 = 0;

/// Completion events that wait, and the poll groups that can bring more.
#[derive(Debug)]
pub(crate) struct ChannelCore {
    events: Mutex<VecDeque<u64>>,
    fd: Arc<EventFd>,
    /// The event descriptor and the groups, for a caller that blocks.
    epoll: Epoll,
    groups: Mutex<Vec<Weak<dyn PollSet>>>,
    /// The program waits here, in a call of the library, and not in `poll` on the descriptor.
    blocks: AtomicBool,
    taken_ready: AtomicU8,
    /// A task of the library's sleeps on `epoll` and moves the connections.
    has_driver: AtomicBool,
}

impl ChannelCore {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        iwarp_mem::afford()?;
        let core = Self {
            events: Mutex::new(VecDeque::new()),
            fd: Arc::new(EventFd::new(EventFdKind::Semaphore, FdPlace::Program)?),
            epoll: Epoll::new(FdPlace::Internal)?,
            groups: Mutex::new(Vec::new()),
            blocks: AtomicBool::new(false),
            taken_ready: AtomicU8::new(0),
            has_driver: AtomicBool::new(false),
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
        let more = most.saturating_sub(events.len());
        events.try_reserve(more).map_err(|_| OutOfMemory)?;
        drop(events);
        self.epoll.add(group.epoll(), group.id(), Interest::READ)?;
        groups.push(Arc::downgrade(&group));
        Ok(())
    }

    pub(crate) fn detach(&self, group: &Arc<dyn PollSet>) {
        // Both are ours and open.
        let _ = self.epoll.delete(group.epoll());
        self.groups.lock().retain(|other| !std::ptr::addr_eq(other.as_ptr(), Arc::as_ptr(group)));
        self.discard(group.id());
    }

    /// Drops the events of the completion queue with this number.
    pub(crate) fn discard(&self, number: u64) {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|event| *event != number);
        for _ in events.len()..before {
            let _ = self.fd.try_wait();
        }
    }

    /// The descriptor is changed under the lock of the events, so that it is readable exactly
    /// while there are some.
    pub(crate) fn push(&self, cq: u64) {
        let mut events = self.events.lock();
        if events.try_reserve(1).is_err() {
            // There was room for one of each queue.
            tracing::error!(cq, "out of memory: of several completion events one is told");
            return;
        }
        events.push_back(cq);
        let _ = self.fd.signal();
    }

    fn pop(&self) -> Option<u64> {
        let mut events = self.events.lock();
        let event = events.pop_front()?;
        let _ = self.fd.try_wait();
        Some(event)
    }

    /// Whether the thread that waits for the next event moves the connections meanwhile, so that
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

    /// From now on the library alone waits for its events, and moves the connections meanwhile.
    pub(crate) fn set_driven(&self) {
        self.has_driver.store(true, Ordering::Relaxed);
    }

    /// Readable while events wait.
    pub(crate) const fn event_fd(&self) -> &Arc<EventFd> {
        &self.fd
    }

    /// Readable while events wait or a connection is ready.
    #[cfg(feature = "tokio")]
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
            if let Some(event) = self.pop() {
                return Ok(Some(event));
            }
            let left = deadline.map(|deadline| deadline.0.saturating_sub(now().0));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            self.will_block();
            self.drive_ready(seat, left)?;
        }
    }

    /// Waits until something is ready and moves it.
    fn drive_ready(&self, seat: &mut Seat, timeout: Option<Duration>) -> io::Result<()> {
        let Seat { ready, waiting, .. } = seat;
        match self.epoll.wait(ready, timeout) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        for event in ready.iter().filter(|ready| ready.token != EVENT) {
            let group = waiting.iter().find(|waiting| waiting.set().id() == event.token);
            let Some(waiting) = group else {
                // A queue that was made meanwhile.
                self.wait_on_groups(waiting);
                break;
            };
            waiting.drive();
        }
        Ok(())
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
        if seat.is_at(self) {
            self.drive_ready(seat, Some(Duration::ZERO))?;
        } else {
            seat.leave();
            if let Some(event) = self.take_ready() {
                return Ok(Look::Event(event));
            }
            self.sit_down(seat);
        }
        if let Some(event) = self.pop() {
            return Ok(Look::Event(event));
        }
        self.will_block();
        Ok(Look::Nothing(self.epoll.as_raw_fd()))
    }

    /// This thread will not look again, at no channel.
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

/// What a blocked caller needs; kept by its thread for the next time. A thread that is cancelled
/// while it waits gives it back by its end: the destructors of thread-locals run then, while
/// nothing on its stack may be waiting for one.
struct Seat {
    ready: Events,
    waiting: Vec<Waiting>,
    /// Address of the channel where it waits; 0 where it does not.
    channel: usize,
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

/// What [`CompletionChannel::look`](crate::CompletionChannel::look) found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// The completion queue with this number raised an event.
    Event(u64),
    /// Nothing yet. Look again when this descriptor is readable.
    Nothing(RawFd),
}
