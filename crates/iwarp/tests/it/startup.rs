// SPDX-License-Identifier: MIT OR Apache-2.0

//! The start of a connection, against peers that send one frame and see what becomes of it.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use iwarp::cm::{
    ConnectError, ConnectParams, EventChannel, EventKind, Id, StartupError, StartupFault,
};
use iwarp::port::{Faults, Platform};
use iwarp::{
    CompletionQueue, Ended, Payload, ProtectionDomain, QpState, QueuePair, RecvRequest,
    SendRequest, WcStatus,
};
use iwarp_proto::mpa::wire::{EnhancedData, FrameKind, ULP_NEGOTIATES};
use iwarp_proto::rdmap::wire::{Opcode, TerminateCode};
use iwarp_types::{RtrTypes, Stag};

use crate::common::process::{passed_apart, this_test};
use crate::common::raw::{
    Heard, Raw, Startup, depths, opcode, read_request, reply, request, send, split, write,
};
use crate::common::reports::Reports;
use crate::common::station::{Station, hasty, only};
use crate::common::{DEADLINE, next, parts, until};

/// A connection that the station makes to a raw listener, step by step.
struct Dialing {
    listener: TcpListener,
    channel: EventChannel,
    id: Id,
    _pd: ProtectionDomain,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    qp: QueuePair,
}

impl Dialing {
    fn new(station: &Station, params: &ConnectParams) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let channel = EventChannel::new(&station.device).unwrap();
        let id = Id::new(&channel).unwrap();
        let (pd, send_cq, recv_cq, qp) = parts(&station.device, 16);
        id.resolve_addr(None, listener.local_addr().unwrap()).unwrap();
        let dialing = Self { listener, channel, id, _pd: pd, send_cq, recv_cq, qp };
        assert!(matches!(dialing.event(), EventKind::AddressResolved));
        dialing.id.connect(&dialing.qp, params).unwrap();
        dialing
    }

    fn event(&self) -> EventKind {
        let event = self.channel.wait(Some(DEADLINE)).unwrap().expect("an event");
        assert_eq!(event.id, self.id);
        event.kind
    }

    /// The peer, and the Request it got.
    fn peer(&self) -> (Raw, Startup) {
        let mut raw = Raw::accept(&self.listener);
        let request = raw.startup(FrameKind::Request);
        (raw, request)
    }
}

/// Default parameters with that private data.
fn saying(private_data: &[u8]) -> ConnectParams {
    ConnectParams::new().private_data(private_data)
}

fn deep(ird: u16, ord: u16) -> ConnectParams {
    ConnectParams::new().ird(ird).ord(ord)
}

/// The peer's Request is dropped: it hears nothing, and the program hears nothing of it.
fn is_dropped(station: &Station, octets: &[u8]) {
    let mut raw = Raw::connect(station.addr());
    raw.send(octets);
    raw.expect_end();
    assert!(station.listener.accept(Some(Duration::ZERO)).unwrap().is_none());
    station.others_do_not_notice();
}

/// Covers: MPA-5044-7.1.1-02, MPA-5044-7.1.2-03, MPA-5044-7.1.2-14, MPA-5044-8-04, MPA-5044-8-09,
/// MPA-5044-7.1.1-13, MPA-5044-7.1.1-14, MPA-5044-7.1.1-17
#[test]
fn corner_16_malformed_requests_get_no_reply() {
    let station = Station::new(hasty().startup_timeout(DEADLINE * 2));
    let good = request().octets();
    let with = |at: usize, octets: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + octets.len()].copy_from_slice(octets);
        frame
    };
    is_dropped(&station, b"GET / HTTP/1.1\r\n\r\n");
    is_dropped(&station, &reply().octets());
    for at in 0..16 {
        is_dropped(&station, &with(at, b"?"));
    }
    for revision in [0, 3, 255] {
        is_dropped(&station, &with(17, &[revision]));
    }
    for length in [0_u16, 3, 513, u16::MAX] {
        is_dropped(&station, &with(18, &length.to_be_bytes()));
    }
}

/// Covers: MPA-5044-7.1.2-02, MPA-5044-7.1.5-01
#[test]
fn corner_14_octets_behind_a_request_are_an_error() {
    let station = Station::new(hasty());
    let mut octets = request().octets();
    octets.push(0);
    is_dropped(&station, &octets);
    // They may also come when the program has the request already.
    let mut raw = Raw::connect(station.addr());
    raw.send(&request().octets());
    let incoming = station.listener.accept(Some(DEADLINE)).unwrap().unwrap();
    raw.send(b"too early");
    let (_pd, _send_cq, _recv_cq, qp) = parts(&station.device, 16);
    // The bytes are there before anybody answers: both ends are on this host.
    let refused = incoming.accept(&qp, &ConnectParams::default());
    assert!(matches!(refused, Err(ConnectError::Startup(StartupError::SurplusOctets))));
    raw.expect_end();
    station.others_do_not_notice();
}

/// Covers: MPA-5044-7.1.2-19, MPA-5044-7.1.2-24
#[test]
fn corner_23_the_deadline_covers_the_whole_frame() {
    let station = Station::new(hasty());
    let timeout = station.device.options().startup_timeout;
    let octets = request().octets();
    for sent in [0, 1, 19, octets.len() - 1] {
        let began = Instant::now();
        let mut raw = Raw::connect(station.addr());
        raw.send(&octets[..sent]);
        raw.expect_end();
        assert!(began.elapsed() >= timeout && began.elapsed() < DEADLINE / 2, "{sent} octets");
    }
    // Byte by byte: each in time, the frame not.
    let began = Instant::now();
    let mut raw = Raw::connect(station.addr());
    for octet in octets.chunks(1) {
        if !raw.try_send(octet) || !raw.is_silent(timeout / 10) {
            break;
        }
    }
    assert!(began.elapsed() >= timeout && began.elapsed() < DEADLINE / 2);
    assert!(station.listener.accept(Some(Duration::ZERO)).unwrap().is_none());
    station.others_do_not_notice();
    station.settled();
}

/// Covers: MPA-5044-7.1.2-18, MPA-5044-7.1.1-04, MPA-5044-7.1.2-10
#[test]
fn corner_22_two_initiators_notice() {
    let station = Station::new(hasty());
    let dialing = Dialing::new(&station, &ConnectParams::default());
    let (mut raw, _) = dialing.peer();
    raw.send(&request().octets());
    let failed = dialing.event();
    let EventKind::ConnectError(ConnectError::Startup(StartupError::Key)) = failed else {
        panic!("{failed:?}")
    };
    raw.expect_end();
    assert_eq!(dialing.qp.state(), QpState::Init);
}

/// Covers: MPA-5044-7.1.2-24
#[test]
fn corner_22_two_responders_give_up_in_time() {
    let station = Station::new(hasty());
    for sent in [0, 10] {
        let dialing = Dialing::new(&station, &ConnectParams::default());
        let (mut raw, _) = dialing.peer();
        raw.send(&reply().octets()[..sent]);
        let failed = dialing.event();
        assert!(
            matches!(failed, EventKind::ConnectError(ConnectError::Startup(StartupError::Timeout))),
            "{failed:?}"
        );
        raw.expect_end();
    }
}

/// Covers: MPA-5044-7.1.1-04, MPA-5044-7.1.1-13, MPA-5044-7.1.1-14, MPA-5044-7.1.1-17,
/// MPA-5044-7.1.2-09, MPA-5044-7.1.2-10, MPA-5044-8-13
#[test]
fn malformed_replies_end_the_attempt() {
    let station = Station::new(hasty().startup_timeout(DEADLINE * 2));
    let good = reply().octets();
    let with = |at: usize, octets: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + octets.len()].copy_from_slice(octets);
        frame
    };
    for (octets, expected) in [
        (with(0, b"?"), StartupError::Key),
        (with(15, b"?"), StartupError::Key),
        (with(17, &[0]), StartupError::Revision(0)),
        (with(17, &[3]), StartupError::Revision(3)),
        (with(18, &[0, 3]), StartupError::EnhancedDataMissing),
        (with(18, &[2, 1]), StartupError::PrivateDataTooLong(513)),
    ] {
        let dialing = Dialing::new(&station, &ConnectParams::default());
        let (mut raw, _) = dialing.peer();
        raw.send(&octets);
        let failed = dialing.event();
        let EventKind::ConnectError(ConnectError::Startup(error)) = failed else {
            panic!("{failed:?}")
        };
        assert_eq!(error, expected);
        raw.expect_end();
    }
    station.others_do_not_notice();
}

/// Linux siw sends FPDUs before it has one of ours where its program asks it to. They are the
/// stream's, however many there are, and how the stream is framed.
#[test]
fn fpdus_directly_behind_the_reply_are_delivered() {
    const MESSAGES: usize = 16;
    let pieces = Faults { longest_piece: 30, ..Faults::seeded(3) };
    let whole = Platform::default();
    let in_pieces = Platform { network: pieces.around(whole.network.clone()), ..whole.clone() };
    for platform in [whole, in_pieces] {
        for (crc, peer_to_peer) in [(true, false), (false, false), (true, true)] {
            for (ours, theirs) in [(false, false), (true, false), (false, true)] {
                let options = hasty().crc(crc).markers(ours).peer_to_peer(peer_to_peer);
                let station = Station::on(options, platform.clone());
                let dialing = Dialing::new(&station, &ConnectParams::default());
                for wr_id in 0..MESSAGES as u64 {
                    dialing.qp.post_recv(&RecvRequest::new(wr_id, &[])).unwrap();
                }
                let (mut raw, asked) = dialing.peer();
                let answer = Startup { crc, markers: theirs, enhanced: asked.enhanced, ..reply() };
                let answer = Startup { private_data: vec![7; 200], ..answer };
                raw.operate(crc, ours, theirs);
                let mut octets = answer.octets();
                for msn in 1..=MESSAGES as u32 {
                    for _ in 0..4 {
                        octets.extend(raw.frame(&write(Stag(0), 0, &[])));
                    }
                    octets.extend(raw.frame(&send(msn, b"")));
                }
                assert!(octets.len() > 1024, "one read takes it all");
                raw.send(&octets);
                let EventKind::Established { private_data, .. } = dialing.event() else {
                    panic!("not established")
                };
                assert_eq!(private_data, [7; 200]);
                for wr_id in 0..MESSAGES as u64 {
                    let completion = next(&dialing.recv_cq);
                    assert_eq!((completion.wr_id, completion.status), (wr_id, WcStatus::Success));
                }
                dialing.qp.post_send(&SendRequest::send(1, Payload::Inline(&[]))).unwrap();
                raw.expect(Opcode::Send);
            }
        }
    }
}

/// Early FPDUs are judged as others are, and nothing of what follows a refusal is.
#[test]
fn fpdus_behind_the_reply_are_judged_as_others_are() {
    let station = Station::new(hasty());
    let dialing = Dialing::new(&station, &ConnectParams::default());
    let (mut raw, _) = dialing.peer();
    let mut octets = reply().octets();
    octets.extend(raw.frame(&send(1, b"")));
    *octets.last_mut().unwrap() ^= 1;
    raw.send(&octets);
    assert!(matches!(dialing.event(), EventKind::Established { .. }));
    assert_eq!(raw.expect_terminate(), [0x20, 2, 0, 0]);
    let dialing = Dialing::new(&station, &ConnectParams::default());
    let (mut raw, _) = dialing.peer();
    let mut octets = Startup { rejected: true, ..reply() }.octets();
    octets.extend([0; 5000]);
    raw.send(&octets);
    assert!(matches!(dialing.event(), EventKind::Rejected { .. }));
    station.others_do_not_notice();
}

/// Covers: MPA-5044-7.1.1-10, MPA-5044-7.1.1-11
#[test]
fn corner_17_reserved_bits_are_not_looked_at() {
    let station = Station::new(hasty());
    for flags in [0x0f, 0x20, 0x2f] {
        let mut octets = request().octets();
        octets[16] |= flags;
        let mut raw = Raw::connect(station.addr());
        raw.send(&octets);
        let incoming = station.listener.accept(Some(DEADLINE)).unwrap().unwrap();
        let (_pd, _send_cq, _recv_cq, qp) = parts(&station.device, 16);
        incoming.accept(&qp, &ConnectParams::default()).unwrap();
        assert_eq!(raw.startup(FrameKind::Reply), reply());
    }
    let dialing = Dialing::new(&station, &ConnectParams::default());
    let (mut raw, asked) = dialing.peer();
    assert_eq!(asked, request());
    let mut octets = reply().octets();
    octets[16] |= 0x0f;
    raw.send(&octets);
    assert!(matches!(dialing.event(), EventKind::Established { .. }));
}

/// Covers: EMPA-6581-6-05, EMPA-6581-10-02, EMPA-6581-10-04, EMPA-6581-10-05, EMPA-6581-10-06,
/// EMPA-6581-10-01
#[test]
fn corner_19_the_answer_has_the_form_of_the_question() {
    let station = Station::new(hasty());
    for (rev, enhanced) in [(1, None), (2, None), (2, Some(depths(16, 16)))] {
        let asked = Startup { rev, enhanced, ..request() };
        let (end, mut raw, answer) = station.accept(&asked, &ConnectParams::default());
        assert_eq!(answer, Startup { kind: FrameKind::Reply, ..asked });
        end.post_recv(1, &[]);
        raw.send_ulpdu(&send(1, b""));
        end.received();
    }
    // In revision 1 the flag is one of the reserved bits: the word is private data.
    let mut octets = Startup { rev: 2, ..request() }.octets();
    octets[17] = 1;
    let mut raw = Raw::connect(station.addr());
    raw.send(&octets);
    let incoming = station.listener.accept(Some(DEADLINE)).unwrap().unwrap();
    assert_eq!(incoming.private_data(), [0, 16, 0, 16]);
    assert_eq!(incoming.read_depths(), (None, None));
}

/// A responder that was told to speak revision 1 only closes on revision 2.
///
/// Covers: EMPA-6581-10-07
#[test]
fn corner_18_a_responder_of_revision_1_closes_on_2() {
    let station = Station::new(hasty());
    let old = Station::new(hasty().revision(1));
    is_dropped(&old, &request().octets());
    let plain = Startup { rev: 1, enhanced: None, ..request() };
    let (_end, _raw, answer) = old.accept(&plain, &ConnectParams::default());
    assert_eq!(answer.rev, 1);
    station.others_do_not_notice();
}

/// Covers: EMPA-6581-10-08, EMPA-6581-10-03
#[test]
fn corner_19_an_initiator_falls_back_to_revision_1() {
    let station = Station::new(hasty());
    for reset in [false, true] {
        let dialing = Dialing::new(&station, &saying(b"who is there"));
        let (raw, first) = dialing.peer();
        assert_eq!((first.rev, first.enhanced.is_some()), (2, true));
        if reset {
            raw.reset()
        } else {
            drop(raw)
        }
        let (mut raw, second) = dialing.peer();
        assert_eq!((second.rev, second.enhanced), (1, None));
        assert_eq!(second.private_data, b"who is there");
        raw.send(&Startup { rev: 1, enhanced: None, ..reply() }.octets());
        assert!(matches!(dialing.event(), EventKind::Established { .. }));
        drop(raw);
    }
    // Not if it was told otherwise.
    let strict = Station::new(hasty().fall_back(false));
    let dialing = Dialing::new(&strict, &ConnectParams::default());
    drop(dialing.peer());
    let failed = dialing.event();
    assert!(
        matches!(failed, EventKind::ConnectError(ConnectError::Startup(StartupError::Closed))),
        "{failed:?}"
    );
    // Nor without end.
    let dialing = Dialing::new(&station, &ConnectParams::default());
    drop(dialing.peer());
    drop(dialing.peer());
    assert!(matches!(dialing.event(), EventKind::ConnectError(_)));
}

/// Covers: MPA-5044-7.1.1-16, MPA-5044-7.1.1-18, MPA-5044-7.1.1-19, MPA-5044-7.1.2-07
#[test]
fn corner_21_private_data_of_every_length() {
    let station = Station::new(hasty());
    for (enhanced, len) in
        [(true, 0), (true, 1), (true, 508), (false, 0), (false, 508), (false, 512)]
    {
        let private_data: Vec<_> = (0..len).map(|n| n as u8).collect();
        let (rev, enhanced) = if enhanced { (2, Some(depths(1, 1))) } else { (1, None) };
        let asked = Startup { rev, enhanced, private_data: private_data.clone(), ..request() };
        let (end, _raw, answer) = station.accept(&asked, &saying(&private_data));
        assert_eq!(end.connection.private_data(), private_data);
        assert_eq!(answer.private_data, private_data);
    }
    // One more than fits is refused before anything is sent.
    let (_pd, _send_cq, _recv_cq, qp) = parts(&station.device, 16);
    let mut raw = Raw::connect(station.addr());
    raw.send(&request().octets());
    let incoming = station.listener.accept(Some(DEADLINE)).unwrap().unwrap();
    let refused = incoming.accept(&qp, &saying(&[0; 509]));
    assert!(
        matches!(refused, Err(ConnectError::Startup(StartupError::PrivateDataTooLong(509)))),
        "{refused:?}"
    );
    raw.expect_end();
}

/// Covers: MPA-5044-7.1.2-04, MPA-5044-7.1.2-05, MPA-5044-7.1.2-16, EMPA-6581-10-05
#[test]
fn corner_26_a_refusal_says_why() {
    let station = Station::new(hasty());
    for enhanced in [None, Some(depths(4, 4))] {
        let mut raw = Raw::connect(station.addr());
        raw.send(&Startup { enhanced, ..request() }.octets());
        let incoming = station.listener.accept(Some(DEADLINE)).unwrap().unwrap();
        incoming.reject(b"not today").unwrap();
        let answer = raw.startup(FrameKind::Reply);
        assert!(answer.rejected);
        assert_eq!(answer.private_data, b"not today");
        assert_eq!(answer.enhanced.is_some(), enhanced.is_some());
        raw.expect_end();
    }
    station.settled();
}

/// Covers: MPA-5044-7.1.1-10, EMPA-6581-9.1-11
#[test]
fn corner_26_a_refusal_reaches_the_program() {
    let station = Station::new(hasty());
    for (enhanced, more) in [(None, false), (Some(depths(3, 5)), false), (Some(depths(3, 5)), true)]
    {
        let dialing = Dialing::new(&station, &ConnectParams::default());
        let (mut raw, _) = dialing.peer();
        let private_data = b"not today".to_vec();
        let answer = Startup { rejected: true, enhanced, private_data, ..reply() };
        let mut octets = answer.octets();
        if more {
            // They belong to the program, which has no use for them here.
            octets.extend(b"streaming mode");
        }
        raw.send(&octets);
        match dialing.event() {
            EventKind::Rejected { private_data, ird, ord, .. } => {
                assert_eq!(private_data, b"not today");
                assert_eq!((ird, ord), enhanced.map_or((None, None), |_| (Some(3), Some(5))));
            }
            other => panic!("{other:?}"),
        }
        raw.expect_end();
        assert_eq!(dialing.qp.state(), QpState::Init);
    }
}

/// Covers: EMPA-6581-9.1-01, EMPA-6581-9.1-02, EMPA-6581-9.1-04, EMPA-6581-9.1-12,
/// EMPA-6581-9.1-13, EMPA-6581-9.1-15, EMPA-6581-9.1-17, RDMAP-5040-6.1-02, RDMAP-5040-6.1-03
#[test]
fn corner_24_a_responder_agrees_on_depths() {
    let station = Station::new(hasty());
    let no = ULP_NEGOTIATES;
    // The depths that the peer offers and the program wants; those answered, ORD and IRD in use.
    for (asked, own, answered, used) in [
        ((4, 8), (16, 16), (16, 4), (4, 16)),
        ((32, 2), (16, 16), (16, 16), (16, 16)),
        ((0, 0), (16, 16), (16, 0), (0, 16)),
        ((1, 1), (0, 0), (0, 0), (0, 0)),
        ((no, 4), (7, 9), (7, no), (9, 7)),
        ((4, no), (7, 9), (no, 4), (4, 7)),
        ((no, no), (7, 9), (no, no), (9, 7)),
    ] {
        let asking = Startup { enhanced: Some(depths(asked.0, asked.1)), ..request() };
        let mut raw = Raw::connect(station.addr());
        raw.send(&asking.octets());
        let incoming = station.listener.accept(Some(DEADLINE)).unwrap().unwrap();
        assert_eq!(incoming.read_depths(), (Some(asked.0), Some(asked.1)));
        let (_pd, _send_cq, _recv_cq, qp) = parts(&station.device, 16);
        let _connection = incoming.accept(&qp, &deep(own.0, own.1)).unwrap();
        let answer = raw.startup(FrameKind::Reply).enhanced.unwrap();
        assert_eq!((answer.ird, answer.ord), answered, "{asked:?} {own:?}");
        assert_eq!(qp.read_depths(), used, "{asked:?} {own:?}");
    }
}

/// Covers: EMPA-6581-9.1-08, EMPA-6581-9.1-14, EMPA-6581-9.1-16,
/// EMPA-6581-9.1-17
#[test]
fn corner_24_an_initiator_agrees_on_depths() {
    let station = Station::new(hasty());
    let no = ULP_NEGOTIATES;
    // The depths that the program wants and the peer answers; ORD and IRD in use.
    for (own, answered, used) in [
        ((16, 16), (4, 8), (4, 16)),
        ((16, 2), (32, 16), (2, 16)),
        ((16, 16), (0, 0), (0, 16)),
        ((7, 9), (no, 3), (9, 7)),
        ((7, 9), (4, no), (4, 7)),
        ((7, 9), (no, no), (9, 7)),
    ] {
        let mut depth_asked = (0, 0);
        let (end, raw, _) = station.connect(&deep(own.0, own.1), |asked| {
            let word = asked.enhanced.unwrap();
            depth_asked = (word.ird, word.ord);
            Startup { enhanced: Some(depths(answered.0, answered.1)), ..reply() }
        });
        let end = end.unwrap();
        assert_eq!(depth_asked, own);
        assert_eq!(end.qp.read_depths(), used, "{own:?} {answered:?}");
        drop(raw);
    }
}

/// An initiator that cannot keep what was agreed enters Full Operation to say so.
///
/// Covers: EMPA-6581-9.1-09, EMPA-6581-9.1-10, EMPA-6581-9.2-10, EMPA-6581-9.2-11,
/// EMPA-6581-8-01, EMPA-6581-9.1-06, EMPA-6581-9.1-07
#[test]
fn corner_29_terms_that_cannot_be_kept_are_answered_by_a_terminate() {
    let write_only =
        EnhancedData { peer_to_peer: true, rtr: only(false, true, false), ..depths(4, 4) };
    for (peer_to_peer, word, fault, expected) in [
        (false, depths(16, 5), StartupFault::InsufficientIrd, 6),
        (false, write_only, StartupFault::NoMatchingRtr, 7),
        (true, write_only, StartupFault::NoMatchingRtr, 7),
        (true, depths(4, 4), StartupFault::NoMatchingRtr, 7),
    ] {
        let rtr = only(false, false, true);
        for markers in [false, true] {
            let station = Station::new(hasty().peer_to_peer(peer_to_peer).rtr(rtr));
            let (end, mut raw, _) = station.connect(&deep(4, 4), |_| Startup {
                markers,
                enhanced: Some(word),
                ..reply()
            });
            match end {
                Err(ConnectError::Terms(got)) => assert_eq!(got, fault),
                other => panic!("{:?}", other.map(|end| end.qp.state())),
            }
            let Heard::Ulpdu(ulpdu) = raw.hear() else { panic!("no Terminate") };
            let (header, payload) = split(&ulpdu);
            assert_eq!(opcode(&header), Opcode::Terminate as u8);
            assert_eq!(payload, [0x20, expected, 0, 0]);
            assert_eq!(raw.hear(), Heard::Fin);
            drop(raw);
            station.settled();
            station.others_do_not_notice();
        }
    }
}

/// Covers: EMPA-6581-9.2-01, EMPA-6581-9.2-02, EMPA-6581-9.2-09, EMPA-6581-5-02,
/// EMPA-6581-9.3-02
#[test]
fn corner_27_an_initiator_begins_with_the_indication() {
    for (rtr, expected) in [
        (only(true, false, false), Opcode::Send),
        (only(false, true, false), Opcode::Write),
        (only(false, false, true), Opcode::ReadRequest),
    ] {
        let station = Station::new(hasty().peer_to_peer(true).rtr(rtr));
        let (end, mut raw, asked) = station.connect(&deep(4, 4), |asked| Startup {
            enhanced: Some(EnhancedData { rtr: RtrTypes::ALL, ..asked.enhanced.unwrap() }),
            ..reply()
        });
        let end = end.unwrap();
        let word = asked.enhanced.unwrap();
        assert!(word.peer_to_peer);
        assert_eq!(word.rtr, rtr);
        end.send(1, &[]);
        let Heard::Ulpdu(ulpdu) = raw.hear() else { panic!("no indication") };
        let (header, payload) = split(&ulpdu);
        assert_eq!(opcode(&header), expected as u8);
        if expected == Opcode::ReadRequest {
            assert_eq!(payload[12..16], [0; 4], "octets are asked for");
        } else {
            assert_eq!(payload, [0_u8; 0]);
        }
        let (header, _) = raw.expect(Opcode::Send);
        let iwarp_proto::ddp::wire::Header::Untagged(header) = header else { panic!("tagged") };
        assert_eq!(header.msn.0, if expected == Opcode::Send { 2 } else { 1 });
        assert_eq!(end.sent().wr_id, 1);
        // The indication itself raises no completion.
        assert_eq!(end.send_cq.poll_one(), None);
    }
}

/// Covers: EMPA-6581-9.2-03, EMPA-6581-9.2-04, EMPA-6581-9.2-05, EMPA-6581-9.2-06,
/// EMPA-6581-9.2-08, EMPA-6581-9.1-03, EMPA-6581-1.1-01
#[test]
fn corner_27_a_responder_waits_for_the_indication() {
    let kinds = [only(true, false, false), only(false, true, false), only(false, false, true)];
    for kind in kinds {
        let station = Station::new(hasty().rtr(iwarp::RtrTypes::ALL));
        let mut raw = Raw::connect(station.addr());
        let word = EnhancedData { peer_to_peer: true, rtr: kind, ..depths(4, 0) };
        raw.send(&Startup { enhanced: Some(word), ..request() }.octets());
        let incoming = station.listener.accept(Some(DEADLINE)).unwrap().unwrap();
        let (_pd, send_cq, recv_cq, qp) = parts(&station.device, 16);
        qp.post_recv(&RecvRequest::new(5, &[])).unwrap();
        let connection = incoming.accept(&qp, &deep(0, 4)).unwrap();
        let answer = raw.startup(FrameKind::Reply).enhanced.unwrap();
        assert!(answer.peer_to_peer);
        assert_eq!(answer.rtr, kind);
        // Room for the Read that is the indication, though the program wants none.
        assert_eq!(answer.ird, u16::from(kind.read));
        let indication = match kind {
            iwarp::RtrTypes { send: true, .. } => send(1, b""),
            iwarp::RtrTypes { write: true, .. } => write(Stag(u32::MAX), u64::MAX, b""),
            _ => read_request(1, 0, Stag(u32::MAX), u64::MAX),
        };
        assert!(raw.is_silent(Duration::from_millis(30)));
        raw.send_ulpdu(&indication);
        if kind.read {
            assert_eq!(raw.expect(Opcode::ReadResponse).1, [0_u8; 0]);
        }
        if kind.send {
            let completion = next(&recv_cq);
            assert_eq!((completion.wr_id, completion.byte_len), (5, 0));
        } else {
            assert_eq!(recv_cq.poll_one(), None);
        }
        assert_eq!(send_cq.poll_one(), None);
        drop(raw);
        let ended = connection.wait_disconnected(Some(DEADLINE));
        assert!(matches!(ended, Some(Ended::Closed | Ended::Lost)), "{ended:?}");
    }
    // A peer whose indications this end does not have hears which it has.
    let station = Station::new(hasty().rtr(only(false, true, false)));
    let word = EnhancedData { peer_to_peer: true, rtr: only(true, false, true), ..depths(4, 4) };
    let asked = Startup { enhanced: Some(word), ..request() };
    let (_end, _raw, answer) = station.accept(&asked, &ConnectParams::default());
    assert_eq!(answer.enhanced.unwrap().rtr, only(false, true, false));
}

/// Covers: EMPA-6581-9.2-12, EMPA-6581-9.2-13, EMPA-6581-9.2-14, EMPA-6581-9.2-15
#[test]
fn corner_30_without_the_model_there_are_no_indications() {
    let station = Station::new(hasty());
    let dialing = Dialing::new(&station, &ConnectParams::default());
    let (mut raw, asked) = dialing.peer();
    assert_eq!(asked.enhanced, Some(depths(16, 16)));
    // B, C and D in the answer mean nothing.
    let mut octets = reply().octets();
    octets[20] |= 0x40;
    octets[22] |= 0xc0;
    raw.send(&octets);
    assert!(matches!(dialing.event(), EventKind::Established { .. }));
    // The responder's side of it.
    let mut octets = request().octets();
    octets[20] |= 0x40;
    octets[22] |= 0xc0;
    let mut raw = Raw::connect(station.addr());
    raw.send(&octets);
    let incoming = station.listener.accept(Some(DEADLINE)).unwrap().unwrap();
    let (_pd, _send_cq, _recv_cq, qp) = parts(&station.device, 16);
    let _connection = incoming.accept(&qp, &ConnectParams::default()).unwrap();
    assert_eq!(raw.startup(FrameKind::Reply).enhanced, Some(depths(16, 16)));
}

/// The peer's program waits for what this end may not send before the peer does: without a word,
/// both would just wait.
#[test]
fn a_user_is_told_why_work_waits_for_a_silent_initiator() {
    // The whole process has to listen.
    if passed_apart(this_test!(), DEADLINE * 2) {
        return;
    }
    let reports = Reports::listen();
    let station = Station::new(hasty());
    let (end, mut raw, _) = station.accept(&request(), &ConnectParams::default());
    end.send(1, &[]);
    until("a word of it", || {
        reports.lines().iter().any(|line| line.contains("IWARP_PEER_TO_PEER=any")).then_some(())
    });
    raw.greet();
    raw.expect(Opcode::Send);
    assert_eq!(end.sent().wr_id, 1);
    assert_eq!(reports.lines().len(), 1, "{:?}", reports.lines());
}

/// Covers: MPA-5044-7.1.1-08, MPA-5044-4.4-07
#[test]
fn corner_08_either_end_can_have_crcs() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let station = Station::new(hasty().crc(ours));
        let (end, mut raw, asked) =
            station.connect(&ConnectParams::default(), |_| Startup { crc: theirs, ..reply() });
        let end = end.unwrap();
        assert_eq!(asked.crc, ours);
        end.post_recv(1, &[]);
        end.send(2, &[]);
        // With CRCs the raw peer checks them.
        raw.expect(Opcode::Send);
        end.sent();
        let mut octets = raw.frame(&send(1, b""));
        let at = octets.len() - 1;
        octets[at] ^= 1;
        raw.send(&octets);
        if ours || theirs {
            let code = TerminateCode { layer: 2, etype: 0, code: 2 }.reason();
            assert_eq!(raw.expect_terminate(), [0x20, 2, 0, 0]);
            end.ended(Ended::Fault(code), 0, 1);
        } else {
            assert_eq!(next(&end.recv_cq).status, WcStatus::Success);
        }
    }
}

/// Covers: MPA-5044-7.1.2-26, MPA-5044-7.1.2-12
#[test]
fn octets_do_not_follow_a_request_before_the_reply() {
    let station = Station::new(hasty());
    let dialing = Dialing::new(&station, &saying(b"hello"));
    let (mut raw, asked) = dialing.peer();
    assert_eq!(asked.private_data, b"hello");
    assert!(raw.is_silent(Duration::from_millis(50)));
    // The Reply may come in pieces.
    for octet in reply().octets().chunks(1) {
        raw.send(octet);
    }
    assert!(matches!(dialing.event(), EventKind::Established { .. }));
    assert_eq!(dialing.qp.state(), QpState::Rts);
    dialing.qp.post_recv(&RecvRequest::new(1, &[])).unwrap();
    raw.send_ulpdu(&send(1, b""));
    next(&dialing.recv_cq);
    assert_eq!(dialing.send_cq.poll_one(), None);
}

/// A peer that breaks off during start-up costs nothing.
#[test]
fn resets_during_startup() {
    let station = Station::new(hasty().startup_timeout(DEADLINE * 2));
    let octets = request().octets();
    for sent in [0, 7, octets.len()] {
        let mut raw = Raw::connect(station.addr());
        raw.send(&octets[..sent]);
        let incoming = (sent == octets.len())
            .then(|| station.listener.accept(Some(DEADLINE)).unwrap().expect("a request"));
        raw.reset();
        if let Some(incoming) = incoming {
            // The program may notice now or when it uses the connection.
            let (_pd, _send_cq, _recv_cq, qp) = parts(&station.device, 16);
            if let Ok(connection) = incoming.accept(&qp, &ConnectParams::default()) {
                let why = connection.wait_disconnected(Some(DEADLINE));
                assert_eq!(why, Some(Ended::Lost));
            }
        }
        station.others_do_not_notice();
    }
    let dialing = Dialing::new(&station, &ConnectParams::default());
    for _ in 0..2 {
        let (raw, _) = dialing.peer();
        raw.reset();
    }
    let failed = dialing.event();
    assert!(matches!(failed, EventKind::ConnectError(ConnectError::Io(_))), "{failed:?}");
    station.settled();
}
