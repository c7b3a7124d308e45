// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completions that mean "received" ([`Config::acknowledge`]): a Read of nothing behind what was
//! sent, at most one of them under way.

use super::octets::{self, send, tagged, word};
use super::*;
use crate::qp::Wanted;
use crate::rdmap::wire::TerminateCode;

fn acknowledging() -> Config {
    Config { acknowledge: true, ..config() }
}

/// An initiator whose peer takes `ord` Reads of the program's and `spare` of the protocol's.
fn raw(ord: u16, spare: u16) -> Raw {
    Raw::initiator(acknowledging(), |terms| {
        (terms.ord, terms.spare_ord) = (ord, spare);
    })
}

fn opcodes(back: &[Vec<u8>]) -> Vec<u8> {
    back.iter().map(|ulpdu| ulpdu[1]).collect()
}

/// The Read of nothing that has to be the last of `back`.
fn asked(back: &[Vec<u8>]) -> Vec<u8> {
    let last = back.last().expect("a Read Request").clone();
    assert_eq!((last[1], word(&last, 30)), (octets::READ_REQUEST, 0));
    last
}

/// The answer to a Read Request, of `len` octets.
fn answer(request: &[u8], len: usize) -> Vec<u8> {
    let (stag, to) = (word(request, 18), octets::long(request, 22));
    tagged(octets::READ_RESPONSE, true, stag, to, &vec![7; len])
}

#[test]
fn a_one_way_request_completes_when_the_read_behind_it_is_answered() {
    let immediate = SendOp::Immediate { solicited: false, data: [0; 8] };
    for (op, wc) in [(SEND, WcOp::Send), (write_op(0), WcOp::Write), (immediate, WcOp::Immediate)] {
        let mut raw = raw(0, 1);
        raw.end.post(1, op, &[]);
        let back = raw.back();
        assert_eq!(back.len(), 2);
        let request = asked(&back);
        // No buffer is named, and none may be looked for (RFC 5040 §5.2.1).
        assert_eq!((word(&request, 34), octets::long(&request, 38)), (0, 0));
        assert_eq!(raw.end.completions(), []);
        assert_eq!(raw.end.qp.borrow().outstanding(), (1, 0));
        raw.send(&answer(&request, 0));
        assert_eq!(outcomes(&raw.end.completions()), [success(1, wc)]);
        assert_eq!(raw.end.qp.borrow().outstanding(), (0, 0));
        assert_eq!(raw.back().len(), 0);
    }
}

/// In memory that the two share, the peer writes down there what it has taken in.
#[test]
fn a_peer_that_says_unasked_what_it_has_is_asked_no_more() {
    let mut raw = raw(0, 1);
    raw.end.post(1, SEND, &[]);
    asked(&raw.back());
    let position = raw.end.sent();
    raw.end.qp.borrow_mut().peer_has(position);
    assert_eq!(outcomes(&raw.end.completions()), [success(1, WcOp::Send)]);
    for wr_id in 2..10 {
        raw.end.post(wr_id, SEND, &[]);
        raw.end.post(wr_id + 100, write_op(0), &[local(0, 8)]);
        assert_eq!(opcodes(&raw.back()), [octets::SEND, octets::WRITE]);
        assert_eq!(raw.end.completions(), []);
        assert!(raw.end.qp.borrow().awaits_acknowledgement());
        let position = raw.end.sent();
        // All but the last octet of the second.
        raw.end.qp.borrow_mut().peer_has(position - 1);
        assert_eq!(outcomes(&raw.end.completions()), [success(wr_id, WcOp::Send)]);
        raw.end.qp.borrow_mut().peer_has(position);
        assert_eq!(outcomes(&raw.end.completions()), [success(wr_id + 100, WcOp::Write)]);
    }
    // A word that comes before this end knows that the stream has taken the request.
    raw.end.qp.borrow_mut().peer_has(1 << 40);
    raw.end.post(99, SEND, &[]);
    raw.back();
    assert_eq!(outcomes(&raw.end.completions()), [success(99, WcOp::Send)]);
}

/// As Linux siw may answer.
#[test]
fn octets_in_the_answer_to_a_read_of_nothing_are_dropped() {
    for (len, parts) in [(1, 1), (23, 1), (2000, 3)] {
        let mut raw = raw(0, 1);
        raw.end.post(1, SEND, &[]);
        let request = asked(&raw.back());
        let stag = word(&request, 18);
        for part in 1..=parts {
            let to = (part - 1) * len;
            let octets = vec![7; len as usize];
            raw.send(&tagged(octets::READ_RESPONSE, part == parts, stag, to, &octets));
        }
        assert_eq!(outcomes(&raw.end.completions()), [success(1, WcOp::Send)]);
        // Later messages are taken as ever.
        raw.end.receive(2, &[local(0, 8)]);
        raw.send(&send(1, b"next"));
        assert_eq!(outcomes(&raw.end.completions()), [success(2, WcOp::Recv)]);
    }
    // But not what is for another buffer.
    let mut raw = raw(0, 1);
    raw.end.post(1, SEND, &[]);
    let request = asked(&raw.back());
    let wrong = tagged(octets::READ_RESPONSE, true, word(&request, 18) + 1, 0, &[7]);
    assert_eq!(raw.refuse(&wrong)[..2], [0x11, 0x00]);
}

#[test]
fn one_read_acknowledges_all_before_it_and_the_next_one_what_was_posted_meanwhile() {
    let mut raw = raw(0, 1);
    for wr_id in 1..4 {
        raw.end.post(wr_id, SEND, &[]);
    }
    let first = raw.back();
    assert_eq!(opcodes(&first), [octets::SEND, octets::SEND, octets::SEND, octets::READ_REQUEST]);
    for wr_id in 4..6 {
        raw.end.post(wr_id, SEND, &[]);
    }
    // Only one at a time.
    assert_eq!(opcodes(&raw.back()), [octets::SEND, octets::SEND]);
    raw.send(&answer(&asked(&first), 0));
    let done: Vec<_> = (1..4).map(|wr_id| success(wr_id, WcOp::Send)).collect();
    assert_eq!(outcomes(&raw.end.completions()), done);
    assert!(raw.end.qp.borrow_mut().wants_transmit());
    let second = raw.back();
    assert_eq!(second.len(), 1);
    assert_eq!(word(&asked(&second), 10), 2, "its own MSN");
    raw.send(&answer(&asked(&second), 0));
    assert_eq!(raw.end.completions().len(), 2);
    assert_eq!(raw.back().len(), 0);
}

#[test]
fn unsignaled_requests_ask_for_nothing_and_hold_nothing_up() {
    let mut raw = raw(0, 1);
    let silent = SendRequest::new(1, SEND, Payload::Sges(&[]));
    raw.end.qp.borrow_mut().post_send(&silent).unwrap();
    assert_eq!(opcodes(&raw.back()), [octets::SEND]);
    assert_eq!(raw.end.qp.borrow().outstanding(), (0, 0));
    raw.end.post(2, SEND, &[]);
    raw.end.qp.borrow_mut().post_send(&silent).unwrap();
    let back = raw.back();
    assert_eq!(opcodes(&back), [octets::SEND, octets::SEND, octets::READ_REQUEST]);
    raw.send(&answer(&asked(&back), 0));
    assert_eq!(outcomes(&raw.end.completions()), [success(2, WcOp::Send)]);
    assert_eq!(raw.end.qp.borrow().outstanding(), (0, 0));
}

#[test]
fn a_long_burst_is_acknowledged_on_the_way() {
    let mut raw = raw(0, 1);
    for wr_id in 0..40 {
        raw.end.post(wr_id, SEND, &[]);
    }
    let back = raw.back();
    let at = back.iter().position(|ulpdu| ulpdu[1] == octets::READ_REQUEST).expect("a Read");
    assert_eq!((at, back.len()), (16, 41));
    raw.send(&answer(&back[at], 0));
    assert_eq!(raw.end.completions().len(), 16);
    // A message that would take long is not waited for either.
    let mut raw = self::raw(0, 1);
    raw.end.post(1, SEND, &[]);
    let long = [local(0, SIZE as u32), local(0, SIZE as u32), local(0, 8)];
    raw.end.post(2, write_op(0), &long);
    let back = raw.back();
    assert_eq!(opcodes(&back)[..2], [octets::SEND, octets::READ_REQUEST]);
    assert_eq!(back.iter().filter(|ulpdu| ulpdu[1] == octets::READ_REQUEST).count(), 1);
}

#[test]
fn a_read_of_the_program_acknowledges_what_stands_before_it() {
    let mut raw = raw(1, 1);
    raw.end.post(1, SEND, &[]);
    raw.end.post(2, read_op(0), &[local(0, 8)]);
    raw.end.post(3, SEND, &[]);
    let back = raw.back();
    assert_eq!(
        opcodes(&back),
        [octets::SEND, octets::READ_REQUEST, octets::SEND, octets::READ_REQUEST]
    );
    raw.send(&answer(&back[1], 8));
    assert_eq!(outcomes(&raw.end.completions()), [success(1, WcOp::Send), success(2, WcOp::Read)]);
    raw.send(&answer(&asked(&back), 0));
    assert_eq!(outcomes(&raw.end.completions()), [success(3, WcOp::Send)]);
}

#[test]
fn completions_stay_in_the_order_of_submission() {
    let mut raw = raw(2, 1);
    raw.end.post(1, read_op(0), &[local(0, 8)]);
    raw.end.post(2, SEND, &[]);
    raw.end.post(3, read_op(0), &[local(8, 8)]);
    let back = raw.back();
    // The Read behind it is all the acknowledgement that the Send needs.
    assert_eq!(opcodes(&back), [octets::READ_REQUEST, octets::SEND, octets::READ_REQUEST]);
    raw.send(&answer(&back[0], 8));
    assert_eq!(outcomes(&raw.end.completions()), [success(1, WcOp::Read)]);
    raw.send(&answer(&back[2], 8));
    assert_eq!(outcomes(&raw.end.completions()), [success(2, WcOp::Send), success(3, WcOp::Read)]);
}

#[test]
fn the_depths_that_the_program_knows_are_its_own() {
    let mut raw = raw(1, 1);
    assert_eq!(raw.end.qp.borrow().read_depths(), (1, 4));
    // Its one Read may be under way beside an acknowledgement, but no second one.
    raw.end.post(1, SEND, &[]);
    assert_eq!(raw.back().len(), 2);
    raw.end.post(2, read_op(0), &[local(0, 8)]);
    raw.end.post(3, read_op(0), &[local(0, 8)]);
    assert_eq!(opcodes(&raw.back()), [octets::READ_REQUEST]);
    // Without Reads it may post none, though the wire could carry one.
    let mut raw = self::raw(0, 1);
    raw.end.post(1, read_op(0), &[local(0, 8)]);
    raw.back();
    let ended = (1, WcStatus::LocalQpOperation, WcOp::Read);
    assert_eq!(outcomes(&raw.end.completions()), [ended]);
}

#[test]
fn without_a_spare_read_what_the_program_leaves_free_is_used() {
    let mut raw = raw(1, 0);
    raw.end.post(1, SEND, &[]);
    raw.end.post(2, read_op(0), &[local(0, 8)]);
    raw.end.post(3, SEND, &[]);
    let back = raw.back();
    assert_eq!(opcodes(&back), [octets::SEND, octets::READ_REQUEST, octets::SEND]);
    raw.send(&answer(&back[1], 8));
    assert_eq!(raw.end.completions().len(), 2);
    raw.end.post(4, read_op(0), &[local(0, 8)]);
    // The program's Read takes the slot, and is as good.
    let back = raw.back();
    assert_eq!((back.len(), word(&back[0], 30)), (1, 8));
    raw.send(&answer(&back[0], 8));
    assert_eq!(outcomes(&raw.end.completions()), [success(3, WcOp::Send), success(4, WcOp::Read)]);
}

#[test]
fn a_peer_that_takes_no_reads_acknowledges_nothing() {
    let mut raw = raw(0, 0);
    raw.end.post(1, SEND, &[]);
    assert_eq!(opcodes(&raw.back()), [octets::SEND]);
    assert_eq!(outcomes(&raw.end.completions()), [success(1, WcOp::Send)]);
}

#[test]
fn a_fence_waits_for_the_programs_reads_alone() {
    let mut raw = raw(1, 1);
    raw.end.post(1, SEND, &[]);
    assert_eq!(raw.back().len(), 2);
    raw.end.post_fenced(2, SEND, &[]);
    assert_eq!(opcodes(&raw.back()), [octets::SEND]);
}

#[test]
fn a_send_queue_is_drained_when_what_was_sent_is_acknowledged() {
    let mut raw = raw(0, 1);
    raw.end.post(1, SEND, &[]);
    raw.end.build();
    raw.end.qp.borrow_mut().modify(QpState::Sqd).unwrap();
    raw.end.post(2, SEND, &[]);
    let back = raw.back();
    assert_eq!(opcodes(&back), [octets::SEND, octets::READ_REQUEST]);
    assert_eq!(raw.end.events(), []);
    raw.send(&answer(&asked(&back), 0));
    let events = raw.end.events();
    assert!(matches!(events[..], [Event::SendCompleted(_), Event::SendQueueDrained]));
    assert_eq!(raw.back().len(), 0);
}

/// Also where the send queue was paused before the Read could be built.
#[test]
fn a_paused_send_queue_still_asks_for_acknowledgement() {
    let mut raw = raw(0, 1);
    raw.end.post(1, SEND, &[]);
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 1);
    raw.end.qp.borrow_mut().modify(QpState::Sqd).unwrap();
    assert_eq!(opcodes(&raw.back()), [octets::SEND, octets::READ_REQUEST]);
}

#[test]
fn an_answer_that_overtakes_the_report_of_its_own_request_completes_nothing_too_early() {
    let mut raw = raw(0, 1);
    raw.end.post(1, SEND, &[]);
    raw.end.build();
    let octets: Vec<u8> = raw.end.out.pieces().next().map_or(Vec::new(), |piece| match piece {
        Piece::Staged(range) => raw.end.out.octets(range.clone()).to_vec(),
        Piece::Memory(_) => Vec::new(),
    });
    // Behind the hello of nothing: the Send's FPDU is 24 octets, its Read Request's 52.
    let request = octets[octets.len() - 52 + 2..octets.len() - 4].to_vec();
    raw.send(&answer(&request, 0));
    assert_eq!(raw.end.completions(), []);
    raw.end.take(usize::MAX);
    assert_eq!(outcomes(&raw.end.completions()), [success(1, WcOp::Send)]);
}

#[test]
fn an_unacknowledged_send_is_flushed_with_the_stream() {
    type End = fn(&mut Raw);
    let ends: [End; 4] = [
        |raw| raw.end.qp.borrow_mut().lost(),
        |raw| raw.end.qp.borrow_mut().abort(),
        |raw| raw.end.qp.borrow_mut().fail_locally("told to"),
        |raw| raw.end.qp.borrow_mut().disconnect(),
    ];
    for end in ends {
        let mut raw = raw(0, 1);
        raw.end.post(1, SEND, &[]);
        raw.back();
        end(&mut raw);
        raw.end.take_all();
        assert_eq!(outcomes(&raw.end.completions()), [flushed(1, WcOp::Send)]);
    }
}

#[test]
fn accepted_sends_go_out_behind_a_disconnect_without_asking() {
    let mut raw = raw(0, 1);
    raw.end.post(1, SEND, &[]);
    raw.end.post(2, SEND, &[]);
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(opcodes(&raw.back()), [octets::SEND, octets::SEND]);
    assert_eq!(raw.end.disposition(), Disposition::Finish);
    assert_eq!(outcomes(&raw.end.completions()), [flushed(1, WcOp::Send), flushed(2, WcOp::Send)]);
}

#[test]
fn a_peer_that_closes_without_an_answer_ends_the_stream_well() {
    let mut raw = raw(0, 1);
    raw.end.post(1, SEND, &[]);
    raw.back();
    raw.end.eof();
    let events = raw.end.events();
    assert_eq!(events[0], Event::Disconnected);
    let completions: Vec<_> = events.into_iter().filter_map(completion).collect();
    assert_eq!(outcomes(&completions), [flushed(1, WcOp::Send)]);
    // With something that was not sent it is a fault, as ever.
    let mut raw = self::raw(0, 1);
    raw.end.post(1, SEND, &[]);
    raw.end.build();
    raw.end.eof();
    assert!(matches!(raw.end.events()[0], Event::Fault(_)));
}

/// The peer's program may disconnect as soon as it has the message. Requests that came before are
/// answered.
#[test]
fn a_disconnected_end_answers_what_it_was_asked_about() {
    let mut pair = Pair::with(acknowledging(), |terms| {
        (terms.ird, terms.ord, terms.spare_ird, terms.spare_ord) = (0, 0, 1, 1);
    });
    pair.b.receive(1, &[]);
    pair.a.post(1, SEND, &[]);
    let there = pair.a.take_all();
    pair.b.arrive(&there);
    assert_eq!(pair.b.completions().len(), 1);
    pair.b.qp.borrow_mut().disconnect();
    assert_eq!(pair.b.disposition(), Disposition::Open);
    assert!(pair.b.qp.borrow_mut().wants_transmit());
    let back = pair.b.take_all();
    assert_eq!(pair.b.disposition(), Disposition::Finish);
    pair.a.arrive(&back);
    assert_eq!(outcomes(&pair.a.completions()), [success(1, WcOp::Send)]);
}

/// The engine may let it wait for what goes out with it; nothing else.
#[test]
fn an_acknowledgement_is_told_from_all_else_there_is_to_transmit() {
    let mut raw = Raw::new();
    let wanted = |raw: &Raw| raw.end.qp.borrow_mut().wanted();
    assert_eq!(wanted(&raw), Wanted::Nothing);
    raw.send(&octets::read_request(1, 0, 0, 0));
    assert_eq!(wanted(&raw), Wanted::Acknowledgement);
    raw.end.post(1, SEND, &[]);
    assert_eq!(wanted(&raw), Wanted::Much);
    assert_eq!(opcodes(&raw.back()), [octets::READ_RESPONSE, octets::SEND]);
    assert_eq!(wanted(&raw), Wanted::Nothing);
    raw.send(&octets::read_request(2, 8, OPEN, OPEN_BASE));
    assert_eq!(wanted(&raw), Wanted::Much);
    raw.back();
    raw.send(&octets::read_request(3, 0, 0, 0));
    raw.send(&octets::read_request(4, 8, OPEN, OPEN_BASE));
    assert_eq!(wanted(&raw), Wanted::Much);
    raw.back();
    raw.send(&octets::read_request(5, 0, 0, 0));
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(wanted(&raw), Wanted::Much);
}

/// Covers: RDMAP-5040-5.2.1-06
#[test]
fn a_disconnected_end_answers_in_order_or_not_at_all() {
    let mut raw = Raw::new();
    raw.send(&octets::read_request(1, 0, 0, 0));
    raw.send(&octets::read_request(2, 8, OPEN, OPEN_BASE));
    raw.send(&octets::read_request(3, 0, 0, 0));
    raw.end.qp.borrow_mut().disconnect();
    let back = raw.back();
    assert_eq!((back.len(), word(&back[0], 2)), (1, 0x5151_0001));
    let mut raw = Raw::new();
    raw.send(&octets::read_request(1, 8, OPEN, OPEN_BASE));
    raw.send(&octets::read_request(2, 0, 0, 0));
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(raw.back().len(), 0);
    assert_eq!(raw.end.disposition(), Disposition::Finish);
}

#[test]
fn an_end_that_disconnects_while_it_answers_says_it_once() {
    let mut raw = Raw::new();
    raw.send(&octets::read_request(1, 0, 0, 0));
    let mut scratch = crate::qp::outbound::Scratch::default();
    let next = raw.end.qp.borrow_mut().next(1000, 1, &mut scratch);
    assert!(matches!(next, crate::qp::outbound::Next::Segments(_)));
    raw.end.qp.borrow_mut().disconnect();
    raw.end.qp.borrow_mut().framed(36);
    assert_eq!(raw.back().len(), 0);
    assert_eq!(raw.end.disposition(), Disposition::Finish);
}

#[test]
fn a_silent_peer_fails_the_oldest_request_and_flushes_the_rest() {
    for (acknowledge, left) in [(true, [1, 2, 3]), (false, [2, 3, 4])] {
        let mut raw = Raw::initiator(Config { acknowledge, ..config() }, |_| {});
        raw.end.post(1, SEND, &[]);
        raw.end.post(2, read_op(0), &[local(0, 8)]);
        raw.end.post(3, SEND, &[]);
        if !acknowledge {
            raw.end.post(4, SEND, &[]);
        }
        raw.back();
        raw.end.qp.borrow_mut().timed_out();
        let events = raw.end.events();
        assert!(events.contains(&Event::Lost));
        let ended: Vec<_> = events.into_iter().filter_map(completion).collect();
        let failed: Vec<_> = ended.iter().filter(|wc| wc.status != WcStatus::Success).collect();
        assert_eq!(failed.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), left);
        assert_eq!(failed[0].status, WcStatus::RetryExceeded);
        assert!(failed[1..].iter().all(|wc| wc.status == WcStatus::Flushed));
    }
    // An idle one has nothing to say it by.
    let raw = Raw::initiator(config(), |_| {});
    raw.end.qp.borrow_mut().timed_out();
    assert_eq!(raw.end.events(), [Event::Lost]);
}

/// As with any device, the failure of a request without a completion has one, and so have all
/// behind it.
#[test]
fn an_unsignaled_request_that_the_peer_refuses_says_why() {
    let too_long = |msn| quoting([0x12, 0x05], 18, &send(msn, &[]), &[]);
    let write = tagged(octets::WRITE, true, OPEN, OPEN_BASE + 5, &[]);
    let refused = quoting([0x11, 0x01], 20, &write, &[]);
    let cases = [
        (too_long(2), 2, WcStatus::RemoteInvalidRequest),
        (too_long(3), 4, WcStatus::RemoteInvalidRequest),
        (refused, 3, WcStatus::RemoteAccess),
    ];
    for (terminate, at_fault, status) in cases {
        for signaled_behind in [false, true] {
            let mut raw = raw(0, 1);
            raw.end.post(1, SEND, &[]);
            let back = raw.back();
            raw.send(&answer(&asked(&back), 0));
            assert_eq!(outcomes(&raw.end.completions()), [success(1, WcOp::Send)]);
            let payload = [local(0, 20)];
            for (wr_id, op) in [(2, SEND), (3, write_op(0)), (4, SEND)] {
                let silent = SendRequest::new(wr_id, op, Payload::Sges(&payload));
                raw.end.qp.borrow_mut().post_send(&silent).unwrap();
                raw.back();
            }
            assert_eq!(raw.end.qp.borrow().outstanding(), (0, 0));
            let last = if signaled_behind { 5 } else { 4 };
            if signaled_behind {
                raw.end.post(5, SEND, &[]);
                raw.back();
            }
            raw.send(&octets::terminate(&terminate));
            let completions = raw.end.completions();
            let ended: Vec<_> = completions.iter().map(|wc| (wc.wr_id, wc.status)).collect();
            let flushed = (at_fault + 1..=last).map(|wr_id| (wr_id, WcStatus::Flushed));
            let expected: Vec<_> = [(at_fault, status)].into_iter().chain(flushed).collect();
            assert_eq!(ended, expected);
        }
    }
}

/// A Terminate that quotes a message: what stands before it arrived.
#[test]
fn the_request_that_the_peer_refuses_says_why() {
    let no_buffer = quoting([0x12, 0x02], 18, &send(2, &[]), &[]);
    let too_long = quoting([0x12, 0x05], 18, &send(2, &[]), &[]);
    let no_such = quoting([0x02, 0x09], 18, &send(2, &[]), &[]);
    let write = tagged(octets::WRITE, true, OPEN, OPEN_BASE + 5, &[]);
    let refused = quoting([0x11, 0x01], 20, &write, &[]);
    let cases = [
        (no_buffer, 2, WcStatus::RnrRetryExceeded, WcOp::Send),
        (too_long, 2, WcStatus::RemoteInvalidRequest, WcOp::Send),
        (no_such, 2, WcStatus::RemoteAccess, WcOp::Send),
        (refused, 3, WcStatus::RemoteAccess, WcOp::Write),
        // Without a quoted segment it is the oldest.
        (vec![0x11, 0x01, 0, 0], 1, WcStatus::RemoteAccess, WcOp::Send),
        (vec![0x00, 0x00, 0, 0], 1, WcStatus::RemoteOperation, WcOp::Send),
    ];
    for (terminate, at_fault, status, op) in cases {
        let mut raw = raw(0, 1);
        raw.end.post(1, SEND, &[]);
        raw.end.post(2, SEND, &[]);
        raw.end.post(3, write_op(0), &[local(0, 20)]);
        raw.end.post(4, write_op(100), &[local(0, 20)]);
        raw.back();
        raw.send(&octets::terminate(&terminate));
        let completions = raw.end.completions();
        for wc in &completions {
            let expected = match wc.wr_id {
                n if n < at_fault => WcStatus::Success,
                n if n == at_fault => status,
                _ => WcStatus::Flushed,
            };
            assert_eq!(wc.status, expected, "{wc:?}");
        }
        assert_eq!(completions[at_fault as usize - 1].op, op);
    }
    // A fault of the stream is no request's, nor one that quotes what was never sent.
    for payload in [vec![0x20, 0x02, 0, 0], quoting([0x12, 0x02], 18, &send(9, &[]), &[])] {
        let mut raw = raw(0, 1);
        raw.end.post(1, SEND, &[]);
        raw.back();
        raw.send(&octets::terminate(&payload));
        assert_eq!(outcomes(&raw.end.completions()), [flushed(1, WcOp::Send)]);
    }
}

#[test]
fn a_refused_send_of_completions_that_are_local_is_told_by_the_event_alone() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, SEND, &[local(0, 8)]);
    raw.end.build();
    raw.send(&octets::terminate(&quoting([0x12, 0x02], 18, &send(1, &[]), &[])));
    let events = raw.end.events();
    let code = TerminateCode { layer: 1, etype: 2, code: 2 };
    assert_eq!(events[0], Event::Terminated(code));
    let completions: Vec<_> = events.into_iter().filter_map(completion).collect();
    assert_eq!(outcomes(&completions), [flushed(1, WcOp::Send)]);
}

#[test]
fn a_local_invalidation_waits_for_the_stream_and_not_for_the_peer() {
    let mut raw = raw(0, 1);
    raw.end.post(1, SEND, &[local(0, 8)]);
    raw.end.post(2, SendOp::LocalInvalidate(Stag(LOCAL)), &[]);
    raw.back();
    raw.back();
    let done = raw.end.host.touches();
    assert!(done.contains(&Touch::Invalidated { stag: LOCAL, by: Invalidator::Local }));
    assert_eq!(raw.end.completions(), [], "in order");
}

#[test]
fn both_ends_acknowledge_each_other_with_no_reads_of_their_programs() {
    let mut pair = Pair::with(acknowledging(), |terms| {
        (terms.ird, terms.ord, terms.spare_ird, terms.spare_ord) = (0, 0, 1, 1);
    });
    for round in 0..50 {
        for end in [&pair.a, &pair.b] {
            end.receive(round, &[local(0, 3000)]);
            end.post(1000 + round, SEND, &[local(4000, 3000)]);
            end.post(2000 + round, write_op(0), &[local(4000, 500)]);
        }
        pair.run_in_steps(700);
        for end in [&pair.a, &pair.b] {
            let completions = end.completions();
            assert_eq!(completions.len(), 3);
            assert!(completions.iter().all(|wc| wc.status == WcStatus::Success));
        }
    }
}
