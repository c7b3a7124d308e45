// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packets that go out for each request, and their times.

use iwarp_types::{AtomicOp, Bind, Invalidator, Payload, PostError, SendOp, mock::Touch};

use super::*;
use crate::wire::{AtomicEth, AtomicKind};

const TO: TaggedOffset = TaggedOffset(0x7000);
const KEY: Stag = Stag(0x99);

fn positions(sent: &[Sent]) -> Vec<Position> {
    let position = |sent: &Sent| match sent.message {
        Message::Send { position, .. } => position,
        Message::WriteBegin { only, .. } => Position::of(true, only),
        Message::WriteMore { last, .. } => Position::of(false, last),
        ref other => panic!("{other:?}"),
    };
    sent.iter().map(position).collect()
}

/// Covers: ROCE-035, ROCE-036, ROCE-039, ROCE-043, ROCE-046
#[test]
fn messages_are_cut_at_the_path_mtu() {
    use Position::{First, Last, Middle, Only};
    let cuts: [(usize, &[Position], usize); 6] = [
        (0, &[Only], 0),
        (1, &[Only], 1),
        (MTU, &[Only], MTU),
        (MTU + 1, &[First, Last], 1),
        (2 * MTU, &[First, Last], MTU),
        (3 * MTU + 5, &[First, Middle, Middle, Last], 5),
    ];
    let mut bench = Bench::new();
    let data = pattern(4 * MTU, 1);
    bench.host.fill(LOCAL, 0, &data);
    let mut number = 0;
    for write in [false, true] {
        for (length, expected, last) in cuts {
            let local = [local(0, length as u32)];
            match write {
                true => bench.post(SendRequest::write(1, &local, KEY, TO)),
                false => bench.post(SendRequest::send(1, &local)),
            }
            let sent = bench.sent();
            assert_eq!(positions(&sent), expected);
            let octets: Vec<u8> = sent.iter().flat_map(|sent| sent.payload.clone()).collect();
            assert_eq!(octets, data[..length]);
            for (at, packet) in sent.iter().enumerate() {
                let is_last = at + 1 == sent.len();
                assert_eq!(packet.psn, own(number));
                assert_eq!(packet.payload.len(), if is_last { last } else { MTU });
                assert_eq!(packet.ack_req, is_last);
                number += 1;
            }
            if let Message::WriteBegin { reth, .. } = sent[0].message {
                assert_eq!(reth, Reth { va: TO, rkey: KEY, length: length as u32 });
            }
            bench.answer(number - 1, Syndrome::ACK);
        }
    }
}

/// Covers: ROCE-014
#[test]
fn the_last_packet_carries_what_a_message_ends_with() {
    let mut bench = Bench::new();
    let list = [local(0, MTU as u32 + 1)];
    let data = [1, 2, 3, 4];
    bench.post(SendRequest::send(0, &list).solicited());
    bench.post(SendRequest::new(1, SendOp::SendImmediate { solicited: true, data }, &list));
    let (stag, to) = (KEY, TO);
    let write = SendOp::WriteImmediate { stag, to, solicited: true, data };
    bench.post(SendRequest::new(2, write, &list));
    let invalidate = SendOp::Send { solicited: false, invalidate: Some(KEY) };
    bench.post(SendRequest::new(3, invalidate, &list));
    bench.post(SendRequest::write(4, &list, KEY, TO));
    bench.post(SendRequest::new(5, write, Payload::Inline(&[])));
    let sent = bench.sent();
    let solicited: Vec<bool> = sent.iter().map(|sent| sent.solicited).collect();
    assert_eq!(
        solicited,
        [false, true, false, true, false, true, false, false, false, false, true]
    );
    let tail = |at: usize| match sent[at].message {
        Message::Send { tail, .. } => tail,
        ref other => panic!("{other:?}"),
    };
    assert_eq!([tail(0), tail(1), tail(2)], [SendTail::Plain; 3]);
    assert_eq!((tail(3), tail(6)), (SendTail::Immediate(data), SendTail::Plain));
    assert_eq!(tail(7), SendTail::Invalidate(KEY));
    let imm = Some(data);
    assert_eq!(sent[5].message, Message::WriteMore { last: true, immediate: imm });
    assert_eq!(sent[9].message, Message::WriteMore { last: true, immediate: None });
    let reth = Reth { va: TO, rkey: KEY, length: 0 };
    assert_eq!(sent[10].message, Message::WriteBegin { only: true, reth, immediate: imm });
}

/// Covers: ROCE-044, ROCE-046, ROCE-101
#[test]
fn reads_and_atomics_take_a_psn_for_each_packet_of_their_answers() {
    let mut bench = Bench::new();
    let list = [local(0, 3 * MTU as u32 + 1)];
    bench.post(SendRequest::read(0, &list, KEY, TO));
    bench.post(SendRequest::read(1, &[], KEY, TO));
    let add = AtomicOp::FetchAdd { add: 5, mask: 0 };
    let word = [local(8, 8)];
    bench.post(SendRequest::atomic(2, &word, KEY, TO, add));
    let (compare_mask, swap_mask) = (u64::MAX, u64::MAX);
    let swap = AtomicOp::CompareSwap { compare: 1, compare_mask, swap: 2, swap_mask };
    bench.post(SendRequest::atomic(3, &word, KEY, TO, swap));
    let sent = bench.sent();
    let length = list[0].length;
    let atomic = |kind| Message::Atomic(AtomicEth { va: TO, rkey: KEY, kind });
    let expected = [
        (0, Message::ReadRequest(Reth { va: TO, rkey: KEY, length })),
        (4, Message::ReadRequest(Reth { va: TO, rkey: KEY, length: 0 })),
        (5, atomic(AtomicKind::FetchAdd { add: 5 })),
        (6, atomic(AtomicKind::CompareSwap { compare: 1, swap: 2 })),
    ];
    assert_eq!(sent.len(), 4);
    for (sent, (number, message)) in sent.iter().zip(expected) {
        assert_eq!((sent.psn, &sent.message, sent.ack_req), (own(number), &message, true));
        assert!(sent.payload.is_empty());
    }
}

/// Covers: ROCE-067
#[test]
fn only_so_many_reads_are_under_way() {
    let mut bench = Bench::with(config(), Attributes { max_rd_atomic: 2, ..attributes() });
    for wr_id in 0..4 {
        bench.post(SendRequest::read(wr_id, &[local(0, 10)], KEY, TO).signaled());
    }
    bench.post(SendRequest::send(4, &[]).signaled());
    assert_eq!(bench.sent().len(), 2);
    bench.take(own(0), response(Position::Only), &[0; 10]);
    assert_eq!(bench.sent().len(), 1);
    // Reads asked for again count once.
    bench.nak(1, NakCode::SequenceError);
    assert_eq!(bench.sent().iter().map(|sent| sent.psn).collect::<Vec<_>>(), [own(1), own(2)]);
    for number in 1..4 {
        bench.take(own(number), response(Position::Only), &[0; 10]);
        bench.sent();
    }
    bench.answer(4, Syndrome::ACK);
    assert_eq!(bench.ended().len(), 5);
}

/// Covers: ROCE-068
#[test]
fn a_fence_waits_for_reads_and_atomics() {
    let mut bench = Bench::new();
    bench.post(SendRequest::read(0, &[local(0, 10)], KEY, TO).signaled());
    bench.post(SendRequest::send(1, &[]));
    bench.post(SendRequest::send(2, &[]).fenced());
    assert_eq!(bench.sent().len(), 2);
    bench.answer(1, Syndrome::ACK);
    // The answer to the Read is missing: it and what follows are sent again, but not the fenced.
    assert_eq!(bench.sent().len(), 2);
    bench.take(own(0), response(Position::Only), &[0; 10]);
    assert_eq!(bench.sent().len(), 1);
}

#[test]
fn local_operations_are_done_in_their_turn() {
    let mut bench = Bench::new();
    bench.host.bank.borrow_mut().windows.push(iwarp_types::mock::Window {
        stag: Stag(0x900),
        bound: None,
        qp: QpId(0),
    });
    bench.host.change(REMOTE, |region| region.access |= Access::MW_BIND);
    let bind = Bind {
        window: Stag(0x900),
        new_stag: Stag(0x901),
        region: Stag(REMOTE),
        addr: REMOTE_BASE,
        length: 8,
        access: Access::REMOTE_READ,
    };
    bench.post(SendRequest::send(0, &[local(0, 8)]).signaled());
    bench.post(SendRequest::bind(1, bind).signaled());
    bench.post(SendRequest::send(2, &[]).signaled());
    bench.post(SendRequest::local_invalidate(3, Stag(LOCAL)).signaled());
    bench.post(SendRequest::send(4, &[]).signaled());
    assert_eq!(bench.sent().len(), 2);
    let gathered = Touch::Gathered { stag: LOCAL, len: 8 };
    assert_eq!(bench.host.touches(), [gathered, Touch::Bound]);
    // Octets that are sent may have to be read again, so their memory stays valid.
    assert!(bench.ended().is_empty());
    bench.answer(1, Syndrome::ACK);
    assert_eq!(bench.ended().len(), 3);
    assert_eq!(bench.sent().len(), 1);
    let invalidated = Touch::Invalidated { stag: LOCAL, by: Invalidator::Local };
    assert_eq!(bench.host.touches(), [invalidated]);
    assert_eq!(bench.ended(), [(3, WcStatus::Success)]);
    bench.answer(2, Syndrome::ACK);
    assert_eq!(bench.ended(), [(4, WcStatus::Success)]);
}

#[test]
fn a_local_operation_that_fails_ends_the_queue_pair() {
    let mut bench = Bench::new();
    bench.post(SendRequest::send(0, &[]));
    bench.post(SendRequest::local_invalidate(1, Stag(0x12300)));
    bench.post(SendRequest::send(2, &[]));
    assert_eq!(bench.sent().len(), 1);
    bench.answer(0, Syndrome::ACK);
    bench.sent();
    assert_eq!(bench.ended(), [(1, WcStatus::WindowBind), (2, WcStatus::Flushed)]);
    assert_eq!(bench.rc.state(), QpState::Err);
}

/// Requests before the one that fails end well; what the peer has not yet acknowledged of them is
/// waited for.
#[test]
fn memory_that_cannot_be_read_fails_its_request_in_turn() {
    let mut bench = Bench::new();
    bench.post(SendRequest::send(0, &[local(0, 8)]).signaled());
    bench.post(SendRequest::send(1, &[local(REGION_LEN as u64, 8)]).signaled());
    bench.post(SendRequest::send(2, &[]).signaled());
    assert_eq!(bench.sent().len(), 1);
    assert!(bench.events().is_empty());
    bench.answer(0, Syndrome::ACK);
    let ended = [(0, WcStatus::Success), (1, WcStatus::LocalProtection), (2, WcStatus::Flushed)];
    assert_eq!(bench.ended(), ended);
    assert_eq!(bench.sent(), []);
}

/// A card looks at the memory of an answer when it has the answer: what is wrong at the peer is
/// found first, and an Atomic is executed.
#[test]
fn memory_that_may_not_be_written_fails_the_answer() {
    let add = SendOp::Atomic { stag: KEY, to: TO, op: AtomicOp::FetchAdd { add: 1, mask: 0 } };
    for op in [SendOp::Read { stag: KEY, to: TO, invalidate: None }, add] {
        let list = [Sge { addr: 0, length: 8, lkey: Stag(0x300) }];
        let asked = || {
            let mut bench = Bench::new();
            bench.host.register(PdId(7), 0x300, 0, 8, Access::LOCAL_READ);
            bench.post(SendRequest::new(0, op, &list[..]));
            bench.post(SendRequest::send(1, &[]));
            assert_eq!(bench.sent().len(), 2);
            assert!(bench.events().is_empty());
            bench
        };
        let mut bench = asked();
        match op {
            SendOp::Read { .. } => bench.take(own(0), response(Position::Only), &[0; 8]),
            _ => {
                let aeth = Aeth { syndrome: Syndrome::ACK, msn: 1 };
                bench.take(own(0), Message::AtomicAcknowledge { aeth, original: 5 }, &[]);
            }
        }
        assert_eq!(bench.ended(), [(0, WcStatus::LocalProtection), (1, WcStatus::Flushed)]);
        let mut bench = asked();
        bench.nak(0, NakCode::RemoteAccess);
        assert_eq!(bench.ended(), [(0, WcStatus::RemoteAccess), (1, WcStatus::Flushed)]);
    }
}

/// In the middle of a long message an acknowledgement is asked for every 16 to 64 packets, or twice
/// in a window of less; also where the window is large and its packets are small.
///
/// Covers: ROCE-047
#[test]
fn acknowledgements_are_asked_for_at_a_steady_distance() {
    for mtu in [Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096] {
        let attributes = Attributes { mtu, ..attributes() };
        let weight = mtu.octets() as u64 + 512;
        let mut bench = Bench::with(config(), attributes);
        let (mut number, mut apart) = (0, 0);
        let mut seen = Vec::new();
        for _ in 0..40 {
            bench.post(SendRequest::write(0, &[local(0, REGION_LEN as u32)], KEY, TO));
            while bench.rc.outstanding().0 > 0 {
                let window = bench.rc.requester.pace.window();
                let sent = bench.sent();
                assert!(sent.last().unwrap().ack_req);
                for (index, packet) in sent.iter().enumerate() {
                    (number, apart) = (number + 1, apart + 1);
                    if !packet.ack_req {
                        continue;
                    }
                    // The last of the message, or of the window, asks wherever it stands.
                    if index + 1 < sent.len() {
                        let half = (window / 2).div_ceil(weight);
                        assert!(apart >= half.min(16), "{mtu:?} {apart} of {window}");
                    }
                    seen.push(apart);
                    apart = 0;
                }
                bench.answer(number - 1, Syndrome::ACK);
            }
        }
        assert!(seen.iter().all(|apart| (1..=64).contains(apart)), "{mtu:?} {seen:?}");
    }
}

/// Covers: ROCE-045, ROCE-047, ROCE-074
#[test]
fn the_window_bounds_what_is_under_way() {
    let mut bench = Bench::new();
    bench.post(SendRequest::write(0, &[local(0, REGION_LEN as u32)], KEY, TO));
    let first = bench.sent();
    let weight: usize = first.iter().map(|sent| sent.payload.len() + 512).sum();
    assert!((32 << 10..=64 << 10).contains(&weight), "{weight}");
    assert!(first.iter().filter(|sent| sent.ack_req).count() >= 3);
    // The last packet that goes out asks for an acknowledgement.
    assert!(first.last().unwrap().ack_req);
    let asks = first.iter().position(|sent| sent.ack_req).unwrap() as u32;
    bench.answer(asks, Syndrome::ACK);
    let more = bench.sent();
    assert!(more.len() > asks as usize, "the window grows");
    assert!(more.last().unwrap().ack_req);
    // A notification of congestion closes it.
    bench.congested();
    let behind = (first.len() + more.len()) as u32;
    bench.answer(asks + 1, Syndrome::ACK);
    assert_eq!(bench.sent(), []);
    bench.answer(behind - 1, Syndrome::ACK);
    let fewer = bench.sent();
    assert!(!fewer.is_empty() && fewer.len() < more.len() + first.len());
}

/// Covers: ROCE-055, ROCE-067
#[test]
fn a_long_read_is_asked_for_in_pieces() {
    let mut bench = Bench::new();
    let length = 100 * MTU as u32 + 1;
    bench.post(SendRequest::read(0, &[local(0, length)], KEY, TO).signaled());
    let segment = bench.rc.requester.segment;
    let data = pattern(length as usize, 3);
    let mut asked = bench.sent();
    let mut number = 0;
    while number < 101 {
        for request in asked.drain(..) {
            let Message::ReadRequest(reth) = request.message else { panic!() };
            let skipped = u64::from(number) * MTU as u64;
            let packets = segment.min(101 - number);
            assert_eq!(request.psn, own(number));
            assert_eq!(reth.va, TO.advanced(skipped));
            assert_eq!(reth.length, (packets * MTU as u32).min(length - skipped as u32));
            for index in 0..packets {
                let position = Position::of(index == 0, index + 1 == packets);
                let at = number as usize * MTU;
                let end = data.len().min(at + MTU);
                bench.take(own(number), response(position), &data[at..end]);
                number += 1;
            }
        }
        asked = bench.sent();
    }
    assert_eq!(bench.ended(), [(0, WcStatus::Success)]);
    assert_eq!(bench.host.octets(LOCAL)[..length as usize], data);
}

/// Covers: ROCE-070
#[test]
fn retransmissions_read_memory_again() {
    let mut bench = Bench::new();
    bench.host.fill(LOCAL, 0, &[1; 300]);
    bench.post(SendRequest::send(0, &[local(0, 300)]));
    let first = bench.sent();
    bench.host.fill(LOCAL, 0, &[2; 300]);
    bench.wait_for_timeout();
    let again = bench.sent();
    assert_eq!(again.len(), 2);
    for (first, again) in first.iter().zip(&again) {
        assert_eq!((first.psn, first.payload.len()), (again.psn, again.payload.len()));
        assert_eq!((first.payload[0], again.payload[0]), (1, 2));
    }
}

/// A card takes such a request, and its completion says what is wrong.
#[test]
fn an_atomic_of_another_length_than_eight_fails_and_is_not_sent() {
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    for length in [0, 7, 9] {
        let mut bench = Bench::new();
        bench.post(SendRequest::send(0, &[]).signaled());
        bench.post(SendRequest::atomic(1, &[local(0, length)], KEY, TO, add));
        bench.post(SendRequest::send(2, &[]));
        assert_eq!(bench.sent().len(), 1);
        assert_eq!(bench.ended(), []);
        bench.answer(0, Syndrome::ACK);
        let ended = [(0, WcStatus::Success), (1, WcStatus::LocalLength), (2, WcStatus::Flushed)];
        assert_eq!(bench.ended(), ended);
        assert_eq!(bench.sent(), []);
    }
}

#[test]
fn requests_that_roce_has_not_are_refused() {
    let mut bench = Bench::new();
    let immediate = SendOp::Immediate { solicited: false, data: [0; 8] };
    let word = [local(0, 8)];
    let odd = [
        AtomicOp::FetchAdd { add: 1, mask: 1 },
        AtomicOp::CompareSwap { compare: 0, compare_mask: 1, swap: 0, swap_mask: u64::MAX },
        AtomicOp::CompareSwap { compare: 0, compare_mask: u64::MAX, swap: 0, swap_mask: 1 },
    ];
    for op in odd {
        let request = SendRequest::atomic(0, &word, KEY, TO, op);
        assert_eq!(bench.rc.post_send(&request), Err(PostError::Invalid));
    }
    let request = SendRequest::new(0, immediate, Payload::NONE);
    assert_eq!(bench.rc.post_send(&request), Err(PostError::Invalid));
    assert_eq!(bench.rc.outstanding(), (0, 0));
    // A Read that could never be sent.
    let mut bench = Bench::with(config(), Attributes { max_rd_atomic: 0, ..attributes() });
    let request = SendRequest::read(0, &word, KEY, TO);
    assert_eq!(bench.rc.post_send(&request), Err(PostError::Invalid));
}

/// Covers: ROCE-042
#[test]
fn packets_between_first_and_last_go_together() {
    let mut bench = Bench::new();
    bench.post(SendRequest::write(0, &[local(0, 30 * MTU as u32)], KEY, TO));
    let mut burst = Burst::new(Numbering::Zero, usize::MAX);
    bench.rc.transmit(&mut burst, bench.now, &bench.host);
    let trains: Vec<usize> = burst.trains().map(|train| train.packets).collect();
    assert_eq!(trains.len(), 2, "the First is longer, and may have one behind it: {trains:?}");
}
