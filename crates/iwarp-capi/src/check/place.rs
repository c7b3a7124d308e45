// SPDX-License-Identifier: MIT OR Apache-2.0

//! Places of the program: backtraces kept as addresses, with names only when they are printed.

use std::ffi::{CStr, c_void};
use std::fmt::{self, Display, Formatter};

use iwarp_os::thread::is_ours;

/// Frames that are kept, ours among them.
const DEPTH: usize = 32;
/// Frames that may be in front of ours.
const FOREIGN: usize = 3;
/// Frames of the program that are printed.
const SHOWN: usize = 8;

/// The code to which handlers of signals return: a call of `rt_sigreturn`.
#[cfg(target_arch = "x86_64")]
const RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// Likewise.
#[cfg(target_arch = "aarch64")]
const RETURN: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];
/// Not known: handlers are taken for the rest of the program.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const RETURN: [u8; 0] = [];

/// The return addresses of a call, this library's among them: to tell them apart takes the dynamic
/// linker's lock, which another thread may hold that waits for this one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Place(Vec<usize>);

impl Place {
    /// The place from which the program has called the library.
    pub(super) fn here() -> Self {
        let mut frames = [std::ptr::null_mut::<c_void>(); DEPTH];
        // SAFETY: there is room for so many.
        let count = unsafe { libc::backtrace(frames.as_mut_ptr(), DEPTH as i32) };
        let frames = frames.iter().take(usize::try_from(count).unwrap_or(0));
        Self(frames.map(|frame| frame.addr()).collect())
    }

    /// True if the program has called from a handler of a signal, which may have interrupted an
    /// allocation of memory, or anything else that is not to be done twice.
    pub(super) fn is_in_handler() -> bool {
        if is_ours() || !blocks_signals() {
            return false;
        }
        Self::here().0.iter().any(|address| {
            let mut code = [0; RETURN.len()];
            !RETURN.is_empty() && copy(*address, &mut code) && code == RETURN
        })
    }

    /// The addresses in the program, the call of the library first.
    fn theirs(&self) -> impl Iterator<Item = &usize> {
        let own = object((Self::here as fn() -> Self) as usize).map(|found| found.dli_fbase);
        let is_ours = move |at: &&usize| object(**at).map(|found| found.dli_fbase) == own;
        // A sanitizer may have frames of its own in front.
        let start = self.0.iter().take(FOREIGN).position(|at| is_ours(&at)).unwrap_or(0);
        let theirs = self.0.iter().skip(start).skip_while(is_ours);
        theirs.take(SHOWN)
    }
}

/// True if signals are blocked in this thread: at least the one whose handler it runs.
fn blocks_signals() -> bool {
    // SAFETY: a set of signals is a row of bits.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: it only stores the set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set) };
    // SAFETY: the set was just stored.
    (1..=libc::SIGRTMAX()).any(|signal| unsafe { libc::sigismember(&raw const set, signal) } == 1)
}

/// Copies bytes of the process, by the system, as they may not be there. False then.
pub(super) fn copy(address: usize, to: &mut [u8]) -> bool {
    let length = to.len();
    let room = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: length };
    let source = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), ..room };
    // SAFETY: there is room for so many bytes, and the source is only looked at.
    let got = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const room, 1, &raw const source, 1, 0)
    };
    usize::try_from(got) == Ok(length)
}

fn object(address: usize) -> Option<libc::Dl_info> {
    // SAFETY: the structure holds pointers, which may be null.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is only looked up.
    let known = unsafe { libc::dladdr(std::ptr::without_provenance(address), &raw mut found) };
    (known != 0).then_some(found)
}

/// A string of the dynamic linker's.
fn text(of: *const std::ffi::c_char) -> Option<String> {
    // SAFETY: null, or a string that stays while the object is loaded.
    (!of.is_null()).then(|| unsafe { CStr::from_ptr(of) }.to_string_lossy().into_owned())
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, address) in self.theirs().enumerate() {
            let found = object(*address);
            let name = found.and_then(|found| text(found.dli_sname)).unwrap_or("?".to_owned());
            let file = found.and_then(|found| text(found.dli_fname)).unwrap_or("?".to_owned());
            // The address of the call, not of the instruction behind it, for addr2line.
            let base = found.map_or(0, |found| found.dli_fbase.addr());
            let offset = address.saturating_sub(base).saturating_sub(1);
            writeln!(f, "    #{number} {name} ({file}+{offset:#x})")?;
        }
        Ok(())
    }
}
