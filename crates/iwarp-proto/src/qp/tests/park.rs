// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages that come before their receive ([`Config::park`]).

use core::time::Duration;

use proptest::prelude::*;

use super::octets::{self, send, tagged, untagged, word};
use super::*;
use crate::qp::Park;

const PARK: Park = Park { octets: 10_000, messages: 4, timer: Duration::from_secs(1) };
const RNR_RETRY_STAG: u32 = 0x6957_5252;

pub(super) fn parking() -> Config {
    Config { park: Some(PARK), extensions: Extensions::Ask, ..config() }
}

fn with(park: Park) -> Config {
    Config { park: Some(park), ..parking() }
}

/// A responder that parks, and a peer of our own kind.
pub(super) fn raw(config: Config) -> Raw {
    let mut raw = Raw::responder(config, |_| {});
    raw.send(&hello());
    assert_eq!(raw.end.events(), [Event::FirstHeard]);
    raw.back();
    raw
}

fn hello() -> Vec<u8> {
    tagged(octets::WRITE, true, 0x6957_4152, 0x5048_454c_0100_000f, &[])
}

/// The peer says how often it would send a message again.
fn rnr_retry(count: u64) -> Vec<u8> {
    tagged(octets::WRITE, true, RNR_RETRY_STAG, count, &[])
}

/// As [`raw`], with a peer that has said so.
fn impatient(config: Config, count: u64) -> Raw {
    let mut raw = raw(config);
    raw.send(&rnr_retry(count));
    assert_eq!((raw.end.events(), raw.back().len()), (vec![], 0));
    raw
}

impl End {
    /// Receives may be there.
    pub(super) fn look_again(&mut self) {
        self.arrive(&[]);
    }

    pub(super) fn parked(&self) -> (bool, bool) {
        let qp = self.qp.borrow();
        assert_eq!(qp.is_stalled(), self.rx.is_stalled());
        (qp.has_parked(), qp.is_stalled())
    }

    pub(super) fn in_pool(&self, wr_id: u64, sges: &[Sge]) {
        self.host.pool.borrow_mut().push_back(Receive { wr_id, sges: sges.to_vec() });
    }
}

#[test]
fn a_message_without_a_receive_waits_for_one() {
    let mut raw = raw(parking());
    raw.send(&send(1, b"early"));
    assert_eq!(raw.end.parked(), (true, false));
    assert_eq!((raw.end.events(), raw.end.state()), (vec![], QpState::Rts));
    assert_eq!(raw.end.qp.borrow().poll_timeout(), None);
    raw.end.receive(1, &[local(0, 8)]);
    raw.end.look_again();
    let completions = raw.end.completions();
    assert_eq!(outcomes(&completions), [(1, WcStatus::Success, WcOp::Recv)]);
    assert_eq!(completions[0].byte_len, 5);
    assert_eq!(raw.end.host.octets(LOCAL)[..5], *b"early");
    assert_eq!(raw.end.parked(), (false, false));
    raw.end.receive(2, &[local(8, 8)]);
    raw.send(&send(2, b"in time"));
    assert_eq!(raw.end.completions().len(), 1);
}

/// The octets of messages that were not delivered are no octets that were dealt with.
#[test]
fn octets_wait_from_the_first_message_on_that_has_no_receive() {
    let mut raw = raw(parking());
    raw.end.receive(1, &[local(0, 8)]);
    raw.send(&send(1, b"in time"));
    assert_eq!(raw.end.rx.waiting(), 0);
    raw.send(&send(2, b"early"));
    let one = raw.end.rx.waiting();
    assert!(one > 0);
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"written"));
    let both = raw.end.rx.waiting();
    assert!(both > one);
    raw.send(&send(3, b"late"));
    assert!(raw.end.rx.waiting() > both);
    raw.end.receive(2, &[local(8, 8)]);
    raw.end.look_again();
    // That behind the Write.
    assert!((1..both).contains(&raw.end.rx.waiting()));
    raw.end.receive(3, &[local(16, 8)]);
    raw.end.look_again();
    assert_eq!(raw.end.rx.waiting(), 0);
    // One that no receive will come for is never delivered.
    raw.send(&send(4, b"lost"));
    let lost = raw.end.rx.waiting();
    raw.end.qp.borrow_mut().disconnect();
    raw.end.look_again();
    assert!(raw.end.rx.waiting() >= lost && !raw.end.rx.has_waiting());
}

/// Nor are those of a message that is refused, and those behind it.
#[test]
fn octets_wait_that_come_with_a_fault() {
    let mut raw = raw(parking());
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"written"));
    assert_eq!(raw.end.rx.waiting(), 0);
    raw.send(&tagged(octets::WRITE, true, 0x7700, 0, b"refused"));
    let refused = raw.end.rx.waiting();
    assert!(refused > 0);
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"behind"));
    assert!(raw.end.rx.waiting() > refused);
}

/// Covers: RDMAP-5040-5.5-05
#[test]
fn later_messages_queue_behind_and_what_is_placed_goes_on() {
    let mut raw = raw(parking());
    raw.end.post(9, read_op(0), &[local(100, 4)]);
    let request = raw.back().remove(0);
    raw.send(&untagged(octets::SEND_SOLICITED, true, 0, 0, 1, 0, b"one"));
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"written"));
    raw.send(&untagged(octets::IMMEDIATE, true, 0, 0, 2, 0, b"abcdwimm"));
    raw.send(&untagged(0x4c, true, u32::from_be_bytes(*b"WXYZ"), 0, 3, 0, b"three"));
    let (stag, to) = (word(&request, 18), octets::long(&request, 22));
    raw.send(&tagged(octets::READ_RESPONSE, true, stag, to, b"read"));
    assert_eq!(raw.end.host.octets(OPEN)[..7], *b"written");
    assert_eq!(outcomes(&raw.end.completions()), [(9, WcStatus::Success, WcOp::Read)]);
    // A receive comes, and then the next message: the older ones are first.
    raw.end.receive(1, &[local(0, 8)]);
    raw.send(&send(4, b"four"));
    let first = raw.end.completions();
    assert_eq!(first.len(), 1);
    assert!(first[0].solicited);
    for wr_id in 2..6 {
        raw.end.receive(wr_id, &[local(wr_id * 8, 8)]);
    }
    raw.end.look_again();
    let rest = raw.end.completions();
    let summary: Vec<_> =
        rest.iter().map(|wc| (wc.wr_id, wc.op, wc.byte_len, wc.immediate_word())).collect();
    assert_eq!(
        summary,
        [
            (2, WcOp::RecvWriteImmediate, 7, Some(*b"abcd")),
            (3, WcOp::Recv, 5, Some(*b"WXYZ")),
            (4, WcOp::Recv, 4, None),
        ]
    );
    assert_eq!(raw.end.host.octets(LOCAL)[..3], *b"one");
    assert_eq!(raw.end.host.octets(LOCAL)[24..29], *b"three");
    assert_eq!(raw.end.host.octets(LOCAL)[32..36], *b"four");
    raw.send(&send(5, b"five"));
    assert_eq!(raw.end.completions().len(), 1);
}

/// A receive may be posted by another thread right before a segment is judged.
#[test]
fn a_message_does_not_overtake_a_parked_one_to_a_receive_that_was_just_posted() {
    for shared_receive in [false, true] {
        let mut raw = raw(Config { shared_receive, ..parking() });
        raw.send(&send(1, b"one"));
        match shared_receive {
            true => raw.end.in_pool(1, &[local(0, 8)]),
            false => raw.end.receive(1, &[local(0, 8)]),
        }
        let next = send(2, b"two");
        let plan = raw.end.qp.borrow_mut().begin_segment(&next, next.len(), &mut Vec::new());
        assert!(matches!(plan, crate::qp::inbound::Plan::Park(_)), "{plan:?}");
    }
}

#[test]
fn a_send_with_invalidate_invalidates_when_it_is_delivered() {
    let mut raw = raw(parking());
    raw.send(&untagged(octets::SEND_INVALIDATE, true, OPEN, 0, 1, 0, b"x"));
    assert_eq!(raw.end.host.touches(), []);
    raw.end.receive(1, &[local(0, 8)]);
    raw.end.look_again();
    let completions = raw.end.completions();
    assert_eq!(completions[0].invalidated, Some(Stag(OPEN)));
    assert_eq!(
        raw.end.host.touches(),
        [
            Touch::Placed { stag: LOCAL, len: 1 },
            Touch::Invalidated { stag: OPEN, by: Invalidator::Remote }
        ]
    );
}

/// Covers: DDP-5041-7.1-12
#[test]
fn a_parked_message_that_is_too_long_for_its_receive_ends_the_stream() {
    let mut raw = raw(parking());
    raw.send(&send(1, b"fits"));
    raw.send(&send(2, b"too long"));
    raw.end.receive(1, &[local(0, 4)]);
    raw.end.receive(2, &[local(8, 7)]);
    raw.end.receive(3, &[local(16, 8)]);
    raw.end.look_again();
    let events = raw.end.events();
    let completions: Vec<_> = events.into_iter().filter_map(completion).collect();
    assert_eq!(
        outcomes(&completions),
        [
            (1, WcStatus::Success, WcOp::Recv),
            (2, WcStatus::LocalLength, WcOp::Recv),
            (3, WcStatus::Flushed, WcOp::Recv)
        ]
    );
    assert_eq!(raw.terminate(), quoting([0x12, 0x05], 26, &send(2, &[]), &[]));
    assert_eq!(raw.end.parked(), (false, false));
}

#[test]
fn a_parked_message_whose_receive_is_refused_ends_the_stream() {
    let mut raw = raw(parking());
    raw.send(&send(1, b"x"));
    raw.end.receive(1, &[Sge { addr: 0, length: 8, lkey: Stag(0xbad) }]);
    raw.end.look_again();
    let completions = raw.end.completions();
    assert_eq!(outcomes(&completions), [(1, WcStatus::LocalProtection, WcOp::Recv)]);
    assert_eq!(raw.terminate()[..2], [0, 0]);
}

#[test]
fn a_full_park_holds_the_stream_up_until_there_is_a_receive() {
    for (crc, markers) in [(true, false), (true, true), (false, false)] {
        let mut raw = Raw::responder(parking(), |terms| {
            (terms.crc, terms.send_markers, terms.receive_markers) = (crc, markers, markers);
        });
        raw.send(&hello());
        raw.back();
        raw.end.events();
        for msn in 1..5 {
            raw.send(&send(msn, &[msn as u8]));
        }
        assert_eq!(raw.end.parked(), (true, false));
        raw.send(&send(5, &[5]));
        assert_eq!(raw.end.parked(), (true, true));
        // Any octets behind it stay where they are.
        let write = raw.fpdu(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"later"));
        raw.end.arrive(&write);
        assert_eq!(raw.end.inbox.len(), write.len());
        assert_eq!(raw.end.host.octets(OPEN)[..5], [0; 5]);
        raw.end.receive(1, &[local(0, 8)]);
        raw.end.look_again();
        assert_eq!(raw.end.parked(), (true, false));
        assert_eq!(raw.end.host.octets(OPEN)[..5], *b"later");
        assert_eq!((raw.end.completions().len(), raw.end.inbox.len()), (1, 0));
        for wr_id in 2..6 {
            raw.end.receive(wr_id, &[local(wr_id * 8, 8)]);
        }
        raw.end.look_again();
        assert_eq!(raw.end.completions().len(), 4);
        assert_eq!(raw.end.host.octets(LOCAL)[40], 5);
        assert_eq!(raw.end.parked(), (false, false));
    }
}

/// Covers: DDP-5041-7.1-09
#[test]
fn a_message_that_waits_longer_than_the_peer_would_repeat_it_ends_the_stream() {
    for (count, messages) in [(1, 4), (2, 4), (6, 4), (2, 1), (2, 0)] {
        let mut raw = impatient(with(Park { messages, ..PARK }), count);
        raw.send(&send(1, b"one"));
        raw.send(&send(2, b"two"));
        assert_eq!(raw.end.parked(), (true, messages < 2));
        let qp = &raw.end.qp;
        // It does not know the time, and asks for it.
        assert_eq!(qp.borrow().poll_timeout(), Some(Time::default()));
        qp.borrow_mut().handle_timeout(at(10_000));
        let end = 10_000 + 1000 * count;
        assert_eq!(qp.borrow().poll_timeout(), Some(at(end)));
        qp.borrow_mut().handle_timeout(at(end - 1));
        assert_eq!(qp.borrow().state(), QpState::Rts);
        qp.borrow_mut().handle_timeout(at(end));
        assert_eq!((qp.borrow().state(), qp.borrow().poll_timeout()), (QpState::Err, None));
        // The first is quoted, even if others came behind it.
        assert_eq!(raw.terminate(), quoting([0x12, 0x02], 21, &send(1, &[]), &[]));
        // The rest is read and dropped.
        raw.end.arrive(b"anything");
        assert!(!raw.end.rx.is_stalled());
        assert_eq!(raw.end.inbox.len(), 0);
    }
}

/// A card ends at the first RNR NAK then.
#[test]
fn a_peer_that_repeats_nothing_does_not_wait() {
    let mut raw = impatient(parking(), 0);
    raw.send(&send(1, b"one"));
    raw.end.qp.borrow_mut().handle_timeout(at(5));
    assert_eq!(raw.terminate(), quoting([0x12, 0x02], 21, &send(1, &[]), &[]));
}

/// The Read that asks whether it arrived stands behind the message that is refused.
#[test]
fn the_message_that_waits_is_quoted() {
    let mut raw = impatient(parking(), 1);
    raw.send(&send(1, b"one"));
    raw.send(&send(2, b"three"));
    raw.send(&octets::read_request(1, 0, 0, 0));
    raw.end.receive(1, &[local(0, 8)]);
    raw.end.look_again();
    raw.end.qp.borrow_mut().handle_timeout(at(0));
    raw.end.qp.borrow_mut().handle_timeout(at(1000));
    assert_eq!(raw.terminate(), quoting([0x12, 0x02], 23, &send(2, &[]), &[]));
}

#[test]
fn each_message_has_a_wait_of_its_own() {
    let mut raw = impatient(parking(), 2);
    raw.send(&send(1, b"one"));
    raw.end.qp.borrow_mut().handle_timeout(at(1000));
    raw.send(&send(2, b"two"));
    assert_eq!(raw.end.qp.borrow().poll_timeout(), Some(at(3000)));
    raw.end.receive(1, &[local(0, 8)]);
    raw.end.look_again();
    assert_eq!(raw.end.qp.borrow().poll_timeout(), Some(Time::default()));
    raw.end.qp.borrow_mut().handle_timeout(at(2500));
    assert_eq!(raw.end.qp.borrow().poll_timeout(), Some(at(4500)));
    // Looking in vain changes nothing about it.
    raw.end.look_again();
    assert_eq!(raw.end.qp.borrow().poll_timeout(), Some(at(4500)));
    raw.end.receive(2, &[local(8, 8)]);
    raw.end.look_again();
    assert_eq!(raw.end.qp.borrow().poll_timeout(), None);
    assert_eq!(raw.end.completions().len(), 2);
    raw.send(&send(3, b"three"));
    assert_eq!(raw.end.qp.borrow().poll_timeout(), Some(Time::default()));
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(raw.end.qp.borrow().poll_timeout(), None);
    assert!(!raw.end.qp.borrow().has_parked());
}

/// The peer's own word comes after it.
#[test]
fn this_end_sets_the_limit_of_a_peer_that_says_none() {
    let mut raw = raw(parking());
    raw.end.qp.borrow_mut().set_rnr_timer(Duration::from_secs(2));
    raw.end.qp.borrow_mut().set_peer_rnr_retry(3);
    raw.send(&send(1, b"one"));
    raw.end.qp.borrow_mut().handle_timeout(at(0));
    assert_eq!(raw.end.qp.borrow().poll_timeout(), Some(at(6000)));
    raw.send(&rnr_retry(1));
    assert_eq!(raw.end.qp.borrow().poll_timeout(), Some(at(2000)));
    raw.end.qp.borrow_mut().set_peer_rnr_retry(7);
    assert_eq!(raw.end.qp.borrow().poll_timeout(), None);
}

#[test]
fn a_peer_that_sets_no_limit_waits_for_ever() {
    for said in [None, Some(7), Some(8)] {
        let mut raw = raw(with(Park { messages: 0, ..PARK }));
        said.into_iter().for_each(|count| raw.send(&rnr_retry(count)));
        raw.send(&send(1, b"one"));
        assert_eq!(raw.end.parked(), (true, true));
        assert_eq!(raw.end.qp.borrow().poll_timeout(), None);
        raw.end.qp.borrow_mut().handle_timeout(at(1 << 40));
        raw.end.receive(1, &[local(0, 8)]);
        raw.end.look_again();
        assert_eq!(raw.end.completions().len(), 1);
    }
}

#[test]
fn the_limit_of_a_wait_can_be_changed() {
    let mut raw = impatient(parking(), 3);
    raw.end.qp.borrow_mut().set_rnr_timer(Duration::from_secs(2));
    raw.send(&send(1, b"one"));
    raw.end.qp.borrow_mut().handle_timeout(at(0));
    assert_eq!(raw.end.qp.borrow().poll_timeout(), Some(at(6000)));
    raw.send(&rnr_retry(7));
    assert_eq!(raw.end.qp.borrow().poll_timeout(), None);
    // A queue pair that does not park has nothing to wait for.
    let raw = Raw::new();
    raw.end.qp.borrow_mut().set_rnr_timer(Duration::from_secs(1));
    assert_eq!(raw.end.qp.borrow().config().park, None);
}

#[test]
fn a_message_that_waits_long_is_told_of_once() {
    let told = Duration::from_secs(3);
    let mut raw = raw(Config { tell_no_receive: Some(told), ..parking() });
    raw.send(&send(1, b"one"));
    raw.end.qp.borrow_mut().handle_timeout(at(1000));
    assert_eq!(raw.end.qp.borrow().poll_timeout(), Some(at(4000)));
    raw.end.qp.borrow_mut().handle_timeout(at(3999));
    assert_eq!(raw.end.events(), []);
    raw.end.qp.borrow_mut().handle_timeout(at(4000));
    assert_eq!(raw.end.events(), [Event::NoReceive]);
    raw.send(&send(2, b"two"));
    raw.end.qp.borrow_mut().handle_timeout(at(9000));
    assert_eq!((raw.end.events(), raw.end.qp.borrow().poll_timeout()), (vec![], None));
}

/// Told behind the hello frame and in front of the first request, and again when it changes.
#[test]
fn the_peer_is_told_how_often_a_message_would_be_sent_again() {
    let mut raw = Raw::initiator(parking(), |_| {});
    raw.end.qp.borrow_mut().set_rnr_retry(7);
    assert_eq!(raw.back().len(), 1, "the hello frame, as nothing has changed");
    raw.end.post(1, SEND, &[]);
    raw.end.qp.borrow_mut().set_rnr_retry(3);
    assert_eq!(raw.back(), [rnr_retry(3), send(1, &[])]);
    raw.end.qp.borrow_mut().set_rnr_retry(3);
    assert_eq!(raw.back().len(), 0);
    raw.end.qp.borrow_mut().set_rnr_retry(255);
    assert_eq!(raw.back(), [rnr_retry(7)]);
    // An RNIC has no such count, nor a peer that is asked nothing.
    for config in
        [Config { park: None, ..parking() }, Config { extensions: Extensions::Refuse, ..parking() }]
    {
        let mut raw = Raw::initiator(config, |_| {});
        raw.back();
        raw.end.qp.borrow_mut().set_rnr_retry(3);
        assert_eq!(raw.back().len(), 0);
    }
}

#[test]
fn a_message_longer_than_the_park_goes_on_in_its_receive() {
    for crc in [true, false] {
        let mut raw = Raw::responder(parking(), |terms| terms.crc = crc);
        raw.send(&hello());
        raw.back();
        raw.end.events();
        let octets = pattern(40_000, 3);
        let mut stream = Vec::new();
        for (number, piece) in octets.chunks(6000).enumerate() {
            let last = number == 6;
            let at = number as u32 * 6000;
            let ulpdu = untagged(octets::SEND, last, 0, 0, 1, at, piece);
            stream.extend(raw.fpdu(&ulpdu));
        }
        raw.end.arrive(&stream);
        assert_eq!(raw.end.parked(), (true, true));
        raw.end.receive(1, &[local(5, 10_000), local(20_000, 30_000)]);
        raw.end.look_again();
        assert_eq!(raw.end.parked(), (false, false));
        let completions = raw.end.completions();
        assert_eq!(outcomes(&completions), [(1, WcStatus::Success, WcOp::Recv)]);
        assert_eq!(completions[0].byte_len, 40_000);
        let got = raw.end.host.octets(LOCAL);
        assert_eq!(got[5..10_005], octets[..10_000]);
        assert_eq!(got[20_000..50_000], octets[10_000..]);
    }
}

/// With CRC off the payload of a long segment is taken as it comes.
#[test]
fn a_segment_that_is_half_parked_is_delivered_when_it_ends() {
    let mut raw = Raw::responder(parking(), |terms| terms.crc = false);
    raw.send(&hello());
    raw.back();
    raw.end.events();
    let octets = pattern(9000, 4);
    let first = raw.fpdu(&untagged(octets::SEND, false, 0, 0, 1, 0, &octets[..7000]));
    raw.end.arrive(&first[..3000]);
    assert!(raw.end.rx.direct().is_none());
    raw.end.receive(1, &[local(0, 9000)]);
    raw.end.look_again();
    assert_eq!(raw.end.host.touches(), []);
    raw.end.arrive(&first[3000..]);
    assert_eq!(raw.end.parked(), (false, false));
    assert_eq!(raw.end.host.octets(LOCAL)[..7000], octets[..7000]);
    raw.send(&untagged(octets::SEND, true, 0, 0, 1, 7000, &octets[7000..]));
    assert_eq!(raw.end.completions()[0].byte_len, 9000);
    assert_eq!(raw.end.host.octets(LOCAL)[..9000], octets[..]);
}

#[test]
fn receives_of_a_pool_are_asked_for_again() {
    let mut raw = raw(Config { shared_receive: true, ..parking() });
    raw.end.in_pool(1, &[local(0, 8)]);
    for msn in 1..4 {
        raw.send(&send(msn, &[msn as u8]));
    }
    assert_eq!(raw.end.completions().len(), 1);
    assert_eq!(raw.end.parked(), (true, false));
    raw.end.in_pool(2, &[local(8, 8)]);
    raw.end.look_again();
    assert_eq!(raw.end.completions()[0].wr_id, 2);
    raw.end.in_pool(3, &[local(16, 8)]);
    raw.end.in_pool(4, &[local(24, 8)]);
    // Without being told to look: the next message that comes is a reason as well.
    raw.send(&send(4, &[4]));
    let completions = raw.end.completions();
    assert_eq!(completions.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [3, 4]);
    let got = raw.end.host.octets(LOCAL);
    assert_eq!([got[0], got[8], got[16], got[24]], [1, 2, 3, 4]);
    assert_eq!(raw.end.parked(), (false, false));
    // An ended stream takes nothing from the pool.
    raw.send(&send(5, &[5]));
    raw.end.qp.borrow_mut().disconnect();
    raw.end.in_pool(5, &[]);
    raw.end.look_again();
    assert_eq!(raw.end.host.pool.borrow().len(), 1);
}

/// Covers: DDP-5041-7.1-10
#[test]
fn the_numbers_of_parked_messages_are_checked_as_they_come() {
    let second = send(2, &[]);
    for (ulpdu, code) in [(send(3, &[]), 0x02), (send(1, &[]), 0x03)] {
        let mut raw = raw(parking());
        raw.send(&send(1, &[]));
        assert_eq!(raw.refuse(&ulpdu), quoting([0x12, code], 18, &ulpdu, &[]));
    }
    let mut raw = raw(parking());
    raw.send(&send(1, &[]));
    raw.send(&second);
    assert_eq!(raw.end.parked(), (true, false));
    // A hole in a message that has no receive yet.
    let mut raw = self::raw(parking());
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"abc"));
    let hole = untagged(octets::SEND, true, 0, 0, 1, 4, b"e");
    assert_eq!(raw.refuse(&hole), quoting([0x12, 0x04], 19, &hole[..18], &[]));
    // Another message in the middle of one.
    let mut raw = self::raw(parking());
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"abc"));
    let other = untagged(octets::IMMEDIATE, true, 0, 0, 1, 0, &[0; 8]);
    assert_eq!(raw.refuse(&other), quoting([0x02, 0x06], 26, &other[..18], &[]));
}

#[test]
fn a_peer_that_closes_behind_parked_messages_has_closed_well() {
    let mut raw = raw(parking());
    raw.send(&send(1, b"unread"));
    raw.end.eof();
    assert_eq!(raw.end.events(), [Event::Disconnected]);
    raw.end.look_again();
    assert_eq!(raw.end.events(), []);
    // In the middle of one it has not.
    let mut raw = self::raw(parking());
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"abc"));
    raw.end.eof();
    assert!(matches!(raw.end.events()[..], [Event::Fault(_)]));
}

#[test]
fn messages_that_find_their_receive_allocate_no_parking() {
    let mut raw = raw(parking());
    for msn in 1..10 {
        raw.end.receive(u64::from(msn), &[local(0, 8)]);
        raw.send(&send(msn, b"direct"));
        assert_eq!(raw.end.parked(), (false, false));
    }
    assert_eq!(raw.end.completions().len(), 9);
}

#[derive(Clone, Copy, Debug)]
enum ParkAction {
    Send(u32),
    SendImmediate(u32),
    WriteImmediate(u32),
    Immediate,
    Receive,
    Look,
}

fn steps() -> impl Strategy<Value = Vec<ParkAction>> {
    let step = prop_oneof![
        3 => (0u32..6000).prop_map(ParkAction::Send),
        1 => (0u32..6000).prop_map(ParkAction::SendImmediate),
        1 => (0u32..6000).prop_map(ParkAction::WriteImmediate),
        1 => Just(ParkAction::Immediate),
        5 => Just(ParkAction::Receive),
        1 => Just(ParkAction::Look),
    ];
    proptest::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// However late receives are posted, each gets the message that it would have got in time.
    #[test]
    fn receives_may_come_at_any_time(
        steps in steps(),
        step in 1usize..5000,
        limits in (0usize..12_000, 0usize..6),
        shared in any::<bool>(),
        crc in any::<bool>(),
    ) {
        let park = Park { octets: limits.0, messages: limits.1, timer: Duration::ZERO };
        let config = Config {
            park: Some(park),
            acknowledge: true,
            shared_receive: shared,
            ..parking()
        };
        let mut pair = Pair::with(config, |terms| terms.crc = crc);
        let (mut sent, mut posted) = (0, 0u64);
        let mut expected: Vec<(WcOp, u32, Vec<u8>)> = Vec::new();
        let mut acknowledged = 0;
        let receive = |pair: &mut Pair, posted: &mut u64| {
            let sges = [local(*posted % 16 * 6000, 2000), local(*posted % 16 * 6000 + 2000, 4000)];
            match shared {
                true => pair.b.in_pool(*posted, &sges),
                false => pair.b.receive(*posted, &sges),
            }
            *posted += 1;
        };
        for what in &steps {
            let data = (sent as u32).to_be_bytes();
            let (solicited, at) = (false, OPEN_BASE);
            // Memory is used again when what was in it has been delivered.
            let delivered = expected.iter().filter(|(.., octets)| octets == DONE).count() as u64;
            let (crowded, may_receive) = (sent >= delivered + 12, posted < delivered + 12);
            let mut post = |op, len: u32, wc, byte_len| {
                let octets = pattern(len as usize, sent as u8);
                pair.a.host.fill(LOCAL, sent as usize % 16 * 6000, &octets);
                pair.a.post(sent, op, &[local(sent % 16 * 6000, len)]);
                expected.push((wc, byte_len, octets));
                sent += 1;
            };
            match *what {
                ParkAction::Receive if may_receive => receive(&mut pair, &mut posted),
                ParkAction::Receive => {}
                ParkAction::Look => pair.b.look_again(),
                _ if crowded => {}
                ParkAction::Send(len) => post(SEND, len, WcOp::Recv, len),
                ParkAction::SendImmediate(len) => {
                    post(SendOp::SendImmediate { solicited, data }, len, WcOp::Recv, len);
                }
                ParkAction::WriteImmediate(len) => {
                    let (stag, to) = (Stag(OPEN), TaggedOffset(at));
                    let op = SendOp::WriteImmediate { stag, to, solicited, data };
                    post(op, len, WcOp::RecvWriteImmediate, len);
                }
                ParkAction::Immediate => {
                    let op = SendOp::Immediate { solicited, data: [1; 8] };
                    post(op, 0, WcOp::RecvImmediate, 8);
                }
            }
            // In pieces, and only some of them.
            let there = pair.a.take(step);
            pair.b.arrive(&there);
            let back = pair.b.take(step);
            pair.a.arrive(&back);
            acknowledged += check(&pair, &mut expected)?;
        }
        while posted < sent {
            receive(&mut pair, &mut posted);
            pair.b.look_again();
            pair.run_in_steps(step);
            acknowledged += check(&pair, &mut expected)?;
        }
        pair.b.look_again();
        pair.run_in_steps(step);
        acknowledged += check(&pair, &mut expected)?;
        prop_assert!(expected.iter().all(|(.., octets)| octets == DONE));
        prop_assert_eq!(pair.b.parked(), (false, false));
        prop_assert_eq!(acknowledged, sent);
    }
}

/// The mark in place of the octets of a message that was delivered.
const DONE: &[u8] = b"delivered";

/// Every receive that completed got the message of its number, and every message that the sender
/// takes for received has been. Returns how many of the latter are new.
fn check(
    pair: &Pair,
    expected: &mut [(WcOp, u32, Vec<u8>)],
) -> Result<u64, proptest::test_runner::TestCaseError> {
    for wc in pair.b.completions() {
        let (op, byte_len, octets) = &mut expected[wc.wr_id as usize];
        prop_assert_eq!((wc.op, wc.byte_len, wc.status), (*op, *byte_len, WcStatus::Success));
        if *op == WcOp::Recv {
            let at = wc.wr_id as usize % 16 * 6000;
            let got = pair.b.host.octets(LOCAL);
            prop_assert_eq!(&got[at..at + octets.len()], &octets[..]);
        }
        *octets = DONE.to_vec();
    }
    let completions = pair.a.completions();
    for wc in &completions {
        prop_assert_eq!(wc.status, WcStatus::Success);
        prop_assert_eq!(&expected[wc.wr_id as usize].2[..], DONE);
    }
    Ok(completions.len() as u64)
}
