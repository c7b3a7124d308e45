// SPDX-License-Identifier: MIT OR Apache-2.0

//! The effects of answers on requests.

use iwarp_types::{AtomicOp, Reason};

use super::*;
use crate::rc::reasons;
use crate::wire::RnrTimer;

const TO: TaggedOffset = TaggedOffset(0x7000);
const KEY: Stag = Stag(0x99);
const OK: WcStatus = WcStatus::Success;
const FLUSHED: WcStatus = WcStatus::Flushed;

/// So many Sends of one packet each, signalled, that were sent.
fn sends(count: u64) -> Bench {
    let mut bench = Bench::new();
    for wr_id in 0..count {
        bench.post(SendRequest::send(wr_id, &[local(0, 8)]).signaled());
    }
    assert_eq!(bench.sent().len() as u64, count);
    bench
}

fn psns(sent: &[Sent]) -> Vec<Psn> {
    sent.iter().map(|sent| sent.psn).collect()
}

/// Covers: ROCE-048, ROCE-051, ROCE-071, ROCE-083
#[test]
fn an_acknowledgement_completes_all_before_it() {
    let mut bench = sends(5);
    bench.answer(2, Syndrome::ACK);
    assert_eq!(bench.ended(), [(0, OK), (1, OK), (2, OK)]);
    // Late, repeated, and of what was never sent.
    bench.answer(2, Syndrome::ACK);
    bench.answer(0, Syndrome::ACK);
    bench.nak(1, NakCode::SequenceError);
    bench.nak(2, NakCode::RemoteAccess);
    bench.answer(5, Syndrome::ACK);
    bench.nak(5, NakCode::RemoteAccess);
    bench.take(own(0), response(Position::Only), &[]);
    assert_eq!((bench.events(), bench.sent()), (Vec::new(), Vec::new()));
    bench.answer(4, Syndrome::ACK);
    assert_eq!(bench.ended(), [(3, OK), (4, OK)]);
    assert_eq!(bench.rc.poll_timeout(), None);
}

/// Covers: ROCE-072
#[test]
fn requests_without_signal_are_counted() {
    let mut bench = Bench::new();
    for wr_id in 0..3 {
        bench.post(SendRequest::send(wr_id, &[]));
    }
    bench.post(SendRequest::send(3, &[]).signaled());
    bench.sent();
    bench.answer(2, Syndrome::ACK);
    assert_eq!(bench.events(), []);
    bench.answer(3, Syndrome::ACK);
    let [Event::SilentSends(3), Event::SendCompleted(wc)] = bench.events()[..] else { panic!() };
    assert_eq!(wc.wr_id, 3);
    bench.post(SendRequest::send(4, &[]));
    bench.sent();
    bench.nak(4, NakCode::InvalidRequest);
    assert_eq!(bench.ended(), [(4, WcStatus::RemoteInvalidRequest)]);
}

/// Covers: ROCE-049, ROCE-050, ROCE-053
#[test]
fn an_answer_beyond_a_missing_one_has_it_sent_again() {
    let mut bench = Bench::new();
    bench.post(SendRequest::send(0, &[]).signaled());
    bench.post(SendRequest::read(1, &[local(0, 8)], KEY, TO).signaled());
    bench.post(SendRequest::send(2, &[]).signaled());
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    bench.post(SendRequest::atomic(3, &[local(8, 8)], KEY, TO, add).signaled());
    bench.sent();
    bench.answer(2, Syndrome::ACK);
    assert_eq!(bench.ended(), [(0, OK)]);
    assert_eq!(psns(&bench.sent()), [own(1), own(2), own(3)]);
    // The answer itself acknowledges what stood before; the next one is missing then.
    bench.take(own(1), response(Position::Only), &[7; 8]);
    assert_eq!(bench.ended(), [(1, OK)]);
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: 0 };
    bench.take(own(3), Message::AtomicAcknowledge { aeth, original: 77 }, &[]);
    assert_eq!(bench.ended(), [(2, OK), (3, OK)]);
    assert_eq!(bench.host.octets(LOCAL)[8..16], 77_u64.to_ne_bytes());
    assert_eq!(bench.sent(), []);
}

/// rxe answers no Read of nothing for a second time, but acknowledges what comes behind it again.
///
/// Covers: ROCE-048
#[test]
fn a_lost_answer_of_no_octets_is_not_missed_behind_a_later_one() {
    let word = [local(0, 8)];
    let later: [(SendRequest<'_>, Message, &[u8]); 3] = [
        (SendRequest::send(2, &[]), ack(2), &[]),
        (SendRequest::read(2, &word, KEY, TO), response(Position::Only), &[7; 8]),
        (SendRequest::read(2, &[], KEY, TO), response(Position::Only), &[]),
    ];
    for (request, answer, payload) in later {
        let mut bench = Bench::new();
        bench.post(SendRequest::send(0, &[]).signaled());
        bench.post(SendRequest::read(1, &[], KEY, TO).signaled());
        bench.post(request.signaled());
        bench.post(SendRequest::read(3, &word, KEY, TO).signaled());
        bench.sent();
        bench.answer(0, Syndrome::ACK);
        assert_eq!(bench.ended(), [(0, OK)]);
        bench.wait_for_timeout();
        bench.sent();
        bench.take(own(2), answer, payload);
        assert_eq!(bench.ended(), [(1, OK), (2, OK)]);
        // One less is under way.
        bench.wait_for_timeout();
        assert_eq!(psns(&bench.sent()), [own(3)]);
        bench.take(own(3), response(Position::Only), &[8; 8]);
        // Its own answer has come after all.
        bench.take(own(1), response(Position::Only), &[]);
        assert_eq!(bench.ended(), [(3, OK)]);
        assert_eq!(bench.rc.requester.reads, 0);
    }
    // A NAK tells of what is before it, too.
    for syndrome in [Syndrome::RnrNak(RnrTimer::new(1)), Syndrome::Nak(NakCode::SequenceError)] {
        let mut bench = Bench::new();
        bench.post(SendRequest::read(0, &[], KEY, TO).signaled());
        bench.post(SendRequest::send(1, &[]));
        bench.sent();
        bench.answer(1, syndrome);
        assert_eq!(bench.ended(), [(0, OK)]);
    }
    // Others miss their answers.
    for (wr_id, request) in [
        SendRequest::read(1, &word, KEY, TO),
        SendRequest::atomic(1, &word, KEY, TO, AtomicOp::FetchAdd { add: 1, mask: 0 }),
    ]
    .into_iter()
    .enumerate()
    {
        let mut bench = Bench::new();
        bench.post(request.signaled());
        bench.post(SendRequest::send(2, &[]).signaled());
        bench.sent();
        bench.answer(1, Syndrome::ACK);
        assert_eq!(bench.ended(), [], "{wr_id}");
        assert_eq!(psns(&bench.sent()), [own(0), own(1)]);
    }
}

/// Covers: ROCE-057
#[test]
fn the_same_is_sent_again_once() {
    let mut bench = sends(4);
    bench.nak(1, NakCode::SequenceError);
    bench.nak(1, NakCode::SequenceError);
    assert_eq!(psns(&bench.sent()), [own(1), own(2), own(3)]);
    bench.nak(1, NakCode::SequenceError);
    assert_eq!(bench.sent(), []);
    // Once more unasked; an equal NAK then may be as old.
    bench.wait_for_timeout();
    assert_eq!(bench.sent().len(), 3);
    bench.nak(1, NakCode::SequenceError);
    assert_eq!(bench.sent(), []);
    // After a timeout it is another matter.
    bench.wait_for_timeout();
    assert_eq!(bench.sent().len(), 3);
    bench.nak(1, NakCode::SequenceError);
    assert_eq!(bench.sent().len(), 3);
}

/// The responder asks for a packet once, and not again before it has come. If that packet is lost
/// again, only this side's timer helps, and it need not wait for the whole timeout.
///
/// Covers: ROCE-062, ROCE-064
#[test]
fn packets_that_a_nak_repeated_are_soon_sent_once_more() {
    let timeout = Duration::from_nanos(4096 << 14);
    let soon = Duration::from_nanos(4096 << 10);
    let mut bench = Bench::with(config(), Attributes { retry_count: 2, ..attributes() });
    for wr_id in 0..4 {
        bench.post(SendRequest::send(wr_id, &[local(0, 8)]).signaled());
    }
    bench.sent();
    bench.nak(1, NakCode::SequenceError);
    assert_eq!(psns(&bench.sent()), [own(1), own(2), own(3)]);
    assert_eq!(bench.wait_for_timeout(), soon);
    assert_eq!(psns(&bench.sent()), [own(1), own(2), own(3)]);
    // Then it waits as if there had been no NAK; neither that nor the repetition is a wait in vain,
    // and the repetition is no try.
    assert_eq!(bench.wait_for_timeout(), timeout);
    assert_eq!(psns(&bench.sent()), [own(1), own(2), own(3)]);
    assert_eq!(bench.ended(), [(0, OK)]);
    assert_eq!(bench.wait_for_timeout(), 2 * timeout);
    assert_eq!(bench.ended()[0], (1, WcStatus::RetryExceeded));
    // An answer ends it.
    let mut bench = sends(3);
    bench.nak(1, NakCode::SequenceError);
    bench.sent();
    bench.answer(1, Syndrome::ACK);
    assert_eq!(bench.wait_for_timeout(), timeout);
}

/// A gap in the answers to a Read is a NAK that is implied.
#[test]
fn a_read_whose_answer_breaks_off_twice_is_soon_asked_for_again() {
    let mut bench = read(3 * MTU as u32);
    bench.take(own(1), response(Position::Middle), &[0; MTU]);
    assert_eq!(psns(&bench.sent()), [own(0), own(3)]);
    // The first one of the second answer is lost as well, and nothing tells it from the first.
    bench.take(own(1), response(Position::Middle), &[0; MTU]);
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.wait_for_timeout(), Duration::from_nanos(4096 << 10));
    assert_eq!(psns(&bench.sent()), [own(0), own(3)]);
}

/// Covers: ROCE-056, ROCE-062, ROCE-063
#[test]
fn naks_of_a_gap_acknowledge_what_is_before_and_are_counted() {
    let mut bench = sends(6);
    for number in 1..6 {
        bench.nak(number, NakCode::SequenceError);
        assert_eq!(bench.ended(), [(u64::from(number) - 1, OK)]);
        assert_eq!(bench.sent().len() as u32, 6 - number);
    }
    let mut bench = Bench::with(config(), Attributes { retry_count: 0, ..attributes() });
    bench.post(SendRequest::send(0, &[]).signaled());
    bench.post(SendRequest::send(1, &[]).signaled());
    bench.sent();
    bench.nak(1, NakCode::SequenceError);
    assert_eq!(bench.ended(), [(0, OK), (1, WcStatus::RetryExceeded)]);
}

/// Covers: ROCE-061, ROCE-062, ROCE-063
#[test]
fn without_answer_requests_are_sent_again_and_given_up() {
    let mut bench = sends(2);
    let timeout = Duration::from_nanos(4096 << 14);
    bench.wait(timeout - Duration::from_nanos(1));
    assert_eq!(bench.sent(), []);
    for _ in 0..3 {
        bench.wait_for_timeout();
        assert_eq!(psns(&bench.sent()), [own(0), own(1)]);
    }
    // Progress gives as many goes again.
    bench.answer(0, Syndrome::ACK);
    for _ in 0..3 {
        let wait = bench.wait_for_timeout();
        assert!(timeout <= wait && wait <= 4 * timeout);
        assert_eq!(psns(&bench.sent()), [own(1)]);
    }
    bench.post(SendRequest::send(2, &[]));
    bench.post_recv(9, 0, 8);
    bench.wait_for_timeout();
    let events = bench.events();
    assert!(events.contains(&Event::Lost));
    let status = |event: &Event| match event {
        Event::SendCompleted(wc) | Event::ReceiveCompleted(wc) => Some((wc.wr_id, wc.status)),
        _ => None,
    };
    let ended: Vec<_> = events.iter().filter_map(status).collect();
    assert_eq!(ended, [(0, OK), (1, WcStatus::RetryExceeded), (2, FLUSHED), (9, FLUSHED)]);
    assert_eq!((bench.rc.state(), bench.rc.poll_timeout()), (QpState::Err, None));
}

/// Covers: ROCE-061
#[test]
fn a_timeout_of_zero_waits_for_ever() {
    let mut bench = Bench::with(config(), Attributes { timeout: 0, ..attributes() });
    bench.post(SendRequest::send(0, &[]));
    bench.sent();
    assert_eq!(bench.rc.poll_timeout(), None);
}

/// Covers: ROCE-058, ROCE-060
#[test]
fn an_rnr_nak_holds_everything_up_for_its_time() {
    for (code, time) in [(0, 655_360), (1, 10), (14, 1280), (31, 491_520)] {
        let mut bench = sends(3);
        bench.answer(1, Syndrome::RnrNak(RnrTimer::new(code)));
        assert_eq!(bench.ended(), [(0, OK)]);
        // Duplicates of it, and a request posted meanwhile, change nothing.
        for _ in 0..5 {
            bench.answer(1, Syndrome::RnrNak(RnrTimer::new(code)));
        }
        bench.post(SendRequest::send(3, &[]));
        assert_eq!(bench.sent(), []);
        bench.wait(Duration::from_micros(time - 1));
        bench.answer(1, Syndrome::RnrNak(RnrTimer::new(code)));
        assert_eq!(bench.sent(), []);
        bench.wait(Duration::from_micros(1));
        assert_eq!(psns(&bench.sent()), [own(1), own(2), own(3)]);
    }
}

/// Covers: ROCE-058, ROCE-059, ROCE-063
#[test]
fn rnr_naks_are_counted_apart() {
    let not_ready = Syndrome::RnrNak(RnrTimer::new(1));
    let mut bench = sends(2);
    for number in [0, 0, 1, 1] {
        bench.answer(number, not_ready);
        bench.wait_for_timeout();
        bench.sent();
    }
    bench.answer(1, not_ready);
    let events = bench.events();
    let reason: Reason = reasons::NO_RECEIVE;
    assert!(reason.is_no_receive() && events.contains(&Event::Terminated(reason)));
    let Some(Event::SendCompleted(wc)) = events.last() else { panic!() };
    assert_eq!((wc.wr_id, wc.status), (1, WcStatus::RnrRetryExceeded));
    let mut bench = Bench::with(config(), Attributes { rnr_retry: 7, ..attributes() });
    bench.post(SendRequest::send(0, &[]));
    bench.sent();
    for _ in 0..100 {
        bench.answer(0, not_ready);
        bench.wait_for_timeout();
        assert_eq!(bench.sent().len(), 1);
    }
}

/// Covers: ROCE-065, ROCE-066, ROCE-073
#[test]
fn a_refusal_ends_its_request_and_the_queue_pair() {
    let refusals = [
        (Syndrome::Nak(NakCode::InvalidRequest), WcStatus::RemoteInvalidRequest, 0x61),
        (Syndrome::Nak(NakCode::RemoteAccess), WcStatus::RemoteAccess, 0x62),
        (Syndrome::Nak(NakCode::RemoteOperation), WcStatus::RemoteOperation, 0x63),
        (Syndrome::Nak(NakCode::InvalidRdRequest), WcStatus::RemoteInvalidRequest, 0x100),
        (Syndrome::Reserved(0x45), WcStatus::BadResponse, 0x100),
        (Syndrome::Reserved(0x7f), WcStatus::BadResponse, 0x100),
    ];
    for (syndrome, status, code) in refusals {
        let mut bench = sends(4);
        bench.answer(2, syndrome);
        let events = bench.events();
        let reason = |event: &Event| match event {
            Event::Terminated(reason) => Some(reason.code()),
            _ => None,
        };
        assert_eq!(events.iter().filter_map(reason).collect::<Vec<_>>(), [code]);
        let ended: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::SendCompleted(wc) => Some(wc.status),
                _ => None,
            })
            .collect();
        assert_eq!(ended, [OK, OK, status, FLUSHED]);
        bench.answer(3, Syndrome::ACK);
        assert_eq!((bench.events(), bench.sent()), (Vec::new(), Vec::new()));
        assert_eq!(bench.rc.state(), QpState::Err);
    }
}

/// The answer to a Read is lost, and a later request is refused: the Read gets no answer now.
#[test]
fn a_read_ahead_of_a_refusal_fails() {
    let mut bench = Bench::new();
    bench.post(SendRequest::read(0, &[local(0, 8)], KEY, TO));
    bench.post(SendRequest::send(1, &[]));
    bench.post(SendRequest::send(2, &[]));
    bench.sent();
    bench.nak(1, NakCode::InvalidRequest);
    let ended = [(0, WcStatus::RetryExceeded), (1, WcStatus::RemoteInvalidRequest), (2, FLUSHED)];
    assert_eq!(bench.ended(), ended);
}

/// Covers: ROCE-069
#[test]
fn credits_are_no_limit() {
    let mut bench = sends(1);
    bench.answer(0, Syndrome::Ack { credits: Some(0) });
    assert_eq!(bench.ended().len(), 1);
    bench.post(SendRequest::send(1, &[]));
    assert_eq!(bench.sent().len(), 1);
}

/// A Read of so many octets that was sent.
fn read(length: u32) -> Bench {
    let mut bench = Bench::new();
    bench.post(SendRequest::read(0, &[local(0, 10), local(100, length - 10)], KEY, TO).signaled());
    bench.post(SendRequest::send(1, &[]).signaled());
    bench.sent();
    bench
}

/// Covers: ROCE-052, ROCE-053, ROCE-055
#[test]
fn a_read_is_asked_for_again_where_its_answer_breaks_off() {
    let mut bench = read(3 * MTU as u32 + 1);
    let data = pattern(3 * MTU + 1, 9);
    bench.take(own(0), response(Position::First), &data[..MTU]);
    // One is lost.
    bench.take(own(2), response(Position::Middle), &data[2 * MTU..3 * MTU]);
    bench.take(own(3), response(Position::Last), &data[3 * MTU..]);
    let again = bench.sent();
    assert_eq!(psns(&again), [own(1), own(4)]);
    let length = 2 * MTU as u32 + 1;
    let reth = Reth { va: TO.advanced(MTU as u64), rkey: KEY, length };
    assert_eq!(again[0].message, Message::ReadRequest(reth));
    // The second answer begins anew, and some of the first still comes.
    bench.take(own(0), response(Position::First), &data[..MTU]);
    bench.take(own(1), response(Position::First), &data[MTU..2 * MTU]);
    bench.take(own(1), response(Position::First), &data[MTU..2 * MTU]);
    bench.take(own(2), response(Position::Middle), &data[2 * MTU..3 * MTU]);
    bench.take(own(3), response(Position::Last), &data[3 * MTU..]);
    assert_eq!(bench.ended(), [(0, OK)]);
    let memory = bench.host.octets(LOCAL);
    assert_eq!(memory[..10], data[..10]);
    assert_eq!(memory[100..100 + data.len() - 10], data[10..]);
}

/// Covers: ROCE-052, ROCE-054
#[test]
fn answers_that_do_not_fit_their_read_end_the_queue_pair() {
    let wrong = [
        (0, response(Position::First), MTU - 1),
        (0, response(Position::First), MTU + 1),
        (0, response(Position::Only), MTU),
        (0, response(Position::Last), MTU),
        (
            0,
            Message::AtomicAcknowledge {
                aeth: Aeth { syndrome: Syndrome::ACK, msn: 0 },
                original: 0,
            },
            0,
        ),
        (1, response(Position::Middle), 1),
        (1, response(Position::Last), 0),
        (1, response(Position::Last), 2),
    ];
    for (number, message, length) in wrong {
        let mut bench = read(MTU as u32 + 1);
        if number == 1 {
            bench.take(own(0), response(Position::First), &[0; MTU]);
        }
        bench.take(own(number), message, &std::vec![0; length]);
        assert_eq!(bench.ended(), [(0, WcStatus::BadResponse), (1, FLUSHED)], "{message:?}");
    }
    // Nor is there a Read behind the PSN of a Send.
    let mut bench = sends(1);
    bench.take(own(0), response(Position::Only), &[]);
    assert_eq!(bench.ended(), [(0, WcStatus::BadResponse)]);
}

#[test]
fn memory_that_went_fails_the_read() {
    let mut bench = read(MTU as u32);
    bench.host.change(LOCAL, |region| region.valid = false);
    bench.take(own(0), response(Position::Only), &[0; MTU]);
    assert_eq!(bench.ended(), [(0, WcStatus::LocalProtection), (1, FLUSHED)]);
}

/// A go-back sends no more than the window, however much was under way.
#[test]
fn a_go_back_stays_within_the_window() {
    let mut bench = Bench::new();
    bench.post(SendRequest::write(0, &[local(0, REGION_LEN as u32)], KEY, TO).signaled());
    let mut acknowledged = 0;
    for _ in 0..3 {
        let sent = bench.sent();
        acknowledged += sent.len() as u32;
        bench.answer(acknowledged - 1, Syndrome::ACK);
    }
    let before = bench.sent();
    bench.nak(acknowledged, NakCode::SequenceError);
    let again = bench.sent();
    assert_eq!(again[0].psn, own(acknowledged));
    assert!(again.len() <= before.len() / 2 + 1, "{} {}", again.len(), before.len());
    // The rest of what was sent before arrives after all.
    bench.answer(acknowledged + before.len() as u32 - 1, Syndrome::ACK);
    assert_eq!(bench.sent()[0].psn, own(acknowledged + before.len() as u32));
}

/// Covers: ROCE-058
#[test]
fn an_rnr_nak_behind_a_missing_answer_waits_for_nothing() {
    let mut bench = Bench::new();
    bench.post(SendRequest::read(0, &[local(0, 8)], KEY, TO));
    bench.post(SendRequest::send(1, &[]));
    bench.sent();
    bench.answer(1, Syndrome::RnrNak(RnrTimer::new(0)));
    assert_eq!(psns(&bench.sent()), [own(0), own(1)]);
}
