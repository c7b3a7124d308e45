// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMA Writes (RFC 5040 §5.1) and the tagged buffers they use (RFC 5041 §5, §7.1).

use super::octets::{self, long, tagged, word};
use super::*;

/// Covers: DDP-5041-4.1-01, DDP-5041-4.2-09, DDP-5041-5.2-04, RDMAP-5040-5.1-02,
/// RDMAP-5040-5.1-04
#[test]
fn writes_of_every_size_land_where_they_name_and_are_not_delivered() {
    for (crc, markers) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut pair = Pair::with(config(), |terms| {
            (terms.crc, terms.send_markers, terms.receive_markers) = (crc, markers, markers);
        });
        pair.b.receive(1, &[local(0, 8)]);
        pair.a.post(99, write_op(0), &[]);
        pair.run();
        assert_eq!(pair.b.events(), [Event::FirstHeard]);
        pair.a.completions();
        for (i, size) in [1u32, 8, 1427, 1428, 1429, 2 * 1428, 5000, 70_001].into_iter().enumerate()
        {
            let at = 11 * i;
            let octets = pattern(size as usize, i as u8);
            pair.a.host.fill(LOCAL, 0, &octets);
            pair.b.host.change(OPEN, |region| region.octets.fill(0xee));
            pair.a.post(i as u64, write_op(at as u64), &[local(0, size)]);
            pair.run();
            assert_eq!(
                outcomes(&pair.a.completions()),
                [(i as u64, WcStatus::Success, WcOp::Write)]
            );
            let placed = pair.b.host.octets(OPEN);
            assert_eq!(placed[at..at + octets.len()], octets, "{size}");
            assert!(placed[..at].iter().all(|&octet| octet == 0xee));
            assert!(placed[at + octets.len()..].iter().all(|&octet| octet == 0xee));
        }
        assert_eq!(pair.b.events(), []);
        assert_eq!(pair.b.qp.borrow().outstanding(), (0, 1));
    }
}

/// Covers: DDP-5041-4.2-08, DDP-5041-5.2-07, DDP-5041-5.3-02, RDMAP-5040-5.1-05,
/// RDMAP-5040-5.1-07, DDP-5041-4.2-04
#[test]
fn each_write_is_one_message_to_one_buffer_in_the_order_posted() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.tx.set_mulpdu(128);
    for (wr_id, stag, to) in [(1, 0xa, 0x100), (2, 0xb, 0xffff_ffff_ffff_fff0), (3, 0xa, 0)] {
        raw.end.post(
            wr_id,
            SendOp::Write { stag: Stag(stag), to: TaggedOffset(to) },
            &[local(0, 120)],
        );
    }
    let seen: Vec<(u8, u8, u32, u64, usize)> = raw
        .back()
        .iter()
        .map(|ulpdu| (ulpdu[0], ulpdu[1], word(ulpdu, 2), long(ulpdu, 6), ulpdu.len() - 14))
        .collect();
    assert_eq!(
        seen,
        [
            (0x81, 0x40, 0xa, 0x100, 114),
            (0xc1, 0x40, 0xa, 0x172, 6),
            (0x81, 0x40, 0xb, 0xffff_ffff_ffff_fff0, 114),
            (0xc1, 0x40, 0xb, 0x62, 6),
            (0x81, 0x40, 0xa, 0, 114),
            (0xc1, 0x40, 0xa, 0x72, 6),
        ]
    );
}

/// Covers: DDP-5041-5.2-09, DDP-5041-5.2-10, RDMAP-5040-5.1-08, VERBS-hilland-7.6.3-01
#[test]
fn corner_33_nothing_of_a_zero_length_tagged_segment_is_checked() {
    let mut raw = Raw::new();
    for (stag, to) in [(0, 0), (0xbad, u64::MAX), (LOCAL, LOCAL_BASE), (OPEN, 0)] {
        raw.send(&tagged(octets::WRITE, true, stag, to, &[]));
    }
    // Nor of one inside a longer message.
    raw.send(&tagged(octets::WRITE, false, OPEN, OPEN_BASE, b"ab"));
    raw.send(&tagged(octets::WRITE, false, 0xbad, u64::MAX, &[]));
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE + 2, b"cd"));
    assert_eq!(raw.end.events(), []);
    assert_eq!(&raw.end.host.octets(OPEN)[..5], b"abcd\0");
    assert_eq!(raw.end.state(), QpState::Rts);
    assert_eq!(raw.back(), [] as [Vec<u8>; 0]);
}

#[test]
fn corner_44_a_zero_length_write_completes_nothing_but_is_a_first_fpdu() {
    let mut raw = Raw::responder(config(), |_| {});
    raw.end.receive(1, &[]);
    raw.end.post(2, SEND, &[]);
    assert_eq!(raw.back().len(), 0);
    raw.send(&tagged(octets::WRITE, true, 0, 0, &[]));
    assert_eq!(raw.end.events(), [Event::FirstHeard]);
    assert_eq!(raw.back().len(), 1);
    assert_eq!(raw.end.qp.borrow().outstanding(), (0, 1));
}

/// The registration of [`End`]: every octet of it, none beside it.
/// Covers: DDP-5041-7.1-12, DDP-5041-7.1-13, DDP-5041-8.3.1-03, RDMAP-5040-8.1.1-03
#[test]
fn corner_35_bounds_are_kept_to_the_octet() {
    let end = OPEN_BASE + SIZE as u64;
    let mut raw = Raw::new();
    raw.send(&tagged(octets::WRITE, true, OPEN, end - 1, &[0x11]));
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[0x22]));
    raw.send(&tagged(octets::WRITE, true, OPEN, end, &[]));
    assert_eq!(raw.end.events(), []);
    let octets = raw.end.host.octets(OPEN);
    assert_eq!((octets[0], octets[SIZE - 1]), (0x22, 0x11));

    for (to, len) in [(end - 1, 2), (end, 1), (OPEN_BASE - 1, 1), (OPEN_BASE - 1, 2), (0, 1)] {
        let mut raw = Raw::new();
        let ulpdu = tagged(octets::WRITE, true, OPEN, to, &vec![0x33; len]);
        assert_eq!(raw.refuse(&ulpdu), quoting([0x11, 0x01], 14 + len, &ulpdu[..14], &[]));
        assert!(raw.end.host.octets(OPEN).iter().all(|&octet| octet == 0));
    }
}

/// Covers: DDP-5041-7.1-14, DDP-5041-7.2-01
#[test]
fn corner_34_wrap_of_the_tagged_offset_is_found_before_the_bounds() {
    // A sum of exactly 2^64 wraps by the letter of RFC 5041 §7.1(5); the octet before it is
    // merely out of bounds.
    for (to, len, code) in [
        (u64::MAX - 7, 8, 0x03),
        (u64::MAX - 7, 7, 0x01),
        (u64::MAX, 1, 0x03),
        (u64::MAX, 2, 0x03),
        (u64::MAX - 1, 1, 0x01),
    ] {
        let mut raw = Raw::new();
        let ulpdu = tagged(octets::WRITE, true, OPEN, to, &vec![0x33; len]);
        assert_eq!(raw.refuse(&ulpdu), quoting([0x11, code], 14 + len, &ulpdu[..14], &[]));
    }
}

/// Covers: DDP-5041-4.2-05, DDP-5041-7.1-10, DDP-5041-7.1-11, DDP-5041-8.2-01, DDP-5041-8.2-02,
/// DDP-5041-8.3.1-01, DDP-5041-8.3.1-02, DDP-5041-8.3-04, RDMAP-5040-8.1.1-01,
/// RDMAP-5040-8.1.1-02, RDMAP-5040-5.1-03, RDMAP-5040-7.1-03
#[test]
fn a_write_needs_an_stag_of_this_stream_that_grants_it() {
    type Change = fn(&mut Region);
    let cases: [(u32, Change, u8, AccessError); 6] = [
        (0, |_| {}, 0x00, AccessError::InvalidStag),
        (OPEN + 1, |_| {}, 0x00, AccessError::InvalidStag),
        (OPEN, |region| region.valid = false, 0x00, AccessError::InvalidStag),
        (OPEN, |region| region.access = Access::REMOTE_READ, 0x00, AccessError::Rights),
        (OPEN, |region| region.pd = PdId(8), 0x02, AccessError::NotAssociated),
        (OPEN, |region| region.only = Some(QpId(4)), 0x02, AccessError::NotAssociated),
    ];
    for (stag, change, code, error) in cases {
        let mut raw = Raw::new();
        raw.end.host.change(OPEN, change);
        raw.end.receive(1, &[]);
        let ulpdu = tagged(octets::WRITE, true, stag, OPEN_BASE, b"xyz");
        assert_eq!(raw.refuse(&ulpdu), quoting([0x11, code], 17, &ulpdu[..14], &[]), "{error:?}");
        let events = raw.end.events();
        assert_eq!(events[0], Event::Fault(crate::ddp::DdpError::from(error).into()));
        assert!(matches!(events[1], Event::ReceiveCompleted(wc) if wc.status == WcStatus::Flushed));
        assert_eq!(raw.end.host.touches(), []);
        assert!(raw.end.host.octets(OPEN).iter().all(|&octet| octet == 0));
    }
    // Of this stream alone: it may.
    let mut raw = Raw::new();
    raw.end.host.change(OPEN, |region| region.only = Some(QP));
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"xyz"));
    assert_eq!(raw.end.events(), []);
    assert_eq!(&raw.end.host.octets(OPEN)[..3], b"xyz");
}

#[test]
fn a_queue_pair_may_grant_less_than_the_memory_does() {
    let write = tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"xyz");
    let read = octets::read_request(1, 4, OPEN, OPEN_BASE);
    let atomic = octets::atomic_request(1, OPEN, OPEN_BASE, octets::fetch_add(1));
    let rights = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
    for (ulpdu, needed) in [write, read, atomic].iter().zip(rights) {
        for granted in rights {
            let mut raw = Raw::new();
            raw.end.qp.borrow_mut().set_remote_access(granted);
            raw.send(ulpdu);
            let refused = raw.end.events().iter().any(|event| match event {
                Event::Fault(fault) => fault.code().etype == 1,
                _ => false,
            });
            assert_eq!(refused, granted != needed, "{granted:?} for {needed:?}");
            assert_eq!(raw.end.state() == QpState::Err, refused);
        }
        // One that touches no memory needs no right.
        let mut raw = Raw::new();
        raw.end.qp.borrow_mut().set_remote_access(Access::LOCAL_READ);
        raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[]));
        assert_eq!(raw.end.events(), []);
    }
}

/// Covers: DDP-5041-8.1-01, DDP-5041-8.3.1-06, RDMAP-5040-8.1.1-06
#[test]
fn each_segment_is_checked_anew_so_a_revoked_stag_takes_no_more() {
    let mut raw = Raw::new();
    raw.send(&tagged(octets::WRITE, false, OPEN, OPEN_BASE, b"before"));
    raw.end.host.change(OPEN, |region| region.valid = false);
    let ulpdu = tagged(octets::WRITE, true, OPEN, OPEN_BASE + 6, b"after");
    assert_eq!(raw.refuse(&ulpdu), quoting([0x11, 0x00], 19, &ulpdu[..14], &[]));
    assert_eq!(&raw.end.host.octets(OPEN)[..11], b"before\0\0\0\0\0");
}

/// Covers: DDP-5041-8.3.1-06, RDMAP-5040-8.1.1-06
#[test]
fn access_lost_inside_an_fpdu_stops_placement_at_once_and_ends_the_stream_behind_it() {
    let mut raw = Raw::responder(config(), |terms| terms.crc = false);
    let ulpdu = tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[0x77; 9000]);
    let fpdu = raw.fpdu(&ulpdu);
    raw.end.arrive(&fpdu[..3000]);
    let placed = 3000 - 2 - 14;
    let octets = raw.end.host.octets(OPEN);
    assert!(octets[..placed].iter().all(|&octet| octet == 0x77) && octets[placed] == 0);
    raw.end.host.change(OPEN, |region| region.valid = false);
    raw.end.host.touches();
    raw.end.arrive(&fpdu[3000..6000]);
    assert_eq!((raw.end.events(), raw.end.host.touches()), (vec![], vec![]));
    // Valid again does not help: the message has lost octets.
    raw.end.host.change(OPEN, |region| region.valid = true);
    raw.end.arrive(&fpdu[6000..]);
    assert_eq!(raw.end.host.touches(), []);
    assert_eq!(raw.terminate(), quoting([0x11, 0x00], 9014, &ulpdu[..14], &[]));
}

/// Covers: DDP-5041-7.1-15, DDP-5041-7.1-16, DDP-5041-7.1-17, DDP-5041-7.1-18,
/// DDP-5041-6.2.2-01, DDP-5041-6.2.2-03, DDP-5041-6.2.2-04, DDP-5041-7-01, RDMAP-5040-7-01,
/// RDMAP-5040-7-02, DDP-5041-3-09, DDP-5041-3-10, RDMAP-5040-3.1-06
#[test]
fn corner_40_after_the_first_error_all_is_dropped_in_silence_but_a_terminate_goes_out() {
    let mut raw = Raw::new();
    raw.end.receive(1, &[local(0, 8)]);
    raw.end.post(2, SEND, &[]);
    let bad = tagged(octets::WRITE, true, 0xbad, 0, b"x");
    raw.send(&bad);
    let events = raw.end.events();
    assert!(matches!(events[0], Event::Fault(_)));
    assert_eq!(
        outcomes(&events.into_iter().filter_map(completion).collect::<Vec<_>>()),
        [(2, WcStatus::Flushed, WcOp::Send), (1, WcStatus::Flushed, WcOp::Recv)]
    );
    // The stream stays open for the Terminate.
    assert_eq!(raw.end.disposition(), Disposition::Open);
    for ulpdu in [
        octets::send(1, b"hello"),
        tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"hello"),
        octets::read_request(1, 8, OPEN, OPEN_BASE),
        tagged(octets::WRITE, true, 0xbad, 0, b"x"),
        octets::terminate(&[0, 0, 0, 0]),
    ] {
        raw.send(&ulpdu);
    }
    raw.end.arrive(&[0xff; 100]);
    raw.end.eof();
    assert_eq!((raw.end.events(), raw.end.host.touches()), (vec![], vec![]));
    assert_eq!(raw.terminate(), quoting([0x11, 0x00], 15, &bad[..14], &[]));
    raw.send(&octets::send(1, b"hello"));
    assert_eq!((raw.end.events(), raw.back().len()), (vec![], 0));
}

#[test]
fn writes_that_lie_in_memory_are_sent_from_there_only_without_crc_and_markers() {
    for (crc, markers, in_place) in
        [(false, false, true), (true, false, false), (false, true, false), (true, true, false)]
    {
        let mut raw = Raw::initiator(config(), |terms| {
            (terms.crc, terms.send_markers) = (crc, markers);
        });
        raw.end.tx.set_mulpdu(9000);
        raw.end.post(1, write_op(0), &[local(0, 2000), local(4000, 3000)]);
        raw.end.build();
        let pieces = raw.end.out.pieces().cloned().collect::<Vec<_>>();
        let expected = [local(0, 2000), local(4000, 3000)];
        let refers: Vec<Sge> = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Memory(Source::Local(sge)) => Some(*sge),
                _ => None,
            })
            .collect();
        assert_eq!(refers, if in_place { &expected[..] } else { &[] });
        // Octets that the program writes into it until the stream takes it still count in place
        // only.
        raw.end.host.fill(LOCAL, 4000, b"late");
        let back = raw.back();
        assert_eq!(&back[0][14 + 2000..14 + 2004] == b"late", in_place);
    }
}

/// Covers: RDMAP-5040-5.1-06, DDP-5041-4.1-07, DDP-5041-5.4-01
#[test]
fn a_send_behind_writes_completes_when_they_were_placed() {
    for crc in [true, false] {
        let mut pair = Pair::with(config(), |terms| terms.crc = crc);
        pair.b.receive(1, &[]);
        pair.a.host.fill(LOCAL, 0, &pattern(5000, 1));
        pair.a.post(1, write_op(0), &[local(0, 2500)]);
        pair.a.post(2, write_op(2500), &[local(2500, 2500)]);
        pair.a.post(3, SEND, &[]);
        let mut completed = 0;
        for part in pair.a.take_all().chunks(3) {
            pair.b.arrive(part);
            if !pair.b.completions().is_empty() {
                completed += 1;
                assert_eq!(pair.b.host.octets(OPEN)[..5000], pattern(5000, 1));
            }
        }
        assert_eq!(completed, 1);
    }
}
