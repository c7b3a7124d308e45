// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages of a line that the other process has not been told yet.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

use iwarp_os::socket::is_shortage;
use iwarp_os::unix::SeqSocket;
use iwarp_os::{Interest, PassedFd};

use super::message::Message;

/// Questions that wait for a process which does not read them at most, each with a descriptor.
const QUESTIONS: usize = 256;

/// See the [module](self). An end either asks or answers.
pub(super) struct Outbox {
    asks: bool,
    /// With the memory that goes along.
    messages: VecDeque<(Message, Option<PassedFd>)>,
    /// The events for which the worker watches the socket.
    watched: Interest,
}

/// The thing that the first of the messages waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// There is none.
    None,
    /// The other process has to read.
    Room,
    /// The system is short of something.
    Later,
}

impl Outbox {
    /// Of a line that the worker watches for input.
    pub(super) const fn new(asks: bool) -> Self {
        Self { asks, messages: VecDeque::new(), watched: Interest::READ }
    }

    /// True if one more question has to wait outside.
    pub(super) fn is_full(&self) -> bool {
        self.messages.len() >= QUESTIONS
    }

    /// True if what the other process says is to be read. An end that answers reads no question
    /// before it has room for the answer, so that its answers need no bound. One that asks reads
    /// always: two that wait for each other would wait for good.
    pub(super) fn lets_read(&self) -> bool {
        self.asks || self.messages.is_empty()
    }

    /// Adds a message, and says whether it is the only one.
    pub(super) fn push(&mut self, message: Message, memory: Option<PassedFd>) -> io::Result<bool> {
        self.messages.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.messages.push_back((message, memory));
        Ok(self.messages.len() == 1)
    }

    /// Empties it: no message goes out any more.
    pub(super) fn clear(&mut self) {
        self.messages.clear();
    }

    /// Sends as many as go.
    pub(super) fn send(&mut self, socket: &SeqSocket) -> io::Result<Rest> {
        while let Some((message, memory)) = self.messages.front() {
            let memory = memory.as_ref().map(PassedFd::as_fd);
            match socket.send(&message.encode(), memory.as_slice()) {
                Ok(()) => drop(self.messages.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Rest::Room),
                Err(error) if is_shortage(&error) => return Ok(Rest::Later),
                Err(error) => return Err(error),
            }
        }
        Ok(Rest::None)
    }

    /// The events to watch for from now on, if they are others than before.
    pub(super) fn watches(&mut self, rest: Rest) -> Option<Interest> {
        let reads = if self.lets_read() { Interest::READ } else { Interest::NONE };
        let now = if rest == Rest::Room { reads | Interest::WRITE } else { reads };
        (std::mem::replace(&mut self.watched, now) != now).then_some(now)
    }
}
