// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory for the blocks of the program's allocator that other processes of the host may map.
//!
//! The library that `iwarp run --shared-heap` preloads replaces `malloc` and its kin, and knows
//! nothing of such memory. This library, which gives it to other processes, tells it as soon as it
//! is loaded: mostly before `main`.

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};

use iwarp_os::local::Blocks;

/// As in the preloaded library.
#[repr(C)]
struct Shared {
    allocate: unsafe extern "C" fn(len: usize, align: usize, zeroed: bool) -> *mut c_void,
    free: unsafe extern "C" fn(block: *mut c_void),
    room: unsafe extern "C" fn(block: *mut c_void) -> usize,
    /// Before a fork, in the parent and in the child.
    fork: [extern "C" fn(); 3],
    first: usize,
    len: usize,
}

/// Called when the library is loaded.
pub extern "C" fn at_load() {
    // SAFETY: a string.
    let set = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"iwarp_heap_set".as_ptr()) };
    if set.is_null() {
        return;
    }
    // A process that may have so few addresses keeps its own allocator.
    let Some((first, len)) = Blocks::reserve() else { return };
    let fork = iwarp_os::fork_handlers();
    let shared = Box::new(Shared { allocate, free, room, fork, first, len });
    // SAFETY: its name stands for this signature.
    let set: unsafe extern "C" fn(*mut Shared) = unsafe { transmute(set) };
    // SAFETY: it is never freed, and the library of its functions is never unloaded.
    unsafe { set(Box::into_raw(shared)) };
}

extern "C" fn allocate(len: usize, align: usize, zeroed: bool) -> *mut c_void {
    Blocks::allocate(len, align, zeroed).map_or(null_mut(), |block| block.as_ptr().cast())
}

/// # Safety
///
/// The block was allocated here, by this process or one that it descends from, and is not used any
/// more.
unsafe extern "C" fn free(block: *mut c_void) {
    if let Some(block) = NonNull::new(block.cast()) {
        // SAFETY: the caller's promise.
        unsafe { Blocks::free(block) };
    }
}

/// # Safety
///
/// As of [`free`], but it is used.
unsafe extern "C" fn room(block: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    NonNull::new(block.cast()).map_or(0, |block| unsafe { Blocks::room(block) })
}
