// SPDX-License-Identifier: MIT OR Apache-2.0

//! The short ways: what nearly every message takes, written apart from the way that any may take.
//! Each does exactly what that does, in fewer instructions: `tests/twins.rs` compares them.
//!
//! - `Qp::start_plain` begins a Send or Write as `Qp::start_request` would;
//! - `SendQueue::pop_taken` ends a request as `SendQueue::taken` and `pop_done` would;
//! - `Transmitter::next_long` frames short segments as `Transmitter::transmit` would;
//! - `Receiver::short_step` takes short messages as `Receiver::whole_step` would.

#[cfg(test)]
std::thread_local! {
    static OPEN: core::cell::Cell<bool> = const { core::cell::Cell::new(true) };
}

/// True if they are taken: always, but for the tests that do without.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn ways() -> bool {
    true
}

#[cfg(test)]
pub(crate) fn ways() -> bool {
    OPEN.get()
}

/// Calls `f` while they are not taken by this thread.
#[cfg(test)]
pub(crate) fn without_ways<R>(f: impl FnOnce() -> R) -> R {
    OPEN.set(false);
    let result = f();
    OPEN.set(true);
    result
}
