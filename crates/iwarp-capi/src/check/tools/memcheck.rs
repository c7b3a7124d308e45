// SPDX-License-Identifier: MIT OR Apache-2.0

//! Valgrind's memcheck: it knows which bytes hold something. Requests to it are instructions that
//! do nothing elsewhere.
//!
//! (Considered: the crates that wrap Valgrind's headers, which need these headers or a C compiler.)

use std::ops::Range;

/// `RUNNING_ON_VALGRIND`
const RUNNING: usize = 0x1001;
/// The first request of memcheck.
const MEMCHECK: usize = (b'M' as usize) << 24 | (b'C' as usize) << 16;
/// `VALGRIND_MAKE_MEM_UNDEFINED`
const UNDEFINED: usize = MEMCHECK + 1;
/// `VALGRIND_MAKE_MEM_DEFINED`
const DEFINED: usize = MEMCHECK + 2;
/// `VALGRIND_CHECK_MEM_IS_DEFINED`: memcheck reports what is not, with the place of the call.
const LOOK: usize = MEMCHECK + 5;

#[derive(Debug)]
pub(super) struct Memcheck;

/// The answer to a request; 0 where nothing of the kind runs.
#[cfg(target_arch = "x86_64")]
fn request(number: usize, first: usize, second: usize) -> usize {
    let words = [number, first, second, 0, 0, 0];
    let mut answer = 0_usize;
    // SAFETY: the rotations are by 128 bits together, and the exchange is of a register with
    // itself.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") words.as_ptr(),
            inout("rdx") answer,
        );
    }
    answer
}

/// Likewise.
#[cfg(target_arch = "aarch64")]
fn request(number: usize, first: usize, second: usize) -> usize {
    let words = [number, first, second, 0, 0, 0];
    let mut answer = 0_usize;
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "ror x12, x12, #3",
            "ror x12, x12, #13",
            "ror x12, x12, #51",
            "ror x12, x12, #61",
            "orr x10, x10, x10",
            in("x4") words.as_ptr(),
            inout("x3") answer,
        );
    }
    answer
}

/// Not known here.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn request(_: usize, _: usize, _: usize) -> usize {
    0
}

impl Memcheck {
    /// Valgrind, if the program runs in it.
    pub(super) fn find() -> Option<Self> {
        (request(RUNNING, 0, 0) != 0).then_some(Self)
    }

    /// Bytes that the program gives to the device should hold something.
    pub(super) fn look_at(&self, memory: &Range<usize>) {
        request(LOOK, memory.start, memory.len());
    }

    /// Bytes that the device may write, or has, hold nothing for the program.
    ///
    /// (Considered: to make them inaccessible. The library itself would be accused where it places
    /// them, and so would system calls that do.)
    pub(super) fn undefine(&self, memory: &Range<usize>) {
        request(UNDEFINED, memory.start, memory.len());
    }

    /// The device has put something there.
    pub(super) fn define(&self, memory: &Range<usize>) {
        request(DEFINED, memory.start, memory.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_by_valgrind_alone() {
        let under = std::env::var("LD_PRELOAD").is_ok_and(|list| list.contains("vgpreload"));
        assert_eq!(Memcheck::find().is_some(), under);
    }
}
