// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time for which a thread accesses registered memory.
//!
//! The handler has to be in its place then, and the thread must not block the two signals: the
//! kernel ends a process by a fault that is blocked. A program may change both at any time without
//! our knowledge, so a thread looks as an access begins, unless it has just done so. A thread that
//! blocks the signals gets them back blocked: its program may take them by `sigwait` or a signalfd.
//!
//! The library's own threads block every signal, and most programs send themselves neither of these
//! two. So such a thread keeps them unblocked between accesses until the first one comes, which it
//! passes on ([`mask`](super::mask)), and blocks them between accesses from then on.

use std::arch::x86_64::_rdtsc;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering, compiler_fence};

use super::handler;
use super::mask::{self, Blocked, NONE, Slot};

/// A look holds so many times as long as it took to look at the handler: that costs a hundredth of
/// the time at most, on systems where system calls are slow too.
const HOLDS: u64 = 128;
/// For how long it holds at least and at most, in ticks of the processor: some 10 microseconds, and
/// some milliseconds, as a look may have been interrupted.
const LEAST: u64 = 1 << 15;
const MOST: u64 = 1 << 22;

/// A thread's accesses, and when it has looked last. The handler interrupts the thread at any
/// place.
pub(super) struct ThreadAccess {
    /// Accesses that it is in.
    depth: AtomicU32,
    /// The signals that it blocks between accesses, when it looked last.
    blocked: AtomicU8,
    /// Its slot, while it has the signals unblocked and blocks them otherwise; else null.
    pub(super) slot: AtomicPtr<Slot>,
    at: Cell<u64>,
    /// For how long the look holds; 0: it never has looked.
    holds: Cell<u64>,
    /// It is to keep the signals unblocked when it has unblocked them for the first time.
    stays: Cell<bool>,
}

// Has no destructor, so a thread has it to its very end.
thread_local! {
    static STATE: ThreadAccess = const {
        ThreadAccess {
            depth: AtomicU32::new(0),
            blocked: AtomicU8::new(NONE),
            slot: AtomicPtr::new(ptr::null_mut()),
            at: Cell::new(0),
            holds: Cell::new(0),
            stays: Cell::new(false),
        }
    };
}

/// Until this is dropped, a fault in registered memory is an error of the access that it hits.
#[derive(Debug)]
#[must_use = "faults are errors until it is dropped"]
pub struct Admitted {
    /// The thread's, which it belongs to: a pointer stays in its thread.
    state: *const ThreadAccess,
}

/// Sees to it that a fault in registered memory is an error of the access, until the result is
/// dropped: that the handler is there, which the program may have replaced, and that the thread
/// does not block the signals. To be held by each thread while it accesses registered memory. Costs
/// a few instructions where the last look was just now, else some system calls; those of the mask
/// each time in a thread that blocks the signals.
#[inline]
pub fn admit() -> Admitted {
    STATE.with(|state| {
        if state.enter() && handler::is_wanted() {
            // Another processor's count may be behind.
            let old = ticks().wrapping_sub(state.at.get()) >= state.holds.get();
            if old || state.blocked.load(Ordering::Relaxed) != NONE {
                look(state, old);
            }
        }
        Admitted { state: ptr::from_ref(state) }
    })
}

/// As [`admit`], but installs the handler in any case, and has the next access look again. `None`
/// where the system does not let us.
pub(super) fn admit_anew() -> Option<Admitted> {
    STATE.with(|state| {
        let outermost = state.enter();
        let admitted = Admitted { state: ptr::from_ref(state) };
        let kept = handler::keep();
        if outermost {
            mask::unblock(state, state.stays.replace(false));
        }
        state.holds.set(0);
        kept.then_some(admitted)
    })
}

/// The calling thread, which is none of the program's, keeps the two signals unblocked between
/// accesses until this is dropped, or until it gets one: it passes that on, and blocks them from
/// then on.
#[derive(Debug)]
#[must_use = "the thread passes signals on until it is dropped"]
pub struct Staying {
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

/// Lets the calling thread keep the two signals unblocked between accesses, from the first one on,
/// so that they cost no changes of its mask.
pub fn stay_admitted() -> Staying {
    STATE.with(|state| state.stays.set(true));
    Staying { _thread: PhantomData }
}

impl Drop for Staying {
    fn drop(&mut self) {
        STATE.with(|state| {
            state.stays.set(false);
            mask::end_stay(state);
        });
    }
}

impl Drop for Admitted {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the thread's own, which it has to its end.
        let state = unsafe { &*self.state };
        let depth = state.depth.load(Ordering::Relaxed) - 1;
        state.depth.store(depth, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if depth == 0 && state.blocked.load(Ordering::Relaxed) != NONE {
            mask::block_again(state, state.blocked.load(Ordering::Relaxed));
        }
    }
}

impl ThreadAccess {
    /// An access begins. True unless the thread is in one already.
    #[inline]
    fn enter(&self) -> bool {
        let depth = self.depth.load(Ordering::Relaxed);
        self.depth.store(depth + 1, Ordering::Relaxed);
        // Before the thread looks at what the handler may change.
        compiler_fence(Ordering::SeqCst);
        depth == 0
    }

    /// True while the thread is in an access.
    pub(super) fn is_inside(&self) -> bool {
        self.depth.load(Ordering::Relaxed) != 0
    }

    /// From now on the thread blocks these between accesses.
    pub(super) fn block(&self, which: Blocked) {
        self.blocked.store(which, Ordering::Relaxed);
    }
}

/// Puts the mask in order, and the handler where the last look is too old.
#[cold]
fn look(state: &ThreadAccess, old: bool) {
    if old {
        let begin = ticks();
        handler::keep();
        let end = ticks();
        state.at.set(end);
        state.holds.set(end.wrapping_sub(begin).saturating_mul(HOLDS).clamp(LEAST, MOST));
    }
    mask::unblock(state, state.stays.replace(false));
}

#[inline]
fn ticks() -> u64 {
    // SAFETY: reads a register that every x86-64 has.
    unsafe { _rdtsc() }
}
