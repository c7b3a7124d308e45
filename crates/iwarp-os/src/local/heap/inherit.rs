// SPDX-License-Identifier: MIT OR Apache-2.0

//! The arenas of a process in its forked child, which maps them anew for itself.
//!
//! The child may be one of a process with many threads, so this takes no lock and no memory. Its
//! notes lie in a table of fixed size.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use super::ARENAS;
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

/// Notes that these bytes of an arena are the process's alone from now on. False where there is no
/// room for the note.
pub(super) fn note_taken(number: usize, at: usize, end: usize) -> bool {
    let mut taken = NOTES[number].taken.iter();
    let Some([first, last]) = taken.find(|[_, end]| end.load(Ordering::Relaxed) == 0) else {
        return false;
    };
    first.store(at, Ordering::Relaxed);
    last.store(end, Ordering::Release);
    true
}

/// Maps the arenas of the parent anew, so that neither sees what the other stores. In a child, once,
/// before it closes the descriptors of its parent and makes an arena.
pub(crate) fn make_private() {
    for note in &NOTES {
        let len = note.len.swap(0, Ordering::Acquire);
        if len == 0 {
            continue;
        }
        let first = note.first.load(Ordering::Relaxed);
        let fd = note.fd.load(Ordering::Relaxed);
        let mut at = 0;
        // In the order of their places, whatever the order in which they were taken away.
        while at < len {
            let next = next_taken(note, at).unwrap_or([len, len]);
            map_private(fd, first, at, next[0]);
            at = next[1];
        }
        for [_, end] in &note.taken {
            end.store(0, Ordering::Relaxed);
        }
    }
}

/// The first part at or behind `at` that the process had for itself.
fn next_taken(note: &Note, at: usize) -> Option<[usize; 2]> {
    let taken = note.taken.iter().map(|part| part.each_ref().map(|at| at.load(Ordering::Acquire)));
    taken.filter(|[first, end]| *end > at && *first >= at).min()
}

fn map_private(fd: RawFd, first: usize, at: usize, end: usize) {
    // A program that has closed our descriptors (`closefrom`) may have files under their numbers.
    // SAFETY: a system call without pointers.
    let seals = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GET_SEALS) };
    if at >= end || seals < 0 || !SharedMemory::has_seals(seals as u32) {
        return;
    }
    // SAFETY: it was open in the parent, and is not closed before this returns.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
    let place = std::ptr::with_exposed_provenance_mut(first + at);
    // SAFETY: it takes the place of a part of the arena's mapping, and shows the same bytes.
    let _ = unsafe { rustix::mm::mmap(place, end - at, rights, flags, fd, at as u64) };
}
