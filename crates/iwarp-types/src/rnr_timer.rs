// SPDX-License-Identifier: MIT OR Apache-2.0

//! Times that a peer waits whose message found no receive.

use core::time::Duration;

/// Time to wait after an RNR NAK (`min_rnr_timer`), as one of 32 codes (IBA vol. 1, table 45;
/// ROCE-060).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RnrTimer(u8);

/// Hundredths of a millisecond by code.
const RNR_TIMES: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

impl RnrTimer {
    /// The code in the low five bits.
    pub const fn new(code: u8) -> Self {
        Self(code & 0x1f)
    }

    /// The code, below 32.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time that it stands for.
    pub const fn duration(self) -> Duration {
        Duration::from_micros(10 * RNR_TIMES[self.0 as usize] as u64)
    }
}
