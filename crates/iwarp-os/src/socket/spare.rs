// SPDX-License-Identifier: MIT OR Apache-2.0

//! Refusing connections when there are no descriptors left.

use std::io;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::TcpSocket;
use crate::fd::{FdPlace, OurFd};

/// A descriptor that is kept for the moment when there are no others: a connection can be taken
/// from the system only with one, be it to close it.
#[derive(Debug, Default)]
pub struct Spare(Option<OurFd>);

impl Spare {
    /// Takes a descriptor to keep, unless there is one. True if there is one now.
    pub fn keep(&mut self) -> bool {
        if self.0.is_none() {
            let fd = eventfd(0, EventfdFlags::CLOEXEC);
            self.0 = fd.ok().map(|fd| FdPlace::Internal.put(fd));
        }
        self.0.is_some()
    }
}

/// True if a connection could not be taken for a reason of its own: it waits no more, the next one
/// may be taken at once.
pub fn is_of_connection(error: &io::Error) -> bool {
    let of_network = [
        libc::ECONNABORTED,
        libc::EHOSTDOWN,
        libc::EHOSTUNREACH,
        libc::ENETDOWN,
        libc::ENETUNREACH,
        libc::ENONET,
        libc::ENOPROTOOPT,
        libc::EOPNOTSUPP,
        libc::EPROTO,
    ];
    // An error without a number is not of the system call, but of what is made of the connection.
    error.raw_os_error().is_none_or(|number| of_network.contains(&number))
}

/// True if a call failed for want of descriptors.
pub fn wants_descriptors(error: &io::Error) -> bool {
    const SHORTAGES: [Errno; 3] = [Errno::MFILE, Errno::NFILE, Errno::TOOMANYREFS];
    Errno::from_io_error(error).is_some_and(|error| SHORTAGES.contains(&error))
}

/// True if a call failed for want of something that may come back: descriptors, memory.
pub fn is_shortage(error: &io::Error) -> bool {
    // The last one: too many descriptors are on their way between processes.
    const SHORTAGES: [Errno; 5] =
        [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::TOOMANYREFS];
    Errno::from_io_error(error).is_some_and(|error| SHORTAGES.contains(&error))
}

impl TcpSocket {
    /// Takes a connection that is waiting and closes it, by means of the spare descriptor.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when none is waiting. Others where the spare one is gone too: threads of the
    /// program take what becomes free.
    pub fn refuse_one(&self, spare: &mut Spare) -> io::Result<()> {
        spare.keep();
        drop(spare.0.take());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let taken = rustix::net::accept_with(self, flags).map(drop);
        spare.keep();
        Ok(taken?)
    }
}
