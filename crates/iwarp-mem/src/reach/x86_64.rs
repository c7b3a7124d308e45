// SPDX-License-Identifier: MIT OR Apache-2.0

//! Accesses by instructions that the fault handler knows.
//!
//! Each block of assembly that touches registered memory enters the addresses of its first
//! instruction and its end into the section `iwarp_mem_faults`, which the linker makes one table
//! of. A fault between the two is resumed at the end, with the address that faulted in `r11`. The
//! block declares `r11` an operand, so the compiler knows that it may change, and it is 0 before: a
//! block that ends with 0 there did all its work. One that faulted did a part of it.
//!
//! The section is marked as retained: nothing refers to it but the names of its two ends, which
//! linkers do not count as references.

use std::arch::asm;

use super::{Fault, processor};

/// The instructions, and their entry in the table. `fault` must be `inout("r11")`.
macro_rules! guarded {
    ($($line:expr),+ $(,)?) => {
        concat!(
            "2:\n",
            $($line, "\n",)+
            "3:\n",
            ".pushsection iwarp_mem_faults, \"aR\", @progbits\n",
            ".balign 4\n",
            ".long 2b - .\n",
            ".long 3b - .\n",
            ".popsection",
        )
    };
}
pub(crate) use guarded;

/// From here on the processor's own copy is as fast as a loop, or faster.
const STRING_MIN: usize = 4096;

/// Copies `n` bytes out of registered memory.
///
/// # Safety
///
/// `src` is readable for `n` bytes, or faults when it is not; `dst` is valid for writes of them,
/// and they do not overlap. Other threads may write to `src` meanwhile.
#[inline]
pub(crate) unsafe fn load(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    // SAFETY: this function's contract.
    unsafe { copy(dst, src, n) }
}

/// Copies `n` bytes into registered memory, in any order. Which of them are stored when it faults
/// is not said.
///
/// # Safety
///
/// As [`load`], with the memory that may fault being `dst`.
#[inline]
pub(crate) unsafe fn store(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    // SAFETY: this function's contract.
    unsafe { copy(dst, src, n) }
}

/// Copies by two accesses of the size, which overlap, for lengths up to twice that.
macro_rules! two {
    ($move:literal, $modifier:literal, $size:literal, $class:ident, $dst:ident, $src:ident, $n:ident) => {{
        let mut fault = 0_usize;
        asm!(
            guarded!(
                concat!($move, " {a", $modifier, "}, [{src}]"),
                concat!($move, " {b", $modifier, "}, [{src} + {n} - ", $size, "]"),
                concat!($move, " [{dst}], {a", $modifier, "}"),
                concat!($move, " [{dst} + {n} - ", $size, "], {b", $modifier, "}"),
            ),
            dst = in(reg) $dst,
            src = in(reg) $src,
            n = in(reg) $n,
            a = out($class) _,
            b = out($class) _,
            inout("r11") fault,
            options(nostack, preserves_flags)
        );
        Fault::check(fault)
    }};
}

/// # Safety
///
/// As [`load`] or [`store`].
#[inline]
unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    // SAFETY: each branch accesses the `n` bytes of both sides and no others.
    unsafe {
        if n > 128 {
            return copy_long(dst, src, n);
        }
        match n {
            0 => Ok(()),
            1 => {
                let mut fault = 0_usize;
                asm!(
                    guarded!("mov {a}, byte ptr [{src}]", "mov byte ptr [{dst}], {a}"),
                    dst = in(reg) dst,
                    src = in(reg) src,
                    a = out(reg_byte) _,
                    inout("r11") fault,
                    options(nostack, preserves_flags)
                );
                Fault::check(fault)
            }
            2..4 => two!("mov", ":x", "2", reg, dst, src, n),
            4..8 => two!("mov", ":e", "4", reg, dst, src, n),
            8..=16 => two!("mov", ":r", "8", reg, dst, src, n),
            17..=32 => two!("movups", "", "16", xmm_reg, dst, src, n),
            _ => copy_middle(dst, src, n),
        }
    }
}

/// # Safety
///
/// As [`copy`]; `n` is 33 to 128.
#[inline]
unsafe fn copy_middle(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    let mut fault = 0_usize;
    // SAFETY: 32 bytes at either end, then the others in between, each within `n`.
    unsafe {
        asm!(
            guarded!(
                "movups {a}, [{src}]",
                "movups {b}, [{src} + 16]",
                "movups {c}, [{src} + {n} - 32]",
                "movups {d}, [{src} + {n} - 16]",
                "movups [{dst}], {a}",
                "movups [{dst} + 16], {b}",
                "movups [{dst} + {n} - 32], {c}",
                "movups [{dst} + {n} - 16], {d}",
                "cmp {n}, 64",
                "jbe 3f",
                "movups {a}, [{src} + 32]",
                "movups {b}, [{src} + 48]",
                "movups {c}, [{src} + {n} - 64]",
                "movups {d}, [{src} + {n} - 48]",
                "movups [{dst} + 32], {a}",
                "movups [{dst} + 48], {b}",
                "movups [{dst} + {n} - 64], {c}",
                "movups [{dst} + {n} - 48], {d}",
            ),
            dst = in(reg) dst,
            src = in(reg) src,
            n = in(reg) n,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            inout("r11") fault,
            options(nostack)
        );
    }
    Fault::check(fault)
}

/// # Safety
///
/// As [`copy`]; `n` is more than 128.
#[inline(never)]
unsafe fn copy_long(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    let has = processor::known();
    // SAFETY: this function's contract; what the processor has is checked.
    unsafe {
        if n >= STRING_MIN && has & processor::FAST_STRINGS != 0 {
            copy_by_string(dst, src, n)
        } else if has & processor::AVX != 0 {
            copy_by_32(dst, src, n)
        } else {
            copy_by_16_or_look(dst, src, n, has)
        }
    }
}

/// As [`copy_long`], where that knows of nothing wider. Apart from it, so that it saves no
/// registers.
///
/// # Safety
///
/// As [`copy_long`].
#[inline(never)]
unsafe fn copy_by_16_or_look(dst: *mut u8, src: *const u8, n: usize, has: u8) -> Result<(), Fault> {
    // SAFETY: this function's contract.
    unsafe {
        if has & processor::KNOWN != 0 {
            return copy_by_16(dst, src, n);
        }
        processor::look();
        copy_long(dst, src, n)
    }
}

/// # Safety
///
/// As [`copy`].
unsafe fn copy_by_string(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    let mut fault = 0_usize;
    // SAFETY: `n` bytes from `src` to `dst`, upwards: the direction flag is clear.
    unsafe {
        asm!(
            guarded!("rep movsb"),
            inout("rdi") dst => _,
            inout("rsi") src => _,
            inout("rcx") n => _,
            inout("r11") fault,
            options(nostack, preserves_flags)
        );
    }
    Fault::check(fault)
}

/// # Safety
///
/// As [`copy`]; `n` is more than 128, and the processor has AVX.
#[target_feature(enable = "avx")]
unsafe fn copy_by_32(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    let mut fault = 0_usize;
    // SAFETY: the first 32 bytes alone, so that what follows is stored aligned; blocks of 256
    // while more are left, one of 128 if more than that are, and the last 128, parts of which may
    // have been copied before.
    unsafe {
        asm!(
            guarded!(
                "vmovdqu {a}, [{src}]",
                "vmovdqu [{dst}], {a}",
                // From here on relative to the sink; and where its last 256 bytes begin.
                "sub {src}, {dst}",
                "lea {n}, [{dst} + {n} - 256]",
                "or {dst}, 31",
                "inc {dst}",
                "cmp {dst}, {n}",
                "jae 5f",
                ".balign 16",
                "4:",
                "vmovdqu {a}, [{dst} + {src}]",
                "vmovdqu {b}, [{dst} + {src} + 32]",
                "vmovdqu {c}, [{dst} + {src} + 64]",
                "vmovdqu {d}, [{dst} + {src} + 96]",
                "vmovdqu {e}, [{dst} + {src} + 128]",
                "vmovdqu {f}, [{dst} + {src} + 160]",
                "vmovdqu {g}, [{dst} + {src} + 192]",
                "vmovdqu {h}, [{dst} + {src} + 224]",
                "vmovdqa [{dst}], {a}",
                "vmovdqa [{dst} + 32], {b}",
                "vmovdqa [{dst} + 64], {c}",
                "vmovdqa [{dst} + 96], {d}",
                "vmovdqa [{dst} + 128], {e}",
                "vmovdqa [{dst} + 160], {f}",
                "vmovdqa [{dst} + 192], {g}",
                "vmovdqa [{dst} + 224], {h}",
                "add {dst}, 256",
                "cmp {dst}, {n}",
                "jb 4b",
                "5:",
                "sub {n}, -128",
                "cmp {dst}, {n}",
                "jae 6f",
                "vmovdqu {a}, [{dst} + {src}]",
                "vmovdqu {b}, [{dst} + {src} + 32]",
                "vmovdqu {c}, [{dst} + {src} + 64]",
                "vmovdqu {d}, [{dst} + {src} + 96]",
                "vmovdqa [{dst}], {a}",
                "vmovdqa [{dst} + 32], {b}",
                "vmovdqa [{dst} + 64], {c}",
                "vmovdqa [{dst} + 96], {d}",
                "6:",
                "vmovdqu {a}, [{n} + {src}]",
                "vmovdqu {b}, [{n} + {src} + 32]",
                "vmovdqu {c}, [{n} + {src} + 64]",
                "vmovdqu {d}, [{n} + {src} + 96]",
                "vmovdqu [{n}], {a}",
                "vmovdqu [{n} + 32], {b}",
                "vmovdqu [{n} + 64], {c}",
                "vmovdqu [{n} + 96], {d}",
            ),
            "vzeroupper",
            dst = inout(reg) dst => _,
            src = inout(reg) src => _,
            n = inout(reg) n => _,
            a = out(ymm_reg) _,
            b = out(ymm_reg) _,
            c = out(ymm_reg) _,
            d = out(ymm_reg) _,
            e = out(ymm_reg) _,
            f = out(ymm_reg) _,
            g = out(ymm_reg) _,
            h = out(ymm_reg) _,
            inout("r11") fault,
            options(nostack)
        );
    }
    Fault::check(fault)
}

/// # Safety
///
/// As [`copy`]; `n` is more than 64.
unsafe fn copy_by_16(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    let mut fault = 0_usize;
    // SAFETY: blocks of 64 bytes while more are left, then the last 64, parts of which may have
    // been copied before.
    unsafe {
        asm!(
            guarded!(
                "4:",
                "movups {a}, [{src}]",
                "movups {b}, [{src} + 16]",
                "movups {c}, [{src} + 32]",
                "movups {d}, [{src} + 48]",
                "movups [{dst}], {a}",
                "movups [{dst} + 16], {b}",
                "movups [{dst} + 32], {c}",
                "movups [{dst} + 48], {d}",
                "add {src}, 64",
                "add {dst}, 64",
                "sub {n}, 64",
                "cmp {n}, 64",
                "ja 4b",
                "movups {a}, [{src} + {n} - 64]",
                "movups {b}, [{src} + {n} - 48]",
                "movups {c}, [{src} + {n} - 32]",
                "movups {d}, [{src} + {n} - 16]",
                "movups [{dst} + {n} - 64], {a}",
                "movups [{dst} + {n} - 48], {b}",
                "movups [{dst} + {n} - 32], {c}",
                "movups [{dst} + {n} - 16], {d}",
            ),
            dst = inout(reg) dst => _,
            src = inout(reg) src => _,
            n = inout(reg) n => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            inout("r11") fault,
            options(nostack)
        );
    }
    Fault::check(fault)
}

macro_rules! store_one {
    ($(#[$docs:meta])* $name:ident, $type:ty, $class:ident, $modifier:literal, $size:literal) => {
        $(#[$docs])*
        #[inline(always)]
        pub(crate) unsafe fn $name(dst: *mut $type, value: $type) -> Result<(), Fault> {
            let mut fault = 0_usize;
            // SAFETY: one store, which stays behind all that come before it: the processor keeps
            // the order of stores, and the compiler moves no access of memory across the block.
            unsafe {
                asm!(
                    guarded!(concat!("mov ", $size, " ptr [{dst}], {value", $modifier, "}")),
                    dst = in(reg) dst,
                    value = in($class) value,
                    inout("r11") fault,
                    options(nostack, preserves_flags)
                );
            }
            Fault::check(fault)
        }
    };
}

store_one!(
    /// Stores a byte; a release, as are those below.
    ///
    /// # Safety
    ///
    /// `dst` is writable, or faults when it is not, and aligned. Other threads may access it
    /// meanwhile.
    store_u8, u8, reg_byte, "", "byte"
);
store_one!(
    /// # Safety
    ///
    /// As [`store_u8`].
    store_u16, u16, reg, ":x", "word"
);
store_one!(
    /// # Safety
    ///
    /// As [`store_u8`].
    store_u32, u32, reg, ":e", "dword"
);
store_one!(
    /// # Safety
    ///
    /// As [`store_u8`].
    store_u64, u64, reg, ":r", "qword"
);

/// Replaces what is in `word` by what `new` makes of it, atomically, and returns what was there.
///
/// # Safety
///
/// `word` is aligned; it is readable and writable, or faults when it is not. Other threads may
/// access it meanwhile, atomically.
pub(crate) unsafe fn update(word: *mut u64, new: impl Fn(u64) -> u64) -> Result<u64, Fault> {
    let (mut fault, mut old) = (0_usize, 0_u64);
    // SAFETY: one load.
    unsafe {
        asm!(
            guarded!("mov {old}, qword ptr [{word}]"),
            word = in(reg) word,
            old = inout(reg) old,
            inout("r11") fault,
            options(nostack, preserves_flags)
        );
    }
    loop {
        Fault::check(fault)?;
        let expected = old;
        // SAFETY: one atomic operation.
        unsafe {
            asm!(
                guarded!("lock cmpxchg qword ptr [{word}], {new}"),
                word = in(reg) word,
                new = in(reg) new(expected),
                inout("rax") old,
                inout("r11") fault,
                options(nostack)
            );
        }
        if fault == 0 && old == expected {
            return Ok(old);
        }
    }
}

/// Checks that the byte can be read.
pub(crate) fn probe_read(addr: *const u8) -> Result<(), Fault> {
    let mut fault = 0_usize;
    // SAFETY: reads a byte, or faults and goes on.
    unsafe {
        asm!(
            guarded!("test byte ptr [{addr}], 1"),
            addr = in(reg) addr,
            inout("r11") fault,
            options(nostack, readonly)
        );
    }
    Fault::check(fault)
}

/// Checks that the byte can be written. It keeps its value, also where other threads write to it
/// meanwhile; a page that is shared until it is written to is copied, as it would be if it were
/// pinned.
pub(crate) fn probe_write(addr: *mut u8) -> Result<(), Fault> {
    let mut fault = 0_usize;
    // SAFETY: changes nothing, atomically, or faults and goes on.
    unsafe {
        asm!(
            guarded!("lock or byte ptr [{addr}], 0"),
            addr = in(reg) addr,
            inout("r11") fault,
            options(nostack)
        );
    }
    Fault::check(fault)
}

/// A copy as processors without AVX and fast strings make it.
///
/// # Safety
///
/// As [`load`] or [`store`].
#[cfg(test)]
pub(super) unsafe fn narrow(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    // SAFETY: the caller's.
    unsafe { if n > 128 { copy_by_16(dst, src, n) } else { copy(dst, src, n) } }
}
