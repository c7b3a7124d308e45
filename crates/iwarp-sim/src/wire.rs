// SPDX-License-Identifier: MIT OR Apache-2.0

//! A second reading of the octets on the wire, written from the RFCs and sharing no code with
//! the protocol core: FPDU chain, markers, CRC, DDP and RDMAP headers, MSN sequence, offsets.

use std::collections::BTreeMap;
use std::fmt;

/// Rules of one direction of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// CRCs are generated.
    pub crc: bool,
    /// Markers are put in.
    pub markers: bool,
    /// Largest ULPDU that may appear.
    pub max_ulpdu: usize,
}

/// A segment, its headers taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Stream position behind its FPDU.
    pub end: u64,
    /// RDMAP opcode.
    pub opcode: u8,
    /// L bit.
    pub last: bool,
    /// Tagged: STag and TO. Untagged: QN and MSN in the halves of the number.
    pub target: Target,
    /// Payload octets of the message before this segment.
    pub offset: u32,
    /// Set if this is the first segment of its message.
    pub first: bool,
    /// Invalidate STag, or the immediate data of a Send.
    pub invalidate: u32,
    /// The octets behind the DDP header.
    pub payload: Vec<u8>,
}

/// Destination of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A tagged buffer; `to` of this very segment.
    Tagged {
        /// The STag.
        stag: u32,
        /// The tagged offset.
        to: u64,
    },
    /// An untagged buffer.
    Untagged {
        /// Queue.
        qn: u32,
        /// Message.
        msn: u32,
    },
}

/// A rule of the wire that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn broken<T>(what: impl Into<String>) -> Result<T, Broken> {
    Err(Broken(what.into()))
}

/// The message that has segments on the way.
#[derive(Clone, Debug)]
struct Open {
    opcode: u8,
    rsvd: [u8; 5],
    key: (u32, u32),
    start_to: u64,
    length: u32,
}

/// Follows one direction of a stream.
#[derive(Debug)]
pub struct WireCheck {
    rules: Rules,
    buffer: Vec<u8>,
    position: u64,
    next_msn: BTreeMap<u32, u32>,
    open: Option<Open>,
    terminated: bool,
    /// An unfinished Read Response may be given up: this end disconnected.
    pub may_abandon_response: bool,
}

impl WireCheck {
    /// A stream of which nothing was seen.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            buffer: Vec::new(),
            position: 0,
            next_msn: BTreeMap::new(),
            open: None,
            terminated: false,
            may_abandon_response: false,
        }
    }

    /// Allows larger ULPDUs from now on.
    pub fn allow(&mut self, max_ulpdu: usize) {
        self.rules.max_ulpdu = self.rules.max_ulpdu.max(max_ulpdu);
    }

    /// True if the stream stands between two FPDUs.
    pub fn is_at_boundary(&self) -> bool {
        self.buffer.is_empty()
    }

    /// True if a Terminate was seen.
    pub const fn is_terminated(&self) -> bool {
        self.terminated
    }

    /// Takes octets and hands over the segments that became whole.
    pub fn feed(&mut self, octets: &[u8], out: &mut Vec<Segment>) -> Result<(), Broken> {
        if self.terminated && !octets.is_empty() && self.buffer.is_empty() {
            return broken("octets behind a Terminate");
        }
        self.buffer.extend_from_slice(octets);
        let mut at = 0;
        let buffer = std::mem::take(&mut self.buffer);
        while at < buffer.len() {
            let Some((ulpdu, size)) = deframe(&buffer[at..], self.position, self.rules)? else {
                break;
            };
            at += size;
            self.position += size as u64;
            let segment = self.segment(&ulpdu)?;
            out.push(segment);
            if self.terminated && at < buffer.len() {
                return broken("octets behind a Terminate");
            }
        }
        self.buffer = buffer;
        self.buffer.drain(..at);
        Ok(())
    }

    fn segment(&mut self, ulpdu: &[u8]) -> Result<Segment, Broken> {
        let max = self.rules.max_ulpdu;
        if ulpdu.len() > max {
            return broken(format!("ULPDU of {} octets, MULPDU {max}", ulpdu.len()));
        }
        let [control, rdmap, ..] = *ulpdu else { return broken("ULPDU without header") };
        let (tagged, last) = (control & 0x80 != 0, control & 0x40 != 0);
        if control & 0x3c != 0 || control & 3 != 1 {
            return broken(format!("DDP control {control:#04x}"));
        }
        if rdmap & 0x30 != 0 || rdmap >> 6 != 1 {
            return broken(format!("RDMAP control {rdmap:#04x}"));
        }
        let opcode = rdmap & 0x0f;
        let header_len = if tagged { 14 } else { 18 };
        if ulpdu.len() < header_len {
            return broken("ULPDU shorter than its header");
        }
        let payload = &ulpdu[header_len..];
        let word = |at: usize| u32::from_be_bytes(ulpdu[at..at + 4].try_into().unwrap());
        let queue = match opcode {
            0 | 2 => None,
            3..=6 | 8 | 9 | 0xc | 0xd => Some(0),
            1 | 0xa => Some(1),
            7 => Some(2),
            0xb => Some(3),
            _ => return broken(format!("opcode {opcode:#x}")),
        };
        if queue.is_none() != tagged {
            return broken(format!("opcode {opcode:#x} with T = {tagged}"));
        }
        let mut rsvd = [0; 5];
        let (key, place, target) = if tagged {
            let stag = word(2);
            let to = u64::from_be_bytes(ulpdu[6..14].try_into().unwrap());
            (((stag), 0), to, Target::Tagged { stag, to })
        } else {
            rsvd.copy_from_slice(&ulpdu[1..6]);
            let (qn, msn, mo) = (word(6), word(10), word(14));
            if Some(qn) != queue {
                return broken(format!("opcode {opcode:#x} on queue {qn}"));
            }
            ((qn, msn), u64::from(mo), Target::Untagged { qn, msn })
        };
        let invalidate = u32::from_be_bytes([rsvd[1], rsvd[2], rsvd[3], rsvd[4]]);
        if invalidate != 0 && !matches!(opcode, 4 | 6 | 0xc | 0xd) {
            return broken("Invalidate STag in another message");
        }
        if self.open.as_ref().is_some_and(|open| {
            opcode == 7 || (self.may_abandon_response && open.opcode == 2 && opcode != 2)
        }) {
            self.open = None;
        }
        let first = self.open.is_none();
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                if let Target::Untagged { qn, msn } = target {
                    let next = self.next_msn.entry(qn).or_insert(1);
                    if msn != *next {
                        return broken(format!("MSN {msn} on queue {qn}, next is {next}"));
                    }
                    *next = next.wrapping_add(1);
                    if place != 0 {
                        return broken(format!("message begins at MO {place}"));
                    }
                }
                Open { opcode, rsvd, key, start_to: place, length: 0 }
            }
        };
        if open.opcode != opcode || open.rsvd != rsvd || open.key != key {
            return broken(format!("message of opcode {:#x} is interleaved", open.opcode));
        }
        if place != open.start_to.wrapping_add(u64::from(open.length)) {
            return broken(format!("offset {place:#x} does not follow"));
        }
        if payload.is_empty() && !(first && last) {
            return broken("empty segment in a longer message");
        }
        check_size(opcode, last, payload.len())?;
        let offset = open.length;
        if !last {
            self.open = Some(Open { length: offset + payload.len() as u32, ..open });
        }
        if opcode == 7 {
            self.terminated = true;
        }
        Ok(Segment {
            end: self.position,
            opcode,
            last,
            target,
            offset,
            first,
            invalidate,
            payload: payload.to_vec(),
        })
    }
}

/// Messages that are only a header have one size.
fn check_size(opcode: u8, last: bool, len: usize) -> Result<(), Broken> {
    let fits = match opcode {
        1 => last && len == 28,
        7 => last && matches!(len, 4 | 20 | 24 | 48 | 52),
        8 | 9 => last && len == 8,
        0xa => last && len == 52,
        0xb => last && len == 12,
        _ => true,
    };
    if fits { Ok(()) } else { broken(format!("opcode {opcode:#x} with {len} octets, L = {last}")) }
}

/// Takes the FPDU at the head of `octets`, which begins at stream position `start`: its ULPDU
/// and its size, `None` while it is not whole.
fn deframe(octets: &[u8], start: u64, rules: Rules) -> Result<Option<(Vec<u8>, usize)>, Broken> {
    let mut clean = Vec::new();
    let mut at = 0usize;
    let mut length_at = None;
    let mut wanted = 2;
    loop {
        if rules.markers && (start + at as u64).is_multiple_of(512) {
            let Some(marker) = octets.get(at..at + 4) else { return Ok(None) };
            let pointer = length_at.map_or(0, |length_at| at - length_at);
            let expected = [0, 0, (pointer >> 8) as u8, pointer as u8];
            if marker != expected {
                return broken(format!("marker {marker:02x?}, expected {expected:02x?}"));
            }
            at += 4;
        }
        length_at.get_or_insert(at);
        if clean.len() == wanted {
            break;
        }
        let to_marker = match rules.markers {
            true => 512 - ((start + at as u64) % 512) as usize,
            false => usize::MAX,
        };
        let take = to_marker.min(wanted - clean.len());
        let Some(run) = octets.get(at..at + take) else { return Ok(None) };
        if clean.capacity() == 0 && octets.len() >= at + 2 {
            let len = usize::from(u16::from_be_bytes([octets[at], octets[at + 1]]));
            clean.reserve_exact(len + 5);
        }
        clean.extend_from_slice(run);
        at += take;
        if wanted == 2 {
            let len = usize::from(u16::from_be_bytes([clean[0], clean[1]]));
            wanted = (2 + len).next_multiple_of(4);
            if octets.len() < wanted {
                return Ok(None);
            }
        }
    }
    let Some(field) = octets.get(at..at + 4) else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes([clean[0], clean[1]]));
    if clean[2 + len..].iter().any(|pad| *pad != 0) {
        return broken("pad is not zero");
    }
    if rules.crc && crc32c(&octets[..at]).to_le_bytes() != field {
        return broken("wrong CRC");
    }
    clean.truncate(2 + len);
    clean.drain(..2);
    Ok(Some((clean, at + 4)))
}

const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][i] = crc;
        i += 1;
    }
    let mut t = 1;
    while t < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[t - 1][i];
            tables[t][i] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            i += 1;
        }
        t += 1;
    }
    tables
}

/// CRC32c of `octets`.
pub fn crc32c(octets: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    let mut chunks = octets.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().unwrap()) ^ u64::from(crc);
        crc = 0;
        for (i, octet) in word.to_le_bytes().iter().enumerate() {
            crc ^= TABLES[7 - i][usize::from(*octet)];
        }
    }
    for octet in chunks.remainder() {
        crc = (crc >> 8) ^ TABLES[0][((crc ^ u32::from(*octet)) & 0xff) as usize];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn crc_of_the_standard_test_pattern() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }
}
