// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rates of InfiniBand links: their number in the header, multiples of 2.5 Gbit/s, Mbit/s.

use std::ffi::{c_int, c_uint};

/// Number, Mbit/s, and the multiple of 2.5 Gbit/s, if the header has one.
const RATES: [(c_uint, c_int, Option<c_int>); 23] = [
    (2, 2500, Some(1)),
    (5, 5000, Some(2)),
    (3, 10_000, Some(4)),
    (6, 20_000, Some(8)),
    (4, 30_000, Some(12)),
    (7, 40_000, Some(16)),
    (8, 60_000, Some(24)),
    (9, 80_000, Some(32)),
    (10, 120_000, Some(48)),
    (11, 14_062, None),
    (12, 56_250, None),
    (13, 112_500, None),
    (14, 168_750, None),
    (15, 25_781, None),
    (16, 103_125, None),
    (17, 206_250, None),
    (18, 309_375, None),
    (19, 28_125, Some(11)),
    (20, 53_125, Some(20)),
    (21, 425_000, Some(160)),
    (22, 637_500, Some(240)),
    (23, 850_000, Some(320)),
    (24, 1_275_000, Some(480)),
];

/// As fast as it goes.
const IBV_RATE_MAX: c_uint = 0;

/// `ibv_rate_to_mult`
pub extern "C" fn ibv_rate_to_mult(rate: c_uint) -> c_int {
    RATES.iter().find(|known| known.0 == rate).and_then(|known| known.2).unwrap_or(-1)
}

/// `mult_to_ibv_rate`
pub extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_uint {
    RATES.iter().find(|known| known.2 == Some(mult)).map_or(IBV_RATE_MAX, |known| known.0)
}

/// `ibv_rate_to_mbps`
pub extern "C" fn ibv_rate_to_mbps(rate: c_uint) -> c_int {
    RATES.iter().find(|known| known.0 == rate).map_or(-1, |known| known.1)
}

/// `mbps_to_ibv_rate`
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_uint {
    RATES.iter().find(|known| known.1 == mbps).map_or(IBV_RATE_MAX, |known| known.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (rate, mbps, mult) in RATES {
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(rate)), rate);
            assert_eq!(ibv_rate_to_mbps(rate), mbps);
            assert_eq!(ibv_rate_to_mult(rate), mult.unwrap_or(-1));
            if let Some(mult) = mult {
                assert_eq!(mult_to_ibv_rate(mult), rate);
            }
        }
        assert_eq!((ibv_rate_to_mbps(0), ibv_rate_to_mult(1)), (-1, -1));
        assert_eq!((mbps_to_ibv_rate(1), mult_to_ibv_rate(3)), (0, 0));
    }
}
