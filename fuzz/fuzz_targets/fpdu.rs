// SPDX-License-Identifier: MIT OR Apache-2.0

//! FPDUs: arbitrary octets never panic the receiver and never make it go on after an error; the
//! other end takes framed ULPDUs out again, however the stream is cut.
#![no_main]

use std::convert::Infallible;

use arbitrary::Arbitrary;
use iwarp_proto::framing::{Deframe, Frame};
use iwarp_proto::mpa::rx::Deframer;
use iwarp_proto::mpa::tx::Framer;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    crc: bool,
    markers: bool,
    /// Lengths of ULPDUs to send before the arbitrary octets begin.
    lengths: Vec<u16>,
    /// Numbers of octets more that each read brings.
    reads: Vec<u8>,
    /// An octet of the stream to change, and how.
    damage: Option<(u16, u8)>,
    octets: Vec<u8>,
}

/// Enough for many markers, little enough for many runs a second.
const MOST_ULPDUS: usize = 8;
const LONGEST: usize = 2100;

fuzz_target!(|input: Input| {
    let ulpdus: Vec<Vec<u8>> = input
        .lengths
        .iter()
        .take(MOST_ULPDUS)
        .enumerate()
        .map(|(n, &len)| (0..usize::from(len) % LONGEST).map(|i| (i * 31 + n) as u8).collect())
        .collect();
    let mut stream = frame(&input, &ulpdus);
    let sound = stream.len();
    stream.extend_from_slice(&input.octets);
    let mut first_damaged = sound;
    if let Some((at, mask)) = input.damage
        && mask != 0
        && let Some(octet) = stream.get_mut(usize::from(at))
    {
        *octet ^= mask;
        first_damaged = sound.min(usize::from(at));
    }
    let (received, consumed) = receive(&input, &stream);
    // Every whole and unharmed ULPDU arrives as it was sent.
    let intact = whole_before(&input, &ulpdus, first_damaged);
    assert!(received.len() >= intact);
    assert_eq!(received[..intact], ulpdus[..intact]);
    assert!(consumed <= stream.len());
    // With CRCs on, a single changed octet cannot pass.
    if input.crc && first_damaged < sound {
        assert!(received.len() == intact);
    }
});

fn frame(input: &Input, ulpdus: &[Vec<u8>]) -> Vec<u8> {
    let mut framer = Framer::new(input.crc, input.markers);
    let mut stream = Vec::new();
    for ulpdu in ulpdus {
        let start = stream.len();
        assert_eq!(framer.position(), start as u64);
        let len = framer.frame_len(ulpdu.len());
        stream.resize(start + len, 0xee);
        let (header, payload) = ulpdu.split_at(ulpdu.len().min(14));
        let written = framer.write(&mut stream[start..], header, payload.len(), |at, out, crc| {
            out.copy_from_slice(&payload[at..at + out.len()]);
            if let Some(crc) = crc {
                crc.update(out);
            }
            Ok::<(), Infallible>(())
        });
        assert_eq!(written, Ok(len));
        assert_eq!(len % 4, 0);
    }
    stream
}

/// Number of ULPDUs that end before stream position `end`.
fn whole_before(input: &Input, ulpdus: &[Vec<u8>], end: usize) -> usize {
    let mut framer = Framer::new(input.crc, input.markers);
    let ends = ulpdus.iter().map(|ulpdu| {
        let len = framer.frame_len(ulpdu.len());
        let mut out = vec![0; len];
        let fill = |_, _: &mut [u8], _: Option<&mut _>| Ok::<(), Infallible>(());
        framer.write(&mut out, &[], ulpdu.len(), fill).expect("cannot fail");
        framer.position()
    });
    ends.take_while(|&position| position <= end as u64).count()
}

/// The ULPDUs that the receiver takes from the stream in pieces, and the octets that it consumes.
fn receive(input: &Input, stream: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let mut deframer = Deframer::new(input.crc, input.markers);
    let mut reads = input.reads.iter().copied().map(usize::from).cycle();
    let (mut ulpdus, mut consumed, mut available) = (Vec::new(), 0, 0);
    // The receiver takes markers out in place.
    let mut staging = stream.to_vec();
    loop {
        let window = &mut staging[consumed..available];
        let wanted = deframer.wanted(window);
        match deframer.next(window) {
            Ok(Some(fpdu)) => {
                assert!(wanted <= window.len());
                assert!(fpdu.start + fpdu.len <= fpdu.consumed && fpdu.consumed <= window.len());
                ulpdus.push(window[fpdu.start..fpdu.start + fpdu.len].to_vec());
                consumed += fpdu.consumed;
                assert_eq!(deframer.position(), consumed as u64);
            }
            Ok(None) => {
                assert!(wanted > window.len());
                assert_eq!(window, &stream[consumed..available], "changed before it was whole");
                if available == stream.len() {
                    return (ulpdus, consumed);
                }
                let more = reads.next().unwrap_or(usize::MAX).max(1);
                available = available.saturating_add(more).min(stream.len());
            }
            Err(error) => {
                let rest = &mut staging[consumed..];
                assert_eq!(deframer.next(rest), Err(error), "an error is the last word");
                return (ulpdus, consumed);
            }
        }
    }
}
