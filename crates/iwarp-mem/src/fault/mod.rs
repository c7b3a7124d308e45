// SPDX-License-Identifier: MIT OR Apache-2.0

//! SIGSEGV and SIGBUS where registered memory is gone.
//!
//! The handler comes with the first region of a program's own memory. It looks whether the fault is
//! one of [`crate::reach`]; if so, it lets that access end with an error, and does nothing else.
//! Any other fault goes to the handler that was there before, as if the kernel had called it, or has
//! the effect that it would have had.
//!
//! A handler that the program installs afterwards takes our place: it is the one before ours from
//! the next registration on, or from the next access: [`admit_thread`].
//!
//! The gap that remains: a fault right behind such a change, in a thread whose look still holds; and a thread
//! that blocks the two signals after its first access is ended by its next fault, as the kernel calls
//! no handler for it.

mod chain;
mod handler;
mod table;

use std::arch::x86_64::_rdtsc;
use std::cell::Cell;
use std::mem::MaybeUninit;

/// How many times as long as it took a look holds: looks cost a hundredth of the time at most, on
/// systems where system calls are slow too.
const HOLDS: u64 = 128;
/// For how long it holds at least and at most, in ticks of the processor: some 10 microseconds, and
/// some milliseconds, as a look may have been interrupted.
const LEAST: u64 = 1 << 15;
const MOST: u64 = 1 << 22;

/// When a thread has looked last.
#[derive(Clone, Copy)]
struct Look {
    at: u64,
    /// For how long; 0: it never has.
    holds: u64,
}

// Has no destructor, so a thread has it to its very end.
thread_local! {
    static LOOK: Cell<Look> = const { Cell::new(Look { at: 0, holds: 0 }) };
}

/// Sees to it that faults find their way here, in the calling thread too. False where the system
/// does not let us.
pub(crate) fn protect() -> bool {
    let kept = handler::keep();
    if LOOK.get().holds == 0 {
        unblock();
    }
    // The program waits for nothing: its next access looks again.
    LOOK.set(Look { at: ticks().wrapping_sub(1), holds: 1 });
    kept
}

/// Puts the handler back where another has replaced it, if it was ever needed.
pub fn keep() {
    if handler::is_wanted() {
        handler::keep();
    }
}

/// Sees to it that a fault in registered memory is an error of the access: that the handler is there,
/// which the program may have replaced, and that the thread does not block the signals. To be called
/// by each thread before it accesses registered memory; costs a few instructions where the last look
/// was just now, else two system calls.
#[inline]
pub fn admit_thread() {
    if handler::is_wanted() {
        let (now, look) = (ticks(), LOOK.get());
        // Another processor's count may be behind.
        if now.wrapping_sub(look.at) >= look.holds {
            look_again(now, look);
        }
    }
}

#[cold]
fn look_again(now: u64, last: Look) {
    handler::keep();
    if last.holds == 0 {
        unblock();
    }
    let at = ticks();
    let holds = at.wrapping_sub(now).saturating_mul(HOLDS).clamp(LEAST, MOST);
    LOOK.set(Look { at, holds });
}

#[inline]
fn ticks() -> u64 {
    // SAFETY: reads a register that every x86-64 has.
    unsafe { _rdtsc() }
}

#[cold]
fn unblock() {
    let mut both = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises `both`, which the others then change and read.
    unsafe {
        libc::sigemptyset(both.as_mut_ptr());
        libc::sigaddset(both.as_mut_ptr(), libc::SIGSEGV);
        libc::sigaddset(both.as_mut_ptr(), libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, both.as_ptr(), std::ptr::null_mut());
    }
}
