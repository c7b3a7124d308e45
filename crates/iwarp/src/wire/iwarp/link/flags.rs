// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state of the directions of a link: one word, of which several bits change at once.

use crate::engine::sync::{AtomicU32, Ordering};

/// Sending waits until the stream can be written, or is tried.
pub(super) const WRITE_BLOCKED: u32 = 1;
/// The stream is not full, but the posts or acknowledgements that wait go out together. Never set
/// without [`WRITE_BLOCKED`].
pub(super) const HELD: u32 = 1 << 1;
/// The poll groups report when the stream can be written. They may do so longer than
/// [`WRITE_BLOCKED`] lasts: changing it costs a system call, which a program that polls can do
/// without.
pub(super) const AWAITS_WRITING: u32 = 1 << 2;
/// Reading waits until there are receives ([`Incoming::is_stalled`](super::pipes::Incoming)).
pub(super) const READ_STALLED: u32 = 1 << 3;
/// The peer has closed, and the queue pair is not told yet.
pub(super) const END_HELD: u32 = 1 << 4;
/// Reading has ended.
pub(super) const READ_ENDED: u32 = 1 << 5;
/// Writing has ended.
pub(super) const WRITE_ENDED: u32 = 1 << 6;
/// The link has left its groups.
pub(super) const CLOSED: u32 = 1 << 7;
/// A look at the peer is going to be taken, or can never be.
pub(super) const PEER_WATCHED: u32 = 1 << 8;

/// The port is down ([`StreamMover::cable`](crate::engine::mover::StreamMover::cable)).
pub(super) const HALTED: u32 = 1 << 9;

/// See the [module](self). Each change is one read-modify-write, which says what was before it.
#[derive(Debug)]
pub(super) struct Flags(AtomicU32);

impl Flags {
    pub(super) fn new(bits: u32) -> Self {
        Self(AtomicU32::new(bits))
    }

    #[inline]
    pub(super) fn load(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// True if one of `bits` is set.
    #[inline]
    pub(super) fn has(&self, bits: u32) -> bool {
        self.load() & bits != 0
    }

    /// Returns the flags before.
    pub(super) fn set(&self, bits: u32) -> u32 {
        self.0.fetch_or(bits, Ordering::SeqCst)
    }

    /// Returns the flags before.
    pub(super) fn clear(&self, bits: u32) -> u32 {
        self.0.fetch_and(!bits, Ordering::SeqCst)
    }

    /// Clears `bits` if `condition` is set. Returns the flags before; `None` if it is not.
    #[inline]
    pub(super) fn clear_if(&self, condition: u32, bits: u32) -> Option<u32> {
        self.change(|flags| (flags & condition != 0).then_some(flags & !bits))
    }

    /// Sets `bits` unless `condition` is set. Returns the flags before; `None` if it is.
    pub(super) fn set_unless(&self, condition: u32, bits: u32) -> Option<u32> {
        self.change(|flags| (flags & condition == 0).then_some(flags | bits))
    }

    /// [`AWAITS_WRITING`] becomes what [`WRITE_BLOCKED`] is.
    pub(super) fn await_as_blocked(&self) {
        let _ = self.change(|flags| {
            let blocked = flags & WRITE_BLOCKED != 0;
            Some(if blocked { flags | AWAITS_WRITING } else { flags & !AWAITS_WRITING })
        });
    }

    #[inline]
    fn change(&self, to: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, to).ok()
    }
}
