// SPDX-License-Identifier: MIT OR Apache-2.0

//! Told between two processes: which of their connections have something new, and which completion
//! queues are armed.

mod armed;
#[cfg(test)]
mod tests;
mod words;

use std::borrow::Borrow;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use self::armed::Armed;
use self::words::Words;
use super::alert::Alert;
use super::bell::Bell;
use super::damage;
use super::memory::SharedMemory;
use super::ring::Side;
use crate::fd::PassedFd;
use crate::sync::{AtomicU64, Ordering};

/// Connections that two processes can tell each other of: their slots are numbers below this.
pub const SLOTS: usize = 64 * WORDS;

const WORDS: usize = 64;

/// Completion queues of either side whose arming the other can see: their numbers are below this.
pub const QUEUES: usize = 128;

/// The layout of the shared memory. Both ends must be of one build in this.
const VERSION: u64 = u64::from_be_bytes(*b"iwarpM\0\x02");

/// Bytes of the shared memory: a page, with most systems.
const OCTETS: usize = 4096;

const _: () = assert!(size_of::<Shared>() <= OCTETS);

#[repr(C)]
struct Shared {
    /// Written by A before B has the memory.
    version: AtomicU64,
    /// From A to B, and from B to A.
    directions: [Words<WORDS>; 2],
    /// The queues of A, and of B.
    armed: [Armed<QUEUES>; 2],
}

/// One end of what two processes tell each other: a bit for each connection, and a descriptor that
/// is readable while this end is to be awake.
///
/// One thread at a time takes and listens; any mark.
#[derive(Debug)]
pub struct Marks {
    memory: SharedMemory,
    side: Side,
    peers: Bell,
    own: Bell,
}

/// The descriptors that the maker passes to the peer.
#[derive(Debug)]
pub struct MarksFds {
    memory: PassedFd,
    makers: PassedFd,
    peers: PassedFd,
}

impl Marks {
    /// Makes the memory and a bell for either end. This is side A.
    ///
    /// # Errors
    ///
    /// Shortages, which leave nothing behind.
    pub fn create() -> io::Result<(Self, MarksFds)> {
        let (shared, memory) = SharedMemory::create(c"iwarp-marks", OCTETS, OCTETS, OCTETS)?;
        let marks = Self { memory: shared, side: Side::A, peers: Bell::new()?, own: Bell::new()? };
        marks.shared().version.store(VERSION, Ordering::Relaxed);
        let (makers, peers) = (marks.own.duplicate()?, marks.peers.duplicate()?);
        Ok((marks, MarksFds { memory, makers, peers }))
    }

    /// The other end of what a peer has made, from the descriptors in the order of
    /// [`MarksFds::passed`]. This is side B.
    ///
    /// # Errors
    ///
    /// `InvalidData` where a descriptor is something else; `Unsupported` where the system does not
    /// tell what one is; shortages.
    pub fn join(memory: OwnedFd, bell_of_peer: OwnedFd, own_bell: OwnedFd) -> io::Result<Self> {
        let memory = PassedFd::from(memory);
        let memory = SharedMemory::map(memory.as_fd(), OCTETS, OCTETS)?;
        let (peers, own) = (Bell::from_peer(bell_of_peer)?, Bell::from_peer(own_bell)?);
        let marks = Self { memory, side: Side::B, peers, own };
        if marks.shared().version.load(Ordering::Relaxed) != VERSION {
            return Err(damage("the peer's marks are laid out otherwise"));
        }
        Ok(marks)
    }

    /// Tells the peer that this connection has something new, and wakes it if it sleeps: by one
    /// write for each time that it does. True if it was woken.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a slot that is not below [`SLOTS`]; `InvalidData` where the peer has made
    /// its bell one that could block.
    pub fn mark(&self, slot: u16) -> io::Result<bool> {
        let slot = usize::from(slot);
        if slot >= SLOTS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let wakes = self.shared().directions[self.side as usize].mark(slot);
        if wakes {
            self.peers.ring()?;
        }
        Ok(wakes)
    }

    /// As [`mark`](Self::mark), of a message that completes in the peer's queue of that number.
    /// Where that is armed, the descriptor is signalled on which the peer's program waits, in place
    /// of the bell: then it is true. `find` gives the descriptor by the number that the peer has
    /// given it.
    ///
    /// # Errors
    ///
    /// As [`mark`](Self::mark); `InvalidInput` for a queue that is not below [`QUEUES`].
    pub fn mark_completion<A: Borrow<Alert>>(
        &self,
        slot: u16,
        (queue, is_solicited): (u16, bool),
        find: impl FnOnce(u32) -> Option<A>,
    ) -> io::Result<bool> {
        let (slot, queue) = (usize::from(slot), usize::from(queue));
        if slot >= SLOTS || queue >= QUEUES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let words = &self.shared().directions[self.side as usize];
        let sleeps = words.put(slot);
        let armed = &self.shared().armed[self.side.other() as usize];
        // One that cannot be signalled has closed its descriptor, and hears by the bell.
        let alert = armed.take(queue, is_solicited, find);
        if alert.is_some_and(|alert| alert.borrow().signal().is_ok()) {
            return Ok(true);
        }
        if sleeps && words.wakes() {
            self.peers.ring()?;
        }
        Ok(false)
    }

    /// True if the peer's queue of that number was armed a moment ago.
    #[inline]
    pub fn peer_is_armed(&self, queue: u16) -> bool {
        let armed = &self.shared().armed[self.side.other() as usize];
        armed.is_armed(queue.into())
    }

    /// The queue of this side with that number, which is below [`QUEUES`], is armed: its next
    /// completion, or the next solicited one, that the peer brings about is to signal the
    /// descriptor of that number. To be followed by a look at what the peer has marked. False where
    /// it was not armed before, or the peer was faster and signals.
    pub fn arm(&self, queue: u16, descriptor: u32, solicited_only: bool) -> bool {
        self.own_armed().arm(queue.into(), descriptor, solicited_only)
    }

    /// It is armed no more. False where it was not, or the peer was faster and signals.
    pub fn disarm(&self, queue: u16) -> bool {
        self.own_armed().disarm(queue.into())
    }

    /// True while it is armed, and the peer has not taken that back.
    #[inline]
    pub fn is_armed(&self, queue: u16) -> bool {
        self.own_armed().is_armed(queue.into())
    }

    fn own_armed(&self) -> &Armed<QUEUES> {
        &self.shared().armed[self.side as usize]
    }

    /// True if the peer may have marked something. One load.
    #[inline]
    pub fn any(&self) -> bool {
        self.incoming().any()
    }

    /// Takes the peer's marks. A hostile peer marks any slot.
    pub fn take(&self, mut each: impl FnMut(u16)) {
        self.incoming().take(|slot| each(slot as u16));
    }

    /// A thread is about to sleep until [`bell`](Self::bell) is readable. True if something may be
    /// marked already: then it is to look, and not to sleep. [`take`](Self::take) ends it.
    pub fn listen(&self) -> bool {
        self.incoming().listen()
    }

    /// Readable once this end was woken, until [`drain`](Self::drain).
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }

    /// Has the bell readable, as the peer does.
    pub fn ring_own(&self) {
        let _ = self.own.ring();
    }

    /// Has the bell not readable until it is rung again.
    pub fn drain(&self) {
        self.own.drain();
    }

    /// The end that this is.
    pub fn side(&self) -> Side {
        self.side
    }

    #[inline]
    fn incoming(&self) -> &Words<WORDS> {
        &self.shared().directions[self.side.other() as usize]
    }

    #[inline]
    fn shared(&self) -> &Shared {
        // SAFETY: it has only atomics.
        unsafe { self.memory.at(0) }
    }
}

impl MarksFds {
    /// The arguments of [`Marks::join`], in their order: the memory, the bell of the peer (the
    /// maker's), the own one (the peer's).
    pub fn passed(&self) -> [BorrowedFd<'_>; 3] {
        [self.memory.as_fd(), self.makers.as_fd(), self.peers.as_fd()]
    }
}
