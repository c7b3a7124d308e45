// SPDX-License-Identifier: MIT OR Apache-2.0

//! The table of the instructions that may fault, which the linker made.

use std::arch::asm;

/// Begin and end of a block of them, each counted from the field that says so.
#[repr(C)]
struct Entry {
    start: i32,
    end: i32,
}

impl Entry {
    fn bounds(&self) -> (usize, usize) {
        let at = |field: &i32| (&raw const *field).addr().wrapping_add_signed(*field as isize);
        (at(&self.start), at(&self.end))
    }
}

/// The end of the block that holds the instruction at `address`.
pub(super) fn end_of_block(address: usize) -> Option<usize> {
    entries()
        .iter()
        .map(Entry::bounds)
        .find(|(start, end)| (*start..*end).contains(&address))
        .map(|(_, end)| end)
}

fn entries() -> &'static [Entry] {
    let (start, end): (*const Entry, *const Entry);
    // SAFETY: two addresses that the linker knows. Hidden, so that each library and program that
    // has this code has its own. An entry that stands for nothing makes sure that there are any.
    unsafe {
        asm!(
            ".hidden __start_iwarp_mem_faults",
            ".hidden __stop_iwarp_mem_faults",
            ".pushsection iwarp_mem_faults, \"aR\", @progbits",
            ".balign 4",
            ".long 0",
            ".long 4",
            ".popsection",
            "lea {start}, [rip + __start_iwarp_mem_faults]",
            "lea {end}, [rip + __stop_iwarp_mem_faults]",
            start = out(reg) start,
            end = out(reg) end,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    // SAFETY: between the two are entries and nothing else.
    unsafe { std::slice::from_raw_parts(start, end.offset_from_unsigned(start)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_all_blocks_and_nothing_else() {
        assert!(entries().len() > 20, "{}", entries().len());
        let code = end_of_block as *const () as usize;
        for entry in entries() {
            let (start, end) = entry.bounds();
            assert!(start <= end && end - start < 1024, "{start:#x}..{end:#x}");
            let stands_for_nothing = start == (&raw const *entry).addr();
            assert!(stands_for_nothing || start.abs_diff(code) < 1 << 30);
            if !stands_for_nothing {
                assert_eq!(end_of_block(start), Some(end));
                assert_eq!(end_of_block(end - 1), Some(end));
            }
        }
        assert_eq!(end_of_block(code), None);
    }
}
