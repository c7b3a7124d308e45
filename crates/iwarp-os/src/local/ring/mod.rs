// SPDX-License-Identifier: MIT OR Apache-2.0

//! One connection of two processes: a ring of bytes for each direction, and an annex.

mod annex;
mod flow;
mod ranges;
#[cfg(test)]
mod tests;

use self::ranges::Act;
pub use self::ranges::{Found, ShownRange};

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, OnceLock, PoisonError};

use self::flow::{Damaged, Flow, Line, Receiving, Sending};
use self::ranges::Ranges;
use super::damage;
use super::memory::SharedMemory;
use crate::fd::PassedFd;
use crate::part::{IoPart, IoPartMut, Place};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The largest room that a ring can have in a direction, in bytes.
pub const MAX_ROOM: usize = 1 << 28;

/// The layout of the shared memory. Both ends must be of one build in this.
const VERSION: u64 = u64::from_be_bytes(*b"iwarpR\0\x06");

/// Bytes of a room that connections which pass little go on using, and by which it is made present.
const HOME: usize = 4096;

/// The room of each direction begins so many bytes into the memory.
const HEADER: usize = 8192;

const _: () = assert!(size_of::<Header>() <= HEADER);

#[repr(C)]
struct Header {
    about: Line<About>,
    /// From A to B, and from B to A.
    flows: [Flow; 2],
    /// The words of A, and of B.
    sides: [SideWords; 2],
}

/// Words about requests that the peer carries out by itself.
#[repr(C)]
struct SideWords {
    settled: Line<SettledWords>,
    /// Of this side in the peer's memory.
    act: Line<Act>,
    ranges: Ranges,
}

/// Written by the side whose they are, but for `wanted` and `awaited`.
#[repr(C)]
struct SettledWords {
    /// One more than the bytes that were taken out and dealt with, as it was said last; 0 before
    /// that.
    upto: AtomicU64,
    /// A side looks at it.
    wanted: AtomicU32,
    /// The peer is to be told when it has changed.
    awaited: AtomicU32,
}

/// Values of `wanted`: by a side that looks, and by a peer that is told.
const LOOKS: u32 = 1;
const TOLD: u32 = 2;

/// Written by A before B has the memory.
#[repr(C)]
struct About {
    version: AtomicU64,
    room: AtomicU64,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that has made the memory.
    A,
    /// The one that got it.
    B,
}

/// One end of a connection: two rings of bytes, one for each direction, in one memory.
///
/// Besides, each side has an *annex*, as large as its room, where it [leaves](Self::leave) bytes
/// and the peer [fetches](Self::fetch) them. The ends tell each other by the ring what lies there.
///
/// One thread at a time sends and one receives. More at a time are not unsafe, but get each other's
/// bytes, or hear of damage that the peer has not done.
///
/// A call that finds the peer's counts to be nonsense fails with `InvalidData`, and so do all sends
/// and receives after it.
#[derive(Debug)]
pub struct Ring {
    memory: SharedMemory,
    side: Side,
    room: usize,
    damaged: AtomicBool,
    sending: Line<Sending>,
    /// Bytes of the own room that are there, and the part of it that the last byte went into: the
    /// sender's.
    present: AtomicUsize,
    part: AtomicUsize,
    /// Bytes of the own annex that are there.
    annexed: AtomicUsize,
    receiving: Line<Receiving>,
    has_ended: AtomicBool,
    peer_began_at: OnceLock<u64>,
    /// Held by the thread that writes the own ranges.
    writes_ranges: Mutex<()>,
}

impl Ring {
    /// Makes both rings, with `room` bytes each, and a descriptor to pass to the peer. This is side
    /// A.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where `room` is no power of two or above [`MAX_ROOM`]; shortages.
    pub fn create(room: usize) -> io::Result<(Self, PassedFd)> {
        let (len, rings) = (octets(room)?, HEADER + 2 * room);
        let (memory, fd) = SharedMemory::create(c"iwarp-ring", len, HEADER, rings)?;
        let ring = Self::new(memory, Side::A, room);
        let about = &ring.header().about.0;
        about.room.store(room as u64, Ordering::Relaxed);
        about.version.store(VERSION, Ordering::Relaxed);
        Ok((ring, fd))
    }

    /// The other end of what a peer has made. This is side B.
    ///
    /// # Errors
    ///
    /// `InvalidInput` as for [`create`](Self::create); `InvalidData` where it is no such memory;
    /// shortages.
    pub fn join(fd: BorrowedFd<'_>, room: usize) -> io::Result<Self> {
        let ring = Self::new(SharedMemory::map(fd, octets(room)?, HEADER)?, Side::B, room);
        let about = &ring.header().about.0;
        let told = [&about.version, &about.room].map(|word| word.load(Ordering::Relaxed));
        if told != [VERSION, room as u64] {
            return Err(damage("the peer's ring is laid out otherwise"));
        }
        Ok(ring)
    }

    fn new(memory: SharedMemory, side: Side, room: usize) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            memory,
            side,
            room,
            damaged: AtomicBool::new(false),
            sending: Line(Sending { sent: zero(), origin: zero(), taken: zero() }),
            present: AtomicUsize::new(0),
            part: AtomicUsize::new(0),
            annexed: AtomicUsize::new(0),
            receiving: Line(Receiving {
                taken: zero(),
                sent: zero(),
                origin: zero(),
                served: zero(),
                owes: AtomicBool::new(false),
            }),
            has_ended: AtomicBool::new(false),
            peer_began_at: OnceLock::new(),
            writes_ranges: Mutex::new(()),
        }
    }

    /// The end that this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The room of each direction, in bytes.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Sends bytes, as many as there is room for; says how many. A part that is not mapped ends it.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where there is no room: the peer was asked to tell of some. `EFAULT` where the
    /// first byte is not there. `BrokenPipe` after [`end`](Self::end), and where the peer reads no
    /// more. `InvalidData` where it has damaged the ring. `OutOfMemory` where the system has none.
    pub fn send(&self, parts: &[IoPart<'_>]) -> io::Result<usize> {
        let flow = self.out();
        self.check_damage()?;
        if self.has_ended.load(Ordering::Relaxed) || flow.is_closed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let wanted = IoPart::total(parts).min(self.room) as u64;
        if wanted == 0 {
            return Ok(0);
        }
        let own = &self.sending.0;
        self.come_home();
        let room = flow.room(own, self.room as u64, wanted).map_err(|error| self.damage(error))?;
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let at = self.at(own.sent.load(Ordering::Relaxed), &own.origin);
        let present = self.make_present(at, room.min(wanted));
        // Without more memory there is what was used before: the next try looks for it.
        let len = present.inspect_err(|_| self.part.store(usize::MAX, Ordering::Relaxed))?;
        let places = self.places(self.side, at, len);
        // SAFETY: the places are in our mapping, to which no Rust reference exists; no part is in
        // it.
        let sent = unsafe { IoPart::gather_into(parts, &places)? };
        flow.put(own, sent as u64);
        Ok(sent)
    }

    /// True if a send would not say `WouldBlock`.
    pub fn has_room(&self) -> bool {
        let flow = self.out();
        // In this order: what the peer has taken was sent before.
        let taken = flow.taken.0.load(Ordering::Acquire);
        let used = self.sending.0.sent.load(Ordering::Relaxed).wrapping_sub(taken);
        used != self.room as u64
            || flow.is_closed()
            || self.has_ended.load(Ordering::Relaxed)
            || self.is_damaged()
    }

    /// This side sends no more. The peer can read out what was sent.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.out().end();
    }

    /// Tells the peer that this side has sent so many bytes by another way before those in the
    /// ring. To be called once at most.
    pub fn begin_at(&self, sent: u64) {
        let seldom = &self.out().seldom.0;
        seldom.began_at.store(sent, Ordering::Relaxed);
        seldom.began.store(1, Ordering::Release);
    }

    /// Number of bytes that the peer has sent by another way, once it has told. It stays what it
    /// was when this side looked first.
    pub fn peer_began_at(&self) -> Option<u64> {
        let seldom = &self.incoming().seldom.0;
        let known = self.peer_began_at.get().copied();
        known.or_else(|| {
            (seldom.began.load(Ordering::Acquire) != 0).then(|| {
                *self.peer_began_at.get_or_init(|| seldom.began_at.load(Ordering::Relaxed))
            })
        })
    }

    /// Tells the peer the number of the completion queue in which what it sends completes.
    pub fn receives_complete_in(&self, queue: u16) {
        let seldom = &self.incoming().seldom.0;
        seldom.queue.store(u32::from(queue) + 1, Ordering::Relaxed);
    }

    /// Tells the peer the number of the completion queue in which what this side sends completes.
    pub fn sends_complete_in(&self, queue: u16) {
        let seldom = &self.out().seldom.0;
        seldom.senders.store(u32::from(queue) + 1, Ordering::Relaxed);
    }

    /// The number of the peer's queue in which what this side sends completes, once it has told.
    #[inline]
    pub fn peers_receives_complete_in(&self) -> Option<u16> {
        let queue = self.out().seldom.0.queue.load(Ordering::Relaxed);
        u16::try_from(queue.checked_sub(1)?).ok()
    }

    /// The number of the peer's queue in which what the peer sends completes, once it has told.
    #[inline]
    pub fn peers_sends_complete_in(&self) -> Option<u16> {
        let queue = self.incoming().seldom.0.senders.load(Ordering::Relaxed);
        u16::try_from(queue.checked_sub(1)?).ok()
    }

    /// Takes bytes, as many as there are and `parts` have room for; says how many. 0 is the end. A
    /// part that is not mapped ends it.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where there are none. `EFAULT` where the first byte's place is not there; then
    /// none is taken. `InvalidData` where the peer has damaged the ring. `InvalidInput` without
    /// room in `parts`.
    pub fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        let flow = self.incoming();
        self.check_damage()?;
        let wanted = IoPartMut::total(parts).min(self.room) as u64;
        if wanted == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (own, size) = (&self.receiving.0, self.room as u64);
        let filled = flow.filled_or_ended(own, size, wanted).map_err(|error| self.damage(error))?;
        let there = match filled {
            Some(0) => return Ok(0),
            Some(there) => there,
            None => return Err(io::ErrorKind::WouldBlock.into()),
        };
        let at = self.at(own.taken.load(Ordering::Relaxed), &own.origin);
        let places = self.places(self.side.other(), at, there);
        // SAFETY: as in `send`.
        let came = unsafe { IoPartMut::scatter_from(parts, &places)? };
        flow.take(own, size, came as u64);
        Ok(came)
    }

    /// True if a receive would not say `WouldBlock`.
    pub fn has_input(&self) -> bool {
        let flow = self.incoming();
        let sent = flow.sender.0.sent.load(Ordering::Acquire);
        sent != self.receiving.0.taken.load(Ordering::Relaxed)
            || flow.is_ended()
            || self.is_damaged()
    }

    /// True if the peer sends no more. There may be bytes to take.
    pub fn is_ended(&self) -> bool {
        self.incoming().is_ended()
    }

    /// True once after a receive that made room for which the peer waits: at least half of the
    /// ring. The caller tells the peer by a mark.
    pub fn owes_room(&self) -> bool {
        let owes = &self.receiving.0.owes;
        // Mostly false, and then nothing is written.
        owes.load(Ordering::Relaxed) && owes.swap(false, Ordering::Relaxed)
    }

    /// This side takes no more bytes: the peer's sends fail with `BrokenPipe`.
    pub fn close(&self) {
        self.incoming().seldom.0.closed.store(1, Ordering::Release);
    }

    /// True once this side has noticed that the peer wrote nonsense.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// All that was taken out so far has been dealt with, but for the last `rest` bytes: the others
    /// are placed, and none of them waits. To be called by the thread that receives. Does nothing
    /// unless a side has asked ([`is_settled`](Self::is_settled),
    /// [`await_peer`](Self::await_peer)). True if the peer is to be told by a mark.
    #[inline]
    pub fn settle(&self, rest: u64) -> bool {
        let words = &self.own_words().settled.0;
        let wanted = words.wanted.load(Ordering::Relaxed);
        if wanted == 0 {
            return false;
        }
        let taken = self.receiving.0.taken.load(Ordering::Relaxed);
        // Bytes that wait may have come before, by another way.
        let Some(dealt) = taken.checked_sub(rest) else { return false };
        let upto = dealt.wrapping_add(1);
        if upto == words.upto.load(Ordering::Relaxed) {
            return false;
        }
        words.upto.store(upto, Ordering::Release);
        wanted & TOLD != 0 && {
            // A peer that awaits more sees the count, or is seen to wait.
            fence(Ordering::SeqCst);
            words.awaited.load(Ordering::Relaxed) != 0
                && words.awaited.swap(0, Ordering::Relaxed) != 0
        }
    }

    /// Has the peer tell by a mark when it has dealt with more than the bytes `upto`. False where
    /// it has, or never said so.
    pub fn await_peer(&self, upto: u64) -> bool {
        let words = &self.peer_words().settled.0;
        if words.wanted.load(Ordering::Relaxed) & TOLD == 0 {
            words.wanted.fetch_or(TOLD, Ordering::Relaxed);
        }
        if words.awaited.load(Ordering::Relaxed) == 0 {
            words.awaited.store(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        self.peer_settled().is_none_or(|settled| settled <= upto)
    }

    /// The bytes of this side with which the peer has dealt, as it has said last.
    #[inline]
    pub fn peer_settled(&self) -> Option<u64> {
        let upto = self.peer_words().settled.0.upto.load(Ordering::Acquire).checked_sub(1)?;
        // It has dealt with none that was not sent.
        Some(upto.min(self.sending.0.sent.load(Ordering::Relaxed)))
    }

    /// True if the peer has dealt with all that this side has sent. False is no promise: the peer
    /// says so only once it was asked here.
    #[inline]
    pub fn is_settled(&self) -> bool {
        for words in [self.own_words(), self.peer_words()] {
            let wanted = &words.settled.0.wanted;
            if wanted.load(Ordering::Relaxed) & LOOKS == 0 {
                wanted.fetch_or(LOOKS, Ordering::Relaxed);
            }
        }
        let sent = self.sending.0.sent.load(Ordering::Relaxed);
        self.peer_words().settled.0.upto.load(Ordering::Acquire) == sent.wrapping_add(1)
    }

    /// True if this side has dealt with all that the peer has sent, as far as it was
    /// [told](Self::settle) since the first call of [`is_settled`](Self::is_settled).
    #[inline]
    pub fn has_settled(&self) -> bool {
        let sent = self.incoming().sender.0.sent.load(Ordering::Acquire);
        self.own_words().settled.0.upto.load(Ordering::Acquire) == sent.wrapping_add(1)
    }

    /// The peer may access this memory of this process from now on, by that name. Says whether that
    /// is news, and there is a place for it.
    pub fn show(&self, range: &ShownRange) -> bool {
        let _writes = self.writes_ranges.lock().unwrap_or_else(PoisonError::into_inner);
        let own = &self.own_words().ranges;
        let is_new = own.find(range.key).is_none_or(|(there, _)| there != *range);
        is_new && own.put(range, &self.peer_words().act.0)
    }

    /// The memory that the peer may access by that name.
    pub fn showing(&self, key: u32) -> Option<ShownRange> {
        self.own_words().ranges.find(key).map(|(range, _)| range)
    }

    /// The peer may access nothing any more that was [shown](Self::show): no copy counts that ends
    /// later. Waits for no other process, which may be [writing](Self::is_accessed).
    pub fn show_nothing(&self) {
        let _writes = self.writes_ranges.lock().unwrap_or_else(PoisonError::into_inner);
        self.own_words().ranges.clear();
    }

    /// The address and length of the memory that the peer was shown last by that name, if none else
    /// has taken its place since.
    pub fn last_showing(&self, key: u32) -> Option<(u64, u64)> {
        let _writes = self.writes_ranges.lock().unwrap_or_else(PoisonError::into_inner);
        self.own_words().ranges.last(key)
    }

    /// The memory that the peer shows by that name. It may have written anything.
    #[inline]
    pub fn shown(&self, key: u32) -> Option<(ShownRange, Found)> {
        self.peer_words().ranges.find(key)
    }

    /// True if the peer has shown that memory all the time since it was found. To be asked behind a
    /// copy.
    #[inline]
    pub fn still_shows(&self, found: Found) -> bool {
        self.peer_words().ranges.is_still(found)
    }

    /// This side is about to write to memory that the peer shows, by a mapping of it, which
    /// [`end_access`](Self::end_access) ends. False where it may not: the peer does not show that
    /// memory any more, or another thread is writing.
    #[inline]
    pub fn begin_access(&self, found: Found, key: u32) -> bool {
        let act = &self.own_words().act.0;
        if !act.begin(key) {
            return false;
        }
        let may = self.still_shows(found);
        if !may {
            act.end();
        }
        may
    }

    /// Ends that. False where the peer has waited for too long, and what was written is nowhere, or
    /// only some of it is there.
    #[inline]
    pub fn end_access(&self) -> bool {
        self.own_words().act.0.end()
    }

    /// True while the peer may be writing to memory of that name, or to any, which it is not shown
    /// any more.
    pub fn is_accessed(&self, key: Option<u32>) -> bool {
        self.peer_words().act.0.is_at(key)
    }

    /// The name of the memory that the peer may be writing to, unless it was
    /// [disowned](Self::disown_access).
    pub fn accessed(&self) -> Option<u32> {
        self.peer_words().act.0.name()
    }

    /// True unless the peer may be writing to memory that it was ever shown, or to pages that were
    /// in its place.
    pub fn is_idle(&self) -> bool {
        self.peer_words().act.0.is_idle()
    }

    /// Waits for the peer no more, which is writing to memory of that name, or to any: the caller
    /// takes the memory out of its reach. Says of which name it is; `None` if the peer has come to
    /// an end.
    pub fn disown_access(&self, key: Option<u32>) -> Option<u32> {
        self.peer_words().act.0.disown(key)
    }

    fn own_words(&self) -> &SideWords {
        &self.header().sides[self.side as usize]
    }

    fn peer_words(&self) -> &SideWords {
        &self.header().sides[self.side.other() as usize]
    }

    fn check_damage(&self) -> io::Result<()> {
        if self.is_damaged() { Err(self.damage(Damaged)) } else { Ok(()) }
    }

    #[cold]
    fn damage(&self, _: Damaged) -> io::Error {
        self.damaged.store(true, Ordering::Relaxed);
        damage("the peer has damaged the ring")
    }

    /// The place of the byte of this number in its room.
    fn at(&self, number: u64, origin: &AtomicU64) -> usize {
        number.wrapping_sub(origin.load(Ordering::Relaxed)) as usize & (self.room - 1)
    }

    /// The sender is about to send: if it comes into another part of its room, and the ring is
    /// empty, it goes back to the beginning.
    fn come_home(&self) {
        let own = &self.sending.0;
        let home = HOME.min(self.room / 8).max(1);
        let part = self.at(own.sent.load(Ordering::Relaxed), &own.origin) / home;
        if part != self.part.load(Ordering::Relaxed) {
            self.part.store(part, Ordering::Relaxed);
            self.out().begin_anew(own);
        }
    }

    /// Has the bytes there that the sender fills next, or those of them for which there is memory.
    fn make_present(&self, at: usize, len: u64) -> io::Result<u64> {
        // Beyond the end they go on at the beginning.
        let end = usize::try_from(len).map_or(self.room, |len| self.room.min(at + len));
        let present = self.present.load(Ordering::Relaxed);
        if end <= present {
            return Ok(len);
        }
        let more = end.max(2 * present).next_multiple_of(HOME).min(self.room);
        let begin = HEADER + self.side as usize * self.room;
        let made = |to| self.memory.make_present(begin + present..begin + to).map(|()| to);
        // For want of that much memory one page is enough, and at worst what is there.
        let least = || made((present + HOME).min(self.room));
        let present = match made(more).or_else(|_| least()) {
            Ok(made) => made,
            Err(_) if present > at => present,
            Err(error) => return Err(error),
        };
        self.present.store(present, Ordering::Relaxed);
        Ok(if present < end { (present - at) as u64 } else { len })
    }

    /// The places of `len` bytes that `from` sends, of which the first stands `at`.
    fn places(&self, from: Side, at: usize, len: u64) -> [Place; 2] {
        let begin = HEADER + from as usize * self.room;
        // Also where counts are nonsense, all of it is in the room.
        let len = usize::try_from(len).map_or(self.room, |len| len.min(self.room));
        let first = len.min(self.room - at);
        let place = |at, len| Place { first: self.memory.as_ptr().wrapping_add(begin + at), len };
        [place(at, first), place(0, len - first)]
    }

    fn out(&self) -> &Flow {
        &self.header().flows[self.side as usize]
    }

    fn incoming(&self) -> &Flow {
        &self.header().flows[self.side.other() as usize]
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: it has only atomics.
        unsafe { self.memory.at(0) }
    }
}

impl Flow {
    fn is_closed(&self) -> bool {
        self.seldom.0.closed.load(Ordering::Relaxed) != 0
    }
}

impl Side {
    /// The peer's.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// Bytes of the shared memory: behind the header the room of each direction, and then the annex of
/// each side.
fn octets(room: usize) -> io::Result<usize> {
    if !room.is_power_of_two() || room > MAX_ROOM {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(HEADER + 4 * room)
}
