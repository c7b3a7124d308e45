// SPDX-License-Identifier: MIT OR Apache-2.0

//! No handler: on systems where system calls find what is gone, or none is to be had.

/// Does nothing; accesses see to it themselves, where they can.
pub(crate) fn protect() -> Option<Admitted> {
    Some(admit())
}

/// Puts the fault handler back where another has replaced it; there is none here.
pub fn keep() {}

/// Faults are errors until this is dropped; nothing needs to be done for it here.
#[derive(Debug)]
#[must_use = "faults are errors until it is dropped"]
pub struct Admitted(());

/// Sees to it that faults are errors; no signals are awaited here.
pub fn admit() -> Admitted {
    Admitted(())
}

/// The signals stay unblocked until this is dropped; they are not awaited here.
#[derive(Debug)]
#[must_use = "the thread passes signals on until it is dropped"]
pub struct Staying(());

/// Lets the calling thread keep the signals unblocked; nothing needs to be done for it here.
pub fn stay_admitted() -> Staying {
    Staying(())
}

/// Calls `exchange` with false: stores do not wait here.
pub fn hold_stores<T>(_first: usize, _len: usize, exchange: impl FnOnce(bool) -> T) -> T {
    exchange(false)
}
