// SPDX-License-Identifier: MIT OR Apache-2.0

//! The first FPDUs of a stream: ready-to-receive indications (RFC 6581 §9.2), the responder that
//! waits for them (RFC 5044 §7.1.2), and the zero-length Write by which our own kind is known.

use core::time::Duration;

use super::octets::{self, send, tagged, untagged, word};
use super::*;
use crate::mpa::error::StartupFault;
use crate::mpa::startup::Rtr;
use crate::qp::Capabilities;
use crate::rdmap::hello::PeerKind;

const MAGIC_STAG: u32 = 0x6957_4152;
const MAGIC_TO: u64 = 0x5048_454c_0100_0000;

fn asking() -> Config {
    Config { extensions: Extensions::Ask, ..config() }
}

/// Our own kind's first FPDU.
fn hello(capabilities: u64) -> Vec<u8> {
    tagged(octets::WRITE, true, MAGIC_STAG, MAGIC_TO | capabilities, &[])
}

fn peer_to_peer(rtr: Rtr) -> impl Fn(&mut Negotiated) {
    move |terms| {
        terms.peer_to_peer = true;
        terms.rtr = (terms.role == Role::Initiator).then_some(rtr);
    }
}

/// Covers: EMPA-6581-5-02, EMPA-6581-9.2-09
#[test]
fn corner_27_the_rtr_goes_out_before_anything_else_and_completes_nothing() {
    for rtr in [Rtr::Send, Rtr::Write, Rtr::Read] {
        let mut raw = Raw::initiator(config(), peer_to_peer(rtr));
        assert_eq!(raw.end.qp.borrow().pending_rtr(), Some(rtr));
        raw.end.post(1, SEND, &[local(0, 4)]);
        let back = raw.back();
        let mut read = octets::read_request(1, 0, 0, 0);
        read[18..30].copy_from_slice(back[0].get(18..30).unwrap_or(&[0; 12]));
        let (expected, next_send) = match rtr {
            Rtr::Send => (send(1, &[]), 2),
            Rtr::Write => (tagged(octets::WRITE, true, 0, 0, &[]), 1),
            Rtr::Read => (read, 1),
        };
        assert_eq!(back, [expected, send(next_send, &[0; 4])]);
        assert_eq!(raw.end.qp.borrow().pending_rtr(), None);
        assert_eq!(outcomes(&raw.end.completions()), [(1, WcStatus::Success, WcOp::Send)]);
        if rtr == Rtr::Read {
            // It holds a slot of ORD until it is answered, and the answer completes nothing.
            let (stag, to) = (word(&back[0], 18), octets::long(&back[0], 22));
            raw.send(&tagged(octets::READ_RESPONSE, true, stag, to, &[]));
            assert_eq!(raw.end.events(), []);
            raw.send(&tagged(octets::READ_RESPONSE, true, stag, to, &[]));
            assert!(matches!(raw.end.events()[..], [Event::Fault(_)]));
        }
    }
}

/// Covers: EMPA-6581-9.3-02
#[test]
fn corner_27_a_read_rtr_takes_a_slot_of_ord() {
    let mut raw = Raw::initiator(config(), |terms| {
        peer_to_peer(Rtr::Read)(terms);
        terms.ord = 1;
    });
    raw.end.post(1, read_op(0), &[]);
    let first = raw.back();
    assert_eq!(first.len(), 1);
    let (stag, to) = (word(&first[0], 18), octets::long(&first[0], 22));
    raw.send(&tagged(octets::READ_RESPONSE, true, stag, to, &[]));
    let second = raw.back();
    assert_eq!((second.len(), word(&second[0], 10)), (1, 2));
}

/// Covers: EMPA-6581-1.1-01
#[test]
fn corner_27_a_responder_takes_every_rtr() {
    // A Send takes a receive and completes it with length zero.
    let mut raw = Raw::responder(config(), peer_to_peer(Rtr::Send));
    raw.end.receive(1, &[local(0, 8)]);
    raw.end.post(2, SEND, &[]);
    raw.send(&send(1, &[]));
    let events = raw.end.events();
    assert_eq!(events[0], Event::FirstHeard);
    assert!(matches!(events[1], Event::ReceiveCompleted(wc) if wc.byte_len == 0));
    assert_eq!(raw.back(), [send(1, &[])]);
    // A Write and a Read complete nothing; the Read is answered.
    let write = tagged(octets::WRITE, true, 0xbad, 7, &[]);
    let read = octets::read_request(1, 0, 0xbad, 7);
    for (rtr, frame, answers) in [(Rtr::Write, write, 0), (Rtr::Read, read, 1)] {
        let mut raw = Raw::responder(config(), peer_to_peer(rtr));
        raw.end.receive(1, &[local(0, 8)]);
        raw.send(&frame);
        assert_eq!(raw.end.events(), [Event::FirstHeard]);
        assert_eq!(raw.back().len(), answers);
    }
}

/// Covers: MPA-5044-7.1.2-13
#[test]
fn corner_28_a_responder_sends_nothing_before_it_has_a_validated_fpdu() {
    for markers in [false, true] {
        let mut raw = Raw::responder(asking(), |terms| {
            (terms.send_markers, terms.receive_markers) = (markers, markers);
        });
        raw.end.receive(9, &[]);
        raw.end.post(1, SEND, &[]);
        raw.end.post(2, read_op(0), &[]);
        let fpdu = raw.fpdu(&send(1, &[]));
        for octet in &fpdu[..fpdu.len() - 1] {
            raw.end.arrive(&[*octet]);
            assert!(!raw.end.qp.borrow_mut().wants_transmit());
            assert!(raw.end.take_all().is_empty(), "not even a marker");
            assert_eq!(raw.end.events(), []);
        }
        raw.end.arrive(&fpdu[fpdu.len() - 1..]);
        assert_eq!(raw.end.events()[0], Event::FirstHeard);
        assert_eq!(
            raw.back(),
            [hello(15), send(1, &[]), {
                let mut read = octets::read_request(1, 0, OPEN, OPEN_BASE);
                read[18..30].copy_from_slice(&[0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
                read
            }]
        );
        // It is said once.
        raw.send(&tagged(octets::WRITE, true, 0, 0, &[]));
        assert!(!raw.end.events().contains(&Event::FirstHeard));
    }
}

/// RFC 5044 §7.1.2(4) would have it silent, §8 and RFC 5040 §6.2.1 speak for the Terminate: the
/// initiator is in Full Operation and can read it.
#[test]
fn corner_28_a_responder_reports_a_bad_first_fpdu() {
    let mut raw = Raw::responder(config(), |_| {});
    raw.end.post(1, SEND, &[]);
    let mut fpdu = raw.fpdu(&send(1, &[]));
    fpdu[10] ^= 1;
    raw.end.arrive(&fpdu);
    assert_eq!(raw.terminate(), [0x20, 0x02, 0, 0]);
    // Good framing with bad contents is a validated FPDU for MPA.
    let mut raw = Raw::responder(config(), |_| {});
    let ulpdu = send(1, &[]);
    assert_eq!(raw.refuse(&ulpdu), quoting([0x12, 0x02], 18, &ulpdu, &[]));
}

/// Covers: EMPA-6581-8-01, EMPA-6581-9.1-06, EMPA-6581-9.1-09, EMPA-6581-9.1-10,
/// EMPA-6581-9.2-10, EMPA-6581-9.2-11, EMPA-6581-9.3-01, EMPA-6581-5-02
#[test]
fn corner_29_terms_that_cannot_be_kept_end_in_a_terminate_instead_of_the_rtr() {
    for (fault, code) in [
        (StartupFault::Local, 5),
        (StartupFault::InsufficientIrd, 6),
        (StartupFault::NoMatchingRtr, 7),
    ] {
        for (crc, markers) in [(true, false), (true, true), (false, false)] {
            let mut raw = Raw::initiator(asking(), |terms| {
                peer_to_peer(Rtr::Send)(terms);
                terms.fault = Some(fault);
                (terms.crc, terms.send_markers) = (crc, markers);
            });
            assert_eq!(raw.terminate(), [0x20, code, 0, 0]);
            assert_eq!(raw.end.events(), [Event::Fault(crate::qp::Fault::Startup(fault))]);
        }
    }
}

/// Linux siw may overlook the frame behind its Reply; an empty Write makes it look again.
#[test]
fn an_initiator_that_hears_nothing_sends_an_empty_write_once() {
    let nudged = Config { nudge: Some(Duration::from_millis(200)), ..asking() };
    let mut raw = Raw::initiator(nudged, |_| {});
    assert_eq!(raw.back(), [hello(15)]);
    let at = |millis| Time(Duration::from_millis(millis));
    assert_eq!(raw.end.qp.borrow().poll_timeout(), Some(at(200)));
    raw.end.qp.borrow_mut().handle_timeout(at(199));
    assert!(!raw.end.qp.borrow_mut().wants_transmit());
    raw.end.qp.borrow_mut().handle_timeout(at(200));
    let sent = raw.back();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0][..2], [0xc1, octets::WRITE]);
    assert_eq!((sent[0].len(), raw.end.qp.borrow().poll_timeout()), (14, None));
}

#[test]
fn an_initiator_that_was_answered_sends_no_empty_write() {
    let nudged = Config { nudge: Some(Duration::from_millis(200)), ..asking() };
    let mut raw = Raw::initiator(nudged, |_| {});
    assert_eq!(raw.back(), [hello(15)]);
    raw.send(&hello(15));
    assert_eq!(raw.end.qp.borrow().poll_timeout(), None);
    raw.end.qp.borrow_mut().handle_timeout(Time(Duration::from_secs(1)));
    assert!(raw.back().is_empty());
}

#[test]
fn a_responder_whose_work_waits_for_a_silent_initiator_tells_of_it_once() {
    let at = |millis| Time(Duration::from_millis(millis));
    let telling = Config { tell_held_back: Some(Duration::from_secs(2)), ..asking() };
    let mut raw = Raw::responder(telling, |_| {});
    let now = |raw: &Raw, millis| {
        raw.end.qp.borrow_mut().handle_timeout(at(millis));
        raw.end.events()
    };
    assert_eq!(raw.end.qp.borrow().poll_timeout(), None, "nothing waits");
    assert_eq!(now(&raw, 5000), []);
    raw.end.post(1, SEND, &[]);
    assert!(raw.end.qp.borrow().may_want_time());
    assert_eq!(raw.end.qp.borrow().poll_timeout(), Some(at(2000)));
    assert_eq!(now(&raw, 1999), []);
    assert_eq!(now(&raw, 5001), [Event::HeldBack]);
    assert_eq!((now(&raw, 9000), raw.end.qp.borrow().poll_timeout()), (vec![], None));
    assert!(raw.back().is_empty());
    raw.send(&hello(0));
    assert!(raw.back().contains(&send(1, &[])), "the peer has spoken");
}

#[test]
fn a_responder_that_has_heard_something_in_time_tells_of_nothing() {
    let telling = Config { tell_held_back: Some(Duration::from_secs(2)), ..asking() };
    let mut raw = Raw::responder(telling, |_| {});
    raw.end.post(1, SEND, &[]);
    raw.send(&hello(0));
    raw.end.events();
    raw.end.qp.borrow_mut().handle_timeout(Time(Duration::from_secs(3)));
    assert_eq!((raw.end.events(), raw.end.qp.borrow().poll_timeout()), (vec![], None));
}

#[test]
fn our_own_kind_is_known_by_its_first_fpdu() {
    let mut raw = Raw::initiator(asking(), |_| {});
    raw.end.post(1, SEND, &[]);
    raw.end.post(2, add_op(0, 1), &[local(0, 8)]);
    raw.end.post(3, SEND, &[]);
    assert_eq!(raw.back(), [hello(15), send(1, &[])], "the FetchAdd waits, and all behind it");
    assert_eq!(raw.end.qp.borrow().poll_timeout(), Some(Time(Duration::from_secs(3))));
    raw.send(&hello(15));
    assert!(raw.end.qp.borrow_mut().wants_transmit());
    let opcodes: Vec<u8> = raw.back().iter().map(|ulpdu| ulpdu[1]).collect();
    assert_eq!(opcodes, [octets::ATOMIC_REQUEST, octets::SEND]);
    assert_eq!(raw.end.qp.borrow().poll_timeout(), None);
}

/// Covers: EXT-7306-1.1-01
#[test]
fn two_of_our_kind_use_the_extensions_whatever_the_rtr() {
    let rtrs = [None, Some(Rtr::Send), Some(Rtr::Write), Some(Rtr::Read)];
    for rtr in rtrs {
        let mut pair = Pair::with(asking(), |terms| {
            if let Some(rtr) = rtr {
                peer_to_peer(rtr)(terms);
            }
        });
        if rtr == Some(Rtr::Send) {
            pair.b.receive(70, &[]);
        }
        for end in [&pair.a, &pair.b] {
            end.receive(1, &[]);
            end.post(2, add_op(0, 1), &[local(0, 8)]);
            end.post(3, SendOp::Immediate { solicited: false, data: *b"12345678" }, &[]);
        }
        pair.run();
        for (end, rtr_receives) in [(&pair.a, 0), (&pair.b, usize::from(rtr == Some(Rtr::Send)))] {
            let completions = end.completions();
            assert_eq!(completions.len(), 3 + rtr_receives, "{rtr:?}");
            assert!(completions.iter().all(|wc| wc.status == WcStatus::Success));
            assert!(completions.iter().any(|wc| wc.immediate == Some(*b"12345678")));
        }
    }
    // An agreed Write is the hello itself.
    let mut raw = Raw::initiator(asking(), peer_to_peer(Rtr::Write));
    assert_eq!(raw.back(), [hello(15)]);
}

/// Covers: EXT-7306-1.1-02
#[test]
fn corner_67_operations_that_the_peer_lacks_fail_alone() {
    type Say = fn(&mut Raw);
    let cases: [(&str, Say); 4] = [
        ("something else", |raw| raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"x"))),
        ("another empty Write", |raw| raw.send(&tagged(octets::WRITE, true, MAGIC_STAG, 1, &[]))),
        ("no capabilities", |raw| raw.send(&hello(0))),
        ("nothing in time", |raw| {
            let mut qp = raw.end.qp.borrow_mut();
            qp.handle_timeout(Time(Duration::from_millis(2999)));
            assert!(qp.poll_timeout().is_some());
            qp.handle_timeout(Time(Duration::from_secs(3)));
        }),
    ];
    for (what, say) in cases {
        let mut raw = Raw::initiator(asking(), |_| {});
        raw.end.post(1, add_op(0, 1), &[local(0, 8)]);
        raw.end.post(2, SendOp::Immediate { solicited: false, data: [0; 8] }, &[]);
        raw.end.post(3, SEND, &[]);
        assert_eq!(raw.back(), [hello(15)]);
        say(&mut raw);
        assert_eq!(raw.back(), [send(1, &[])], "{what}");
        assert_eq!(
            outcomes(&raw.end.completions()),
            [
                (1, WcStatus::RemoteInvalidRequest, WcOp::FetchAdd),
                (2, WcStatus::RemoteInvalidRequest, WcOp::Immediate),
                (3, WcStatus::Success, WcOp::Send)
            ],
            "{what}"
        );
        assert_eq!((raw.end.state(), raw.end.qp.borrow().poll_timeout()), (QpState::Rts, None));
    }
}

#[test]
fn a_peer_of_another_version_has_what_it_says() {
    let mut raw = Raw::initiator(asking(), |_| {});
    raw.end.post(1, add_op(0, 1), &[local(0, 8)]);
    raw.end.post(2, SendOp::Immediate { solicited: false, data: [0; 8] }, &[]);
    raw.back();
    // Version 9 with Immediate Data and capabilities unheard of, but no atomics.
    let later = (MAGIC_TO + (8 << 24)) | 0x00ff_fffe;
    raw.send(&tagged(octets::WRITE, true, MAGIC_STAG, later, &[]));
    assert_eq!(raw.back().iter().map(|ulpdu| ulpdu[1]).collect::<Vec<_>>(), [octets::IMMEDIATE]);
    assert_eq!(
        outcomes(&raw.end.completions()),
        [
            (1, WcStatus::RemoteInvalidRequest, WcOp::FetchAdd),
            (2, WcStatus::Success, WcOp::Immediate)
        ]
    );
    assert!(Capabilities::OURS.contains(Capabilities::ATOMICS));
}

/// Covers: RDMAP-5040-7.2-02
#[test]
fn corner_67_an_end_without_the_extensions_says_unexpected_opcode() {
    let config = Config { extensions: Extensions::Refuse, ..config() };
    for ulpdu in [
        untagged(octets::IMMEDIATE, true, 0, 0, 1, 0, &[0; 8]),
        untagged(octets::IMMEDIATE_SOLICITED, true, 0, 0, 1, 0, &[0; 8]),
        octets::atomic_request(1, OPEN, OPEN_BASE, octets::fetch_add(1)),
        octets::atomic_response(1, 1, 1),
    ] {
        let mut raw = Raw::responder(config, |_| {});
        raw.end.receive(1, &[]);
        assert_eq!(raw.refuse(&ulpdu), quoting([0x02, 0x06], ulpdu.len(), &ulpdu[..18], &[]));
        assert_eq!(raw.end.host.touches(), []);
    }
    // It neither says hello nor uses them, even with a peer that has them.
    let mut raw = Raw::initiator(config, |_| {});
    raw.end.post(1, SEND, &[]);
    assert_eq!(raw.back(), [send(1, &[])]);
    raw.send(&hello(15));
    raw.end.post(2, add_op(0, 1), &[local(0, 8)]);
    assert_eq!(raw.back().len(), 0);
    assert_eq!(
        outcomes(&raw.end.completions()),
        [(1, WcStatus::Success, WcOp::Send), (2, WcStatus::RemoteInvalidRequest, WcOp::FetchAdd)]
    );
}

#[test]
fn work_that_waits_to_know_the_peer_is_flushed_with_the_stream() {
    let mut raw = Raw::initiator(asking(), |_| {});
    raw.end.post(1, add_op(0, 1), &[local(0, 8)]);
    raw.back();
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(outcomes(&raw.end.completions()), [(1, WcStatus::Flushed, WcOp::FetchAdd)]);
    assert_eq!(raw.end.qp.borrow().poll_timeout(), None);
    assert_eq!(raw.end.disposition(), Disposition::Finish);
    // Immediate Data too, as the answer could no longer be heard.
    let mut raw = Raw::initiator(asking(), |_| {});
    raw.end.post(1, SendOp::Immediate { solicited: false, data: [0; 8] }, &[]);
    raw.end.qp.borrow_mut().disconnect();
    assert_eq!(raw.back().len(), 0);
    assert_eq!(outcomes(&raw.end.completions()), [(1, WcStatus::Flushed, WcOp::Immediate)]);
}

#[test]
fn only_the_whole_magic_is_our_own_kind() {
    let known = |stag, to| {
        let mut kind = PeerKind::Unknown;
        kind.hear(Stag(stag), TaggedOffset(to), Capabilities::default());
        kind != PeerKind::Unknown
    };
    assert!(known(MAGIC_STAG, MAGIC_TO));
    assert!(!known(MAGIC_STAG ^ 1, MAGIC_TO), "another STag");
    assert!(!known(MAGIC_STAG, MAGIC_TO ^ 1 << 63), "another offset");
    assert!(!known(MAGIC_STAG, MAGIC_TO & !0xff00_0000), "a version that there is not");
}

#[test]
fn ends_whose_programs_see_different_devices_learn_of_it_where_both_say_what_they_see() {
    let (none, rnic, infiniband) =
        (Capabilities::default(), Capabilities::SEES_RNIC, Capabilities::SEES_INFINIBAND);
    for (tells, said, differ) in [
        (none, none, false),
        (none, infiniband, false),
        (rnic, none, false),
        (rnic, rnic, false),
        (infiniband, infiniband, false),
        (rnic, infiniband, true),
        (infiniband, rnic, true),
    ] {
        let mut raw = Raw::initiator(Config { tells, ..asking() }, |_| {});
        assert_eq!(raw.back(), [hello(15 | u64::from(tells.bits()))]);
        raw.send(&hello(15 | u64::from(said.bits())));
        // The event comes once, even if the hello frame comes again.
        raw.send(&hello(15 | u64::from(said.bits())));
        let expected = if differ { &[Event::OtherDevice][..] } else { &[] };
        assert_eq!(raw.end.events(), expected, "{tells:?}, {said:?}");
        assert_eq!(raw.end.state(), QpState::Rts);
    }
}
