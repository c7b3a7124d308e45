// SPDX-License-Identifier: MIT OR Apache-2.0

//! Places of the program: backtraces kept as addresses, with names only when they are printed.

use std::ffi::{CStr, c_void};
use std::fmt::{self, Display, Formatter};

/// Frames that are kept, ours among them.
const DEPTH: usize = 32;
/// Frames of the program that are printed.
const SHOWN: usize = 8;

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

    /// The addresses in the program, the call of the library first.
    fn theirs(&self) -> impl Iterator<Item = &usize> {
        let ours = object((Self::here as fn() -> Self) as usize).map(|found| found.dli_fbase);
        let theirs =
            self.0.iter().skip_while(move |at| object(**at).map(|found| found.dli_fbase) == ours);
        theirs.take(SHOWN)
    }
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
