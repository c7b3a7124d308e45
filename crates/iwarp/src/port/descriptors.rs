// SPDX-License-Identifier: MIT OR Apache-2.0

//! The way in which a port says that it is ready.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use iwarp_os::{Epoll, Interest};

/// One descriptor that is readable when there is input and writable when there is room to send; or
/// two, of which the first is readable when there is input and the other writable when there is
/// room; or none, of a port that says so by a [`Waker`](super::Waker).
#[derive(Clone, Copy, Debug)]
pub struct Descriptors<'a> {
    input: Option<BorrowedFd<'a>>,
    room: Option<BorrowedFd<'a>>,
    /// Another that is both readable and writable, as the first one then is.
    beside: Option<BorrowedFd<'a>>,
    /// The first is a stream socket of the system's.
    is_stream: bool,
}

impl<'a> Descriptors<'a> {
    /// One for both.
    pub const fn one(fd: BorrowedFd<'a>) -> Self {
        Self { input: Some(fd), room: None, beside: None, is_stream: false }
    }

    /// One for both, of a stream socket of the system's: a thread that is told what *comes* there
    /// need not ask again after a call that has received less than there was room for.
    pub(crate) const fn of_stream(fd: BorrowedFd<'a>) -> Self {
        Self { is_stream: true, ..Self::one(fd) }
    }

    /// One for each.
    pub fn two(input: BorrowedFd<'a>, room: BorrowedFd<'a>) -> Self {
        // An epoll has each once.
        let same = input.as_raw_fd() == room.as_raw_fd();
        let room = (!same).then_some(room);
        Self { input: Some(input), room, beside: None, is_stream: false }
    }

    /// These descriptors, of a port that receives by other means besides: more may come than they
    /// tell.
    #[must_use]
    pub(crate) const fn among_others(self) -> Self {
        Self { is_stream: false, ..self }
    }

    /// No descriptor.
    pub const fn none() -> Self {
        Self { input: None, room: None, beside: None, is_stream: false }
    }

    /// The descriptors of a port that is made of two with one descriptor each.
    #[must_use]
    pub const fn beside(self, other: Self) -> Self {
        Self { beside: other.input, ..self }
    }

    /// True if there is no descriptor.
    pub const fn is_none(&self) -> bool {
        self.input.is_none()
    }

    /// The descriptor of a stream socket of the system's, if there is no other.
    pub(crate) fn stream(self) -> Option<BorrowedFd<'a>> {
        self.input.filter(|_| self.is_stream && self.room.is_none() && self.beside.is_none())
    }

    /// The one to sleep on for input, or for room.
    pub(crate) fn of(self, interest: Interest) -> Option<BorrowedFd<'a>> {
        self.room.filter(|_| interest == Interest::WRITE).or(self.input)
    }

    /// The CPU by which the last input came, where that is known.
    pub(crate) fn input_cpu(self) -> Option<usize> {
        iwarp_os::poll::incoming_cpu(self.input?)
    }

    /// Has an epoll report what is of interest, under one token. Two descriptors are two reports,
    /// none is no report.
    pub(crate) fn add(self, epoll: &Epoll, token: u64, interest: Interest) -> io::Result<()> {
        let Some(input) = self.input else { return Ok(()) };
        let Some(room) = self.room else {
            epoll.add(input, token, interest)?;
            let Some(beside) = self.beside else { return Ok(()) };
            return epoll.add(beside, token, interest).inspect_err(|_| {
                let _ = epoll.delete(input);
            });
        };
        epoll.add(input, token, interest.without(Interest::WRITE))?;
        let added = epoll.add(room, token, interest & Interest::WRITE);
        if added.is_err() {
            let _ = epoll.delete(input);
        }
        added
    }

    /// Changes what is of interest.
    pub(crate) fn modify(self, epoll: &Epoll, token: u64, interest: Interest) -> io::Result<()> {
        let Some(input) = self.input else { return Ok(()) };
        let Some(room) = self.room else {
            epoll.modify(input, token, interest)?;
            return self.beside.map_or(Ok(()), |beside| epoll.modify(beside, token, interest));
        };
        epoll.modify(input, token, interest.without(Interest::WRITE))?;
        epoll.modify(room, token, interest & Interest::WRITE)
    }

    /// Has an epoll report nothing any more.
    pub(crate) fn delete(self, epoll: &Epoll) -> io::Result<()> {
        let Some(input) = self.input else { return Ok(()) };
        let deleted = epoll.delete(input);
        let others = self.room.into_iter().chain(self.beside);
        others.fold(deleted, |deleted, other| deleted.and(epoll.delete(other)))
    }
}
