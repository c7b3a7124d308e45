// SPDX-License-Identifier: MIT OR Apache-2.0

//! librdmacm.so.1: the exported symbols and nothing else. They jump to libibverbs.so.1, which has
//! the code of both, so that a process has one engine; the code is in the crate `iwarp-capi`.
//!
//! Only the shared library is of use. To call these functions from Rust there is the crate `iwarp`.

#![cfg(target_os = "linux")]

// Jumps that the linker keeps because they are exported.
include!(concat!(env!("OUT_DIR"), "/exports.rs"));
