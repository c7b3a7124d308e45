// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time for which a thread accesses registered memory.
//!
//! The handler has to be in its place then, and the thread must not block the two signals: the kernel
//! ends a process by a fault that is blocked. A program may change both at any time without our
//! knowledge, so a thread looks as an access begins, unless it has just done so. A thread that blocks
//! the signals, as the library's own do, gets them back blocked: its program may take them by
//! `sigwait` or a signalfd.

use std::arch::x86_64::_rdtsc;
use std::cell::Cell;
use std::marker::PhantomData;

use super::handler;
use super::mask::{self, Blocked, NONE};

/// How many times as long as it took a look holds: looks cost a hundredth of the time at most, on
/// systems where system calls are slow too.
const HOLDS: u64 = 128;
/// For how long it holds at least and at most, in ticks of the processor: some 10 microseconds, and
/// some milliseconds, as a look may have been interrupted.
const LEAST: u64 = 1 << 15;
const MOST: u64 = 1 << 22;

/// A thread's accesses, and when it has looked last.
struct State {
    /// How many accesses it is in.
    depth: Cell<u32>,
    /// The signals that it blocks between accesses, when it looked last.
    blocked: Cell<Blocked>,
    at: Cell<u64>,
    /// For how long the look holds; 0: it never has looked.
    holds: Cell<u64>,
}

// Has no destructor, so a thread has it to its very end.
thread_local! {
    static STATE: State = const {
        State {
            depth: Cell::new(0),
            blocked: Cell::new(NONE),
            at: Cell::new(0),
            holds: Cell::new(0),
        }
    };
}

/// Until this is dropped, a fault in registered memory is an error of the access that it hits.
#[derive(Debug)]
#[must_use = "faults are errors until it is dropped"]
pub struct Admitted {
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

/// Sees to it that a fault in registered memory is an error of the access, until the result is
/// dropped: that the handler is there, which the program may have replaced, and that the thread does
/// not block the signals. To be held by each thread while it accesses registered memory. Costs a few
/// instructions where the last look was just now, else some system calls; two more in a thread that
/// blocks the signals.
#[inline]
pub fn admit() -> Admitted {
    STATE.with(|state| {
        let depth = state.depth.get();
        if depth == 0 && handler::is_wanted() {
            // Another processor's count may be behind.
            let old = ticks().wrapping_sub(state.at.get()) >= state.holds.get();
            if old || state.blocked.get() != NONE {
                look(state, old);
            }
        }
        state.depth.set(depth + 1);
    });
    Admitted { _thread: PhantomData }
}

/// As [`admit`], but looks in any case, and so does the next access.
pub(super) fn admit_anew() -> Admitted {
    STATE.with(|state| state.holds.set(0));
    let admitted = admit();
    STATE.with(|state| state.holds.set(0));
    admitted
}

impl Drop for Admitted {
    #[inline]
    fn drop(&mut self) {
        STATE.with(|state| {
            let depth = state.depth.get() - 1;
            state.depth.set(depth);
            if depth == 0 && state.blocked.get() != NONE {
                mask::block_again(state.blocked.get());
            }
        });
    }
}

/// Puts the mask in order, and the handler where the last look is too old.
#[cold]
fn look(state: &State, old: bool) {
    if old {
        let begin = ticks();
        handler::keep();
        let end = ticks();
        state.at.set(end);
        state.holds.set(end.wrapping_sub(begin).saturating_mul(HOLDS).clamp(LEAST, MOST));
    }
    state.blocked.set(mask::unblock());
}

#[inline]
fn ticks() -> u64 {
    // SAFETY: reads a register that every x86-64 has.
    unsafe { _rdtsc() }
}
