// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sends (RFC 5040 §5.3) and the untagged buffers they use (RFC 5041 §5).

use super::octets::{self, send, untagged, word};
use super::*;
use crate::types::Msn;

/// Four kinds: CRC and markers on and off.
fn modes() -> impl Iterator<Item = (bool, bool)> {
    [(true, false), (false, false), (true, true), (false, true)].into_iter()
}

fn pair_in(crc: bool, markers: bool) -> Pair {
    Pair::with(config(), |terms| {
        (terms.crc, terms.send_markers, terms.receive_markers) = (crc, markers, markers);
    })
}

/// A received Send's completion.
fn received(wr_id: u64, byte_len: u32) -> WorkCompletion {
    let mut completion = WorkCompletion::new(wr_id, QP, WcOp::Recv, WcStatus::Success);
    completion.byte_len = byte_len;
    completion
}

/// Covers: DDP-5041-4.1-02, DDP-5041-5.2-03, DDP-5041-5.2-04, DDP-5041-5.4-02, RDMAP-5040-5.3-02,
/// RDMAP-5040-5.3-03, RDMAP-5040-5.3-05, DDP-5041-5.3-06, RDMAP-5040-3.2-01, MPA-5044-4.4-06
#[test]
fn sends_of_every_size_arrive_whole_and_in_order() {
    for (crc, markers) in modes() {
        let mut pair = pair_in(crc, markers);
        let sizes = [1u32, 7, 8, 1423, 1424, 1425, 2 * 1424, 4097, 70_001];
        for (i, &size) in sizes.iter().enumerate() {
            let octets = pattern(size as usize, i as u8);
            pair.a.host.fill(LOCAL, 0, &octets);
            pair.b.receive(i as u64, &[local(3, 80_000)]);
            pair.a.post(i as u64, SEND, &[local(0, size)]);
            pair.run();
            assert_eq!(pair.b.completions(), [received(i as u64, size)]);
            assert_eq!(
                outcomes(&pair.a.completions()),
                [(i as u64, WcStatus::Success, WcOp::Send)]
            );
            assert_eq!(pair.b.host.octets(LOCAL)[3..3 + octets.len()], octets, "{size}");
        }
        assert!(pair.b.host.octets(LOCAL)[70_004..].iter().all(|&octet| octet == 0));
    }
}

/// Covers: DDP-5041-4.3-05, DDP-5041-4.3-06, DDP-5041-4.3-07, DDP-5041-4.3-09,
/// DDP-5041-5.3-02, RDMAP-5040-5.3-08, RDMAP-5040-5.5-05, RDMAP-5040-3.1-03, MPA-5044-3-01
#[test]
fn sends_leave_in_the_order_they_were_posted_one_msn_each() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.tx.set_mulpdu(128);
    for wr_id in 0..3u64 {
        raw.end.post(wr_id, SEND, &[local(0, 200)]);
    }
    let seen: Vec<(u8, u8, u32, u32, u32)> = raw
        .back()
        .iter()
        .map(|ulpdu| (ulpdu[0], ulpdu[1], word(ulpdu, 6), word(ulpdu, 10), word(ulpdu, 14)))
        .collect();
    let expected: Vec<_> =
        (1..=3).flat_map(|msn| [(0x01, 0x43, 0, msn, 0), (0x41, 0x43, 0, msn, 110)]).collect();
    assert_eq!(seen, expected);
}

/// Covers: DDP-5041-4.3-08, DDP-5041-4.3-06
#[test]
fn corner_31_msn_passes_from_all_ones_to_zero_in_both_directions() {
    let mut pair = Pair::new();
    pair.a.qp.borrow_mut().start_sends_at(Msn(0xffff_fffe));
    pair.b.qp.borrow_mut().expect_send(Msn(0xffff_fffe));
    for wr_id in 0..4 {
        pair.b.receive(wr_id, &[local(0, 8)]);
        pair.a.post(wr_id, SEND, &[local(0, 8)]);
    }
    pair.run();
    let expected: Vec<_> = (0..4).map(|wr_id| received(wr_id, 8)).collect();
    assert_eq!(pair.b.completions(), expected);

    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.qp.borrow_mut().start_sends_at(Msn(0xffff_fffe));
    for wr_id in 0..4 {
        raw.end.post(wr_id, SEND, &[]);
    }
    let msns: Vec<u32> = raw.back().iter().map(|ulpdu| word(ulpdu, 10)).collect();
    assert_eq!(msns, [0xffff_fffe, 0xffff_ffff, 0, 1]);
}

/// Covers: RDMAP-5040-5.3-09, RDMAP-5040-5.3-10
#[test]
fn corner_45_a_zero_length_send_consumes_a_receive_and_completes_it_with_length_zero() {
    let mut pair = Pair::new();
    pair.b.receive(70, &[local(0, 8)]);
    pair.b.receive(71, &[]);
    pair.b.receive(72, &[local(8, 8)]);
    pair.a.host.fill(LOCAL, 0, &[9; 8]);
    pair.a.post(1, SEND, &[]);
    pair.a.post(2, SEND, &[Sge { addr: 1, length: 0, lkey: Stag(0xbad) }]);
    pair.a.post(3, SEND, &[local(0, 8)]);
    pair.run();
    assert_eq!(pair.b.completions(), [received(70, 0), received(71, 0), received(72, 8)]);
    assert_eq!(pair.b.host.octets(LOCAL)[..16], [0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9]);
    assert_eq!(pair.a.completions().len(), 3);
}

#[test]
fn lists_of_32_elements_are_gathered_and_scattered() {
    for (crc, markers) in modes() {
        let mut pair = pair_in(crc, markers);
        let octets = pattern(4000, 5);
        pair.a.host.fill(LOCAL, 0, &octets);
        // Unequal elements, some empty, on both sides; the message spans several segments.
        let from: Vec<Sge> = (0..32).map(|i| local(i * 100, (i as u32 % 4) * 33)).collect();
        let to: Vec<Sge> =
            (0..32).map(|i| local(i * 200, if i % 5 == 0 { 0 } else { 90 })).collect();
        let sent: Vec<u8> = from
            .iter()
            .flat_map(|sge| {
                let at = (sge.addr - LOCAL_BASE) as usize;
                octets[at..at + sge.length as usize].to_vec()
            })
            .collect();
        pair.b.receive(1, &to);
        pair.a.post(1, SEND, &from);
        pair.run();
        assert_eq!(pair.b.completions(), [received(1, sent.len() as u32)]);
        let placed = pair.b.host.octets(LOCAL);
        let got: Vec<u8> = to
            .iter()
            .flat_map(|sge| {
                let at = (sge.addr - LOCAL_BASE) as usize;
                placed[at..at + sge.length as usize].to_vec()
            })
            .collect();
        assert_eq!(got[..sent.len()], sent);
        assert!(got[sent.len()..].iter().all(|&octet| octet == 0));
    }
}

#[test]
fn inline_octets_are_taken_when_posted() {
    let mut pair = Pair::new();
    let mut octets = pattern(256, 9);
    pair.b.receive(1, &[local(0, 300)]);
    pair.a.post_inline(1, SEND, &octets);
    let sent = octets.clone();
    octets.fill(0);
    pair.run();
    assert_eq!(pair.b.host.octets(LOCAL)[..256], sent);
    assert_eq!(pair.b.completions(), [received(1, 256)]);
    assert_eq!(pair.a.host.touches(), []);
}

/// Covers: RDMAP-5040-5.3-06
#[test]
fn solicited_sends_say_so_in_the_completion() {
    let mut pair = Pair::new();
    for solicited in [false, true] {
        pair.b.receive(1, &[]);
        pair.a.post(1, SendOp::Send { solicited, invalidate: None }, &[]);
        pair.run();
        let mut expected = received(1, 0);
        expected.solicited = solicited;
        assert_eq!(pair.b.completions(), [expected]);
    }
}

/// Covers: RDMAP-5040-5.3-04, RDMAP-5040-5.3-14, VERBS-hilland-8.1.2.1-01, DDP-5041-7.1-08,
/// DDP-5041-7.1-15
#[test]
fn a_send_longer_than_its_receive_ends_the_stream_and_completes_with_an_error() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 4), local(100, 4)]);
    raw.end.receive(2, &[local(0, 100)]);
    let ulpdu = send(1, &[1; 9]);
    let terminate = raw.refuse(&ulpdu);
    assert_eq!(terminate, quoting([0x12, 0x05], ulpdu.len(), &ulpdu[..18], &[]));
    assert_eq!(
        outcomes(&raw.end.completions()),
        [(1, WcStatus::LocalLength, WcOp::Recv), (2, WcStatus::Flushed, WcOp::Recv)]
    );
    assert_eq!(raw.end.host.touches(), []);
}

/// Covers: DDP-5041-4.1-07, DDP-5041-5.4-01, RDMAP-5040-5.5-08
#[test]
fn a_send_is_delivered_with_its_last_segment_and_not_before() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 12)]);
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"abcd"));
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 4, b"efgh"));
    assert_eq!(raw.end.events(), []);
    raw.send(&untagged(octets::SEND, true, 0, 0, 1, 8, b"ij"));
    assert_eq!(raw.end.completions(), [received(1, 10)]);
    assert_eq!(&raw.end.host.octets(LOCAL)[..12], b"abcdefghij\0\0");
}

/// Covers: DDP-5041-5.2-05
#[test]
fn corner_36_a_segment_within_the_buffer_is_placed_though_not_the_next_expected() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 12)]);
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 4, b"efgh"));
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"abcd"));
    raw.send(&untagged(octets::SEND, true, 0, 0, 1, 8, b"ijkl"));
    assert_eq!(raw.end.completions(), [received(1, 12)]);
    assert_eq!(&raw.end.host.octets(LOCAL)[..12], b"abcdefghijkl");
}

/// The octets of a message are not counted as they come: its last segment ends it.
///
/// Covers: DDP-5041-5.2-11, DDP-5041-5.3-04
#[test]
fn a_segment_may_come_twice_and_another_not_at_all() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 12)]);
    raw.end.host.fill(LOCAL, 4, b"....");
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"wxyz"));
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"abcd"));
    raw.send(&untagged(octets::SEND, true, 0, 0, 1, 8, b"ijkl"));
    assert_eq!(raw.end.completions(), [received(1, 12)]);
    assert_eq!(&raw.end.host.octets(LOCAL)[..12], b"abcd....ijkl");
}

#[test]
fn corner_32_an_empty_last_segment_is_accepted() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 4)]);
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"abcd"));
    raw.send(&untagged(octets::SEND, true, 0, 0, 1, 4, &[]));
    assert_eq!(raw.end.completions(), [received(1, 4)]);
}

/// The length of a message is told to the program, so it must never be more than the buffer.
/// Covers: DDP-5041-7.1-07
#[test]
fn an_empty_last_segment_behind_the_buffer_is_refused() {
    for mo in [5, 0xffff_ffff] {
        let mut raw = Raw::new();
        raw.end.receive(1, &[local(0, 4)]);
        let ulpdu = untagged(octets::SEND, true, 0, 0, 1, mo, &[]);
        assert_eq!(raw.refuse(&ulpdu), quoting([0x12, 0x04], 18, &ulpdu, &[]));
        assert_eq!(raw.end.completions().len(), 1);
    }
}

/// Covers: DDP-5041-5.2-02
#[test]
fn a_message_of_four_gibibytes_and_more_does_not_wrap_its_length() {
    let mut raw = Raw::new();
    let all = Sge { addr: LOCAL_BASE, length: u32::MAX, lkey: Stag(LOCAL) };
    raw.end.receive(1, &[all, all]);
    let ulpdu = untagged(octets::SEND, true, 0, 0, 1, 0xffff_fff8, &[1; 16]);
    assert_eq!(raw.refuse(&ulpdu), quoting([0x12, 0x05], 34, &ulpdu[..18], &[]));
}

#[test]
fn corner_37_the_sink_need_not_compare_the_segments_of_a_message() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 8)]);
    // The Invalidate STag of a plain Send means nothing, and may differ between segments.
    raw.send(&untagged(octets::SEND, false, 0xdead_be01, 0, 1, 0, b"abcd"));
    raw.send(&untagged(octets::SEND, true, 0x1234_5678, 0, 1, 4, b"efgh"));
    assert_eq!(raw.end.completions(), [received(1, 8)]);
    assert!(raw.end.host.touches().iter().all(|touch| matches!(touch, Touch::Placed { .. })));
}

/// Covers: RDMAP-5040-4.1-10
#[test]
fn the_invalidate_stag_of_other_messages_is_not_looked_at() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[]);
    raw.end.receive(2, &[]);
    raw.send(&untagged(octets::SEND, true, OPEN, 0, 1, 0, &[]));
    raw.send(&untagged(octets::SEND_SOLICITED, true, OPEN, 0, 2, 0, &[]));
    let mut request = octets::read_request(1, 0, 0, 0);
    request[2..6].copy_from_slice(&OPEN.to_be_bytes());
    raw.send(&request);
    assert_eq!(raw.end.completions().len(), 2);
    assert_eq!(raw.back().len(), 1);
    assert_eq!(raw.end.host.touches(), []);
    let mut terminate = octets::terminate(&[0, 0, 0, 0]);
    terminate[2..6].copy_from_slice(&OPEN.to_be_bytes());
    raw.send(&terminate);
    assert!(matches!(raw.end.events()[..], [Event::Terminated(_)]));
    assert_eq!(raw.end.host.touches(), []);
}

#[test]
fn corner_38_tagged_segments_may_stand_inside_a_send_but_no_other_untagged_opcode() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 8)]);
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"abcd"));
    raw.send(&octets::tagged(octets::WRITE, false, OPEN, OPEN_BASE, b"WR"));
    raw.send(&untagged(
        octets::READ_REQUEST,
        true,
        0,
        1,
        1,
        0,
        &octets::read_header((5, 6), 0, (0, 0)),
    ));
    raw.send(&untagged(octets::SEND, true, 0, 0, 1, 4, b"efgh"));
    raw.send(&octets::tagged(octets::WRITE, true, OPEN, OPEN_BASE + 2, b"ITE"));
    assert_eq!(raw.end.completions(), [received(1, 8)]);
    assert_eq!(&raw.end.host.octets(LOCAL)[..8], b"abcdefgh");
    assert_eq!(&raw.end.host.octets(OPEN)[..5], b"WRITE");
    assert_eq!(raw.back().len(), 1, "the Read was answered");

    for other in [octets::SEND_SOLICITED, octets::SEND_INVALIDATE, octets::IMMEDIATE] {
        let mut raw = Raw::new();
        raw.end.receive(1, &[local(0, 12)]);
        raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"abcd"));
        let ulpdu = untagged(other, true, OPEN, 0, 1, 4, b"efghijkl");
        assert_eq!(raw.refuse(&ulpdu), quoting([0x02, 0x06], 26, &ulpdu[..18], &[]));
        assert_eq!(outcomes(&raw.end.completions()), [(1, WcStatus::Flushed, WcOp::Recv)]);
        assert_eq!(&raw.end.host.octets(LOCAL)[..8], b"abcd\0\0\0\0");
    }
}

/// Covers: DDP-5041-5.3-05, DDP-5041-7.1-09, DDP-5041-7.1-17
#[test]
fn a_message_is_delivered_once_however_often_it_comes() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 8)]);
    raw.end.receive(2, &[local(8, 8)]);
    raw.send(&send(1, b"first"));
    assert_eq!(raw.end.completions(), [received(1, 5)]);
    raw.end.host.touches();
    let again = send(1, b"again");
    assert_eq!(raw.refuse(&again), quoting([0x12, 0x03], again.len(), &again[..18], &[]));
    raw.send(&send(2, b"later"));
    assert_eq!(outcomes(&raw.end.completions()), [(2, WcStatus::Flushed, WcOp::Recv)]);
    assert_eq!(raw.end.host.touches(), []);
}

/// Covers: DDP-5041-7.1-02, VERBS-hilland-6.3.5-01
#[test]
fn receives_of_a_shared_queue_are_taken_one_for_each_message_in_order() {
    let mut raw = Raw::responder(Config { shared_receive: true, ..config() }, |_| {});
    for wr_id in 1..=2 {
        let receive = Receive { wr_id, sges: vec![local(wr_id * 8, 8)] };
        raw.end.host.pool.borrow_mut().push_back(receive);
    }
    raw.send(&untagged(octets::SEND, false, 0, 0, 1, 0, b"abcd"));
    assert_eq!(raw.end.host.pool.borrow().len(), 1);
    raw.send(&untagged(octets::SEND, true, 0, 0, 1, 4, b"ef"));
    raw.send(&send(2, b"second"));
    assert_eq!(raw.end.completions(), [received(1, 6), received(2, 6)]);
    assert_eq!(&raw.end.host.octets(LOCAL)[8..22], b"abcdef\0\0second");
    let ulpdu = send(3, b"third");
    assert_eq!(raw.refuse(&ulpdu), quoting([0x12, 0x02], ulpdu.len(), &ulpdu[..18], &[]));
    let last = raw.end.events().into_iter().filter(|event| *event == Event::LastReceiveReached);
    assert_eq!(last.count(), 1);
}

/// Covers: RDMAP-5040-5.5-02, RDMAP-5040-5.3-05
#[test]
fn sends_complete_receives_in_the_order_both_were_posted() {
    let mut pair = Pair::new();
    for wr_id in 0..20 {
        pair.b.receive(100 + wr_id, &[local(wr_id * 8, 8)]);
    }
    for wr_id in 0..20 {
        pair.a.post_inline(wr_id, SEND, &wr_id.to_be_bytes());
    }
    pair.run_in_steps(13);
    let expected: Vec<_> = (0..20).map(|wr_id| received(100 + wr_id, 8)).collect();
    assert_eq!(pair.b.completions(), expected);
    let placed = pair.b.host.octets(LOCAL);
    for wr_id in 0..20usize {
        assert_eq!(placed[wr_id * 8..][..8], (wr_id as u64).to_be_bytes());
    }
}

#[test]
fn a_receive_whose_buffer_was_taken_away_ends_the_stream_as_a_local_fault() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 8)]);
    raw.end.host.change(LOCAL, |region| region.valid = false);
    assert_eq!(raw.refuse(&send(1, b"abcd")), [0, 0, 0, 0]);
    assert_eq!(outcomes(&raw.end.completions()), [(1, WcStatus::LocalProtection, WcOp::Recv)]);
}
