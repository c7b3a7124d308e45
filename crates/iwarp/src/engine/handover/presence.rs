// SPDX-License-Identifier: MIT OR Apache-2.0

//! The acts of the callers of a poll group, as far as they are known.

use crate::engine::sync::{AtomicU32, Ordering};

/// The act of the caller that came last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Presence {
    /// No act that is known of: it may be computing.
    Absent,
    /// Its last poll found nothing.
    Polled,
    /// Its last two polls found nothing, and it did nothing between them: it polls in a loop.
    Polling,
    /// It is inside a call that moves streams, perhaps without a CPU.
    InCall,
    /// It sleeps on a descriptor, and only the worker can wake it.
    Asleep,
    /// It sleeps until its runtime tells it that something has come, and moves that itself.
    Waiting,
}

const KIND: u32 = 7;
const EPOCH: u32 = KIND + 1;
/// No word: the call is inside another one, which ends it.
const ANOTHERS: u32 = u32::MAX;

/// The presence, and a number that each call changes.
///
/// Callers store the word without asking whether another thread has changed it meanwhile: a
/// read-modify-write in each call would cost more than the rare mistake, after which the worker
/// looks after streams that a caller would have, or comes some looks later. No wake-up rests on it.
#[derive(Debug)]
pub(super) struct PresenceWord(AtomicU32);

impl PresenceWord {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(Presence::Absent as u32))
    }

    #[inline]
    pub(super) fn load(&self) -> (Presence, u32) {
        let word = self.0.load(Ordering::Acquire);
        (kind(word), word & !KIND)
    }

    fn store(&self, presence: Presence, epoch: u32) {
        self.0.store(epoch | presence as u32, Ordering::Release);
    }

    /// A caller is inside a call until the result is dropped. A thread that sleeps, or does as soon
    /// as it has looked once more, stays asleep to the worker.
    #[inline]
    pub(super) fn call(&self) -> Call<'_> {
        let word = self.0.load(Ordering::Acquire);
        if matches!(kind(word), Presence::InCall | Presence::Asleep) {
            return Call { word: self, inside: ANOTHERS, after: word };
        }
        self.begin(word)
    }

    /// As [`Self::call`], for a poll that is not the last one before its thread sleeps.
    #[inline]
    pub(super) fn poll(&self) -> Call<'_> {
        let word = self.0.load(Ordering::Acquire);
        match kind(word) {
            Presence::InCall => Call { word: self, inside: ANOTHERS, after: word },
            Presence::Asleep => self.begin(word & !KIND | Presence::Absent as u32),
            _ => self.begin(word),
        }
    }

    #[inline]
    fn begin(&self, before: u32) -> Call<'_> {
        let after = before.wrapping_add(EPOCH);
        let inside = after & !KIND | Presence::InCall as u32;
        self.0.store(inside, Ordering::Release);
        Call { word: self, inside, after }
    }

    /// Outside of any call.
    pub(super) fn set(&self, presence: Presence) {
        let (_, epoch) = self.load();
        self.store(presence, epoch);
    }

    /// A poll has found something: what the program does next is not known.
    #[inline]
    pub(super) fn found(&self) {
        let (presence, epoch) = self.load();
        if matches!(presence, Presence::Polled | Presence::Polling) {
            self.store(Presence::Absent, epoch);
        }
    }
}

#[inline]
const fn kind(word: u32) -> Presence {
    match word & KIND {
        1 => Presence::Polled,
        2 => Presence::Polling,
        3 => Presence::InCall,
        4 => Presence::Asleep,
        5 => Presence::Waiting,
        _ => Presence::Absent,
    }
}

/// A caller inside a call that moves streams. When it leaves, all is as before if it does not say
/// otherwise. If several threads are inside, the first to come says it.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    word: &'a PresenceWord,
    /// The word's value meanwhile, and the one that it is to have afterwards.
    inside: u32,
    after: u32,
}

impl Call<'_> {
    fn leaves(&mut self, presence: Presence) {
        self.after = self.after & !KIND | presence as u32;
    }

    /// The program has done nothing since a poll that found nothing.
    const fn is_repeated_poll(&self) -> bool {
        matches!(kind(self.after), Presence::Polled | Presence::Polling)
    }

    /// The call is a poll that found nothing.
    pub(crate) fn found_nothing(&mut self) {
        let again = self.is_repeated_poll();
        self.leaves(if again { Presence::Polling } else { Presence::Polled });
    }

    /// The call is a poll that found something: what the program does next is not known.
    pub(crate) fn found(&mut self) {
        if self.is_repeated_poll() {
            self.leaves(Presence::Absent);
        }
    }
}

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        // A thread that has gone to sleep meanwhile has said so.
        if self.word.0.load(Ordering::Relaxed) == self.inside {
            self.word.0.store(self.after, Ordering::Release);
        }
    }
}
