// SPDX-License-Identifier: MIT OR Apache-2.0

//! Scatter/gather lists. Most have one element, which is taken without a loop.

use alloc::vec::Vec;

use crate::{PostError, Sge};

/// Octets of all elements.
#[inline]
pub fn octets_of(list: &[Sge]) -> u64 {
    match list {
        [sge] => u64::from(sge.length),
        _ => list.iter().map(|sge| u64::from(sge.length)).sum(),
    }
}

/// Replaces what is in `list`, keeping its storage.
///
/// # Errors
///
/// [`PostError::OutOfMemory`]
#[inline]
pub fn refill<T: Copy>(list: &mut Vec<T>, by: &[T]) -> Result<(), PostError> {
    list.clear();
    if list.capacity() < by.len() {
        grow(list, by.len())?;
    }
    list.extend_from_slice(by);
    Ok(())
}

#[cold]
#[inline(never)]
fn grow<T>(list: &mut Vec<T>, len: usize) -> Result<(), PostError> {
    Ok(list.try_reserve(len)?)
}

/// The part of a scatter/gather list that holds octets `offset..offset + len` of it. Returns how
/// many octets the last element has behind them.
#[inline(always)]
pub fn sub_list(list: &[Sge], offset: u64, len: usize, out: &mut Vec<Sge>) -> u32 {
    match list {
        // Mostly the start of one element.
        [sge] if offset == 0 && (1..=sge.length as usize).contains(&len) => {
            let length = len as u32;
            out.clear();
            out.push(Sge { length, ..*sge });
            sge.length - length
        }
        _ => sub_list_of(list, offset, len, out),
    }
}

#[inline(never)]
fn sub_list_of(list: &[Sge], mut offset: u64, mut len: usize, out: &mut Vec<Sge>) -> u32 {
    let mut beyond = 0;
    out.clear();
    for sge in list {
        if len == 0 {
            break;
        }
        let size = u64::from(sge.length);
        if offset >= size {
            offset -= size;
            continue;
        }
        let take = (size - offset).min(len as u64) as u32;
        out.push(Sge { addr: sge.addr.wrapping_add(offset), length: take, lkey: sge.lkey });
        beyond = sge.length - offset as u32 - take;
        len -= take as usize;
        offset = 0;
    }
    beyond
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::{octets_of, sub_list, sub_list_of};
    use crate::{Sge, Stag};

    fn list(lengths: &[u32]) -> Vec<Sge> {
        let element = |(n, length): (usize, &u32)| Sge {
            addr: 1000 * n as u64,
            length: *length,
            lkey: Stag(n as u32),
        };
        lengths.iter().enumerate().map(element).collect()
    }

    #[test]
    fn one_element_is_cut_as_any_number_of_them() {
        for lengths in [&[][..], &[0], &[5], &[2, 3], &[0, 5], &[5, 0], &[1, 0, 4]] {
            let list = list(lengths);
            assert_eq!(octets_of(&list), u64::from(lengths.iter().sum::<u32>()));
            for (offset, len) in (0..7).flat_map(|offset| (0..7).map(move |len| (offset, len))) {
                let (mut short, mut general) = (list.clone(), list.clone());
                let beyond = sub_list(&list, offset, len, &mut short);
                assert_eq!(beyond, sub_list_of(&list, offset, len, &mut general));
                assert_eq!(short, general, "{offset} {len} of {lengths:?}");
            }
        }
    }
}
