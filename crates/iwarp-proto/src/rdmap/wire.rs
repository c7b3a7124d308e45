// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMAP control octet and headers (RFC 5040 §4, RFC 7306 §4 and §5).

use iwarp_types::{AtomicOp, Protocol, Reason, Stag, TaggedOffset};

use crate::ddp::wire::{TAGGED_LEN, UNTAGGED_LEN, be32, be64};
use crate::types::Qn;

/// Octets of a Read Request header (RFC 5040 §4.4).
pub const READ_REQUEST_LEN: usize = 28;
/// Octets of an Atomic Request header (RFC 7306 §5.2.1).
pub const ATOMIC_REQUEST_LEN: usize = 52;
/// Octets of an Atomic Response header (RFC 7306 §5.2.2, Figure 6; its §4 says 32, wrongly).
pub const ATOMIC_RESPONSE_LEN: usize = 12;
/// Octets of Immediate Data (RFC 7306 §6.3).
pub const IMMEDIATE_LEN: usize = 8;
/// Octets of the longest Terminate payload: control, segment length, both headers.
pub const TERMINATE_MAX_LEN: usize = 6 + UNTAGGED_LEN + READ_REQUEST_LEN;

/// The reserved octets of messages that were never sent, and stand in captures of this project for
/// operations that one end carries out by itself. Their MSN is 0.
pub const NOT_SENT: [u8; 4] = *b"mem:";

const VERSION_SHIFT: u8 = 6;
const VERSION: u8 = 1;
const OPCODE_MASK: u8 = 0x0f;

/// Message types (RFC 5040 §4.1, RFC 7306 §4.1), and two of our own that only ends of our kind use
/// with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0x0,
    /// RDMA Read Request.
    ReadRequest = 0x1,
    /// RDMA Read Response.
    ReadResponse = 0x2,
    /// Send.
    Send = 0x3,
    /// Send with Invalidate.
    SendInvalidate = 0x4,
    /// Send with Solicited Event.
    SendSolicited = 0x5,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate = 0x6,
    /// Terminate.
    Terminate = 0x7,
    /// Immediate Data.
    Immediate = 0x8,
    /// Immediate Data with Solicited Event.
    ImmediateSolicited = 0x9,
    /// Atomic Request.
    AtomicRequest = 0xa,
    /// Atomic Response.
    AtomicResponse = 0xb,
    /// Send with Immediate: ours, on a number that is unassigned (RFC 6580 §3.4). A Send whose
    /// Invalidate STag field carries four octets for the completion.
    SendImmediate = 0xc,
    /// Send with Immediate and Solicited Event: ours.
    SendImmediateSolicited = 0xd,
}

impl Opcode {
    /// Every opcode.
    pub const ALL: [Self; 14] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
        Self::Immediate,
        Self::ImmediateSolicited,
        Self::AtomicRequest,
        Self::AtomicResponse,
        Self::SendImmediate,
        Self::SendImmediateSolicited,
    ];

    /// The highest opcode of RFC 5040.
    pub const LAST_OF_RFC_5040: Self = Self::Terminate;
    /// The highest opcode of RFC 7306.
    pub const LAST_OF_RFC_7306: Self = Self::AtomicResponse;
    /// The highest of our own.
    pub const LAST_OF_OURS: Self = Self::SendImmediateSolicited;

    /// The opcode of a number, where it has one: of the RFCs, or of our own.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The queue of an untagged message; `None` for the tagged ones.
    pub const fn queue(self) -> Option<Qn> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::Send
            | Self::SendInvalidate
            | Self::SendSolicited
            | Self::SendSolicitedInvalidate
            | Self::Immediate
            | Self::ImmediateSolicited
            | Self::SendImmediate
            | Self::SendImmediateSolicited => Some(Qn::SEND),
            Self::ReadRequest | Self::AtomicRequest => Some(Qn::READ_REQUEST),
            Self::Terminate => Some(Qn::TERMINATE),
            Self::AtomicResponse => Some(Qn::ATOMIC_RESPONSE),
        }
    }

    /// True if delivery raises a solicited event.
    pub const fn solicited(self) -> bool {
        matches!(
            self,
            Self::SendSolicited
                | Self::SendSolicitedInvalidate
                | Self::ImmediateSolicited
                | Self::SendImmediateSolicited
        )
    }

    /// True if the message carries an STag to invalidate.
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }

    /// True if the Invalidate STag field carries immediate data.
    pub const fn carries_immediate(self) -> bool {
        self.is_own()
    }

    /// True if this is one of our own operations, in no RFC.
    pub const fn is_own(self) -> bool {
        matches!(self, Self::SendImmediate | Self::SendImmediateSolicited)
    }

    /// The control octet of a message of this type.
    pub const fn control(self) -> u8 {
        (VERSION << VERSION_SHIFT) | self as u8
    }
}

/// Splits a control octet into version and opcode number; the reserved bits are not looked at.
pub const fn split_control(control: u8) -> (u8, u8) {
    (control >> VERSION_SHIFT, control & OPCODE_MASK)
}

/// True if the version is the one that MPA negotiated (RFC 5040 §4.1).
pub const fn version_is_known(version: u8) -> bool {
    version == VERSION
}

/// Read Request header (RFC 5040 §4.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRequest {
    /// Buffer of the Read Response, copied into it unread.
    pub sink_stag: Stag,
    /// Offset of the Read Response.
    pub sink_to: TaggedOffset,
    /// Octets to read.
    pub size: u32,
    /// Buffer to read from.
    pub source_stag: Stag,
    /// Offset to read from.
    pub source_to: TaggedOffset,
}

impl ReadRequest {
    /// Reads a header of exactly the right length.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        if octets.len() != READ_REQUEST_LEN {
            return None;
        }
        Some(Self {
            sink_stag: Stag(be32(octets, 0)),
            sink_to: TaggedOffset(be64(octets, 4)),
            size: be32(octets, 12),
            source_stag: Stag(be32(octets, 16)),
            source_to: TaggedOffset(be64(octets, 20)),
        })
    }

    /// The header's octets.
    pub fn octets(&self) -> [u8; READ_REQUEST_LEN] {
        let mut out = [0; READ_REQUEST_LEN];
        out[0..4].copy_from_slice(&self.sink_stag.0.to_be_bytes());
        out[4..12].copy_from_slice(&self.sink_to.0.to_be_bytes());
        out[12..16].copy_from_slice(&self.size.to_be_bytes());
        out[16..20].copy_from_slice(&self.source_stag.0.to_be_bytes());
        out[20..28].copy_from_slice(&self.source_to.0.to_be_bytes());
        out
    }
}

/// AOpCode of FetchAdd.
pub const AOP_FETCH_ADD: u32 = 0;
/// AOpCode of CompareSwap.
pub const AOP_COMPARE_SWAP: u32 = 2;
const AOP_MASK: u32 = 0xf;

/// Atomic Request header (RFC 7306 §5.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicRequest {
    /// AOpCode: [`AOP_FETCH_ADD`] or [`AOP_COMPARE_SWAP`].
    pub operation: u32,
    /// Echoed in the response.
    pub request_id: u32,
    /// Target buffer.
    pub stag: Stag,
    /// Target offset.
    pub to: TaggedOffset,
    /// Add Data or Swap Data.
    pub add_or_swap: u64,
    /// Add Mask or Swap Mask.
    pub add_or_swap_mask: u64,
    /// Compare Data.
    pub compare: u64,
    /// Compare Mask.
    pub compare_mask: u64,
}

impl AtomicRequest {
    /// The header that asks for `op` (RFC 7306 §5.2.1).
    pub const fn new(request_id: u32, stag: Stag, to: TaggedOffset, op: AtomicOp) -> Self {
        let (operation, add_or_swap, add_or_swap_mask, compare, compare_mask) = match op {
            AtomicOp::FetchAdd { add, mask } => (AOP_FETCH_ADD, add, mask, 0, u64::MAX),
            AtomicOp::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                (AOP_COMPARE_SWAP, swap, swap_mask, compare, compare_mask)
            }
        };
        Self {
            operation,
            request_id,
            stag,
            to,
            add_or_swap,
            add_or_swap_mask,
            compare,
            compare_mask,
        }
    }

    /// Reads a header of exactly the right length; the reserved bits are not looked at.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        if octets.len() != ATOMIC_REQUEST_LEN {
            return None;
        }
        Some(Self {
            operation: be32(octets, 0) & AOP_MASK,
            request_id: be32(octets, 4),
            stag: Stag(be32(octets, 8)),
            to: TaggedOffset(be64(octets, 12)),
            add_or_swap: be64(octets, 20),
            add_or_swap_mask: be64(octets, 28),
            compare: be64(octets, 36),
            compare_mask: be64(octets, 44),
        })
    }

    /// The header's octets.
    pub fn octets(&self) -> [u8; ATOMIC_REQUEST_LEN] {
        let mut out = [0; ATOMIC_REQUEST_LEN];
        out[0..4].copy_from_slice(&self.operation.to_be_bytes());
        out[4..8].copy_from_slice(&self.request_id.to_be_bytes());
        out[8..12].copy_from_slice(&self.stag.0.to_be_bytes());
        out[12..20].copy_from_slice(&self.to.0.to_be_bytes());
        out[20..28].copy_from_slice(&self.add_or_swap.to_be_bytes());
        out[28..36].copy_from_slice(&self.add_or_swap_mask.to_be_bytes());
        out[36..44].copy_from_slice(&self.compare.to_be_bytes());
        out[44..52].copy_from_slice(&self.compare_mask.to_be_bytes());
        out
    }
}

/// Atomic Response header (RFC 7306 §5.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicResponse {
    /// Request Identifier of the request.
    pub request_id: u32,
    /// The value before the operation.
    pub original: u64,
}

impl AtomicResponse {
    /// Reads a header of exactly the right length.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        if octets.len() != ATOMIC_RESPONSE_LEN {
            return None;
        }
        Some(Self { request_id: be32(octets, 0), original: be64(octets, 4) })
    }

    /// The header's octets.
    pub fn octets(&self) -> [u8; ATOMIC_RESPONSE_LEN] {
        let mut out = [0; ATOMIC_RESPONSE_LEN];
        out[0..4].copy_from_slice(&self.request_id.to_be_bytes());
        out[4..12].copy_from_slice(&self.original.to_be_bytes());
        out
    }
}

/// Layer, error type and error code of a Terminate (RFC 5040 §4.8).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TerminateCode {
    /// 0 RDMAP, 1 DDP, 2 the transport (MPA).
    pub layer: u8,
    /// Error type within the layer.
    pub etype: u8,
    /// Error code within the type.
    pub code: u8,
}

impl TerminateCode {
    /// The name that the RFCs give it (RFC 5040 §4.8, RFC 5041 §7.2, RFC 5044 §8, RFC 6581 §8, RFC
    /// 7306 §8).
    pub const fn name(&self) -> &'static str {
        match (self.layer, self.etype, self.code) {
            (0, 0, _) => "RDMAP: local catastrophic error",
            (0, 1, 0x00) => "RDMAP remote protection error: invalid STag",
            (0, 1, 0x01) => "RDMAP remote protection error: base or bounds violation",
            (0, 1, 0x02) => "RDMAP remote protection error: access rights violation",
            (0, 1, 0x03) => "RDMAP remote protection error: STag not associated with the stream",
            (0, 1, 0x04) => "RDMAP remote protection error: TO wrap",
            (0, 1, 0x09) => "RDMAP remote protection error: STag cannot be invalidated",
            (0, 1, _) => "RDMAP remote protection error",
            (0, 2, 0x05) => "RDMAP remote operation error: invalid RDMAP version",
            (0, 2, 0x06) => "RDMAP remote operation error: unexpected opcode",
            (0, 2, 0x07) => "RDMAP remote operation error: catastrophic, localized to the stream",
            (0, 2, 0x08) => "RDMAP remote operation error: catastrophic, global",
            (0, 2, 0x09) => "RDMAP remote operation error: STag cannot be invalidated",
            (0, 2, _) => "RDMAP remote operation error",
            (0, ..) => "RDMAP error",
            (1, 0, _) => "DDP: local catastrophic error",
            (1, 1, 0x00) => "DDP tagged buffer error: invalid STag",
            (1, 1, 0x01) => "DDP tagged buffer error: base or bounds violation",
            (1, 1, 0x02) => "DDP tagged buffer error: STag not associated with the stream",
            (1, 1, 0x03) => "DDP tagged buffer error: TO wrap",
            (1, 1, 0x04) => "DDP tagged buffer error: invalid DDP version",
            (1, 1, _) => "DDP tagged buffer error",
            (1, 2, 0x01) => "DDP untagged buffer error: invalid QN",
            (1, 2, 0x02) => "DDP untagged buffer error: no buffer available",
            (1, 2, 0x03) => "DDP untagged buffer error: MSN range is not valid",
            (1, 2, 0x04) => "DDP untagged buffer error: invalid MO",
            (1, 2, 0x05) => "DDP untagged buffer error: message too long for the buffer",
            (1, 2, 0x06) => "DDP untagged buffer error: invalid DDP version",
            (1, 2, _) => "DDP untagged buffer error",
            (1, ..) => "DDP error",
            (2, 0, 0x01) => "MPA: TCP connection closed, terminated or lost",
            (2, 0, 0x02) => "MPA: CRC error",
            (2, 0, 0x03) => "MPA: marker and ULPDU length do not match",
            (2, 0, 0x04) => "MPA: invalid Request or Reply frame",
            (2, 0, 0x05) => "MPA: local catastrophic error",
            (2, 0, 0x06) => "MPA: insufficient IRD resources",
            (2, 0, 0x07) => "MPA: no matching RTR option",
            (2, 0, _) => "MPA error",
            (2, 1, 0x01) => "records: stream ended within a record",
            (2, 1, 0x02) => "records: record too long",
            (2, ..) => "error of the layer below DDP",
            _ => "unknown error",
        }
    }

    /// The code in the words of every wire.
    pub const fn reason(&self) -> Reason {
        let code = (self.layer as u32) << 12 | ((self.etype & 0xf) as u32) << 8 | self.code as u32;
        let reason = Reason::new(Protocol::Iwarp, code, self.name());
        match (self.layer, self.etype, self.code) {
            (1, 2, 0x02) => reason.for_want_of_a_receive(),
            // Remote protection, and of DDP's tagged buffers all but the version.
            (0, 1, _) | (1, 1, 0x00..=0x03) => reason.for_a_refused_access(),
            (0 | 1, 2, _) | (1, 1, 0x04) => reason.for_an_invalid_request(),
            _ => reason,
        }
    }
}

impl From<TerminateCode> for Reason {
    fn from(code: TerminateCode) -> Self {
        code.reason()
    }
}

impl core::fmt::Debug for TerminateCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}/{:02x}", self.layer, self.etype, self.code)
    }
}

impl core::fmt::Display for TerminateCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self, f)
    }
}

const HAS_LENGTH: u8 = 0x80;
const HAS_DDP_HEADER: u8 = 0x40;
const HAS_RDMA_HEADER: u8 = 0x20;

/// Terminate header (RFC 5040 §4.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terminate {
    /// The error.
    pub code: TerminateCode,
    /// The segment that was at fault, where there is one.
    pub segment: Option<TerminatedSegment>,
}

/// The part of a Terminate that names the segment at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TerminatedSegment {
    /// Octets of the ULPDU.
    pub length: u16,
    /// Its DDP header; only the octets that its T bit calls for count.
    pub ddp_header: [u8; UNTAGGED_LEN],
    /// Its Read Request header, where the fault lies in one.
    pub rdma_header: Option<[u8; READ_REQUEST_LEN]>,
}

impl TerminatedSegment {
    fn ddp_len(&self) -> usize {
        if self.ddp_header[0] & 0x80 != 0 { TAGGED_LEN } else { UNTAGGED_LEN }
    }
}

impl Terminate {
    /// Writes the header into `out` and returns its length.
    pub fn emit(&self, out: &mut [u8; TERMINATE_MAX_LEN]) -> usize {
        out.fill(0);
        out[0] = (self.code.layer << 4) | (self.code.etype & 0x0f);
        out[1] = self.code.code;
        let Some(segment) = &self.segment else { return 4 };
        out[2] = HAS_LENGTH | HAS_DDP_HEADER;
        out[4..6].copy_from_slice(&segment.length.to_be_bytes());
        let mut end = 6 + segment.ddp_len();
        out[6..end].copy_from_slice(&segment.ddp_header[..segment.ddp_len()]);
        if let Some(rdma) = &segment.rdma_header {
            out[2] |= HAS_RDMA_HEADER;
            out[end..end + READ_REQUEST_LEN].copy_from_slice(rdma);
            end += READ_REQUEST_LEN;
        }
        end
    }

    /// Reads a Terminate as far as it goes. M, D and R may come in any combination, and any part
    /// but the code may be missing; `None` only without the code.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let [first, code, flags, _, rest @ ..] = octets else {
            return match octets {
                [first, code, ..] => Some(Self { code: code_of(*first, *code), segment: None }),
                _ => None,
            };
        };
        Some(Self { code: code_of(*first, *code), segment: Self::parse_segment(*flags, rest) })
    }

    fn parse_segment(flags: u8, rest: &[u8]) -> Option<TerminatedSegment> {
        if flags & HAS_DDP_HEADER == 0 {
            return None;
        }
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let mut segment = TerminatedSegment {
            length: u16::from_be_bytes(*length),
            ddp_header: [0; UNTAGGED_LEN],
            rdma_header: None,
        };
        segment.ddp_header[0] = *rest.first()?;
        let ddp_len = segment.ddp_len();
        segment.ddp_header[..ddp_len].copy_from_slice(rest.get(..ddp_len)?);
        if flags & HAS_RDMA_HEADER != 0 {
            segment.rdma_header = rest[ddp_len..].first_chunk().copied();
        }
        Some(segment)
    }
}

const fn code_of(first: u8, code: u8) -> TerminateCode {
    TerminateCode { layer: first >> 4, etype: first & 0x0f, code }
}
