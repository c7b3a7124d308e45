// SPDX-License-Identifier: MIT OR Apache-2.0

//! RoCE v2: clean connections, and one thing wrong in each.

use iwarp_explain::Outcome::{Troubled, Wrong};
use iwarp_roce::cm::RejectReason;
use iwarp_roce::wire::{Message, NakCode, Position, SendTail, Transport};

use crate::made::datagrams::{Datagrams, FIRST, MTU, rej, req};
use crate::made::{assert_fine, assert_found, only, operations, report};

/// The PSN of the initiator's packet with this index. PSNs have 24 bits.
const fn psn(index: u32) -> u32 {
    (FIRST[0] + index) & 0xff_ffff
}

/// Some messages in both directions.
fn busy(all: &mut Datagrams) {
    all.send(0, psn(0), b"hello");
    all.ack(1, psn(0));
    all.write(0, psn(1), 2500);
    all.ack(1, psn(3));
    all.read(0, psn(4), 2100);
    all.response(1, psn(4), Position::First, MTU);
    all.response(1, psn(5), Position::Middle, MTU);
    all.response(1, psn(6), Position::Last, 52);
    all.send(0, psn(7), b"bye");
    all.send(1, FIRST[1], b"bye");
    all.ack(1, psn(7));
    all.ack(0, FIRST[1]);
}

#[test]
fn a_clean_connection_is_fine() {
    let mut all = Datagrams::connected();
    busy(&mut all);
    let report = assert_fine(&all.packets);
    let connection = only(&report);
    assert!(connection.findings.is_empty(), "{}", iwarp_explain::text::text(&report));
    assert_eq!(connection.ends[1].address, "10.0.0.2 QP 0x000022");
    let expected = [
        (0, "SEND", 2, 8),
        (0, "RDMA WRITE", 1, 2500),
        (0, "RDMA READ request", 1, 2100),
        (1, "SEND", 1, 3),
    ];
    assert_eq!(operations(connection), expected);
}

#[test]
fn queue_pairs_are_paired_without_a_connection_manager() {
    let mut all = Datagrams::default();
    busy(&mut all);
    let report = assert_fine(&all.packets);
    assert_eq!(only(&report).ends[0].address, "10.0.0.1 QP 0x000011");
    assert_eq!(only(&report).operations.len(), 4);
}

#[test]
fn datagrams_and_unreliable_connections_are_fine() {
    let mut all = Datagrams::of(Transport::Ud);
    all.send(0, 3, &[1; 500]);
    all.send(1, 9, &[1; 500]);
    let report = assert_fine(&all.packets);
    assert_eq!(only(&report).protocol, "RoCE v2 UD");
    let mut all = Datagrams::of(Transport::Uc);
    all.write(0, 3, 2500);
    let report = assert_fine(&all.packets);
    assert_eq!(only(&report).operations[0].bytes, 2500);
}

#[test]
fn receivers_that_are_never_ready_are_named() {
    let mut all = Datagrams::connected();
    for _ in 0..4 {
        all.send(0, psn(0), b"hello");
        all.rnr(1, psn(0));
        all.wait(2);
    }
    let words = ["the responder never had a receive", "4 RNR NAKs", "1.28 ms"];
    assert_found(&all.packets, Wrong, "rnr-exceeded", &words);
    all.send(0, psn(0), b"hello");
    all.ack(1, psn(0));
    let words = ["the responder had no receive", "4 RNR NAKs"];
    assert_found(&all.packets, Troubled, "rnr", &words);
}

#[test]
fn a_lost_packet_is_named() {
    let mut all = Datagrams::connected();
    all.send(0, psn(0), b"one");
    all.ack(1, psn(0));
    // PSN 1 is lost before the capture sees it.
    all.send(0, psn(2), b"three");
    all.nak(1, psn(1), NakCode::SequenceError);
    all.send(0, psn(1), b"two");
    all.send(0, psn(2), b"three");
    all.ack(1, psn(2));
    let words = ["the responder missed PSN 16777215 of the initiator", "send again"];
    assert_found(&all.packets, Troubled, "nak-sequence", &words);
}

#[test]
fn a_peer_that_never_answers_is_named() {
    let mut all = Datagrams::connected();
    all.send(0, psn(0), b"one");
    all.ack(1, psn(0));
    for _ in 0..8 {
        all.send(0, psn(1), b"two");
        all.wait(500);
    }
    // Pauses are told besides; this is what they led to.
    let words = ["the responder never acknowledged the SEND", "7 times", "retry exceeded"];
    assert_found(&all.packets, Wrong, "retry-exceeded", &words);
}

#[test]
fn a_bad_icrc_is_named() {
    let mut all = Datagrams::connected();
    all.send(0, psn(0), b"one");
    all.ack(1, psn(0));
    all.send(0, psn(1), b"two");
    all.damage();
    all.wait(20);
    all.send(0, psn(1), b"two");
    all.ack(1, psn(1));
    let words = ["the ICRC of a packet of the initiator", "does not match"];
    assert_found(&all.packets, Troubled, "bad-icrc", &words);
}

#[test]
fn a_datagram_that_is_too_long_is_named() {
    let mut all = Datagrams::of(Transport::Ud);
    all.send(0, 3, &[1; 5000]);
    assert_found(&all.packets, Wrong, "ud-too-long", &["5,000 bytes", "too long"]);
}

#[test]
fn a_refused_connection_is_named() {
    for (reason, words) in [
        (RejectReason::Consumer, ["reason 28", "program refused"]),
        (RejectReason::InvalidServiceId, ["reason 8", "listens on that port"]),
    ] {
        let mut all = Datagrams::default();
        all.management(0, req());
        all.management(1, rej(reason));
        assert_found(&all.packets, Wrong, "cm-rejected", &words);
    }
}

#[test]
fn a_request_without_an_answer_is_named() {
    let mut all = Datagrams::default();
    for _ in 0..3 {
        all.management(0, req());
        all.wait(1000);
    }
    let words = ["never answered the REQ", "3 times"];
    assert_found(&all.packets, Wrong, "cm-unanswered", &words);
}

#[test]
fn an_answer_that_comes_twice_is_named() {
    let mut all = Datagrams::connected();
    all.read(0, psn(0), 64);
    all.response(1, psn(0), Position::Only, 64);
    all.wait(50);
    all.response(1, psn(0), Position::Only, 64);
    let words = ["the responder sent a second RDMA READ response", "asked once"];
    assert_found(&all.packets, Wrong, "read-response-twice", &words);
}

#[test]
fn refusals_are_told_in_words() {
    for (code, kind, words) in [
        (
            NakCode::RemoteAccess,
            "nak-remote-access",
            ["access is not granted", "the initiator caused"],
        ),
        (NakCode::InvalidRequest, "nak-invalid-request", ["as invalid", "the initiator caused"]),
        (
            NakCode::RemoteOperation,
            "nak-remote-operational",
            ["the responder failed", "remote operational"],
        ),
    ] {
        let mut all = Datagrams::connected();
        all.write(0, psn(0), 64);
        all.nak(1, psn(0), code);
        assert_found(&all.packets, Wrong, kind, &words);
    }
}

#[test]
fn a_late_acknowledgement_is_a_wait() {
    let mut all = Datagrams::connected();
    all.send(0, psn(0), b"one");
    all.wait(4000);
    all.ack(1, psn(0));
    assert_found(&all.packets, Troubled, "no-ack", &["no ACK from the responder for 4.00 s"]);
}

#[test]
fn losses_of_unreliable_connections_are_named() {
    let mut all = Datagrams::of(Transport::Uc);
    all.send(0, 3, b"one");
    all.send(0, 5, b"three");
    assert_found(&all.packets, Troubled, "psn-lost", &["1 packet", "UC"]);
}

#[test]
fn opcodes_out_of_turn_are_named() {
    let mut all = Datagrams::connected();
    all.send(0, psn(0), b"one");
    all.ack(1, psn(0));
    let middle = Message::Send { position: Position::Middle, tail: SendTail::Plain };
    all.message(0, psn(1), middle, &[1; MTU]);
    assert_found(&all.packets, Wrong, "unexpected-opcode", &["middle packet of a SEND"]);
}

#[test]
fn a_write_that_is_shorter_than_its_header_says_is_named() {
    let mut all = Datagrams::connected();
    let reth = |length| iwarp_roce::wire::Reth {
        va: iwarp_types::TaggedOffset(0),
        rkey: iwarp_types::Stag(1),
        length,
    };
    let message = Message::WriteBegin { only: true, reth: reth(100), immediate: None };
    all.message(0, psn(0), message, &[1; 90]);
    all.ack(1, psn(0));
    assert_found(&all.packets, Wrong, "write-length", &["90 bytes", "100 bytes"]);
}

#[test]
fn one_direction_is_not_judged_by_the_other() {
    let mut all = Datagrams::default();
    busy(&mut all);
    let forth: Vec<_> = all.packets.into_iter().filter(|(_, packet)| packet[15] == 1).collect();
    let report = report(&forth);
    let text = iwarp_explain::text::text(&report);
    assert_eq!(only(&report).verdict.outcome, iwarp_explain::Outcome::Fine, "{text}");
}
