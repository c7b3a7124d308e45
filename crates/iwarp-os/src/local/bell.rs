// SPDX-License-Identifier: MIT OR Apache-2.0

//! A descriptor by which one process wakes another.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::damage;
use crate::fd::{FdPlace, OurFd, PassedFd, as_fd};
use crate::poll::read_without_waiting;

/// An eventfd that two processes have.
///
/// A program's calls must not wait in it. Reading does not. A write does if the counter is full and
/// the flag `O_NONBLOCK` off. Both processes share the flag, so it is looked at before each write.
/// A hostile peer that fills the counter and takes the flag away between the look and the write
/// still holds the thread up: an eventfd has no write that never waits. Only a socket whose
/// receiving end was never shared (`MSG_DONTWAIT`) would close that gap.
#[derive(Debug)]
pub(super) struct Bell {
    fd: OurFd,
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self { fd: FdPlace::Internal.put(rustix::event::eventfd(0, flags)?) })
    }

    /// One that the peer has passed.
    ///
    /// # Errors
    ///
    /// `InvalidData` where it is no eventfd; `Unsupported` without `/proc`.
    pub(super) fn from_peer(fd: OwnedFd) -> io::Result<Self> {
        if !is_eventfd(&fd)? {
            return Err(damage("the peer's bell is no eventfd"));
        }
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        Ok(Self { fd: FdPlace::Internal.put(fd) })
    }

    /// A descriptor of it to pass.
    pub(super) fn duplicate(&self) -> io::Result<PassedFd> {
        // Out of the way of programs that use `select()`, as this is.
        Ok(rustix::io::fcntl_dupfd_cloexec(self, self.as_raw_fd())?.into())
    }

    pub(super) fn ring(&self) -> io::Result<()> {
        if !rustix::fs::fcntl_getfl(self)?.contains(OFlags::NONBLOCK) {
            return Err(damage("the peer's bell could block"));
        }
        match rustix::io::retry_on_intr(|| rustix::io::write(self, &1_u64.to_ne_bytes())) {
            // It is full: the peer is awake.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn drain(&self) {
        let _ = rustix::io::retry_on_intr(|| read_without_waiting(&self.fd, &mut [0; 8]));
    }
}

as_fd!(Bell);

/// Asks no file system about the file, as its server might never answer.
pub(super) fn is_eventfd(fd: &OwnedFd) -> io::Result<bool> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match rustix::fs::readlink(path, Vec::with_capacity(64)) {
        Ok(name) => Ok(name.as_bytes() == b"anon_inode:[eventfd]"),
        Err(Errno::NOENT) => Err(io::ErrorKind::Unsupported.into()),
        Err(error) => Err(error.into()),
    }
}
