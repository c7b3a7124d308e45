// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames of iWARP.

use std::convert::Infallible;

use iwarp_proto::ddp::wire::{Tagged, Untagged};
use iwarp_proto::framing::Frame as _;
use iwarp_proto::mpa::tx::Framer;
use iwarp_proto::mpa::wire::{EnhancedData, Frame, FrameKind};
use iwarp_proto::rdmap::wire::{Opcode, ReadRequest, TERMINATE_MAX_LEN, Terminate, TerminateCode};
use iwarp_proto::types::{Mo, Msn, Qn};
use iwarp_types::{Digest, Stag, TaggedOffset};

/// The terms of a start-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) rev: u8,
    pub(crate) crc: bool,
    pub(crate) markers: bool,
    pub(crate) ird: u16,
    pub(crate) rejected: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self { rev: 2, crc: true, markers: false, ird: 2, rejected: false }
    }
}

fn start_up(kind: FrameKind, terms: &Terms, private_data: &[u8]) -> Vec<u8> {
    let enhanced = (terms.rev > 1).then_some(EnhancedData {
        ird: terms.ird,
        ord: terms.ird,
        ..EnhancedData::default()
    });
    let Terms { rev, crc, markers, rejected, .. } = *terms;
    Frame { kind, markers, crc, rejected, rev, enhanced, private_data }.encode().unwrap()
}

pub(crate) fn request(terms: &Terms) -> Vec<u8> {
    start_up(FrameKind::Request, terms, b"hello")
}

pub(crate) fn reply(terms: &Terms) -> Vec<u8> {
    start_up(FrameKind::Reply, terms, b"")
}

/// An FPDU with a CRC and without markers.
pub(crate) fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
    fpdu.extend_from_slice(ulpdu);
    fpdu.resize(fpdu.len().next_multiple_of(4), 0);
    let mut crc = Digest::crc32c();
    crc.update(&fpdu);
    fpdu.extend_from_slice(&crc.wire());
    fpdu
}

/// An FPDU whose field for a CRC, which is not in use, holds anything.
pub(crate) fn unsummed(ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = fpdu(ulpdu);
    *fpdu.last_mut().unwrap() ^= 0x55;
    fpdu
}

/// ULPDUs framed with markers.
pub(crate) fn marked(ulpdus: &[Vec<u8>]) -> Vec<u8> {
    let mut framer = Framer::new(true, true);
    let mut stream = Vec::new();
    for ulpdu in ulpdus {
        let from = stream.len();
        stream.resize(from + framer.frame_len(ulpdu.len()), 0);
        let fill = |offset: usize, to: &mut [u8], crc: Option<&mut Digest>| {
            to.copy_from_slice(&ulpdu[14 + offset..][..to.len()]);
            if let Some(crc) = crc {
                crc.update(to);
            }
            Ok::<_, Infallible>(())
        };
        framer.write(&mut stream[from..], &ulpdu[..14], ulpdu.len() - 14, fill).unwrap();
    }
    stream
}

/// An untagged segment.
pub(crate) fn untagged(
    control: u8,
    (qn, msn, mo): (u32, u32, u32),
    last: bool,
    payload: &[u8],
) -> Vec<u8> {
    let rsvd_ulp = [control, 0, 0, 0, 0];
    let header = Untagged { last, rsvd_ulp, qn: Qn(qn), msn: Msn(msn), mo: Mo(mo) };
    [&header.octets()[..], payload].concat()
}

/// A tagged segment.
pub(crate) fn tagged(
    opcode: Opcode,
    (stag, to): (u32, u64),
    last: bool,
    payload: &[u8],
) -> Vec<u8> {
    let header =
        Tagged { last, rsvd_ulp: opcode.control(), stag: Stag(stag), to: TaggedOffset(to) };
    [&header.octets()[..], payload].concat()
}

/// A Send of one segment.
pub(crate) fn send(msn: u32, payload: &[u8]) -> Vec<u8> {
    untagged(Opcode::Send.control(), (0, msn, 0), true, payload)
}

/// A Read of `size` bytes to STag 7, TO 0.
pub(crate) fn read(msn: u32, size: u32) -> Vec<u8> {
    let header = ReadRequest {
        sink_stag: Stag(7),
        sink_to: TaggedOffset(0),
        size,
        source_stag: Stag(0x1234),
        source_to: TaggedOffset(0x40),
    };
    untagged(Opcode::ReadRequest.control(), (1, msn, 0), true, &header.octets())
}

/// The whole answer to [`read`].
pub(crate) fn response(payload: &[u8]) -> Vec<u8> {
    tagged(Opcode::ReadResponse, (7, 0), true, payload)
}

/// A Terminate.
pub(crate) fn terminate(layer: u8, etype: u8, code: u8) -> Vec<u8> {
    let mut out = [0; TERMINATE_MAX_LEN];
    let code = TerminateCode { layer, etype, code };
    let len = Terminate { code, segment: None }.emit(&mut out);
    untagged(Opcode::Terminate.control(), (2, 1, 0), true, &out[..len])
}
