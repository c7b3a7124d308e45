// SPDX-License-Identifier: MIT OR Apache-2.0

//! Records: arbitrary octets never panic the receiver and never make it go on after an error; the
//! other end takes framed ULPDUs out again, however the stream is cut.
#![no_main]

use std::convert::Infallible;

use arbitrary::Arbitrary;
use iwarp_proto::framing::{Deframe, Frame, Framed};
use iwarp_proto::record::{Deframer, Framer};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    /// Lengths of ULPDUs to send before the arbitrary octets begin.
    lengths: Vec<u16>,
    /// Numbers of octets more that each read brings.
    reads: Vec<u8>,
    octets: Vec<u8>,
}

const MOST_ULPDUS: usize = 8;
/// Octets of the longest ULPDU.
const LONGEST: u32 = 2100;

fuzz_target!(|input: Input| {
    let lengths = input.lengths.iter().take(MOST_ULPDUS).map(|&len| u32::from(len) % LONGEST);
    let ulpdus: Vec<Vec<u8>> = lengths
        .enumerate()
        .map(|(n, len)| (0..len).map(|i| (i * 31 + n as u32) as u8).collect())
        .collect();
    let mut framer = Framer::new(LONGEST);
    let mut stream = Vec::new();
    for ulpdu in &ulpdus {
        let start = stream.len();
        stream.resize(start + framer.frame_len(ulpdu.len()), 0xee);
        let (header, payload) = ulpdu.split_at(ulpdu.len().min(14));
        let written = framer.write(&mut stream[start..], header, payload.len(), |at, out, _| {
            out.copy_from_slice(&payload[at..at + out.len()]);
            Ok::<(), Infallible>(())
        });
        assert_eq!(written, Ok(stream.len() - start));
        assert_eq!(framer.position(), stream.len() as u64);
    }
    stream.extend_from_slice(&input.octets);
    let received = receive(&input.reads, &stream);
    assert!(received.len() >= ulpdus.len());
    assert_eq!(received[..ulpdus.len()], ulpdus);
});

/// The ULPDUs that the receiver takes from the stream in pieces.
fn receive(reads: &[u8], stream: &[u8]) -> Vec<Vec<u8>> {
    let mut deframer = Deframer::new(LONGEST);
    let mut reads = reads.iter().copied().map(usize::from).cycle();
    let (mut ulpdus, mut consumed, mut available) = (Vec::new(), 0, 0);
    let mut staging = stream.to_vec();
    loop {
        let window = &mut staging[consumed..available];
        let wanted = deframer.wanted(window);
        match deframer.next(window) {
            Ok(Some(Framed { start, len, consumed: taken })) => {
                assert_eq!(wanted, taken);
                assert!(start + len == taken && taken <= window.len());
                ulpdus.push(window[start..taken].to_vec());
                consumed += taken;
            }
            Ok(None) => {
                assert!(wanted > window.len());
                if available == stream.len() {
                    return ulpdus;
                }
                let more = reads.next().unwrap_or(usize::MAX).max(1);
                available = available.saturating_add(more).min(stream.len());
            }
            Err(error) => {
                let rest = &mut staging[consumed..];
                assert_eq!(deframer.next(rest), Err(error), "an error is the last word");
                return ulpdus;
            }
        }
    }
}
