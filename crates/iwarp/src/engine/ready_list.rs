// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams without a descriptor that are ready: what an epoll is for the others.
//!
//! Ports put their streams here, the driver takes them out, asks each what is ready, and puts those
//! back that still are: so it is level-triggered, as the epoll is. A thread that sleeps on the
//! epoll is woken by a *bell* in it, which rings while it may be needed and something is in the
//! list. It is *hushed* while callers poll and no thread needs the epoll.
//!
//! A port without a descriptor reports its readiness (`readiness`) and gets a `Waker`, which it
//! calls when it becomes ready for something. The waker puts the stream into the ready lists of its
//! poll groups. The bell is an eventfd. A thread that arms the group, blocks on it or naps ends the
//! hush first (`ReadyList::listen`). So polls and posts of such streams make no system call. Groups
//! without such streams pay one relaxed load when they ask their epoll.

use std::collections::VecDeque;
use std::io;

use iwarp_mem::OutOfMemory;

use crate::engine::sync::{AtomicBool, Mutex, Ordering};
use crate::flaw::{self, Flaw};
use crate::hash::OwnKeys;

/// The bell that wakes the threads that sleep.
pub(crate) trait Bell {
    /// It wakes them from now on.
    fn ring(&self);
    /// It wakes them no more.
    fn silence(&self);
    /// The list is hushed from now on, or no more. It is locked meanwhile.
    fn hushed(&self, _: bool) {}
    /// Puts streams into the list of which other processes tell, once it is hushed no more.
    fn look(&self) {}
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ReadyList<B> {
    /// A stream may be in the list. A driver may miss one because it reads this without the lock;
    /// the next one finds it, and a thread looks with the lock before it sleeps.
    any: AtomicBool,
    /// No thread sleeps that would have to be woken. Written with the lock.
    is_hushed: AtomicBool,
    state: Mutex<ReadyStreams>,
    bell: B,
}

#[derive(Debug, Default)]
struct ReadyStreams {
    /// The streams by their tokens, and whether each is in the list.
    streams: OwnKeys<u64, bool>,
    /// Has room for all of them.
    list: VecDeque<u64>,
    rings: bool,
    /// Threads that sleep on the epoll for a moment, of which nothing else tells.
    sleepers: u32,
    /// Threads that are about to take what comes.
    takers: u32,
}

/// A thread is about to take what comes into the list. The bell begins no ring until this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Quiet<'a, B: Bell>(Option<&'a ReadyList<B>>);

impl<B: Bell> Drop for Quiet<'_, B> {
    fn drop(&mut self) {
        if let Some(list) = self.0 {
            let mut state = list.state.lock();
            state.takers -= 1;
            list.settle(&mut state);
        }
    }
}

impl<B: Bell> ReadyList<B> {
    /// An empty one.
    pub(crate) fn new(bell: B) -> Self {
        let (any, is_hushed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { any, is_hushed, state: Mutex::new(ReadyStreams::default()), bell }
    }

    pub(crate) const fn bell(&self) -> &B {
        &self.bell
    }

    /// Adds a stream, which is in the list from the beginning.
    pub(crate) fn add(&self, token: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let most = state.streams.len() + 1;
        let more = most.saturating_sub(state.list.len());
        state.list.try_reserve(more).map_err(|_| OutOfMemory)?;
        state.streams.try_reserve(1).map_err(|_| OutOfMemory)?;
        state.streams.insert(token, false);
        drop(state);
        self.put(token);
        Ok(())
    }

    /// Removes a stream.
    pub(crate) fn remove(&self, token: u64) {
        let mut state = self.state.lock();
        if state.streams.remove(&token) == Some(true) {
            state.list.retain(|other| *other != token);
            self.settle(&mut state);
        }
    }

    /// A stream may be ready.
    pub(crate) fn put(&self, token: u64) {
        let mut state = self.state.lock();
        let ReadyStreams { streams, list, .. } = &mut *state;
        let Some(is_in) = streams.get_mut(&token) else { return };
        if !std::mem::replace(is_in, true) {
            list.push_back(token);
            self.any.store(true, Ordering::Relaxed);
            self.settle(&mut state);
        }
    }

    /// The number of streams in the list.
    pub(crate) fn len(&self) -> usize {
        if self.any.load(Ordering::Relaxed) { self.state.lock().list.len() } else { 0 }
    }

    /// Takes out the one that has been there longest. Its readiness is to be asked afterwards: a
    /// later change puts it in again.
    pub(crate) fn take(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let token = state.list.pop_front()?;
        if let Some(is_in) = state.streams.get_mut(&token) {
            *is_in = false;
        }
        self.settle(&mut state);
        Some(token)
    }

    /// A thread is about to sleep until the epoll reports something. The condition that
    /// [`Self::hush`] asks says so by now.
    pub(crate) fn listen(&self) {
        if flaw::is(Flaw::StaysHushed) {
            return;
        }
        let mut state = self.state.lock();
        self.set_hushed(&mut state, false);
        drop(state);
        self.bell.look();
    }

    /// Changes the bell, which is told whether the list is hushed.
    pub(crate) fn change_bell<R>(&self, change: impl FnOnce(&B, bool) -> R) -> R {
        let _state = self.state.lock();
        change(&self.bell, self.is_hushed.load(Ordering::Relaxed))
    }

    /// This thread takes what comes until the result is dropped, so that no other need be woken for
    /// it.
    pub(crate) fn quiet(&self) -> Quiet<'_, B> {
        // A list that is hushed rings for no thread.
        if self.is_hushed.load(Ordering::Relaxed) {
            return Quiet(None);
        }
        self.state.lock().takers += 1;
        Quiet(Some(self))
    }

    /// A thread is about to sleep on the epoll for a moment, until [`Self::has_slept`].
    pub(crate) fn will_sleep(&self) {
        self.state.lock().sleepers += 1;
        self.listen();
    }

    /// See [`Self::will_sleep`].
    pub(crate) fn has_slept(&self) {
        self.state.lock().sleepers -= 1;
    }

    /// The bell need not ring, if no thread sleeps or is about to.
    pub(crate) fn hush(&self, is_needless: impl Fn() -> bool) {
        if self.is_hushed.load(Ordering::Relaxed) || !is_needless() {
            return;
        }
        let mut state = self.state.lock();
        // Asked with the lock: a thread that goes to sleep says so before it takes it.
        if state.sleepers == 0 && is_needless() {
            self.set_hushed(&mut state, true);
        }
    }

    fn set_hushed(&self, state: &mut ReadyStreams, hushed: bool) {
        if self.is_hushed.load(Ordering::Relaxed) != hushed {
            self.is_hushed.store(hushed, Ordering::Relaxed);
            self.bell.hushed(hushed);
        }
        self.settle(state);
    }

    /// Rings or silences the bell, as the list and the hush demand, and clears `any` if the list is
    /// empty.
    fn settle(&self, state: &mut ReadyStreams) {
        let any = !state.list.is_empty();
        if !any {
            self.any.store(false, Ordering::Relaxed);
        }
        let is_needed =
            !self.is_hushed.load(Ordering::Relaxed) && (state.takers == 0 || state.rings);
        let rings = any && is_needed;
        if rings == std::mem::replace(&mut state.rings, rings) {
            return;
        }
        if !rings {
            self.bell.silence();
        } else if !flaw::is(Flaw::WakeLost) {
            self.bell.ring();
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests;
