// SPDX-License-Identifier: MIT OR Apache-2.0

//! SIGSEGV and SIGBUS let in for the time of an access, by a thread that blocks them otherwise.
//!
//! One that is sent meanwhile was meant for whoever takes it, by `sigwait` or a signalfd, in another
//! thread or in this one later. The handler keeps it until the access ends; then it is sent again. (At
//! once it could not be: the thread would have to block it, and then a fault would be its end.)

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::handler::SIGNALS;

/// Each of the two signals.
pub(super) type Blocked = [bool; 2];
pub(super) const NONE: Blocked = [false; 2];

/// Unblocks both. Which were blocked: for [`block_again`].
pub(super) fn unblock() -> Blocked {
    let blocked = change(libc::SIG_BLOCK, NONE);
    if blocked != NONE {
        // Before the first of them can come.
        borrow(blocked);
        change(libc::SIG_UNBLOCK, blocked);
    }
    blocked
}

#[cold]
pub(super) fn block_again(blocked: Blocked) {
    change(libc::SIG_BLOCK, blocked);
    give_back();
}

/// Changes the mask of this thread for some of the signals; says which were blocked before.
fn change(how: c_int, which: Blocked) -> Blocked {
    let mut set = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises `set`; `pthread_sigmask` reads it and, where it succeeds,
    // writes the mask that was in force to `before`, which is read then only.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for (signal, _) in SIGNALS.into_iter().zip(which).filter(|(_, which)| *which) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        // Fails in a sandbox that knows no masks.
        if libc::pthread_sigmask(how, set.as_ptr(), before.as_mut_ptr()) != 0 {
            return NONE;
        }
        SIGNALS.map(|signal| libc::sigismember(before.as_ptr(), signal) == 1)
    }
}

/// The code of a signal that was sent to one thread.
const SI_TKILL: c_int = -6;

/// Threads that block the signals otherwise, for the handler, which has no thread-locals. More than
/// there is room for have signals that are sent meanwhile delivered.
static BORROWED: [Slot; 64] = [const { Slot::new() }; 64];

struct Slot {
    /// 0: none.
    thread: AtomicI32,
    /// The signals that it blocks otherwise.
    blocked: [AtomicBool; 2],
    /// Each signal as sent to the thread, and as sent to the process.
    kept: [[Kept; 2]; 2],
}

/// A signal that came. Further ones of the kind add nothing to it, as where one is pending.
struct Kept {
    there: AtomicBool,
    info: UnsafeCell<MaybeUninit<libc::siginfo_t>>,
}

// SAFETY: what is kept is accessed by the thread alone that has the slot, and by its handler; that
// writes `info` where it is not `there` yet, and the thread reads it where it is, with the signal
// blocked.
unsafe impl Sync for Kept {}

impl Kept {
    const fn new() -> Self {
        Self { there: AtomicBool::new(false), info: UnsafeCell::new(MaybeUninit::uninit()) }
    }
}

impl Slot {
    const fn new() -> Self {
        Self {
            thread: AtomicI32::new(0),
            blocked: [const { AtomicBool::new(false) }; 2],
            kept: [const { [const { Kept::new() }; 2] }; 2],
        }
    }

    fn of(thread: i32) -> Option<&'static Self> {
        BORROWED.iter().find(|slot| slot.thread.load(Ordering::Relaxed) == thread)
    }
}

fn this_thread() -> i32 {
    // SAFETY: asks for a number.
    unsafe { libc::gettid() }
}

fn borrow(blocked: Blocked) {
    let this = this_thread();
    let free = BORROWED.iter().find(|slot| {
        slot.thread.compare_exchange(0, this, Ordering::Acquire, Ordering::Relaxed).is_ok()
    });
    if let Some(slot) = free {
        for (slot, blocked) in slot.blocked.iter().zip(blocked) {
            slot.store(blocked, Ordering::Release);
        }
    }
}

/// With the signals blocked.
fn give_back() {
    let this = this_thread();
    let Some(slot) = Slot::of(this) else { return };
    for (signal, kept) in SIGNALS.into_iter().zip(&slot.kept) {
        for (kept, to_thread) in kept.iter().zip([true, false]) {
            if kept.there.load(Ordering::Acquire) {
                // SAFETY: the handler has written it.
                unsafe { send_again(signal, (*kept.info.get()).as_mut_ptr(), to_thread, this) };
                kept.there.store(false, Ordering::Release);
            }
        }
    }
    slot.thread.store(0, Ordering::Release);
}

/// # Safety
///
/// `info` is the signal's.
#[cold]
unsafe fn send_again(signal: c_int, info: *mut libc::siginfo_t, to_thread: bool, this: i32) {
    // SAFETY: sends what was sent, to the same thread or process.
    unsafe {
        if to_thread {
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, libc::getpid(), this, signal, info);
        } else {
            // By the number of this thread it goes to its process all the same. By the number of the
            // process the kernel takes what `kill` has sent (SI_USER) from its first thread only.
            libc::syscall(libc::SYS_rt_sigqueueinfo, this, signal, info);
        }
    }
}

/// Keeps a signal that was sent for whoever takes it, where the program has it blocked in this thread.
/// False where it has not.
///
/// # Safety
///
/// The arguments are those of a handler's call.
pub(super) unsafe fn keep(signal: c_int, info: *const libc::siginfo_t) -> bool {
    let Some(slot) = Slot::of(this_thread()) else { return false };
    let number = usize::from(signal == libc::SIGBUS);
    if !slot.blocked[number].load(Ordering::Acquire) {
        return false;
    }
    // SAFETY: this function's contract.
    let info = unsafe { *info };
    let kept = &slot.kept[number][usize::from(info.si_code != SI_TKILL)];
    if !kept.there.load(Ordering::Acquire) {
        // SAFETY: nobody reads it before it is there.
        unsafe { (*kept.info.get()).write(info) };
        kept.there.store(true, Ordering::Release);
    }
    true
}
