// SPDX-License-Identifier: MIT OR Apache-2.0

//! A descriptor on which a program of another process waits for its events.

use std::io;
use std::os::fd::OwnedFd;

use super::bell::is_eventfd;
use super::damage;
use crate::poll::EventFd;

/// The event descriptor of a program, by which this process wakes it.
///
/// Only processes of one user pass it, which may read each other's memory. It stays as the program
/// has made it: both processes share the flag `O_NONBLOCK`, by which the program says whether its
/// calls wait. A signal waits only where the counter is full, for which 2^64 of them are needed.
#[derive(Debug)]
pub struct Alert(EventFd);

impl Alert {
    /// One that the peer has passed.
    ///
    /// # Errors
    ///
    /// `InvalidData` where it is no eventfd; `Unsupported` without `/proc`.
    pub fn from_peer(fd: OwnedFd) -> io::Result<Self> {
        if !is_eventfd(&fd)? {
            return Err(damage("the peer's event descriptor is no eventfd"));
        }
        Ok(Self(fd.into()))
    }

    /// Has the program's descriptor readable.
    ///
    /// # Errors
    ///
    /// `EBADF` where a program has closed it.
    pub fn signal(&self) -> io::Result<()> {
        self.0.signal()
    }
}
