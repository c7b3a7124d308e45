// SPDX-License-Identifier: MIT OR Apache-2.0

//! Structures at addresses that their type does not allow. A program that packs the structures
//! around them (libiscsi does so with its scatter/gather elements) passes such addresses, and a
//! device takes them; a reference to one would be undefined behaviour.

use std::ffi::c_int;
use std::mem::{MaybeUninit, offset_of};

use iwarp::{Sge, Stag};

use crate::abi::ibv_sge;
use crate::guard::Errno;
use crate::refuse::refuse;

// Lists of elements are passed on as they lie in memory.
const _: () = assert!(
    size_of::<Sge>() == size_of::<ibv_sge>()
        && align_of::<Sge>() == align_of::<ibv_sge>()
        && offset_of!(Sge, addr) == offset_of!(ibv_sge, addr)
        && offset_of!(Sge, length) == offset_of!(ibv_sge, length)
        && offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey)
        && size_of::<Stag>() == size_of::<u32>()
);

/// Elements that can be copied for the requests of one call, twice as many as one request has.
const ELEMENTS: usize = 64;

/// The structure at `at`: itself, or its copy in `copy` where it is misaligned. `None` for null.
///
/// # Safety
///
/// A pointer that is not null leads to one, which stays as long as the copy may.
#[inline]
pub(crate) unsafe fn seen<T: Copy>(at: *const T, copy: &mut MaybeUninit<T>) -> Option<&T> {
    if at.is_null() {
        return None;
    }
    if at.is_aligned() {
        // SAFETY: the caller's promise.
        return Some(unsafe { &*at });
    }
    // SAFETY: the caller's promise.
    Some(copy.write(unsafe { at.read_unaligned() }))
}

/// The structures of an array, wherever it lies.
///
/// # Safety
///
/// There are so many, and they stay as long as the iterator.
pub(crate) unsafe fn each<T: Copy>(
    list: *const T,
    count: usize,
) -> impl ExactSizeIterator<Item = T> {
    // SAFETY: the caller's promise.
    (0..count).map(move |at| unsafe { list.add(at).read_unaligned() })
}

/// The elements of a list, wherever it lies.
///
/// # Safety
///
/// As [`each`].
pub(crate) unsafe fn sges(
    list: *const ibv_sge,
    count: usize,
) -> impl ExactSizeIterator<Item = Sge> {
    // SAFETY: the caller's promise, and the two types have one layout.
    unsafe { each(list.cast::<Sge>(), count) }
}

/// Copies of misaligned elements.
pub(crate) struct Elements {
    copies: [MaybeUninit<Sge>; ELEMENTS],
    used: usize,
}

impl Elements {
    pub(crate) const fn new() -> Self {
        Self { copies: [const { MaybeUninit::uninit() }; ELEMENTS], used: 0 }
    }

    /// Makes room: nothing of the results before is used any more.
    pub(crate) const fn clear(&mut self) {
        self.used = 0;
    }

    /// The elements of a request: as they lie in the program's memory, or copied if they are
    /// misaligned. `None` where there is no room for the copies before the next [`Self::clear`].
    ///
    /// # Safety
    ///
    /// The program passes so many elements there, and they outlive `'a`. The result is not used
    /// after `self` is cleared or gone.
    #[inline]
    pub(crate) unsafe fn of<'a>(
        &mut self,
        list: *const ibv_sge,
        count: c_int,
    ) -> Result<Option<&'a [Sge]>, Errno> {
        let count =
            usize::try_from(count).map_err(|_| refuse!(EINVAL, "num_sge is negative: {count}"))?;
        if count == 0 {
            return Ok(Some(&[]));
        }
        if list.is_null() {
            return Err(refuse!(EINVAL, "sg_list is NULL, and num_sge is {count}"));
        }
        if !list.is_aligned() {
            // SAFETY: the caller's promise.
            return unsafe { self.copy(list, count) };
        }
        // SAFETY: the caller's promise, and the two types have one layout.
        Ok(Some(unsafe { std::slice::from_raw_parts(list.cast::<Sge>(), count) }))
    }

    /// # Safety
    ///
    /// As [`Self::of`].
    #[cold]
    unsafe fn copy<'a>(
        &mut self,
        list: *const ibv_sge,
        count: usize,
    ) -> Result<Option<&'a [Sge]>, Errno> {
        if count > ELEMENTS {
            return Err(refuse!(
                EINVAL,
                "{count} scatter/gather elements, more than a device takes"
            ));
        }
        let Some(room) = self.copies[self.used..].get_mut(..count) else { return Ok(None) };
        self.used += count;
        // SAFETY: the caller's promise.
        for (copy, sge) in room.iter_mut().zip(unsafe { sges(list, count) }) {
            copy.write(sge);
        }
        // SAFETY: just written; the caller sees to the lifetime.
        Ok(Some(unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), count) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, packed)]
    struct Unaligned<T>(T);

    /// A structure at an odd address, as behind one byte in a packed structure.
    #[repr(C, align(8))]
    struct Packed<T> {
        before: u8,
        inside: Unaligned<T>,
    }

    fn packed<T>(inside: T) -> Packed<T> {
        Packed { before: 0, inside: Unaligned(inside) }
    }

    fn list<const N: usize>() -> Packed<[ibv_sge; N]> {
        let inside = std::array::from_fn(|at| ibv_sge {
            addr: at as u64 + 1,
            length: at as u32 + 10,
            lkey: at as u32 + 100,
        });
        packed(inside)
    }

    fn start<const N: usize>(list: &Packed<[ibv_sge; N]>) -> *const ibv_sge {
        (&raw const list.inside.0).cast()
    }

    #[test]
    fn an_aligned_list_is_passed_as_it_lies() {
        let list = [ibv_sge { addr: 1, length: 2, lkey: 3 }; 2];
        let mut elements = Elements::new();
        // SAFETY: there are two.
        let found = unsafe { elements.of(list.as_ptr(), 2) }.unwrap().unwrap();
        assert_eq!((found.as_ptr().cast(), found.len()), (list.as_ptr(), 2));
    }

    #[test]
    fn misaligned_elements_are_copied_until_the_room_is_used() {
        let (list, mut elements) = (list::<40>(), Elements::new());
        assert!(!start(&list).is_aligned());
        // SAFETY: there are forty.
        let mut of = |count| unsafe { elements.of(start(&list), count) }.unwrap();
        let found = of(40).unwrap();
        for (at, sge) in (0..).zip(found) {
            assert_eq!(
                (sge.addr, sge.length, sge.lkey.0),
                (at + 1, at as u32 + 10, at as u32 + 100)
            );
        }
        assert!(of(25).is_none());
        assert_eq!(of(24).map(<[Sge]>::len), Some(24));
        assert_eq!(of(0).map(<[Sge]>::len), Some(0));
        elements.clear();
        // SAFETY: as above.
        assert!(unsafe { elements.of(start(&list), 40) }.unwrap().is_some());
    }

    #[test]
    fn lists_that_no_device_takes_are_refused() {
        let mut elements = Elements::new();
        let wrong: *const ibv_sge = std::ptr::without_provenance(1);
        for (list, count) in [(std::ptr::null(), 1), (wrong, -1), (wrong, 65)] {
            // SAFETY: none of them is followed.
            assert!(unsafe { elements.of(list, count) }.is_err());
        }
    }

    #[test]
    fn a_structure_is_seen_where_it_lies_or_copied() {
        let (aligned, nine) = (7_u64, packed(9_u64));
        let mut copy = MaybeUninit::uninit();
        // SAFETY: all are there.
        unsafe {
            assert_eq!(seen(std::ptr::null::<u64>(), &mut copy), None);
            assert!(std::ptr::eq(seen(&raw const aligned, &mut copy).unwrap(), &raw const aligned));
            assert_eq!(seen(&raw const nine.inside.0, &mut copy), Some(&9));
            let list = list::<3>();
            assert!(each(start(&list), 3).map(|sge| sge.addr).eq(1..4));
        }
    }
}
