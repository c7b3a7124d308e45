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
use super::flags::{
    AWAITS_WRITING, CLOSED, END_HELD, Flags, READ_ENDED, READ_STALLED, WRITE_BLOCKED,
};
use crate::engine::mover::{Enter, ReactorPlace, ReactorStream};
use crate::engine::sync::{AtomicBool, Mutex, Ordering};

/// The stream's place in a reactor.
#[derive(Debug)]
pub(super) struct Reactor {
    /// Of the link's own descriptor: it is given up before the link closes that.
    place: Mutex<Option<Box<dyn ReactorPlace>>>,
    /// There is a place. It changes with the lock.
    is_in: AtomicBool,
    /// The last read took all there was.
    drained: AtomicBool,
    /// A posted request goes out with the next turn of the task that drives, which is due. No
    /// ordering is needed: posts and the thread that sends take the endpoint's lock.
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
        self.drained.store(all, Ordering::Relaxed);
    }

    /// True if a task may be asleep here.
    #[inline]
    pub(super) fn is_in(&self) -> bool {
        self.is_in.load(Ordering::SeqCst)
    }

    /// Takes the place that `enter` makes, unless the link of these `flags` is closed.
    fn enter(
        &self,
        flags: &Flags,
        enter: impl FnOnce() -> io::Result<Box<dyn ReactorPlace>>,
    ) -> io::Result<()> {
        let mut place = self.place.lock();
        // A thread that closes the link says so before it takes the lock.
        if !flags.has(CLOSED) {
            *place = Some(enter()?);
            self.is_in.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Gives up the place.
    pub(super) fn leave(&self) {
        let place = {
            let mut place = self.place.lock();
            self.is_in.store(false, Ordering::SeqCst);
            self.gathers.store(false, Ordering::Relaxed);
            place.take()
        };
        // Without the lock: a waker may be dropped with it.
        drop(place);
    }

    /// True if posted requests may be left to the task that drives. To be asked after the post.
    #[inline]
    pub(super) fn gathers(&self) -> bool {
        self.gathers.load(Ordering::Relaxed)
    }

    /// Has posts left to the task that drives, if it is told here. False if it is not.
    fn gather(&self) -> bool {
        let gathers = self.is_in();
        self.gathers.store(gathers, Ordering::Relaxed);
        gathers
    }

    /// Ends [`Self::gather`]. True if that task is to send what was posted.
    fn end_gathering(&self) -> bool {
        // The task set it itself. A thread that has seen it set has posted before.
        self.gathers() && self.gathers.swap(false, Ordering::Relaxed)
    }

    /// True if the reactor tells of all that comes and concerns the link of these `flags`.
    fn tells(&self, flags: &Flags) -> bool {
        const OTHERS: u32 =
            WRITE_BLOCKED | AWAITS_WRITING | READ_STALLED | END_HELD | READ_ENDED | CLOSED;
        self.is_in() && self.drained.load(Ordering::Relaxed) && !flags.has(OTHERS)
    }

    /// Also ready where there is no place any more.
    fn poll_input(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &*self.place.lock() {
            Some(place) => place.poll_input(context),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl ReactorStream for Link {
    fn enter_reactor(&self, enter: Enter<'_>) -> io::Result<()> {
        self.reactor.leave();
        match self.stream.descriptors().stream().filter(|_| !self.may_hold) {
            Some(fd) => self.reactor.enter(&self.flags, || enter(fd.as_raw_fd())),
            None => Ok(()),
        }
    }

    fn leave_reactor(&self) {
        self.reactor.leave();
    }

    fn gather(&self) -> bool {
        self.reactor.gather()
    }

    fn send_gathered(&self) {
        if self.reactor.end_gathering() {
            self.send();
        }
    }

    fn is_told_by_reactor(&self) -> bool {
        self.reactor.tells(&self.flags)
    }

    fn poll_input(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.reactor.poll_input(context)
    }
}

#[cfg(all(test, model))]
mod model;
