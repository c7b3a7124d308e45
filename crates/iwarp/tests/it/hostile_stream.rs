// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that break the framing, break off, stall, or end the stream: the other end answers as
//! the RFCs ask, gives its work back, and goes on with its other connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use iwarp::cm::ConnectParams;
use iwarp::{AsyncEvent, Buffer, Ended, SendOp, WcStatus};
use iwarp_proto::mpa::wire::mulpdu;
use iwarp_proto::rdmap::wire::{Opcode, TerminateCode};
use iwarp_proto::types::Mo;
use iwarp_types::{Digest, Stag};

use crate::common;
use crate::common::pages::PAGE;
use crate::common::raw::{
    Heard, Startup, first_segment, read_request, read_response, request, segment, send, split,
    terminate, untagged, write,
};
use crate::common::station::{Station, hasty};
use crate::common::victim::{FILL, READ, Victim};
use crate::common::{DEADLINE, next, pattern, until};

fn code(layer: u8, etype: u8, code: u8) -> TerminateCode {
    TerminateCode { layer, etype, code }
}

/// The payload of a Terminate that quotes nothing.
fn bare(code: TerminateCode) -> [u8; 4] {
    [code.layer << 4 | code.etype, code.code, 0, 0]
}

/// A Request with or without CRC and markers.
fn asking(crc: bool, markers: bool) -> Startup {
    Startup { crc, markers, ..request() }
}

/// The victim's end reports that fault, and gives everything back.
fn faulted(victim: &Victim, code: TerminateCode) {
    victim.end.ended(Ended::Fault(code.into()), 1, 2);
    let qp = victim.end.qp.number();
    victim.end.async_event(|event| *event == AsyncEvent::QpFatal { qp });
    victim.grants.untouched();
}

/// A Write over the whole grant, whose bytes the grant does not hold yet.
fn good_write(victim: &Victim) -> Vec<u8> {
    write(victim.grants.part.rkey(), victim.grants.part.base().0, &[1; 1000])
}

/// Covers: MPA-5044-8-02, MPA-5044-8-11, MPA-5044-8-12, MPA-5044-6-01, MPA-5044-6-03,
/// MPA-5044-4.4-14, MPA-5044-7.1.1-08, RDMAP-5040-7.1-01
#[test]
fn corner_12_nothing_of_an_fpdu_with_a_bad_crc_is_placed() {
    let station = Station::new(hasty());
    // Everywhere: length field, headers, payload, padding, the CRC itself.
    for flipped in [0, 1, 2, 3, 5, 14, 16, 500, 1015, 1016, 1019] {
        let mut victim = Victim::new(&station);
        let ulpdu = good_write(&victim);
        let mut octets = victim.raw.frame(&ulpdu);
        assert_eq!(octets.len(), 1020);
        octets[flipped] ^= 0x10;
        // A length field that says more than there is waits for the rest.
        octets.resize(70_000, 0);
        victim.raw.send(&octets);
        let payload = victim.raw.expect_terminate();
        // A length beyond all bounds is seen before the CRC.
        let expected = code(2, 0, 0x02);
        assert_eq!(payload, bare(expected), "octet {flipped}");
        faulted(&victim, expected);
        station.others_do_not_notice();
    }
    station.settled();
}

/// Covers: MPA-5044-8-03, MPA-5044-8-06
#[test]
fn markers_that_point_elsewhere() {
    let station = Station::new(hasty().markers(true));
    let mut victim = Victim::with(&station, &asking(false, false));
    // The CRC is right: only the pointer is not.
    let ulpdu = good_write(&victim);
    let mut octets = victim.raw.frame(&ulpdu);
    // The greeting took 24 bytes, the marker at its head among them.
    let marker = 512 - 24;
    let pointer = u16::from_be_bytes([octets[marker + 2], octets[marker + 3]]);
    assert_eq!(usize::from(pointer), marker, "not where the marker is");
    octets[marker + 3] ^= 4;
    let end = octets.len() - 4;
    let mut crc = iwarp_types::Digest::crc32c();
    crc.update(&octets[..end]);
    octets[end..].copy_from_slice(&crc.wire());
    victim.raw.send(&octets);
    let expected = code(2, 0, 0x03);
    assert_eq!(victim.raw.expect_terminate(), bare(expected));
    faulted(&victim, expected);
    station.others_do_not_notice();
}

/// Covers: MPA-5044-4.2-02, MPA-5044-4.1-04
#[test]
fn corner_05_reserved_bits_of_markers_and_padding_count_for_the_crc_only() {
    let station = Station::new(hasty().markers(true));
    let mut victim = Victim::with(&station, &asking(false, false));
    let ulpdu = write(victim.grants.part.rkey(), victim.grants.part.base().0, &[1; 1001]);
    let mut octets = victim.raw.frame(&ulpdu);
    let (marker, end) = (512 - 24, octets.len() - 4);
    octets[marker] = 0xff;
    octets[marker + 1] = 0xee;
    octets[marker + 3] |= 3;
    octets[end - 1] = 0x77;
    let mut crc = iwarp_types::Digest::crc32c();
    crc.update(&octets[..end]);
    octets[end..].copy_from_slice(&crc.wire());
    victim.raw.send(&octets);
    let ulpdu = send(1, b"behind it");
    victim.raw.send_ulpdu(&ulpdu);
    assert_eq!(victim.end.received().byte_len, 9);
    assert_eq!(victim.grants.page.octets()[1024..2025], [1; 1001]);
}

/// Covers: MPA-5044-4.1-06, MPA-5044-4.4-04, MPA-5044-4.4-08, MPA-5044-7.1.1-07,
/// MPA-5044-7.1.1-09
#[test]
fn corner_08_crc_is_off_only_if_both_say_so() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let station = Station::new(hasty().crc(ours));
        let mut victim = Victim::with(&station, &asking(theirs, false));
        let ulpdu = good_write(&victim);
        let mut octets = victim.raw.frame(&ulpdu);
        let end = octets.len() - 4;
        octets[end..].copy_from_slice(b"any?");
        victim.raw.send(&octets);
        if ours || theirs {
            assert_eq!(victim.raw.expect_terminate(), bare(code(2, 0, 0x02)));
            victim.grants.untouched();
        } else {
            victim.raw.send_ulpdu(&send(1, b"behind it"));
            assert_eq!(victim.end.received().wr_id, 1);
            assert_eq!(victim.grants.page.octets()[1024..2024], [1; 1000]);
        }
        station.others_do_not_notice();
    }
}

/// Each direction has markers if its receiver asked for them.
///
/// Covers: MPA-5044-4.3-01, MPA-5044-7.1.1-05, MPA-5044-7.1.1-06, MPA-5044-4.3-13,
/// MPA-5044-7.1-01, MPA-5044-7.1-05, MPA-5044-7.1-06
#[test]
fn corner_09_markers_are_for_who_asked() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let station = Station::new(hasty().markers(ours));
        // The raw peer deframes what it hears by what it asked for, and so checks it.
        let mut victim = Victim::with(&station, &asking(true, theirs));
        let octets = pattern(2048, 7);
        for number in 0..3 {
            let to = victim.grants.part.base().0;
            let ulpdu = write(victim.grants.part.rkey(), to, &octets);
            victim.raw.send_ulpdu(&ulpdu);
            victim.raw.send_ulpdu(&read_request(number + 1, 2048, victim.grants.part.rkey(), to));
            let mut heard = Vec::new();
            while heard.len() < octets.len() {
                heard.extend(victim.raw.expect(Opcode::ReadResponse).1);
            }
            assert!(heard == octets, "ours {ours}, theirs {theirs}");
        }
    }
}

/// Covers: MPA-5044-8-03
#[test]
fn corner_10_a_length_that_no_marker_reaches_over_ends_the_stream() {
    for crc in [true, false] {
        let station = Station::new(hasty().crc(crc).markers(true));
        for length in [64_769_u16, 65_535] {
            let mut victim = Victim::with(&station, &asking(crc, false));
            let mut head = victim.raw.frame(&send(1, b""));
            let at = if head[..4] == [0; 4] { 4 } else { 0 };
            head.truncate(at);
            head.extend(length.to_be_bytes());
            // No more than the field: the rest is not waited for.
            victim.raw.send(&head);
            assert_eq!(victim.raw.expect_terminate(), bare(code(2, 0, 0x03)));
            faulted(&victim, code(2, 0, 0x03));
            station.others_do_not_notice();
        }
        station.settled();
    }
}

/// Linux siw sends more than MPA may carry where TCP's segments are that long.
#[test]
fn an_fpdu_is_taken_as_long_as_its_field_can_say() {
    for crc in [true, false] {
        let station = Station::new(hasty().crc(crc));
        let (end, mut raw, _) = station.accept(&asking(crc, false), &ConnectParams::default());
        raw.greet();
        let region = end.region(65_535 - 14);
        let octets = pattern(region.len(), 4);
        let ulpdu = write(region.rkey(), 0, &octets);
        let mut fpdu = [&65_535_u16.to_be_bytes(), &ulpdu[..]].concat();
        fpdu.extend([0; 3]);
        let mut digest = Digest::crc32c();
        digest.update(&fpdu);
        fpdu.extend(digest.wire());
        raw.send(&fpdu);
        end.post_recv(1, &[]);
        raw.send_ulpdu(&send(1, b""));
        end.received();
        assert!(region.buffer().unwrap().to_vec() == octets);
    }
}

/// A peer whose segments are larger than ours may send FPDUs up to what MPA can carry.
#[test]
fn corner_10_the_largest_fpdu_is_taken() {
    for (crc, markers) in [(true, false), (false, false), (true, true)] {
        let station = Station::new(hasty().crc(crc).markers(markers));
        let (end, mut raw, _) = station.accept(&asking(crc, false), &ConnectParams::default());
        let largest = if markers { 64_000 } else { 64_768 } - 14;
        let region = end.region(largest);
        let octets = pattern(largest, 3);
        raw.send_ulpdu(&write(region.rkey(), 0, &octets));
        end.post_recv(1, &[]);
        raw.send_ulpdu(&send(1, b""));
        end.received();
        assert!(region.buffer().unwrap().to_vec() == octets);
    }
}

/// Covers: MPA-5044-5.1-05
#[test]
fn corner_14_octets_may_come_one_by_one() {
    for (crc, markers) in [(true, false), (false, false), (true, true)] {
        let station = Station::new(hasty().crc(crc).markers(markers));
        let mut victim = Victim::with(&station, &asking(crc, false));
        let mut octets = Vec::new();
        let ulpdu = good_write(&victim);
        octets.extend(victim.raw.frame(&ulpdu));
        octets.extend(victim.raw.frame(&send(1, b"one by one")));
        for octet in octets.chunks(1) {
            victim.raw.send(octet);
        }
        assert_eq!(victim.end.received().byte_len, 10);
        assert_eq!(victim.grants.page.octets()[1024..2024], [1; 1000]);
    }
}

/// Covers: RDMAP-5040-5.4-05, RDMAP-5040-5.4-06, RDMAP-5040-5.4-07, RDMAP-5040-5.4-10,
/// RDMAP-5040-5.4-04, RDMAP-5040-7-03, VERBS-hilland-6.2.2.3-02, VERBS-hilland-6.2.2.2-02
#[test]
fn corner_53_a_terminate_is_not_answered() {
    let station = Station::new(hasty());
    let mut codes: Vec<_> = (0..4)
        .flat_map(|layer| (0..4).map(move |etype| (layer, etype)))
        .flat_map(|(layer, etype)| (0..=9).chain([0xff]).map(move |n| code(layer, etype, n)))
        .collect();
    codes.extend([code(15, 15, 0xff), code(2, 0, 0x80), code(7, 1, 3)]);
    for code in codes {
        let mut victim = Victim::new(&station);
        victim.raw.send_ulpdu(&terminate(code.layer, code.etype, code.code));
        victim.raw.expect_fin();
        victim.end.ended(Ended::Terminated(code.into()), 1, 2);
        let qp = victim.end.qp.number();
        victim.end.async_event(|event| *event == AsyncEvent::QpFatal { qp });
        victim.grants.untouched();
    }
    station.others_do_not_notice();
    station.settled();
}

/// Covers: RDMAP-5040-4.8-05
#[test]
fn corner_50_terminates_come_in_every_shape() {
    let station = Station::new(hasty());
    let shapes: [&[u8]; 11] = [
        &[0x11, 0x01],
        &[0x11, 0x01, 0xc0],
        &[0x11, 0x01, 0x1f, 0xff],
        &[0x11, 0x01, 0x80, 0x00, 0x00, 0x12],
        &[0x11, 0x01, 0x40, 0x00],
        &[0x11, 0x01, 0x40, 0x00, 0x00],
        &[0x11, 0x01, 0xe0, 0x00, 0xff, 0xff, 0xc1],
        &[0x11, 0x01, 0x20, 0x00, 1, 2, 3, 4, 5, 6],
        &[0x11, 0x01, 0xff, 0xff, 0x00, 0x00, 0x00],
        &[0x11, 0x01, 0xe0, 0x00, 0x00, 0x2e, 0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
        &[0x11; 200],
    ];
    for shape in shapes {
        let mut victim = Victim::new(&station);
        victim.raw.send_ulpdu(&segment(untagged(Opcode::Terminate, 1), shape));
        victim.raw.expect_fin();
        let expected = if shape[1] == 0x11 { code(1, 1, 0x11) } else { code(1, 1, 0x01) };
        victim.end.ended(Ended::Terminated(expected.into()), 1, 2);
    }
    // Too short for a code, in two segments, or with another number: the peer is done anyway.
    let mut cut = untagged(Opcode::Terminate, 1);
    cut.last = false;
    let late = segment(untagged(Opcode::Terminate, 9), &[0x12, 0x03, 0, 0]);
    for ulpdu in [
        segment(untagged(Opcode::Terminate, 1), &[]),
        segment(untagged(Opcode::Terminate, 1), &[0x12]),
        segment(cut, &[0x12, 0x03, 0, 0]),
        late,
    ] {
        let mut victim = Victim::new(&station);
        victim.raw.send_ulpdu(&ulpdu);
        victim.raw.expect_fin();
        victim.end.flushed(1, 2);
    }
    station.others_do_not_notice();
    station.settled();
}

/// Covers: MPA-5044-8-01, DDP-5041-6.2.2-01, DDP-5041-6.2.2-02, DDP-5041-3-03, DDP-5041-3-13
#[test]
fn a_reset_gives_all_work_back() {
    let station = Station::new(hasty());
    for inside in [false, true] {
        let mut victim = Victim::new(&station);
        if inside {
            let ulpdu = good_write(&victim);
            let octets = victim.raw.frame(&ulpdu);
            victim.raw.send(&octets[..500]);
        }
        let Victim { raw, end, grants, .. } = victim;
        raw.reset();
        end.ended(Ended::Lost, 1, 2);
        grants.untouched();
        station.others_do_not_notice();
    }
    station.settled();
}

/// Covers: MPA-5044-7.2-02, MPA-5044-8-01
#[test]
fn corner_41_an_end_inside_an_fpdu_is_a_fault() {
    for crc in [true, false] {
        let station = Station::new(hasty().crc(crc));
        for sent in [1, 2, 20, 500, 1019] {
            let mut victim = Victim::with(&station, &asking(crc, false));
            let ulpdu = good_write(&victim);
            let octets = victim.raw.frame(&ulpdu);
            victim.raw.send(&octets[..sent]);
            victim.raw.fin();
            assert_eq!(victim.raw.expect_terminate(), bare(code(2, 0, 0x01)), "{sent} octets");
            victim.end.ended(Ended::Fault(code(2, 0, 0x01).into()), 1, 2);
            if crc {
                victim.grants.untouched();
            }
            station.others_do_not_notice();
        }
        station.settled();
    }
}

/// Covers: VERBS-hilland-6.2.2.2-02
#[test]
fn corner_41_an_end_with_work_pending_is_a_fault() {
    let station = Station::new(hasty());
    let mut victim = Victim::new(&station);
    victim.raw.fin();
    let payload = victim.raw.expect_terminate();
    assert_eq!(payload, bare(code(0, 2, 0x07)));
    faulted(&victim, code(0, 2, 0x07));
    station.others_do_not_notice();
    station.settled();
}

/// Covers: VERBS-hilland-6.2.2.2-01, DDP-5041-3-11, MPA-5044-7.2-02
#[test]
fn an_end_without_work_pending_is_answered_at_once() {
    let station = Station::new(hasty().linger(DEADLINE * 2));
    for answered in [true, false] {
        let (end, mut raw, _) = station.accept(&request(), &ConnectParams::default());
        if answered {
            raw.greet();
        }
        end.post_recv(1, &[]);
        raw.fin();
        raw.expect_fin();
        end.ended(Ended::Closed, 0, 1);
    }
    station.settled();
}

/// Covers: RDMAP-5040-6.1-05, RDMAP-5040-8.1.1-12, RDMAP-5040-5.2.2-02, VERBS-hilland-6.4-01
#[test]
fn corner_49_more_reads_than_agreed_end_the_stream() {
    let station = Station::new(hasty());
    let params = ConnectParams::new().ird(2);
    let (end, mut raw, reply) = station.accept(&request(), &params);
    assert_eq!(reply.enhanced.unwrap().ird, 2);
    // Answers that the sockets cannot hold, so that they stay outstanding.
    let region = end.region(16 * 1024 * 1024);
    let size = region.len() as u32;
    let mut octets = Vec::new();
    for number in 1..=3 {
        octets.extend(raw.frame(&read_request(number, size, region.rkey(), 0)));
    }
    raw.send(&octets);
    let why = end.connection.wait_disconnected(Some(DEADLINE));
    assert_eq!(why, Some(Ended::Fault(code(1, 2, 0x02).into())));
    // Segments that were on their way still come, whole, and the Terminate behind.
    let payload = raw.expect_terminate();
    assert_eq!(payload[..6], [0x12, 0x02, 0xc0, 0, 0, 46]);
    station.others_do_not_notice();
    station.settled();
}

/// Covers: RDMAP-5040-5.2.2-05, RDMAP-5040-5.2.1-07, RDMAP-5040-5.5-12, RDMAP-5040-5.2.1-10,
/// RDMAP-5040-5.2.1-11, RDMAP-5040-5.2.1-13, RDMAP-5040-5.2.1-14, RDMAP-5040-4.4-02,
/// RDMAP-5040-4.4-03
#[test]
fn corner_58_requests_are_answered_in_order() {
    let station = Station::new(hasty());
    let (end, mut raw, _) = station.accept(&request(), &ConnectParams::default());
    let region = end.region_of(&pattern(100_000, 9));
    let sizes = [0, 70_000, 0, 1, 100_000, 3];
    let mut octets = Vec::new();
    for (number, size) in (1..).zip(sizes) {
        // The source of an empty Read is not looked at (corner 43).
        let stag = if size == 0 { Stag(0) } else { region.rkey() };
        octets.extend(raw.frame(&read_request(number, size, stag, 0)));
    }
    raw.send(&octets);
    for size in sizes {
        let mut heard = Vec::new();
        loop {
            let Heard::Ulpdu(ulpdu) = raw.hear() else { panic!("no answer") };
            let (header, payload) = split(&ulpdu);
            let iwarp_proto::ddp::wire::Header::Tagged(h) = header else { panic!("untagged") };
            if h.rsvd_ulp == Opcode::Write.control() {
                continue;
            }
            assert_eq!(h.rsvd_ulp, Opcode::ReadResponse.control());
            assert_eq!(h.stag, Stag(0x0bad_cafe));
            assert_eq!(h.to.0, 0x1122_3344_5566_7788 + heard.len() as u64);
            heard.extend(payload);
            if h.last {
                break;
            }
        }
        assert!(heard == pattern(100_000, 9)[..size as usize], "{size} octets");
    }
}

/// Covers: RDMAP-5040-5.2.2-03, RDMAP-5040-5.2-01
#[test]
fn a_response_completes_the_read_it_answers() {
    let station = Station::new(hasty());
    let mut victim = Victim::new(&station);
    let (stag, to) = (victim.asked.sink_stag, victim.asked.sink_to);
    assert_eq!(victim.asked.size, READ as u32);
    victim.raw.send_ulpdu(&read_response(stag, to, &[7; READ]));
    assert_eq!(victim.end.sent().wr_id, 3);
    assert_eq!(victim.sink.buffer().unwrap().to_vec(), [7; READ]);
    // A second response answers nothing.
    let again = read_response(stag, to, &[8; READ]);
    victim.raw.send_ulpdu(&again);
    assert_eq!(victim.raw.expect_terminate()[..2], [0x11, 0x00]);
    assert_eq!(victim.sink.buffer().unwrap().to_vec(), [7; READ]);
}

/// Covers: DDP-5041-5.2-09, DDP-5041-5.2-10, RDMAP-5040-5.1-08, RDMAP-5040-5.1-02,
/// VERBS-hilland-7.6.3-01
#[test]
fn corner_44_empty_writes_are_not_looked_at() {
    let station = Station::new(hasty());
    let mut victim = Victim::new(&station);
    for (stag, to) in [(0, 0), (u32::MAX, u64::MAX), (victim.grants.foreign.rkey().0, 1)] {
        victim.raw.send_ulpdu(&write(Stag(stag), to, &[]));
        // Nor is an empty segment inside a longer message.
        let mut ulpdu = write(Stag(stag), to, &[]);
        ulpdu[0] &= !0x40;
        victim.raw.send_ulpdu(&ulpdu);
    }
    victim.raw.send_ulpdu(&send(1, b""));
    assert_eq!(victim.end.received().byte_len, 0);
    victim.grants.untouched();
}

/// Bytes at both ends of a grant, and of the page, can be written and read.
///
/// Covers: DDP-5041-4.2-09, RDMAP-5040-5.1-04, RDMAP-5040-5.2.1-16, DDP-5041-5.2-04
#[test]
fn corner_35_bounds_are_exact() {
    let station = Station::new(hasty());
    let mut victim = Victim::new(&station);
    let (whole, part) = (victim.grants.whole.rkey(), victim.grants.part.rkey());
    let (start, low) = (victim.grants.whole.base().0, victim.grants.part.base().0);
    let places = [(whole, start), (whole, start + 4095), (part, low), (part, low + 2047)];
    let mut number = 0;
    let mut expected = vec![FILL; PAGE];
    for (stag, to) in places {
        number += 1;
        victim.raw.send_ulpdu(&write(stag, to, &[number]));
        victim.raw.send_ulpdu(&read_request(u32::from(number), 1, stag, to));
        assert_eq!(victim.raw.expect(Opcode::ReadResponse).1, [number]);
        expected[(to - start) as usize] = number;
    }
    // Zero octets at the very end are within bounds.
    victim.raw.send_ulpdu(&write(part, low + 2048, &[]));
    victim.raw.send_ulpdu(&send(1, b""));
    victim.end.received();
    assert!(victim.grants.page.octets() == expected);
}

/// Covers: RDMAP-5040-4.1-08, RDMAP-5040-4.1-10, DDP-5041-4.1-08
#[test]
fn corner_39_reserved_fields_are_not_looked_at() {
    let station = Station::new(hasty());
    let mut victim = Victim::new(&station);
    let mut ulpdu = good_write(&victim);
    ulpdu[0] |= 0x3c;
    ulpdu[1] |= 0x30;
    victim.raw.send_ulpdu(&ulpdu);
    let mut header = untagged(Opcode::Send, 1);
    header.rsvd_ulp = [Opcode::Send.control() | 0x30, 1, 2, 3, 4];
    let mut ulpdu = segment(header, b"hello");
    ulpdu[0] |= 0x3c;
    victim.raw.send_ulpdu(&ulpdu);
    let completion = victim.end.received();
    assert_eq!((completion.byte_len, completion.invalidated), (5, None));
    assert_eq!(victim.grants.page.octets()[1024..2024], [1; 1000]);
}

/// Covers: DDP-5041-5.3-05, DDP-5041-5.3-06, DDP-5041-5.4-01
#[test]
fn corner_38_segments_of_a_send_and_of_a_write_may_alternate() {
    let station = Station::new(hasty());
    let mut victim = Victim::new(&station);
    let mut first = untagged(Opcode::Send, 1);
    first.last = false;
    let mut last = untagged(Opcode::Send, 1);
    last.mo = Mo(5);
    victim.raw.send_ulpdu(&segment(first, b"hello"));
    let ulpdu = good_write(&victim);
    victim.raw.send_ulpdu(&ulpdu);
    victim.raw.send_ulpdu(&segment(last, b" world"));
    assert_eq!(victim.end.received().byte_len, 11);
    assert_eq!(victim.receives.buffer().unwrap().to_vec()[..11], *b"hello world");
    assert_eq!(victim.grants.page.octets()[1024..2024], [1; 1000]);
    // Two kinds of message in one do not.
    let mut first = untagged(Opcode::Send, 2);
    first.last = false;
    let mut last = untagged(Opcode::SendSolicited, 2);
    last.mo = Mo(5);
    victim.raw.send_ulpdu(&segment(first, b"hello"));
    victim.raw.send_ulpdu(&segment(last, b" world"));
    assert_eq!(victim.raw.expect_terminate()[..2], [0x02, 0x06]);
}

/// Covers: RDMAP-5040-8.1.1-06, DDP-5041-8.3.1-06
#[test]
fn deregistration_does_not_wait_for_a_peer_that_stalls() {
    for crc in [true, false] {
        let station = Station::new(hasty().crc(crc));
        let (end, mut raw, _) = station.accept(&asking(crc, false), &ConnectParams::default());
        let memory = Arc::new(Buffer::new(60_000));
        let region = end.pd.register(Arc::clone(&memory), common::all_access()).unwrap();
        let octets = raw.frame(&write(region.rkey(), 0, &[7; 60_000]));
        let (now, later) = octets.split_at(40_000);
        raw.send(now);
        if !crc {
            // Without CRC bytes are placed as they come.
            until("the first octets", || (memory.to_vec()[0] == 7).then_some(()));
        }
        station.others_do_not_notice();
        let began = Instant::now();
        region.deregister().unwrap();
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        memory.write_at(0, &[9; 60_000]);
        raw.send(later);
        assert_eq!(raw.expect_terminate()[..2], [0x11, 0x00]);
        assert!(memory.to_vec().iter().all(|octet| *octet == 9));
        station.others_do_not_notice();
    }
}

/// A peer that takes nothing is given up when its time is over.
///
/// Covers: VERBS-hilland-6.2.3-01
#[test]
fn a_peer_that_never_reads_holds_nothing_up() {
    let station = Station::new(hasty());
    for faulty in [false, true] {
        never_reads(&station, faulty);
    }
}

/// The end is the program's wish, or that of a fault whose Terminate cannot be sent.
fn never_reads(station: &Station, faulty: bool) {
    let (end, mut raw, _) = station.accept(&request(), &ConnectParams::default());
    raw.greet();
    let region = end.region(8 * 1024 * 1024);
    for id in 0..4 {
        end.write(id, region.whole(), &region, 0);
    }
    station.others_do_not_notice();
    assert_eq!(end.send_cq.poll_one().map(|c| c.wr_id), None, "nobody took 8 MiB");
    let why = if faulty {
        raw.send_ulpdu(&write(Stag(0), 0, b"x"));
        Ended::Fault(code(1, 1, 0x00).into())
    } else {
        end.connection.disconnect();
        Ended::Closed
    };
    assert_eq!(end.connection.wait_disconnected(Some(DEADLINE)), Some(why));
    station.settled();
    let statuses: Vec<_> = (0..4).map(|_| next(&end.send_cq).status).collect();
    assert_eq!(statuses, [WcStatus::Flushed; 4]);
    drop(raw);
}

/// The responder of a client-server connection is silent until it has heard a valid FPDU.
///
/// Covers: MPA-5044-7.1.2-13
#[test]
fn corner_28_a_responder_is_silent_until_the_first_fpdu() {
    for markers in [false, true] {
        let station = Station::new(hasty());
        let (end, mut raw, _) = station.accept(&asking(true, markers), &ConnectParams::default());
        end.send(1, &[]);
        assert!(raw.is_silent(Duration::from_millis(50)));
        // Half an FPDU is none.
        let greeting = raw.frame(&write(Stag(0), 0, &[]));
        raw.send(&greeting[..greeting.len() - 1]);
        assert!(raw.is_silent(Duration::from_millis(50)));
        raw.send(&greeting[greeting.len() - 1..]);
        raw.expect(Opcode::Send);
        assert_eq!(end.sent().wr_id, 1);
    }
}

/// A bad first FPDU is answered by a Terminate, as the initiator is in Full Operation.
///
/// Covers: MPA-5044-8-02
#[test]
fn corner_28_a_bad_first_fpdu_is_answered() {
    let station = Station::new(hasty());
    let (end, mut raw, _) = station.accept(&request(), &ConnectParams::default());
    end.send(1, &[]);
    let mut octets = raw.frame(&send(1, b"x"));
    octets[4] ^= 1;
    raw.send(&octets);
    let Heard::Ulpdu(ulpdu) = raw.hear() else { panic!("no Terminate") };
    assert_eq!(split(&ulpdu).1, bare(code(2, 0, 0x02)));
    assert_eq!(raw.hear(), Heard::Fin);
    end.ended(Ended::Fault(code(2, 0, 0x02).into()), 1, 0);
}

/// Covers: RDMAP-5040-7.1-02, VERBS-hilland-8.3.2-01
#[test]
fn local_errors_are_told_without_headers() {
    let station = Station::new(hasty());
    let mut victim = Victim::new(&station);
    // An element that was not registered.
    let region = victim.end.region(8);
    let mut sge = region.whole();
    sge.lkey = Stag(sge.lkey.0 ^ 0x55);
    victim.end.post(4, SendOp::Write { stag: Stag(1), to: region.base() }, &[sge]);
    assert_eq!(victim.raw.expect_terminate(), bare(code(0, 0, 0x00)));
    assert_eq!(next(&victim.end.send_cq).status, WcStatus::Flushed);
    let failed = next(&victim.end.send_cq);
    assert_eq!((failed.wr_id, failed.status), (4, WcStatus::LocalProtection));
    victim.end.ended(Ended::Fault(code(0, 0, 0x00).into()), 0, 2);
    station.others_do_not_notice();
}

/// With CRC off, payload goes from where it lies. When it is taken away behind a header that was
/// sent, neither the message nor a Terminate can follow.
///
/// Covers: VERBS-hilland-6.4-02
#[test]
fn a_segment_that_cannot_be_sent_to_its_end_resets_the_stream() {
    let station = Station::new(hasty().crc(false));
    let (end, mut raw, _) = station.accept(&asking(false, false), &ConnectParams::default());
    raw.greet();
    let region = end.region(32 * 1024 * 1024);
    end.write(1, region.whole(), &region, 0);
    assert_eq!(end.send_cq.poll_one().map(|c| c.wr_id), None, "nobody took 32 MiB");
    region.deregister().unwrap();
    let end_of_stream = loop {
        match raw.hear_cut() {
            Heard::Ulpdu(_) => {}
            end => break end,
        }
    };
    assert_eq!(end_of_stream, Heard::Reset);
    assert!(end.connection.wait_disconnected(Some(DEADLINE)).is_some());
    let qp = end.qp.number();
    end.async_event(|event| *event == AsyncEvent::QpFatal { qp });
    assert_ne!(next(&end.send_cq).status, WcStatus::Success);
    station.others_do_not_notice();
    station.settled();
}

/// Messages are cut so that an FPDU fits into a segment of TCP, as it is at that moment, or into
/// what was configured.
///
/// Covers: MPA-5044-3-02, MPA-5044-3-03, MPA-5044-4.5-04, MPA-5044-5.1-01
#[test]
fn segments_are_as_long_as_tcp_takes() {
    for fixed in [None, Some(1442), Some(128)] {
        let station = Station::new(hasty().mulpdu(fixed));
        let (end, mut raw, _) = station.accept(&request(), &ConnectParams::default());
        let size = if fixed.is_some() { 20_000 } else { 2_000_000 };
        let region = end.region(size);
        raw.send_ulpdu(&read_request(1, size as u32, region.rkey(), 0));
        let mut heard = Vec::new();
        let mut left = size;
        while left > 0 {
            let (header, payload) = raw.expect(Opcode::ReadResponse);
            left -= payload.len();
            heard.push(header.wire_len() + payload.len());
        }
        let last = heard.pop().unwrap();
        // On loopback the segment grows with the window: the size that was looked up lies between
        // that of a new connection and that of now.
        let (least, most) = match fixed {
            Some(fixed) => (fixed, fixed),
            None => (mulpdu(first_segment(), false), mulpdu(raw.far_segment(), false)),
        };
        assert!(heard.is_sorted() && heard[0] >= least, "{heard:?}, {least}");
        assert!(*heard.last().unwrap() <= most && last <= most, "{heard:?}, {most}");
    }
}
