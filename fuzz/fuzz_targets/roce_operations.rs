// SPDX-License-Identifier: MIT OR Apache-2.0

//! Octets decide what programs post to RoCE queue pairs, and what the network does to the packets;
//! in every other run one peer keeps to no rule. The simulator's oracle judges. Panics name the
//! rule that was broken.
//!
//! Covers: ROCE-019, ROCE-095
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| iwarp_sim::roce::run_from_bytes(data));
