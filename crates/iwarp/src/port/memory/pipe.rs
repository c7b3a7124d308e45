// SPDX-License-Identifier: MIT OR Apache-2.0

//! One direction of a connection in memory.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::port::{IoPart, IoPartMut, Readiness, Waker, WakerSlot};

/// A bounded queue of bytes.
#[derive(Debug)]
pub(super) struct Pipe {
    state: Mutex<PipeState>,
    capacity: usize,
    /// Woken when there is something to receive.
    reader: WakerSlot,
    /// Woken when there is room.
    writer: WakerSlot,
}

#[derive(Debug, Default)]
struct PipeState {
    octets: VecDeque<u8>,
    /// Sending has ended.
    ended: bool,
    /// Receiving has ended.
    unread: bool,
    reset: bool,
}

impl PipeState {
    fn check(&self) -> io::Result<()> {
        if self.reset { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }

    /// Errors are room, and the end is input, as with sockets.
    fn readiness(&self, capacity: usize) -> Readiness {
        let over = self.reset || self.ended;
        let mut ready = Readiness::empty();
        ready.set(Readiness::INPUT, over || !self.octets.is_empty());
        ready.set(Readiness::ROOM, over || self.unread || self.octets.len() < capacity);
        ready
    }
}

impl Pipe {
    pub(super) fn new(capacity: usize) -> Self {
        let (reader, writer) = Default::default();
        Self { state: Mutex::default(), capacity, reader, writer }
    }

    /// The readiness: input for its reader, and room for its writer.
    pub(super) fn readiness(&self) -> Readiness {
        self.lock().readiness(self.capacity)
    }

    /// Sets the waker of its reader.
    pub(super) fn set_reader(&self, waker: Waker) {
        self.reader.set(waker);
    }

    /// Sets the waker of its writer.
    pub(super) fn set_writer(&self, waker: Waker) {
        self.writer.set(waker);
    }

    fn lock(&self) -> MutexGuard<'_, PipeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes the end for which something is ready that was not.
    fn change<R>(&self, change: impl FnOnce(&mut PipeState) -> R) -> R {
        let mut state = self.lock();
        let before = state.readiness(self.capacity);
        let result = change(&mut state);
        let begun = state.readiness(self.capacity).difference(before);
        drop(state);
        if begun.contains(Readiness::INPUT) {
            self.reader.wake(Readiness::INPUT);
        }
        if begun.contains(Readiness::ROOM) {
            self.writer.wake(Readiness::ROOM);
        }
        result
    }

    pub(super) fn write(&self, parts: &[IoPart<'_>]) -> io::Result<usize> {
        self.change(|state| {
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
            Ok(taken)
        })
    }

    pub(super) fn read(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        if parts.iter().all(IoPartMut::is_empty) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.change(|state| {
            state.check()?;
            if state.octets.is_empty() {
                return if state.ended { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
            }
            let taken = IoPartMut::scatter(parts, state.octets.make_contiguous())?;
            state.octets.drain(..taken);
            Ok(taken)
        })
    }

    pub(super) fn has_octets(&self) -> io::Result<bool> {
        let state = self.lock();
        state.check()?;
        Ok(!state.octets.is_empty())
    }

    /// Ends sending.
    pub(super) fn end(&self) {
        self.change(|state| state.ended = true);
    }

    /// Ends receiving.
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
    use std::sync::Arc;

    use super::*;
    use crate::port::Wake;

    #[derive(Debug, Default)]
    struct Woken(Mutex<Vec<Readiness>>);

    impl Wake for Woken {
        fn wake(&self, what: Readiness) {
            self.0.lock().unwrap().push(what);
        }
    }

    #[test]
    fn readiness_is_what_is_so_and_what_begins_is_told() {
        let (input, room) = (Readiness::INPUT, Readiness::ROOM);
        let pipe = Pipe::new(4);
        let ends = [Arc::new(Woken::default()), Arc::new(Woken::default())];
        pipe.set_reader(Waker::new(Arc::clone(&ends[0]) as Arc<dyn Wake>));
        pipe.set_writer(Waker::new(Arc::clone(&ends[1]) as Arc<dyn Wake>));
        let told = || ends.each_ref().map(|end| std::mem::take(&mut *end.0.lock().unwrap()));
        assert_eq!((pipe.readiness(), told()), (room, [vec![], vec![]]));
        assert_eq!(pipe.write(&[IoPart::new(b"ab"), IoPart::new(b"cde")]).unwrap(), 4);
        assert_eq!((pipe.readiness(), told()), (input, [vec![input], vec![]]));
        let full = pipe.write(&[IoPart::new(b"f")]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let mut octets = [0; 3];
        assert_eq!(pipe.read(&mut [IoPartMut::new(&mut octets)]).unwrap(), 3);
        assert_eq!(&octets, b"abc");
        assert_eq!((pipe.readiness(), told()), (input | room, [vec![], vec![room]]));
        assert_eq!(pipe.read(&mut [IoPartMut::new(&mut octets)]).unwrap(), 1);
        assert_eq!((pipe.readiness(), told()), (room, [vec![], vec![]]));
        pipe.end();
        assert_eq!((pipe.readiness(), told()), (input | room, [vec![input], vec![]]));
        assert_eq!(pipe.read(&mut [IoPartMut::new(&mut octets)]).unwrap(), 0);
        pipe.reset();
        let reset = pipe.read(&mut [IoPartMut::new(&mut octets)]).unwrap_err();
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    }
}
