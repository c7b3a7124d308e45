// SPDX-License-Identifier: MIT OR Apache-2.0

//! Octets decide what two programs post, what the network does to them and what goes wrong; the
//! simulator's oracle judges. Panics name the rule that was broken.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| iwarp_sim::run_from_bytes(data));
