// SPDX-License-Identifier: MIT OR Apache-2.0

//! The effects of the peer's requests.

use iwarp_types::mock::Invalidation;
use iwarp_types::{AccessError, WcOp};

use super::*;
use crate::wire::{AtomicEth, AtomicKind, RnrTimer};

const fn write(only: bool, reth: Reth) -> Message {
    Message::WriteBegin { only, reth, immediate: None }
}

const fn more(last: bool) -> Message {
    Message::WriteMore { last, immediate: None }
}

const fn add(at: u64, add: u64) -> Message {
    let Reth { va, rkey, .. } = reth(at, 8);
    Message::Atomic(AtomicEth { va, rkey, kind: AtomicKind::FetchAdd { add } })
}

/// The request was refused: a NAK went out, and nothing is answered any more.
#[track_caller]
fn assert_refused(bench: &mut Bench, number: u32, code: NakCode, msn: u32) {
    assert_eq!(bench.rc.state(), QpState::Err);
    let sent = bench.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].psn, sent[0].message), (peer(number), nak(code, msn)));
    for again in 0..=number + 1 {
        bench.ask(peer(again), send(Position::Only), &[]);
        bench.ask(peer(again), Message::ReadRequest(reth(0, 8)), &[]);
    }
    assert_eq!(bench.sent(), []);
    let fault = |event: &Event| match event {
        Event::Fault(reason) => Some(reason.code()),
        _ => None,
    };
    let events = bench.events();
    let faults: Vec<u32> = events.iter().filter_map(fault).collect();
    assert_eq!(faults, [0x60 | code as u32]);
}

/// Covers: ROCE-075, ROCE-082, ROCE-083, ROCE-085, ROCE-086
#[test]
fn messages_are_received_and_acknowledged() {
    let mut bench = Bench::new();
    let data = pattern(2 * MTU + 10, 1);
    let list = [local(1000, 100), local(0, 5), local(2000, 600)];
    bench.rc.post_recv(&RecvRequest::new(1, &list)).unwrap();
    bench.post_recv(2, 0, 0);
    bench.take(peer(0), send(Position::First), &data[..MTU]);
    bench.take(peer(1), send(Position::Middle), &data[MTU..2 * MTU]);
    assert_eq!(bench.events(), []);
    bench.ask(peer(2), send(Position::Last), &data[2 * MTU..]);
    let only = Message::Send { position: Position::Only, tail: SendTail::Immediate([9, 8, 7, 6]) };
    let bth = Bth::new(OWN_QP, peer(3)).asking(true).soliciting(true);
    bench.take_header(header(bth, only), &[]);
    let [first, second] = bench.received()[..] else { panic!() };
    assert_eq!((first.wr_id, first.op, first.byte_len), (1, WcOp::Recv, 2 * MTU as u32 + 10));
    assert_eq!((first.solicited, first.immediate), (false, None));
    assert_eq!((second.wr_id, second.byte_len, second.solicited), (2, 0, true));
    assert_eq!(second.immediate_word(), Some([9, 8, 7, 6]));
    let memory = bench.host.octets(LOCAL);
    assert_eq!(memory[1000..1100], data[..100]);
    assert_eq!(memory[..5], data[100..105]);
    assert_eq!(memory[2000..2000 + data.len() - 105], data[105..]);
    // One acknowledgement says it all.
    let sent = bench.sent();
    assert_eq!((sent.len(), sent[0].psn, sent[0].message), (1, peer(3), ack(2)));
    assert_eq!(bench.rc.arrivals(), 2);
    // Without AckReq there is no acknowledgement.
    bench.take(peer(4), write(true, reth(0, 1)), &[1]);
    assert_eq!(bench.sent(), []);
}

/// The reason of the end names the path MTUs of both ends, where a packet shows the peer's.
#[test]
fn path_mtus_that_differ_are_named() {
    let fault = |bench: &mut Bench| {
        let events = bench.events();
        let fault = |event: &Event| match event {
            Event::Fault(reason) => Some(*reason),
            _ => None,
        };
        events.iter().find_map(fault).unwrap()
    };
    for (ours, peers) in [(256, 4096), (4096, 1024), (1024, 512)] {
        let mtu = Mtu::largest_within(ours);
        let bench = || Bench::with(config(), Attributes { mtu, ..attributes() });
        let names = [std::format!("path MTU is {ours} here"), std::format!("packets of {peers};")];
        // A Send, or a Write.
        for message in [send(Position::First), write(false, reth(0, 9000))] {
            let mut bench = bench();
            bench.post_recv(1, 0, 20_000);
            bench.take(peer(0), message, &pattern(peers, 1));
            let reason = fault(&mut bench);
            assert!(reason.code() == 0x61 && reason.is_invalid_request());
            assert!(names.iter().all(|name| reason.name().contains(name)), "{reason}");
        }
        // The answer to a Read.
        let mut bench = bench();
        bench.post(SendRequest::read(1, &[local(0, 20_000)], Stag(1), TaggedOffset(0)).signaled());
        bench.sent();
        let aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: 0 });
        let first = Message::ReadResponse { position: Position::First, aeth };
        bench.take(own(0), first, &pattern(peers, 1));
        let reason = fault(&mut bench);
        assert_eq!(reason.code(), 0x102);
        assert!(names.iter().all(|name| reason.name().contains(name)), "{reason}");
    }
}

/// Covers: ROCE-076
#[test]
fn a_gap_is_told_once() {
    let mut bench = Bench::new();
    for number in [1, 2, 3, 2] {
        bench.ask(peer(number), write(true, reth(0, 1)), &[1]);
    }
    let sent = bench.sent();
    let sequence = nak(NakCode::SequenceError, 0);
    assert_eq!((sent.len(), sent[0].psn, sent[0].message), (1, peer(0), sequence));
    bench.ask(peer(4), write(true, reth(0, 1)), &[1]);
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.host.octets(REMOTE)[0], 0);
    bench.ask(peer(0), write(true, reth(0, 1)), &[1]);
    assert_eq!(bench.sent()[0].message, ack(1));
    // The next gap is another.
    bench.ask(peer(2), write(true, reth(0, 1)), &[1]);
    let again: Vec<_> = bench.sent().iter().map(|sent| sent.psn).collect();
    assert_eq!((again, bench.events()), (Vec::from([peer(0), peer(1)]), Vec::new()));
    // Packets before the gap are acknowledged ahead of the NAK: rxe needs that.
    bench.ask(peer(1), write(true, reth(0, 1)), &[1]);
    bench.ask(peer(3), write(true, reth(0, 1)), &[1]);
    let sent: Vec<_> = bench.sent().iter().map(|sent| (sent.psn, sent.message)).collect();
    let sequence = nak(NakCode::SequenceError, 2);
    assert_eq!(sent, [(peer(1), ack(2)), (peer(2), sequence)]);
    // One that closes before it was told is none.
    bench.ask(peer(2), write(true, reth(0, 1)), &[1]);
    bench.ask(peer(4), write(true, reth(0, 1)), &[1]);
    bench.ask(peer(3), write(true, reth(0, 1)), &[1]);
    assert_eq!(bench.sent()[0].message, ack(4));
}

/// Covers: ROCE-077
#[test]
fn duplicates_are_executed_once_and_acknowledged() {
    let mut bench = Bench::new();
    for wr_id in 0..2 {
        bench.post_recv(wr_id, 8 * wr_id, 8);
    }
    bench.take(peer(0), send(Position::Only), &[1]);
    bench.take(peer(1), write(true, reth(0, 1)), &[2]);
    bench.take(peer(0), send(Position::Only), &[3]);
    bench.take(peer(1), write(true, reth(0, 1)), &[4]);
    assert_eq!(bench.received().len(), 1);
    assert_eq!((bench.host.octets(LOCAL)[0], bench.host.octets(REMOTE)[0]), (1, 2));
    let sent = bench.sent();
    assert_eq!((sent.len(), sent[0].psn, sent[0].message), (1, peer(1), ack(2)));
    // Half a PSN circle behind is the farthest that there is.
    bench.take(peer(2).plus(1 << 23), write(true, reth(0, 1)), &[5]);
    assert_eq!((bench.sent()[0].message, bench.host.octets(REMOTE)[0]), (ack(2), 2));
}

/// Covers: ROCE-087, ROCE-088
#[test]
fn without_a_receive_the_peer_waits() {
    let timer = RnrTimer::new(9);
    let mut bench = Bench::with(config(), Attributes { min_rnr_timer: timer, ..attributes() });
    let not_ready = Message::Acknowledge(Aeth { syndrome: Syndrome::RnrNak(timer), msn: 0 });
    bench.take(peer(0), send(Position::First), &[0; MTU]);
    bench.take(peer(1), send(Position::Last), &[0; 1]);
    bench.take(peer(2), send(Position::Only), &[0; 1]);
    let sent = bench.sent();
    assert_eq!((sent.len(), sent[0].psn, sent[0].message), (1, peer(0), not_ready));
    bench.take(peer(1), send(Position::Last), &[0; 1]);
    assert_eq!(bench.sent(), []);
    // Again, and still none.
    bench.take(peer(0), send(Position::First), &[0; MTU]);
    assert_eq!(bench.sent()[0].message, not_ready);
    bench.post_recv(0, 0, 1000);
    bench.take(peer(0), send(Position::First), &[0; MTU]);
    bench.ask(peer(1), send(Position::Last), &[0; 1]);
    assert_eq!(bench.sent()[0].message, ack(1));
    assert_eq!(bench.received().len(), 1);
    // A Write with immediate data wants one at its end.
    bench.take(peer(2), write(false, reth(0, MTU as u32 + 1)), &[1; MTU]);
    let last = Message::WriteMore { last: true, immediate: Some([1; 4]) };
    bench.take(peer(3), last, &[2]);
    let sent = bench.sent();
    assert_eq!((sent.len(), sent[0].psn), (1, peer(3)));
    assert!(matches!(sent[0].message, Message::Acknowledge(Aeth { msn: 1, .. })));
    assert_eq!(bench.rc.state(), QpState::Rts);
}

/// The receiver's program waits too, and can know why.
#[test]
fn a_message_that_finds_no_receive_for_long_is_told_of_once() {
    let after = Duration::from_secs(3);
    let mut bench = Bench::with(Config { tell_no_receive: Some(after), ..config() }, attributes());
    let told = |bench: &mut Bench| {
        core::iter::from_fn(|| bench.rc.poll_event())
            .filter(|event| matches!(event, Event::NoReceive))
            .count()
    };
    for (wait, number) in [(0, 0), (2, 0), (1, 1), (2, 1)] {
        // A receive has come for the one before.
        if number == 1 && wait == 1 {
            bench.post_recv(0, 0, 8);
            bench.take(peer(0), send(Position::Only), &[1]);
        }
        bench.wait(Duration::from_secs(wait));
        bench.take(peer(number), send(Position::Only), &[1]);
        assert_eq!(told(&mut bench), 0, "{wait}, {number}");
    }
    for expected in [1, 0] {
        bench.wait(Duration::from_secs(1));
        bench.take(peer(1), send(Position::Only), &[1]);
        assert_eq!(told(&mut bench), expected);
    }
}

/// Covers: ROCE-089
#[test]
fn a_write_with_immediate_data_takes_a_receive() {
    let mut bench = Bench::new();
    for wr_id in 0..2 {
        bench.post_recv(wr_id, 0, 4);
    }
    let immediate = Some([1, 2, 3, 4]);
    bench.take(peer(0), write(false, reth(5, MTU as u32 + 7)), &[1; MTU]);
    bench.take(peer(1), Message::WriteMore { last: true, immediate }, &[2; 7]);
    let only = Message::WriteBegin { only: true, reth: reth(0, 0), immediate };
    let bth = Bth::new(OWN_QP, peer(2)).soliciting(true);
    bench.take_header(header(bth, only), &[]);
    let [first, second] = bench.received()[..] else { panic!() };
    assert_eq!((first.op, first.byte_len), (WcOp::RecvWriteImmediate, MTU as u32 + 7));
    assert_eq!((first.immediate_word(), first.solicited), (immediate, false));
    assert_eq!((second.wr_id, second.byte_len, second.solicited), (1, 0, true));
    assert_eq!(bench.host.octets(LOCAL)[..4], [0; 4]);
    let memory = bench.host.octets(REMOTE);
    assert_eq!(memory[5..5 + MTU], [1; MTU]);
    assert_eq!(memory[5 + MTU..12 + MTU], [2; 7]);
}

/// Covers: ROCE-035, ROCE-037, ROCE-038, ROCE-040, ROCE-090, ROCE-104
#[test]
fn requests_that_make_no_sense_are_refused() {
    let long = reth(0, 2 * MTU as u32);
    let opening = [Some(send(Position::First)), Some(write(false, long)), None];
    let [in_send, in_write, between] = opening;
    let full = &[0; MTU][..];
    let wrong: [(Option<Message>, Message, &[u8]); 26] = [
        // A packet too many, too long or too short.
        (between, send(Position::Middle), full),
        (between, send(Position::Last), full),
        (between, more(false), full),
        (between, more(true), full),
        (between, send(Position::First), &full[1..]),
        (between, send(Position::Only), &[0; MTU + 1]),
        (between, write(false, long), &full[1..]),
        (between, write(true, reth(0, MTU as u32 + 1)), &[0; MTU + 1]),
        (in_send, send(Position::Middle), &full[1..]),
        (in_send, send(Position::Last), &[]),
        (in_send, send(Position::Last), &[0; MTU + 1]),
        // Within another message.
        (in_send, send(Position::First), full),
        (in_send, send(Position::Only), full),
        (in_send, more(true), full),
        (in_send, write(true, reth(0, 1)), &[0]),
        (in_send, Message::ReadRequest(reth(0, 1)), &[]),
        (in_send, add(0, 1), &[]),
        (in_write, send(Position::Last), full),
        (in_write, write(false, long), full),
        (in_write, Message::ReadRequest(reth(0, 1)), &[]),
        // A Write that is shorter or longer than it said.
        (in_write, more(true), &full[1..]),
        (in_write, more(false), full),
        (between, write(true, reth(0, 5)), &[0; 4]),
        (between, write(false, reth(0, MTU as u32)), full),
        // Longer than messages are.
        (between, write(false, reth(0, (1 << 31) + 1)), full),
        (between, Message::ReadRequest(reth(0, (1 << 31) + 1)), &[]),
    ];
    for (before, message, payload) in wrong {
        let mut bench = Bench::new();
        bench.post_recv(0, 0, 1000);
        bench.post_recv(1, 0, 1000);
        let mut number = 0;
        if let Some(before) = before {
            bench.take(peer(0), before, full);
            number = 1;
        }
        bench.take(peer(number), message, payload);
        assert_refused(&mut bench, number, NakCode::InvalidRequest, 0);
    }
}

/// Covers: ROCE-091
#[test]
fn operations_not_allowed_are_invalid_requests() {
    let requests = [
        (Access::REMOTE_WRITE, write(true, reth(0, 0))),
        (Access::REMOTE_READ, Message::ReadRequest(reth(0, 8))),
        (Access::REMOTE_ATOMIC, add(0, 1)),
    ];
    for (right, request) in requests {
        let access = Access::REMOTE - right;
        let mut bench = Bench::with(config(), Attributes { access, ..attributes() });
        bench.take(peer(0), request, &[]);
        assert_refused(&mut bench, 0, NakCode::InvalidRequest, 0);
        let mut bench = Bench::new();
        bench.rc.set_remote_access(access);
        bench.take(peer(0), request, &[]);
        assert_refused(&mut bench, 0, NakCode::InvalidRequest, 0);
    }
}

/// The owner's word in RTS counts instead of the attributes, whichever of them grants more.
///
/// Covers: ROCE-091
#[test]
fn rights_are_given_and_taken_away_in_rts() {
    let requests = [
        (Access::REMOTE_WRITE, write(true, reth(0, 0))),
        (Access::REMOTE_READ, Message::ReadRequest(reth(0, 0))),
        (Access::REMOTE_ATOMIC, add(0, 1)),
    ];
    for (right, request) in requests {
        let access = Access::REMOTE - right;
        let mut bench = Bench::with(config(), Attributes { access, ..attributes() });
        bench.rc.set_remote_access(right);
        bench.ask(peer(0), request, &[]);
        assert_eq!(bench.sent().len(), 1);
        assert_eq!((bench.rc.state(), bench.events().len()), (QpState::Rts, 0), "{right:?}");
        bench.rc.set_remote_access(access);
        bench.take(peer(1), request, &[]);
        assert_refused(&mut bench, 1, NakCode::InvalidRequest, 1);
    }
    // A Reset forgets it.
    let mut bench = Bench::new();
    bench.rc.set_remote_access(Access::empty());
    for state in [QpState::Reset, QpState::Init] {
        bench.rc.modify(state).unwrap();
    }
    bench.rc.set_attributes(&attributes());
    bench.rc.modify(QpState::Rtr).unwrap();
    bench.take(peer(0), add(0, 1), &[]);
    assert_eq!(bench.rc.state(), QpState::Rtr);
}

/// Covers: ROCE-092, ROCE-094, ROCE-095, ROCE-104
#[test]
fn memory_that_the_peer_may_not_use_is_an_access_error() {
    let outside = REGION_LEN as u64 - 7;
    let wrapping = Reth { va: TaggedOffset(u64::MAX - 3), ..reth(0, 8) };
    let foreign = Reth { rkey: Stag(0x9900), ..reth(0, 8) };
    let local = Reth { rkey: Stag(LOCAL), va: TaggedOffset(0), length: 8 };
    for reth in [foreign, reth(outside, 8), wrapping, local] {
        for request in [write(true, reth), Message::ReadRequest(reth)] {
            let mut bench = Bench::new();
            let payload: &[u8] =
                if request.operation() == write(true, reth).operation() { &[0; 8] } else { &[] };
            bench.take(peer(0), request, payload);
            assert_refused(&mut bench, 0, NakCode::RemoteAccess, 0);
        }
    }
    let mut bench = Bench::new();
    let atomic =
        AtomicEth { va: TaggedOffset(0), rkey: Stag(LOCAL), kind: AtomicKind::FetchAdd { add: 1 } };
    bench.take(peer(0), Message::Atomic(atomic), &[]);
    assert_refused(&mut bench, 0, NakCode::RemoteAccess, 0);
    // The whole of a Write is looked at when it begins.
    let mut bench = Bench::new();
    bench.take(peer(0), write(false, reth(outside - 255, MTU as u32 + 8)), &[1; MTU]);
    assert_refused(&mut bench, 0, NakCode::RemoteAccess, 0);
    assert!(bench.host.octets(REMOTE).iter().all(|octet| *octet == 0));
    // And again where it goes on.
    let mut bench = Bench::new();
    bench.take(peer(0), write(false, reth(0, MTU as u32 + 8)), &[1; MTU]);
    bench.host.change(REMOTE, |region| region.access -= Access::REMOTE_WRITE);
    bench.take(peer(1), more(true), &[1; 8]);
    assert_refused(&mut bench, 1, NakCode::RemoteAccess, 0);
    // Memory that is gone is this side's trouble.
    let mut bench = Bench::new();
    bench.host.change(REMOTE, |region| region.gone = true);
    bench.take(peer(0), write(true, reth(0, 1)), &[1]);
    assert_refused(&mut bench, 0, NakCode::RemoteOperation, 0);
}

/// Covers: ROCE-092
#[test]
fn the_receive_of_a_write_that_is_refused_says_so() {
    let mut bench = Bench::new();
    bench.post_recv(3, 0, 0);
    let reth = Reth { rkey: Stag(0x9900), ..reth(0, 1) };
    bench.take(peer(0), Message::WriteBegin { only: true, reth, immediate: Some([0; 4]) }, &[1]);
    let [wc] = bench.received()[..] else { panic!() };
    assert_eq!((wc.wr_id, wc.status), (3, WcStatus::LocalAccess));
}

/// Covers: ROCE-093
#[test]
fn without_octets_no_memory_is_looked_at() {
    let nowhere = Reth { va: TaggedOffset(u64::MAX), rkey: Stag(0), length: 0 };
    let mut bench = Bench::new();
    bench.ask(peer(0), write(true, nowhere), &[]);
    assert_eq!(bench.sent()[0].message, ack(1));
    bench.ask(peer(1), Message::ReadRequest(nowhere), &[]);
    let sent = bench.sent();
    assert_eq!(sent.len(), 1);
    let aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: 2 });
    let expected = Message::ReadResponse { position: Position::Only, aeth };
    assert_eq!((sent[0].psn, sent[0].message), (peer(1), expected));
}

/// Covers: ROCE-097
#[test]
fn a_message_longer_than_its_receive_is_refused() {
    for (length, packets) in [(MTU - 1, 1), (MTU, 2), (2 * MTU - 1, 2)] {
        let mut bench = Bench::new();
        bench.post_recv(4, 0, length as u32);
        bench.post_recv(5, 0, length as u32);
        if packets == 1 {
            bench.take(peer(0), send(Position::Only), &[0; MTU]);
        } else {
            bench.take(peer(0), send(Position::First), &[0; MTU]);
            bench.take(peer(1), send(Position::Last), &[0; MTU]);
        }
        let events = bench.events();
        let ended = |event: &Event| match event {
            Event::ReceiveCompleted(wc) => Some((wc.wr_id, wc.status)),
            _ => None,
        };
        let ended: Vec<_> = events.iter().filter_map(ended).collect();
        assert_eq!(ended, [(4, WcStatus::LocalLength), (5, WcStatus::Flushed)]);
        let sent = bench.sent();
        assert_eq!(sent[0].psn, peer(packets - 1));
        assert_eq!(sent[0].message, nak(NakCode::InvalidRequest, 0));
    }
}

/// Covers: ROCE-098
#[test]
fn trouble_with_the_memory_of_a_receive_is_an_operational_error() {
    let mut bench = Bench::new();
    bench.post_recv(4, REGION_LEN as u64, 8);
    bench.take(peer(0), send(Position::Only), &[0; 8]);
    assert_eq!(bench.received()[0].status, WcStatus::LocalProtection);
    assert_eq!(bench.sent()[0].message, nak(NakCode::RemoteOperation, 0));
    assert_eq!(bench.rc.state(), QpState::Err);
}

/// Covers: ROCE-099, ROCE-100, ROCE-101
#[test]
fn atomics_work_on_numbers_of_the_host() {
    let mut bench = Bench::new();
    bench.host.fill(REMOTE, 8, &5_u64.to_ne_bytes());
    bench.ask(peer(0), add(8, 3), &[]);
    let Reth { va, rkey, .. } = reth(8, 8);
    let kind = AtomicKind::CompareSwap { compare: 8, swap: 1 << 40 };
    bench.ask(peer(1), Message::Atomic(AtomicEth { va, rkey, kind }), &[]);
    let kind = AtomicKind::CompareSwap { compare: 8, swap: 2 };
    bench.ask(peer(2), Message::Atomic(AtomicEth { va, rkey, kind }), &[]);
    assert_eq!(bench.host.octets(REMOTE)[8..16], (1_u64 << 40).to_ne_bytes());
    let original = |sent: &Sent| match sent.message {
        Message::AtomicAcknowledge { original, .. } => (sent.psn, original),
        ref other => panic!("{other:?}"),
    };
    let sent: Vec<_> = bench.sent().iter().map(original).collect();
    assert_eq!(sent, [(peer(0), 5), (peer(1), 8), (peer(2), 1 << 40)]);
    // The address that the peer names counts, wherever the memory lies.
    bench.host.change(REMOTE, |region| region.skew = 4);
    bench.take(peer(3), add(12, 3), &[]);
    assert_refused(&mut bench, 3, NakCode::InvalidRequest, 3);
    let mut bench = Bench::new();
    bench.host.change(REMOTE, |region| region.skew = 4);
    bench.take(peer(0), add(8, 3), &[]);
    assert_refused(&mut bench, 0, NakCode::InvalidRequest, 0);
}

/// Covers: ROCE-102
#[test]
fn a_send_invalidates_before_it_completes() {
    let message =
        |stag| Message::Send { position: Position::Only, tail: SendTail::Invalidate(Stag(stag)) };
    let mut bench = Bench::new();
    bench.post_recv(0, 0, 8);
    bench.take(peer(0), message(REMOTE), &[1]);
    let [wc] = bench.received()[..] else { panic!() };
    assert_eq!((wc.status, wc.invalidated), (WcStatus::Success, Some(Stag(REMOTE))));
    assert!(!bench.host.bank.borrow().is_valid(Stag(REMOTE)));
    let mut bench = Bench::new();
    bench.host.change(REMOTE, |region| region.invalidation = Invalidation::Never);
    bench.post_recv(0, 0, 8);
    bench.take(peer(0), message(REMOTE), &[1]);
    assert_eq!(bench.received()[0].status, WcStatus::RemoteInvalidRequest);
    assert_eq!(bench.rc.state(), QpState::Err);
    // IBA vol. 1, 9.9.6.3, class J: no NAK. Earlier requests are acknowledged, if they asked for
    // it.
    assert_eq!(bench.sent(), []);
}

/// Covers: ROCE-102, ROCE-104
#[test]
fn requests_before_a_failed_invalidation_are_acknowledged() {
    let message =
        Message::Send { position: Position::Only, tail: SendTail::Invalidate(Stag(0x9900)) };
    let mut bench = Bench::new();
    bench.post_recv(0, 0, 8);
    bench.ask(peer(0), write(true, reth(0, 1)), &[1]);
    bench.ask(peer(1), message, &[1]);
    let sent = bench.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].psn, peer(0));
    assert!(matches!(
        sent[0].message,
        Message::Acknowledge(Aeth { syndrome: Syndrome::Ack { .. }, .. })
    ));
    bench.ask(peer(1), message, &[1]);
    assert_eq!(bench.sent(), []);
}

/// Covers: ROCE-095
#[test]
fn every_packet_is_checked_anew() {
    let mut bench = Bench::new();
    bench.host.revoke_after.set(Some((3, AccessError::InvalidStag)));
    bench.take(peer(0), write(false, reth(0, 3 * MTU as u32)), &[1; MTU]);
    bench.take(peer(1), more(false), &[1; MTU]);
    assert_eq!(bench.events(), []);
    bench.take(peer(2), more(true), &[1; MTU]);
    assert_refused(&mut bench, 2, NakCode::RemoteAccess, 0);
}

/// Covers: ROCE-032
#[test]
fn errors_are_counted() {
    let mut bench = Bench::new();
    bench.ask(peer(1), write(true, reth(0, 1)), &[1]);
    bench.ask(peer(2), write(true, reth(0, 1)), &[1]);
    bench.ask(peer(0), write(true, reth(0, 1)), &[1]);
    bench.ask(peer(0), write(true, reth(0, 1)), &[1]);
    bench.ask(peer(1), send(Position::Only), &[1]);
    bench.post(SendRequest::send(0, &[]));
    bench.post(SendRequest::send(1, &[]));
    bench.sent();
    bench.nak(0, NakCode::SequenceError);
    bench.sent();
    // The packets for which the NAK asked go once more, and then an answer is overdue.
    bench.wait_for_timeout();
    bench.sent();
    bench.wait_for_timeout();
    bench.sent();
    bench.answer(0, Syndrome::RnrNak(RnrTimer::new(1)));
    let counters = crate::wire::Counters {
        duplicate_request: 1,
        out_of_seq_request: 2,
        send_rnr_err: 1,
        rcvd_rnr_err: 1,
        rcvd_seq_err: 1,
        local_ack_timeout_err: 1,
        completer_retry_err: 4,
        ..crate::wire::Counters::default()
    };
    assert_eq!(*bench.rc.counters(), counters);
}
