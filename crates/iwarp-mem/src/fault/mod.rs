// SPDX-License-Identifier: MIT OR Apache-2.0

//! SIGSEGV and SIGBUS where registered memory is gone.
//!
//! The handler comes with the first region of a program's own memory. It looks whether the fault is
//! one of [`crate::reach`]; if so, it lets that access end with an error, and does nothing else.
//! Any other fault goes to the handler that was there before, as if the kernel had called it, or
//! has the effect that it would have had.
//!
//! A handler that the program installs afterwards takes our place: it is the one before ours from
//! the next registration on, or from the next access ([`admit()`]), which also sees to it that the
//! thread does not block the two signals.
//!
//! A program that puts back what it has found, ours, gets the handlers of that time
//! ([`chain`]), and one that puts it back by `signal` gets it with its flags at the next look.
//!
//! The gap that remains: a fault right behind such a change, in a thread whose look still holds, or
//! where it is made in the midst of an access; and, where the program has put the default back, one
//! of the signals that is sent, or pending for a `sigwait`, while a thread of the library is awake:
//! from its first access on it has both unblocked except while it waits.
//!
//! (Considered: to interpose `sigaction`. That does not reach programs that load the library later
//! than the C library, as plug-ins do, nor runtimes that make the system call.
//! `signal-hook-registry` neither resumes behind the instruction nor comes back where the program
//! has replaced the handler.)

mod admit;
mod chain;
mod frozen;
mod handler;
mod mask;
mod table;

pub use admit::{Admitted, Staying, admit, stay_admitted};
pub use frozen::hold_stores;

/// Sees to it that faults find their way here, in the calling thread too while it has the result.
/// `None` where the system does not let us.
pub(crate) fn protect() -> Option<Admitted> {
    admit::admit_anew()
}

/// Puts the handler back where another has replaced it, if it was ever needed.
pub fn keep() {
    if handler::is_wanted() {
        handler::keep();
    }
}
