// SPDX-License-Identifier: MIT OR Apache-2.0

//! Immediate Data (RFC 7306 §6). It goes into the completion, as programs for other transports
//! have it: the receive's buffer stays as it is and may be empty.

use super::octets::{self, send, untagged, word};
use super::*;

fn immediate(solicited: bool, data: [u8; 8]) -> SendOp {
    SendOp::Immediate { solicited, data }
}

fn received(wr_id: u64, solicited: bool, data: [u8; 8]) -> WorkCompletion {
    let mut completion = WorkCompletion::new(wr_id, QP, WcOp::RecvImmediate, WcStatus::Success);
    completion.byte_len = 8;
    completion.immediate = Some(data);
    completion.solicited = solicited;
    completion
}

/// Covers: EXT-7306-4.1-03, EXT-7306-4.1-04, EXT-7306-4.2-01, EXT-7306-6.3-01,
/// EXT-7306-6.3-04, EXT-7306-6.3-05, EXT-7306-6.3-06
#[test]
fn immediate_data_is_eight_octets_on_queue_zero_in_the_msn_order_of_sends() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, SEND, &[]);
    raw.end.post(2, immediate(false, *b"12345678"), &[]);
    raw.end.post(3, immediate(true, *b"abcdefgh"), &[]);
    raw.end.post(4, SEND, &[]);
    assert_eq!(
        raw.back(),
        [
            untagged(octets::SEND, true, 0, 0, 1, 0, &[]),
            untagged(octets::IMMEDIATE, true, 0, 0, 2, 0, b"12345678"),
            untagged(octets::IMMEDIATE_SOLICITED, true, 0, 0, 3, 0, b"abcdefgh"),
            untagged(octets::SEND, true, 0, 0, 4, 0, &[]),
        ]
    );
    assert_eq!(raw.end.completions().len(), 4);
}

/// Covers: EXT-7306-6.3-02, EXT-7306-6.3-03, EXT-7306-6.4-01, EXT-7306-4.1-03
#[test]
fn corner_65_immediate_data_consumes_a_receive_and_leaves_its_buffer_alone() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[]);
    raw.end.receive(2, &[local(0, 64)]);
    raw.end.receive(3, &[local(8, 8)]);
    raw.end.receive(4, &[local(0, 4)]);
    raw.send(&untagged(octets::IMMEDIATE, true, 0xdead_beef, 0, 1, 0, b"12345678"));
    raw.send(&untagged(octets::IMMEDIATE_SOLICITED, true, 0, 0, 2, 0, b"abcdefgh"));
    raw.send(&send(3, b"send"));
    raw.send(&untagged(octets::IMMEDIATE, true, 0, 0, 4, 0, b"ABCDEFGH"));
    let completions = raw.end.completions();
    assert_eq!(completions[0], received(1, false, *b"12345678"));
    assert_eq!(completions[1], received(2, true, *b"abcdefgh"));
    assert_eq!((completions[2].wr_id, completions[2].op), (3, WcOp::Recv));
    assert_eq!(completions[2].immediate, None);
    assert_eq!(completions[3], received(4, false, *b"ABCDEFGH"));
    assert_eq!(raw.end.host.touches(), [Touch::Placed { stag: LOCAL, len: 4 }]);
}

/// Covers: EXT-7306-6.3-07, EXT-7306-4.2-01, EXT-7306-6.1-01
#[test]
fn corner_64_immediate_data_of_another_length_ends_the_stream() {
    for len in [0, 1, 7, 9, 16, 200] {
        let mut raw = Raw::new();
        raw.end.receive(1, &[local(0, 64)]);
        let ulpdu = untagged(octets::IMMEDIATE, true, 0, 0, 1, 0, &vec![5; len]);
        let code = if len < 8 { [0x02, 0x07] } else { [0x12, 0x05] };
        assert_eq!(raw.refuse(&ulpdu), quoting(code, 18 + len, &ulpdu[..18], &[]), "{len}");
        let events = raw.end.events();
        assert!(matches!(events[0], Event::Fault(_)));
        let completions: Vec<_> = events.into_iter().filter_map(completion).collect();
        assert_eq!(outcomes(&completions), [(1, WcStatus::Flushed, WcOp::Recv)]);
    }
    // In pieces: eight octets, but not of one segment.
    let mut raw = Raw::new();
    raw.end.receive(1, &[]);
    let ulpdu = untagged(octets::IMMEDIATE, false, 0, 0, 1, 0, b"12345678");
    assert_eq!(raw.refuse(&ulpdu), quoting([0x02, 0x07], 26, &ulpdu[..18], &[]));
}

/// Covers: EXT-7306-6.1-01
#[test]
fn immediate_data_without_a_receive_ends_the_stream_and_the_sender_hears_of_it() {
    let mut pair = Pair::new();
    pair.a.post(1, immediate(false, [1; 8]), &[]);
    pair.run();
    assert!(matches!(pair.b.events()[..], [Event::Fault(_)]));
    let code = crate::rdmap::wire::TerminateCode { layer: 1, etype: 2, code: 2 };
    assert!(pair.a.events().contains(&Event::Terminated(code)));
}

/// Covers: EXT-7306-7-05
#[test]
fn immediate_data_behind_a_write_completes_when_the_write_was_placed() {
    let mut pair = Pair::new();
    pair.b.receive(1, &[]);
    pair.a.host.fill(LOCAL, 0, &pattern(5000, 1));
    pair.a.post(1, write_op(0), &[local(0, 5000)]);
    pair.a.post(2, immediate(false, [2; 8]), &[]);
    let stream = pair.a.take_all();
    let mut completed = false;
    for octet in stream {
        pair.b.arrive(&[octet]);
        if !pair.b.completions().is_empty() {
            completed = true;
            assert_eq!(pair.b.host.octets(OPEN)[..5000], pattern(5000, 1));
        }
    }
    assert!(completed);
}

/// Covers: EXT-7306-7-06
#[test]
fn immediate_data_behind_a_read_completes_before_the_read_is_answered() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[]);
    raw.send(&octets::read_request(1, 4, OPEN, OPEN_BASE));
    raw.send(&untagged(octets::IMMEDIATE, true, 0, 0, 1, 0, b"12345678"));
    assert_eq!(raw.end.completions(), [received(1, false, *b"12345678")]);
    assert_eq!(word(&raw.back()[0], 2), 0x5151_0001);
}
