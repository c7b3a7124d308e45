// SPDX-License-Identifier: MIT OR Apache-2.0

//! When work requests complete, in which order, and what is refused when posted.

use super::octets::{self, send, tagged, word};
use super::*;

fn unsignaled(end: &End, wr_id: u64, op: SendOp, sges: &[Sge]) -> Result<(), PostError> {
    let payload = Payload::Sges(sges);
    let request = SendRequest::new(wr_id, op, payload);
    end.qp.borrow_mut().post_send(&request)
}

/// Covers: RDMAP-5040-5.5-06
#[test]
fn corner_56_a_send_completes_when_the_stream_took_its_last_octet() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, SEND, &[local(0, 1000)]);
    raw.end.post(2, write_op(0), &[local(0, 1000)]);
    raw.end.build();
    let total = raw.end.out.len();
    let mut completed = Vec::new();
    for taken in 1..=total {
        raw.end.take(1);
        completed.extend(raw.end.completions().iter().map(|wc| (wc.wr_id, taken)));
    }
    let send_len = 2 + 18 + 1000 + 4;
    let write_len = 2 + 14 + 1000 + 4;
    assert_eq!(completed, [(1, send_len), (2, send_len + write_len)]);
}

/// Covers: RDMAP-5040-5.5-07, VERBS-hilland-8.2.2-01
#[test]
fn send_work_completes_in_the_order_it_was_posted() {
    let mut pair = Pair::new();
    let mut expected = Vec::new();
    for i in 0..12u64 {
        let op = match i % 4 {
            0 => read_op(0),
            1 => write_op(0),
            2 => add_op(8, 1),
            _ => SEND,
        };
        pair.b.receive(i, &[local(0, 8)]);
        pair.a.post(i, op, &[local(0, 8)]);
        expected.push((i, WcStatus::Success, op.completes_as()));
    }
    pair.run_in_steps(29);
    assert_eq!(outcomes(&pair.a.completions()), expected);
}

/// Covers: VERBS-hilland-8.1.3.1-01
#[test]
fn unsignaled_work_completes_in_silence_unless_it_fails() {
    let mut raw = Raw::initiator(config(), |_| {});
    unsignaled(&raw.end, 1, SEND, &[]).unwrap();
    unsignaled(&raw.end, 2, write_op(0), &[]).unwrap();
    raw.end.post(3, SEND, &[]);
    unsignaled(&raw.end, 4, SEND, &[]).unwrap();
    raw.back();
    assert_eq!(outcomes(&raw.end.completions()), [(3, WcStatus::Success, WcOp::Send)]);
    assert_eq!(raw.end.qp.borrow().outstanding().0, 0);
    unsignaled(&raw.end, 5, SEND, &[Sge { lkey: Stag(0xbad), ..local(0, 8) }]).unwrap();
    unsignaled(&raw.end, 6, SEND, &[]).unwrap();
    assert_eq!(raw.terminate(), [0, 0, 0, 0]);
    assert_eq!(
        outcomes(&raw.end.completions()),
        [(5, WcStatus::LocalProtection, WcOp::Send), (6, WcStatus::Flushed, WcOp::Send)]
    );
}

/// Covers: VERBS-hilland-8.3.2-01, VERBS-hilland-6.2.4-01, RDMAP-5040-7.1-01
#[test]
fn a_local_error_has_one_completion_that_says_why_and_flushes_the_rest() {
    type Change = fn(&mut Region);
    let cases: [Change; 4] = [
        |region| region.valid = false,
        |region| region.pd = PdId(8),
        |region| region.base += 1,
        |region| region.octets.truncate(7),
    ];
    for crc in [true, false] {
        for change in cases {
            let mut raw = Raw::initiator(config(), |terms| terms.crc = crc);
            raw.end.tx.set_mulpdu(9000);
            raw.end.receive(9, &[]);
            raw.end.post(1, SEND, &[]);
            raw.back();
            raw.end.host.change(LOCAL, change);
            let len = if crc { 8 } else { 8000 };
            raw.end.post(2, SEND, &[local(0, len)]);
            raw.end.post(3, SEND, &[]);
            assert_eq!(raw.terminate(), [0, 0, 0, 0]);
            let events = raw.end.events();
            assert!(events.iter().any(|event| matches!(event, Event::Fault(_))));
            let completions: Vec<_> = events.into_iter().filter_map(completion).collect();
            assert_eq!(
                outcomes(&completions),
                [
                    (1, WcStatus::Success, WcOp::Send),
                    (2, WcStatus::LocalProtection, WcOp::Send),
                    (3, WcStatus::Flushed, WcOp::Send),
                    (9, WcStatus::Flushed, WcOp::Recv)
                ]
            );
        }
    }
}

/// Two ends whose streams take nothing: received messages complete nevertheless.
#[test]
fn a_completion_received_is_never_held_back_by_transmission_that_waits() {
    let mut pair = Pair::new();
    pair.b.arrive(&pair.a.take(0));
    for end in [&pair.a, &pair.b] {
        end.receive(1, &[local(0, 8)]);
    }
    pair.a.post(2, SEND, &[local(0, 8)]);
    let there = pair.a.take_all();
    pair.b.arrive(&there);
    pair.b.post(2, SEND, &[local(0, 8)]);
    let back = pair.b.take_all();
    // Now both want to send megabytes and no socket takes an octet.
    for end in [&mut pair.a, &mut pair.b] {
        end.events();
        end.receive(3, &[local(0, 8)]);
        for wr_id in 10..20 {
            end.post(wr_id, SEND, &[local(0, 100_000)]);
        }
        end.build();
        assert!(!end.out.is_empty());
    }
    pair.a.arrive(&back);
    assert_eq!(outcomes(&pair.a.completions()), [(1, WcStatus::Success, WcOp::Recv)]);
}

#[test]
fn a_read_that_was_answered_completes_though_the_stream_takes_nothing() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, read_op(0), &[local(0, 8)]);
    let request = raw.back().remove(0);
    raw.end.post(2, SEND, &[local(0, 100_000)]);
    raw.end.build();
    let sink = (word(&request, 18), octets::long(&request, 22));
    raw.send(&tagged(octets::READ_RESPONSE, true, sink.0, sink.1, b"response"));
    assert_eq!(outcomes(&raw.end.completions()), [(1, WcStatus::Success, WcOp::Read)]);
}

#[test]
fn queues_hold_what_they_were_made_for_and_no_more() {
    let config = Config { max_send_wr: 2, max_recv_wr: 3, ..config() };
    let mut raw = Raw::initiator(config, |_| {});
    for _ in 0..3 {
        raw.end.post(1, SEND, &[]);
        raw.end.post(2, SEND, &[]);
        assert_eq!(raw.end.try_post(3, SEND, &[]), Err(PostError::QueueFull));
        assert_eq!(raw.back().len(), 2);
        assert_eq!(raw.end.completions().len(), 2);
    }
    for wr_id in 0..3 {
        raw.end.receive(wr_id, &[]);
    }
    let full = raw.end.qp.borrow_mut().post_recv(&RecvRequest::new(4, &[]));
    assert_eq!(full, Err(PostError::QueueFull));
    raw.send(&send(1, &[]));
    raw.end.receive(4, &[]);
    assert_eq!(raw.end.qp.borrow().outstanding(), (0, 3));
}

#[test]
fn requests_beyond_the_limits_are_refused_when_posted() {
    let config = Config { max_send_sge: 2, max_recv_sge: 1, max_inline: 8, ..config() };
    let end = End::new(config, &terms(Role::Initiator));
    assert_eq!(end.try_post(1, SEND, &[local(0, 1); 3]), Err(PostError::TooManySges));
    assert_eq!(end.try_post(1, SEND, &[local(0, 1); 2]), Ok(()));
    let sges = [local(0, 1); 2];
    let receive = end.qp.borrow_mut().post_recv(&RecvRequest::new(1, &sges));
    assert_eq!(receive, Err(PostError::TooManySges));
    let half = local(0, 1 << 30);
    assert_eq!(end.try_post(1, write_op(0), &[half, half]), Ok(()));
    assert_eq!(
        end.try_post(1, write_op(0), &[half, local(0, (1 << 30) + 1)]),
        Err(PostError::MessageTooLong)
    );
    assert_eq!(end.try_post(1, add_op(0, 1), &[local(0, 4), local(8, 4)]), Ok(()));
    let inline = |op, octets: &[u8]| {
        let payload = Payload::Inline(octets);
        let request = SendRequest::new(1, op, payload).signaled();
        end.qp.borrow_mut().post_send(&request)
    };
    assert_eq!(inline(SEND, &[0; 9]), Err(PostError::InlineTooLong));
    assert_eq!(inline(SEND, &[0; 8]), Ok(()));
    assert_eq!(inline(write_op(0), &[0; 8]), Ok(()));
    assert_eq!(inline(read_op(0), &[0; 8]), Err(PostError::Invalid));
    assert_eq!(inline(add_op(0, 1), &[0; 8]), Err(PostError::Invalid));
    let immediate = SendOp::Immediate { solicited: false, data: [0; 8] };
    assert_eq!(inline(immediate, &[0; 8]), Err(PostError::Invalid));
    assert_eq!(end.qp.borrow().outstanding(), (5, 0), "nothing of what was refused");
}

#[test]
fn the_staging_buffer_is_filled_no_further_than_asked() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.tx.set_mulpdu(1000);
    raw.end.post(1, SEND, &[local(0, 100_000)]);
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 5000);
    let built = raw.end.out.len();
    assert!((5000..6010).contains(&built));
    assert!(raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 5000));
    assert_eq!(raw.end.out.len(), built);
    assert!(raw.end.qp.borrow_mut().wants_transmit());
    // However small the room, all goes out.
    raw.end.out = Transmit::new(0);
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.out = Transmit::new(0);
    raw.end.post(1, SEND, &[local(0, 100_000)]);
    let octets: usize = raw.back().iter().map(|ulpdu| ulpdu.len() - 18).sum();
    assert_eq!(octets, 100_000);
}

/// Covers: DDP-5041-3-01, MPA-5044-4.5-03
#[test]
fn a_new_mulpdu_holds_for_the_next_segment() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, write_op(0), &[local(0, 3000)]);
    raw.end.tx.set_mulpdu(1014);
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 1);
    raw.end.tx.set_mulpdu(514);
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 1200);
    // Below what MPA may offer there is nothing.
    raw.end.tx.set_mulpdu(20);
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 1541);
    raw.end.tx.set_mulpdu(1 << 20);
    let lens: Vec<usize> = raw.back().iter().map(|ulpdu| ulpdu.len() - 14).collect();
    assert_eq!(lens, [1000, 500, 114, 1386]);
}

/// Covers: RDMAP-5040-6.1-01, DDP-5041-4.1-09, RDMAP-5040-4.1-07, RDMAP-5040-4.1-08,
/// DDP-5041-5.2-01, RDMAP-5040-3.1-01
#[test]
fn all_that_leaves_an_end_is_rdma_messages_of_at_most_the_mulpdu() {
    let mut raw = Raw::new();
    raw.end.tx.set_mulpdu(500);
    raw.send(&octets::read_request(1, 3000, OPEN, OPEN_BASE));
    raw.send(&octets::atomic_request(2, OPEN, OPEN_BASE, octets::fetch_add(1)));
    raw.end.post(1, SEND, &[local(0, 3000)]);
    raw.end.post(2, write_op(0), &[local(0, 3000)]);
    raw.end.post(3, read_op(0), &[local(0, 3000)]);
    raw.end.post(4, add_op(0, 1), &[local(0, 8)]);
    raw.end.post(5, SendOp::Immediate { solicited: true, data: [0; 8] }, &[]);
    raw.end.post(6, SEND, &[Sge { lkey: Stag(0xbad), ..local(0, 8) }]);
    let back = raw.back();
    let mut opcodes: Vec<u8> = back.iter().map(|ulpdu| ulpdu[1]).collect();
    for ulpdu in &back {
        assert!(ulpdu.len() <= 500);
        assert_eq!(ulpdu[0] & 0x3f, 1, "DV = 1 and nothing reserved");
        assert_eq!(ulpdu[1] & 0xf0, 0x40, "RV = 1 and nothing reserved");
    }
    assert_eq!(opcodes.last(), Some(&octets::TERMINATE));
    opcodes.sort_unstable();
    opcodes.dedup();
    assert_eq!(
        opcodes,
        [
            octets::WRITE,
            octets::READ_REQUEST,
            octets::READ_RESPONSE,
            octets::SEND,
            octets::TERMINATE,
            octets::IMMEDIATE_SOLICITED,
            octets::ATOMIC_REQUEST,
            octets::ATOMIC_RESPONSE
        ]
    );
}

#[test]
fn a_place_in_a_queue_keeps_nothing_of_the_request_before() {
    let mut raw = Raw::initiator(Config { max_send_wr: 1, max_recv_wr: 1, ..config() }, |_| {});
    raw.end.host.fill(LOCAL, 0, b"memory");
    raw.end.post_inline(1, SEND, b"inline");
    assert_eq!(raw.back(), [send(1, b"inline")]);
    raw.end.post(2, SEND, &[local(0, 3), local(3, 3)]);
    assert_eq!(raw.back(), [send(2, b"memory")]);
    raw.end.post_inline(3, SEND, b"x");
    assert_eq!(raw.back(), [send(3, b"x")]);
    raw.end.post_fenced(4, read_op(0), &[]);
    unsignaled(&raw.end, 5, SEND, &[]).unwrap_err();
    assert_eq!(raw.back().len(), 1);
    raw.end.receive(6, &[local(0, 4), local(4, 4)]);
    raw.send(&send(1, b"received"));
    raw.end.receive(7, &[]);
    let ulpdu = send(2, b"x");
    assert_eq!(raw.refuse(&ulpdu)[..2], [0x12, 0x05]);
}

#[test]
fn the_largest_fpdu_fits_the_smallest_staging_buffer() {
    for (crc, markers) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut raw = Raw::initiator(config(), |terms| {
            (terms.crc, terms.send_markers) = (crc, markers);
        });
        raw.end.out = Transmit::new(0);
        raw.end.tx.set_mulpdu(usize::MAX);
        raw.end.host.fill(LOCAL, 0, &pattern(SIZE, 8));
        raw.end.post(1, SEND, &[local(0, SIZE as u32)]);
        let back = raw.back();
        assert_eq!(
            back.iter().map(Vec::len).collect::<Vec<_>>(),
            [64768, 64768, SIZE - 2 * 64750 + 18]
        );
        let payload: Vec<u8> = back.iter().flat_map(|ulpdu| ulpdu[18..].to_vec()).collect();
        assert_eq!(payload, pattern(SIZE, 8));
    }
}

#[test]
fn built_output_can_be_dropped() {
    let mut raw = Raw::initiator(config(), |terms| terms.crc = false);
    raw.end.post(1, write_op(0), &[local(0, 5000)]);
    raw.end.build();
    assert!(raw.end.out.len() > 5000);
    raw.end.out.clear();
    assert!(raw.end.out.is_empty() && raw.end.out.pieces().next().is_none());
}
