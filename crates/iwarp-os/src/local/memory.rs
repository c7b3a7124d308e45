// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that two processes map.

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fstat, fstatfs};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::damage;
use super::huge;
use crate::fd::PassedFd;
use crate::fork::ForkGeneration;

/// The length is what it was when the memory was made, for both processes and for good: accesses
/// behind a new, nearer end would be SIGBUS.
const SEALS: SealFlags = SealFlags::from_bits_retain(
    SealFlags::SHRINK.bits() | SealFlags::GROW.bits() | SealFlags::SEAL.bits(),
);

/// Besides, no process but the maker can write there, nor punch holes.
const ONE_WRITERS: SealFlags =
    SealFlags::from_bits_retain(SEALS.bits() | SealFlags::FUTURE_WRITE.bits());

/// The file system of memory by name, whose pages are the system's usual ones: with huge pages a
/// peer could see to it that there is none left for an access.
const TMPFS: u64 = 0x0102_1994;

/// Memory that two processes map, with a length that neither can change.
///
/// Its first bytes are made present when it is mapped, and the rest when it is about to be used
/// ([`make_present`](Self::make_present)), so that a shortage is an error of that call. Before
/// Linux 5.14 the maker has present at once as much as it says. A hostile peer can punch holes into
/// it: then an access has the system find a page again, and is SIGBUS where the system refuses that
/// (`vm.overcommit_memory` 2, when nothing is left).
///
/// Forked children have no mapping of it. It is unmapped when this is dropped.
#[derive(Debug)]
pub struct SharedMemory {
    first: NonNull<u8>,
    len: usize,
    /// Pages can be made present one by one.
    on_demand: bool,
    /// The advice that makes them present.
    populate: Advice,
    process: ForkGeneration,
}

// SAFETY: a mapping belongs to no thread. This module hands out its address alone; the users of
// that answer for their accesses.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes `len` bytes of zeros, of which the first `present` are there at once, and a descriptor
    /// to pass to the other process. The name is seen in `/proc` only. The first
    /// `needed` are there at once if the system cannot make bytes present later, and then no others
    /// are to be used.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for no bytes; shortages, which leave nothing behind.
    pub fn create(
        name: &CStr,
        len: usize,
        present: usize,
        needed: usize,
    ) -> io::Result<(Self, PassedFd)> {
        Self::make(name, len, present, needed, SEALS)
    }

    /// As [`create`](Self::create), with all of it present, for others to
    /// [read alone](Self::map_to_read).
    ///
    /// # Errors
    ///
    /// As there; `InvalidInput` before Linux 5.1.
    pub(super) fn create_to_show(name: &CStr, len: usize) -> io::Result<(Self, PassedFd)> {
        Self::make(name, len, len, len, ONE_WRITERS)
    }

    fn make(
        name: &CStr,
        len: usize,
        present: usize,
        needed: usize,
        seals: SealFlags,
    ) -> io::Result<(Self, PassedFd)> {
        let [size, needed] = [len, needed.clamp(1, len.max(1))].map(|len| len as u64);
        let fd = PassedFd::from(memfd(name)?);
        rustix::fs::ftruncate(&fd, size)?;
        // Before the seals, of which one admits no further mapping to write.
        let memory =
            Self::map_checked(fd.as_fd(), len, present, Advice::LinuxPopulateWrite, false)?;
        if !memory.on_demand {
            // The only place that takes the file's lock, which a peer could hold for ever.
            match rustix::io::retry_on_intr(|| fallocate(&fd, FallocateFlags::empty(), 0, needed)) {
                // Systems and sandboxes without it: pages are found as they are used.
                Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        rustix::fs::fcntl_add_seals(&fd, seals)?;
        Ok((memory, fd))
    }

    /// Maps memory that the other process has made, and has the first `present` bytes there at
    /// once.
    ///
    /// # Errors
    ///
    /// `InvalidData` where the descriptor is something else, has another length, or could be made
    /// shorter; shortages.
    pub fn map(fd: BorrowedFd<'_>, len: usize, present: usize) -> io::Result<Self> {
        Self::map_at(fd, len, present, false)
    }

    /// As [`map`](Self::map), with nothing present, for memory that may lie in huge pages.
    ///
    /// # Errors
    ///
    /// As there.
    pub(super) fn map_arena(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::map_at(fd, len, 0, true)
    }

    fn map_at(
        fd: BorrowedFd<'_>,
        len: usize,
        present: usize,
        lies_in_huge_pages: bool,
    ) -> io::Result<Self> {
        check(fd, len, SEALS)?;
        let populate = Advice::LinuxPopulateWrite;
        let mapped = Self::map_checked(fd, len, present, populate, lies_in_huge_pages);
        mapped.map_err(|error| {
            match Errno::from_io_error(&error) {
                // Sealed against writing, or opened for reading only.
                Some(Errno::PERM | Errno::ACCESS) => damage("the peer's memory cannot be written"),
                _ => error,
            }
        })
    }

    /// True if such memory is open under this number.
    pub(crate) fn is_under(number: RawFd) -> bool {
        // SAFETY: a system call without pointers.
        let seals = unsafe { libc::syscall(libc::SYS_fcntl, number, libc::F_GET_SEALS) };
        seals >= 0 && SealFlags::from_bits_retain(seals as u32).contains(SEALS)
    }

    /// Maps memory that the other process [shows](Self::create_to_show). A write to it is SIGSEGV.
    ///
    /// # Errors
    ///
    /// As [`map`](Self::map); `InvalidData` also where others than the maker could write to it.
    pub(super) fn map_to_read(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        check(fd, len, ONE_WRITERS)?;
        Self::map_checked(fd, len, len, Advice::LinuxPopulateRead, false)
    }

    /// A mapping to write, or only to read, as `populate` has pages be found.
    fn map_checked(
        fd: BorrowedFd<'_>,
        len: usize,
        present: usize,
        populate: Advice,
        lies_in_huge_pages: bool,
    ) -> io::Result<Self> {
        let rights = match populate {
            Advice::LinuxPopulateRead => ProtFlags::READ,
            _ => ProtFlags::READ | ProtFlags::WRITE,
        };
        let first = if lies_in_huge_pages {
            huge::map(len, rights, MapFlags::SHARED, fd)?
        } else {
            // SAFETY: a new mapping where the system likes it.
            unsafe { rustix::mm::mmap(null_mut(), len, rights, MapFlags::SHARED, fd, 0)? }
        };
        let first = NonNull::new(first.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let process = ForkGeneration::new();
        let mut memory = Self { first, len, on_demand: true, populate, process };
        // SAFETY: the mapping that was just made. A child that loses it has been told to leave it
        // alone.
        unsafe { rustix::mm::madvise(first.as_ptr().cast(), len, Advice::LinuxDontFork)? };
        memory.on_demand = memory.populate(0..present)?;
        Ok(memory)
    }

    /// Has these bytes there, and those that share a page with them.
    ///
    /// # Errors
    ///
    /// Shortages; `InvalidInput` for bytes beyond the end.
    pub fn make_present(&self, octets: Range<usize>) -> io::Result<()> {
        if self.on_demand {
            self.populate(octets)?;
        }
        Ok(())
    }

    /// True if bytes can be made present one by one.
    pub(super) fn is_on_demand(&self) -> bool {
        self.on_demand
    }

    /// False where the system cannot do that.
    fn populate(&self, octets: Range<usize>) -> io::Result<bool> {
        if octets.start > octets.end || octets.end > self.len {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let start = octets.start & !(rustix::param::page_size() - 1);
        let first = self.first.as_ptr().wrapping_add(start).cast();
        // SAFETY: a part of our mapping; it changes no contents.
        match unsafe { rustix::mm::madvise(first, octets.end - start, self.populate) } {
            Ok(()) => Ok(true),
            // Before Linux 5.14, and in sandboxes.
            Err(Errno::INVAL | Errno::NOSYS) => Ok(false),
            Err(Errno::FAULT | Errno::AGAIN) => Err(io::ErrorKind::OutOfMemory.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// True in a forked child, which has no mapping of it.
    pub(super) fn is_inherited(&self) -> bool {
        self.process.forked()
    }

    /// The address of its first byte: of a page. Other processes read and write there at any time,
    /// so no Rust reference to it may come into being but to atomics.
    pub fn as_ptr(&self) -> *mut u8 {
        self.first.as_ptr()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// False: there are bytes in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `T` that lies `offset` bytes into it.
    ///
    /// # Safety
    ///
    /// Any bytes make a `T`, which consists of atomics only.
    ///
    /// # Panics
    ///
    /// If the memory is too short, or the place is not aligned.
    pub(super) unsafe fn at<T>(&self, offset: usize) -> &T {
        assert!(offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len));
        let place = self.first.as_ptr().wrapping_add(offset).cast::<T>();
        assert!(place.is_aligned());
        // SAFETY: mapped for as long as `self` is, in bounds and aligned; the rest is the caller's
        // word.
        unsafe { &*place }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // A child has no mapping there, or one of its own.
        if !self.process.forked() {
            // SAFETY: mapped by `map_checked`, and no longer used.
            let _ = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.len) };
        }
    }
}

/// Is it memory of this length, with these seals?
fn check(fd: BorrowedFd<'_>, len: usize, required: SealFlags) -> io::Result<()> {
    // The seals first: this asks no file system, which may be one that never answers, and from
    // then on the length holds.
    match rustix::fs::fcntl_get_seals(fd) {
        Ok(seals) if seals.contains(required) => {}
        Ok(_) => return Err(damage("the peer's memory is not sealed")),
        Err(Errno::INVAL) => return Err(damage("the peer's descriptor is no shared memory")),
        Err(error) => return Err(error.into()),
    }
    if fstatfs(fd)?.f_type as u64 != TMPFS {
        return Err(damage("the peer's memory has pages of another size"));
    }
    if u64::try_from(fstat(fd)?.st_size).ok() != u64::try_from(len).ok() {
        return Err(damage("the peer's memory has another length"));
    }
    Ok(())
}

/// Has the length of a memfd stay what it is.
pub(super) fn seal(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fcntl_add_seals(fd, SEALS)?)
}

pub(super) fn memfd(name: &CStr) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => Ok(rustix::fs::memfd_create(name, flags)?),
        made => Ok(made?),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::fork::in_child_process;

    const LEN: usize = 8192;

    /// A descriptor of memory with these seals and length.
    fn made(seals: SealFlags, len: usize) -> OwnedFd {
        let fd = memfd(c"made").unwrap();
        rustix::fs::ftruncate(&fd, len as u64).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    fn refusal(fd: impl AsFd) -> ErrorKind {
        SharedMemory::map(fd.as_fd(), LEN, LEN).unwrap_err().kind()
    }

    #[test]
    fn two_mappings_have_one_contents_and_a_length_that_stays() {
        let (one, fd) = SharedMemory::create(c"one", LEN, LEN, LEN).unwrap();
        let other = SharedMemory::map(fd.as_fd(), LEN, LEN).unwrap();
        assert_ne!(one.as_ptr(), other.as_ptr());
        // SAFETY: an atomic.
        let [one, other] = [&one, &other].map(|memory| unsafe { memory.at::<AtomicU64>(LEN - 8) });
        one.store(7, Ordering::Relaxed);
        assert_eq!(other.load(Ordering::Relaxed), 7);
        for len in [0, LEN as u64 - 1, LEN as u64 + 1] {
            assert_eq!(rustix::fs::ftruncate(&fd, len), Err(Errno::PERM));
        }
        let none = SharedMemory::create(c"none", 0, 0, 0).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn memory_that_could_become_shorter_or_has_another_length_is_refused() {
        assert!(SharedMemory::map(made(SEALS, LEN).as_fd(), LEN, LEN).is_ok());
        for missing in SEALS.iter() {
            assert_eq!(refusal(made(SEALS.difference(missing), LEN)), ErrorKind::InvalidData);
        }
        for len in [0, 1, LEN - 1, LEN + 1, 2 * LEN] {
            assert_eq!(refusal(made(SEALS, len)), ErrorKind::InvalidData);
        }
        let written_by_none = made(SEALS | SealFlags::FUTURE_WRITE, LEN);
        assert_eq!(refusal(written_by_none), ErrorKind::InvalidData);
        let memory = made(SEALS, LEN);
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let for_reading = std::fs::File::open(path).unwrap();
        assert_eq!(refusal(for_reading), ErrorKind::InvalidData);
    }

    #[test]
    fn other_descriptors_are_refused() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        for fd in [read.as_fd(), write.as_fd(), event.as_fd(), file.as_fd()] {
            assert_eq!(refusal(fd), ErrorKind::InvalidData);
        }
        let huge = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        if let Ok(huge) = rustix::fs::memfd_create(c"huge", huge) {
            rustix::fs::fcntl_add_seals(&huge, SEALS).unwrap();
            assert_eq!(refusal(huge), ErrorKind::InvalidData);
        }
    }

    #[test]
    fn pages_are_there_that_were_asked_for() {
        let page = rustix::param::page_size();
        let len = 8 * page;
        let fd = made(SEALS, len);
        let pages = || fstat(&fd).unwrap().st_blocks as usize * 512 / page;
        assert_eq!(pages(), 0);
        let mapped = SharedMemory::map(fd.as_fd(), len, 1).unwrap();
        if !mapped.on_demand {
            // The maker sees to it.
            return;
        }
        assert_eq!(pages(), 1);
        mapped.make_present(page..page).unwrap();
        assert_eq!(pages(), 1);
        mapped.make_present(2 * page - 1..2 * page + 1).unwrap();
        assert_eq!(pages(), 3);
        mapped.make_present(page..len).unwrap();
        assert_eq!(pages(), 8);
        for beyond in [0..len + 1, len..len + 1] {
            let refused = mapped.make_present(beyond).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        }
    }

    /// It would keep the memory of a connection for as long as it lives. A file of the program's
    /// own under a number that was recorded stays.
    #[test]
    fn a_child_has_no_descriptor_of_it() {
        let (_memory, fd) = SharedMemory::create(c"forked", LEN, LEN, LEN).unwrap();
        let passed = PassedFd::from(fd.as_fd().try_clone_to_owned().unwrap());
        let other = PassedFd::from(memfd(c"other").unwrap());
        let numbers = [&fd, &passed, &other].map(AsRawFd::as_raw_fd);
        let code = in_child_process(|| {
            // SAFETY: asks whether a descriptor is open.
            let is_open = |number| unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 };
            let [fd, passed, other] = numbers.map(is_open);
            i32::from(!fd) + 2 * i32::from(!passed) + 4 * i32::from(other)
        });
        assert_eq!(code, 7);
    }

    /// A child that finds other memory there keeps it.
    #[test]
    fn a_child_has_no_mapping_and_unmaps_none() {
        let (memory, _fd) = SharedMemory::create(c"forked", LEN, LEN, LEN).unwrap();
        let (first, len) = (memory.as_ptr().cast(), memory.len());
        let code = in_child_process(|| {
            let mut there = [0; 8];
            // SAFETY: asks which pages are there.
            let is_mapped =
                |there: &mut [u8; 8]| unsafe { libc::mincore(first, len, there.as_mut_ptr()) == 0 };
            let before = is_mapped(&mut there);
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: no mapping is there.
            let own = unsafe {
                rustix::mm::mmap_anonymous(first, len, rights, MapFlags::PRIVATE | MapFlags::FIXED)
            };
            drop(memory);
            i32::from(!before) + 2 * i32::from(own.is_ok() && is_mapped(&mut there))
        });
        assert_eq!(code, 3);
    }
}
