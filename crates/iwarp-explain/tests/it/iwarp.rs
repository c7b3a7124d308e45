// SPDX-License-Identifier: MIT OR Apache-2.0

//! iWARP: clean connections, and one thing wrong in each.

use iwarp_explain::Outcome::{Fine, Troubled, Wrong};
use iwarp_proto::rdmap::wire::Opcode;

use crate::made::frames::{self, Terms, fpdu};
use crate::made::stream::Stream;
use crate::made::{assert_fine, assert_found, only, operations, report};

/// A connection with one operation of each kind.
fn busy(terms: &Terms) -> Stream {
    let mut stream = Stream::started_by(terms);
    let fpdu = if terms.crc { frames::fpdu } else { frames::unsummed };
    stream.send(0, &fpdu(&frames::send(1, b"hello")));
    stream.send(1, &fpdu(&frames::read(1, 64)));
    stream.send(0, &fpdu(&frames::response(&[1; 64])));
    let first = frames::tagged(Opcode::Write, (9, 0), false, &[2; 512]);
    let last = frames::tagged(Opcode::Write, (9, 512), true, &[3; 100]);
    stream.send(1, &[fpdu(&first), fpdu(&last)].concat());
    let first = frames::untagged(Opcode::Send.control(), (0, 1, 0), false, &[4; 900]);
    let last = frames::untagged(Opcode::Send.control(), (0, 1, 900), true, &[4; 10]);
    stream.send(1, &fpdu(&first));
    stream.send(1, &fpdu(&last));
    stream
}

#[test]
fn a_clean_connection_is_fine() {
    for crc in [true, false] {
        for rev in [1, 2] {
            let mut stream = busy(&Terms { crc, rev, ..Terms::default() });
            stream.close();
            let report = assert_fine(&stream.packets);
            let connection = only(&report);
            assert_eq!(connection.ends[0].address, "10.0.0.1:40000");
            assert!(connection.findings.is_empty());
            let expected = [
                (0, "Send", 1, 5),
                (0, "RDMA Read Response", 1, 64),
                (1, "RDMA Read Request", 1, 64),
                (1, "RDMA Write", 1, 612),
                (1, "Send", 1, 910),
            ];
            assert_eq!(operations(connection), expected);
        }
    }
}

#[test]
fn a_clean_connection_with_markers_is_fine() {
    let mut stream = Stream::started_by(&Terms { markers: true, ..Terms::default() });
    let sends: Vec<Vec<u8>> = (1..9).map(|msn| frames::send(msn, &[7; 300])).collect();
    stream.send(0, &frames::marked(&sends));
    stream.close();
    assert_fine(&stream.packets);
}

#[test]
fn a_connection_seen_from_the_middle_on_is_read() {
    for crc in [true, false] {
        let whole = busy(&Terms { crc, ..Terms::default() });
        let report = assert_fine(&whole.packets[7..]);
        let kinds = only(&report).operations.len();
        assert!(kinds >= 4, "{}", iwarp_explain::text::text(&report));
        assert!(iwarp_explain::text::text(&report).contains("found by trying"));
    }
}

#[test]
fn markers_are_found_from_the_middle_on() {
    let mut stream = Stream::middle();
    let sends: Vec<Vec<u8>> = (1..9).map(|msn| frames::send(msn, &[7; 300])).collect();
    let first = frames::marked(&sends[..3]).len();
    stream.send(0, &frames::marked(&sends)[first..]);
    let report = assert_fine(&stream.packets);
    assert_eq!(only(&report).operations[0].messages, 5);
}

#[test]
fn other_protocols_are_left_alone() {
    let mut stream = Stream::open();
    stream.send(0, b"GET / HTTP/1.1\r\n\r\n");
    stream.send(1, &[0; 3000]);
    stream.close();
    let report = report(&stream.packets);
    assert!(report.connections.is_empty());
    assert_eq!(report.other.tcp_connections, 1);
    let mut stream = Stream::middle();
    stream.send(0, &[0x17; 1000]);
    let report = crate::made::report(&stream.packets);
    assert_eq!(report.other.tcp_unknown.len(), 1);
}

#[test]
fn a_bad_crc_is_named() {
    let mut stream = Stream::started();
    let mut frame = fpdu(&frames::send(1, b"hello"));
    frame[25] ^= 1;
    stream.send(0, &frame);
    stream.send(1, &fpdu(&frames::terminate(2, 0, 2)));
    stream.reset(1);
    assert_found(&stream.packets, Wrong, "bad-crc", &["CRC", "the initiator"]);
}

#[test]
fn a_gap_of_message_numbers_is_named() {
    let mut stream = Stream::started();
    stream.send(0, &fpdu(&frames::send(1, b"one")));
    stream.send(0, &fpdu(&frames::send(3, b"three")));
    stream.close();
    assert_found(&stream.packets, Wrong, "msn-gap", &["message 3", "message 2 was due"]);
}

#[test]
fn a_read_that_is_never_answered_is_named() {
    let mut stream = Stream::started();
    stream.send(0, &fpdu(&frames::read(1, 4096)));
    stream.wait(1200);
    stream.close();
    let words = ["the responder never sent", "Read Response", "4,096 bytes", "1.20 s"];
    assert_found(&stream.packets, Wrong, "read-unanswered", &words);
}

#[test]
fn a_read_that_is_answered_late_is_a_stall_of_the_responder() {
    let mut stream = Stream::started();
    stream.send(0, &fpdu(&frames::read(1, 64)));
    stream.wait(1200);
    stream.send(1, &fpdu(&frames::response(&[1; 64])));
    stream.close();
    let words = ["the responder owed the Read Response", "1.20 s"];
    assert_found(&stream.packets, Troubled, "stall", &words);
}

#[test]
fn terminates_are_told_in_words() {
    let codes = [
        ((0, 1, 0x00), ["invalid STag", "does not exist", "the initiator caused"]),
        ((1, 1, 0x01), ["base or bounds", "beyond the end", "the initiator caused"]),
        ((0, 1, 0x02), ["access rights", "does not grant", "the initiator caused"]),
        ((1, 2, 0x02), ["no buffer available", "no receive was posted", "itself is to blame"]),
        ((1, 2, 0x05), ["too long", "longer than the receive", "the initiator caused"]),
    ];
    for ((layer, etype, code), words) in codes {
        let mut stream = Stream::started();
        stream.send(0, &fpdu(&frames::send(1, b"hello")));
        stream.send(1, &fpdu(&frames::terminate(layer, etype, code)));
        stream.close();
        assert_found(&stream.packets, Wrong, "terminate", &words);
    }
}

#[test]
fn a_reset_in_mid_message_is_named() {
    let mut stream = Stream::started();
    let frame = fpdu(&frames::send(1, &[7; 1000]));
    stream.send(0, &frame[..500]);
    stream.reset(0);
    let words = ["the initiator reset", "in mid message", "500 of 1024 bytes"];
    assert_found(&stream.packets, Wrong, "reset", &words);
}

#[test]
fn a_closed_window_is_named() {
    let mut stream = Stream::started();
    stream.send_only(0, &fpdu(&frames::send(1, &[7; 1000])));
    stream.window[1] = 0;
    stream.ack(1);
    for _ in 0..4 {
        stream.wait(300);
        // A probe, and its answer.
        stream.next[0] -= 1;
        stream.ack(0);
        stream.next[0] += 1;
        stream.ack(1);
    }
    stream.window[1] = 60_000;
    stream.ack(1);
    stream.send(0, &fpdu(&frames::send(2, &[7; 100])));
    stream.close();
    let words = ["the responder's TCP window was closed for 1.2", "the initiator had to wait"];
    assert_found(&stream.packets, Troubled, "zero-window", &words);
}

#[test]
fn a_wrong_marker_is_named() {
    let mut stream = Stream::started_by(&Terms { markers: true, crc: false, ..Terms::default() });
    let sends: Vec<Vec<u8>> = (1..9).map(|msn| frames::send(msn, &[7; 300])).collect();
    let mut bytes = frames::marked(&sends);
    bytes[512 + 2] ^= 0x01;
    stream.send(0, &bytes);
    stream.close();
    assert_found(&stream.packets, Wrong, "wrong-marker", &["marker", "the initiator"]);
}

#[test]
fn a_refused_start_up_is_named() {
    let terms = Terms::default();
    let mut stream = Stream::open();
    stream.send(0, &frames::request(&terms));
    stream.send(1, &frames::reply(&Terms { rejected: true, ..terms }));
    stream.close();
    let words = ["the responder refused the connection", "R set"];
    assert_found(&stream.packets, Wrong, "rejected", &words);
}

#[test]
fn a_start_up_that_stops_is_named() {
    let mut stream = Stream::open();
    stream.send(0, &frames::request(&Terms::default()));
    stream.wait(5000);
    stream.close();
    let words = ["the start-up stopped", "never answered", "5.00 s"];
    assert_found(&stream.packets, Wrong, "start-up-unanswered", &words);
    let mut stream = Stream::open();
    stream.send(0, &frames::request(&Terms::default()));
    stream.send(1, &frames::reply(&Terms::default())[..10]);
    stream.reset(1);
    let words = ["but for 10 bytes", "the responder reset"];
    assert_found(&stream.packets, Wrong, "start-up-unanswered", &words);
}

#[test]
fn more_reads_than_the_responder_takes_are_named() {
    let mut stream = Stream::started();
    for msn in 1..4 {
        stream.send(0, &fpdu(&frames::read(msn, 64)));
    }
    for _ in 1..4 {
        stream.send(1, &fpdu(&frames::response(&[1; 64])));
    }
    stream.close();
    let words = ["3 Reads or Atomics", "the responder's IRD is 2"];
    assert_found(&stream.packets, Wrong, "ird-exceeded", &words);
}

#[test]
fn a_fin_amid_a_message_is_named() {
    let mut stream = Stream::started();
    let first = frames::untagged(Opcode::Send.control(), (0, 1, 0), false, &[4; 900]);
    stream.send(0, &fpdu(&first));
    stream.close();
    let words = ["the initiator closed its stream", "amid a message", "900 bytes"];
    assert_found(&stream.packets, Wrong, "fin-in-message", &words);
}

#[test]
fn a_wrong_message_offset_is_named() {
    let mut stream = Stream::started();
    let first = frames::untagged(Opcode::Send.control(), (0, 1, 0), false, &[4; 900]);
    let last = frames::untagged(Opcode::Send.control(), (0, 1, 901), true, &[4; 10]);
    stream.send(0, &fpdu(&first));
    stream.send(0, &fpdu(&last));
    stream.close();
    assert_found(&stream.packets, Wrong, "wrong-offset", &["MO", "901", "ended at 900"]);
}

#[test]
fn headers_that_do_not_exist_are_named() {
    let cases = [
        (frames::untagged(0x4f, (0, 1, 0), true, b"?"), "reserved-opcode", "opcode 0xf"),
        (frames::untagged(0x83, (0, 1, 0), true, b"?"), "rdmap-version", "version 2"),
        (frames::untagged(0x43, (1, 1, 0), true, b"?"), "wrong-queue", "queue 1; its queue is 0"),
        (frames::untagged(0x40, (0, 1, 0), true, b"?"), "unexpected-opcode", "RDMA Write"),
    ];
    for (ulpdu, kind, words) in cases {
        let mut stream = Stream::started();
        stream.send(0, &fpdu(&ulpdu));
        stream.close();
        assert_found(&stream.packets, Wrong, kind, &[words]);
    }
}

#[test]
fn an_answer_that_comes_twice_is_named() {
    let mut stream = Stream::started();
    stream.send(0, &fpdu(&frames::read(1, 64)));
    stream.send(1, &fpdu(&frames::response(&[1; 64])));
    stream.send(1, &fpdu(&frames::response(&[1; 64])));
    stream.close();
    let words = ["the responder", "Read Response again"];
    assert_found(&stream.packets, Wrong, "read-response-twice", &words);
}

#[test]
fn an_answer_without_a_request_is_named() {
    let mut stream = Stream::started();
    stream.send(1, &fpdu(&frames::response(&[1; 64])));
    stream.close();
    assert_found(&stream.packets, Wrong, "read-response-unasked", &["without a Read Request"]);
}

#[test]
fn a_gap_of_the_capture_accuses_no_end() {
    let mut stream = Stream::started();
    stream.send(0, &fpdu(&frames::send(1, b"one")));
    stream.send_unseen(0, &fpdu(&frames::send(2, b"two")));
    stream.send_unseen(0, &fpdu(&frames::read(1, 64)));
    stream.ack(1);
    stream.send(1, &fpdu(&frames::response(&[1; 64])));
    for msn in 3..6 {
        stream.send(0, &fpdu(&frames::send(msn, b"three")));
    }
    stream.close();
    let report = report(&stream.packets);
    let connection = only(&report);
    assert_eq!(connection.verdict.outcome, Fine, "{}", iwarp_explain::text::text(&report));
    assert!(connection.findings.iter().any(|finding| finding.kind == "capture-gap"));
    assert_eq!(connection.operations[0].messages, 4);
}

#[test]
fn lost_segments_are_a_wait_for_an_ack() {
    let mut stream = Stream::started();
    let frame = fpdu(&frames::send(1, &[1; 300]));
    stream.send_only(0, &frame);
    stream.wait(220);
    stream.again(0, &frame);
    stream.ack(1);
    stream.close();
    let words = ["no ACK from the responder for 220 ms", "sent them again"];
    assert_found(&stream.packets, Troubled, "no-ack", &words);
}

#[test]
fn overtaken_segments_are_put_in_order() {
    let mut stream = Stream::started();
    for msn in 1..5 {
        stream.send_only(0, &fpdu(&frames::send(msn, &[1; 300])));
    }
    stream.ack(1);
    stream.close();
    let first = stream.packets.iter().position(|(_, packet)| packet.len() > 300).unwrap();
    let (one, other) = (stream.packets[first].1.clone(), stream.packets[first + 1].1.clone());
    stream.packets[first].1 = other;
    stream.packets[first + 1].1 = one;
    let report = assert_fine(&stream.packets);
    assert_eq!(only(&report).operations[0].messages, 4);
}
