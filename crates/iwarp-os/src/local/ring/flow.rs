// SPDX-License-Identifier: MIT OR Apache-2.0

//! The counts of one direction of a ring: bytes that were put in, bytes that were taken out, and
//! the sender's wish to hear of room.
//!
//! Each side counts for itself as well, and believes its own count. `tests/loom` compiles this file
//! once more, with the atomics of a model checker.
//!
//! # Room
//!
//! A sender that finds none asks to be told: it publishes the count at which it waits, and looks
//! once more. A receiver that makes room looks for such a count after it has published its own.
//! Between the two steps of either stands a fence, so at least one of them sees the other's. The
//! receiver looks only as it passes the middle or the end of the ring: while a sender waits, all
//! bytes of a full ring are taken, and the last of these passes leaves at least half of it free.
//! The receiver remembers which wish it has served, and takes none back: the sender may have the
//! next one already.
//!
//! # Origin
//!
//! A connection that passes little would go round the whole ring byte by byte, and use all of its
//! memory and of the caches. So a sender that finds the ring empty may go on at its beginning: the
//! *origin* is the count of the byte that stands there. The receiver looks at it only when it has
//! taken all and finds more: until it has taken that, the ring is not empty and the origin stays.

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Words that one side writes: none of the other's shares a cache line, or a pair of lines that the
/// processor fetches together.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Line<T>(pub(crate) T);

/// The shared words of one direction.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) sender: Line<SenderWords>,
    /// Bytes that were taken out.
    pub(crate) taken: Line<AtomicU64>,
    pub(crate) seldom: Line<SeldomWords>,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct SenderWords {
    /// Bytes that were put in.
    pub(crate) sent: AtomicU64,
    /// The count of the byte that stands at the beginning. Published with `sent`.
    pub(crate) origin: AtomicU64,
    /// No more bytes come.
    pub(crate) ended: AtomicU32,
}

/// Words that change seldom, so that both sides may look at them often.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct SeldomWords {
    /// The number of bytes sent with which the sender waits for room, or has waited last.
    pub(crate) asks_at: AtomicU64,
    /// The receiver takes no more bytes.
    pub(crate) closed: AtomicU32,
    /// The sender has set `began_at`.
    pub(crate) began: AtomicU32,
    pub(crate) began_at: AtomicU64,
    /// One more than the number of the receiver's completion queue in which Sends complete; 0 where
    /// it has none.
    pub(crate) queue: AtomicU32,
    /// Likewise, of the sender's in which its requests complete that the receiver deals with.
    pub(crate) senders: AtomicU32,
}

/// The sender's own counts.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) sent: AtomicU64,
    pub(crate) origin: AtomicU64,
    /// The receiver's count when it was looked at last.
    pub(crate) taken: AtomicU64,
}

/// The receiver's own counts.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) taken: AtomicU64,
    /// The sender's count when it was looked at last.
    pub(crate) sent: AtomicU64,
    /// The origin of the bytes that were found last.
    pub(crate) origin: AtomicU64,
    /// The wish for room that was served last.
    pub(crate) served: AtomicU64,
    /// The sender is to be told of room.
    pub(crate) owes: AtomicBool,
}

/// The other side has written a count that cannot be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

impl Flow {
    /// Bytes for which a ring of `size` has room. The receiver's count is looked at only if else it
    /// were less than `wanted`. If there is none, the receiver is asked to tell of some.
    pub(crate) fn room(&self, own: &Sending, size: u64, wanted: u64) -> Result<u64, Damaged> {
        let (sent, taken) = (own.sent.load(Ordering::Relaxed), own.taken.load(Ordering::Relaxed));
        let known = left(size, sent, taken);
        if known >= wanted {
            return Ok(known);
        }
        let room = self.look_for_room(own, size)?;
        if room > 0 {
            return Ok(room);
        }
        self.seldom.0.asks_at.store(sent, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.look_for_room(own, size)
    }

    /// Has the next byte stand at the beginning, if the ring is empty.
    pub(crate) fn begin_anew(&self, own: &Sending) {
        let sent = own.sent.load(Ordering::Relaxed);
        // Acquire: the receiver has read what stood there.
        if self.taken.0.load(Ordering::Acquire) == sent {
            own.taken.store(sent, Ordering::Relaxed);
            own.origin.store(sent, Ordering::Relaxed);
            self.sender.0.origin.store(sent, Ordering::Relaxed);
        }
    }

    fn look_for_room(&self, own: &Sending, size: u64) -> Result<u64, Damaged> {
        let (sent, before) = (own.sent.load(Ordering::Relaxed), own.taken.load(Ordering::Relaxed));
        let taken = self.taken.0.load(Ordering::Acquire);
        // It goes up, as far as what was sent.
        if taken.wrapping_sub(before) > sent.wrapping_sub(before) {
            return Err(Damaged);
        }
        own.taken.store(taken, Ordering::Relaxed);
        Ok(left(size, sent, taken))
    }

    /// Publishes `len` more bytes, for which there was room.
    pub(crate) fn put(&self, own: &Sending, len: u64) {
        let sent = own.sent.load(Ordering::Relaxed).wrapping_add(len);
        own.sent.store(sent, Ordering::Relaxed);
        self.sender.0.sent.store(sent, Ordering::Release);
    }

    /// Bytes that can be taken out of a ring of `size`. The sender's count is looked at only if
    /// else it were less than `wanted`.
    pub(crate) fn filled(&self, own: &Receiving, size: u64, wanted: u64) -> Result<u64, Damaged> {
        let (taken, before) = (own.taken.load(Ordering::Relaxed), own.sent.load(Ordering::Relaxed));
        let known = before.wrapping_sub(taken).min(size);
        if known >= wanted {
            return Ok(known);
        }
        let sent = self.sender.0.sent.load(Ordering::Acquire);
        // It goes up, until the ring is full.
        if sent.wrapping_sub(before) > left(size, before, taken) {
            return Err(Damaged);
        }
        if known == 0 {
            own.origin.store(self.sender.0.origin.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        own.sent.store(sent, Ordering::Relaxed);
        Ok(sent.wrapping_sub(taken).min(size))
    }

    /// As [`filled`](Self::filled); `None` where there are none yet, and 0 at the end.
    pub(crate) fn filled_or_ended(
        &self,
        own: &Receiving,
        size: u64,
        wanted: u64,
    ) -> Result<Option<u64>, Damaged> {
        let filled = self.filled(own, size, wanted)?;
        if filled == 0 && self.is_ended() {
            // Bytes may have come before the end.
            return self.filled(own, size, wanted).map(Some);
        }
        Ok((filled > 0).then_some(filled))
    }

    /// The sender puts in no more.
    pub(crate) fn end(&self) {
        self.sender.0.ended.store(1, Ordering::Release);
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.sender.0.ended.load(Ordering::Acquire) != 0
    }

    /// Publishes that `len` more bytes were taken, which were there. Notes whether the sender is to
    /// be told. `size` is a power of two.
    pub(crate) fn take(&self, own: &Receiving, size: u64, len: u64) {
        let before = own.taken.load(Ordering::Relaxed);
        let taken = before.wrapping_add(len);
        own.taken.store(taken, Ordering::Relaxed);
        self.taken.0.store(taken, Ordering::Release);
        let half = size / 2;
        // In a ring of one byte each byte passes the end.
        if (before ^ taken) < half.max(1) {
            return;
        }
        fence(Ordering::SeqCst);
        let asked = self.seldom.0.asks_at.load(Ordering::Relaxed);
        // A sender that waits has sent as much as it says there. One that has gone on may have had
        // more taken.
        let waits = asked.wrapping_sub(taken) <= half;
        if waits && asked != own.served.load(Ordering::Relaxed) {
            own.served.store(asked, Ordering::Relaxed);
            own.owes.store(true, Ordering::Relaxed);
        }
    }
}

/// The bytes that are free in a ring of `size`.
fn left(size: u64, sent: u64, taken: u64) -> u64 {
    // Counts of more threads than may call at a time could disagree.
    size.saturating_sub(sent.wrapping_sub(taken))
}
