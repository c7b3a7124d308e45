// SPDX-License-Identifier: MIT OR Apache-2.0

//! The address handles of a context, found by their addresses.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use iwarp::{AddressVector, Destination};
use iwarp_os::Heritable;

use super::Life;
use crate::abi::{ibv_ah, ibv_context, ibv_pd};
use crate::guard::Errno;
use crate::refuse::refuse;

/// Handles that a context can have.
pub(crate) const MAX: u32 = 1 << 20;

/// Handles of the first chunk; a power of two.
const FIRST: usize = 64;

/// The address handles of a context.
///
/// A forked child begins with none.
///
/// Programs send to handles that they have destroyed, or never made (perftest's UD tests on an RNIC
/// post a pointer that they have set to nothing). So the object of a handle is not behind its
/// pointer, but here, found by its address: no pointer of a program's is followed.
#[derive(Debug)]
pub(crate) struct Handles(Heritable<RwLock<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// The handles to which the program's pointers point, by number: each chunk has twice the room
    /// of the one before. They are used again, and freed with the context: a pointer to a destroyed
    /// handle can still be read.
    chunks: Vec<*mut [ibv_ah]>,
    /// The objects that the handles stand for, by number.
    entries: Vec<Option<Entry>>,
    /// Numbers without a handle.
    free: Vec<u32>,
}

/// The object that a handle stands for.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) way: AddressVector,
    /// Number of its protection domain.
    pub(super) domain: u32,
    pub(super) _pd: Life,
}

/// The address handles, while none is made or destroyed.
pub(crate) struct Known<'a>(RwLockReadGuard<'a, Table>);

// SAFETY: the pointers are written to while the table is locked for that, and are otherwise the
// program's.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Default for Handles {
    fn default() -> Self {
        Self(Heritable::new(RwLock::default()))
    }
}

impl Handles {
    /// The handles that exist; `None` in a forked child that has made none.
    pub(crate) fn known(&self) -> Option<Known<'_>> {
        let Self(table) = self;
        Some(Known(table.get()?.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Makes a handle that stands for `entry`, with these pointers in its public part.
    pub(super) fn make(
        &self,
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        entry: Entry,
    ) -> Result<*mut ibv_ah, Errno> {
        let Self(table) = self;
        let table = table.get_or_make(|_| Ok::<_, Errno>(RwLock::default()))?;
        let mut table = table.write().unwrap_or_else(PoisonError::into_inner);
        let number = match table.free.pop() {
            Some(number) => number,
            None => table.grow()?,
        };
        let object = table.object(number as usize);
        // SAFETY: it is in a chunk, and no handle at the moment.
        unsafe { object.write(ibv_ah { context, pd, handle: number }) };
        table.entries[number as usize] = Some(entry);
        Ok(object)
    }

    /// Does nothing in a forked child that has made none: its parent has the handle.
    pub(super) fn destroy(&self, ah: *mut ibv_ah) -> Result<(), Errno> {
        let Self(table) = self;
        let Some(table) = table.get() else { return Ok(()) };
        let mut table = table.write().unwrap_or_else(PoisonError::into_inner);
        let number = table.number(ah).ok_or_else(no_handle)?;
        // SAFETY: it is one of those in the chunks.
        if unsafe { &*ah }.handle != number {
            // The program has spoilt it, which a kernel would notice.
            return Err(no_handle());
        }
        table.entries[number as usize] = None;
        // There is room for each.
        table.free.push(number);
        Ok(())
    }
}

#[cold]
pub(super) fn no_handle() -> Errno {
    refuse!(ENOENT, "this is no address handle, or not any more")
}

#[cold]
fn out_of_memory() -> Errno {
    refuse!(ENOMEM, "out of memory")
}

impl Table {
    fn grow(&mut self) -> Result<u32, Errno> {
        let number = u32::try_from(self.entries.len()).ok().filter(|number| *number < MAX);
        let number = number
            .ok_or_else(|| refuse!(ENOMEM, "{MAX} address handles exist, the most there can be"))?;
        self.entries.try_reserve(1).map_err(|_| out_of_memory())?;
        self.free.try_reserve(self.entries.len() + 1).map_err(|_| out_of_memory())?;
        let (chunk, _) = place(number as usize);
        if chunk == self.chunks.len() {
            self.chunks.try_reserve(1).map_err(|_| out_of_memory())?;
            let mut objects = Vec::new();
            objects.try_reserve_exact(room(chunk)).map_err(|_| out_of_memory())?;
            let (context, pd) = (std::ptr::null_mut(), std::ptr::null_mut());
            objects.extend((0..room(chunk)).map(|_| ibv_ah { context, pd, handle: 0 }));
            self.chunks.push(Box::into_raw(objects.into_boxed_slice()));
        }
        self.entries.push(None);
        Ok(number)
    }

    /// The place of the handle of this number, made or not; its chunk exists.
    fn object(&self, number: usize) -> *mut ibv_ah {
        let (chunk, index) = place(number);
        self.chunks[chunk].cast::<ibv_ah>().wrapping_add(index)
    }

    /// The number of a handle, by its address alone; `None` if there is no such handle.
    fn number(&self, ah: *mut ibv_ah) -> Option<u32> {
        let mut before = 0;
        for (chunk, objects) in self.chunks.iter().enumerate() {
            let offset = ah.addr().wrapping_sub(objects.addr());
            let index = offset / size_of::<ibv_ah>();
            if index < room(chunk) {
                let number = before + index;
                let exists = self.entries.get(number).is_some_and(Option::is_some);
                return (exists && self.object(number) == ah).then_some(number as u32);
            }
            before += room(chunk);
        }
        None
    }
}

/// Handles of a chunk.
const fn room(chunk: usize) -> usize {
    FIRST << chunk
}

/// The chunk of a handle, and its place there.
const fn place(number: usize) -> (usize, usize) {
    let chunk = (number / FIRST + 1).ilog2() as usize;
    (chunk, number + FIRST - room(chunk))
}

impl Drop for Table {
    fn drop(&mut self) {
        for chunk in &self.chunks {
            // SAFETY: made by `Box::into_raw`; the context is gone, and its handles with it.
            drop(unsafe { Box::from_raw(*chunk) });
        }
    }
}

impl Known<'_> {
    /// The destination of a datagram from a queue pair of this domain; `None` if the handle does
    /// not exist, or is of another domain.
    pub(crate) fn destination(
        &self,
        domain: u32,
        ah: *mut ibv_ah,
        qp: u32,
        qkey: u32,
    ) -> Option<Destination> {
        let Self(table) = self;
        let entry = table.entries[table.number(ah)? as usize].as_ref()?;
        // Programs that draw 32 bits leave it to the hardware to drop some.
        let qp = qp & 0x00ff_ffff;
        (entry.domain == domain).then_some(Destination { address: entry.way, qp, qkey })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_one_chunk_after_the_other() {
        assert_eq!((place(0), place(FIRST - 1)), ((0, 0), (0, FIRST - 1)));
        assert_eq!((place(FIRST), place(3 * FIRST - 1)), ((1, 0), (1, 2 * FIRST - 1)));
        assert_eq!(place(3 * FIRST), (2, 0));
        let (chunk, index) = place(MAX as usize - 1);
        assert!(index < room(chunk));
    }

    /// No memory behind any of these is read.
    #[test]
    fn a_pointer_that_is_no_handle_is_not_followed() {
        let entry = || Entry {
            way: AddressVector::new([127, 0, 0, 1].into(), [127, 0, 0, 1].into()),
            domain: 0,
            _pd: Life::default(),
        };
        let mut table = Table::default();
        for number in 0..FIRST as u32 + 2 {
            assert_eq!(table.grow(), Ok(number));
            table.entries[number as usize] = Some(entry());
        }
        let last = FIRST + 1;
        for number in [0, 1, FIRST - 1, FIRST, last] {
            assert_eq!(table.number(table.object(number)), Some(number as u32));
        }
        let (first, unused) = (table.object(0), table.object(last).wrapping_add(1));
        for wild in [0, 1, 0x1234_5678, usize::MAX, first.addr() - 1, first.addr() + 1] {
            assert_eq!(table.number(first.with_addr(wild)), None);
        }
        assert_eq!(table.number(unused), None);
        table.entries[1] = None;
        assert_eq!(table.number(table.object(1)), None);
    }
}
