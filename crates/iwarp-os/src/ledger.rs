// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts that live processes keep, in a file that all of them map.
//!
//! Each count is in an entry that one process owns. A reader of the file takes entries of owners
//! that live; a process that needs an entry takes one of a dead owner where none is free.

use std::io;
use std::path::Path;
use std::process;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::munmap;

use crate::fork::ForkGeneration;
use crate::process::started;
use crate::shared_file;

/// Entries of a file.
const ENTRIES: usize = 256;
/// Numbers of an entry: its owner, the subject of the counts, and the counts.
const WORDS: usize = 16;
/// Counts of an entry.
pub const COUNTS: usize = WORDS - 2;

/// Bytes of the file.
pub const OCTETS: usize = ENTRIES * WORDS * size_of::<u64>();

/// The subject of entries that count the traffic of a process at the first ports of its devices:
/// see [`traffic`].
pub const TRAFFIC: u64 = u64::MAX;
/// Counts of a port's traffic.
const TRAFFIC_COUNTS: usize = 4;
/// Ports whose traffic one entry counts.
const PORTS: usize = COUNTS / TRAFFIC_COUNTS;
/// Bytes that were sent.
pub const SENT_OCTETS: usize = 0;
/// Bytes that came.
pub const RECEIVED_OCTETS: usize = 1;
/// Packets that were sent.
pub const SENT_PACKETS: usize = 2;
/// Packets that came.
pub const RECEIVED_PACKETS: usize = 3;

/// The subject of the entries that count the traffic of a port, and the first of the four counts in
/// them. The ports of all devices are numbered through, from 0 on.
pub const fn traffic(port: usize) -> (u64, usize) {
    (TRAFFIC - (port / PORTS) as u64, port % PORTS * TRAFFIC_COUNTS)
}

/// The number by which a list of the tree names a count of a port's traffic.
pub const fn traffic_number(port: usize, count: usize) -> usize {
    port * TRAFFIC_COUNTS + count
}

/// The owner of an entry that is being cleared.
const NOBODY: u64 = u64::MAX;

/// An entry of this process's, which is free again when this is dropped. A forked child counts
/// nothing in it.
#[derive(Debug)]
pub struct Entry {
    file: NonNull<[[AtomicU64; WORDS]; ENTRIES]>,
    place: usize,
    process: ForkGeneration,
}

// SAFETY: the words are reached by atomic operations only.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

impl Entry {
    /// Takes an entry of the file, which has so many bytes already, for counts of `subject`. The
    /// caller must know that no process makes the file shorter.
    ///
    /// # Errors
    ///
    /// As for `open(2)` and `mmap(2)`; `InvalidData` where it is too short; `QuotaExceeded` where
    /// live processes have all entries; `Unsupported` without /proc.
    pub fn claim(path: &Path, subject: u64) -> io::Result<Self> {
        let owner = owner(process::id()).ok_or(io::ErrorKind::Unsupported)?;
        let file = shared_file::map(path)?;
        let mut entry = Self { file, place: ENTRIES, process: ForkGeneration::new() };
        let entries = entry.entries();
        let is_free = |owner: u64| owner == 0;
        let is_left = |owner: u64| owner != NOBODY && !lives(owner);
        let found = take(entries, is_free).or_else(|| take(entries, is_left));
        entry.place = found.ok_or(io::ErrorKind::QuotaExceeded)?;
        if let Some([first, second, counts @ ..]) = entry.words() {
            counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
            second.store(subject, Ordering::Relaxed);
            first.store(owner, Ordering::Release);
        }
        Ok(entry)
    }

    /// Subtracts one from a count, if there is one of this number.
    pub fn subtract(&self, count: usize) {
        self.add(count, u64::MAX);
    }

    /// Adds to a count, likewise. It wraps.
    pub fn add(&self, count: usize, by: u64) {
        if let Some([_, _, counts @ ..]) = self.words()
            && let Some(count) = counts.get(count)
            && !self.process.forked()
        {
            count.fetch_add(by, Ordering::Relaxed);
        }
    }

    fn words(&self) -> Option<&[AtomicU64; WORDS]> {
        self.entries().get(self.place)
    }

    fn entries(&self) -> &[[AtomicU64; WORDS]; ENTRIES] {
        // SAFETY: mapped for as long as `self` is; a mapping is aligned, and any bytes are numbers.
        unsafe { self.file.as_ref() }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some([owner, ..]) = self.words()
            && !self.process.forked()
        {
            owner.store(0, Ordering::Release);
        }
        // SAFETY: mapped by `claim`, and no longer used.
        let _ = unsafe { munmap(self.file.as_ptr().cast(), OCTETS) };
    }
}

/// Makes `NOBODY` the owner of the first entry that suits, so that readers pass over it.
fn take(entries: &[[AtomicU64; WORDS]], suits: impl Fn(u64) -> bool) -> Option<usize> {
    entries.iter().position(|[owner, ..]| {
        let before = owner.load(Ordering::Relaxed);
        let turn = (Ordering::Acquire, Ordering::Relaxed);
        suits(before) && owner.compare_exchange(before, NOBODY, turn.0, turn.1).is_ok()
    })
}

/// A process and when it began: its number may be another's later.
pub(crate) fn owner(process: u32) -> Option<u64> {
    Some(u64::from(process) | u64::from(started(process)?) << 32)
}

/// True while the process of this number lives.
pub(crate) fn lives(entry_owner: u64) -> bool {
    owner(entry_owner as u32) == Some(entry_owner)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn file(name: &str, octets: usize) -> PathBuf {
        let path = std::env::temp_dir().join(format!("iwarp-ledger-{name}-{}", process::id()));
        fs::write(&path, vec![0; octets]).unwrap();
        path
    }

    fn read(path: &Path) -> Vec<Vec<u64>> {
        let word = |octets: &[u8]| u64::from_ne_bytes(octets.try_into().unwrap());
        let octets = fs::read(path).unwrap();
        let words: Vec<u64> = octets.chunks_exact(8).map(word).collect();
        words.chunks_exact(WORDS).map(<[u64]>::to_vec).collect()
    }

    #[test]
    fn entries_count_by_themselves_until_they_are_given_back() {
        let path = file("counts", OCTETS);
        let [one, two] = [5, 6].map(|subject| Entry::claim(&path, subject).unwrap());
        one.add(2, 2);
        one.subtract(2);
        two.add(0, 1);
        two.add(COUNTS, 1);
        let me = owner(process::id()).unwrap();
        let found = read(&path);
        assert_eq!(found[0][..5], [me, 5, 0, 0, 1]);
        assert_eq!(found[1][..5], [me, 6, 1, 0, 0]);
        drop(one);
        assert_eq!(read(&path)[0][0], 0);
        // It begins with nothing.
        let three = Entry::claim(&path, 7).unwrap();
        assert_eq!(read(&path)[0][..5], [me, 7, 0, 0, 0]);
        drop((two, three));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn three_ports_share_an_entry() {
        assert_eq!([0, 1, 2].map(traffic), [0, 4, 8].map(|first| (TRAFFIC, first)));
        assert_eq!(traffic(3), (TRAFFIC - 1, 0));
        assert_eq!(traffic(511), (TRAFFIC - 170, 4));
        for port in [0, 2, 3, 511] {
            let number = traffic_number(port, RECEIVED_PACKETS);
            let (subject, first) = traffic(port);
            assert!(first + RECEIVED_PACKETS < COUNTS);
            // As the preloaded library reads it.
            assert_eq!((TRAFFIC - number as u64 / 12, number % 12), (subject, first + 3));
        }
    }

    #[test]
    fn entries_of_the_dead_are_taken_and_those_of_the_living_are_not() {
        let path = file("dead", OCTETS);
        let me = owner(process::id()).unwrap();
        // The number itself, but as another process's; and all others are this one's.
        let dead = me ^ 1 << 32;
        let mut words = vec![me; OCTETS / 8];
        words[7 * WORDS] = dead;
        let octets: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        fs::write(&path, octets).unwrap();
        let entry = Entry::claim(&path, 1).unwrap();
        assert_eq!(read(&path)[7][..3], [me, 1, 0]);
        let refusal = Entry::claim(&path, 1).unwrap_err();
        assert_eq!(refusal.kind(), io::ErrorKind::QuotaExceeded);
        drop(entry);
        fs::remove_file(&path).unwrap();
        let short = file("short", OCTETS - 1);
        assert!(Entry::claim(&short, 1).is_err());
        fs::remove_file(&short).unwrap();
    }
}
