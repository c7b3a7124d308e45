// SPDX-License-Identifier: MIT OR Apache-2.0

//! A descriptor that shows the readiness of something else to the system's own `poll`, `select` and
//! `epoll`: a pair of AF_UNIX stream sockets, of which the program has one and the library the
//! other.
//!
//! ```text
//!   to show            the library
//!   POLLIN             writes an octet; the program's call reads it again
//!   no POLLOUT         has the program's call write octets; reads them again
//!   POLLIN POLLRDHUP   shuts its end down for writing
//!   and POLLHUP        closes its end, after it has read all octets
//!   and POLLERR        closes its end with an octet unread
//! ```
//!
//! One octet towards the library is always there, so that an end with an error needs no call of the
//! program's. Each change is a new edge. The methods that act on the program's end say so: they are
//! for calls in which the program has named it, as it may have closed it otherwise.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_send_buffer_size, socket_error};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair,
};

use crate::fd::{FdPlace, OurFd};

/// Octets that the program's end may hold before it is not writable, at most; more means that the
/// system keeps another account than Linux, and the descriptor is then always writable.
const MOST: usize = 64;

/// Octets for the program that are read at a time.
const TAKEN: usize = 256;

/// Octets towards the library beyond the first that make the program's end not writable; 0 where
/// the system does not tell.
static FILL: OnceLock<usize> = OnceLock::new();

/// See the [module](self).
#[derive(Debug)]
pub struct ReadinessPair {
    program: OurFd,
    /// `None` once it is closed.
    library: Option<OurFd>,
    is_filled: bool,
}

impl ReadinessPair {
    /// A pair whose descriptor for the program shows `POLLOUT`. It has the lowest free number.
    ///
    /// # Errors
    ///
    /// When the system has no more descriptors.
    pub fn new(cloexec: bool, nonblocking: bool) -> io::Result<Self> {
        let (program, library) = pair()?;
        FILL.get_or_init(|| pair().map_or(0, |(program, _library)| measure(&program)));
        if cloexec {
            rustix::io::fcntl_setfd(&program, rustix::io::FdFlags::CLOEXEC)?;
        }
        if nonblocking {
            rustix::fs::fcntl_setfl(&program, rustix::fs::OFlags::NONBLOCK)?;
        }
        let this = Self {
            program: FdPlace::Program.put(program),
            library: Some(FdPlace::Internal.put(library)),
            is_filled: false,
        };
        this.write(1)?;
        Ok(this)
    }

    /// The number of the program's end.
    pub fn number(&self) -> RawFd {
        self.program.as_raw_fd()
    }

    /// Shows `POLLIN`, or a new edge of it.
    pub fn put(&self) {
        if let Some(library) = &self.library {
            // Full: it shows that already.
            let _ = send(library, &[0], flags());
        }
    }

    /// Shows `POLLIN` no more. Acts on the program's end.
    pub fn take(&self) {
        let mut octets = [0; TAKEN];
        while recv(&self.program, &mut octets, RecvFlags::DONTWAIT)
            .is_ok_and(|(_, len)| len == TAKEN)
        {}
    }

    /// Shows `POLLOUT` no more. Acts on the program's end.
    pub fn fill(&mut self) {
        let octets = FILL.get().copied().unwrap_or(0);
        if !self.is_filled && self.library.is_some() && octets > 0 {
            self.is_filled = self.write(octets).is_ok();
        }
    }

    /// Shows `POLLOUT` again.
    pub fn release(&mut self) {
        let mut octets = [0; MOST];
        let count = FILL.get().copied().unwrap_or(0);
        if let Some(library) = self.library.as_ref().filter(|_| self.is_filled) {
            let _ = recv(library, &mut octets[..count], RecvFlags::DONTWAIT);
            self.is_filled = false;
        }
    }

    /// Shows `POLLIN` and `POLLRDHUP` for good.
    pub fn end_reading(&self) {
        if let Some(library) = &self.library {
            let _ = shutdown(library, Shutdown::Write);
        }
    }

    /// Shows `POLLIN`, `POLLOUT`, `POLLRDHUP` and `POLLHUP` for good, and `POLLERR` until
    /// [`Self::clear_error`] if there is an error.
    pub fn hang_up(&mut self, with_error: bool) {
        let Some(library) = self.library.take() else { return };
        if !with_error {
            let _ = recv(&library, &mut [0; 2 * MOST], RecvFlags::DONTWAIT);
        }
    }

    /// Shows `POLLERR` no more. Acts on the program's end.
    pub fn clear_error(&self) {
        let _ = socket_error(&self.program);
    }

    /// Closes the library's end only: the number of the program's is another file's by now.
    pub fn disown(self) {
        std::mem::forget(self.program.into_owned());
    }

    fn write(&self, octets: usize) -> io::Result<()> {
        // Each by itself: the system counts messages' memory, not octets.
        for _ in 0..octets {
            send(&self.program, &[0], flags())?;
        }
        Ok(())
    }
}

impl AsFd for ReadinessPair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

fn flags() -> SendFlags {
    SendFlags::DONTWAIT | SendFlags::NOSIGNAL
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (program, library) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        // Blocking as the program sees it; the library never waits.
        SocketFlags::empty(),
        None,
    )?;
    rustix::io::fcntl_setfd(&library, rustix::io::FdFlags::CLOEXEC)?;
    // The least that the system has.
    set_socket_send_buffer_size(&program, 1)?;
    Ok((program, library))
}

/// Counts the octets beyond the first that make a fresh end not writable.
fn measure(program: &OwnedFd) -> usize {
    let is_writable = || {
        let mut fds = [PollFd::new(program, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::OUT)
    };
    for count in 0..MOST {
        match send(program, &[0], flags()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return 0,
        }
        if !is_writable() {
            return count;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use rustix::event::epoll;

    use super::*;

    const HUNG_UP: PollFlags =
        PollFlags::IN.union(PollFlags::OUT).union(PollFlags::HUP).union(PollFlags::RDHUP);

    fn shown(pair: &ReadinessPair) -> PollFlags {
        let all = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP | PollFlags::PRI;
        let mut fds = [PollFd::new(pair, all)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).unwrap();
        fds[0].revents()
    }

    fn new() -> ReadinessPair {
        ReadinessPair::new(false, false).unwrap()
    }

    /// Covers: RS-POLL-01
    #[test]
    fn each_combination_of_readiness_is_shown() {
        let mut pair = new();
        for _ in 0..3 {
            assert_eq!(shown(&pair), PollFlags::OUT);
            pair.put();
            assert_eq!(shown(&pair), PollFlags::IN | PollFlags::OUT);
            pair.fill();
            assert_eq!(shown(&pair), PollFlags::IN);
            pair.take();
            assert_eq!(shown(&pair), PollFlags::empty());
            pair.release();
        }
        pair.end_reading();
        assert_eq!(shown(&pair), PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP);
        pair.hang_up(false);
        assert_eq!(shown(&pair), HUNG_UP);
    }

    /// Covers: RS-POLL-01
    #[test]
    fn an_error_is_shown_until_it_is_cleared() {
        for is_filled in [false, true] {
            let mut pair = new();
            if is_filled {
                pair.fill();
            }
            pair.hang_up(true);
            assert_eq!(shown(&pair), HUNG_UP | PollFlags::ERR);
            pair.clear_error();
            assert_eq!(shown(&pair), HUNG_UP);
        }
    }

    /// Covers: RS-POLL-03
    #[test]
    fn each_change_is_an_edge() {
        let mut pair = new();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let all = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&set, &pair, epoll::EventData::new_u64(0), all).unwrap();
        let edge = || {
            let mut events = Vec::with_capacity(2);
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&now)).unwrap();
            events.first().map(|event: &epoll::Event| event.flags)
        };
        assert_eq!(edge(), Some(epoll::EventFlags::OUT));
        for _ in 0..2 {
            assert_eq!(edge(), None);
            pair.put();
            assert_eq!(edge(), Some(epoll::EventFlags::IN | epoll::EventFlags::OUT));
        }
        pair.take();
        pair.fill();
        assert_eq!(edge(), None);
        pair.release();
        assert_eq!(edge(), Some(epoll::EventFlags::OUT));
    }

    #[test]
    fn flags_are_as_asked_for() {
        let pair = ReadinessPair::new(true, true).unwrap();
        assert!(rustix::io::fcntl_getfd(&pair).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        let flags = rustix::fs::fcntl_getfl(&pair).unwrap();
        assert!(flags.contains(rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::RDWR));
        let pair = new();
        assert!(rustix::io::fcntl_getfd(&pair).unwrap().is_empty());
        assert_eq!(rustix::fs::fcntl_getfl(&pair).unwrap(), rustix::fs::OFlags::RDWR);
    }
}
