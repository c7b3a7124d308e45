//! One direction of a connection in memory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iwarp_os::{EventFd, EventFdKind, FdPlace, IoPart, IoPartMut};

/// A counter that is as full as it gets cannot be written.
const FULL: u64 = u64::MAX - 1;

/// A bounded queue of octets.
#[derive(Debug)]
pub(super) struct Pipe {
    state: Mutex<State>,
    capacity: usize,
    /// Readable while there is something to receive.
    input: EventFd,
    /// Writable while there is room.
    room: EventFd,
}

#[derive(Debug, Default)]
struct State {
    octets: VecDeque<u8>,
    /// Nothing more is sent.
    ended: bool,
    /// Nothing more is received.
    unread: bool,
    reset: bool,
    /// What the descriptors say.
    shows_input: bool,
    shows_full: bool,
}

impl State {
    fn check(&self) -> io::Result<()> {
        if self.reset { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl Pipe {
    pub(super) fn new(capacity: usize) -> io::Result<Self> {
        let counter = || EventFd::new(EventFdKind::Counter, FdPlace::Internal);
        Ok(Self { state: Mutex::default(), capacity, input: counter()?, room: counter()? })
    }

    pub(super) fn input(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    pub(super) fn room(&self) -> BorrowedFd<'_> {
        self.room.as_fd()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the descriptors say what is so. Errors as room, and the end as input, as sockets do.
    fn show(&self, state: &mut State) -> io::Result<()> {
        let over = state.reset || state.ended;
        let input = over || !state.octets.is_empty();
        if input != std::mem::replace(&mut state.shows_input, input) {
            if input { self.input.signal()? } else { self.input.drain().map(drop)? }
        }
        let full = !over && !state.unread && state.octets.len() >= self.capacity;
        if full != std::mem::replace(&mut state.shows_full, full) {
            if full { self.room.add(FULL)? } else { self.room.drain().map(drop)? }
        }
        Ok(())
    }

    pub(super) fn write(&self, parts: &[IoPart<'_>]) -> io::Result<usize> {
        let mut state = self.lock();
        state.check()?;
        if state.ended || state.unread {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = self.capacity - state.octets.len();
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut octets = Vec::new();
        let taken = IoPart::gather(parts, &mut octets, room)?;
        state.octets.try_reserve(taken).map_err(|_| io::ErrorKind::OutOfMemory)?;
        state.octets.extend(octets);
        self.show(&mut state)?;
        Ok(taken)
    }

    pub(super) fn read(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        if parts.iter().all(IoPartMut::is_empty) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut state = self.lock();
        state.check()?;
        if state.octets.is_empty() {
            return if state.ended { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let taken = IoPartMut::scatter(parts, state.octets.make_contiguous())?;
        state.octets.drain(..taken);
        self.show(&mut state)?;
        Ok(taken)
    }

    pub(super) fn has_octets(&self) -> io::Result<bool> {
        let state = self.lock();
        state.check()?;
        Ok(!state.octets.is_empty())
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        // Fails only on a descriptor that was closed under us, which says that it is ready.
        let _ = self.show(&mut state);
    }

    /// Nothing more is sent.
    pub(super) fn end(&self) {
        self.change(|state| state.ended = true);
    }

    /// Nothing more is received.
    pub(super) fn stop_reading(&self) {
        self.change(|state| state.unread = true);
    }

    /// Both ends get an error, and what was not received is lost.
    pub(super) fn reset(&self) {
        self.change(|state| {
            state.reset = true;
            state.octets = VecDeque::new();
        });
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::time::Duration;

    use iwarp_os::Interest;
    use iwarp_os::poll::wait_ready;

    use super::*;

    fn ready(pipe: &Pipe) -> (bool, bool) {
        let fds = [(pipe.input(), Interest::READ), (pipe.room(), Interest::WRITE)];
        let [input, room] = wait_ready(fds, Some(Duration::ZERO)).unwrap();
        (input, room)
    }

    #[test]
    fn descriptors_say_what_is_so() {
        let pipe = Pipe::new(4).unwrap();
        assert_eq!(ready(&pipe), (false, true));
        assert_eq!(pipe.write(&[IoPart::new(b"ab"), IoPart::new(b"cde")]).unwrap(), 4);
        assert_eq!(ready(&pipe), (true, false));
        let full = pipe.write(&[IoPart::new(b"f")]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let mut octets = [0; 3];
        assert_eq!(pipe.read(&mut [IoPartMut::new(&mut octets)]).unwrap(), 3);
        assert_eq!(&octets, b"abc");
        assert_eq!(ready(&pipe), (true, true));
        assert_eq!(pipe.read(&mut [IoPartMut::new(&mut octets)]).unwrap(), 1);
        assert_eq!(ready(&pipe), (false, true));
        pipe.end();
        assert_eq!(ready(&pipe), (true, true));
        assert_eq!(pipe.read(&mut [IoPartMut::new(&mut octets)]).unwrap(), 0);
        pipe.reset();
        let reset = pipe.read(&mut [IoPartMut::new(&mut octets)]).unwrap_err();
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    }
}
