// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events of ids that their program has not taken yet.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use iwarp_os::EventFd;
use iwarp_types::Source;

use crate::cm::turns::Turns;
use crate::connect::EventKind;
use crate::engine::ended::ConnectionObserver;
use crate::engine::server::Server;
use crate::engine::sync::{Guard, Mutex};
use crate::engine::wake_fd::WakeFd;
use crate::wire::choice::Wires;

/// An id, as far as its events are concerned.
pub(crate) trait Subject: Sized {
    /// The source of a request, where it is known.
    fn source(&self) -> Option<Source>;

    /// The program takes the event that says that the connection is over.
    fn is_told_of_the_end(&self);

    /// The events of an id that goes with its request wait there from now on.
    fn redirect(&self, events: &Arc<Events<Self>>);
}

/// An event that the program takes.
pub(crate) struct Taken<I> {
    pub(super) id: Arc<I>,
    pub(super) listener: Option<Arc<I>>,
    pub(super) kind: EventKind,
}

/// An event that the program has not taken yet. It keeps no id: a program that has dropped one is
/// not told what happened to it.
struct Unread<I> {
    id: Holder<I>,
    listener: Option<Weak<I>>,
    kind: EventKind,
    /// Of a request: where it is from.
    source: Option<Source>,
    /// The queue is in the order of these.
    round: u64,
}

enum Holder<I> {
    /// A connection request's, which the program does not have yet.
    New(Arc<I>),
    Known(Weak<I>),
}

impl<I: Subject> Unread<I> {
    fn concerns(&self, id: *const I) -> bool {
        let is = |other: &Weak<I>| std::ptr::eq(other.as_ptr(), id);
        let own = matches!(&self.id, Holder::Known(known) if is(known));
        own || self.listener.as_ref().is_some_and(is)
    }

    fn take(self) -> Option<Taken<I>> {
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
        Some(Taken { id, listener, kind: self.kind })
    }
}

/// See the [module](self).
pub(crate) struct Events<I> {
    queue: Mutex<Queue<I>>,
    /// Absent where the program has none to sleep on.
    fd: Option<Arc<EventFd>>,
    pub(crate) wires: Arc<Wires>,
    /// Is told, beside the program, how the connection ended that the channel was made for.
    watch: OnceLock<Arc<dyn ConnectionObserver>>,
    /// Takes the events.
    server: OnceLock<Server>,
}

struct Queue<I> {
    events: VecDeque<Unread<I>>,
    turns: Turns,
    /// Requests that came while a connection was being accepted: its peer may know of that already,
    /// and the program is told of that connection first.
    held: VecDeque<Unread<I>>,
    /// Connections that are being accepted.
    accepting: usize,
    /// Of the threads that sleep in the library until there is an event.
    sleepers: Vec<Arc<WakeFd>>,
}

impl<I> Default for Queue<I> {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            turns: Turns::default(),
            held: VecDeque::new(),
            accepting: 0,
            sleepers: Vec::new(),
        }
    }
}

impl<I: Subject> Queue<I> {
    /// Adds an event, for which there is memory. If it concerns an id whose request the program has
    /// not taken yet, it comes after that request.
    fn add(&mut self, mut event: Unread<I>) {
        event.round = match (event.source, &event.id) {
            (Some(source), _) => self.turns.enter(source),
            (None, Holder::Known(known)) if !self.turns.nobody_waits() => {
                let of_id = |other: &&Unread<I>| match &other.id {
                    Holder::New(new) => std::ptr::eq(known.as_ptr(), Arc::as_ptr(new)),
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

impl<I> fmt::Debug for Events<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl<I: Subject> Events<I> {
    pub(super) fn new(wires: &Arc<Wires>, fd: Option<Arc<EventFd>>) -> Arc<Self> {
        let wires = Arc::clone(wires);
        Arc::new(Self {
            queue: Mutex::default(),
            fd,
            wires,
            watch: OnceLock::new(),
            server: OnceLock::new(),
        })
    }

    /// Has `observer` told, beside the program, of connections that end.
    pub(crate) fn watch(&self, observer: Arc<dyn ConnectionObserver>) {
        let _ = self.watch.set(observer);
    }

    /// Has `server` take the events from now on.
    pub(crate) fn serve(&self, server: Server) {
        let _ = self.server.set(server);
    }

    /// Something happened to `id`.
    pub(crate) fn push(&self, id: Weak<I>, kind: EventKind) {
        self.add([Unread { id: Holder::Known(id), listener: None, kind, source: None, round: 0 }]);
    }

    /// `listener` was asked for a connection, which is `id`.
    pub(crate) fn push_request(&self, id: Arc<I>, listener: Weak<I>, kind: EventKind) {
        let source = id.source();
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
    pub(crate) fn hold_requests(self: &Arc<Self>) -> Holding<I> {
        self.queue.lock().accepting += 1;
        Holding(Arc::clone(self))
    }

    fn add(&self, events: impl IntoIterator<Item = Unread<I>>) {
        self.add_to(self.queue.lock(), events);
    }

    /// The descriptor is changed under the lock of the events, so that it is readable exactly
    /// while there are some.
    fn add_to(&self, mut queue: Guard<'_, Queue<I>>, events: impl IntoIterator<Item = Unread<I>>) {
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
        if let Some(server) = self.server.get() {
            server.call();
        }
        drop(queue);
        drop(lost);
    }

    fn pop_one(&self) -> Option<Unread<I>> {
        let mut queue = self.queue.lock();
        let event = queue.events.pop_front()?;
        if let Some(source) = event.source {
            queue.turns.tell(source, event.round);
        }
        self.taken(&queue);
        Some(event)
    }

    /// An event of the queue, which is locked, was taken out.
    fn taken(&self, _: &Queue<I>) {
        if let Some(fd) = &self.fd {
            let _ = fd.try_wait();
        }
    }

    pub(crate) fn pop(&self) -> Option<Taken<I>> {
        loop {
            if let Some(event) = self.pop_one()?.take() {
                return Some(event);
            }
        }
    }

    /// Takes out what waits for `id`: its own events, and requests that came in there.
    pub(crate) fn remove(&self, id: *const I) -> Removed<I> {
        let mut queue = self.queue.lock();
        let mut removed = VecDeque::new();
        move_if(&mut queue.events, &mut removed, |event| event.concerns(id));
        removed.iter().for_each(|_| self.taken(&queue));
        removed.iter().filter_map(|event| event.source).for_each(|gone| queue.turns.leave(gone));
        move_if(&mut queue.held, &mut removed, |event| event.concerns(id));
        Removed(removed)
    }

    /// Has the next event signal a descriptor. False where there are some already.
    pub(super) fn sleep(&self, wake_fd: &Arc<WakeFd>) -> bool {
        let mut queue = self.queue.lock();
        if !queue.events.is_empty() {
            return false;
        }
        queue.sleepers.push(Arc::clone(wake_fd));
        true
    }

    /// Has it signalled no more.
    pub(super) fn wake(&self, wake_fd: &Arc<WakeFd>) {
        self.queue.lock().sleepers.retain(|other| !Arc::ptr_eq(other, wake_fd));
    }

    /// Adds what was taken out of another channel.
    pub(crate) fn put(self: &Arc<Self>, removed: Removed<I>) {
        for event in &removed.0 {
            if let Holder::New(id) = &event.id {
                id.redirect(self);
            }
        }
        self.add(removed.0);
    }
}

/// Moves what is `wanted` from one queue to the end of another.
fn move_if<T>(from: &mut VecDeque<T>, to: &mut VecDeque<T>, wanted: impl Fn(&T) -> bool) {
    // Once around, each back to its place but for those: what stays needs no memory for that.
    for _ in 0..from.len() {
        let Some(event) = from.pop_front() else { break };
        if wanted(&event) { to.push_back(event) } else { from.push_back(event) }
    }
}

/// A connection is being accepted: see [`Events::hold_requests`].
pub(crate) struct Holding<I: Subject>(Arc<Events<I>>);

impl<I: Subject> Drop for Holding<I> {
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
pub(crate) struct Removed<I>(VecDeque<Unread<I>>);

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    /// An id that only has a source.
    #[derive(Debug)]
    struct Toy(Option<Source>);

    impl Subject for Toy {
        fn source(&self) -> Option<Source> {
            self.0
        }

        fn is_told_of_the_end(&self) {}

        fn redirect(&self, _: &Arc<Events<Self>>) {}
    }

    fn user(argument: u64) -> EventKind {
        EventKind::User { status: 0, argument }
    }

    fn news(id: &Arc<Toy>, argument: u64) -> Unread<Toy> {
        let id = Holder::Known(Arc::downgrade(id));
        Unread { id, listener: None, kind: user(argument), source: None, round: 0 }
    }

    fn request(last: u8, argument: u64) -> (Arc<Toy>, Unread<Toy>) {
        let source = Source::of([192, 0, 2, last].into());
        let id = Arc::new(Toy(Some(source)));
        let holder = Holder::New(Arc::clone(&id));
        let kind = user(argument);
        (id, Unread { id: holder, listener: None, kind, source: Some(source), round: 0 })
    }

    fn order(queue: &Queue<Toy>) -> Vec<u64> {
        let argument = |event: &Unread<Toy>| match event.kind {
            EventKind::User { argument, .. } => argument,
            _ => unreachable!(),
        };
        queue.events.iter().map(argument).collect()
    }

    #[test]
    fn sources_of_requests_take_turns() {
        let mut queue = Queue::default();
        for n in 0..3 {
            queue.add(request(1, n).1);
        }
        queue.add(request(2, 10).1);
        assert_eq!(order(&queue), [0, 10, 1, 2]);
    }

    #[test]
    fn news_that_came_first_stay_in_front_of_requests() {
        let (mut queue, id) = (Queue::default(), Arc::new(Toy(None)));
        queue.add(news(&id, 10));
        queue.add(request(1, 0).1);
        queue.add(request(1, 1).1);
        assert_eq!(order(&queue), [10, 0, 1]);
    }

    #[test]
    fn news_of_connections_do_not_wait_for_a_flood_of_requests() {
        let (mut queue, id) = (Queue::default(), Arc::new(Toy(None)));
        for n in 0..3 {
            queue.add(request(1, n).1);
        }
        queue.add(news(&id, 10));
        queue.add(news(&id, 11));
        assert_eq!(order(&queue), [0, 10, 11, 1, 2]);
    }

    #[test]
    fn news_of_a_request_come_behind_it() {
        let mut queue = Queue::default();
        let ids = [0, 1, 2].map(|n| {
            let (id, request) = request(1, n);
            queue.add(request);
            id
        });
        queue.add(news(&ids[1], 11));
        assert_eq!(order(&queue), [0, 1, 11, 2]);
    }

    #[test]
    fn events_of_an_id_that_is_gone_are_not_taken() {
        let (id, kept) = (Arc::new(Toy(None)), Arc::new(Toy(None)));
        let event = news(&id, 1);
        let listened = Unread { listener: Some(Arc::downgrade(&id)), ..news(&kept, 2) };
        assert!(event.concerns(&*id) && listened.concerns(&*id) && !event.concerns(&*kept));
        drop(id);
        assert!(event.take().is_none() && listened.take().is_none());
        assert!(news(&kept, 3).take().is_some());
    }

    #[test]
    fn moved_events_keep_their_order_and_so_do_the_others() {
        let (mut from, mut to) = ((0..10).collect::<VecDeque<_>>(), VecDeque::from([77]));
        move_if(&mut from, &mut to, |n| n % 3 == 0);
        assert_eq!(
            (from.make_contiguous(), to.make_contiguous()),
            (&mut [1, 2, 4, 5, 7, 8][..], &mut [77, 0, 3, 6, 9][..])
        );
    }
}
