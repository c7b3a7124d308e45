// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures: no file panics their reader. The input is a file, or packets of bare IP with a length
//! in front of each.
#![no_main]

use iwarp_explain::{Settings, explain, text};
use libfuzzer_sys::fuzz_target;

/// The head of a pcap file of bare IP.
const HEAD: [u8; 24] =
    [0xa1, 0xb2, 0xc3, 0xd4, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 101];

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else { return };
    let file = if kind & 1 == 0 { rest.to_vec() } else { packets(rest) };
    let settings = Settings { frames: kind & 2 != 0, ..Settings::default() };
    if let Ok(report) = explain(&file[..], &settings) {
        text::text(&report);
    }
});

/// The file of the packets in the input. Each has the bits that say how long the wait before it is
/// and how many of its bytes are cut.
fn packets(mut rest: &[u8]) -> Vec<u8> {
    let mut file = HEAD.to_vec();
    let mut millis = 0_u32;
    while let Some(([length, bits], behind)) = rest.split_first_chunk() {
        let (packet, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        millis += u32::from(bits & 0x0f) * 20;
        let whole = packet.len() as u32 + u32::from(bits >> 4);
        for word in [millis / 1000, millis % 1000 * 1000, packet.len() as u32, whole] {
            file.extend_from_slice(&word.to_be_bytes());
        }
        file.extend_from_slice(packet);
        rest = behind;
    }
    file
}
