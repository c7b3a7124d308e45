// SPDX-License-Identifier: MIT OR Apache-2.0

//! Random numbers for communication ids and PSNs.

use std::hash::{BuildHasher, RandomState};

use iwarp_roce::cm::Random;

/// Random numbers of the system's, some at a time.
pub(super) struct SystemRandom {
    numbers: [u8; 128],
    used: usize,
    /// Used if the system has none (a sandbox may forbid to ask for them).
    instead: RandomState,
    drawn: u64,
}

impl SystemRandom {
    pub(super) fn new() -> Self {
        Self { numbers: [0; 128], used: 128, instead: RandomState::new(), drawn: 0 }
    }
}

impl Random for SystemRandom {
    fn next(&mut self) -> u32 {
        if self.used == self.numbers.len() {
            if getrandom::fill(&mut self.numbers).is_err() {
                self.drawn += 1;
                return self.instead.hash_one(self.drawn) as u32;
            }
            self.used = 0;
        }
        let number = self.numbers[self.used..].first_chunk().map_or(0, |c| u32::from_ne_bytes(*c));
        self.used += 4;
        number
    }
}
