// SPDX-License-Identifier: MIT OR Apache-2.0

//! Operations that one end of a connection carries out by itself in memory of the other: nothing is
//! sent for them. A capture has the FPDUs that they stand for, each with a comment that says so.
//! The end whose memory it is does not take part, and has nothing in a capture of its own.
//!
//! A connection with markers has these operations left out, and a comment says so: they have no
//! place among bytes that are counted.

use iwarp_os::{IoPart, IoPartMut};
use iwarp_proto::ddp::wire::{Header, Tagged, Untagged};
use iwarp_proto::mpa::wire::{CRC_FIELD, LENGTH_FIELD, pad_len};
use iwarp_proto::rdmap::wire::{AtomicRequest, AtomicResponse, NOT_SENT, Opcode, ReadRequest};
use iwarp_proto::types::{Mo, Msn, Qn};
use iwarp_types::{AtomicOp, Stag, TaggedOffset};

use super::file::Medium;
use super::frames::put_crc;
use super::stream::{RECEIVED, SENT, Source, Watch};

/// Payload of a segment.
const SEGMENT: usize = 32 << 10;

const COMMENT: &str = "carried out in the memory of the other end by the one that posted it: \
                       nothing was sent";

/// The place of an operation in the peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) stag: Stag,
    pub(crate) to: TaggedOffset,
}

impl Watch<'_> {
    /// The first `len` bytes of these were written there.
    pub(crate) fn wrote(&mut self, there: Remote, parts: &[IoPart<'_>], len: usize) {
        self.tagged(SENT, Opcode::Write, there, parts, len);
    }

    /// So many bytes from there were read into these.
    pub(crate) fn read(&mut self, there: Remote, room: &mut [IoPartMut<'_>], len: usize) {
        let Remote { stag, to } = there;
        // A name and a place of its own, as the response needs some.
        let sink = Remote { stag: Stag(0), to: TaggedOffset(0) };
        let request = ReadRequest {
            sink_stag: sink.stag,
            sink_to: sink.to,
            size: u32::try_from(len).unwrap_or(u32::MAX),
            source_stag: stag,
            source_to: to,
        };
        self.untagged(SENT, Opcode::ReadRequest, &request.octets());
        self.tagged(RECEIVED, Opcode::ReadResponse, sink, IoPartMut::filled(room), len);
    }

    /// An Atomic was carried out there, and found the value `before`.
    pub(crate) fn updated(&mut self, there: Remote, op: AtomicOp, before: u64) {
        let request = AtomicRequest::new(0, there.stag, there.to, op);
        self.untagged(SENT, Opcode::AtomicRequest, &request.octets());
        let response = AtomicResponse { request_id: 0, original: before };
        self.untagged(RECEIVED, Opcode::AtomicResponse, &response.octets());
    }

    fn tagged(
        &mut self,
        direction: usize,
        opcode: Opcode,
        there: Remote,
        parts: &[IoPart<'_>],
        len: usize,
    ) {
        let mut at = 0;
        loop {
            let piece = (len - at).min(SEGMENT);
            let header = Tagged {
                last: at + piece == len,
                rsvd_ulp: opcode.control(),
                stag: there.stag,
                to: there.to.advanced(at as u64),
            };
            self.fpdu(direction, &Header::Tagged(header), Source { parts, at }, piece);
            at += piece;
            if at == len {
                return;
            }
        }
    }

    fn untagged(&mut self, direction: usize, opcode: Opcode, payload: &[u8]) {
        let [a, b, c, d] = NOT_SENT;
        let header = Untagged {
            last: true,
            rsvd_ulp: [opcode.control(), a, b, c, d],
            qn: opcode.queue().unwrap_or(Qn::READ_REQUEST),
            // It has no number among the messages that are sent.
            msn: Msn(0),
            mo: Mo(0),
        };
        let parts = [IoPart::new(payload)];
        let source = Source { parts: &parts, at: 0 };
        self.fpdu(direction, &Header::Untagged(header), source, payload.len());
    }

    /// Adds a unit that stands between those of the stream; none while one of these is not whole.
    fn fpdu(&mut self, direction: usize, header: &Header, payload: Source<'_, '_>, len: usize) {
        if !self.is_between_units(direction) {
            return;
        }
        if self.has_markers(direction) {
            self.comment("left out before this: what one end carried out by itself".to_owned());
            return;
        }
        self.comment(COMMENT.to_owned());
        let ulpdu = header.wire_len() + len;
        let whole = LENGTH_FIELD + ulpdu + pad_len(ulpdu) + CRC_FIELD;
        let mut unit = vec![0; whole.min(self.snap())];
        let head = LENGTH_FIELD + header.wire_len();
        let mut first = [0; 64];
        first[..LENGTH_FIELD].copy_from_slice(&(ulpdu as u16).to_be_bytes());
        header.emit(&mut first[LENGTH_FIELD..]);
        let kept = head.min(unit.len());
        unit[..kept].copy_from_slice(&first[..kept]);
        let end = (head + len).min(unit.len());
        payload.copy(0, &mut unit[kept..end]);
        if unit.len() == whole {
            put_crc(&mut unit);
        }
        self.made_up(Medium::Memory, direction, &unit, whole);
    }
}
