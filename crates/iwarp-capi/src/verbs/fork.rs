// SPDX-License-Identifier: MIT OR Apache-2.0

//! `ibv_fork_init` and its kin. A fork needs no preparation: memory is not pinned, and a child
//! cannot harm what it inherits.

use std::ffi::{c_int, c_uint, c_void};

/// Says that forking is safe without preparation.
const IBV_FORK_UNNEEDED: c_uint = 2;

/// `ibv_fork_init`
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `ibv_is_fork_initialized`
pub extern "C" fn ibv_is_fork_initialized() -> c_uint {
    IBV_FORK_UNNEEDED
}

/// `ibv_dontfork_range`
pub extern "C" fn ibv_dontfork_range(_: *mut c_void, _: usize) -> c_int {
    0
}

/// `ibv_dofork_range`
pub extern "C" fn ibv_dofork_range(_: *mut c_void, _: usize) -> c_int {
    0
}
