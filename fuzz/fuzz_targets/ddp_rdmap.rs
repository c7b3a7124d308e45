// SPDX-License-Identifier: MIT OR Apache-2.0

//! DDP and RDMAP headers from arbitrary octets: reading them never panics, and a header written
//! again reads as before. No stream takes an opcode that it does not have.
#![no_main]

use iwarp_proto::ddp::Header;
use iwarp_proto::ddp::wire::UNTAGGED_LEN;
use iwarp_proto::rdmap::rx;
use iwarp_proto::rdmap::wire::{
    AtomicRequest, AtomicResponse, Opcode, ReadRequest, TERMINATE_MAX_LEN, Terminate, split_control,
};
use libfuzzer_sys::fuzz_target;

/// Reserved bits of the DDP control octet: dropped on the way (RFC 5041 §4.1).
const RESERVED: u8 = 0x3c;

fuzz_target!(|ulpdu: &[u8]| {
    let rest = match Header::parse(ulpdu) {
        Ok(header) => {
            let len = header.wire_len();
            assert_eq!(Header::len_of(ulpdu), Some(len));
            let mut out = [0; UNTAGGED_LEN];
            assert_eq!(header.emit(&mut out), len);
            assert_eq!(out[0], ulpdu[0] & !RESERVED);
            assert_eq!(out[1..len], ulpdu[1..len]);
            opcodes(&header);
            &ulpdu[len..]
        }
        Err(_) => ulpdu,
    };
    let control = ulpdu.get(1).copied().unwrap_or(0);
    let (version, number) = split_control(control);
    assert!(version < 4 && number < 16);
    if let Some(opcode) = Opcode::from_number(number) {
        assert_eq!(split_control(opcode.control()).1, number);
    }
    messages(rest);
});

/// More opcodes on a stream change nothing about those that it had.
fn opcodes(header: &Header) {
    let with = |highest| rx::opcode(header, highest).ok();
    let [first, second, all] =
        [Opcode::LAST_OF_RFC_5040, Opcode::LAST_OF_RFC_7306, Opcode::LAST_OF_OURS].map(|highest| {
            let opcode = with(highest);
            assert!(opcode.is_none_or(|opcode| opcode as u8 <= highest as u8));
            opcode
        });
    assert!(first.is_none() || first == second);
    assert!(second.is_none() || second == all);
}

/// The headers behind DDP's, each read without regard to the opcode.
fn messages(octets: &[u8]) {
    if let Some(request) = ReadRequest::parse(octets) {
        assert_eq!(request.octets(), octets);
    }
    if let Some(request) = AtomicRequest::parse(octets) {
        let written = request.octets();
        assert_eq!(written[4..], octets[4..]);
        assert_eq!(AtomicRequest::parse(&written), Some(request));
    }
    if let Some(response) = AtomicResponse::parse(octets) {
        assert_eq!(response.octets(), octets);
    }
    if let Some(terminate) = Terminate::parse(octets) {
        let mut out = [0; TERMINATE_MAX_LEN];
        let len = terminate.emit(&mut out);
        assert_eq!(Terminate::parse(&out[..len]), Some(terminate));
    } else {
        assert!(octets.len() < 4);
    }
}
