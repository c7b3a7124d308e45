// SPDX-License-Identifier: MIT OR Apache-2.0

//! One piece of a vectored transfer: ordinary memory of this process, or registered memory that
//! a program reads and writes while the system call runs.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use iwarp_mem::Guard;
use rustix::io::Errno;

/// Bytes to send. For `'a` they may be read by the kernel.
///
/// It has the layout of `struct iovec`, so a slice of parts goes to the kernel as it is. It is not
/// a `&[u8]`: the memory behind a part made with [`IoPart::from_raw`] may change at any
/// moment, which a Rust reference promises not to happen.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct IoPart<'a> {
    iov: libc::iovec,
    lifetime: PhantomData<&'a [u8]>,
}

/// Room for received bytes. For `'a` the kernel may write there.
///
/// The counterpart of [`IoPart`], with the same layout.
#[repr(transparent)]
pub struct IoPartMut<'a> {
    iov: libc::iovec,
    lifetime: PhantomData<&'a mut [u8]>,
}

impl<'a> IoPart<'a> {
    /// A part without bytes, for initialising arrays.
    pub const EMPTY: IoPart<'static> = IoPart { iov: NOTHING, lifetime: PhantomData };

    /// A part made of ordinary memory.
    pub const fn new(bytes: &'a [u8]) -> Self {
        let base = bytes.as_ptr().cast_mut().cast();
        IoPart { iov: libc::iovec { iov_base: base, iov_len: bytes.len() }, lifetime: PhantomData }
    }

    /// A part made of memory that may change while it is being sent.
    ///
    /// # Safety
    ///
    /// For the whole of `'a` the `len` bytes from `ptr` must be what this process is allowed to
    /// hand to a peer, or not mapped: then the system call fails with `EFAULT`. Others may write
    /// there at the same time: then a mixture of old and new bytes is sent. No `&mut` to it may be
    /// in use.
    pub const unsafe fn from_raw(ptr: *const u8, len: usize) -> Self {
        let iov = libc::iovec { iov_base: ptr.cast_mut().cast(), iov_len: len };
        IoPart { iov, lifetime: PhantomData }
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.iov.iov_len
    }

    /// True if there is nothing in it.
    pub const fn is_empty(&self) -> bool {
        self.iov.iov_len == 0
    }

    /// The address of its first byte.
    pub const fn as_ptr(&self) -> *const u8 {
        self.iov.iov_base.cast_const().cast()
    }

    /// The part without its first `n` bytes.
    ///
    /// # Panics
    ///
    /// If it has fewer than `n` bytes.
    #[must_use]
    pub fn skip(self, n: usize) -> Self {
        IoPart { iov: skip(self.iov, n), lifetime: PhantomData }
    }

    /// The first `n` bytes of the part.
    ///
    /// # Panics
    ///
    /// If it has fewer than `n` bytes.
    #[must_use]
    pub fn take(self, n: usize) -> Self {
        IoPart { iov: take(self.iov, n), lifetime: PhantomData }
    }

    /// Drops the first `n` bytes of a list of parts: what remains after a partial send.
    ///
    /// # Panics
    ///
    /// If the parts hold fewer than `n` bytes together.
    pub fn advance(parts: &mut &mut [IoPart<'a>], mut n: usize) {
        let mut list = std::mem::take(parts);
        while let Some(first) = list.first_mut() {
            if n < first.len() {
                *first = first.skip(n);
                n = 0;
                break;
            }
            n -= first.len();
            list = &mut list[1..];
        }
        assert_eq!(n, 0, "advanced past the end of the parts");
        *parts = list;
    }

    /// Copies bytes of the part to `to`, as far as they go; says how many. None of memory that is
    /// not mapped.
    pub fn copy_to(self, to: &mut [u8]) -> usize {
        let place = Place { first: to.as_mut_ptr(), len: to.len() };
        // SAFETY: borrowed for this call alone.
        unsafe { IoPart::gather_into(&[self], &[place]).unwrap_or(0) }
    }

    /// Appends bytes of `parts` to `to`, `most` at most, as a transport does that no system call
    /// serves; says how many. A part that is not mapped ends it.
    ///
    /// # Errors
    ///
    /// `EFAULT` where that is the first one with bytes; `OutOfMemory`.
    pub fn gather(parts: &[IoPart<'a>], to: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        let room = IoPart::total(parts).min(most);
        to.try_reserve(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let end = to.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: room that the vector has to spare, and lends to no other meanwhile.
        let gathered = unsafe { IoPart::gather_into(parts, &[Place { first: end, len: room }])? };
        // SAFETY: there is room for so many, and all of them have just been copied.
        unsafe { to.set_len(to.len() + gathered) };
        Ok(gathered)
    }

    /// The bytes of all parts.
    pub fn total(parts: &[IoPart<'a>]) -> usize {
        parts.iter().fold(0, |total, part| total.saturating_add(part.len()))
    }

    /// Copies bytes of `parts` to `places`, as far as they go, and says how many. A part that is
    /// not mapped ends it.
    ///
    /// # Errors
    ///
    /// `EFAULT` where that is the first one with bytes.
    ///
    /// # Safety
    ///
    /// The places are writable, are no part's, and no Rust reference to them is in use. Others may
    /// access them meanwhile.
    pub(crate) unsafe fn gather_into(parts: &[IoPart<'a>], places: &[Place]) -> io::Result<usize> {
        let sources = parts.iter().map(|part| (part.as_ptr().cast_mut(), part.len()));
        // SAFETY: the caller that made a part promised that its bytes may be read for its lifetime,
        // or are not mapped; of the places this function's caller says it.
        pair(sources, places, |source, place, len| unsafe {
            iwarp_mem::copy_out(place, source, len).is_ok()
        })
    }

    pub(crate) fn as_io_slices<'s>(parts: &'s [IoPart<'a>]) -> &'s [IoSlice<'s>] {
        // SAFETY: `IoPart` is a transparent `iovec`, and std guarantees that `IoSlice` is
        // ABI-compatible with `iovec` on Unix; so size, alignment and the meaning of the
        // fields agree. The result goes nowhere but into `sendmsg`, which hands the addresses
        // to the kernel: no `&[u8]` to memory that others write comes into being. That the
        // memory is there for `'a` was promised by the maker of the part.
        unsafe { std::slice::from_raw_parts(parts.as_ptr().cast(), parts.len()) }
    }
}

impl<'a> IoPartMut<'a> {
    /// A part without room, for initialising arrays.
    pub const EMPTY: IoPartMut<'static> = IoPartMut { iov: NOTHING, lifetime: PhantomData };

    /// Room in ordinary memory.
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        let iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        IoPartMut { iov, lifetime: PhantomData }
    }

    /// Room in memory that was never written. Bytes that a receive reports as filled are
    /// initialised.
    pub const fn new_uninit(bytes: &'a mut [MaybeUninit<u8>]) -> Self {
        let iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        IoPartMut { iov, lifetime: PhantomData }
    }

    /// Room in memory that others may read and write at the same time.
    ///
    /// # Safety
    ///
    /// For the whole of `'a` the `len` bytes from `ptr` must be memory into which this process is
    /// allowed to put what a peer sends, or not mapped: then the system call fails with `EFAULT`.
    /// No Rust reference to it may be in use.
    pub const unsafe fn from_raw(ptr: *mut u8, len: usize) -> Self {
        let iov = libc::iovec { iov_base: ptr.cast(), iov_len: len };
        IoPartMut { iov, lifetime: PhantomData }
    }

    /// Room in bytes.
    pub const fn len(&self) -> usize {
        self.iov.iov_len
    }

    /// True if there is no room in it.
    pub const fn is_empty(&self) -> bool {
        self.iov.iov_len == 0
    }

    /// The address of its first byte.
    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.iov.iov_base.cast()
    }

    /// The part without its first `n` bytes.
    ///
    /// # Panics
    ///
    /// If it has fewer than `n` bytes.
    #[must_use]
    pub fn skip(self, n: usize) -> Self {
        IoPartMut { iov: skip(self.iov, n), lifetime: PhantomData }
    }

    /// The first `n` bytes of the part.
    ///
    /// # Panics
    ///
    /// If it has fewer than `n` bytes.
    #[must_use]
    pub fn take(self, n: usize) -> Self {
        IoPartMut { iov: take(self.iov, n), lifetime: PhantomData }
    }

    /// Fills `parts` from `from`, as a transport does that no system call serves; says how many
    /// bytes they took. A part that is not mapped ends it.
    ///
    /// # Errors
    ///
    /// `EFAULT` where that is the first one with room.
    pub fn scatter(parts: &mut [IoPartMut<'a>], from: &[u8]) -> io::Result<usize> {
        let place = Place { first: from.as_ptr().cast_mut(), len: from.len() };
        // SAFETY: borrowed, and only read.
        unsafe { IoPartMut::scatter_from(parts, &[place]) }
    }

    /// The parts as a source of the bytes that a receive has put there. Those behind mean nothing.
    pub fn filled<'s>(parts: &'s mut [IoPartMut<'a>]) -> &'s [IoPart<'s>] {
        // SAFETY: both types are a transparent `iovec`. A part that may be written may be read, and
        // is not written while it is borrowed here. All that reads an `IoPart` is the system and
        // copies by address, for which no byte has to have been written before.
        unsafe { std::slice::from_raw_parts(parts.as_ptr().cast(), parts.len()) }
    }

    /// The bytes for which all parts have room.
    pub(crate) fn total(parts: &[IoPartMut<'a>]) -> usize {
        parts.iter().fold(0, |total, part| total.saturating_add(part.len()))
    }

    /// Copies the bytes of `places` into `parts`, as far as they go, and says how many. A part that
    /// is not mapped ends it.
    ///
    /// # Errors
    ///
    /// `EFAULT` where that is the first one with room.
    ///
    /// # Safety
    ///
    /// The places are readable, are no part's, and no `&mut` to them is in use. Others may access
    /// them meanwhile.
    pub(crate) unsafe fn scatter_from(
        parts: &mut [IoPartMut<'a>],
        places: &[Place],
    ) -> io::Result<usize> {
        let sinks = parts.iter_mut().map(|part| (part.as_mut_ptr(), part.len()));
        // SAFETY: the caller that made a part promised that its bytes may be written for its
        // lifetime, or are not mapped; of the places this function's caller says it.
        pair(sinks, places, |sink, place, len| unsafe {
            iwarp_mem::copy_in(sink, place, len).is_ok()
        })
    }

    pub(crate) fn as_io_slices<'s>(parts: &'s mut [IoPartMut<'a>]) -> &'s mut [IoSliceMut<'s>] {
        // SAFETY: as in `IoPart::as_io_slices`; `IoSliceMut` has the same guarantee. The result
        // goes nowhere but into `recvmsg`, which does not read or move it.
        unsafe { std::slice::from_raw_parts_mut(parts.as_mut_ptr().cast(), parts.len()) }
    }
}

const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

const _: () = {
    assert!(size_of::<IoPart<'_>>() == size_of::<IoSlice<'_>>());
    assert!(align_of::<IoPart<'_>>() == align_of::<IoSlice<'_>>());
    assert!(size_of::<IoPartMut<'_>>() == size_of::<IoSliceMut<'_>>());
    assert!(align_of::<IoPartMut<'_>>() == align_of::<IoSliceMut<'_>>());
};

/// Memory of the library to copy to or from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) first: *mut u8,
    pub(crate) len: usize,
}

/// Lays the parts of a list and places beside each other and has each piece copied that both have
/// in one: part, place, length. Says how many bytes were copied before `copy` failed.
///
/// # Errors
///
/// `EFAULT` where it was the first piece.
fn pair(
    parts: impl Iterator<Item = (*mut u8, usize)>,
    places: &[Place],
    copy: impl Fn(*mut u8, *mut u8, usize) -> bool,
) -> io::Result<usize> {
    let _admitted = iwarp_mem::admit_faults();
    let mut copied = 0;
    let mut places = places.iter().copied();
    let mut place = places.next();
    for (mut first, mut len) in parts {
        while let Some(to) = &mut place
            && len > 0
        {
            let piece = len.min(to.len);
            if piece == 0 {
                place = places.next();
                continue;
            }
            if !copy(first, to.first, piece) {
                return if copied == 0 { Err(Errno::FAULT.into()) } else { Ok(copied) };
            }
            // Wrapping additions, as in `skip`.
            (first, len) = (first.wrapping_add(piece), len - piece);
            *to = Place { first: to.first.wrapping_add(piece), len: to.len - piece };
            copied += piece;
        }
    }
    Ok(copied)
}

fn skip(iov: libc::iovec, n: usize) -> libc::iovec {
    assert!(n <= iov.iov_len, "skipped past the end of the part");
    // A wrapping addition: the memory may come from anywhere, not only from a Rust allocation.
    let base = iov.iov_base.cast::<u8>().wrapping_add(n).cast();
    libc::iovec { iov_base: base, iov_len: iov.iov_len - n }
}

fn take(iov: libc::iovec, n: usize) -> libc::iovec {
    assert!(n <= iov.iov_len, "took more than the part has");
    libc::iovec { iov_base: iov.iov_base, iov_len: n }
}

impl<'a> From<&'a [u8]> for IoPart<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        IoPart::new(bytes)
    }
}

impl<'a> From<&'a mut [u8]> for IoPartMut<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        IoPartMut::new(bytes)
    }
}

impl<'a> From<&'a Guard<'_>> for IoPart<'a> {
    fn from(guard: &'a Guard<'_>) -> Self {
        // SAFETY: the guard's bytes are registered, and were checked for this use; while it is
        // borrowed it lives, and no call that revokes the registration returns. The program
        // that registered them promised that nothing else comes to lie there so long and that no
        // Rust reference to them is used.
        unsafe { IoPart::from_raw(guard.as_ptr(), guard.len()) }
    }
}

/// The bytes of a guard that was made for writing.
///
/// # Panics
///
/// If the guard was made for reading.
impl<'a> From<&'a Guard<'_>> for IoPartMut<'a> {
    fn from(guard: &'a Guard<'_>) -> Self {
        // SAFETY: as above, and `as_mut_ptr` refuses where writing was not checked. Others may
        // hold the same bytes at the same time, as is normal for registered memory.
        unsafe { IoPartMut::from_raw(guard.as_mut_ptr(), guard.len()) }
    }
}

impl fmt::Debug for IoPart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoPart({:p}+{})", self.iov.iov_base, self.iov.iov_len)
    }
}

impl fmt::Debug for IoPartMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoPartMut({:p}+{})", self.iov.iov_base, self.iov.iov_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lens(parts: &[IoPart<'_>]) -> Vec<usize> {
        parts.iter().map(IoPart::len).collect()
    }

    #[test]
    fn advance_drops_whole_parts_and_cuts_one() {
        let bytes: Vec<u8> = (0..10).collect();
        let mut list = [IoPart::new(&bytes[..3]), IoPart::EMPTY, IoPart::new(&bytes[3..])];
        let mut parts = &mut list[..];
        IoPart::advance(&mut parts, 2);
        assert_eq!(lens(parts), [1, 0, 7]);
        IoPart::advance(&mut parts, 1);
        assert_eq!(lens(parts), [7]);
        assert_eq!(parts[0].as_ptr(), bytes[3..].as_ptr());
        IoPart::advance(&mut parts, 7);
        assert!(parts.is_empty());
    }

    #[test]
    #[should_panic(expected = "past the end")]
    fn advance_beyond_the_end_is_refused() {
        let mut list = [IoPart::new(b"abc")];
        IoPart::advance(&mut &mut list[..], 4);
    }

    #[test]
    fn octets_pass_without_a_system_call() {
        let bytes: Vec<u8> = (0..10).collect();
        let parts = [IoPart::new(&bytes[..3]), IoPart::EMPTY, IoPart::new(&bytes[3..])];
        let mut passed = vec![77];
        assert_eq!(IoPart::gather(&parts, &mut passed, 7).unwrap(), 7);
        assert_eq!(passed, [77, 0, 1, 2, 3, 4, 5, 6]);
        let (mut one, mut other) = ([0; 2], [0; 4]);
        let mut room = [IoPartMut::new(&mut one), IoPartMut::EMPTY, IoPartMut::new(&mut other)];
        assert_eq!(IoPartMut::scatter(&mut room, &bytes).unwrap(), 6);
        assert_eq!((one, other), ([0, 1], [2, 3, 4, 5]));
    }

    #[test]
    fn skip_and_take_stay_inside() {
        let bytes = *b"abcdef";
        let part = IoPart::new(&bytes).skip(2).take(3);
        assert_eq!((part.as_ptr(), part.len()), (bytes[2..].as_ptr(), 3));
        let mut room = [0u8; 4];
        let end = IoPartMut::new(&mut room).skip(4);
        assert!(end.is_empty());
    }
}
