// SPDX-License-Identifier: MIT OR Apache-2.0

//! The structures and numbers of `infiniband/verbs.h`, as of rdma-core 64.
//!
//! Structures only ever grow, and a function that reads one longer than what the program knows
//! goes by a size or a mask, so the newest layout serves old programs too. A test compares them
//! with the header that is installed.
//!
//! Fields that change while the program can see the object are atomics where several of its threads
//! may have the library change them at a time, and [`Cell`](std::cell::Cell)s where verbs leave it
//! to the program that they do not. These numbers publish nothing else, so relaxed accesses do.

#![allow(non_camel_case_types, reason = "these are the names of the C header")]
#![allow(missing_docs, reason = "the fields are those of the header and mean what it says")]

mod attr;
mod context;
pub mod flags;
mod object;
mod work;

pub use attr::*;
pub use context::*;
pub use object::*;
pub use work::*;

/// A pointer to a function whose type only the header knows.
pub type Op = *const ();

/// C structures for which all zeros is a value.
///
/// # Safety
///
/// All zeros must be a valid value of the type.
pub unsafe trait Plain: Sized {
    /// All zeros.
    fn zeroed() -> Self {
        // SAFETY: the implementation says that this is a value.
        unsafe { std::mem::zeroed() }
    }
}
