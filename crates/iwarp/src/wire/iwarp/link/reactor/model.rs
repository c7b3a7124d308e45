// SPDX-License-Identifier: MIT OR Apache-2.0

//! The task that drives a link, beside a thread that posts, reads or closes it, in all
//! interleavings, with a model of the runtime's reactor.

use std::io;
use std::task::{Context, Poll, Waker};

use loom::sync::Arc;
use loom::thread;

use super::Reactor;
use crate::engine::mover::ReactorPlace;
use crate::engine::sync::{Mutex, explore};
use crate::engine::token::Token;
use crate::wire::iwarp::link::flags::{CLOSED, Flags};

/// The state that the kernel and the runtime hold.
#[derive(Debug, Default)]
struct Outside {
    /// Bytes wait in the stream.
    input: u32,
    /// The place has not told yet of what has come.
    ready: bool,
    /// A task is registered with the place.
    has_waker: bool,
    /// It was woken.
    woken: bool,
    /// The poll group's epoll has the stream.
    listens: bool,
}

#[derive(Debug)]
struct Place(Arc<Mutex<Outside>>);

impl ReactorPlace for Place {
    fn poll_input(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut outside = self.0.lock();
        if std::mem::take(&mut outside.ready) {
            return Poll::Ready(Ok(()));
        }
        outside.has_waker = true;
        Poll::Pending
    }
}

struct World {
    reactor: Reactor,
    flags: Flags,
    outside: Arc<Mutex<Outside>>,
    rx: Token<()>,
    tx: Token<()>,
    /// Requests that were posted and not sent, under the endpoint's lock.
    posted: Mutex<u32>,
    /// The task sleeps until the stream tells it of what comes. Its own.
    on_stream: Mutex<bool>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            reactor: Reactor::new(),
            flags: Flags::new(0),
            outside: Arc::default(),
            rx: Token::new(()),
            tx: Token::new(()),
            posted: Mutex::new(0),
            on_stream: Mutex::new(true),
        })
    }

    /// One whose task is in the reactor.
    fn with_place() -> Arc<Self> {
        let world = Self::new();
        world.enter();
        world
    }

    fn enter(&self) {
        let place = || Ok(Box::new(Place(Arc::clone(&self.outside))) as Box<dyn ReactorPlace>);
        self.reactor.enter(&self.flags, place).unwrap();
    }

    /// As `Link::detach`.
    fn close(&self) {
        self.flags.set(CLOSED);
        self.reactor.leave();
    }

    fn send(&self) {
        self.tx.request(|()| *self.posted.lock() = 0);
    }

    /// As `Endpoint::post_sends`.
    fn post(&self) {
        *self.posted.lock() += 1;
        if !self.reactor.gathers() {
            self.send();
        }
    }

    fn octets_arrive(&self) {
        let mut outside = self.outside.lock();
        outside.input += 1;
        outside.ready = true;
        outside.woken |= std::mem::take(&mut outside.has_waker);
    }

    /// Reads until nothing is left; each read has room for one piece.
    fn receive(&self) -> bool {
        let mut moved = false;
        self.rx.request(|()| {
            loop {
                let has_read = {
                    let mut outside = self.outside.lock();
                    let has_input = outside.input > 0;
                    outside.input -= u32::from(has_input);
                    has_input
                };
                self.reactor.has_read(!has_read);
                if !has_read {
                    return;
                }
                moved = true;
            }
        });
        moved
    }

    /// The task has turns until it is to sleep, as `Driven::turn` has it. True if the stream tells
    /// it then of what comes.
    fn turns(&self) -> bool {
        while self.receive() && !self.reactor.tells(&self.flags) {}
        let on_stream = self.reactor.tells(&self.flags);
        self.outside.lock().listens = !on_stream;
        on_stream
    }

    /// The runtime polls the task if it was woken, as `Driver::work` has it.
    fn poll_task(&self) {
        if !std::mem::take(&mut self.outside.lock().woken) {
            return;
        }
        let mut on_stream = self.on_stream.lock();
        let mut context = Context::from_waker(Waker::noop());
        while *on_stream && self.reactor.poll_input(&mut context).is_ready() {
            *on_stream = self.turns();
        }
    }
}

#[test]
fn a_closed_link_has_no_place() {
    explore(5, || {
        let world = World::new();
        let task = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.enter())
        };
        world.close();
        task.join().unwrap();
        assert!(world.reactor.place.lock().is_none(), "a place for a closed descriptor");
        assert!(!world.reactor.is_in(), "in a reactor without a place");
    });
}

#[test]
fn no_post_is_left_to_a_task_that_has_had_its_turn() {
    explore(5, || {
        let world = World::with_place();
        let poster = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.post())
        };
        assert!(world.reactor.gather());
        world.post();
        if world.reactor.end_gathering() {
            world.send();
        }
        poster.join().unwrap();
        assert_eq!(*world.posted.lock(), 0, "a request waits for ever");
    });
}

/// Another thread reads beside the task. The task is told of what comes when both are done.
#[test]
fn a_task_that_sleeps_is_told_of_input() {
    explore(5, || {
        let world = World::with_place();
        // Its first turn and look find nothing.
        world.outside.lock().woken = true;
        world.poll_task();
        world.octets_arrive();
        let others = [World::poll_task as fn(&World), |world| _ = world.receive()];
        let others = others.map(|call| {
            let world = Arc::clone(&world);
            thread::spawn(move || call(&world))
        });
        for other in others {
            other.join().unwrap();
        }
        world.poll_task();
        world.octets_arrive();
        let outside = world.outside.lock();
        assert!(outside.woken || outside.listens, "what comes waits for a timer");
    });
}
