// SPDX-License-Identifier: MIT OR Apache-2.0

//! The arenas of a process in its forked child, which has memory of its own in their places and
//! copies what they hold. Meanwhile the thread that has forked waits, and no block is freed or
//! given out.
//!
//! The child may be one of a process with many threads, so what it does takes no lock and no
//! memory. The notes for it lie in a table of fixed size.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

use super::{ARENAS, HOLDER, Locked, errno, heap, region};
use crate::local::{SharedMemory, huge};

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

/// Time for which a parent waits for a child that copies nothing: it may have been killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that a child copies before it says so.
const STEP: usize = 1 << 20;

/// Words in memory that a process shares with its children. Zeros are what it begins with.
struct Copied {
    /// The number of the latest fork whose child has copied what it keeps.
    fork: AtomicU32,
    /// Steps of all children.
    steps: AtomicU32,
}

/// Null before there is an arena.
static COPIED: AtomicPtr<Copied> = AtomicPtr::new(null_mut());

fn copied() -> Option<&'static Copied> {
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
        let (len, rights) = (size_of::<Copied>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping where the system likes it.
        let page =
            unsafe { rustix::mm::mmap_anonymous(null_mut(), len, rights, MapFlags::SHARED)? };
        COPIED.store(page.cast(), Ordering::Release);
    }
    Ok(())
}

/// A fork of this thread, which is about to come.
struct Forking {
    heap: Locked,
    /// Its number.
    fork: u32,
    /// `errno` before, where it was cleared: a fork that fails sets it.
    errno: Option<i32>,
}

thread_local! {
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

/// In a thread that is about to fork. `is_last`: no other handler is called before it does.
pub(crate) fn before_fork(is_last: bool) {
    static FORKS: AtomicU32 = AtomicU32::new(0);

    let here = 0_u8;
    if region::holds((&raw const here).addr()) {
        // Parent and child would use it as one, each for itself.
        eprintln!(
            "iwarp: a thread whose stack lies in the shared heap is about to fork, which cannot \
             be: have its stack allocated by mmap, or run the program without --shared-heap"
        );
        std::process::abort();
    }
    let heap = copied().map(|_| heap());
    let _ = FORKING.try_with(|forking| {
        let Some(heap) = heap else { return };
        let fork = FORKS.fetch_add(1, Ordering::Relaxed) + 1;
        // SAFETY: this thread's own.
        let errno = is_last.then(|| unsafe { errno().replace(0) });
        *forking.borrow_mut() = Some(Forking { heap, fork, errno });
    });
}

/// In the parent, in the thread that has forked: waits for the child, if there is one.
pub(crate) fn in_parent() {
    let forking = FORKING.try_with(RefCell::take).ok().flatten();
    let Some(Forking { heap, fork, errno: before }) = forking else { return };
    // SAFETY: this thread's own.
    let has_failed = before.is_some() && unsafe { *errno() } != 0;
    if let Some(copied) = copied().filter(|_| !has_failed) {
        wait_for_copy(copied, fork);
    }
    drop(heap);
    if let Some(before) = before.filter(|_| !has_failed) {
        // SAFETY: as above.
        unsafe { *errno() = before };
    }
}

fn wait_for_copy(Copied { fork: copied, steps }: &Copied, fork: u32) {
    let (mut until, mut seen) = (Instant::now() + PATIENCE, steps.load(Ordering::Relaxed));
    loop {
        let latest = copied.load(Ordering::Acquire);
        if latest >= fork {
            return;
        }
        let left = until.saturating_duration_since(Instant::now());
        let Ok(left) = left.try_into() else { return };
        let waited = futex::wait(copied, futex::Flags::empty(), latest, Some(&left));
        let now = steps.load(Ordering::Relaxed);
        if now != seen {
            (until, seen) = (Instant::now() + PATIENCE, now);
        } else if waited == Err(Errno::TIMEDOUT) {
            return;
        }
    }
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
    HOLDER.store(0, Ordering::Relaxed);
    let forking = FORKING.try_with(RefCell::take).ok().flatten();
    if let (Some(copied), Some(forking)) = (copied(), &forking) {
        copied.fork.fetch_max(forking.fork, Ordering::Release);
        let _ = futex::wake(&copied.fork, futex::Flags::empty(), i32::MAX as u32);
    }
    // The lock is the parent's, and so is the heap.
    std::mem::forget(forking);
    // This process and its own children count by themselves. What the mapping holds stays.
    COPIED.store(null_mut(), Ordering::Release);
}

/// The first part of what lies behind `at` that the process had for itself: parts may overlap.
fn next_taken(note: &Note, at: usize) -> Option<[usize; 2]> {
    let taken = note.taken.iter().map(|part| part.each_ref().map(|at| at.load(Ordering::Acquire)));
    let behind = taken.filter(|[_, end]| *end > at);
    behind.map(|[first, end]| [first.max(at), end]).min()
}

/// Has the bytes from `at` to `end` of an arena be the child's own.
fn map_private(fd: RawFd, first: usize, at: usize, end: usize) {
    // A program that has closed our descriptors (`closefrom`) may have files under their numbers.
    if at >= end || !SharedMemory::is_under(fd) {
        return;
    }
    // SAFETY: it was open in the parent, and is not closed before this returns.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    let place = with_exposed_provenance_mut(first + at);
    // SAFETY: it takes the place of a part of the arena's mapping, and gets its bytes.
    let mapped = unsafe { rustix::mm::mmap_anonymous(place, end - at, rights, flags) };
    if mapped.is_err() || copy(fd, first, at, end).is_err() {
        // Better none than the parent's, or none of them.
        // SAFETY: a part of the arena's mapping, which only this child loses.
        let _ = unsafe { rustix::mm::munmap(place, end - at) };
    }
}

/// Copies what an arena holds from `at` to `end` to its place in this process. The rest is zeros
/// there as here.
fn copy(fd: BorrowedFd<'_>, first: usize, mut at: usize, end: usize) -> Result<(), Errno> {
    while at < end {
        let data = match rustix::fs::seek(fd, SeekFrom::Data(at as u64)) {
            Err(Errno::NXIO) => return Ok(()),
            data => data? as usize,
        };
        let hole = rustix::fs::seek(fd, SeekFrom::Hole(data as u64))? as usize;
        at = data;
        huge::prefer(first + at, hole.min(end) - at.min(end));
        while at < hole.min(end) {
            let len = STEP.min(hole.min(end) - at);
            let to = with_exposed_provenance_mut::<u8>(first + at);
            // SAFETY: mapped to write by the caller.
            let read = unsafe { libc::pread64(fd.as_raw_fd(), to.cast(), len, at as i64) };
            match read {
                1.. => at += read as usize,
                0 => return Err(Errno::IO),
                // SAFETY: this thread's own.
                _ if unsafe { *errno() } == libc::EINTR => {}
                _ => return Err(Errno::IO),
            }
            if let Some(Copied { steps, .. }) = copied() {
                steps.fetch_add(1, Ordering::Relaxed);
            }
        }
        at = at.max(hole);
    }
    Ok(())
}
