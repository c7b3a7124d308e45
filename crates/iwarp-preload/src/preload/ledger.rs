// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts that live processes keep, in a file beside the tree that all of them write to:
//! `iwarp_os::ledger` has its form.

use core::ffi::c_long;

use super::c;
use super::files::{NUMBER, open_beside, read_file, write_digits};
use super::redirect::append;

/// Numbers of an entry: its owner, the subject of the counts, and the counts.
const WORDS: usize = 16;
const OCTETS: usize = WORDS * 8;

/// The subject of entries that count a process's traffic at its first ports. Those of further ports
/// have the numbers below.
pub(super) const TRAFFIC: u64 = u64::MAX;

/// The owner of an entry that is being cleared.
const NOBODY: u64 = u64::MAX;

/// Bytes of the line in which the kernel describes a process.
const LINE: usize = 1024;

/// The sums of the first counts of all live processes that are of `subject`.
pub(super) fn sums<const COUNTS: usize>(subject: u64) -> [u64; COUNTS] {
    let mut sums = [0_u64; COUNTS];
    // SAFETY: a string.
    let Some(fd) = (unsafe { open_beside(c"/processes".as_ptr().cast()) }) else { return sums };
    let mut at: c_long = 0;
    let mut octets = [0_u8; OCTETS];
    // SAFETY: so many bytes.
    while unsafe { c::pread(fd, octets.as_mut_ptr().cast(), OCTETS, at) } == OCTETS as isize {
        at = at.wrapping_add(OCTETS as c_long);
        let mut words = octets.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
        let (owner, of) = (words.next().unwrap_or(0), words.next());
        if owner != 0 && owner != NOBODY && of == Some(subject) && lives(owner) {
            sums.iter_mut().zip(words).for_each(|(sum, count)| *sum = sum.wrapping_add(count));
        }
    }
    // SAFETY: just opened.
    unsafe { c::close(fd) };
    sums
}

/// True while the process of an owner's number lives, not a later one with its process number.
pub(super) fn lives(owner: u64) -> bool {
    let (process, start) = (owner & 0xffff_ffff, owner >> 32);
    started(process).is_some_and(|found| found & 0xffff_ffff == start)
}

/// The start time of a process that still runs: the 20th word behind its name, which is in
/// parentheses and may have any character.
fn started(process: u64) -> Option<u64> {
    let (mut digits, mut path, mut line) = ([0; NUMBER], [0_u8; 64], [0_u8; LINE]);
    let first = write_digits(process, &mut digits)?;
    let (start, room) = (path.as_mut_ptr(), path.len());
    // SAFETY: strings, the second up to the last byte of `digits`, into the room that there is;
    // then a string, and so many bytes.
    let length = unsafe {
        let at = append(start, 0, room, c"/proc/".as_ptr().cast())?;
        let at = append(start, at, room, digits.as_ptr().wrapping_add(first))?;
        append(start, at, room, c"/stat".as_ptr().cast())?;
        read_file(start, line.as_mut_ptr(), LINE)
    }?;
    let line = line.get(..length)?;
    let behind = line.iter().rposition(|octet| *octet == b')')?.wrapping_add(2);
    let mut words = line.get(behind..)?.split(|octet| *octet == b' ');
    // It has ended, and is not waited for yet.
    if words.clone().next()?.starts_with(b"Z") {
        return None;
    }
    let mut value = 0_u64;
    for digit in words.nth(19)? {
        let digit = char::from(*digit).to_digit(10)?;
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    Some(value)
}
