// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered memory in plain vectors, for tests and simulators (feature `mock`).
//!
//! [`Bank`] has the checks that [`Memory`](crate::Memory) asks for, and nothing else: a simulator
//! builds on it what it watches and what it breaks. [`Host`] is the memory of one end, which notes
//! what was done to it.
//!
//! The simulator's `Host` wraps this memory with the oracle.

mod bank;
mod host;

pub use bank::{Bank, Invalidation, Region, RegionOffset, Window};
pub use host::{Host, InUse, Touch};
