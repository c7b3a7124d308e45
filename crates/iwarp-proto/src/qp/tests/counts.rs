// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages that were received complete while one behind them waits for its receive: the end that
//! has them says how many they are, as the Read that asks about them waits with the other.

use proptest::prelude::*;

use super::octets::{self, read_request, send, tagged};
use super::*;
use crate::qp::{Capabilities, Park};

const HELLO_STAG: u32 = 0x6957_4152;
const HELLO_TO: u64 = 0x5048_454c_0100_0000;
const COUNT_STAG: u32 = 0x6957_434e;
/// A message of 20000 octets finds no room.
const PARK: Park = Park { octets: 10_000, messages: 4, timer: Duration::from_secs(1) };
const NONE: [Vec<u8>; 0] = [];
const NO_IDS: [u64; 0] = [];

fn like_infiniband() -> Config {
    Config { acknowledge: true, park: Some(PARK), extensions: Extensions::Ask, ..config() }
}

/// Two ends whose requests complete when they are received, and which know each other.
fn pair(config: Config) -> Pair {
    let mut pair = Pair::with(config, |terms| {
        (terms.ird, terms.ord, terms.spare_ird, terms.spare_ord) = (2, 2, 1, 1);
    });
    pair.run();
    pair
}

fn count(received: u64) -> Vec<u8> {
    tagged(octets::WRITE, true, COUNT_STAG, received, &[])
}

/// A responder that parks, and a peer that has said that it is of our kind and `asks`.
fn raw(config: Config, asks: Capabilities) -> Raw {
    let mut raw = Raw::responder(config, |_| {});
    let bits = Capabilities::OURS.union(asks).bits();
    raw.send(&tagged(octets::WRITE, true, HELLO_STAG, HELLO_TO | u64::from(bits), &[]));
    raw.back();
    raw.end.events();
    raw
}

fn ids(end: &End) -> Vec<u64> {
    let completions = end.completions();
    assert!(completions.iter().all(|wc| wc.status == WcStatus::Success), "{completions:?}");
    completions.iter().map(|wc| wc.wr_id).collect()
}

/// The completions of its own requests.
fn sent(end: &End) -> Vec<u64> {
    let is_sent = |wc: &WorkCompletion| wc.op != WcOp::Recv;
    let completions = end.completions();
    assert!(completions.iter().all(|wc| wc.status == WcStatus::Success), "{completions:?}");
    completions.iter().filter(|wc| is_sent(wc)).map(|wc| wc.wr_id).collect()
}

const DATA: [u8; 4] = *b"data";

/// Operations that take a receive at the peer.
fn operations() -> [SendOp; 5] {
    let (stag, to, solicited) = (Stag(OPEN), TaggedOffset(OPEN_BASE), false);
    [
        SEND,
        SendOp::Send { solicited: true, invalidate: None },
        SendOp::SendImmediate { solicited, data: DATA },
        SendOp::WriteImmediate { stag, to, solicited, data: DATA },
        SendOp::Immediate { solicited, data: [1; 8] },
    ]
}

/// Each receive is posted when the message before it has completed at its sender. The messages fit
/// into the park, or not.
#[test]
fn each_message_of_a_burst_completes_while_the_next_one_waits() {
    for op in operations() {
        for (len, shared_receive) in [(8, false), (8, true), (3000, false), (20_000, false)] {
            let mut pair = pair(Config { shared_receive, ..like_infiniband() });
            let list = [local(0, len)];
            let sges = if matches!(op, SendOp::Immediate { .. }) { &[][..] } else { &list[..] };
            for wr_id in 0..6 {
                pair.a.post(wr_id, op, sges);
            }
            pair.run();
            assert_eq!(ids(&pair.a), NO_IDS);
            for wr_id in 0..6 {
                match shared_receive {
                    true => pair.b.in_pool(wr_id, &[local(0, len)]),
                    false => pair.b.receive(wr_id, &[local(0, len)]),
                }
                pair.b.look_again();
                pair.run();
                assert_eq!(ids(&pair.b), [wr_id], "{op:?} of {len}");
                assert_eq!(ids(&pair.a), [wr_id], "{op:?} of {len}");
            }
        }
    }
}

#[test]
fn a_message_completes_when_the_stag_that_it_names_is_invalid() {
    let mut pair = pair(like_infiniband());
    pair.b.receive(1, &[local(0, 8)]);
    let invalidate = Some(Stag(OPEN));
    pair.a.post(1, SendOp::Send { solicited: false, invalidate }, &[local(0, 8)]);
    pair.a.post(2, SEND, &[]);
    pair.run();
    let touch = Touch::Invalidated { stag: OPEN, by: Invalidator::Remote };
    assert!(pair.b.host.touches().contains(&touch));
    assert_eq!(ids(&pair.a), [1]);
}

/// Writes complete with what stands in front of them, those of no octets as well.
#[test]
fn writes_complete_while_a_message_behind_them_waits() {
    for len in [0, 100] {
        let mut pair = pair(like_infiniband());
        for round in 0..3 {
            let id = 10 * round;
            pair.a.post(id, write_op(0), &[local(0, len)]);
            pair.a.post(id + 1, SEND, &[]);
            pair.a.post(id + 2, write_op(0), &[local(0, len)]);
            pair.run();
            assert_eq!(ids(&pair.a), [id], "{len}");
            pair.b.receive(id, &[]);
            pair.b.look_again();
            pair.run();
            assert_eq!(ids(&pair.a), [id + 1, id + 2], "{len}");
        }
    }
}

#[test]
fn reads_and_atomics_complete_up_to_the_message_that_waits() {
    let mut pair = pair(like_infiniband());
    pair.b.receive(1, &[]);
    pair.b.receive(2, &[]);
    pair.a.post(1, SEND, &[]);
    pair.a.post(2, read_op(0), &[local(0, 8)]);
    pair.a.post(3, SEND, &[]);
    pair.a.post(4, SEND, &[]);
    pair.a.post(5, add_op(0, 1), &[local(8, 8)]);
    pair.a.post(6, SEND, &[]);
    pair.run();
    assert_eq!(ids(&pair.a), [1, 2, 3]);
    pair.b.receive(3, &[]);
    pair.b.look_again();
    pair.run();
    assert_eq!(ids(&pair.a), [4, 5]);
    pair.b.receive(4, &[]);
    pair.b.look_again();
    pair.run();
    assert_eq!(ids(&pair.a), [6]);
}

#[test]
fn two_ends_whose_messages_wait_at_each_other_complete_what_was_received() {
    let mut pair = pair(like_infiniband());
    for end in [&pair.a, &pair.b] {
        end.receive(100, &[]);
        for wr_id in 0..4 {
            end.post(wr_id, SEND, &[]);
        }
    }
    for wr_id in 0..4 {
        pair.run();
        assert_eq!([sent(&pair.a), sent(&pair.b)], [[wr_id], [wr_id]]);
        for end in [&mut pair.a, &mut pair.b] {
            end.receive(100, &[]);
            end.look_again();
        }
    }
}

#[test]
fn a_count_goes_out_where_a_read_waits_and_there_is_something_to_say() {
    let mut raw = raw(like_infiniband(), Capabilities::FAREWELL);
    raw.end.receive(1, &[]);
    raw.end.receive(2, &[]);
    raw.send(&send(1, &[]));
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"counts"));
    // Two messages that were received, and one that waits.
    raw.send(&send(2, &[]));
    raw.send(&send(3, &[]));
    assert_eq!(raw.back(), NONE);
    raw.send(&read_request(1, 0, 0, 0));
    assert_eq!(raw.back(), [count(3)]);
    // It was said.
    raw.send(&send(4, &[]));
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"counts"));
    raw.send(&read_request(2, 0, 0, 0));
    assert_eq!(raw.back(), NONE);
    // The answer says it.
    raw.end.receive(3, &[]);
    raw.end.look_again();
    let back = raw.back();
    assert_eq!((back.len(), &back[0]), (2, &count(4)));
    assert_eq!(back[1][1], octets::READ_RESPONSE);
    raw.end.receive(4, &[]);
    raw.end.look_again();
    assert_eq!((raw.back().len(), raw.back().len()), (1, 0));
}

/// A program whose messages always come before their receives pays nothing for it.
#[test]
fn a_number_that_an_answer_has_said_is_not_said_again() {
    let mut raw = raw(like_infiniband(), Capabilities::FAREWELL);
    for msn in 1..10 {
        raw.send(&send(msn, b"early"));
        raw.send(&read_request(msn, 0, 0, 0));
        assert_eq!(raw.back(), NONE, "{msn}");
        raw.end.receive(1, &[local(0, 8)]);
        raw.end.look_again();
        assert_eq!(raw.back().len(), 1);
    }
}

/// More than one Read may wait, and the first of them may be about to be answered.
#[test]
fn an_answer_that_says_less_than_was_received_is_no_reason_to_be_silent() {
    let mut raw = raw(like_infiniband(), Capabilities::FAREWELL);
    raw.end.receive(1, &[]);
    raw.end.receive(2, &[]);
    raw.send(&send(1, &[]));
    raw.send(&read_request(1, 8, OPEN, OPEN_BASE));
    raw.send(&send(2, &[]));
    raw.send(&send(3, &[]));
    raw.send(&read_request(2, 0, 0, 0));
    let back = raw.back();
    assert_eq!((back.len(), &back[0]), (2, &count(2)));
}

/// No Read is to be seen behind it.
#[test]
fn a_count_goes_out_where_the_stream_stands_still() {
    let mut raw = raw(like_infiniband(), Capabilities::FAREWELL);
    raw.end.receive(1, &[]);
    raw.send(&send(1, &[]));
    for msn in 2..6 {
        raw.send(&send(msn, &[]));
    }
    assert_eq!((raw.end.parked(), raw.back()), ((true, false), vec![]));
    raw.send(&send(6, &[]));
    assert_eq!((raw.end.parked(), raw.back()), ((true, true), vec![count(1)]));
    raw.end.look_again();
    assert_eq!(raw.back(), NONE);
    // The message that found no room is parked now.
    raw.end.receive(2, &[]);
    raw.end.look_again();
    assert_eq!((raw.end.parked(), raw.back()), ((true, false), vec![]));
}

#[test]
fn a_count_goes_only_to_peers_that_have_asked_for_it() {
    for config in [like_infiniband(), Config { park: None, ..like_infiniband() }] {
        let asks =
            if config.park.is_some() { Capabilities::default() } else { Capabilities::FAREWELL };
        let mut raw = raw(config, asks);
        raw.end.receive(1, &[]);
        raw.send(&send(1, &[]));
        if config.park.is_some() {
            raw.send(&send(2, &[]));
        }
        raw.send(&read_request(1, 0, 0, 0));
        assert!(raw.back().iter().all(|ulpdu| ulpdu[1] == octets::READ_RESPONSE));
    }
}

/// The peer counts messages that were built here, and no more.
#[test]
fn a_count_completes_what_it_counts() {
    let mut raw = Raw::initiator(like_infiniband(), |terms| terms.spare_ord = 1);
    let hello = HELLO_TO | u64::from(Capabilities::OURS.bits());
    raw.send(&tagged(octets::WRITE, true, HELLO_STAG, hello, &[]));
    for wr_id in 1..5 {
        raw.end.post(wr_id, SEND, &[]);
    }
    raw.back();
    raw.send(&count(0));
    assert_eq!(ids(&raw.end), NO_IDS);
    raw.send(&count(2));
    assert_eq!(ids(&raw.end), [1, 2]);
    raw.send(&count(2));
    assert_eq!(ids(&raw.end), NO_IDS);
    raw.send(&count(4));
    assert_eq!(ids(&raw.end), [3, 4]);
    raw.end.post(5, SEND, &[]);
    raw.send(&count(4));
    assert_eq!(ids(&raw.end), NO_IDS);
    raw.end.post(6, write_op(0), &[]);
    raw.back();
    raw.send(&count(5));
    assert_eq!(ids(&raw.end), [5, 6]);
    assert!(raw.end.qp.borrow().is_connected());
}

/// An initiator whose peer is of our kind, and which has sent so many messages.
fn sender(config: Config, messages: u64) -> Raw {
    let mut raw = Raw::initiator(config, |terms| terms.spare_ord = 1);
    let hello = HELLO_TO | u64::from(Capabilities::OURS.bits());
    raw.send(&tagged(octets::WRITE, true, HELLO_STAG, hello, &[]));
    for wr_id in 1..=messages {
        raw.end.post(wr_id, SEND, &[]);
    }
    raw.back();
    raw
}

/// It can be the peer's error only, and says that no number of the peer's is to be believed.
#[test]
fn a_count_of_more_than_was_sent_or_of_less_than_before_ends_the_stream() {
    for (first, second) in [(2, 5), (2, 1), (4, 0), (0, u64::MAX)] {
        let mut raw = sender(like_infiniband(), 4);
        raw.send(&count(first));
        let done: Vec<u64> = (1..=first).collect();
        assert_eq!(ids(&raw.end), done);
        let wrong = count(second);
        // 0/2/07, a catastrophic error of the stream.
        assert_eq!(raw.refuse(&wrong), quoting([0x02, 0x07], wrong.len(), &wrong, &[]));
        let flushed: Vec<_> = (first + 1..=4).map(|wr_id| flushed(wr_id, WcOp::Send)).collect();
        assert_eq!(outcomes(&raw.end.completions()), flushed);
    }
}

#[test]
fn the_first_half_of_a_write_with_immediate_data_may_be_counted_before_the_second_is_built() {
    let mut raw = sender(like_infiniband(), 1);
    raw.end.post(2, operations()[3], &[local(0, 8)]);
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 1);
    raw.send(&count(2));
    assert_eq!(ids(&raw.end), [1]);
    raw.back();
    raw.send(&count(2));
    assert_eq!(ids(&raw.end), NO_IDS);
    raw.send(&count(3));
    assert_eq!(ids(&raw.end), [2]);
}

/// A peer may say as many numbers as it likes.
#[test]
fn each_request_is_looked_at_once_however_many_counts_come() {
    const MESSAGES: u64 = 1000;
    let mut raw = sender(Config { max_send_wr: 1001, ..like_infiniband() }, MESSAGES);
    let looked_at = |raw: &Raw| raw.end.qp.borrow().sq.looked_at;
    for received in 1..=MESSAGES / 2 {
        raw.send(&count(received));
    }
    assert_eq!(ids(&raw.end).len() as u64, MESSAGES / 2);
    // The one that stops the search is looked at again.
    assert!(looked_at(&raw) <= MESSAGES, "{}", looked_at(&raw));
    let before = looked_at(&raw);
    for _ in 0..1000 {
        raw.send(&count(MESSAGES / 2));
    }
    assert_eq!(looked_at(&raw) - before, 1000);
}

/// The peer says by it all that the answer could say.
#[test]
fn messages_that_a_count_covers_are_not_asked_about() {
    let asked = |ulpdus: Vec<Vec<u8>>| -> usize {
        ulpdus.iter().filter(|ulpdu| ulpdu[1] == octets::READ_REQUEST).count()
    };
    let mut raw = sender(like_infiniband(), 0);
    raw.end.post(1, SEND, &[]);
    assert_eq!(asked(raw.back()), 1);
    for wr_id in 2..5 {
        raw.end.post(wr_id, SEND, &[]);
    }
    assert_eq!(asked(raw.back()), 0);
    raw.send(&count(4));
    assert_eq!(ids(&raw.end), [1, 2, 3, 4]);
    let sink = 0x8000_0001;
    raw.send(&tagged(octets::READ_RESPONSE, true, sink, 0, &[]));
    assert_eq!(asked(raw.back()), 0);
    // Messages behind them are, and messages that it leaves out.
    raw.end.post(5, SEND, &[]);
    assert_eq!(asked(raw.back()), 1);
    raw.end.post(6, SEND, &[]);
    raw.end.post(7, SEND, &[]);
    raw.back();
    raw.send(&count(6));
    raw.send(&tagged(octets::READ_RESPONSE, true, sink + 1, 0, &[]));
    assert_eq!(asked(raw.back()), 1);
}

#[test]
fn writes_of_nothing_behind_the_message_that_waits_are_no_reason_for_a_count() {
    let mut raw = raw(like_infiniband(), Capabilities::FAREWELL);
    let nothing = tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[]);
    raw.end.receive(1, &[]);
    raw.send(&send(1, &[]));
    raw.send(&send(2, &[]));
    raw.send(&read_request(1, 0, 0, 0));
    assert_eq!(raw.back(), [count(1)]);
    raw.send(&nothing);
    raw.send(&read_request(2, 0, 0, 0));
    assert_eq!(raw.back(), NONE);
    // Now it stands in front of one.
    raw.send(&send(3, &[]));
    raw.send(&read_request(3, 0, 0, 0));
    raw.end.receive(2, &[]);
    raw.end.look_again();
    let back = raw.back();
    assert_eq!((back.len(), &back[0]), (3, &count(2)));
}

#[test]
fn a_number_that_the_answer_under_way_says_is_not_said_again() {
    let mut raw = raw(like_infiniband(), Capabilities::FAREWELL);
    raw.end.receive(1, &[]);
    raw.send(&send(1, &[]));
    raw.send(&read_request(1, 100_000, OPEN, OPEN_BASE));
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 1);
    raw.send(&send(2, &[]));
    raw.send(&read_request(2, 0, 0, 0));
    let back = raw.back();
    assert!(back.len() > 2 && back.iter().all(|ulpdu| ulpdu[1] == octets::READ_RESPONSE));
}

/// To a foreign peer, and to an end that has not asked, it is a Write of nothing.
#[test]
fn a_count_that_was_not_asked_for_is_a_write_of_nothing() {
    let mut foreign = Raw::initiator(like_infiniband(), |terms| terms.spare_ord = 1);
    foreign.send(&tagged(octets::WRITE, true, 0, 0, &[]));
    foreign.end.post(1, SEND, &[]);
    foreign.back();
    foreign.send(&count(1));
    assert_eq!(ids(&foreign.end), NO_IDS);
    // One that is taken to have RFC 7306 was not asked, and any STag may stand in its Write.
    let assumed = Config { extensions: Extensions::Assume, ..like_infiniband() };
    let mut assumed = Raw::initiator(assumed, |terms| terms.spare_ord = 1);
    assumed.end.post(1, SEND, &[]);
    assumed.back();
    assumed.send(&count(1));
    assumed.send(&count(7));
    assert_eq!(ids(&assumed.end), NO_IDS);
    assert!(assumed.end.qp.borrow().is_connected());
    let mut raw = raw(Config { acknowledge: false, ..like_infiniband() }, Capabilities::default());
    raw.end.post(1, read_op(0), &[local(0, 8)]);
    raw.back();
    raw.send(&count(1));
    assert_eq!(ids(&raw.end), NO_IDS);
    assert!(raw.end.qp.borrow().is_connected());
}

#[test]
fn an_empty_write_of_a_program_is_not_sent_as_a_count() {
    let mut raw = raw(like_infiniband(), Capabilities::FAREWELL);
    let write = SendOp::Write { stag: Stag(COUNT_STAG), to: TaggedOffset(3) };
    raw.end.post(1, write, &[]);
    assert_eq!(raw.back()[0], tagged(octets::WRITE, true, 0, 0, &[]));
}

/// The farewell says it.
#[test]
fn an_end_that_leaves_says_no_count_beside_its_farewell() {
    let mut raw = raw(like_infiniband(), Capabilities::FAREWELL);
    raw.end.receive(1, &[]);
    raw.send(&send(1, &[]));
    raw.send(&send(2, &[]));
    raw.send(&read_request(1, 0, 0, 0));
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(raw.back(), [tagged(octets::WRITE, true, 0x6957_4642, 1, &[])]);
}

#[derive(Clone, Copy, Debug)]
enum Message {
    Taking(usize, u32),
    Write(u32),
    Read,
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let message = prop_oneof![
        4 => (0usize..5, 0u32..12_000).prop_map(|(op, len)| Message::Taking(op, len)),
        1 => (0u32..3000).prop_map(Message::Write),
        1 => Just(Message::Write(0)),
        1 => Just(Message::Read),
    ];
    proptest::collection::vec(message, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A receive is posted when all that stands in front of its message has completed at the
    /// sender, and not before.
    #[test]
    fn receives_may_wait_for_completions(
        messages in messages(),
        step in 1usize..5000,
        limits in (0usize..12_000, 0usize..6),
        shared_receive in any::<bool>(),
        crc in any::<bool>(),
        signals in any::<u32>(),
    ) {
        let park = Park { octets: limits.0, messages: limits.1, ..PARK };
        let config = Config { park: Some(park), shared_receive, ..like_infiniband() };
        let mut pair = Pair::with(config, |terms| {
            (terms.crc, terms.ird, terms.ord) = (crc, 2, 2);
            (terms.spare_ird, terms.spare_ord) = (1, 1);
        });
        for (number, message) in (0..).zip(&messages) {
            let (op, len) = match *message {
                Message::Taking(4, _) => (operations()[4], 0),
                Message::Taking(op, len) => (operations()[op], len),
                Message::Write(len) => (write_op(0), len),
                Message::Read => (read_op(0), 8),
            };
            let list = [local(0, len)];
            let mut request = SendRequest::new(number, op, Payload::Sges(&list));
            request.signaled = signals & (1 << number) != 0;
            pair.a.qp.borrow_mut().post_send(&request).unwrap();
        }
        let due = |from: u64, until: u64| -> Vec<u64> {
            (from..until).filter(|number| signals & (1 << number) != 0).collect()
        };
        let mut from = 0;
        for (number, message) in (0..).zip(&messages) {
            if matches!(message, Message::Taking(..)) {
                pair.run_in_steps(step);
                prop_assert_eq!(ids(&pair.a), due(from, number));
                from = number;
                match shared_receive {
                    true => pair.b.in_pool(number, &[local(0, 12_000)]),
                    false => pair.b.receive(number, &[local(0, 12_000)]),
                }
                pair.b.look_again();
            }
        }
        pair.run_in_steps(step);
        prop_assert_eq!(ids(&pair.a), due(from, messages.len() as u64));
    }
}
