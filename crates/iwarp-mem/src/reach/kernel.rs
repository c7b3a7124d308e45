// SPDX-License-Identifier: MIT OR Apache-2.0

//! Accesses by system calls that find memory that is gone and say so.
//!
//! Memory that one call checks another thread may take away before the next: where the last word of
//! a block is stored, and where an atomic operation is done, the memory is made sure of first and
//! then accessed by an instruction.

use std::ptr;
use std::sync::atomic::{Ordering, fence};

use super::{Fault, plain};

/// Copies `n` bytes out of registered memory.
///
/// # Safety
///
/// As in `plain`, but `src` may be gone.
pub(crate) unsafe fn load(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    // SAFETY: this function's contract: `dst` is ours, and what lies at `src` the kernel looks
    // after.
    match unsafe { transfer(libc::SYS_process_vm_readv, dst, src.cast_mut(), n) } {
        Moved::All => Ok(()),
        Moved::Until(done) => Err(Fault { addr: src.addr() + done }),
        // SAFETY: this function's contract, without survival.
        Moved::Denied => unsafe { plain::load(dst, src, n) },
    }
}

/// Copies `n` bytes into registered memory, in any order.
///
/// # Safety
///
/// As in `plain`, but `dst` may be gone.
pub(crate) unsafe fn store(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    // SAFETY: as above.
    match unsafe { transfer(libc::SYS_process_vm_writev, src.cast_mut(), dst, n) } {
        Moved::All => Ok(()),
        Moved::Until(done) => Err(Fault { addr: dst.addr() + done }),
        // SAFETY: as above.
        Moved::Denied => unsafe { plain::store(dst, src, n) },
    }
}

enum Moved {
    All,
    /// The byte behind so many could not be accessed.
    Until(usize),
    /// There is no such call here.
    Denied,
}

/// # Safety
///
/// `own` is valid for `n` bytes, for what `call` does to them.
unsafe fn transfer(call: libc::c_long, own: *mut u8, registered: *mut u8, n: usize) -> Moved {
    let mut done = 0;
    while done < n {
        let local = libc::iovec { iov_base: own.wrapping_add(done).cast(), iov_len: n - done };
        let remote =
            libc::iovec { iov_base: registered.wrapping_add(done).cast(), iov_len: n - done };
        let (local, remote) = (&raw const local, &raw const remote);
        // SAFETY: the kernel checks the address of `remote`; `local` is the caller's word. Each
        // argument is as wide as a register.
        let moved = unsafe {
            let process = libc::getpid() as libc::c_long;
            libc::syscall(call, process, local, 1_usize, remote, 1_usize, 0_usize)
        };
        match moved {
            1.. => done += moved as usize,
            _ if errno() == libc::EFAULT => return Moved::Until(done),
            _ => return Moved::Denied,
        }
    }
    Moved::All
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

macro_rules! store_one {
    ($name:ident, $type:ty) => {
        /// Stores a value; a release.
        ///
        /// # Safety
        ///
        /// As in `plain`, but `dst` may be gone.
        pub(crate) unsafe fn $name(dst: *mut $type, value: $type) -> Result<(), Fault> {
            let octets = value.to_ne_bytes();
            // The kernel's stores are none of the compiler's, nor are they releases.
            fence(Ordering::SeqCst);
            // SAFETY: this function's contract, passed on.
            unsafe {
                store(dst.cast(), octets.as_ptr(), octets.len())?;
                plain::$name(dst, value)
            }
        }
    };
}

store_one!(store_u8, u8);
store_one!(store_u16, u16);
store_one!(store_u32, u32);
#[cfg(target_has_atomic = "64")]
store_one!(store_u64, u64);

/// Replaces what is in `word` by what `new` makes of it, atomically, and returns what was there.
///
/// # Safety
///
/// As in `plain`, but `word` may be gone.
pub(crate) unsafe fn update(word: *mut u64, new: impl Fn(u64) -> u64) -> Result<u64, Fault> {
    probe_write(word.cast())?;
    // SAFETY: this function's contract, and it was there a moment ago.
    unsafe { plain::update(word, new) }
}

/// Checks that the byte can be read.
pub(crate) fn probe_read(addr: *const u8) -> Result<(), Fault> {
    let mut octet = 0;
    // SAFETY: one byte of the stack. If the call is denied, nothing is known.
    match unsafe { transfer(libc::SYS_process_vm_readv, &raw mut octet, addr.cast_mut(), 1) } {
        Moved::All | Moved::Denied => Ok(()),
        Moved::Until(_) => Err(Fault { addr: addr.addr() }),
    }
}

/// Checks that the byte can be written, by a futex operation that sets no bit of the word that it
/// is part of, and wakes no thread. Atomic, so that it takes back no other thread's store.
pub(crate) fn probe_write(addr: *mut u8) -> Result<(), Fault> {
    /// `FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, -2048)`: sleepers on a word of that value, should
    /// there be any, are woken once too often.
    const OR_NOTHING: u32 = 2 << 28 | 0x800;
    let own = 0_u32;
    let word = addr.wrapping_sub(addr.addr() % 4);
    // SAFETY: two futexes on which this wakes at most 0 sleepers, and an operation on the second
    // that leaves it as it is.
    let done = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const own,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            ptr::null::<libc::timespec>(),
            word,
            OR_NOTHING,
        )
    };
    if done < 0 && errno() == libc::EFAULT { Err(Fault { addr: addr.addr() }) } else { Ok(()) }
}
