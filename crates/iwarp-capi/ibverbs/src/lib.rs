// SPDX-License-Identifier: MIT OR Apache-2.0

//! libibverbs.so.1: the exported symbols, the allocator, the call at load, and nothing else. Their
//! code is in the crate `iwarp-capi`; `exports.txt` lists the symbols with their versions.
//!
//! Only the shared library is of use. To call these functions from Rust there is the crate `iwarp`.

#![cfg(target_os = "linux")]

#[global_allocator]
static ALLOCATOR: iwarp_capi::reserve::Reserve = iwarp_capi::reserve::Reserve::new();

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = iwarp_capi::heap::at_load;

// Jumps that the linker keeps because they are exported. They must be in this very crate: objects
// of an rlib that nothing refers to are not linked.
include!(concat!(env!("OUT_DIR"), "/exports.rs"));
