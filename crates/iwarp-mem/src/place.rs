// SPDX-License-Identifier: MIT OR Apache-2.0

//! The one routine by which received bytes reach registered memory.
//!
//! Programs wait for a message by polling its last byte, so that byte must become visible last.
//! `memcpy` stores in the order that is fastest (glibc's stores the head of a block last), so the
//! end of each block is kept back, and stored when the rest is ordered before it:
//!
//! - everything below the last aligned 8-byte word, in any order;
//! - a release: on x86 it keeps the compiler in line, elsewhere the processor as well;
//! - the last word, in one store. If it is partial, in naturally aligned stores of falling size, in
//!   ascending order, each a release, so that the last byte follows them all.
//!
//! A thread that loads the last byte (or the aligned 2, 4 or 8 that end with it) and sees the new
//! value sees, after an acquire, all that came before it. An aligned payload of 8, 4, 2 or 1 bytes
//! is one store, and never seen half.
//!
//! If a part of the memory is gone, any of the bytes that are there may have been stored. The last
//! one has not, unless all were.

use crate::reach::chosen::{store_u8, store_u16, store_u32};
use crate::reach::{Fault, load, store};

/// Stores `data` at `dst`, the last byte last.
///
/// # Safety
///
/// `dst` is writable for `data.len()` bytes, which are not part of `data`, or faults when it is
/// not. Other threads may access them meanwhile, at their own risk.
///
/// # Errors
///
/// [`Fault`] where they are not all there.
#[inline]
pub(crate) unsafe fn place(dst: *mut u8, data: &[u8]) -> Result<(), Fault> {
    let n = data.len();
    let kept_back = kept_back(dst.addr(), n);
    let bulk = n - kept_back;
    // SAFETY: within both, by the contract of this function.
    unsafe {
        store(dst, data.as_ptr(), bulk)?;
        place_word(dst.add(bulk), &data[bulk..])
    }
}

/// As [`place`], with bytes that others may write meanwhile, or that are not there.
///
/// # Safety
///
/// As [`place`]; the `len` bytes at `src` are readable, or fault when they are not.
///
/// # Errors
///
/// [`Fault`] where bytes of either side are not all there.
#[inline]
pub(crate) unsafe fn place_from(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
    let kept_back = kept_back(dst.addr(), len);
    let bulk = len - kept_back;
    let mut word = [0; 8];
    // SAFETY: within both, by the contract of this function; at most a word is kept back.
    unsafe {
        load(dst, src, bulk)?;
        load(word.as_mut_ptr(), src.add(bulk), kept_back)?;
        place_word(dst.add(bulk), &word[..kept_back])
    }
}

/// The number of the `n` bytes at `addr` that lie in the last aligned 8-byte word.
#[inline]
fn kept_back(addr: usize, n: usize) -> usize {
    match (addr.wrapping_add(n)) % 8 {
        0 => n.min(8),
        partial => n.min(partial),
    }
}

/// Stores bytes of one aligned 8-byte word, in ascending order; each store is a release.
///
/// # Safety
///
/// As [`place`]; the bytes lie within one aligned 8-byte word.
#[inline]
unsafe fn place_word(mut dst: *mut u8, mut data: &[u8]) -> Result<(), Fault> {
    #[cfg(target_has_atomic = "64")]
    if let Ok(word) = <[u8; 8]>::try_from(data) {
        // SAFETY: 8 bytes of one aligned word are that word, so `dst` is aligned.
        return unsafe { crate::reach::chosen::store_u64(dst.cast(), u64::from_ne_bytes(word)) };
    }
    if dst.addr().is_multiple_of(8) && data.len() < 8 {
        // SAFETY: this function's contract.
        return unsafe { place_first_of_word(dst, data) };
    }
    while !data.is_empty() {
        let aligned = 1 << dst.addr().trailing_zeros().min(2);
        let size = if aligned <= data.len() { aligned } else { 1 << data.len().ilog2() };
        let (piece, rest) = data.split_at(size);
        // SAFETY: in range by the contract, aligned by the choice of `size`.
        unsafe {
            match *piece {
                [a, b, c, d] => store_u32(dst.cast(), u32::from_ne_bytes([a, b, c, d]))?,
                [a, b] => store_u16(dst.cast(), u16::from_ne_bytes([a, b]))?,
                [a] => store_u8(dst, a)?,
                _ => unreachable!("a piece has 1, 2 or 4 octets"),
            }
        }
        // SAFETY: at most one past the end of the range.
        dst = unsafe { dst.add(size) };
        data = rest;
    }
    Ok(())
}

/// As [`place_word`], for less than a word from its beginning on, as the end of all but the
/// shortest data is: the bits of the number of bytes are the sizes of the stores.
///
/// # Safety
///
/// As [`place_word`]; `dst` is a multiple of 8, and there are fewer than 8 bytes.
#[inline]
unsafe fn place_first_of_word(dst: *mut u8, data: &[u8]) -> Result<(), Fault> {
    let n = data.len();
    // SAFETY: in range by the contract; each store begins at a multiple of its size.
    unsafe {
        if n & 4 != 0
            && let Some(four) = data.first_chunk()
        {
            store_u32(dst.cast(), u32::from_ne_bytes(*four))?;
        }
        if n & 2 != 0
            && let Some(two) = data[n & 4..].first_chunk()
        {
            store_u16(dst.add(n & 4).cast(), u16::from_ne_bytes(*two))?;
        }
        if n & 1 != 0 {
            store_u8(dst.add(n - 1), data[n - 1])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_at_every_alignment_lands_where_it_belongs() {
        #[repr(align(64))]
        struct Aligned([u8; 160]);
        let data: Vec<u8> = (1..=100).collect();
        for at in 0..32 {
            for n in 0..=data.len() {
                let mut memory = Aligned([0xee; 160]);
                // SAFETY: 132 bytes at most, of 160.
                unsafe { place(memory.0.as_mut_ptr().add(at), &data[..n]) }.unwrap();
                let mut again = Aligned([0xee; 160]);
                // SAFETY: likewise.
                unsafe { place_from(again.0.as_mut_ptr().add(at), data.as_ptr(), n) }.unwrap();
                assert_eq!(memory.0, again.0);
                assert_eq!(memory.0[at..at + n], data[..n], "{n} at {at}");
                assert!(memory.0[..at].iter().all(|&x| x == 0xee), "{n} at {at}");
                assert!(memory.0[at + n..].iter().all(|&x| x == 0xee), "{n} at {at}");
            }
        }
    }

    #[test]
    fn octets_kept_back_end_with_the_last_and_lie_in_one_word() {
        for addr in 64..80_usize {
            for n in 1..40 {
                let kept = kept_back(addr, n);
                assert!((1..=8).contains(&kept) && kept <= n);
                let (first, last) = (addr + n - kept, addr + n - 1);
                assert_eq!(first / 8, last / 8, "{n} at {addr}");
                assert!(kept == n || first % 8 == 0, "{n} at {addr}: the whole word");
            }
        }
    }
}
