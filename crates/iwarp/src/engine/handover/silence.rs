// SPDX-License-Identifier: MIT OR Apache-2.0

//! The mark that the only stream of a poll group is left out of its epoll.
//!
//! A sender within the host pays for telling the epolls that have its stream, which is for nothing
//! while caller threads try the stream itself. So it is *silenced* while no thread needs the epoll.
//!
//! A thread that arms the group, blocks on it or needs its epoll restores the stream first
//! (`PollSet::unsilence`). The stream stays silenced only while the worker merely watches and no
//! caller sleeps.

use super::Handover;
use crate::flaw::{self, Flaw};

/// The part of that which a group keeps under the lock of its members, under which its epoll
/// changes too.
///
/// A thread that will need the epoll first says so to the hand-over or here, then takes the lock
/// for [`Self::end`]; a thread that silences takes the lock, then looks at both. The one that has
/// the lock second sees what the other has done.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// The stream is not in the epoll.
    on: bool,
    /// A thread has needed the epoll since the last attempt to silence.
    needed: bool,
    /// Threads that sleep on the epoll for a moment, of which the hand-over is not told.
    sleepers: u32,
}

impl Silence {
    /// The stream is not in the epoll.
    pub(crate) const fn is_on(&self) -> bool {
        self.on
    }

    /// Silences the stream, if the worker does no more than to watch the group and no thread sleeps
    /// on its epoll. True when the stream is to leave the epoll now.
    #[must_use]
    pub(crate) fn begin(&mut self, handover: &Handover) -> bool {
        let needed = std::mem::take(&mut self.needed);
        let begins = !self.on && !needed && self.sleepers == 0 && handover.is_watched();
        self.on |= begins;
        begins
    }

    /// A thread needs the epoll from now on. True when the stream is to be put back.
    #[must_use]
    pub(crate) fn end(&mut self) -> bool {
        self.needed = true;
        !flaw::is(Flaw::StaysSilenced) && std::mem::take(&mut self.on)
    }

    /// The stream has left the group.
    pub(crate) fn forget(&mut self) {
        self.on = false;
    }

    /// A thread is about to sleep on the epoll, until [`Self::has_slept`].
    pub(crate) fn will_sleep(&mut self) {
        self.sleepers += 1;
    }

    /// See [`Self::will_sleep`].
    pub(crate) fn has_slept(&mut self) {
        self.sleepers -= 1;
    }
}
