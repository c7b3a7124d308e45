//! How a port says that it is ready.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use iwarp_os::{Epoll, Interest};

/// One descriptor that is readable when there is input and writable when there is room to send; or
/// two, of which the first is readable when there is input and the other writable when there is room.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors<'a> {
    input: BorrowedFd<'a>,
    room: Option<BorrowedFd<'a>>,
}

impl<'a> Descriptors<'a> {
    /// One for both.
    pub const fn one(fd: BorrowedFd<'a>) -> Self {
        Self { input: fd, room: None }
    }

    /// One for each.
    pub fn two(input: BorrowedFd<'a>, room: BorrowedFd<'a>) -> Self {
        // An epoll has each once.
        let same = input.as_raw_fd() == room.as_raw_fd();
        Self { input, room: (!same).then_some(room) }
    }

    /// The one to sleep on for input, or for room.
    pub(crate) fn of(self, interest: Interest) -> BorrowedFd<'a> {
        self.room.filter(|_| interest == Interest::WRITE).unwrap_or(self.input)
    }

    /// Has an epoll report what is of interest, under one token. Two descriptors are two reports.
    pub(crate) fn add(self, epoll: &Epoll, token: u64, interest: Interest) -> io::Result<()> {
        let Some(room) = self.room else { return epoll.add(self.input, token, interest) };
        epoll.add(self.input, token, interest.without(Interest::WRITE))?;
        let added = epoll.add(room, token, interest & Interest::WRITE);
        if added.is_err() {
            let _ = epoll.delete(self.input);
        }
        added
    }

    /// Changes what is of interest.
    pub(crate) fn modify(self, epoll: &Epoll, token: u64, interest: Interest) -> io::Result<()> {
        let Some(room) = self.room else { return epoll.modify(self.input, token, interest) };
        epoll.modify(self.input, token, interest.without(Interest::WRITE))?;
        epoll.modify(room, token, interest & Interest::WRITE)
    }

    /// Has an epoll report nothing any more.
    pub(crate) fn delete(self, epoll: &Epoll) -> io::Result<()> {
        let deleted = epoll.delete(self.input);
        self.room.map_or(Ok(()), |room| epoll.delete(room)).and(deleted)
    }
}
