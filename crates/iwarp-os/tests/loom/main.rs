// SPDX-License-Identifier: MIT OR Apache-2.0

//! Models of what two processes do to the words that they share, under every interleaving that the
//! memory model allows. A process of its own: the sources are compiled here once more, with loom's
//! atomics.
#![cfg(any(target_os = "linux", target_os = "android"))]
#![allow(clippy::undocumented_unsafe_blocks, reason = "the model checker looks at each access")]

#[path = "../../src/local/marks/armed.rs"]
mod armed;
mod armed_model;
#[path = "../../src/local/ring/flow.rs"]
mod flow;
mod flow_model;
#[allow(unreachable_pub, reason = "the library exports its types")]
#[path = "../../src/local/heap/place.rs"]
mod place;
#[allow(dead_code, unreachable_pub, reason = "the library exports its types, and uses more")]
#[path = "../../src/local/ring/ranges.rs"]
mod ranges;
mod ranges_model;
#[path = "../../src/local/status/revocations.rs"]
mod revocations;
mod revocations_model;
#[path = "../../src/local/marks/words.rs"]
mod words;
mod words_model;

/// The names that the sources take from `crate::local`.
mod local {
    pub(crate) mod heap {
        pub(crate) use crate::place::{ARENAS, ArenaPlace};
    }
}

/// The names that the sources take from `crate::sync`.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
}
