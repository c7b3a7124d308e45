// SPDX-License-Identifier: MIT OR Apache-2.0

//! A stream in the reactor of an async runtime, for a task that sleeps until input comes.
//!
//! The poll group's epoll would tell it too, by way of the channel's, but each input would pass
//! through all of them, and an epoll that reports what *is* ready is asked once more in vain. The
//! reactor tells what *has come* since it was asked last, so a task whose read took all there was
//! may sleep at once. It tells nothing of room to send, nor of what a read left: then the task
//! sleeps by way of the poll group.

use std::io;
use std::os::fd::AsRawFd;
use std::task::{Context, Poll};

use super::Link;
use super::flags::{AWAITS_WRITING, CLOSED, END_HELD, READ_ENDED, READ_STALLED, WRITE_BLOCKED};
use crate::engine::mover::{Enter, ReactorPlace, ReactorStream, StreamMover};
use crate::engine::sync::{AtomicBool, Mutex, Ordering};

/// The stream's place in a reactor.
#[derive(Debug)]
pub(super) struct Reactor {
    /// Of the link's own descriptor: it is given up before the link closes that.
    place: Mutex<Option<Box<dyn ReactorPlace>>>,
    /// There is a place.
    is_in: AtomicBool,
    /// The last read took all there was.
    drained: AtomicBool,
    /// A posted request goes out with the next turn of the task that drives, which is due.
    gathers: AtomicBool,
}

impl Reactor {
    pub(super) fn new() -> Self {
        let place = Mutex::new(None);
        let no = || AtomicBool::new(false);
        Self { place, is_in: no(), drained: no(), gathers: no() }
    }

    /// A read took all there was, or left something.
    #[inline]
    pub(super) fn has_read(&self, all: bool) {
        self.drained.store(all, Ordering::Release);
    }

    /// True if a task may be asleep here.
    #[inline]
    pub(super) fn is_in(&self) -> bool {
        self.is_in.load(Ordering::SeqCst)
    }

    /// True if posted requests may be left to the task that drives. To be asked after the post.
    #[inline]
    pub(super) fn gathers(&self) -> bool {
        self.gathers.load(Ordering::SeqCst)
    }

    /// Gives up the place.
    pub(super) fn leave(&self) {
        self.is_in.store(false, Ordering::SeqCst);
        self.gathers.store(false, Ordering::SeqCst);
        let place = self.place.lock().take();
        // Without the lock: a waker may be dropped with it.
        drop(place);
    }
}

impl ReactorStream for Link {
    fn enter_reactor(&self, enter: Enter<'_>) -> io::Result<()> {
        self.reactor.leave();
        let Some(fd) = self.stream.descriptors().stream().filter(|_| !self.may_hold) else {
            return Ok(());
        };
        let mut place = self.reactor.place.lock();
        if self.is_closed() {
            return Ok(());
        }
        *place = Some(enter(fd.as_raw_fd())?);
        self.reactor.is_in.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn leave_reactor(&self) {
        self.reactor.leave();
    }

    fn gather(&self) -> bool {
        let gathers = self.reactor.is_in();
        self.reactor.gathers.store(gathers, Ordering::SeqCst);
        gathers
    }

    fn send_gathered(&self) {
        // The task set it itself. A thread that has seen it set has posted before.
        if self.reactor.gathers() && self.reactor.gathers.swap(false, Ordering::SeqCst) {
            self.send();
        }
    }

    fn is_told_by_reactor(&self) -> bool {
        const OTHERS: u32 =
            WRITE_BLOCKED | AWAITS_WRITING | READ_STALLED | END_HELD | READ_ENDED | CLOSED;
        self.reactor.is_in()
            && self.reactor.drained.load(Ordering::Acquire)
            && !self.flags.has(OTHERS)
    }

    fn poll_input(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_told_by_reactor() {
            return Poll::Pending;
        }
        match &*self.reactor.place.lock() {
            Some(place) => place.poll_input(context),
            None => Poll::Pending,
        }
    }
}
