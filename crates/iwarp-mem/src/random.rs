// SPDX-License-Identifier: MIT OR Apache-2.0

//! Unpredictable numbers for STags, fetched from the system a few hundred bytes at a time.
//!
//! A registration draws two numbers: one system call serves 32 registrations.

use crate::region::RegisterError;

pub(crate) struct Random {
    pool: [u8; 256],
    used: usize,
}

impl Random {
    pub(crate) const fn new() -> Self {
        Self { pool: [0; 256], used: 256 }
    }

    /// 32 unpredictable bits.
    pub(crate) fn next_u32(&mut self) -> Result<u32, RegisterError> {
        if self.used == self.pool.len() {
            getrandom::fill(&mut self.pool).map_err(|_| RegisterError::NoEntropy)?;
            self.used = 0;
        }
        let taken = &mut self.pool[self.used..self.used + 4];
        let value = u32::from_ne_bytes([taken[0], taken[1], taken[2], taken[3]]);
        // Bytes that were handed out are not left lying about.
        taken.fill(0);
        self.used += 4;
        Ok(value)
    }
}
