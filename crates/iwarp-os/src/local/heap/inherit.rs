// SPDX-License-Identifier: MIT OR Apache-2.0

//! The arenas of a process in its forked child, which maps them anew for itself and copies the
//! pages that are there. Meanwhile the thread that has forked waits, and no block is freed or given
//! out.
//!
//! The child may be one of a process with many threads, so what it does takes no lock and no
//! memory. The notes for it lie in a table of fixed size.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::null_mut;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

use super::{ARENAS, Heap, heap};
use crate::local::SharedMemory;

/// Parts of an arena that can be taken away. A further one stays with the peers.
const TAKEN: usize = 16;

/// Of each arena: its mapping, and the parts of it that are the process's alone already.
struct Note {
    /// Written last; 0 for none.
    len: AtomicUsize,
    first: AtomicUsize,
    fd: AtomicI32,
    /// First byte and end, as distances from `first`. An end of 0 is none.
    taken: [[AtomicUsize; 2]; TAKEN],
}

impl Note {
    const fn new() -> Self {
        Self {
            len: AtomicUsize::new(0),
            first: AtomicUsize::new(0),
            fd: AtomicI32::new(-1),
            taken: [const { [const { AtomicUsize::new(0) }; 2] }; TAKEN],
        }
    }
}

static NOTES: [Note; ARENAS] = [const { Note::new() }; ARENAS];

/// Notes the mapping of an arena of this process.
pub(super) fn note(number: usize, first: usize, len: usize, fd: BorrowedFd<'_>) {
    let note = &NOTES[number];
    note.first.store(first, Ordering::Relaxed);
    note.fd.store(fd.as_raw_fd(), Ordering::Relaxed);
    note.len.store(len, Ordering::Release);
}

/// The mapping is about to go.
pub(super) fn forget(number: usize) {
    NOTES[number].len.store(0, Ordering::Release);
}

/// A part of an arena that was noted as taken away.
#[derive(Clone, Copy)]
pub(super) struct NotedPart(&'static [AtomicUsize; 2]);

impl NotedPart {
    /// It was not.
    pub(super) fn forget(self) {
        self.0[1].store(0, Ordering::Release);
    }
}

/// Notes that these bytes of an arena are the process's alone from now on; `None` where there is no
/// room for the note.
pub(super) fn note_taken(number: usize, at: usize, end: usize) -> Option<NotedPart> {
    let part = NOTES[number].taken.iter().find(|[_, end]| end.load(Ordering::Relaxed) == 0)?;
    part[0].store(at, Ordering::Relaxed);
    part[1].store(end, Ordering::Release);
    Some(NotedPart(part))
}

/// Time for which a parent waits for its child, which may have been killed.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of children that have copied what they keep, in memory that all of them share with
/// this process; null before there is an arena.
static COPIED: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

fn copied() -> Option<&'static AtomicU32> {
    // SAFETY: once stored, it is never unmapped.
    unsafe { COPIED.load(Ordering::Acquire).as_ref() }
}

/// Makes what a parent and its children share, unless it is there. With the heap locked.
///
/// # Errors
///
/// Shortages.
pub(super) fn prepare() -> io::Result<()> {
    if copied().is_none() {
        let (len, rights) = (size_of::<AtomicU32>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping where the system likes it. Zeros are what it begins with.
        let page =
            unsafe { rustix::mm::mmap_anonymous(null_mut(), len, rights, MapFlags::SHARED)? };
        COPIED.store(page.cast(), Ordering::Release);
    }
    Ok(())
}

thread_local! {
    /// In a thread that forks: the heap, and the count before.
    static FORKING: RefCell<Option<(MutexGuard<'static, Heap>, u32)>> = const { RefCell::new(None) };
}

/// In a thread that is about to fork.
pub(crate) fn before_fork() {
    if let Some(copied) = copied() {
        let forking = (heap(), copied.load(Ordering::Acquire));
        FORKING.with_borrow_mut(|now| *now = Some(forking));
    }
}

/// In the parent, in the thread that has forked: waits for the child.
pub(crate) fn in_parent() {
    let Some((heap, before)) = FORKING.take() else { return };
    let until = Instant::now() + PATIENCE;
    while let Some(copied) = copied()
        && copied.load(Ordering::Acquire) == before
    {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(left) = left.try_into() else { break };
        let waited = futex::wait(copied, futex::Flags::empty(), before, Some(&left));
        if waited == Err(Errno::TIMEDOUT) {
            break;
        }
    }
    drop(heap);
}

/// Maps the arenas of the parent anew, so that neither sees what the other stores. In a child,
/// once, before it closes the descriptors of its parent and makes an arena.
pub(crate) fn make_private() {
    for note in &NOTES {
        let len = note.len.swap(0, Ordering::Acquire);
        if len == 0 {
            continue;
        }
        let first = note.first.load(Ordering::Relaxed);
        let fd = note.fd.load(Ordering::Relaxed);
        let mut at = 0;
        // In the order of their places.
        while at < len {
            let next = next_taken(note, at).unwrap_or([len, len]);
            map_private(fd, first, at, next[0]);
            at = next[1];
        }
        for [_, end] in &note.taken {
            end.store(0, Ordering::Relaxed);
        }
    }
    // The lock is the parent's, and so is the heap.
    std::mem::forget(FORKING.take());
    if let Some(copied) = copied() {
        copied.fetch_add(1, Ordering::Release);
        let _ = futex::wake(copied, futex::Flags::empty(), i32::MAX as u32);
        // This process and its own children count by themselves. What the mapping holds stays.
        COPIED.store(null_mut(), Ordering::Release);
    }
}

/// The first part of what lies behind `at` that the process had for itself: parts may overlap.
fn next_taken(note: &Note, at: usize) -> Option<[usize; 2]> {
    let taken = note.taken.iter().map(|part| part.each_ref().map(|at| at.load(Ordering::Acquire)));
    let behind = taken.filter(|[_, end]| *end > at);
    behind.map(|[first, end]| [first.max(at), end]).min()
}

fn map_private(fd: RawFd, first: usize, at: usize, end: usize) {
    // A program that has closed our descriptors (`closefrom`) may have files under their numbers.
    if at >= end || !SharedMemory::is_under(fd) {
        return;
    }
    // SAFETY: it was open in the parent, and is not closed before this returns.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    let place = std::ptr::with_exposed_provenance_mut(first + at);
    // SAFETY: it takes the place of a part of the arena's mapping, and shows its bytes.
    let mapped = unsafe { rustix::mm::mmap(place, end - at, rights, flags, fd, at as u64) };
    match mapped {
        Ok(_) => copy_pages(fd, first, at, end),
        // Better none than the parent's.
        // SAFETY: a part of the arena's mapping, which only this child loses.
        Err(_) => drop(unsafe { rustix::mm::munmap(place, end - at) }),
    }
}

/// Has the system copy the pages of a private mapping that hold anything.
fn copy_pages(fd: BorrowedFd<'_>, first: usize, mut at: usize, end: usize) {
    let page = rustix::param::page_size();
    while at < end {
        let Ok(data) = rustix::fs::seek(fd, SeekFrom::Data(at as u64)) else { return };
        let hole = rustix::fs::seek(fd, SeekFrom::Hole(data)).unwrap_or(end as u64);
        at = hole as usize;
        for byte in (data as usize..at.min(end)).step_by(page) {
            let byte = std::ptr::with_exposed_provenance_mut(first + byte);
            // SAFETY: mapped to write, and an atomic.
            let byte = unsafe { AtomicU8::from_ptr(byte) };
            byte.fetch_or(0, Ordering::Relaxed);
        }
    }
}
