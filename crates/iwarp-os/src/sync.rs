// SPDX-License-Identifier: MIT OR Apache-2.0

//! The pieces that rings and marks are built from; their models in `tests/loom` bring others.

pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
