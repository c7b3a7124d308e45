// SPDX-License-Identifier: MIT OR Apache-2.0

//! The objects of live processes one by one, in a file beside the tree that each of them writes its
//! own to: `iwarp_os::roster` has its form.

use core::ffi::{c_int, c_long};

use super::c;
use super::files::open_beside;
use super::ledger::lives;
use super::netlink::{Listed, ROW_WORDS, Row, check};

/// Words of a row: those of the object, its users and itself, and the check.
const ROW: usize = ROW_WORDS + 2;
const ROW_OCTETS: usize = ROW * 8;
/// Rows of a page, the first of which has the page's owner.
const ROWS: usize = 64;
const PAGE: usize = ROWS * ROW_OCTETS;

/// Times that a row is read again which its process is just writing.
const PATIENCE: u32 = 3;

/// Calls `visit` with each object of a live process, until it is false.
pub(super) fn each(visit: &mut dyn FnMut(&Listed) -> bool) {
    // SAFETY: a string.
    let Some(fd) = (unsafe { open_beside(c"/objects".as_ptr().cast()) }) else { return };
    let mut octets = [0_u8; PAGE];
    let (mut living, mut at) = (0_u64, 0_usize);
    let mut goes_on = true;
    while goes_on && let Some(page) = read::<PAGE>(fd, at, &mut octets) {
        let mut rows = page.as_chunks::<ROW_OCTETS>().0.iter();
        let owner = rows.next().and_then(|row| words(row).first().copied()).unwrap_or(0);
        // Most pages that follow each other are of one process.
        if owner != 0 && (owner == living || lives(owner)) {
            living = owner;
            for (place, row) in rows.enumerate() {
                let start = place.wrapping_add(1).wrapping_mul(ROW_OCTETS).wrapping_add(at);
                let number = (start / ROW_OCTETS) as u32;
                if goes_on && let Some(listed) = whole(fd, owner, start, number, words(row)) {
                    goes_on = visit(&listed);
                }
            }
        }
        at = at.wrapping_add(PAGE);
    }
    // SAFETY: just opened.
    unsafe { c::close(fd) };
}

/// The object of a row, which is read again if its words do not belong together.
fn whole(fd: c_int, owner: u64, start: usize, number: u32, row: [u64; ROW]) -> Option<Listed> {
    let mut row = row;
    for _ in 0..PATIENCE {
        let (object, rest) = row.split_first_chunk::<ROW_WORDS>()?;
        let row_of = if *object.first()? == 0 { return None } else { Row::of(object) };
        let [holders, sum] = rest.first_chunk()?;
        if *sum == check(owner, object) {
            // The object holds on to itself, where that is counted.
            let users = holders.saturating_sub(1);
            return row_of.map(|row| Listed { number, process: owner as u32, users, row });
        }
        let mut octets = [0; ROW_OCTETS];
        row = words(read::<ROW_OCTETS>(fd, start, &mut octets)?);
    }
    None
}

fn words(row: &[u8; ROW_OCTETS]) -> [u64; ROW] {
    let mut words = [0; ROW];
    let octets = row.as_chunks::<8>().0;
    words.iter_mut().zip(octets).for_each(|(to, word)| *to = u64::from_ne_bytes(*word));
    words
}

fn read<const OCTETS: usize>(fd: c_int, at: usize, to: &mut [u8; OCTETS]) -> Option<&[u8; OCTETS]> {
    // SAFETY: so many bytes.
    let read = unsafe { c::pread(fd, to.as_mut_ptr().cast(), OCTETS, at as c_long) };
    (read == OCTETS as isize).then_some(to)
}
