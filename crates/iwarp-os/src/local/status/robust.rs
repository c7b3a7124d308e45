// SPDX-License-Identifier: MIT OR Apache-2.0

//! Robust mutexes: the system marks their word when the thread that has locked them ends.
//!
//! They are the C library's, because it has the list of a thread's robust mutexes, which the system
//! walks at the thread's end, and a thread has one such list. The place of the word within a mutex
//! is read from that list, as the system does.

use std::io;
use std::ptr::null;

/// The number of the thread that has locked it, in a mutex's word.
pub(super) const HOLDER: u32 = 0x3fff_ffff;

/// Set in the word by the system when that thread has ended, runs another program, or was killed.
pub(super) const HOLDER_DIED: u32 = 0x4000_0000;

/// Makes a mutex that no thread has locked.
///
/// # Errors
///
/// `Unsupported` where the system or the C library has none that are robust.
///
/// # Safety
///
/// There is room for one, and no other is in use there. It stays there until it is used no more.
#[cfg(not(target_os = "android"))]
pub(super) unsafe fn init(mutex: *mut libc::pthread_mutex_t) -> io::Result<()> {
    use std::mem::MaybeUninit;

    let mut kind = MaybeUninit::uninit();
    let kind = kind.as_mut_ptr();
    // SAFETY: attributes that live to the end of this function, made before they are set.
    let made = unsafe {
        let mut error = libc::pthread_mutexattr_init(kind);
        if error == 0 {
            error = libc::pthread_mutexattr_setpshared(kind, libc::PTHREAD_PROCESS_SHARED);
        }
        if error == 0 {
            error = libc::pthread_mutexattr_setrobust(kind, libc::PTHREAD_MUTEX_ROBUST);
        }
        if error == 0 {
            // The caller's word.
            error = libc::pthread_mutex_init(mutex, kind);
        }
        error
    };
    // SAFETY: as above; nothing is kept in them that had to be made first.
    unsafe { libc::pthread_mutexattr_destroy(kind) };
    if made == 0 { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// Locks it, if no thread has it.
///
/// # Errors
///
/// `ResourceBusy` where one has it.
///
/// # Safety
///
/// [`init`] has made it. Where this succeeds, it stays there until this thread unlocks it.
#[cfg(not(target_os = "android"))]
pub(super) unsafe fn try_lock(mutex: *mut libc::pthread_mutex_t) -> io::Result<()> {
    // SAFETY: the caller's word.
    match unsafe { libc::pthread_mutex_trylock(mutex) } {
        0 => Ok(()),
        // Locked, though its last holder has ended with it.
        libc::EOWNERDEAD => {
            // SAFETY: this thread has locked it.
            unsafe { libc::pthread_mutex_consistent(mutex) };
            Ok(())
        }
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// As above: its C library has no robust mutexes.
#[cfg(target_os = "android")]
pub(super) unsafe fn init(_: *mut libc::pthread_mutex_t) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// As above.
#[cfg(target_os = "android")]
pub(super) unsafe fn try_lock(_: *mut libc::pthread_mutex_t) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Unlocks it.
///
/// # Safety
///
/// This thread has locked it.
pub(super) unsafe fn unlock(mutex: *mut libc::pthread_mutex_t) {
    // SAFETY: the caller's word.
    unsafe { libc::pthread_mutex_unlock(mutex) };
}

/// The address of the word that the system would mark first if this thread ended now: of the mutex
/// that it has locked last. `None` where the system does not tell.
pub(super) fn last_locked() -> Option<usize> {
    /// As the system has it.
    #[repr(C)]
    struct Head {
        next: usize,
        /// From an entry to its word.
        offset: isize,
        pending: usize,
    }

    let mut head: *const Head = null();
    let mut len = 0_usize;
    // SAFETY: asks about the calling thread; the answer goes into two words that outlive the call.
    let told = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) };
    if told != 0 || head.is_null() || len != size_of::<Head>() {
        return None;
    }
    // SAFETY: the head of this thread's list, which lives as long as the thread, and which this
    // thread alone changes.
    let head = unsafe { head.read() };
    // The lowest bit tells kinds of mutexes apart.
    Some((head.next & !1).wrapping_add_signed(head.offset))
}
