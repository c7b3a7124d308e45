// SPDX-License-Identifier: MIT OR Apache-2.0

//! In which order the peer is answered, and what is answered again.

use super::*;
use crate::wire::{AtomicEth, AtomicKind};

fn read(bench: &mut Bench, number: u32, at: u64, length: u32) {
    bench.ask(peer(number), Message::ReadRequest(reth(at, length)), &[]);
}

fn add(bench: &mut Bench, number: u32) {
    let Reth { va, rkey, .. } = reth(0, 8);
    let eth = AtomicEth { va, rkey, kind: AtomicKind::FetchAdd { add: 1 } };
    bench.ask(peer(number), Message::Atomic(eth), &[]);
}

fn write(bench: &mut Bench, number: u32) {
    let message = Message::WriteBegin { only: true, reth: reth(9999, 1), immediate: None };
    bench.ask(peer(number), message, &[1]);
}

/// The packets that were sent: the PSN, and what each answers.
fn summary(sent: &[Sent]) -> Vec<(Psn, &'static str, usize)> {
    let one = |sent: &Sent| {
        let what = match sent.message {
            Message::ReadResponse { position: Position::First, .. } => "first",
            Message::ReadResponse { position: Position::Middle, .. } => "middle",
            Message::ReadResponse { position: Position::Last, .. } => "last",
            Message::ReadResponse { position: Position::Only, .. } => "only",
            Message::AtomicAcknowledge { .. } => "atomic",
            Message::Acknowledge(Aeth { syndrome: Syndrome::Ack { .. }, .. }) => "ack",
            Message::Acknowledge(_) => "nak",
            _ => "request",
        };
        (sent.psn, what, sent.payload.len())
    };
    sent.iter().map(one).collect()
}

/// Covers: ROCE-082, ROCE-084, ROCE-085
#[test]
fn answers_go_out_in_the_order_of_requests() {
    let mut bench = Bench::new();
    let data = pattern(1000, 4);
    bench.host.fill(REMOTE, 0, &data);
    write(&mut bench, 0);
    read(&mut bench, 1, 8, 2 * MTU as u32 + 1);
    add(&mut bench, 4);
    write(&mut bench, 5);
    let sent = bench.sent();
    let expected = [
        (peer(1), "first", MTU),
        (peer(2), "middle", MTU),
        (peer(3), "last", 1),
        (peer(4), "atomic", 0),
        (peer(5), "ack", 0),
    ];
    assert_eq!(summary(&sent), expected);
    let octets: Vec<u8> = sent.iter().flat_map(|sent| sent.payload.clone()).collect();
    assert_eq!(octets, data[8..8 + 2 * MTU + 1]);
    assert_eq!(sent[4].message, ack(4));
    // An answer acknowledges what stands before it.
    write(&mut bench, 6);
    read(&mut bench, 7, 0, 1);
    assert_eq!(summary(&bench.sent()), [(peer(7), "only", 1)]);
}

/// Covers: ROCE-078, ROCE-079
#[test]
fn a_read_is_answered_again_from_any_packet() {
    let mut bench = Bench::new();
    read(&mut bench, 0, 100, 3 * MTU as u32 + 5);
    bench.sent();
    let data = pattern(1000, 5);
    bench.host.fill(REMOTE, 100, &data);
    let part =
        |index: u32, length: usize| (index, 100 + u64::from(index) * MTU as u64, length as u32);
    for (index, at, length) in [part(0, 3 * MTU + 5), part(1, 2 * MTU + 5), part(3, 5)] {
        read(&mut bench, index, at, length);
        let sent = bench.sent();
        let first = if index == 3 { "only" } else { "first" };
        assert_eq!(summary(&sent)[0].1, first);
        assert_eq!(sent[0].psn, peer(index));
        assert_eq!(sent.last().unwrap().psn, peer(3));
        let octets: Vec<u8> = sent.iter().flat_map(|sent| sent.payload.clone()).collect();
        let skipped = index as usize * MTU;
        assert_eq!(octets, data[skipped..3 * MTU + 5], "read anew");
    }
    // Part of the middle.
    read(&mut bench, 1, 100 + MTU as u64, MTU as u32);
    assert_eq!(summary(&bench.sent()), [(peer(1), "only", MTU)]);
    // A packet that is no part of it is dropped.
    let wrong = [
        (1, 100 + MTU as u64 + 1, MTU as u32),
        (1, 100, MTU as u32),
        (1, 100 + MTU as u64, 3 * MTU as u32),
        (3, 100 + 3 * MTU as u64, 6),
    ];
    for (index, at, length) in wrong {
        read(&mut bench, index, at, length);
    }
    let other = Reth { rkey: Stag(LOCAL), ..reth(100, 8) };
    bench.ask(peer(0), Message::ReadRequest(other), &[]);
    bench.ask(peer(0).previous(), Message::ReadRequest(reth(100, 8)), &[]);
    add(&mut bench, 0);
    assert_eq!((bench.sent(), bench.events()), (Vec::new(), Vec::new()));
    // New requests go on where the Read ended.
    write(&mut bench, 4);
    assert_eq!(summary(&bench.sent()), [(peer(4), "ack", 0)]);
}

/// Covers: ROCE-080
#[test]
fn an_atomic_is_executed_once() {
    let mut bench = Bench::new();
    add(&mut bench, 0);
    add(&mut bench, 1);
    bench.sent();
    add(&mut bench, 0);
    let sent = bench.sent();
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: 2 };
    assert_eq!(sent[0].message, Message::AtomicAcknowledge { aeth, original: 0 });
    add(&mut bench, 1);
    let sent = bench.sent();
    assert_eq!(sent[0].message, Message::AtomicAcknowledge { aeth, original: 1 });
    assert_eq!(bench.host.octets(REMOTE)[..8], 2_u64.to_ne_bytes());
}

/// Covers: ROCE-080, ROCE-081
#[test]
fn the_oldest_answers_are_forgotten() {
    let mut bench = Bench::new();
    for number in 0..5 {
        add(&mut bench, number);
        assert_eq!(bench.sent().len(), 1);
    }
    add(&mut bench, 0);
    assert_eq!(bench.sent(), []);
    add(&mut bench, 1);
    assert_eq!(bench.sent().len(), 1);
    // More than were agreed on, before any is answered.
    for number in 5..9 {
        add(&mut bench, number);
    }
    assert_eq!(bench.rc.state(), QpState::Rts);
    add(&mut bench, 9);
    assert_eq!(bench.rc.state(), QpState::Err);
    let sent = bench.sent();
    assert_eq!(sent.len(), 5);
    assert_eq!((sent[4].psn, sent[4].message), (peer(9), nak(NakCode::InvalidRequest, 9)));
    assert_eq!(bench.host.octets(REMOTE)[..8], 9_u64.to_ne_bytes());
    let mut bench = Bench::with(config(), Attributes { max_dest_rd_atomic: 0, ..attributes() });
    read(&mut bench, 0, 0, 0);
    assert_eq!(bench.sent()[0].message, nak(NakCode::InvalidRequest, 0));
}

/// Cards and rxe round up what the program asks for, at the end that sends Reads as well.
///
/// Covers: ROCE-081
#[test]
fn as_many_are_under_way_as_the_next_power_of_two() {
    for (asked, most) in [(1, 1), (2, 2), (3, 4), (5, 8), (7, 8), (8, 8), (129, 256), (255, 256)] {
        let attributes = Attributes { max_dest_rd_atomic: asked, ..attributes() };
        let mut bench = Bench::with(config(), attributes);
        for number in 0..most {
            read(&mut bench, number, 0, 8);
        }
        assert_eq!(bench.rc.state(), QpState::Rts, "{asked}");
        read(&mut bench, most, 0, 8);
        assert_eq!(bench.rc.state(), QpState::Err, "{asked}");
        let sent = bench.sent();
        let (last, answers) = sent.split_last().unwrap();
        assert_eq!(answers.len() as u32, most);
        assert_eq!((last.psn, last.message), (peer(most), nak(NakCode::InvalidRequest, most)));
    }
}

/// A repeat that is itself repeated makes room for new requests.
///
/// Covers: ROCE-081
#[test]
fn answers_that_are_repeated_stand_in_nobodys_way() {
    let mut bench = Bench::new();
    for number in 0..4 {
        read(&mut bench, number, 0, 8);
    }
    assert_eq!(bench.sent().len(), 4);
    read(&mut bench, 0, 0, 8);
    read(&mut bench, 4, 0, 8);
    assert_eq!(summary(&bench.sent()), [(peer(4), "only", 8)]);
    assert_eq!(bench.rc.state(), QpState::Rts);
}

/// Covers: ROCE-096
#[test]
fn a_right_that_is_lost_on_the_way_ends_the_answer() {
    let mut bench = Bench::new();
    read(&mut bench, 0, 0, 3 * MTU as u32);
    read(&mut bench, 3, 0, 8);
    assert_eq!(summary(&bench.sent_within(1)), [(peer(0), "first", MTU)]);
    bench.host.change(REMOTE, |region| region.access -= Access::REMOTE_READ);
    let sent = bench.sent();
    assert_eq!(summary(&sent), [(peer(1), "nak", 0)]);
    assert_eq!(sent[0].message, nak(NakCode::RemoteAccess, 2));
    assert_eq!(bench.rc.state(), QpState::Err);
    assert!(matches!(bench.events()[..], [Event::Fault(reason)] if reason.code() == 0x62));
}

/// Covers: ROCE-084, ROCE-104
#[test]
fn requests_before_a_refused_one_are_answered_first() {
    let mut bench = Bench::new();
    read(&mut bench, 0, 0, 2 * MTU as u32);
    bench.ask(peer(2), send(Position::Middle), &[]);
    assert_eq!(bench.rc.state(), QpState::Err);
    let expected = [(peer(0), "first", MTU), (peer(1), "last", MTU), (peer(2), "nak", 0)];
    assert_eq!(summary(&bench.sent()), expected);
    assert_eq!(bench.sent(), []);
}

/// Covers: ROCE-077, ROCE-084
#[test]
fn no_acknowledgement_has_the_psn_of_a_read() {
    let mut bench = Bench::new();
    write(&mut bench, 0);
    read(&mut bench, 1, 0, 8);
    bench.sent();
    write(&mut bench, 0);
    assert_eq!(summary(&bench.sent()), [(peer(0), "ack", 0)]);
    // A repeat of both is answered in their order.
    read(&mut bench, 1, 0, 8);
    write(&mut bench, 0);
    write(&mut bench, 2);
    assert_eq!(summary(&bench.sent()), [(peer(1), "only", 8), (peer(2), "ack", 0)]);
}

/// A repeated request takes the place of an answer that is still going out.
#[test]
fn an_answer_under_way_begins_anew() {
    let mut bench = Bench::new();
    read(&mut bench, 0, 0, 4 * MTU as u32);
    read(&mut bench, 4, 0, 8);
    assert_eq!(bench.sent_within(2 * MTU).len(), 2);
    read(&mut bench, 1, MTU as u64, 3 * MTU as u32);
    let sent = bench.sent();
    assert_eq!(
        summary(&sent),
        [
            (peer(1), "first", MTU),
            (peer(2), "middle", MTU),
            (peer(3), "last", MTU),
            (peer(4), "only", 8)
        ]
    );
}

/// Neither long answers nor long messages of this side's keep the other waiting.
#[test]
fn answers_and_requests_take_turns() {
    let mut bench = Bench::new();
    read(&mut bench, 0, 0, 100 * MTU as u32);
    bench.post(SendRequest::write(0, &[local(0, 60 * MTU as u32)], Stag(9), TaggedOffset(0)));
    let mut kinds = Vec::new();
    loop {
        let sent = bench.sent_within(10 * MTU);
        if sent.is_empty() {
            break;
        }
        kinds.push(sent.iter().filter(|sent| sent.message.is_response()).count() * 2 > sent.len());
    }
    let first: Vec<bool> = kinds[..8].to_vec();
    assert!(first.windows(2).all(|pair| pair[0] != pair[1]), "{kinds:?}");
    assert!(kinds.len() > 15);
}
