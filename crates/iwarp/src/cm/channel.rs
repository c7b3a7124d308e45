// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events of the connection manager.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use iwarp_os::{EventFd, EventFdKind, FdPlace, Interest, ProcessOwned, poll};
use iwarp_types::{Source, Time};

use crate::cm::id::{IdCore, WeakId};
use crate::cm::turns::Turns;
use crate::cm::{EventKind, Id};
use crate::engine::ended::Observer;
use crate::engine::now;
use crate::engine::poll_set::{By, Waiting, wait_beside};
use crate::engine::sync::{Guard, Mutex};
use crate::engine::wake_fd::WakeFd;
use crate::verbs::Device;
use crate::wire::choice::Wires;

/// Something that happened to an [`Id`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Event {
    /// The id that it happened to; a new one for [`EventKind::ConnectRequest`].
    pub id: Id,
    /// The listening id at which the connection came in.
    pub listener: Option<Id>,
    /// The kind of event.
    pub kind: EventKind,
}

/// An event that the program has not taken yet. It keeps no id: a program that has dropped one is
/// not told what happened to it.
struct Unread {
    id: Holder,
    listener: Option<WeakId>,
    kind: EventKind,
    /// Of a request: where it is from.
    source: Option<Source>,
    /// The queue is in the order of these.
    round: u64,
}

enum Holder {
    /// A connection request's, which the program does not have yet.
    New(Arc<IdCore>),
    Known(WeakId),
}

impl Unread {
    fn concerns(&self, id: *const IdCore) -> bool {
        let own = matches!(&self.id, Holder::Known(known) if known.is(id));
        own || self.listener.as_ref().is_some_and(|listener| listener.is(id))
    }

    fn take(self) -> Option<Event> {
        let id = match self.id {
            Holder::New(id) => id,
            Holder::Known(id) => id.upgrade()?,
        };
        let listener = match self.listener {
            Some(listener) => Some(listener.upgrade()?),
            None => None,
        };
        if matches!(self.kind, EventKind::Disconnected(_)) {
            id.is_told_of_the_end();
        }
        Some(Event { id: Id::of(id), listener: listener.map(Id::of), kind: self.kind })
    }
}

pub(crate) struct ChannelCore {
    queue: Mutex<Queue>,
    /// Absent where the program has none to sleep on.
    fd: Option<Arc<EventFd>>,
    pub(crate) wires: Arc<Wires>,
    /// Is told, beside the program, how the connection ended that the channel was made for.
    watch: OnceLock<Arc<dyn Observer>>,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Unread>,
    turns: Turns,
    /// Requests that came while a connection was being accepted: its peer may know of that already,
    /// and the program is told of that connection first.
    held: VecDeque<Unread>,
    /// Connections that are being accepted.
    accepting: usize,
    /// Of the threads that sleep in the library until there is an event.
    sleepers: Vec<Arc<WakeFd>>,
}

impl Queue {
    /// Adds an event, for which there is memory. If it concerns an id whose request the program has
    /// not taken yet, it comes after that request.
    fn add(&mut self, mut event: Unread) {
        event.round = match (event.source, &event.id) {
            (Some(source), _) => self.turns.enter(source),
            (None, Holder::Known(known)) if !self.turns.nobody_waits() => {
                let of_id = |other: &&Unread| match &other.id {
                    Holder::New(new) => known.is(Arc::as_ptr(new)),
                    Holder::Known(_) => false,
                };
                let request = self.events.iter().find(of_id).map_or(0, |request| request.round);
                self.turns.current().max(request)
            }
            (None, _) => self.turns.current(),
        };
        let place = self.events.partition_point(|other| other.round <= event.round);
        self.events.insert(place, event);
    }
}

impl fmt::Debug for ChannelCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelCore").finish_non_exhaustive()
    }
}

impl ChannelCore {
    fn new(wires: &Arc<Wires>, fd: Option<Arc<EventFd>>) -> Arc<Self> {
        let wires = Arc::clone(wires);
        Arc::new(Self { queue: Mutex::default(), fd, wires, watch: OnceLock::new() })
    }

    /// Has `observer` told, beside the program, of connections that end.
    pub(crate) fn watch(&self, observer: Arc<dyn Observer>) {
        let _ = self.watch.set(observer);
    }

    /// Something happened to `id`.
    pub(crate) fn push(&self, id: WeakId, kind: EventKind) {
        self.add([Unread { id: Holder::Known(id), listener: None, kind, source: None, round: 0 }]);
    }

    /// `listener` was asked for a connection, which is `id`.
    pub(crate) fn push_request(&self, id: Arc<IdCore>, listener: WeakId, kind: EventKind) {
        let source = id.ends().map(|(_, peer)| Source::of(peer.ip()));
        let listener = Some(listener);
        let request = Unread { id: Holder::New(id), listener, kind, source, round: 0 };
        let mut queue = self.queue.lock();
        if queue.accepting > 0 && queue.held.try_reserve(1).is_ok() {
            queue.held.push_back(request);
            return;
        }
        drop(queue);
        self.add([request]);
    }

    /// From now on requests wait until what this returns is dropped: a connection is accepted, and
    /// what its peer asks for next must not be told before it.
    pub(crate) fn hold_requests(self: &Arc<Self>) -> Holding {
        self.queue.lock().accepting += 1;
        Holding(Arc::clone(self))
    }

    fn add(&self, events: impl IntoIterator<Item = Unread>) {
        self.add_to(self.queue.lock(), events);
    }

    /// The descriptor is changed under the lock of the events, so that it is readable exactly
    /// while there are some.
    fn add_to(&self, mut queue: Guard<'_, Queue>, events: impl IntoIterator<Item = Unread>) {
        // Dropped after the queue is unlocked: a request refuses its connection then.
        let mut events = events.into_iter();
        let mut lost = None;
        for event in events.by_ref() {
            if queue.events.try_reserve(1).is_err() || !queue.turns.reserve() {
                tracing::error!("out of memory: an event of the connection manager is lost");
                lost = Some(event);
                break;
            }
            if let (EventKind::Disconnected(why), Some(watch)) = (&event.kind, self.watch.get()) {
                watch.disconnected(*why);
            }
            queue.add(event);
            if let Some(fd) = &self.fd {
                // Only fails beyond 2^64 events.
                let _ = fd.signal();
            }
        }
        queue.sleepers.drain(..).for_each(|wake_fd| wake_fd.signal());
        drop(queue);
        drop(lost);
    }

    fn pop_one(&self) -> Option<Unread> {
        let mut queue = self.queue.lock();
        let event = queue.events.pop_front()?;
        if let Some(source) = event.source {
            queue.turns.tell(source, event.round);
        }
        self.taken(&queue);
        Some(event)
    }

    /// An event of the queue, which is locked, was taken out.
    fn taken(&self, _: &Queue) {
        if let Some(fd) = &self.fd {
            let _ = fd.try_wait();
        }
    }

    pub(crate) fn pop(&self) -> Option<Event> {
        loop {
            if let Some(event) = self.pop_one()?.take() {
                return Some(event);
            }
        }
    }

    /// Takes out what waits for `id`: its own events, and requests that came in there.
    pub(crate) fn remove(&self, id: *const IdCore) -> Removed {
        let mut queue = self.queue.lock();
        let mut removed = VecDeque::new();
        move_if(&mut queue.events, &mut removed, |event| event.concerns(id));
        removed.iter().for_each(|_| self.taken(&queue));
        removed.iter().filter_map(|event| event.source).for_each(|gone| queue.turns.leave(gone));
        move_if(&mut queue.held, &mut removed, |event| event.concerns(id));
        Removed(removed)
    }

    /// Has the next event signal a descriptor. False where there are some already.
    fn sleep(&self, wake_fd: &Arc<WakeFd>) -> bool {
        let mut queue = self.queue.lock();
        if !queue.events.is_empty() {
            return false;
        }
        queue.sleepers.push(Arc::clone(wake_fd));
        true
    }

    /// Has it rung no more.
    fn wake(&self, wake_fd: &Arc<WakeFd>) {
        self.queue.lock().sleepers.retain(|other| !Arc::ptr_eq(other, wake_fd));
    }

    /// Adds what was taken out of another channel.
    pub(crate) fn put(self: &Arc<Self>, removed: Removed) {
        for event in &removed.0 {
            if let Holder::New(id) = &event.id {
                id.redirect(self);
            }
        }
        self.add(removed.0);
    }
}

/// Moves what is `wanted` from one queue to the end of another.
fn move_if(
    from: &mut VecDeque<Unread>,
    to: &mut VecDeque<Unread>,
    wanted: impl Fn(&Unread) -> bool,
) {
    // Once around, each back to its place but for those: what stays needs no memory for that.
    for _ in 0..from.len() {
        let Some(event) = from.pop_front() else { break };
        if wanted(&event) { to.push_back(event) } else { from.push_back(event) }
    }
}

/// A connection is being accepted: see [`ChannelCore::hold_requests`].
pub(crate) struct Holding(Arc<ChannelCore>);

impl Drop for Holding {
    fn drop(&mut self) {
        let Self(channel) = self;
        let mut queue = channel.queue.lock();
        queue.accepting -= 1;
        if queue.accepting == 0 && !queue.held.is_empty() {
            let held = std::mem::take(&mut queue.held);
            channel.add_to(queue, held);
        }
    }
}

/// Events taken out of a channel. Dropping them refuses the requests among them.
pub(crate) struct Removed(VecDeque<Unread>);

/// A queue in which the events of ids arrive.
#[derive(Clone, Debug)]
pub struct EventChannel {
    pub(crate) core: ProcessOwned<Arc<ChannelCore>>,
    fd: Arc<EventFd>,
}

impl EventChannel {
    /// Makes a channel.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be made; `ENODEV` in a forked child.
    pub fn new(device: &Device) -> io::Result<Self> {
        Self::on(device.wires()?)
    }

    /// A channel in the place of one that this process, a forked child, inherits: it has that one's
    /// descriptor, and none of its events.
    ///
    /// # Errors
    ///
    /// `EBADF` where the child has closed the descriptor; those of [`Self::new`].
    pub fn take_over(device: &Device, inherited: &Self) -> io::Result<Self> {
        Ok(Self::with(device.wires()?, EventFd::take_over(&inherited.fd)?))
    }

    pub(crate) fn on(wires: &Arc<Wires>) -> io::Result<Self> {
        Ok(Self::with(wires, EventFd::new(EventFdKind::Semaphore, FdPlace::Program)?))
    }

    fn with(wires: &Arc<Wires>, fd: EventFd) -> Self {
        let fd = Arc::new(fd);
        let core = ProcessOwned::new(ChannelCore::new(wires, Some(Arc::clone(&fd))));
        Self { core, fd }
    }

    /// Waits for an event; `None` when `timeout` passes first.
    ///
    /// # Errors
    ///
    /// When waiting fails; `ENODEV` in a forked child.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<Event>> {
        let core = self.core.check()?;
        let deadline = timeout.map(|timeout| now().plus(timeout));
        loop {
            if let Some(event) = core.pop() {
                return Ok(Some(event));
            }
            let left = deadline.map(|deadline| deadline.0.saturating_sub(now().0));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            match poll::wait_readable([self.as_fd()], left) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks that events can come.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.core.check().map(drop)
    }

    /// Takes an event if there is one.
    pub fn try_next(&self) -> Option<Event> {
        self.core.alive()?.pop()
    }
}

impl AsFd for EventChannel {
    /// Readable while events wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A channel without a descriptor, for callers that block in the library.
#[derive(Debug)]
pub(crate) struct Mailbox {
    core: ProcessOwned<Arc<ChannelCore>>,
}

impl Mailbox {
    pub(crate) fn new(wires: &Arc<Wires>) -> Self {
        Self { core: ProcessOwned::new(ChannelCore::new(wires, None)) }
    }

    /// The channel.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    pub(crate) fn core(&self) -> io::Result<&Arc<ChannelCore>> {
        self.core.check()
    }

    /// Waits for an event, and moves what `waiting` names meanwhile; `None` when the time has come
    /// first.
    pub(crate) fn wait(
        &self,
        waiting: &[Waiting],
        deadline: Option<Time>,
    ) -> io::Result<Option<Event>> {
        let core = self.core.check()?;
        loop {
            if let Some(event) = core.pop() {
                return Ok(Some(event));
            }
            let left = deadline.map(|deadline| deadline.0.saturating_sub(now().0));
            if left == Some(Duration::ZERO) {
                // The worker may have stayed away, as callers come here.
                waiting.iter().for_each(|waiting| _ = waiting.set().drive(By::Caller));
                return Ok(core.pop());
            }
            let wake_fd = WakeFd::of_thread()?;
            if !core.sleep(&wake_fd) {
                continue;
            }
            let woken = wait_beside(waiting, wake_fd.as_fd(), Interest::READ, left);
            core.wake(&wake_fd);
            let woken = woken?;
            if woken.own {
                wake_fd.drain();
            }
            woken.drive(waiting);
        }
    }
}
