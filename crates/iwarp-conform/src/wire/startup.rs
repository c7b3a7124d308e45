// SPDX-License-Identifier: MIT OR Apache-2.0

//! MPA's start-up frames (RFC 5044 §7.1.1, RFC 6581 §6 and §9).

/// The two frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The initiator's.
    Request,
    /// The responder's.
    Reply,
}

impl Kind {
    /// The key at its head.
    pub const fn key(self) -> &'static [u8; 16] {
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }
}

/// Bytes in front of the private data.
pub const HEADER: usize = 20;
/// The most private data.
pub const MAX_PRIVATE_DATA: usize = 512;

/// A frame as it lies on the wire: nothing here is checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The key.
    pub key: [u8; 16],
    /// M, C, R, S and four reserved bits.
    pub flags: u8,
    /// The revision.
    pub revision: u8,
    /// The length of its private data that the frame says.
    pub length: u16,
    /// The private data, the four bytes of RFC 6581 included.
    pub private_data: Vec<u8>,
}

/// "Put markers into what you send to me."
pub const M: u8 = 0x80;
/// "I want CRCs."
pub const C: u8 = 0x40;
/// "I reject."
pub const R: u8 = 0x20;
/// The four bytes of RFC 6581 lead the private data.
pub const S: u8 = 0x10;
/// The bits that mean nothing.
pub const RESERVED: u8 = 0x0f;

impl Frame {
    /// A frame with its right key and length.
    pub fn new(kind: Kind, flags: u8, revision: u8, private_data: Vec<u8>) -> Self {
        let length = private_data.len() as u16;
        Self { key: *kind.key(), flags, revision, length, private_data }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.key.to_vec();
        bytes.extend([self.flags, self.revision]);
        bytes.extend(self.length.to_be_bytes());
        bytes.extend(&self.private_data);
        bytes
    }

    /// Takes a frame from the front of `bytes`; `None` while it is not whole.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER)?;
        let length = u16::from_be_bytes([header[18], header[19]]);
        let private_data = bytes.get(HEADER..HEADER + usize::from(length))?.to_vec();
        let key = header[..16].try_into().expect("sixteen bytes");
        Some(Self { key, flags: header[16], revision: header[17], length, private_data })
    }

    /// Bytes of the whole frame.
    pub fn size(&self) -> usize {
        HEADER + self.private_data.len()
    }

    /// The four bytes of RFC 6581, where the frame has them.
    pub fn depths(&self) -> Option<Depths> {
        let word = self.private_data.first_chunk::<4>().filter(|_| self.flags & S != 0)?;
        Some(Depths::decode(*word))
    }

    /// The private data that are left for the program.
    pub fn program_data(&self) -> &[u8] {
        let skip = if self.flags & S != 0 { 4.min(self.private_data.len()) } else { 0 };
        &self.private_data[skip..]
    }
}

/// The four bytes of RFC 6581 §9.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Depths {
    /// The peer-to-peer model is asked for.
    pub a: bool,
    /// A zero-length Send may be its first frame.
    pub b: bool,
    /// Reads that the sender of this answers at a time; 14 bits.
    pub ird: u16,
    /// A zero-length Write may be the first frame.
    pub c: bool,
    /// A zero-length Read may be the first frame.
    pub d: bool,
    /// Reads that the sender of this has under way at a time; 14 bits.
    pub ord: u16,
}

impl Depths {
    /// The bytes.
    pub fn encode(self) -> [u8; 4] {
        let bit = |set: bool, place: u32| u32::from(set) << place;
        let word = bit(self.a, 31)
            | bit(self.b, 30)
            | u32::from(self.ird & 0x3fff) << 16
            | bit(self.c, 15)
            | bit(self.d, 14)
            | u32::from(self.ord & 0x3fff);
        word.to_be_bytes()
    }

    /// The word in the bytes.
    pub fn decode(bytes: [u8; 4]) -> Self {
        let word = u32::from_be_bytes(bytes);
        let bit = |place: u32| word >> place & 1 == 1;
        Self {
            a: bit(31),
            b: bit(30),
            ird: (word >> 16 & 0x3fff) as u16,
            c: bit(15),
            d: bit(14),
            ord: (word & 0x3fff) as u16,
        }
    }
}
