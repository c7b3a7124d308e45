// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers that processes count together, in a file that all of them map.

use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::munmap;

use crate::shared_file;

/// Numbers of a part of a board: of what counts for one port.
pub const PART: usize = 16;

/// Numbers of a board: parts for all ports that devices can have.
pub const WORDS: usize = 512 * PART;

/// Bytes of its file.
pub const OCTETS: usize = WORDS * size_of::<u64>();

/// A board that this process has mapped. A forked child counts on it as well.
#[derive(Debug)]
pub struct Board(NonNull<[AtomicU64; WORDS]>);

// SAFETY: the words are reached by atomic operations only.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    /// Maps the file, which has so many bytes already. The caller must know that no process makes
    /// it shorter.
    ///
    /// # Errors
    ///
    /// As for `open(2)` and `mmap(2)`; `InvalidData` where it is too short.
    pub fn open(path: &Path) -> io::Result<Self> {
        shared_file::map(path).map(Self)
    }

    /// Adds to a number of the board, if there is one at `word`. It wraps.
    pub fn add(&self, word: usize, count: u64) {
        if let Some(word) = self.words().get(word) {
            word.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn words(&self) -> &[AtomicU64; WORDS] {
        // SAFETY: mapped for as long as `self` is; a mapping is aligned, and any bytes are numbers.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and no longer used.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), OCTETS) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_two_boards_add_up() {
        let path = std::env::temp_dir().join(format!("iwarp-board-{}", std::process::id()));
        std::fs::write(&path, [0; OCTETS - 1]).unwrap();
        assert!(Board::open(&path).is_err());
        std::fs::write(&path, [0; OCTETS]).unwrap();
        let [one, two] = [&path, &path].map(|path| Board::open(path).unwrap());
        one.add(3, 5);
        two.add(3, 6);
        two.add(WORDS, 1);
        drop(one);
        let octets = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(octets[24..32], 11_u64.to_ne_bytes());
        assert!(octets[..24].iter().chain(&octets[32..]).all(|&octet| octet == 0));
    }
}
