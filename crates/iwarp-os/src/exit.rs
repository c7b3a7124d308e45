// SPDX-License-Identifier: MIT OR Apache-2.0

//! Something to do when the process exits.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Hooks there can be.
const ROOM: usize = 4;

/// No lock: a forked child exits too, and another thread of its parent may have held it.
static HOOKS: [AtomicPtr<()>; ROOM] = [const { AtomicPtr::new(std::ptr::null_mut()) }; ROOM];
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Has `hook` called when the process exits by `exit` or by returning from `main`, while all other
/// threads still run. A hook that is already there is not added again.
///
/// # Panics
///
/// When there are more hooks than anything here needs (4).
pub fn at_exit(hook: fn()) {
    let hook = hook as *mut ();
    let room = HOOKS.iter().any(|slot| {
        let set =
            slot.compare_exchange(std::ptr::null_mut(), hook, Ordering::AcqRel, Ordering::Acquire);
        set.is_ok() || set == Err(hook)
    });
    assert!(room, "too many hooks");
    if !INSTALLED.swap(true, Ordering::AcqRel) {
        // SAFETY: `run` is a function of this library and never unwinds. When there is no room for
        // it, which C promises for 32, the hook is simply not called.
        unsafe { libc::atexit(run) };
    }
}

extern "C" fn run() {
    for slot in &HOOKS {
        let hook = slot.load(Ordering::Acquire);
        if hook.is_null() {
            return;
        }
        // SAFETY: only `at_exit` stores here, and what it stores is a `fn()`.
        let hook: fn() = unsafe { std::mem::transmute(hook) };
        // Unwinding into the C library would abort in the middle of the exit.
        let _ = std::panic::catch_unwind(hook);
    }
}
