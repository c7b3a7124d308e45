// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pages that are exchanged for others while threads of the program may store into them: such a
//! store waits in the handler of its fault, and comes to the new pages.
//!
//! A system call that stores there meanwhile (`read`) fails with `EFAULT`.

use std::ffi::c_int;
use std::fs;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::handler;

/// From the first byte to the end; an end of 0 is none. Only one range at a time is exchanged.
static FIRST: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// The end of the range whose first byte that still is, once it was exchanged.
static LAST_END: AtomicUsize = AtomicUsize::new(0);

/// The thread that has last tried a store again, by the address of its `errno`, and where.
static THREAD: AtomicUsize = AtomicUsize::new(0);
static TRIED: AtomicUsize = AtomicUsize::new(0);

/// Time between two looks of a store that waits.
static NAP: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };

/// The code of a fault at a page that is mapped with other rights (`SEGV_ACCERR`).
const NO_RIGHT: c_int = 2;

/// True if the fault was of a store that may be done now, as it has waited, or came so late that
/// the pages were exchanged before this was asked.
pub(super) fn may_go_on(signal: c_int, code: c_int, fault: usize) -> bool {
    if signal != libc::SIGSEGV || code != NO_RIGHT {
        return false;
    }
    let within = |end: &AtomicUsize| {
        (FIRST.load(Ordering::SeqCst)..end.load(Ordering::SeqCst)).contains(&fault)
    };
    // SAFETY: the address of this thread's own.
    let errno = unsafe { libc::__errno_location() };
    if !within(&END) {
        let thread = errno.addr();
        // A second fault there is the program's.
        return within(&LAST_END)
            && (THREAD.swap(thread, Ordering::Relaxed), TRIED.swap(fault, Ordering::Relaxed))
                != (thread, fault);
    }
    // SAFETY: as above.
    let before = unsafe { *errno };
    while within(&END) {
        // SAFETY: sleeps; a handler may call it.
        unsafe { libc::nanosleep(&raw const NAP, null_mut()) };
    }
    // SAFETY: as above.
    unsafe { *errno = before };
    true
}

/// Calls `exchange`, which protects `len` bytes from `first` on against stores and then has other
/// pages be there, with true: stores of this process wait meanwhile. With false where they would
/// not, or would end the process, as a thread blocks the signal.
pub fn hold_stores<T>(first: usize, len: usize, exchange: impl FnOnce(bool) -> T) -> T {
    static TURN: Mutex<()> = Mutex::new(());

    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if !all_threads_take_it() || !handler::keep() {
        return exchange(false);
    }
    // A handler of this thread that stores there would wait for ever.
    let _quiet = Quiet::begin();
    LAST_END.store(0, Ordering::SeqCst);
    FIRST.store(first, Ordering::SeqCst);
    END.store(first + len, Ordering::SeqCst);
    let exchanged = exchange(true);
    TRIED.store(0, Ordering::Relaxed);
    LAST_END.store(first + len, Ordering::SeqCst);
    END.store(0, Ordering::SeqCst);
    exchanged
}

/// True if no thread of the program blocks SIGSEGV, but perhaps for a moment, as one does that
/// starts a process.
fn all_threads_take_it() -> bool {
    let mut looks = 0..50;
    looks.any(|look| {
        if look > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        do_all_threads_take_it()
    })
}

/// Threads of the library do not count: they store nowhere but in accesses that unblock it.
fn do_all_threads_take_it() -> bool {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    threads.flatten().all(|thread| {
        let own = fs::read_to_string(thread.path().join("comm"));
        if own.is_ok_and(|name| name.starts_with("iwarp")) {
            return true;
        }
        // One that has just ended blocks nothing.
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else { return true };
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        blocked.is_some_and(|mask| mask & (1 << (libc::SIGSEGV - 1)) == 0)
    })
}

/// No signal comes to this thread until it is dropped.
struct Quiet(libc::sigset_t);

impl Quiet {
    fn begin() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: fills both sets.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: a set that was filled.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, null_mut()) };
    }
}
