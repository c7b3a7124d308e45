// SPDX-License-Identifier: MIT OR Apache-2.0

//! FPDUs: length, markers, pad, CRC (RFC 5044 §4).

use super::crc::crc32c;

/// Bytes from a marker to the next, markers counted.
const INTERVAL: u64 = 512;
/// Bytes of the longest ULPDU that may be sent.
const LONGEST: usize = 64_768;

/// The errors that a sender makes in one FPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deviations {
    /// Sends a CRC that is wrong in one bit.
    pub wrong_crc: bool,
    /// The pad's bytes, where they are not zero.
    pub pad: u8,
    /// Says this `ULPDU_Length`.
    pub length: Option<u16>,
    /// Adds this to each marker's pointer.
    pub pointer: u16,
    /// Says this in the reserved half of each marker.
    pub marker_reserved: u16,
}

/// Makes FPDUs of one direction of a connection.
#[derive(Clone, Debug)]
pub struct Framer {
    /// Computes CRCs; zeros otherwise.
    pub crc: bool,
    /// Puts markers in.
    pub markers: bool,
    position: u64,
}

impl Framer {
    /// Begins behind the start-up frame.
    pub fn new(crc: bool, markers: bool) -> Self {
        Self { crc, markers, position: 0 }
    }

    /// The FPDU of a ULPDU.
    pub fn frame(&mut self, ulpdu: &[u8], deviations: Deviations) -> Vec<u8> {
        let length = deviations.length.unwrap_or(ulpdu.len() as u16);
        let mut plain = length.to_be_bytes().to_vec();
        plain.extend(ulpdu);
        plain.resize(plain.len().next_multiple_of(4), deviations.pad);
        let mut bytes = Vec::new();
        let mut start = None;
        for byte in plain {
            self.marker(&mut bytes, start, deviations);
            start.get_or_insert(bytes.len());
            bytes.push(byte);
            self.position += 1;
        }
        self.marker(&mut bytes, start, deviations);
        let mut crc = if self.crc { crc32c(&bytes) } else { [0; 4] };
        crc[0] ^= u8::from(deviations.wrong_crc);
        bytes.extend(crc);
        self.position += 4;
        bytes
    }

    fn marker(&mut self, bytes: &mut Vec<u8>, start: Option<usize>, deviations: Deviations) {
        if !self.markers || !self.position.is_multiple_of(INTERVAL) {
            return;
        }
        let pointer = start.map_or(0, |start| bytes.len() - start) as u16;
        bytes.extend(deviations.marker_reserved.to_be_bytes());
        bytes.extend(pointer.wrapping_add(deviations.pointer).to_be_bytes());
        self.position += 4;
    }
}

/// An FPDU that came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fpdu {
    /// The bytes that DDP gets.
    pub ulpdu: Vec<u8>,
    /// Everything, as it came.
    pub bytes: Vec<u8>,
    /// Its flaws; empty if there are none.
    pub flaws: Vec<String>,
}

/// Takes FPDUs of one direction of a connection apart.
#[derive(Clone, Debug)]
pub struct Deframer {
    /// Checks CRCs.
    pub crc: bool,
    /// Expects markers.
    pub markers: bool,
    position: u64,
}

impl Deframer {
    /// Begins behind the start-up frame.
    pub fn new(crc: bool, markers: bool) -> Self {
        Self { crc, markers, position: 0 }
    }

    /// Takes the first FPDU off `stream`; `None` while it is not whole.
    pub fn next(&mut self, stream: &mut Vec<u8>) -> Option<Fpdu> {
        let mut plain: Vec<u8> = Vec::new();
        let mut flaws = Vec::new();
        let mut position = self.position;
        let mut at = 0;
        let mut start = None;
        let mut whole = None;
        while whole != Some(plain.len()) {
            if self.markers && position.is_multiple_of(INTERVAL) {
                let marker: [u8; 4] = stream.get(at..at + 4)?.try_into().expect("four bytes");
                let wanted = start.map_or(0, |start| at - start) as u16;
                let pointer = u16::from_be_bytes([marker[2], marker[3]]);
                if marker[..2] != [0, 0] || pointer != wanted {
                    flaws.push(format!(
                        "a marker is {}, not 0000{wanted:04x}",
                        crate::text::hex(&marker)
                    ));
                }
                at += 4;
                position += 4;
                continue;
            }
            start.get_or_insert(at);
            plain.push(*stream.get(at)?);
            at += 1;
            position += 1;
            if plain.len() == 2 {
                let length = usize::from(u16::from_be_bytes([plain[0], plain[1]]));
                whole = Some((2 + length).next_multiple_of(4) + 4);
            }
        }
        let bytes: Vec<u8> = stream.drain(..at).collect();
        self.position = position;
        let length = usize::from(u16::from_be_bytes([plain[0], plain[1]]));
        if length > LONGEST {
            flaws.push(format!("a ULPDU has {length} bytes, more than {LONGEST}"));
        }
        let pad = &plain[2 + length..plain.len() - 4];
        if pad.iter().any(|&byte| byte != 0) {
            flaws.push(format!("the pad is {}, not zeros", crate::text::hex(pad)));
        }
        let (covered, crc) = bytes.split_at(bytes.len() - 4);
        let wanted = crc32c(covered);
        if self.crc && crc != wanted {
            let [crc, wanted] = [crc, &wanted].map(crate::text::hex);
            flaws.push(format!("the CRC is {crc}, not {wanted}"));
        }
        Some(Fpdu { ulpdu: plain[2..2 + length].to_vec(), bytes, flaws })
    }
}
