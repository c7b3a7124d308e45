// SPDX-License-Identifier: MIT OR Apache-2.0

//! Answers behind messages that wait for their receive: they tell the peer that what it sent
//! before was received ([`Config::acknowledge`]), so they wait with them.

use super::octets::{self, atomic_request, fetch_add, read_request, send, tagged, word};
use super::park::{parking, raw};
use super::*;
use crate::ddp::wire::Header;
use crate::qp::Fault;
use crate::qp::inbound::park::Parked;
use crate::qp::inbound::{Come, Follow};
use crate::rdmap::wire::Opcode;

const NONE: [u8; 0] = [];

/// Opcodes of what comes back.
fn answers(raw: &mut Raw) -> Vec<u8> {
    let wants = raw.end.qp.borrow_mut().wants_transmit();
    let back: Vec<u8> = raw.back().iter().map(|ulpdu| ulpdu[1]).collect();
    assert_eq!(wants, !back.is_empty(), "{back:02x?}");
    back
}

#[test]
fn a_send_completes_when_it_is_in_its_receive() {
    for shared_receive in [false, true] {
        let config = Config { acknowledge: true, shared_receive, ..parking() };
        let mut pair = Pair::with(config, |terms| {
            (terms.ird, terms.ord, terms.spare_ird, terms.spare_ord) = (0, 0, 1, 1);
        });
        pair.a.post(1, SEND, &[local(0, 8)]);
        pair.run();
        assert_eq!(pair.b.parked(), (true, false));
        assert_eq!(pair.a.completions(), []);
        match shared_receive {
            true => pair.b.in_pool(1, &[local(0, 8)]),
            false => pair.b.receive(1, &[local(0, 8)]),
        }
        assert!(!pair.b.qp.borrow_mut().wants_transmit());
        pair.b.look_again();
        assert!(pair.b.qp.borrow_mut().wants_transmit());
        assert_eq!(pair.b.completions().len(), 1);
        pair.run();
        assert_eq!(outcomes(&pair.a.completions()), [(1, WcStatus::Success, WcOp::Send)]);
    }
}

#[test]
fn every_answer_waits_for_the_messages_before_it_and_for_no_later_one() {
    let cases = [
        (read_request(1, 0, 0, 0), octets::READ_RESPONSE),
        (read_request(1, 8, OPEN, OPEN_BASE), octets::READ_RESPONSE),
        (atomic_request(1, OPEN, OPEN_BASE, fetch_add(1)), octets::ATOMIC_RESPONSE),
    ];
    for (request, answer) in cases {
        let mut raw = raw(parking());
        raw.send(&send(1, b"one"));
        raw.send(&octets::untagged(octets::IMMEDIATE, true, 0, 0, 2, 0, &[0; 8]));
        raw.send(&request);
        raw.send(&send(3, b"three"));
        raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE + 8, b"placed"));
        assert_eq!(answers(&mut raw), NONE);
        assert_eq!(raw.end.host.octets(OPEN)[..14], *b"\0\0\0\0\0\0\0\0placed");
        raw.end.receive(1, &[local(0, 8)]);
        raw.end.look_again();
        assert_eq!(answers(&mut raw), NONE);
        raw.end.receive(2, &[]);
        raw.end.look_again();
        assert_eq!(raw.end.parked(), (true, false));
        assert_eq!(answers(&mut raw), [answer]);
        assert_eq!(raw.end.completions().len(), 2);
    }
}

/// Messages that this end sends of its own do not wait with them, nor do they let them pass.
#[test]
fn requests_go_on_while_answers_wait() {
    let mut raw = raw(parking());
    raw.send(&send(1, b"one"));
    raw.send(&read_request(1, 0, 0, 0));
    for wr_id in 0..3 {
        raw.end.post(wr_id, SEND, &[]);
        assert_eq!(answers(&mut raw), [octets::SEND]);
    }
    raw.end.receive(1, &[local(0, 8)]);
    raw.end.look_again();
    assert_eq!(answers(&mut raw), [octets::READ_RESPONSE]);
}

#[test]
fn a_message_is_received_when_its_octets_are_and_its_stag_is_invalid() {
    let mut raw = raw(parking());
    let ulpdu = octets::untagged(octets::SEND_INVALIDATE, true, OPEN, 0, 1, 0, b"x");
    raw.send(&ulpdu);
    raw.send(&read_request(1, 0, 0, 0));
    raw.end.receive(1, &[local(0, 8)]);
    let Ok(Header::Untagged(header)) = Header::parse(&ulpdu) else { panic!("a Send") };
    let (opcode, octets) = (Opcode::SendInvalidate, b"x".to_vec());
    let message = Parked {
        header,
        opcode,
        write: None,
        before: Come::default(),
        octets,
        start: 0,
        whole: true,
    };
    let mut qp = raw.end.qp.borrow_mut();
    qp.unpark(&message, None, |_| false, &mut Vec::new());
    assert!(!qp.wants_transmit(), "it is only being placed");
    let follow = qp.end_segment(Ok(()));
    assert!(matches!(follow, Follow::Invalidate(Stag(OPEN), _)));
    assert!(!qp.wants_transmit(), "its STag is only being invalidated");
    qp.invalidated(Ok(()));
    assert!(qp.wants_transmit());
}

/// With CRC off a message may begin in the park and end in its receive.
#[test]
fn a_message_that_is_half_parked_holds_nothing_up_once_it_is_received() {
    let mut raw = raw(parking());
    raw.send(&octets::untagged(octets::SEND, false, 0, 0, 1, 0, b"be"));
    raw.end.receive(1, &[local(0, 8)]);
    raw.end.look_again();
    raw.send(&octets::untagged(octets::SEND, true, 0, 0, 1, 2, b"gun"));
    raw.send(&send(2, b"late"));
    raw.send(&read_request(1, 0, 0, 0));
    assert_eq!(answers(&mut raw), NONE);
    raw.end.receive(2, &[local(8, 8)]);
    raw.end.look_again();
    assert_eq!(answers(&mut raw), [octets::READ_RESPONSE]);
}

/// Covers: RDMAP-5040-6.1-05
#[test]
fn requests_that_wait_occupy_the_inbound_queue() {
    let mut raw = Raw::responder(parking(), |terms| (terms.ird, terms.spare_ird) = (1, 1));
    raw.send(&send(1, b"one"));
    raw.send(&read_request(1, 0, 0, 0));
    raw.send(&read_request(2, 8, OPEN, OPEN_BASE));
    raw.back();
    let third = read_request(3, 0, 0, 0);
    assert_eq!(raw.refuse(&third)[..2], [0x12, 0x02]);
}

/// Its requests are flushed, and it wants no answer any more.
#[test]
fn a_peer_that_closes_before_its_messages_are_received_has_closed_well() {
    let mut raw = raw(parking());
    raw.send(&send(1, b"unread"));
    raw.send(&read_request(1, 0, 0, 0));
    raw.end.eof();
    assert_eq!(raw.end.events(), [Event::Disconnected]);
    assert_eq!(answers(&mut raw), NONE);
    assert_eq!(raw.end.disposition(), Disposition::Finish);
    // Octets that it asked for it cannot do without.
    let mut raw = self::raw(parking());
    raw.send(&send(1, b"unread"));
    raw.send(&read_request(1, 8, OPEN, OPEN_BASE));
    raw.end.eof();
    assert_eq!(raw.end.events(), [Event::Fault(Fault::BadClose)]);
}

#[test]
fn a_disconnected_end_answers_for_no_message_that_it_never_received() {
    let mut raw = raw(parking());
    raw.end.receive(1, &[local(0, 8)]);
    raw.send(&send(1, b"received"));
    raw.send(&read_request(1, 0, 0, 0));
    raw.send(&send(2, b"parked"));
    raw.send(&read_request(2, 0, 0, 0));
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(raw.end.disposition(), Disposition::Open);
    let back = raw.back();
    assert_eq!((back.len(), word(&back[0], 2)), (1, 0x5151_0001));
    assert_eq!(raw.end.disposition(), Disposition::Finish);
    // If none may be answered, the stream ends at once.
    let mut raw = self::raw(parking());
    raw.send(&send(1, b"parked"));
    raw.send(&read_request(1, 0, 0, 0));
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(answers(&mut raw), NONE);
    assert_eq!(raw.end.disposition(), Disposition::Finish);
}

/// The program of the peer is told that its message is lost, and not that it was received.
#[test]
fn a_message_parked_at_a_disconnect_is_flushed_at_the_sender() {
    let mut pair = Pair::with(Config { acknowledge: true, ..parking() }, |_| {});
    pair.a.post(1, SEND, &[local(0, 8)]);
    pair.run();
    pair.b.qp.borrow_mut().disconnect();
    pair.run();
    pair.a.eof();
    let events = pair.a.events();
    assert_eq!(events[0], Event::Disconnected);
    let completions: Vec<_> = events.into_iter().filter_map(completion).collect();
    assert_eq!(outcomes(&completions), [(1, WcStatus::Flushed, WcOp::Send)]);
}
