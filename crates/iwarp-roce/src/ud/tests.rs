// SPDX-License-Identifier: MIT OR Apache-2.0

use std::net::IpAddr;
use std::vec;
use std::vec::Vec;

use iwarp_types::{
    AccessError, AtomicOp, Core, Destination, Event, Payload, PostError, QpState, Receive,
    RecvRequest, SendOp, SendRequest, Stag, TaggedOffset, WcOp, WcStatus,
};

use super::Ud;
use crate::testing::{
    End, REGION, Sent, address, assert_refused, attributes, completions, config, ended, pattern,
    remote, sge,
};
use crate::wire::{Deth, MULTICAST_QP, Message, Path, Pkey, Position, SendTail, Transport};
use crate::{Attributes, Config, DatagramCore};

fn end(number: u8) -> End<Ud> {
    End::new(Ud::new(config(number)), &attributes(number))
}

fn ends() -> (End<Ud>, End<Ud>) {
    (end(1), end(2))
}

/// Queue pair 0x12 at end 2.
fn to_second() -> Destination {
    Destination { address: address(1, 2), qp: 0x12, qkey: 0x1234 }
}

/// The packet of a request to end 2.
fn packet(end: &mut End<Ud>, op: SendOp, octets: &[u8], to: &Destination) -> Sent {
    end.post(SendRequest::new(1, op, Payload::Inline(octets)).to(to));
    let mut packets = end.packets();
    assert_eq!(packets.len(), 1);
    packets.remove(0)
}

/// A packet of a few octets to end 2.
fn plain(octets: &[u8]) -> Sent {
    packet(&mut end(1), SendOp::SEND, octets, &to_second())
}

/// Covers: ROCE-114, ROCE-118, ROCE-119
#[test]
fn a_message_is_one_packet_and_comes_behind_its_grh() {
    let (mut a, mut b) = ends();
    let octets = pattern(256);
    a.host.fill(REGION, 100, &octets);
    let list = [sge(100, 200), sge(300, 56)];
    a.post(SendRequest::send(5, &list).to(&to_second()));
    b.receive(9, 1000, 300);
    let packets = a.packets();
    let [sent] = &packets[..] else { panic!("{packets:?}") };
    let header = sent.packet().header;
    assert_eq!(header.transport, Transport::Ud);
    assert_eq!(header.deth, Some(Deth { qkey: 0x1234, source_qp: 0x11 }));
    assert_eq!((header.bth.dest_qp, header.bth.psn.number()), (0x12, 0xff_fffe));
    assert!(!header.bth.ack_req && !header.bth.solicited);
    assert_eq!(sent.path, Path::new(address(1, 2), 0xc000));
    let done = completions(&a.events());
    assert_eq!((done[0].wr_id, done[0].op, done[0].status), (5, WcOp::Send, WcStatus::Success));
    let told = completions(&b.told(&packets));
    let [wc] = told[..] else { panic!("{told:?}") };
    assert_eq!((wc.wr_id, wc.op, wc.status), (9, WcOp::Recv, WcStatus::Success));
    assert_eq!((wc.byte_len, wc.source_qp.unwrap().get()), (296, 0x11));
    assert_eq!((wc.immediate, wc.solicited), (None, false));
    let all = b.octets(1000, 296);
    assert_eq!((&all[..21], &all[40..]), (&[&[0; 20][..], &[0x45]].concat()[..], &octets[..]));
    // IP, UDP, BTH, DETH, payload and ICRC.
    assert_eq!(all[22..24], (20 + 8 + 12 + 8 + 256 + 4_u16).to_be_bytes());
    assert_eq!(all[32..40], [10, 0, 0, 1, 10, 0, 0, 2]);
}

/// Covers: ROCE-013, ROCE-014, ROCE-114
#[test]
fn immediate_data_and_solicitation_arrive_and_psns_count() {
    let (mut a, mut b) = ends();
    let immediate = SendOp::SendImmediate { solicited: true, data: [1, 2, 3, 4] };
    let first = packet(&mut a, SendOp::SEND, b"x", &to_second());
    let second = packet(&mut a, immediate, b"yz", &to_second());
    let third = packet(&mut a, SendOp::SEND, b"", &to_second());
    let psn = |sent: &Sent| sent.packet().header.bth.psn.number();
    assert_eq!([psn(&first), psn(&second), psn(&third)], [0xff_fffe, 0xff_ffff, 0]);
    for wr_id in 0..3 {
        b.receive(wr_id, wr_id * 100, 100);
    }
    // In any order.
    let told = completions(&b.told([&third, &second, &first]));
    let immediates: Vec<_> = told.iter().map(|wc| (wc.immediate_word(), wc.solicited)).collect();
    assert_eq!(immediates, [(None, false), (Some([1, 2, 3, 4]), true), (None, false)]);
    let lengths: Vec<u32> = told.iter().map(|wc| wc.byte_len).collect();
    assert_eq!(lengths, [40, 42, 41]);
    // The GRH of the second counts its immediate data and its pad: 20 + 8 + 12 + 8 + 4 + 4 + 4.
    assert_eq!(b.octets(122, 2), [0, 60]);
}

/// Covers: ROCE-117
#[test]
fn the_top_bit_of_a_qkey_asks_for_the_own_one() {
    let qkey = |asked: u32| {
        let to = Destination { qkey: asked, ..to_second() };
        packet(&mut end(1), SendOp::SEND, b"", &to).packet().header.deth.unwrap().qkey
    };
    assert_eq!(qkey(0x8000_0000), 0x1234);
    assert_eq!(qkey(0xdead_beef), 0x1234);
    assert_eq!(qkey(0x7fff_ffff), 0x7fff_ffff);
}

/// Covers: ROCE-116, ROCE-122, ROCE-019, ROCE-011
#[test]
fn packets_that_do_not_fit_are_dropped_and_counted() {
    let mut b = end(2);
    let good = plain(b"hello");
    assert_eq!(b.told([&good]), []);
    assert_eq!(b.core.drops().no_receive, 1);
    b.receive(1, 0, 100);
    let other_key =
        |sent: &Sent, qkey| sent.with(|header| header.deth = Some(Deth { qkey, source_qp: 0x11 }));
    assert_eq!(b.told([&other_key(&good, 0x1235), &other_key(&good, 0)]), []);
    assert_eq!(b.core.drops().qkey, 2);
    assert_eq!(b.told([&good.with(|header| header.bth.pkey = Pkey(0x8001))]), []);
    assert_eq!(b.core.drops().pkey, 1);
    let wrong_number = good.with(|header| header.bth.dest_qp = 0x11);
    let no_source = good.with(|header| header.deth = Some(Deth { qkey: 0x1234, source_qp: 0 }));
    assert_eq!(b.told([&wrong_number, &no_source]), []);
    assert_eq!((b.core.drops().stray, b.core.drops().total()), (2, 6));
    assert!(b.packets().is_empty());
    assert_eq!(ended(&b.told([&good])), [(1, WcStatus::Success)]);
}

/// Covers: ROCE-005, ROCE-017
#[test]
fn other_types_and_other_states_hear_nothing() {
    let good = plain(b"hello");
    let other = |transport| {
        good.with(|header| {
            header.transport = transport;
            header.deth = None;
        })
    };
    let mut b = end(2);
    b.receive(1, 0, 100);
    assert_eq!(b.told([&other(Transport::Rc), &other(Transport::Uc)]), []);
    for (state, hears) in [
        (QpState::Sqd, true),
        (QpState::Rts, true),
        (QpState::Err, false),
        (QpState::Reset, false),
        (QpState::Init, false),
        (QpState::Rtr, true),
    ] {
        b.core.set_attributes(&attributes(2));
        b.core.modify(state).unwrap();
        b.events();
        if b.core.post_recv(&RecvRequest::new(2, &[sge(0, 100)])).is_ok() {
            b.events();
        }
        let heard = completions(&b.told([&good]));
        assert_eq!(heard.iter().any(|wc| wc.status == WcStatus::Success), hears, "{state:?}");
    }
}

/// Covers: ROCE-121
#[test]
fn a_receive_that_is_too_short_waits_for_a_message_that_fits() {
    let mut b = end(2);
    let (long, short) = (plain(&pattern(61)), plain(&pattern(60)));
    b.receive(1, 0, 100);
    b.receive(2, 200, 39);
    b.receive(3, 300, 40);
    assert_eq!(b.told([&long, &long]), []);
    assert_eq!(b.core.drops().too_short, 2);
    assert_eq!(b.core.outstanding(), (0, 3));
    assert_eq!(ended(&b.told([&short])), [(1, WcStatus::Success)]);
    assert_eq!(b.octets(40, 60), pattern(60));
    assert_eq!(b.told([&plain(b"")]), []);
    b.core.modify(QpState::Err).unwrap();
    assert_eq!(ended(&b.events()), [(2, WcStatus::Flushed), (3, WcStatus::Flushed)]);
}

#[test]
fn a_receive_from_a_shared_queue_that_was_taken_is_flushed() {
    let mut b = End::new(Ud::new(Config { shared_receive: true, ..config(2) }), &attributes(2));
    for wr_id in [1, 2] {
        b.host.pool.borrow_mut().push_back(Receive { wr_id, sges: vec![sge(0, 50)] });
    }
    let request = RecvRequest::new(0, &[]);
    assert_eq!(b.core.post_recv(&request), Err(PostError::SharedReceiveQueue));
    assert_eq!(b.told([&plain(&pattern(11))]), []);
    assert_eq!(b.core.outstanding(), (0, 1));
    assert_eq!(b.host.pool.borrow().len(), 1);
    b.core.disconnect();
    let events = b.events();
    assert_eq!(ended(&events), [(1, WcStatus::Flushed)]);
    assert_eq!(events.last(), Some(&Event::LastReceiveReached));
    b.core.disconnect();
    assert_eq!(b.events(), []);
}

/// Cards end such a request by this status, and so does the suite that people try devices with ask
/// for it.
///
/// Covers: ROCE-115
#[test]
fn messages_longer_than_the_mtu_are_not_sent() {
    let mut a = end(1);
    for (wr_id, length) in [(1, 256), (2, 257), (3, 5)] {
        a.post(SendRequest::send(wr_id, &[sge(0, length)]).to(&to_second()));
    }
    assert_eq!(a.packets().len(), 1);
    let expected = [(1, WcStatus::Success), (2, WcStatus::LocalLength), (3, WcStatus::Flushed)];
    assert_eq!(ended(&a.events()), expected);
    assert_eq!(a.core.state(), QpState::Sqe);
}

#[test]
fn a_send_queue_in_error_flushes_until_the_program_says_otherwise() {
    let mut a = end(1);
    a.receive(9, 0, 100);
    a.post(SendRequest::send(1, &[sge(1 << 20, 5)]).to(&to_second()));
    assert!(a.packets().is_empty());
    assert_eq!(ended(&a.events()), [(1, WcStatus::LocalProtection)]);
    a.post(SendRequest::send(2, &[sge(0, 5)]).to(&to_second()));
    assert_eq!(ended(&a.events()), [(2, WcStatus::Flushed)]);
    // Receives go on.
    let sent = plain(b"hello").with(|header| header.bth.dest_qp = 0x11);
    assert_eq!(ended(&a.told([&sent])), [(9, WcStatus::Success)]);
    a.core.modify(QpState::Rts).unwrap();
    let sent = packet(&mut a, SendOp::SEND, b"", &to_second());
    // The PSN goes on: what failed took none.
    assert_eq!(sent.packet().header.bth.psn.number(), 0xff_fffe);
}

#[test]
fn only_sends_with_a_destination_are_sent() {
    let (stag, to) = remote(0);
    let all = to_second();
    let refused = |request: SendRequest<'_>| assert_refused(end(1), &request);
    refused(SendRequest::send(1, &[]));
    refused(SendRequest::write(1, &[], stag, to).to(&all));
    refused(SendRequest::read(1, &[], stag, to).to(&all));
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    refused(SendRequest::atomic(1, &[sge(0, 8)], stag, to, add).to(&all));
    refused(SendRequest::local_invalidate(1, stag).to(&all));
    let invalidate = SendOp::Send { solicited: false, invalidate: Some(Stag(5)) };
    refused(SendRequest::new(1, invalidate, &[]).to(&all));
    let immediate = SendOp::Immediate { solicited: false, data: [0; 8] };
    refused(SendRequest::new(1, immediate, &[]).to(&all));
    let data = [0; 4];
    let write = SendOp::WriteImmediate { stag, to: TaggedOffset(0), solicited: false, data };
    refused(SendRequest::new(1, write, &[]).to(&all));
}

/// Covers: ROCE-012, ROCE-127, ROCE-129
#[test]
fn groups_are_heard_while_they_are_attached() {
    let mut b = end(2);
    let group: IpAddr = [239, 1, 2, 3].into();
    let other: IpAddr = [239, 1, 2, 4].into();
    let to = Destination {
        address: iwarp_types::AddressVector { destination: group, ..address(1, 2) },
        qp: MULTICAST_QP,
        qkey: 0x1234,
    };
    let sent = packet(&mut end(1), SendOp::SEND, b"all", &to);
    assert_eq!(sent.path.address.destination, group);
    (0..4).for_each(|wr_id| b.receive(wr_id, 0, 100));
    assert_eq!(b.told([&sent]), []);
    assert_eq!(b.core.attach([10, 0, 0, 2].into()), Err(PostError::Invalid));
    b.core.attach(other).unwrap();
    assert_eq!(b.told([&sent]), []);
    b.core.attach(group).unwrap();
    b.core.attach(group).unwrap();
    assert_eq!(ended(&b.told([&sent])), [(0, WcStatus::Success)]);
    let wrong_key = sent.with(|header| header.deth = Some(Deth { qkey: 1, source_qp: 0x11 }));
    assert_eq!(b.told([&wrong_key]), []);
    // To its own number it is no multicast packet, at any address.
    let by_number = sent.with(|header| header.bth.dest_qp = 0x12);
    assert_eq!(b.told([&by_number]).len(), 1);
    assert!(b.core.detach(group) && !b.core.detach(group));
    assert_eq!(b.told([&sent]), []);
    let to_host = Sent { path: Path::new(address(1, 2), 1), ..sent };
    b.core.attach(group).unwrap();
    assert_eq!(b.told([&to_host]), []);
}

/// Covers: ROCE-098
#[test]
fn a_receive_whose_memory_is_gone_ends_the_queue_pair() {
    let mut b = end(2);
    b.receive(1, 0, 100);
    b.receive(2, 0, 100);
    b.host.revoke_after.set(Some((1, AccessError::InvalidStag)));
    let events = b.told([&plain(b"hello")]);
    assert_eq!(ended(&events), [(1, WcStatus::LocalProtection), (2, WcStatus::Flushed)]);
    assert!(events.iter().any(|event| matches!(event, Event::Fault(_))), "{events:?}");
    assert_eq!(b.core.state(), QpState::Err);
}

#[test]
fn requests_that_are_not_signalled_are_counted_before_the_next_one_that_is() {
    let mut a = end(1);
    for (wr_id, signaled) in [(1, false), (2, false), (3, true), (4, false)] {
        let to = to_second();
        let mut request = SendRequest::send(wr_id, &[]).to(&to);
        request.signaled = signaled;
        a.core.post_send(&request).unwrap();
    }
    assert_eq!(a.packets().len(), 4);
    let events = a.events();
    assert!(matches!(events[..], [Event::SilentSends(2), Event::SendCompleted(_)]), "{events:?}");
    assert_eq!(a.core.outstanding(), (0, 0));
    a.core.lost();
    assert_eq!(a.events(), [Event::Lost]);
}

#[test]
fn a_reset_forgets_all_but_the_groups() {
    let mut b = end(2);
    let group: IpAddr = [239, 1, 2, 3].into();
    b.core.attach(group).unwrap();
    b.receive(1, 0, 100);
    assert_eq!(b.told([&plain(&pattern(100))]), []);
    b.core.modify(QpState::Reset).unwrap();
    assert_eq!((b.core.outstanding(), b.core.drops().total()), ((0, 0), 0));
    assert!(b.core.is_attached(group) && !b.core.has_events());
    let request = RecvRequest::new(1, &[]);
    assert_eq!(b.core.post_recv(&request), Err(PostError::WrongState));
}

/// Packets that no encoder of ours makes: parts of a message, which UD has not.
#[test]
fn parts_of_messages_are_dropped() {
    let mut b = end(2);
    b.receive(1, 0, 100);
    let sent = plain(b"hello");
    let mut packet = sent.packet();
    for message in [
        Message::Send { position: Position::First, tail: SendTail::Plain },
        Message::Send { position: Position::Only, tail: SendTail::Invalidate(Stag(REGION)) },
    ] {
        packet.header.message = message;
        let (core, host) = (&mut b.core, &b.host);
        DatagramCore::receive(core, &packet, &sent.path, iwarp_types::Time::default(), host, host);
    }
    assert_eq!((b.events(), b.core.drops().stray), (vec![], 2));
}

#[test]
fn attributes_say_where_psns_begin_at_rts_and_not_before() {
    let mut a = end(1);
    let later = Attributes { sq_psn: crate::wire::Psn::new(5), ..attributes(1) };
    packet(&mut a, SendOp::SEND, b"", &to_second());
    a.core.set_attributes(&later);
    a.core.modify(QpState::Rts).unwrap();
    let sent = packet(&mut a, SendOp::SEND, b"", &to_second());
    assert_eq!(sent.packet().header.bth.psn.number(), 0xff_ffff);
}
