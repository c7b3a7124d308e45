// SPDX-License-Identifier: MIT OR Apache-2.0

//! DDP segments and RDMAP's headers (RFC 5041 §4, RFC 5040 §4, RFC 7306 §4).

/// RDMAP's messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// RDMA Write.
    Write,
    /// RDMA Read Request.
    ReadRequest,
    /// RDMA Read Response.
    ReadResponse,
    /// Send.
    Send,
    /// Send with Invalidate.
    SendInvalidate,
    /// Send with Solicited Event.
    SendSolicited,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate,
    /// Terminate.
    Terminate,
    /// Immediate Data.
    Immediate,
    /// Immediate Data with Solicited Event.
    ImmediateSolicited,
    /// Atomic Request.
    AtomicRequest,
    /// Atomic Response.
    AtomicResponse,
}

/// Opcode, name in cases, queue number; tagged messages have no queue.
const KINDS: [(Kind, &str, Option<u32>); 12] = [
    (Kind::Write, "write", None),
    (Kind::ReadRequest, "read-request", Some(1)),
    (Kind::ReadResponse, "read-response", None),
    (Kind::Send, "send", Some(0)),
    (Kind::SendInvalidate, "send-invalidate", Some(0)),
    (Kind::SendSolicited, "send-solicited", Some(0)),
    (Kind::SendSolicitedInvalidate, "send-solicited-invalidate", Some(0)),
    (Kind::Terminate, "terminate", Some(2)),
    (Kind::Immediate, "immediate", Some(0)),
    (Kind::ImmediateSolicited, "immediate-solicited", Some(0)),
    (Kind::AtomicRequest, "atomic-request", Some(1)),
    (Kind::AtomicResponse, "atomic-response", Some(3)),
];

impl Kind {
    /// The message with that opcode.
    pub fn of(opcode: u8) -> Option<Self> {
        KINDS.get(usize::from(opcode)).map(|row| row.0)
    }

    /// The message of that name.
    pub fn named(name: &str) -> Option<Self> {
        KINDS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Its opcode.
    pub const fn opcode(self) -> u8 {
        self as u8
    }

    /// Its name in cases.
    pub const fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// Its queue; `None` for tagged messages.
    pub const fn queue(self) -> Option<u32> {
        KINDS[self as usize].2
    }

    /// True if its untagged header names an STag to invalidate.
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }
}

/// A segment as it lies on the wire: nothing here is checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// DDP's control bits: T, L, four reserved, version.
    pub ddp: u8,
    /// RDMAP's control bits: version, two reserved, opcode.
    pub rdmap: u8,
    /// The destination that the T bit announces.
    pub destination: Destination,
    /// Everything behind DDP's header.
    pub payload: Vec<u8>,
}

/// The buffer to which a segment goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// Of a tagged segment.
    Tagged {
        /// The memory.
        stag: u32,
        /// The offset in it.
        to: u64,
    },
    /// Of an untagged segment.
    Untagged {
        /// The STag to invalidate, where the opcode has one.
        invalidate: u32,
        /// The queue.
        qn: u32,
        /// The number of the message.
        msn: u32,
        /// The offset in the message.
        mo: u32,
    },
}

/// The T bit.
pub const TAGGED: u8 = 0x80;
/// The L bit.
pub const LAST: u8 = 0x40;
/// The bits of DDP's control that mean nothing.
pub const DDP_RESERVED: u8 = 0x3c;
/// The bits of RDMAP's control that mean nothing.
pub const RDMAP_RESERVED: u8 = 0x30;

impl Segment {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.ddp, self.rdmap];
        match self.destination {
            Destination::Tagged { stag, to } => {
                bytes.extend(stag.to_be_bytes());
                bytes.extend(to.to_be_bytes());
            }
            Destination::Untagged { invalidate, qn, msn, mo } => {
                for word in [invalidate, qn, msn, mo] {
                    bytes.extend(word.to_be_bytes());
                }
            }
        }
        bytes.extend(&self.payload);
        bytes
    }

    /// Takes a ULPDU apart; `None` when it is shorter than its header.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [ddp, rdmap] = *bytes.first_chunk()?;
        let header = header_len(ddp);
        let payload = bytes.get(header..)?.to_vec();
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"));
        let destination = if ddp & TAGGED != 0 {
            let to = u64::from_be_bytes(bytes[6..14].try_into().expect("eight"));
            Destination::Tagged { stag: word(2), to }
        } else {
            Destination::Untagged { invalidate: word(2), qn: word(6), msn: word(10), mo: word(14) }
        };
        Some(Self { ddp, rdmap, destination, payload })
    }

    /// The message that the opcode names.
    pub fn kind(&self) -> Option<Kind> {
        Kind::of(self.rdmap & 0x0f)
    }

    /// True if it is the last of its message.
    pub const fn is_last(&self) -> bool {
        self.ddp & LAST != 0
    }
}

/// Bytes of DDP's header with that first byte.
pub const fn header_len(ddp: u8) -> usize {
    if ddp & TAGGED != 0 { 14 } else { 18 }
}

/// The header of a Read Request (RFC 5040 §4.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRequest {
    /// The data sink's STag.
    pub sink_stag: u32,
    /// The data sink's tagged offset.
    pub sink_to: u64,
    /// The number of bytes.
    pub size: u32,
    /// The data source's STag.
    pub source_stag: u32,
    /// The data source's tagged offset.
    pub source_to: u64,
}

impl ReadRequest {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.sink_stag.to_be_bytes().to_vec();
        bytes.extend(self.sink_to.to_be_bytes());
        bytes.extend(self.size.to_be_bytes());
        bytes.extend(self.source_stag.to_be_bytes());
        bytes.extend(self.source_to.to_be_bytes());
        bytes
    }

    /// The request in the bytes; `None` unless there are 28.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != 28 {
            return None;
        }
        let mut fields = Fields(bytes);
        Some(Self {
            sink_stag: fields.word(),
            sink_to: fields.long(),
            size: fields.word(),
            source_stag: fields.word(),
            source_to: fields.long(),
        })
    }
}

/// The header of an Atomic Request (RFC 7306 §5.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicRequest {
    /// 28 reserved bits and the operation.
    pub operation: u32,
    /// Comes back in the Response.
    pub id: u32,
    /// The memory.
    pub stag: u32,
    /// The offset in it.
    pub to: u64,
    /// The number that is added or put in.
    pub data: u64,
    /// The Add or Swap Mask.
    pub mask: u64,
    /// The value to compare with.
    pub compare: u64,
    /// The Compare Mask.
    pub compare_mask: u64,
}

/// FetchAdd.
pub const FETCH_ADD: u32 = 0;
/// CmpSwap.
pub const COMPARE_SWAP: u32 = 2;

impl AtomicRequest {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [self.operation, self.id, self.stag] {
            bytes.extend(word.to_be_bytes());
        }
        for long in [self.to, self.data, self.mask, self.compare, self.compare_mask] {
            bytes.extend(long.to_be_bytes());
        }
        bytes
    }

    /// The request in the bytes; `None` unless there are 52.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != 52 {
            return None;
        }
        let mut fields = Fields(bytes);
        Some(Self {
            operation: fields.word(),
            id: fields.word(),
            stag: fields.word(),
            to: fields.long(),
            data: fields.long(),
            mask: fields.long(),
            compare: fields.long(),
            compare_mask: fields.long(),
        })
    }
}

/// A Terminate's payload (RFC 5040 §4.8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terminate {
    /// The layer that found the error: 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// The kind of error.
    pub etype: u8,
    /// The error code.
    pub code: u8,
    /// M, D, R and the reserved bits.
    pub bits: u16,
    /// Everything behind: the length and headers of the segment in error.
    pub quoted: Vec<u8>,
}

impl Terminate {
    /// The length of the segment in error is there.
    pub const M: u16 = 0x8000;
    /// So is its DDP header.
    pub const D: u16 = 0x4000;
    /// So is its RDMAP header.
    pub const R: u16 = 0x2000;

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.layer << 4 | self.etype, self.code];
        bytes.extend(self.bits.to_be_bytes());
        bytes.extend(&self.quoted);
        bytes
    }

    /// The header in the bytes; `None` when there are fewer than four.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [first, code, high, low] = *bytes.first_chunk()?;
        let (layer, etype) = (first >> 4, first & 0x0f);
        let bits = u16::from_be_bytes([high, low]);
        Some(Self { layer, etype, code, bits, quoted: bytes[4..].to_vec() })
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn word(&mut self) -> u32 {
        let (word, rest) = self.0.split_first_chunk().expect("the length was checked");
        self.0 = rest;
        u32::from_be_bytes(*word)
    }

    fn long(&mut self) -> u64 {
        let (long, rest) = self.0.split_first_chunk().expect("the length was checked");
        self.0 = rest;
        u64::from_be_bytes(*long)
    }
}
