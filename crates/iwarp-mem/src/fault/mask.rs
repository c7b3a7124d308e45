// SPDX-License-Identifier: MIT OR Apache-2.0

//! SIGSEGV and SIGBUS let in by a thread that blocks them otherwise.
//!
//! One that is sent meanwhile was meant to be taken by `sigwait` or a signalfd, in another thread
//! or in this one later. The handler keeps it until the thread has them blocked again; then it is
//! sent again. During an access this happens at its end, as a blocked fault would end the process;
//! between accesses, where the library's own threads have them unblocked too, at once.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, Ordering};

use super::admit::ThreadAccess;
use super::handler::SIGNALS;

/// Some of the two signals: a bit for each.
pub(super) type Blocked = u8;
pub(super) const NONE: Blocked = 0;

fn bit(signal: c_int) -> Blocked {
    1 << u8::from(signal == libc::SIGBUS)
}

/// Unblocks both, and notes in `state` which are to be blocked again. In a thread that `stays`,
/// that is none until the first signal comes.
pub(super) fn unblock(state: &ThreadAccess, stays: bool) {
    let blocked = change(libc::SIG_BLOCK, NONE);
    if blocked == NONE {
        // With a slot it is a thread that stays, and the handler may have noted something just now.
        if state.slot.load(Ordering::Relaxed).is_null() {
            state.block(NONE);
        }
        return;
    }
    // Before the first of them can come.
    let can_keep = Slot::take(state, blocked);
    state.block(if stays && can_keep { NONE } else { blocked });
    change(libc::SIG_UNBLOCK, blocked);
}

#[cold]
pub(super) fn block_again(state: &ThreadAccess, blocked: Blocked) {
    change(libc::SIG_BLOCK, blocked);
    let slot = state.slot.swap(ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: null, or one of `SLOTS`.
    if let Some(slot) = unsafe { slot.as_ref() } {
        slot.send_kept();
        slot.give_back();
    }
}

/// For a thread that stays, as it ends: another may have its number then.
pub(super) fn end_stay(state: &ThreadAccess) {
    // SAFETY: null, or one of `SLOTS`.
    if let Some(slot) = unsafe { state.slot.load(Ordering::Relaxed).as_ref() } {
        let blocked = slot.blocked.load(Ordering::Relaxed);
        state.block(blocked);
        block_again(state, blocked);
    }
}

/// Changes the mask of this thread for some of the signals; says which were blocked before.
fn change(how: c_int, which: Blocked) -> Blocked {
    let mut before = MaybeUninit::uninit();
    // SAFETY: `pthread_sigmask` reads the set, and writes the mask that was in force to `before`
    // where it succeeds; it is read then only.
    unsafe {
        // Fails in a sandbox that knows no masks.
        if libc::pthread_sigmask(how, &set(which), before.as_mut_ptr()) != 0 {
            return NONE;
        }
        let blocked = |signal| libc::sigismember(before.as_ptr(), signal) == 1;
        SIGNALS.into_iter().filter(|&signal| blocked(signal)).map(bit).sum()
    }
}

fn set(which: Blocked) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in SIGNALS.into_iter().filter(|&signal| which & bit(signal) != 0) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// The code of a signal that was sent to one thread.
const SI_TKILL: c_int = -6;

/// Threads that have the signals unblocked and blocked otherwise, for the handler, which has no
/// thread-locals. More than there is room for have signals that are sent meanwhile delivered.
static SLOTS: [Slot; 64] = [const { Slot::new() }; 64];

/// No thread's number: the slot is about to become one's.
const TAKING: i32 = -1;

pub(super) struct Slot {
    /// 0: none.
    thread: AtomicI32,
    /// The thread's process: a forked child has its parent's slots, and none of the threads.
    process: AtomicI32,
    /// The signals that it blocks otherwise.
    blocked: AtomicU8,
    state: AtomicPtr<ThreadAccess>,
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

/// This thread, and this process.
fn this() -> (i32, i32) {
    // SAFETY: asks for two numbers.
    unsafe { (libc::gettid(), libc::getpid()) }
}

impl Slot {
    const fn new() -> Self {
        Self {
            thread: AtomicI32::new(0),
            process: AtomicI32::new(0),
            blocked: AtomicU8::new(NONE),
            state: AtomicPtr::new(ptr::null_mut()),
            kept: [const { [const { Kept::new() }; 2] }; 2],
        }
    }

    /// For the handler.
    fn of_this_thread() -> Option<&'static Self> {
        let (thread, process) = this();
        SLOTS.iter().find(|slot| {
            slot.thread.load(Ordering::Acquire) == thread
                && slot.process.load(Ordering::Relaxed) == process
        })
    }

    /// For this thread, which has none. False where there is no more room.
    fn take(state: &ThreadAccess, blocked: Blocked) -> bool {
        let (thread, process) = this();
        let free = SLOTS.iter().find(|slot| {
            let of = slot.thread.load(Ordering::Relaxed);
            let is_free =
                of == 0 || of != TAKING && slot.process.load(Ordering::Relaxed) != process;
            is_free
                && slot
                    .thread
                    .compare_exchange(of, TAKING, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        });
        let Some(slot) = free else { return false };
        slot.process.store(process, Ordering::Relaxed);
        slot.blocked.store(blocked, Ordering::Relaxed);
        slot.state.store(ptr::from_ref(state).cast_mut(), Ordering::Relaxed);
        slot.kept.iter().flatten().for_each(|kept| kept.there.store(false, Ordering::Relaxed));
        slot.thread.store(thread, Ordering::Release);
        state.slot.store(ptr::from_ref(slot).cast_mut(), Ordering::Relaxed);
        true
    }

    fn give_back(&self) {
        self.thread.store(0, Ordering::Release);
    }

    /// # Safety
    ///
    /// `info` is the signal's.
    unsafe fn keep(&self, signal: c_int, info: *const libc::siginfo_t) {
        // SAFETY: this function's contract.
        let info = unsafe { *info };
        let of_signal = &self.kept[usize::from(signal == libc::SIGBUS)];
        let kept = &of_signal[usize::from(info.si_code != SI_TKILL)];
        if !kept.there.load(Ordering::Acquire) {
            // SAFETY: no thread reads it before it is there.
            unsafe { (*kept.info.get()).write(info) };
            kept.there.store(true, Ordering::Release);
        }
    }

    /// With the signals blocked.
    fn send_kept(&self) {
        let thread = self.thread.load(Ordering::Relaxed);
        for (signal, kept) in SIGNALS.into_iter().zip(&self.kept) {
            for (kept, to_thread) in kept.iter().zip([true, false]) {
                if kept.there.load(Ordering::Acquire) {
                    // SAFETY: the handler has written it.
                    unsafe { send(signal, (*kept.info.get()).as_mut_ptr(), to_thread, thread) };
                    kept.there.store(false, Ordering::Release);
                }
            }
        }
    }
}

/// # Safety
///
/// `info` is the signal's.
#[cold]
unsafe fn send(signal: c_int, info: *mut libc::siginfo_t, to_thread: bool, this: i32) {
    // SAFETY: sends the signal on, to the thread or process that it was sent to.
    unsafe {
        if to_thread {
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, libc::getpid(), this, signal, info);
        } else {
            // Under the number of this thread it goes to its process nevertheless. Under the number
            // of the process the kernel takes what `kill` has sent (SI_USER) from its first thread
            // only.
            libc::syscall(libc::SYS_rt_sigqueueinfo, this, signal, info);
        }
    }
}

/// Keeps a signal that was sent, if this thread blocks it otherwise; false if it does not.
///
/// # Safety
///
/// The arguments are those of a handler's call.
pub(super) unsafe fn keep(
    signal: c_int,
    info: *const libc::siginfo_t,
    context: *mut libc::ucontext_t,
) -> bool {
    let Some(slot) = Slot::of_this_thread() else { return false };
    let blocked = slot.blocked.load(Ordering::Relaxed);
    if blocked & bit(signal) == 0 {
        return false;
    }
    // SAFETY: this function's contract.
    unsafe { slot.keep(signal, info) };
    // SAFETY: a thread has its state to its end, and this is the thread.
    let state = unsafe { &*slot.state.load(Ordering::Relaxed) };
    state.block(blocked);
    if !state.is_inside() {
        // SAFETY: the mask that is in force when the handler has returned.
        let after = unsafe { &mut (*context).uc_sigmask };
        for signal in SIGNALS.into_iter().filter(|&signal| blocked & bit(signal) != 0) {
            // SAFETY: changes the mask.
            unsafe { libc::sigaddset(after, signal) };
        }
        // SAFETY: the thread's own; the code that was interrupted may be about to read it.
        let errno = unsafe { &mut *libc::__errno_location() };
        let before = *errno;
        block_again(state, blocked);
        *errno = before;
    }
    true
}
