// SPDX-License-Identifier: MIT OR Apache-2.0

//! SIGSEGV and SIGBUS where registered memory is gone.
//!
//! The handler comes with the first region of a program's own memory. It looks whether the fault is
//! one of [`crate::reach`]; if so, it lets that access end with an error, and does nothing else.
//! Any other fault goes to the handler that was there before, as if the kernel had called it, or has
//! the effect that it would have had.
//!
//! A handler that the program installs afterwards takes our place: it is the one before ours from
//! the next registration on, or from the next look of [`keep`].
//!
//! The gap that remains: a thread that blocks the two signals after it has come by here, by
//! [`admit_thread`], is ended by its next fault, as the kernel calls no handler for it.

mod chain;
mod handler;
mod table;

use std::cell::Cell;
use std::mem::MaybeUninit;

/// Sees to it that faults find their way here, in the calling thread too. False where the system
/// does not let us.
pub(crate) fn protect() -> bool {
    admit_thread();
    handler::keep()
}

/// Puts the handler back where another has replaced it, if it was ever needed. Two system calls; for
/// a thread that looks after things now and then.
pub fn keep() {
    if handler::is_wanted() {
        handler::keep();
    }
}

/// Lets SIGSEGV and SIGBUS in: a thread that blocks them is ended by a fault, whatever handler there
/// is. To be called by each thread before it accesses registered memory; once is enough, and more
/// cost little.
pub fn admit_thread() {
    thread_local! {
        static ADMITTED: Cell<bool> = const { Cell::new(false) };
    }
    // A thread that is about to end, without its locals, asks each time.
    if ADMITTED.try_with(|admitted| admitted.replace(true)) != Ok(true) {
        unblock();
    }
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
