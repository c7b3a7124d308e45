// SPDX-License-Identifier: MIT OR Apache-2.0

//! ULPDUs made by hand from the tables of the RFCs, not by the code under test.

use alloc::vec::Vec;

pub(super) const WRITE: u8 = 0x40;
pub(super) const READ_REQUEST: u8 = 0x41;
pub(super) const READ_RESPONSE: u8 = 0x42;
pub(super) const SEND: u8 = 0x43;
pub(super) const SEND_INVALIDATE: u8 = 0x44;
pub(super) const SEND_SOLICITED: u8 = 0x45;
pub(super) const SEND_SOLICITED_INVALIDATE: u8 = 0x46;
pub(super) const TERMINATE: u8 = 0x47;
pub(super) const IMMEDIATE: u8 = 0x48;
pub(super) const IMMEDIATE_SOLICITED: u8 = 0x49;
pub(super) const ATOMIC_REQUEST: u8 = 0x4a;
pub(super) const ATOMIC_RESPONSE: u8 = 0x4b;

/// A segment for a tagged buffer (RFC 5041 §4.2).
pub(super) fn tagged(rdmap: u8, last: bool, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = alloc::vec![if last { 0xc1 } else { 0x81 }, rdmap];
    out.extend(stag.to_be_bytes());
    out.extend(to.to_be_bytes());
    out.extend(payload);
    out
}

/// A segment for an untagged buffer (RFC 5041 §4.3).
pub(super) fn untagged(
    rdmap: u8,
    last: bool,
    invalidate: u32,
    qn: u32,
    msn: u32,
    mo: u32,
    payload: &[u8],
) -> Vec<u8> {
    let mut out = alloc::vec![if last { 0x41 } else { 0x01 }, rdmap];
    for word in [invalidate, qn, msn, mo] {
        out.extend(word.to_be_bytes());
    }
    out.extend(payload);
    out
}

/// A Send of one segment.
pub(super) fn send(msn: u32, payload: &[u8]) -> Vec<u8> {
    untagged(SEND, true, 0, 0, msn, 0, payload)
}

/// Read Request header (RFC 5040 §4.4).
pub(super) fn read_header(sink: (u32, u64), size: u32, source: (u32, u64)) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(sink.0.to_be_bytes());
    out.extend(sink.1.to_be_bytes());
    out.extend(size.to_be_bytes());
    out.extend(source.0.to_be_bytes());
    out.extend(source.1.to_be_bytes());
    out
}

/// A Read Request with a sink that tells its MSN.
pub(super) fn read_request(msn: u32, size: u32, source_stag: u32, source_to: u64) -> Vec<u8> {
    let header =
        read_header((0x5151_0000u32.wrapping_add(msn), 0x99), size, (source_stag, source_to));
    untagged(READ_REQUEST, true, 0, 1, msn, 0, &header)
}

/// AOpCode and operands of a FetchAdd of `add`.
pub(super) fn fetch_add(add: u64) -> (u32, [u64; 4]) {
    (0, [add, 0, 0, u64::MAX])
}

/// Atomic Request header (RFC 7306 §5.2.1).
pub(super) fn atomic_header(id: u32, stag: u32, to: u64, op: (u32, [u64; 4])) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(op.0.to_be_bytes());
    out.extend(id.to_be_bytes());
    out.extend(stag.to_be_bytes());
    out.extend(to.to_be_bytes());
    for operand in op.1 {
        out.extend(operand.to_be_bytes());
    }
    out
}

/// An Atomic Request with a Request Identifier that tells its MSN.
pub(super) fn atomic_request(msn: u32, stag: u32, to: u64, op: (u32, [u64; 4])) -> Vec<u8> {
    let header = atomic_header(0x7171_0000 + msn, stag, to, op);
    untagged(ATOMIC_REQUEST, true, 0, 1, msn, 0, &header)
}

/// An Atomic Response (RFC 7306 §5.2.2).
pub(super) fn atomic_response(msn: u32, id: u32, original: u64) -> Vec<u8> {
    let mut payload = id.to_be_bytes().to_vec();
    payload.extend(original.to_be_bytes());
    untagged(ATOMIC_RESPONSE, true, 0, 3, msn, 0, &payload)
}

/// A Terminate with this payload.
pub(super) fn terminate(payload: &[u8]) -> Vec<u8> {
    untagged(TERMINATE, true, 0, 2, 1, 0, payload)
}

/// 32 bits at `at`.
pub(super) fn word(ulpdu: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(ulpdu[at..at + 4].try_into().expect("4 octets"))
}

/// 64 bits at `at`.
pub(super) fn long(ulpdu: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(ulpdu[at..at + 8].try_into().expect("8 octets"))
}
