// SPDX-License-Identifier: MIT OR Apache-2.0

//! The objects of live processes one by one, in a file that all of them map.
//!
//! The file has pages, each of one process at a time, and a page has rows, each of one object. No
//! process waits for another, wherever that is stopped or killed: a page is taken by one exchange
//! of its owner's number, a free one or one of a dead owner, and only its owner writes to it. Each
//! row ends with a check of its words and of the page's owner, so a row that a reader sees half
//! written, or that a dead owner has left, is none. Rows for which there is no room are left out.

mod row;

use std::io;
use std::path::Path;
use std::process;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::munmap;

pub use self::row::{Id, Object, Pair, Row, WORDS, check};
use crate::fork::ForkGeneration;
use crate::ledger::{lives, owner};
use crate::shared_file;

/// Pages of a file.
const PAGES: usize = 128;
/// Rows of a page; in the place of the first is the page's owner.
const ROWS: usize = 64;
/// The words of a row, the number of those that hold on to the object, and the check.
const ROW: usize = WORDS + 2;

/// Bytes of the file.
pub const OCTETS: usize = PAGES * ROWS * ROW * size_of::<u64>();

/// All rows of a page are free, but for the owner's place.
const ALL: u64 = u64::MAX - 1;

/// Places that are refused after no page could be had, before that is tried again: each attempt
/// looks whether the owners of all pages live.
const PATIENCE: u32 = 256;

type Page = [[AtomicU64; ROW]; ROWS];

/// The file, as a process has it.
#[derive(Debug)]
pub struct Roster {
    file: NonNull<[Page; PAGES]>,
    owner: u64,
    /// Of this process only.
    free: Mutex<Free>,
    process: ForkGeneration,
}

#[derive(Debug)]
struct Free {
    /// The free rows of each page that this process owns, as bits.
    rows: [u64; PAGES],
    patience: u32,
}

/// The entry of an object, which is free again when this is dropped.
#[derive(Debug)]
pub struct Entry {
    roster: &'static Roster,
    page: usize,
    row: usize,
}

// SAFETY: the words are reached by atomic operations only.
unsafe impl Send for Roster {}
// SAFETY: as above.
unsafe impl Sync for Roster {}

impl Roster {
    /// Maps the file, which has [`OCTETS`] bytes already. The caller must know that no process
    /// makes it shorter.
    ///
    /// # Errors
    ///
    /// As for `open(2)` and `mmap(2)`; `InvalidData` where it is too short; `Unsupported` without
    /// /proc.
    pub fn open(path: &Path) -> io::Result<Self> {
        let owner = owner(process::id()).ok_or(io::ErrorKind::Unsupported)?;
        let free = Mutex::new(Free { rows: [0; PAGES], patience: 0 });
        Ok(Self { file: shared_file::map(path)?, owner, free, process: ForkGeneration::new() })
    }

    /// An entry for one more object, which is not to be seen until [`Entry::show`]. `None` where
    /// there is no room, and in a forked child.
    pub fn entry(&'static self) -> Option<Entry> {
        let mut free = self.free()?;
        let has_room = |rows: &u64| *rows != 0;
        let page = match free.rows.iter().position(has_room) {
            Some(page) => page,
            None => self.claim(&mut free)?,
        };
        let rows = free.rows.get_mut(page)?;
        let row = rows.trailing_zeros() as usize;
        *rows &= *rows - 1;
        let entry = Entry { roster: self, page, row };
        // A dead owner may have left something there.
        entry.clear();
        Some(entry)
    }

    #[cold]
    fn claim(&self, free: &mut Free) -> Option<usize> {
        if free.patience > 0 {
            free.patience -= 1;
            return None;
        }
        let take = |suits: &mut dyn FnMut(u64) -> bool| {
            self.pages().iter().position(|[[owner, ..], ..]| {
                let before = owner.load(Ordering::Relaxed);
                let (done, not) = (Ordering::AcqRel, Ordering::Relaxed);
                suits(before) && owner.compare_exchange(before, self.owner, done, not).is_ok()
            })
        };
        // Many pages may be of one process.
        let mut living = self.owner;
        let mut is_left = |owner: u64| {
            let is_left = owner != living && !lives(owner);
            living = if is_left { living } else { owner };
            is_left
        };
        let found = take(&mut |owner| owner == 0).or_else(|| take(&mut is_left));
        match found {
            Some(page) => *free.rows.get_mut(page)? = ALL,
            None => free.patience = PATIENCE,
        }
        found
    }

    /// Frees a row that is clear, and its page with the last one.
    fn leave(&self, page: usize, row: usize) {
        let Some(mut free) = self.free() else { return };
        let (Some(rows), Some([[owner, ..], ..])) =
            (free.rows.get_mut(page), self.pages().get(page))
        else {
            return;
        };
        *rows |= 1 << row;
        if *rows == ALL {
            *rows = 0;
            owner.store(0, Ordering::Release);
        }
    }

    /// `None` in a forked child.
    fn free(&self) -> Option<MutexGuard<'_, Free>> {
        (!self.process.forked()).then(|| self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn pages(&self) -> &[Page; PAGES] {
        // SAFETY: mapped for as long as `self` is; a mapping is aligned, and any bytes are numbers.
        unsafe { self.file.as_ref() }
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and no longer used.
        let _ = unsafe { munmap(self.file.as_ptr().cast(), OCTETS) };
    }
}

impl Entry {
    /// The number by which others know the object, which no other live object in the file has. It
    /// is not 0.
    pub fn number(&self) -> u32 {
        (self.page * ROWS + self.row) as u32
    }

    /// Has others see what `row` says of the object. Of several threads that do this, the last to
    /// ask `row` is also the last to write.
    pub fn show(&self, row: impl FnOnce() -> Row) {
        let (Some(_only), Some(to)) = (self.roster.free(), self.words()) else { return };
        let words = row().words();
        to.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        let [.., last] = to;
        last.store(check(self.roster.owner, &words), Ordering::Release);
    }

    /// One more holds on to the object.
    pub fn hold(&self) {
        self.add_holders(1);
    }

    /// One fewer does.
    pub fn release(&self) {
        self.add_holders(u64::MAX);
    }

    fn add_holders(&self, by: u64) {
        if let Some([.., holders, _]) = self.words()
            && !self.roster.process.forked()
        {
            holders.fetch_add(by, Ordering::Relaxed);
        }
    }

    fn clear(&self) {
        self.words().into_iter().flatten().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    fn words(&self) -> Option<&[AtomicU64; ROW]> {
        self.roster.pages().get(self.page)?.get(self.row)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.roster.process.forked() {
            self.clear();
            self.roster.leave(self.page, self.row);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::fork::in_child_process;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, octets: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("iwarp-roster-{name}-{}", process::id()));
            fs::write(&path, octets).unwrap();
            Self(path)
        }

        fn open(&self) -> &'static Roster {
            // Kept, as memory that nothing leads to is a leak.
            static KEPT: Mutex<Vec<&Roster>> = Mutex::new(Vec::new());
            let roster: &Roster = Box::leak(Box::new(Roster::open(&self.0).unwrap()));
            KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(roster);
            roster
        }

        fn words(&self) -> Vec<u64> {
            let word = |octets: &[u8]| u64::from_ne_bytes(octets.try_into().unwrap());
            fs::read(&self.0).unwrap().chunks_exact(8).map(word).collect()
        }

        /// The rows as a reader takes them.
        fn rows(&self) -> Vec<(u32, Row, u64)> {
            let words = self.words();
            let mut found = Vec::new();
            for (number, row) in words.chunks_exact(ROW).enumerate() {
                let owner = words[number / ROWS * ROWS * ROW];
                let covered = row.first_chunk().unwrap();
                if number % ROWS != 0 && row[ROW - 1] == check(owner, covered) {
                    found.extend(Row::of(covered).map(|it| (number as u32, it, row[WORDS])));
                }
            }
            found
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn region(length: u64) -> Row {
        Row { device: 0, context: 1, domain: 2, object: Object::Region { length } }
    }

    #[test]
    fn objects_are_listed_while_they_are_there() {
        let file = Scratch::new("list", &[0; OCTETS]);
        let roster = file.open();
        let [one, two] = [(); 2].map(|()| roster.entry().unwrap());
        assert!(file.rows().is_empty());
        one.show(|| region(5));
        two.show(|| region(6));
        one.hold();
        assert_eq!(file.rows(), [(one.number(), region(5), 1), (two.number(), region(6), 0)]);
        one.show(|| region(7));
        one.release();
        drop(two);
        assert_eq!(file.rows(), [(one.number(), region(7), 0)]);
        drop(one);
        assert!(file.words().iter().all(|word| *word == 0));
    }

    #[test]
    fn there_is_room_for_so_many() {
        let file = Scratch::new("room", &[0; OCTETS]);
        let (roster, other) = (file.open(), file.open());
        let first = other.entry().unwrap();
        let all: Vec<_> = std::iter::from_fn(|| roster.entry()).collect();
        assert_eq!(all.len(), (PAGES - 1) * (ROWS - 1));
        let mut numbers: Vec<_> = all.iter().chain([&first]).map(Entry::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert!(numbers.len() == all.len() + 1 && numbers[0] != 0);
        drop(all);
        // It is patient first.
        let found = (0..=PATIENCE).find_map(|_| roster.entry());
        assert!(found.is_some());
    }

    /// A page of a dead owner is another's, with none of the rows that were left in it.
    #[test]
    fn rows_of_the_dead_are_nobodys() {
        let me = owner(process::id()).unwrap();
        // The number itself, but as another process's.
        let dead = me ^ 1 << 32;
        let mut words = vec![me; OCTETS / 8];
        let page = 3 * ROWS * ROW;
        let left = region(9).words();
        words[page] = dead;
        words[page + ROW..][..WORDS].copy_from_slice(&left);
        words[page + ROW + WORDS] = 5;
        words[page + 2 * ROW - 1] = check(dead, &left);
        let octets: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let file = Scratch::new("dead", &octets);
        assert_eq!(file.rows().len(), 1);
        let roster = file.open();
        let entry = roster.entry().unwrap();
        assert_eq!(entry.number(), 3 * ROWS as u32 + 1);
        assert!(file.rows().is_empty());
        entry.show(|| region(1));
        assert_eq!(file.rows(), [(entry.number(), region(1), 0)]);
        let short = Scratch::new("short", &[0; OCTETS - 1]);
        assert!(Roster::open(&short.0).is_err());
    }

    #[test]
    fn a_forked_child_leaves_its_parents_rows_alone() {
        let file = Scratch::new("fork", &[0; OCTETS]);
        let roster = file.open();
        let entry = roster.entry().unwrap();
        entry.show(|| region(5));
        let before = file.words();
        let code = in_child_process(|| {
            entry.show(|| region(6));
            entry.hold();
            drop(Entry { roster, ..entry });
            i32::from(roster.entry().is_some())
        });
        assert!(code == 0 && file.words() == before, "{code}");
    }
}
