// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ends of a stream: disconnect, the peer's FIN, loss, abort (RFC 5041 §6.2, RFC 5040 §6.2).
//!
//! A FIN without work pending ends the stream at both sides, as the verbs have it, instead of
//! leaving it half open (RFC 5041 §6.2.1 allows either).

use super::octets::{self, send, tagged, untagged};
use super::*;
use crate::rdmap::wire::TerminateCode;

fn sent(wr_id: u64) -> (u64, WcStatus, WcOp) {
    (wr_id, WcStatus::Success, WcOp::Send)
}

/// Covers: DDP-5041-6.2.1-01, VERBS-hilland-6.2.5-01
#[test]
fn accepted_requests_go_out_when_the_program_disconnects() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.tx.set_mulpdu(128);
    raw.end.receive(90, &[]);
    raw.end.post(1, SEND, &[local(0, 300)]);
    raw.end.post(2, write_op(0), &[local(0, 8)]);
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 100);
    assert!(!raw.end.out.is_empty());
    let immediate = SendOp::Immediate { solicited: false, data: [1; 8] };
    raw.end.post(3, immediate, &[]);
    raw.end.post(4, SEND, &[]);
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(raw.end.state(), QpState::Err);
    assert_eq!(raw.end.disposition(), Disposition::Open);
    assert_eq!(outcomes(&raw.end.completions()), [flushed(90, WcOp::Recv)]);
    assert!(raw.end.qp.borrow_mut().wants_transmit());
    let left = raw.end.take_all();
    assert!(left.len() > 300);
    assert_eq!(
        outcomes(&raw.end.completions()),
        [
            sent(1),
            (2, WcStatus::Success, WcOp::Write),
            (3, WcStatus::Success, WcOp::Immediate),
            sent(4)
        ]
    );
    assert_eq!(raw.end.disposition(), Disposition::Finish);
    assert_eq!(raw.end.events(), []);
}

/// Octets that were built are taken at once, so that only the message itself says that more is to
/// come.
#[test]
fn a_message_that_is_half_sent_and_taken_is_finished_behind_a_disconnect() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.tx.set_mulpdu(128);
    raw.end.post(1, SEND, &[local(0, 300)]);
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 100);
    let built = raw.end.out.len();
    raw.end.tx.taken(&raw.end.qp, &mut raw.end.out, built);
    assert!(raw.end.qp.borrow_mut().wants_transmit());
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(raw.end.disposition(), Disposition::Open);
    assert!(raw.end.qp.borrow_mut().wants_transmit());
    assert!(built + raw.end.take_all().len() > 300);
    assert_eq!(outcomes(&raw.end.completions()), [sent(1)]);
    assert_eq!(raw.end.disposition(), Disposition::Finish);
}

/// The octets that are dropped end anywhere, so those behind them are no frames.
#[test]
fn dropped_octets_behind_a_disconnect_are_no_fault() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.tx.set_mulpdu(128);
    raw.end.post(1, SEND, &[local(0, 300)]);
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 100);
    raw.end.qp.borrow_mut().disconnect();
    let fpdu = raw.fpdu(&send(1, &[0; 500]));
    for part in fpdu.chunks(100) {
        raw.end.arrive(part);
        assert!(raw.end.inbox.is_empty());
    }
    assert_eq!(raw.end.events(), []);
    assert_eq!(raw.back().len(), 3, "the rest of the Send, and no Terminate");
    assert_eq!(outcomes(&raw.end.completions()), [sent(1)]);
}

#[test]
fn every_send_arrives_whole_before_the_end_of_a_disconnected_stream() {
    let mut pair = Pair::new();
    for wr_id in 0..5 {
        pair.b.receive(wr_id, &[local(wr_id * 5000, 5000)]);
        pair.a.host.fill(LOCAL, wr_id as usize * 5000, &pattern(5000, wr_id as u8));
        pair.a.post(wr_id, SEND, &[local(wr_id * 5000, 5000)]);
    }
    pair.a.qp.borrow_mut().disconnect();
    pair.run_in_steps(777);
    assert_eq!(pair.a.disposition(), Disposition::Finish);
    pair.b.eof();
    let events = pair.b.events();
    assert_eq!(events.last(), Some(&Event::Disconnected));
    assert_eq!(events.into_iter().filter_map(completion).count(), 5);
    for i in 0..5 {
        assert_eq!(pair.b.host.octets(LOCAL)[i * 5000..][..5000], pattern(5000, i as u8));
    }
    assert_eq!(pair.b.disposition(), Disposition::Finish);
}

/// Covers: VERBS-hilland-6.2.5-01
#[test]
fn requests_that_need_an_answer_are_flushed_and_all_behind_them() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, read_op(0), &[local(0, 8)]);
    raw.end.post(2, SEND, &[]);
    raw.end.post(3, read_op(0), &[local(0, 8)]);
    raw.end.build();
    raw.end.post(4, SEND, &[]);
    raw.end.post(5, read_op(0), &[local(0, 8)]);
    raw.end.post(6, SEND, &[]);
    raw.end.qp.borrow_mut().disconnect();
    let opcodes: Vec<u8> = raw.back().iter().map(|ulpdu| ulpdu[1]).collect();
    assert_eq!(opcodes, [octets::READ_REQUEST, octets::SEND, octets::READ_REQUEST, octets::SEND]);
    // No request succeeds behind one that did not, though 2 and 4 were sent.
    let reads = [1, 3, 5].map(|wr_id| flushed(wr_id, WcOp::Read));
    let sends = [2, 4, 6].map(|wr_id| flushed(wr_id, WcOp::Send));
    assert_eq!(
        outcomes(&raw.end.completions()),
        [reads[0], sends[0], reads[1], sends[1], reads[2], sends[2]]
    );
    assert_eq!(raw.end.disposition(), Disposition::Finish);
}

#[test]
fn a_fenced_send_does_not_overtake_its_read_because_the_stream_closes() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, read_op(0), &[local(0, 8)]);
    raw.end.post_fenced(2, SEND, &[]);
    raw.back();
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(raw.back().len(), 0);
    assert_eq!(outcomes(&raw.end.completions()), [flushed(1, WcOp::Read), flushed(2, WcOp::Send)]);
    assert_eq!(raw.end.disposition(), Disposition::Finish);
}

/// Covers: DDP-5041-6.2.1-02
#[test]
fn requests_posted_behind_a_disconnect_are_flushed_in_their_turn() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, SEND, &[local(0, 8)]);
    raw.end.qp.borrow_mut().disconnect();
    raw.end.post(2, SEND, &[]);
    raw.end.receive(91, &[]);
    assert_eq!(outcomes(&raw.end.completions()), [flushed(91, WcOp::Recv)]);
    assert_eq!(raw.back().len(), 1);
    assert_eq!(outcomes(&raw.end.completions()), [sent(1), flushed(2, WcOp::Send)]);
    raw.end.post(3, read_op(0), &[]);
    raw.end.receive(92, &[]);
    assert_eq!(outcomes(&raw.end.completions()), [flushed(3, WcOp::Read), flushed(92, WcOp::Recv)]);
    assert_eq!(raw.back().len(), 0);
}

#[test]
fn a_closing_stream_ignores_all_that_arrives() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 8)]);
    raw.send(&octets::read_request(1, 8, OPEN, OPEN_BASE));
    raw.end.post(2, SEND, &[]);
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(outcomes(&raw.end.completions()), [flushed(1, WcOp::Recv)]);
    for ulpdu in [
        send(1, b"x"),
        tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"x"),
        octets::terminate(&[0, 0, 0, 0]),
        vec![0xff; 3],
    ] {
        raw.send(&ulpdu);
    }
    raw.end.eof();
    assert_eq!((raw.end.events(), raw.end.host.touches()), (vec![], vec![]));
    assert_eq!(raw.back(), [send(1, &[])], "no answer, but what was accepted");
    assert_eq!(raw.end.disposition(), Disposition::Finish);
}

#[test]
fn an_answer_that_is_half_sent_stops_on_a_segment_border_when_the_stream_closes() {
    let mut raw = Raw::new();
    raw.end.tx.set_mulpdu(128);
    raw.send(&octets::read_request(1, 1000, OPEN, OPEN_BASE));
    // Two FPDUs of nine.
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 200);
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(raw.back().len(), 2);
    assert_eq!(raw.end.disposition(), Disposition::Finish);
}

#[test]
fn a_source_that_is_lost_while_closing_ends_in_a_terminate() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, SEND, &[local(0, 8)]);
    raw.end.post(2, SEND, &[]);
    raw.end.qp.borrow_mut().disconnect();
    raw.end.host.change(LOCAL, |region| region.valid = false);
    assert_eq!(raw.terminate(), [0, 0, 0, 0]);
    assert_eq!(
        outcomes(&raw.end.completions()),
        [(1, WcStatus::LocalProtection, WcOp::Send), flushed(2, WcOp::Send)]
    );
}

#[test]
fn an_idle_stream_ends_at_once_when_the_program_disconnects() {
    let raw = Raw::initiator(config(), |_| {});
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!((raw.end.disposition(), raw.end.events()), (Disposition::Finish, vec![]));
    assert!(!raw.end.qp.borrow().is_connected());
    // A responder that may not send yet keeps nothing back for ever.
    let mut raw = Raw::responder(config(), |_| {});
    raw.end.post(1, SEND, &[]);
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(outcomes(&raw.end.completions()), [flushed(1, WcOp::Send)]);
    assert_eq!((raw.end.disposition(), raw.back().len()), (Disposition::Finish, 0));
}

/// Covers: DDP-5041-3-11, DDP-5041-3-12, VERBS-hilland-6.2.2.2-01, DDP-5041-6.2.1-05,
/// MPA-5044-3-11, DDP-5041-6.2-02
#[test]
fn corner_42_a_fin_with_nothing_pending_ends_the_stream_at_both_sides() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[]);
    raw.end.post(2, SEND, &[]);
    raw.back();
    raw.end.completions();
    raw.end.eof();
    let events = raw.end.events();
    assert_eq!(events[0], Event::Disconnected);
    let completions: Vec<_> = events[1..].iter().filter_map(|event| completion(*event)).collect();
    assert_eq!(outcomes(&completions), [flushed(1, WcOp::Recv)]);
    assert_eq!((raw.end.state(), raw.end.disposition()), (QpState::Err, Disposition::Finish));
    assert_eq!(raw.back().len(), 0);
    raw.end.eof();
    assert_eq!(raw.end.events(), []);
}

/// Covers: VERBS-hilland-6.2.2.2-02, DDP-5041-6.2.2-02
#[test]
fn corner_41_a_fin_with_work_pending_is_a_bad_close() {
    type Pending = fn(&mut Raw);
    let cases: [(&str, Pending); 4] = [
        ("a Read of ours", |raw| {
            raw.end.post(1, read_op(0), &[local(0, 8)]);
            raw.back();
        }),
        ("a Send that was not taken", |raw| raw.end.post(1, SEND, &[])),
        ("a Read of the peer's", |raw| raw.send(&octets::read_request(1, 8, OPEN, OPEN_BASE))),
        ("half a Send", |raw| {
            raw.end.receive(1, &[local(0, 8)]);
            raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"ab"));
        }),
    ];
    for (what, make) in cases {
        let mut raw = Raw::new();
        make(&mut raw);
        raw.end.eof();
        let events = raw.end.events();
        assert_eq!(events[0], Event::Fault(crate::qp::Fault::BadClose), "{what}");
        assert!(
            events[1..].iter().all(|event| {
                completion(*event).is_some_and(|wc| wc.status == WcStatus::Flushed)
            })
        );
        assert_eq!(raw.terminate(), [0x02, 0x07, 0, 0], "{what}");
    }
}

#[test]
fn corner_41_a_fin_inside_an_fpdu_is_a_lost_connection() {
    // Both ways of receiving, at every place of the FPDU.
    for crc in [true, false] {
        let ulpdu = tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[1; 500]);
        let len = 2 + ulpdu.len() + 4;
        for cut in [1, 2, 17, 100, 200, len - 5, len - 1] {
            let mut raw = Raw::responder(config(), |terms| terms.crc = crc);
            let fpdu = raw.fpdu(&ulpdu);
            assert_eq!(fpdu.len(), len);
            raw.end.arrive(&fpdu[..cut]);
            raw.end.eof();
            assert_eq!(raw.terminate(), [0x20, 0x01, 0, 0], "{cut}");
        }
    }
}

/// Covers: DDP-5041-6.2.2-01, DDP-5041-6.2.2-02, DDP-5041-7-01
#[test]
fn a_lost_connection_flushes_everything_and_says_so() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[]);
    raw.end.post(2, read_op(0), &[local(0, 8)]);
    raw.back();
    raw.end.post(3, SEND, &[]);
    raw.end.build();
    raw.end.qp.borrow_mut().lost();
    let events = raw.end.events();
    assert_eq!(events[0], Event::Lost);
    let completions: Vec<_> = events[1..].iter().filter_map(|event| completion(*event)).collect();
    assert_eq!(
        outcomes(&completions),
        [flushed(2, WcOp::Read), flushed(3, WcOp::Send), flushed(1, WcOp::Recv)]
    );
    assert_eq!((raw.end.state(), raw.end.disposition()), (QpState::Err, Disposition::Finish));
    raw.end.qp.borrow_mut().lost();
    assert_eq!(raw.end.events(), []);
    // While closing or terminating the end is no news, but what waited is flushed.
    let raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, SEND, &[]);
    raw.end.qp.borrow_mut().disconnect();
    raw.end.qp.borrow_mut().lost();
    assert_eq!(outcomes(&raw.end.completions()), [flushed(1, WcOp::Send)]);
    let mut raw = Raw::new();
    raw.send(&tagged(octets::WRITE, true, 0, 0, b"x"));
    raw.end.qp.borrow_mut().lost();
    assert_eq!(raw.back().len(), 0);
    assert_eq!(raw.end.disposition(), Disposition::Finish);
}

#[test]
fn an_aborted_stream_is_reset() {
    let mut raw = Raw::new();
    raw.end.post(1, SEND, &[]);
    raw.end.build();
    raw.end.qp.borrow_mut().abort();
    assert_eq!(outcomes(&raw.end.completions()), [flushed(1, WcOp::Send)]);
    assert_eq!((raw.end.state(), raw.end.disposition()), (QpState::Err, Disposition::Abort));
    // Without a stream there is nothing to reset.
    let mut qp = Qp::new(config());
    qp.abort();
    assert_ne!(qp.disposition(), Disposition::Abort);
}

/// Covers: RDMAP-5040-7.1-02, VERBS-hilland-6.2.2.3-01, VERBS-hilland-6.4-01, EXT-7306-8.1-01
#[test]
fn a_local_error_sends_a_terminate_behind_the_last_whole_segment() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.tx.set_mulpdu(128);
    raw.end.host.fill(LOCAL, 0, &[3; 300]);
    raw.end.post(1, SEND, &[local(0, 300)]);
    raw.end.post(2, SEND, &[]);
    // Two of three segments.
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 200);
    raw.end.qp.borrow_mut().fail_locally("the program asked for it");
    let back = raw.back();
    assert_eq!(
        back,
        [
            untagged(octets::SEND, false, 0, 0, 1, 0, &[3; 110]),
            untagged(octets::SEND, false, 0, 0, 1, 110, &[3; 110]),
            octets::terminate(&[0, 0, 0, 0]),
        ]
    );
    assert_eq!(outcomes(&raw.end.completions()), [flushed(1, WcOp::Send), flushed(2, WcOp::Send)]);
}

/// Covers: RDMAP-5040-5.4-05, RDMAP-5040-5.4-06, RDMAP-5040-5.4-07, RDMAP-5040-5.4-09,
/// RDMAP-5040-6.2.1-02, VERBS-hilland-6.2.2.3-02, VERBS-hilland-6.2.2.2-02,
/// RDMAP-5040-5.4-03, RDMAP-5040-5.4-04
#[test]
fn corner_53_a_terminate_is_told_flushes_all_and_is_not_answered() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[]);
    raw.send(&octets::read_request(1, 8, OPEN, OPEN_BASE));
    raw.end.post(2, SEND, &[]);
    raw.send(&octets::terminate(&[0x12, 0x02, 0, 0]));
    let events = raw.end.events();
    let code = TerminateCode { layer: 1, etype: 2, code: 2 };
    assert_eq!(events[0], Event::Terminated(code));
    let completions: Vec<_> = events[1..].iter().filter_map(|event| completion(*event)).collect();
    assert_eq!(outcomes(&completions), [flushed(2, WcOp::Send), flushed(1, WcOp::Recv)]);
    raw.send(&octets::terminate(&[0x12, 0x02, 0, 0]));
    raw.send(&send(7, b"junk"));
    raw.end.eof();
    assert_eq!((raw.end.events(), raw.back().len()), (vec![], 0));
    // In good order, so that what was sent arrives.
    assert_eq!((raw.end.state(), raw.end.disposition()), (QpState::Err, Disposition::Finish));
}

/// Covers: RDMAP-5040-5.4-08, RDMAP-5040-6.2.1-04, VERBS-hilland-6.2.3-01, VERBS-hilland-6.2.3-02,
/// RDMAP-5040-7-04, RDMAP-5040-6.2.1-01, RDMAP-5040-6.2.1-03
#[test]
fn corner_53_nothing_follows_a_terminate_and_the_stream_ends_gracefully() {
    let mut raw = Raw::new();
    raw.end.post(1, SEND, &[]);
    raw.send(&octets::read_request(1, 8, OPEN, OPEN_BASE));
    raw.send(&tagged(octets::WRITE, true, 0, 0, b"x"));
    raw.end.post(2, SEND, &[]);
    assert_eq!(raw.terminate()[..2], [0x11, 0x00]);
    for state in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd] {
        assert!(raw.end.qp.borrow_mut().modify(state).is_err());
    }
    raw.end.post(3, SEND, &[]);
    raw.send(&octets::read_request(2, 8, OPEN, OPEN_BASE));
    assert_eq!(raw.back().len(), 0);
    assert_eq!(raw.end.disposition(), Disposition::Finish);
}

/// Covers: DDP-5041-6.2-01, DDP-5041-6.2.2-04, MPA-5044-8-14
#[test]
fn errors_of_the_layers_below_never_end_a_stream_without_the_queue_pairs_word() {
    let mut raw = Raw::new();
    let mut fpdu = raw.fpdu(&send(1, b"abc"));
    *fpdu.last_mut().unwrap() ^= 1;
    raw.end.arrive(&fpdu);
    assert_eq!(raw.end.disposition(), Disposition::Open);
    assert!(raw.end.qp.borrow_mut().wants_transmit());
    assert_eq!(raw.terminate(), [0x20, 0x02, 0, 0]);
}
