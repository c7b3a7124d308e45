// SPDX-License-Identifier: MIT OR Apache-2.0

use std::vec;
use std::vec::Vec;

use iwarp_types::{
    Access, AccessError, AtomicOp, Bind, Core, Event, MAX_MESSAGE, Payload, PostError, QpState,
    Receive, RecvRequest, SendOp, SendRequest, Stag, TaggedOffset, Wanted, WcOp, WcStatus,
};
use proptest::prelude::*;

use super::Uc;
use crate::testing::{
    End, REGION, SIZE, Sent, address, assert_refused, attributes, completions, config, ended,
    pattern, remote, sge,
};
use crate::wire::{
    Burst, Message, Numbering, Path, Pkey, Position, Psn, Reth, SendTail, Transport,
};
use crate::{Attributes, Config, DatagramCore};

fn end(number: u8) -> End<Uc> {
    End::new(Uc::new(config(number)), &attributes(number))
}

fn ends() -> (End<Uc>, End<Uc>) {
    (end(1), end(2))
}

/// The packets of a message of `len` octets, of 256 each.
fn message(end: &mut End<Uc>, op: SendOp, len: usize) -> Vec<Sent> {
    end.host.fill(REGION, 0, &pattern(len));
    end.post(SendRequest::new(1, op, &[sge(0, len as u32)]));
    let packets = end.packets();
    assert_eq!(packets.len(), len.div_ceil(256).max(1));
    end.events();
    packets
}

fn write(at: u64) -> SendOp {
    let (stag, to) = remote(at);
    SendOp::Write { stag, to }
}

fn write_immediate(at: u64) -> SendOp {
    let (stag, to) = remote(at);
    SendOp::WriteImmediate { stag, to, solicited: true, data: [9, 8, 7, 6] }
}

fn psn(sent: &Sent) -> u32 {
    sent.packet().header.bth.psn.number()
}

/// Covers: ROCE-035, ROCE-036, ROCE-107, ROCE-108, ROCE-014
#[test]
fn messages_are_cut_by_the_mtu_and_complete_when_they_are_sent() {
    let mut a = end(1);
    let send = SendOp::Send { solicited: true, invalidate: None };
    let lengths = |packets: &[Sent]| -> Vec<usize> {
        packets.iter().map(|sent| sent.packet().payload.len()).collect()
    };
    for (len, expected) in [
        (0, &[0][..]),
        (1, &[1]),
        (256, &[256]),
        (257, &[256, 1]),
        (512, &[256, 256]),
        (700, &[256, 256, 188]),
    ] {
        for op in [send, write(0), write_immediate(0)] {
            let packets = message(&mut a, op, len);
            assert_eq!(lengths(&packets), expected);
            for (at, sent) in packets.iter().enumerate() {
                let header = sent.packet().header;
                let last = at + 1 == packets.len();
                assert_eq!(header.transport, Transport::Uc);
                assert!(!header.bth.ack_req);
                let solicits = !matches!(op, SendOp::Write { .. });
                assert_eq!(header.bth.solicited, solicits && last);
                assert_eq!(psn(sent), Psn::new(psn(&packets[0])).plus(at as u32).number());
                if let Message::WriteBegin { reth, .. } = header.message {
                    assert_eq!(reth.length as usize, len);
                }
            }
        }
    }
    a.post(SendRequest::send(7, &[sge(0, 1000)]));
    assert_eq!((a.core.wanted(), a.packets().len()), (Wanted::Much, 4));
    assert_eq!(ended(&a.events()), [(7, WcStatus::Success)]);
    assert_eq!(a.core.wanted(), Wanted::Nothing);
}

/// Covers: ROCE-037, ROCE-040, ROCE-089
#[test]
fn messages_of_every_kind_arrive() {
    let (mut a, mut b) = ends();
    for wr_id in 0..8 {
        b.receive(wr_id, 30_000, 2000);
    }
    let immediate = SendOp::SendImmediate { solicited: true, data: [1, 2, 3, 4] };
    for len in [0, 5, 256, 257, 1000] {
        let octets = pattern(len);
        let packets = message(&mut a, immediate, len);
        let told = completions(&b.told(&packets));
        let [wc] = told[..] else { panic!("{told:?}") };
        assert_eq!((wc.op, wc.byte_len as usize), (WcOp::Recv, len));
        assert_eq!((wc.immediate_word(), wc.solicited), (Some([1, 2, 3, 4]), true));
        assert_eq!((wc.source_qp, b.octets(30_000, len)), (None, octets.clone()));
        b.host.fill(REGION, 30_000, &[0; 2000]);
        assert_eq!(b.told(&message(&mut a, write(40_000), len)), []);
        assert_eq!(b.octets(40_000, len), octets);
    }
    let told = completions(&b.told(&message(&mut a, write_immediate(50_000), 600)));
    let [wc] = told[..] else { panic!("{told:?}") };
    assert_eq!((wc.wr_id, wc.op, wc.byte_len), (5, WcOp::RecvWriteImmediate, 600));
    assert_eq!((wc.immediate_word(), wc.solicited), (Some([9, 8, 7, 6]), true));
    assert_eq!(b.octets(50_000, 600), pattern(600));
    assert_eq!(b.octets(30_000, 600), [0; 600]);
    assert_eq!((b.core.arrivals(), b.core.drops().total()), (11, 0));
}

/// Covers: ROCE-109, ROCE-111
#[test]
fn a_gap_spoils_a_send_whose_receive_the_next_one_gets() {
    let (mut a, mut b) = ends();
    b.receive(1, 0, 1000);
    let packets = message(&mut a, SendOp::SEND, 1000);
    let next = message(&mut a, SendOp::SEND, 300);
    for lost in 0..4 {
        let rest = packets.iter().enumerate().filter(|(at, _)| *at != lost);
        assert_eq!(b.told(rest.map(|(_, sent)| sent)), [], "without {lost}");
    }
    // Packets that follow a gap are dropped to the end of the message: 3, 2, 1 packets, and none.
    assert_eq!(b.core.drops().sequence, 3 + 2 + 1);
    let told = completions(&b.told(&next));
    assert_eq!((told[0].wr_id, told[0].byte_len), (1, 300));
    assert_eq!(b.octets(0, 300), pattern(300));
}

/// Covers: ROCE-110
#[test]
fn a_message_may_begin_at_any_psn() {
    let (mut a, mut b) = ends();
    for (wr_id, ahead) in [(1, 0), (2, 1000), (3, 0x80_0000), (4, 0xff_fff0), (5, 0)] {
        b.receive(wr_id, 0, 1000);
        for len in [1000, 10] {
            b.receive(wr_id + 10, 0, 1000);
            let moved =
                |sent: &Sent| sent.with(|header| header.bth.psn = header.bth.psn.plus(ahead));
            let packets: Vec<Sent> = message(&mut a, SendOp::SEND, len).iter().map(moved).collect();
            assert_eq!(completions(&b.told(&packets)).len(), 1);
        }
        // One lies unused.
        assert_eq!(completions(&b.told(&message(&mut a, SendOp::SEND, 1))).len(), 1);
    }
    assert_eq!(b.core.drops().total(), 0);
}

/// Covers: ROCE-109, ROCE-040
#[test]
fn a_message_that_begins_within_another_ends_it() {
    let (mut a, mut b) = ends();
    b.receive(1, 0, 1000);
    let first = message(&mut a, SendOp::SEND, 600);
    let second = message(&mut a, SendOp::SEND, 600);
    assert_eq!(b.told([&first[0], &first[1]]), []);
    assert_eq!(completions(&b.told(&second))[0].wr_id, 1);
    // A part of another kind at the expected PSN is no part of it.
    b.receive(2, 0, 1000);
    let send = message(&mut a, SendOp::SEND, 600);
    let place = message(&mut a, write(2000), 600);
    let moved = place[1].with(|header| header.bth.psn = send[1].packet().header.bth.psn);
    assert_eq!(b.told([&send[0], &moved, &send[2]]), []);
    assert_eq!(b.octets(2000, 600), [0; 600]);
    assert_eq!(b.core.drops().sequence, 2);
    let moved = send[1].with(|header| header.bth.psn = place[1].packet().header.bth.psn);
    assert_eq!(b.told([&place[0], &moved, &place[2]]), []);
    assert_eq!(b.core.drops().sequence, 4);
    assert_eq!(b.octets(2000, 600)[256..], [0; 344]);
}

/// Covers: ROCE-111
#[test]
fn a_receive_from_a_shared_queue_ends_with_its_broken_message() {
    let mut a = end(1);
    let mut b = End::new(Uc::new(Config { shared_receive: true, ..config(2) }), &attributes(2));
    let post = |end: &End<Uc>, wr_id| {
        end.host.pool.borrow_mut().push_back(Receive { wr_id, sges: vec![sge(0, 300)] });
    };
    (1..=4).for_each(|wr_id| post(&b, wr_id));
    let packets = message(&mut a, SendOp::SEND, 300);
    assert_eq!(b.told([&packets[0]]), []);
    let told = ended(&b.told(&packets));
    assert_eq!(told, [(1, WcStatus::RemoteInvalidRequest), (2, WcStatus::Success)]);
    // Too long for its receive.
    let told = ended(&b.told(&message(&mut a, SendOp::SEND, 301)));
    assert_eq!(told, [(3, WcStatus::RemoteInvalidRequest)]);
    assert_eq!(b.core.state(), QpState::Rts);
    assert_eq!(b.told([&packets[0]]), []);
    b.core.disconnect();
    let events = b.events();
    assert_eq!(ended(&events), [(4, WcStatus::Flushed)]);
    assert_eq!(events.last(), Some(&Event::LastReceiveReached));
}

/// Covers: ROCE-112
#[test]
fn messages_without_a_receive_are_dropped_whole() {
    let (mut a, mut b) = ends();
    assert_eq!(b.told(&message(&mut a, SendOp::SEND, 600)), []);
    assert_eq!((b.core.drops().no_receive, b.core.drops().sequence), (1, 2));
    // A receive that comes amid a message is for the next one.
    let packets = message(&mut a, SendOp::SEND, 600);
    assert_eq!(b.told([&packets[0]]), []);
    b.receive(1, 0, 600);
    assert_eq!(b.told(&packets[1..]), []);
    assert_eq!(ended(&b.told(&packets)), [(1, WcStatus::Success)]);
    assert_eq!(b.told(&message(&mut a, write_immediate(0), 600)), []);
    assert_eq!(b.core.drops().no_receive, 3);
    assert_eq!(b.core.drops().total(), 3 + 4);
}

/// Covers: ROCE-112
#[test]
fn a_send_longer_than_its_receive_is_dropped() {
    let (mut a, mut b) = ends();
    b.receive(1, 0, 599);
    assert_eq!(b.told(&message(&mut a, SendOp::SEND, 600)), []);
    assert_eq!(b.core.drops().too_short, 1);
    assert_eq!(ended(&b.told(&message(&mut a, SendOp::SEND, 599))), [(1, WcStatus::Success)]);
}

/// Covers: ROCE-035
#[test]
fn wrong_lengths_spoil_a_message() {
    let (mut a, mut b) = ends();
    for op in [SendOp::SEND, write(2000)] {
        let packets = message(&mut a, op, 600);
        for (at, wrong) in [(0, 255), (0, 257), (1, 255), (1, 257), (1, 0), (2, 0), (2, 257)] {
            b.receive(1, 0, 2000);
            let drops = b.core.drops().length;
            let mut packets = packets.clone();
            packets[at] = packets[at].carrying(&pattern(wrong));
            assert_eq!(b.told(&packets), [], "{at}: {wrong} octets");
            assert_eq!(b.core.drops().length, drops + 1, "{at}: {wrong} octets");
            b.core.modify(QpState::Reset).unwrap();
            b = end(2);
        }
        let only = message(&mut a, op, 10).remove(0).carrying(&pattern(257));
        b.receive(1, 0, 2000);
        assert_eq!(b.told([&only]), []);
        assert_eq!(b.core.drops().length, 1);
        b = end(2);
    }
}

/// Covers: ROCE-037, ROCE-038
#[test]
fn a_write_has_the_length_that_it_has_announced() {
    let (mut a, mut b) = ends();
    let packets = message(&mut a, write(2000), 600);
    let announcing = |sent: &Sent, to: u32| {
        sent.with(|header| match &mut header.message {
            Message::WriteBegin { reth, .. } => reth.length = to,
            other => panic!("{other:?}"),
        })
    };
    for length in [0, 256, 512, 599, 601, 1 << 15] {
        let first = announcing(&packets[0], length);
        let arrived = b.core.arrivals();
        assert_eq!(b.told([&first, &packets[1], &packets[2]]), []);
        assert_eq!(b.core.arrivals(), arrived, "{length}");
    }
    let only = message(&mut a, write(2000), 100).remove(0);
    for length in [0, 99, 101] {
        b.take(&announcing(&only, length));
    }
    b.take(&announcing(&only, MAX_MESSAGE as u32 + 1));
    assert_eq!((b.core.arrivals(), b.core.drops().length), (0, 6 + 4));
    b.take(&only);
    assert_eq!(b.core.arrivals(), 1);
}

/// Covers: ROCE-093, ROCE-094, ROCE-095, ROCE-112
#[test]
fn writes_that_are_not_granted_leave_nothing() {
    let (mut a, mut b) = ends();
    let before = b.host.octets(REGION);
    let (stag, to) = remote(0);
    for (op, len) in [
        (SendOp::Write { stag: Stag(REGION ^ 1), to }, 300),
        (SendOp::Write { stag, to: TaggedOffset(to.0 - 1) }, 300),
        (write(SIZE as u64 - 299), 300),
        (SendOp::Write { stag, to: TaggedOffset(u64::MAX - 10) }, 300),
        (SendOp::Write { stag: Stag(0), to }, 1),
    ] {
        b.told(&message(&mut a, op, len));
        assert_eq!(b.host.octets(REGION), before, "{op:?}");
    }
    assert_eq!((b.core.drops().access, b.core.arrivals()), (5, 0));
    // Of nothing, no buffer is looked at.
    b.told(&message(&mut a, SendOp::Write { stag: Stag(0), to }, 0));
    assert_eq!(b.core.arrivals(), 1);
    // The queue pair's own rights, by its attributes and then by its owner, who takes and gives.
    let packets = message(&mut a, write(0), 10);
    let readable = Attributes { access: Access::REMOTE_READ, ..attributes(2) };
    b.core.set_attributes(&readable);
    b.told(&packets);
    b.core.set_attributes(&attributes(2));
    b.core.set_remote_access(Access::REMOTE_READ);
    b.told(&packets);
    assert_eq!((b.core.drops().access, b.core.arrivals()), (7, 1));
    b.core.set_attributes(&readable);
    b.core.set_remote_access(Access::REMOTE_WRITE);
    b.told(&packets);
    assert_eq!((b.core.arrivals(), b.octets(0, 10)), (2, pattern(10)));
}

/// Covers: ROCE-095
#[test]
fn a_write_whose_buffer_goes_is_dropped_from_there_on() {
    let (mut a, mut b) = ends();
    let packets = message(&mut a, write_immediate(0), 600);
    b.receive(1, 3000, 10);
    b.take(&packets[0]);
    b.host.change(REGION, |region| region.access = Access::LOCAL_WRITE);
    assert_eq!(b.told(&packets[1..]), []);
    assert_eq!(b.octets(0, 600), [&pattern(256)[..], &[0; 344]].concat());
    assert_eq!((b.core.drops().access, b.core.state()), (1, QpState::Rts));
}

/// Covers: ROCE-016, ROCE-011, ROCE-005
#[test]
fn only_the_peer_is_heard() {
    let (mut a, mut b) = ends();
    b.receive(1, 0, 1000);
    let sent = message(&mut a, SendOp::SEND, 10).remove(0);
    let by = |address| Sent { path: Path::new(address, 0xc000), ..sent.clone() };
    assert_eq!(b.told([&by(address(3, 2)), &by(address(1, 3)), &by(address(2, 1))]), []);
    assert_eq!(b.told([&sent.with(|header| header.bth.dest_qp = 0x13)]), []);
    assert_eq!(b.told([&sent.with(|header| header.transport = Transport::Rc)]), []);
    assert_eq!(b.core.drops().stray, 5);
    assert_eq!(b.told([&sent.with(|header| header.bth.pkey = Pkey(1))]), []);
    assert_eq!(b.core.drops().pkey, 1);
    // From any port.
    let other_port = Sent { path: Path::new(address(1, 2), 1), ..sent };
    assert_eq!(b.told([&other_port]).len(), 1);
}

/// Covers: ROCE-113
#[test]
fn requests_that_want_answers_are_refused() {
    let (stag, to) = remote(0);
    let refused = |request: SendRequest<'_>| assert_refused(end(1), &request);
    refused(SendRequest::read(1, &[], stag, to));
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    refused(SendRequest::atomic(1, &[sge(0, 8)], stag, to, add));
    refused(SendRequest::new(1, SendOp::Immediate { solicited: false, data: [0; 8] }, &[]));
    let invalidate = SendOp::Send { solicited: false, invalidate: Some(stag) };
    refused(SendRequest::new(1, invalidate, &[]));
}

#[test]
fn requests_that_need_no_peer_are_done_in_their_turn() {
    let mut a = end(1);
    let (window, new_stag) = (Stag(0x500), Stag(0x501));
    a.host.bank.borrow_mut().windows.push(iwarp_types::mock::Window {
        stag: window,
        bound: None,
        qp: config(1).qp,
    });
    a.host.change(REGION, |region| region.access |= Access::MW_BIND);
    let bind = Bind {
        window,
        new_stag,
        region: Stag(REGION),
        addr: crate::testing::BASE,
        length: 10,
        access: Access::REMOTE_READ,
    };
    a.post(SendRequest::send(1, &[]));
    a.post(SendRequest::bind(2, bind));
    a.post(SendRequest::local_invalidate(3, new_stag));
    a.post(SendRequest::send(4, &[]));
    a.post(SendRequest::local_invalidate(5, Stag(9)));
    a.post(SendRequest::send(6, &[]));
    let packets = a.packets();
    assert_eq!(packets.iter().map(psn).collect::<Vec<_>>(), [0xff_fffe, 0xff_ffff]);
    let done = WcStatus::Success;
    let failed = [(5, WcStatus::WindowBind), (6, WcStatus::Flushed)];
    let expected = [&[(1, done), (2, done), (3, done), (4, done)][..], &failed].concat();
    assert_eq!(ended(&a.events()), expected);
}

#[test]
fn a_drained_queue_ends_what_was_begun_and_no_more() {
    let mut a = end(1);
    a.post(SendRequest::send(1, &[sge(0, 1000)]));
    a.post(SendRequest::send(2, &[sge(0, 10)]));
    let mut burst = Burst::new(Numbering::Zero, 1);
    a.core.transmit(&mut burst, iwarp_types::Time::default(), &a.host);
    assert_eq!(burst.packets().count(), 1);
    a.core.modify(QpState::Sqd).unwrap();
    assert_eq!((a.events(), a.core.wanted()), (vec![], Wanted::Much));
    assert_eq!(a.packets().len(), 3);
    let events = a.events();
    assert_eq!(ended(&events), [(1, WcStatus::Success)]);
    assert_eq!(events.last(), Some(&Event::SendQueueDrained));
    assert_eq!((a.core.wanted(), a.packets()), (Wanted::Nothing, vec![]));
    a.core.modify(QpState::Rts).unwrap();
    assert_eq!(a.packets().len(), 1);
    a.events();
    // With nothing begun it is told at once, and once.
    a.core.modify(QpState::Sqd).unwrap();
    assert_eq!(a.events(), [Event::SendQueueDrained]);
    a.post(SendRequest::send(3, &[]));
    assert_eq!((a.packets(), a.events()), (vec![], vec![]));
}

#[test]
fn an_unreadable_request_fails_and_flushes_the_rest() {
    let mut a = end(1);
    a.post(SendRequest::send(1, &[sge(0, 300), sge(1 << 20, 300)]));
    a.post(SendRequest::send(2, &[]));
    assert_eq!(a.packets().len(), 1);
    let expected = [(1, WcStatus::LocalProtection), (2, WcStatus::Flushed)];
    assert_eq!(ended(&a.events()), expected);
    assert_eq!(a.core.state(), QpState::Sqe);
    a.core.modify(QpState::Rts).unwrap();
    // From its start, at the PSN behind the packet that went out.
    let packets = message(&mut a, SendOp::SEND, 10);
    assert_eq!((packets.len(), psn(&packets[0])), (1, 0xff_ffff));
}

/// Covers: ROCE-098
#[test]
fn a_receive_whose_memory_is_gone_ends_the_queue_pair() {
    let (mut a, mut b) = ends();
    b.receive(1, 0, 1000);
    let packets = message(&mut a, SendOp::SEND, 600);
    b.take(&packets[0]);
    b.host.revoke_after.set(Some((0, AccessError::Rights)));
    let events = b.told(&packets[1..]);
    assert_eq!(ended(&events), [(1, WcStatus::LocalProtection)]);
    assert!(matches!(events[1], Event::Fault(_)), "{events:?}");
    assert_eq!((b.core.state(), b.core.is_connected()), (QpState::Err, false));
}

#[test]
fn a_reset_forgets_the_message_under_way() {
    let (mut a, mut b) = ends();
    b.receive(1, 0, 1000);
    let packets = message(&mut a, SendOp::SEND, 600);
    b.take(&packets[0]);
    b.core.modify(QpState::Reset).unwrap();
    b.core.set_attributes(&attributes(2));
    for state in [QpState::Init, QpState::Rtr] {
        b.core.modify(state).unwrap();
    }
    b.receive(2, 0, 1000);
    assert_eq!(b.told(&packets[1..]), []);
    assert_eq!(b.core.drops().sequence, 2);
    assert_eq!(ended(&b.told(&packets)), [(2, WcStatus::Success)]);
}

#[test]
fn a_port_that_is_gone_flushes() {
    let (mut a, mut b) = ends();
    a.post(SendRequest::send(1, &[]));
    a.post(SendRequest::send(2, &[]));
    a.receive(3, 0, 10);
    a.core.unreachable();
    let flushed = WcStatus::Flushed;
    assert_eq!(ended(&a.events()), [(1, WcStatus::RetryExceeded), (2, flushed), (3, flushed)]);
    b.core.fail_locally("no more memory");
    assert!(matches!(b.events()[..], [Event::Fault(_)]));
    b.core.lost();
    assert_eq!(b.events(), []);
    let mut request = SendRequest::send(4, &[]);
    request.signaled = false;
    b.core.post_send(&request).unwrap();
    b.core.post_recv(&RecvRequest::new(5, &[])).unwrap();
    assert_eq!(ended(&b.events()), [(4, flushed), (5, flushed)]);
}

#[test]
fn limits_are_those_that_it_was_made_with() {
    let mut a = end(1);
    let list = [sge(0, 1); 5];
    let refused = a.core.post_send(&SendRequest::send(1, &list));
    assert_eq!(refused, Err(PostError::TooManySges));
    let long = pattern(257);
    let refused = a.core.post_send(&SendRequest::send(1, Payload::Inline(&long)));
    assert_eq!(refused, Err(PostError::InlineTooLong));
    (0..8).for_each(|wr_id| a.post_inline(wr_id, SendOp::SEND, &long[..9]));
    assert_eq!(a.core.post_send(&SendRequest::send(8, &[])), Err(PostError::QueueFull));
    (0..8).for_each(|wr_id| a.receive(wr_id, 0, 1));
    let request = RecvRequest::new(8, &[]);
    assert_eq!(a.core.post_recv(&request), Err(PostError::QueueFull));
    assert_eq!(a.core.outstanding(), (8, 8));
    let fresh = &mut Uc::new(config(1));
    assert_eq!(fresh.post_send(&SendRequest::send(1, &[])), Err(PostError::WrongState));
}

/// The header of a Write of a length that no packet has.
fn huge(length: u32) -> Message {
    let (rkey, va) = remote(0);
    Message::WriteBegin { only: false, reth: Reth { va, rkey, length }, immediate: None }
}

#[derive(Clone, Debug)]
enum UcAction {
    Packet { message: Message, psn: u32, len: usize },
    Receive(u32),
}

fn steps() -> impl Strategy<Value = UcAction> {
    let position = prop::sample::select(vec![
        Position::First,
        Position::Middle,
        Position::Last,
        Position::Only,
    ]);
    let (rkey, va) = remote(0);
    let message = prop_oneof![
        position.prop_map(|position| Message::Send { position, tail: SendTail::Plain }),
        prop::sample::select(vec![
            Message::Send { position: Position::Last, tail: SendTail::Immediate([1; 4]) },
            Message::WriteMore { last: false, immediate: None },
            Message::WriteMore { last: true, immediate: None },
            Message::WriteMore { last: true, immediate: Some([1; 4]) },
            Message::ReadRequest(Reth { va, rkey, length: 5 }),
            huge(u32::MAX),
            huge(600),
            huge(512),
        ]),
    ];
    let len = prop_oneof![Just(256_usize), Just(88), 0_usize..300];
    prop_oneof![
        8 => (message, 0_u32..4, len)
            .prop_map(|(message, psn, len)| UcAction::Packet { message, psn, len }),
        1 => (0_u32..900).prop_map(UcAction::Receive),
    ]
}

proptest! {
    /// No matter what a peer sends, each receive ends once, in order, and no octet lies outside the
    /// granted memory.
    ///
    /// Covers: ROCE-019, ROCE-095
    #[test]
    fn arbitrary_packets_end_receives_in_order_within_granted_memory(steps in prop::collection::vec(steps(), 0..60)) {
        let (mut a, mut b) = ends();
        let sent = message(&mut a, SendOp::SEND, 1).remove(0);
        b.host.change(REGION, |region| region.octets.fill(0xaa));
        let (mut psn, mut posted, mut next) = (0, 0, 0);
        for step in steps {
            match step {
                UcAction::Receive(length) => {
                    let list = [sge(0, length)];
                    posted += u64::from(b.core.post_recv(&RecvRequest::new(posted, &list)).is_ok());
                }
                UcAction::Packet { message, psn: ahead, len } => {
                    // Mostly the one that is expected.
                    psn += [1, 1, 1, 2][ahead as usize];
                    let mut packet = sent.packet();
                    let payload = pattern(len);
                    packet.header.message = message;
                    packet.header.bth.psn = Psn::new(psn);
                    packet.payload = &payload;
                    let (core, host) = (&mut b.core, &b.host);
                    core.receive(&packet, &sent.path, iwarp_types::Time::default(), host, host);
                }
            }
            for (wr_id, status) in ended(&b.events()) {
                prop_assert_eq!((wr_id, status), (next, WcStatus::Success));
                next += 1;
            }
            prop_assert_eq!(b.core.outstanding().1 as u64, posted - next);
        }
        prop_assert!(b.octets(900, SIZE - 900).iter().all(|octet| *octet == 0xaa));
    }
}
