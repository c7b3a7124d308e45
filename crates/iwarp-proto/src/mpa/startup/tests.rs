// SPDX-License-Identifier: MIT OR Apache-2.0

//! Start-up, end against end and end against hand-made frames.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::mpa::wire::{FRAME_HEADER, MAX_PRIVATE_DATA};

const NOW: Time = Time(Duration::from_secs(100));
const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
const REPLY: &[u8; 16] = b"MPA ID Rep Frame";

const M: u8 = 0x80;
const C: u8 = 0x40;
const R: u8 = 0x20;
const S: u8 = 0x10;

fn raw(key: &[u8; 16], flags: u8, rev: u8, private_data: &[u8]) -> Vec<u8> {
    let mut frame = key.to_vec();
    frame.extend([flags, rev]);
    frame.extend((private_data.len() as u16).to_be_bytes());
    frame.extend_from_slice(private_data);
    frame
}

/// An enhanced word from its four flags and two depths.
fn word(flags: &str, ird: u16, ord: u16) -> [u8; 4] {
    let bit = |flag: char, mask: u32| if flags.contains(flag) { mask } else { 0 };
    let value = bit('A', 1 << 31)
        | bit('B', 1 << 30)
        | bit('C', 1 << 15)
        | bit('D', 1 << 14)
        | u32::from(ird) << 16
        | u32::from(ord);
    value.to_be_bytes()
}

fn rev1() -> Config {
    Config::default().downgraded()
}

fn p2p(rtr: RtrTypes) -> Config {
    Config { peer_to_peer: true, rtr, ..Config::default() }
}

fn initiator(config: Config) -> Initiator {
    Initiator::new(config, b"", NOW).unwrap()
}

fn reply_to(config: Config, reply: &[u8]) -> Result<Option<(Reply, usize)>, StartupError> {
    initiator(config).receive(reply)
}

/// The terms that an Initiator takes from an accepting enhanced Reply with this word.
fn accepted(config: Config, word: [u8; 4]) -> Negotiated {
    let (reply, _) = reply_to(config, &raw(REPLY, C | S, 2, &word)).unwrap().unwrap();
    assert!(reply.accepted);
    reply.negotiated
}

fn request_to(config: Config, request: &[u8]) -> Result<Option<(Request, usize)>, StartupError> {
    Responder::new(config, NOW).receive(request)
}

fn responder(config: Config, request: &[u8]) -> Responder {
    let mut responder = Responder::new(config, NOW);
    responder.receive(request).unwrap().unwrap();
    responder
}

/// The word of the Reply with which a Responder accepts an enhanced Request with `word`.
fn answered(config: Config, word: [u8; 4], ird: u16, ord: u16) -> ([u8; 4], Negotiated) {
    let responder = responder(config, &raw(REQUEST, C | S, 2, &word));
    let (reply, negotiated) = responder.accept(ird, ord, b"").unwrap();
    assert_eq!((reply[16] & S, reply.len()), (S, 24));
    (*reply.last_chunk().unwrap(), negotiated)
}

/// Both ends' results of a whole exchange.
fn exchange(from: Config, to: Config, ird: u16, ord: u16) -> (Negotiated, Negotiated) {
    let mut initiator = initiator(from);
    let responder = responder(to, initiator.request());
    let (frame, theirs) = responder.accept(ird, ord, b"").unwrap();
    let (reply, consumed) = initiator.receive(&frame).unwrap().unwrap();
    assert!(reply.accepted && consumed == frame.len());
    (reply.negotiated, theirs)
}

/// Covers: MPA-5044-7.1.1-01, MPA-5044-7.1.1-03, MPA-5044-7.1.1-12, MPA-5044-7.1.1-16,
/// MPA-5044-7.1.2-01, MPA-5044-7.1.2-05, MPA-5044-7.1.2-07, EMPA-6581-6-02, EMPA-6581-6-04
#[test]
fn revision_1_frames_are_those_of_rfc_5044() {
    let initiator = Initiator::new(rev1(), b"hello", NOW).unwrap();
    assert_eq!(initiator.request(), raw(REQUEST, C, 1, b"hello"));
    let responder = responder(rev1(), initiator.request());
    assert_eq!(responder.accept(0, 0, b"").unwrap().0, raw(REPLY, C, 1, b""));
    assert_eq!(responder.accept(0, 0, b"you").unwrap().0, raw(REPLY, C, 1, b"you"));
}

/// Covers: MPA-5044-7.1.1-18, MPA-5044-7.1.1-19, MPA-5044-7.1.2-20, MPA-5044-7.1.2-21,
/// MPA-5044-7.1.2-22
#[test]
fn private_data_of_0_to_512_octets_reaches_the_ulp() {
    for len in [0, 1, 255, 256, MAX_PRIVATE_DATA] {
        let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut initiator = Initiator::new(rev1(), &data, NOW).unwrap();
        let mut responder = Responder::new(rev1(), NOW);
        let (request, consumed) = responder.receive(initiator.request()).unwrap().unwrap();
        assert_eq!((&request.private_data, consumed), (&data, FRAME_HEADER + len));
        let (frame, _) = responder.accept(0, 0, &data).unwrap();
        let (reply, _) = initiator.receive(&frame).unwrap().unwrap();
        assert_eq!(reply.private_data, data);
    }
}

/// Covers: MPA-5044-7.1.1-17, MPA-5044-7.1.2-03, MPA-5044-7.1.2-10, MPA-5044-7.1.2-20,
/// MPA-5044-7.1.2-23, MPA-5044-8-04
#[test]
fn a_pd_length_beyond_512_makes_the_frame_malformed() {
    for len in [513u16, 514, 0x8000, u16::MAX] {
        let mut request = raw(REQUEST, C, 1, b"");
        request[18..20].copy_from_slice(&len.to_be_bytes());
        let error = StartupError::PrivateDataTooLong(len.into());
        assert_eq!(request_to(rev1(), &request), Err(error));
        let mut reply = raw(REPLY, C, 1, b"");
        reply[18..20].copy_from_slice(&len.to_be_bytes());
        assert_eq!(reply_to(rev1(), &reply), Err(error));
    }
}

/// Covers: MPA-5044-7.1.1-02, MPA-5044-7.1.1-04, MPA-5044-7.1.2-09, MPA-5044-7.1.2-14,
/// MPA-5044-8-04
#[test]
fn a_wrong_key_is_seen_at_its_first_wrong_octet() {
    for at in 0..16 {
        for (key, is_request) in [(REQUEST, true), (REPLY, false)] {
            let mut frame = raw(key, C, 1, b"");
            frame[at] ^= 0x20;
            for len in at + 1..=frame.len() {
                let result = if is_request {
                    request_to(rev1(), &frame[..len]).map(|_| ())
                } else {
                    reply_to(rev1(), &frame[..len]).map(|_| ())
                };
                assert_eq!(result, Err(StartupError::Key));
            }
        }
    }
    assert_eq!(request_to(rev1(), b"GET / HTTP/1.1\r\n"), Err(StartupError::Key));
}

/// Covers: MPA-5044-4.4-04, MPA-5044-4.4-07, MPA-5044-4.4-08, MPA-5044-7.1.1-07,
/// MPA-5044-7.1.1-08
#[test]
fn corner_08_crc_is_on_if_either_end_wants_it() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        for rev in [1, 2] {
            let from = Config { crc: ours, rev, ..Config::default() };
            let to = Config { crc: theirs, ..Config::default() };
            let (a, b) = exchange(from, to, 1, 1);
            assert_eq!((a.crc, b.crc), (ours || theirs, ours || theirs));
            // The Reply says what is going to be: some peers insist on it.
            let responder = responder(to, initiator(from).request());
            let reply = responder.accept(1, 1, b"").unwrap().0;
            assert_eq!(reply[16] & C, if ours || theirs { C } else { 0 });
        }
        // A Reply that states only its sender's own wish has this effect too.
        let flags = if theirs { C } else { 0 };
        let config = Config { crc: ours, ..rev1() };
        let (reply, _) = reply_to(config, &raw(REPLY, flags, 1, b"")).unwrap().unwrap();
        assert_eq!(reply.negotiated.crc, ours || theirs);
    }
}

/// Covers: MPA-5044-4.4-02, MPA-5044-4.4-03
#[test]
fn crc_is_on_unless_it_is_turned_off() {
    assert!(Config::default().crc && Config::default().downgraded().crc);
    assert_eq!(initiator(Config::default()).request()[16] & C, C);
    let off = Config { crc: false, ..Config::default() };
    assert_eq!(initiator(off).request()[16] & C, 0);
}

/// Covers: MPA-5044-4.3-01, MPA-5044-4.3-13, MPA-5044-7.1.1-05, MPA-5044-7.1.1-06
#[test]
fn corner_09_m_obliges_the_sender_of_the_data_each_direction_alone() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        for rev in [1, 2] {
            let from = Config { markers: ours, rev, ..Config::default() };
            let to = Config { markers: theirs, ..Config::default() };
            assert_eq!(initiator(from).request()[16] & M, if ours { M } else { 0 });
            let (a, b) = exchange(from, to, 1, 1);
            assert_eq!((a.receive_markers, a.send_markers), (ours, theirs));
            assert_eq!((b.receive_markers, b.send_markers), (theirs, ours));
        }
    }
}

/// Covers: MPA-5044-7.1.1-17, MPA-5044-7.1.2-03
#[test]
fn corner_14_octets_behind_a_request_make_it_malformed() {
    let mut request = raw(REQUEST, C, 1, b"abc");
    request.push(0);
    assert_eq!(request_to(rev1(), &request), Err(StartupError::SurplusOctets));
}

/// An FPDU behind an accepting Reply comes too early, but is one. Behind a rejecting Reply, octets
/// belong to the ULP.
///
/// Covers: MPA-5044-7.1.1-10
#[test]
fn corner_15_octets_behind_a_reply_are_not_start_ups() {
    for (config, mut reply, accepted) in [
        (rev1(), raw(REPLY, C, 1, b"abc"), true),
        (rev1(), raw(REPLY, C, 1, b""), true),
        (rev1(), raw(REPLY, C | R, 1, b"no"), false),
        (Config::default(), raw(REPLY, C | S, 2, &word("", 1, 1)), true),
        (Config::default(), raw(REPLY, C | S | R, 2, &word("", 1, 1)), false),
    ] {
        let alone = reply_to(config, &reply).unwrap().unwrap();
        assert_eq!((alone.0.accepted, alone.1), (accepted, reply.len()));
        reply.extend_from_slice(b"what follows");
        assert_eq!(reply_to(config, &reply).unwrap(), Some(alone));
    }
}

/// A reader of as much as is missing gets the frame, and nothing of what follows.
#[test]
fn frames_say_how_much_of_them_is_missing() {
    for len in [0, 1, 4, 511, MAX_PRIVATE_DATA] {
        let frame = raw(REPLY, C, 1, &std::vec![7; len]);
        for at in 0..=frame.len() {
            let end = if at < FRAME_HEADER { FRAME_HEADER } else { frame.len() };
            assert_eq!(Frame::missing(&frame[..at]), end - at);
        }
    }
}

/// Covers: MPA-5044-7.1.2-02, MPA-5044-7.1.2-04, MPA-5044-7.1.2-05, MPA-5044-7.1.2-16
#[test]
fn corner_16_a_good_request_that_the_ulp_refuses_is_answered_by_r() {
    let responder = responder(rev1(), &raw(REQUEST, C, 1, b"please"));
    assert_eq!(responder.reject(b"no").unwrap(), raw(REPLY, C | R, 1, b"no"));
    // A malformed one is not answered at all.
    let mut responder = Responder::new(rev1(), NOW);
    assert!(responder.receive(b"MPA ID Bad Frame").is_err());
    assert_eq!(responder.reject(b"no"), Err(StartupError::NoRequest));
    assert_eq!(responder.accept(0, 0, b""), Err(StartupError::NoRequest));
}

/// Covers: MPA-5044-7.1.1-10, MPA-5044-7.1.1-11, EMPA-6581-6-08
#[test]
fn corner_17_reserved_bits_and_r_of_a_request_are_not_looked_at() {
    for reserved in 0..16 {
        let plain = request_to(rev1(), &raw(REQUEST, C | R | reserved, 1, b"x"));
        assert_eq!(plain, request_to(rev1(), &raw(REQUEST, C, 1, b"x")));
        let enhanced = raw(REQUEST, C | S | R | reserved, 2, &word("A", 1, 2));
        let clean = raw(REQUEST, C | S, 2, &word("A", 1, 2));
        assert_eq!(request_to(Config::default(), &enhanced), request_to(Config::default(), &clean));
        let reply = reply_to(rev1(), &raw(REPLY, C | reserved, 1, b"x"));
        assert_eq!(reply, reply_to(rev1(), &raw(REPLY, C, 1, b"x")));

        let (frame, _) = Frame::parse(FrameKind::Request, 2, &enhanced).unwrap().unwrap();
        assert!(!frame.rejected);

        // These bits do not come back.
        let responder = responder(Config::default(), &enhanced);
        assert_eq!(responder.accept(1, 1, b"").unwrap().0[16], C | S);
        assert_eq!(responder.reject(b"").unwrap()[16], C | S | R);
    }
    for config in [rev1(), Config { markers: true, ..Config::default() }] {
        assert_eq!(initiator(config).request()[16] & 0x2f, 0);
    }
}

/// Covers: MPA-5044-7.1.1-12, MPA-5044-7.1.1-13, MPA-5044-7.1.1-14, MPA-5044-7.1.1-15,
/// EMPA-6581-6-05, EMPA-6581-10-07, MPA-5044-C.1-01, MPA-5044-C.1-02
#[test]
fn corner_18_revisions_that_are_taken_and_that_are_not() {
    for rev in [0, 3, 4, 255] {
        let error = Err(StartupError::Revision(rev));
        assert_eq!(request_to(Config::default(), &raw(REQUEST, C, rev, b"")), error);
        // The revision is enough: the rest is not waited for.
        assert_eq!(request_to(Config::default(), &raw(REQUEST, C, rev, b"")[..18]), error);
        let error = Err(StartupError::Revision(rev));
        assert_eq!(reply_to(Config::default(), &raw(REPLY, C, rev, b"")), error);
    }
    for rev in [1, 2] {
        let plain = raw(REQUEST, C, rev, b"1234");
        let (request, _) = request_to(Config::default(), &plain).unwrap().unwrap();
        assert_eq!((request.rev, request.enhanced), (rev, false));
        assert_eq!(request.private_data, b"1234");
    }
    // In revision 1 the enhanced flag is a reserved bit.
    let odd = raw(REQUEST, C | S, 1, b"1234");
    let (request, _) = request_to(Config::default(), &odd).unwrap().unwrap();
    assert_eq!((request.enhanced, &request.private_data[..]), (false, &b"1234"[..]));
    // An end that knows revision 1 only.
    for request in [raw(REQUEST, C | S, 2, &word("", 1, 1)), raw(REQUEST, C, 2, b"")] {
        assert_eq!(request_to(rev1(), &request), Err(StartupError::Revision(2)));
    }
    assert_eq!(reply_to(rev1(), &raw(REPLY, C, 2, b"")), Err(StartupError::Revision(2)));
    for rev in [0, 3] {
        let config = Config { rev, ..Config::default() };
        assert_eq!(
            Initiator::new(config, b"", NOW).unwrap_err(),
            StartupError::ConfiguredRevision(rev)
        );
        assert_eq!(
            request_to(config, &raw(REQUEST, C, 1, b"")),
            Err(StartupError::ConfiguredRevision(rev))
        );
    }
}

/// Covers: EMPA-6581-6-01, EMPA-6581-6-02, EMPA-6581-10-01, EMPA-6581-10-02, EMPA-6581-10-04,
/// EMPA-6581-10-05, EMPA-6581-10-06
#[test]
fn corner_19_the_reply_takes_the_form_of_the_request() {
    for rev in [1, 2] {
        let responder = responder(Config::default(), &raw(REQUEST, C, rev, b""));
        let (frame, negotiated) = responder.accept(3, 4, b"pd").unwrap();
        assert_eq!(frame, raw(REPLY, C, rev, b"pd"));
        assert_eq!(responder.reject(b"pd").unwrap(), raw(REPLY, C | R, rev, b"pd"));
        assert!(!negotiated.enhanced && !negotiated.peer_to_peer);
        assert_eq!((negotiated.ird, negotiated.ord), (3, 4));
        assert_eq!((negotiated.peer_ird, negotiated.peer_ord), (None, None));
    }
    let responder = responder(Config::default(), &raw(REQUEST, C | S, 2, &word("", 7, 8)));
    let (frame, negotiated) = responder.accept(3, 4, b"pd").unwrap();
    assert_eq!(frame, raw(REPLY, C | S, 2, &[&word("", 3, 4)[..], b"pd"].concat()));
    assert!(negotiated.enhanced);
    assert_eq!((negotiated.peer_ird, negotiated.peer_ord), (Some(7), Some(8)));
}

/// Covers: EMPA-6581-10-01, EMPA-6581-10-03, EMPA-6581-10-08
#[test]
fn corner_19_an_unenhanced_accept_of_an_enhanced_request_is_an_error_and_may_be_retried() {
    for rev in [1, 2] {
        let reply = raw(REPLY, C, rev, b"");
        assert_eq!(reply_to(Config::default(), &reply), Err(StartupError::NotEnhanced));
    }
    // To reject, a peer that knows nothing of the enhanced form may use its own.
    let (reply, _) = reply_to(Config::default(), &raw(REPLY, R, 1, b"")).unwrap().unwrap();
    assert!(!reply.accepted && !reply.negotiated.enhanced);
    assert_eq!(reply.negotiated.rev, 1);

    let again = p2p(RtrTypes::ALL).downgraded();
    assert_eq!(initiator(again).request(), raw(REQUEST, C, 1, b""));
    assert!(!again.peer_to_peer);
}

/// Covers: EMPA-6581-6-07
#[test]
fn corner_20_enhanced_without_room_for_the_word_is_malformed() {
    for len in 0..4 {
        let error = Err(StartupError::EnhancedDataMissing);
        let request = raw(REQUEST, C | S, 2, &[0; 3][..len]);
        assert_eq!(request_to(Config::default(), &request).map(|_| ()), error);
        for flags in [C | S, C | S | R] {
            let reply = raw(REPLY, flags, 2, &[0; 3][..len]);
            assert_eq!(reply_to(Config::default(), &reply).map(|_| ()), error);
        }
    }
}

/// Covers: MPA-5044-7.1.1-19, EMPA-6581-6-01, EMPA-6581-6-06
#[test]
fn corner_21_the_word_takes_four_octets_of_the_private_data() {
    let data = [7; 513];
    for (config, limit) in [(rev1(), 512), (Config::default(), 508)] {
        let initiator = Initiator::new(config, &data[..limit], NOW).unwrap();
        assert_eq!(initiator.request()[18..20], 512u16.to_be_bytes());
        assert_eq!(initiator.request().len(), FRAME_HEADER + MAX_PRIVATE_DATA);
        let mut responder = Responder::new(Config::default(), NOW);
        let (request, _) = responder.receive(initiator.request()).unwrap().unwrap();
        assert_eq!(request.private_data, data[..limit]);
        assert!(responder.accept(1, 1, &data[..limit]).is_ok());
        assert!(responder.reject(&data[..limit]).is_ok());

        let error = StartupError::PrivateDataTooLong(limit + 1);
        let too_long = &data[..limit + 1];
        assert_eq!(Initiator::new(config, too_long, NOW).unwrap_err(), error);
        assert_eq!(responder.accept(1, 1, too_long), Err(error));
        assert_eq!(responder.reject(too_long), Err(error));
    }
}

/// Covers: MPA-5044-7.1.2-14, MPA-5044-7.1.2-18
#[test]
fn corner_22_two_initiators_and_two_responders_see_the_wrong_key() {
    for config in [rev1(), Config::default()] {
        let other = initiator(config);
        assert_eq!(initiator(config).receive(other.request()), Err(StartupError::Key));
        let reply = responder(config, other.request()).accept(1, 1, b"").unwrap().0;
        assert_eq!(request_to(config, &reply), Err(StartupError::Key));
    }
}

/// Covers: MPA-5044-7.1.2-19, MPA-5044-7.1.2-24
#[test]
fn corner_23_the_deadline_covers_the_whole_frame() {
    let config = Config { timeout: Duration::from_secs(5), ..Config::default() };
    let deadline = NOW.plus(Duration::from_secs(5));
    let mut initiator = initiator(config);
    let mut responder = Responder::new(config, NOW);
    assert_eq!((initiator.deadline(), responder.deadline()), (deadline, deadline));

    let request = initiator.request().to_vec();
    let reply = raw(REPLY, C | S, 2, &word("", 1, 1));
    for len in 0..request.len() {
        assert_eq!(responder.receive(&request[..len]), Ok(None));
        assert_eq!(initiator.receive(&reply[..len]), Ok(None));
        assert_eq!((initiator.deadline(), responder.deadline()), (deadline, deadline));
    }
    let just_before = NOW.plus(Duration::from_nanos(4_999_999_999));
    assert_eq!(initiator.handle_timeout(just_before), Ok(()));
    assert_eq!(responder.handle_timeout(just_before), Ok(()));
    assert_eq!(initiator.handle_timeout(deadline), Err(StartupError::Timeout));
    assert_eq!(responder.handle_timeout(deadline), Err(StartupError::Timeout));
}

/// Covers: EMPA-6581-9.1-01, EMPA-6581-9.1-02, EMPA-6581-9.1-04, EMPA-6581-9.1-08,
/// EMPA-6581-9.1-11
#[test]
fn corner_24_depths_are_the_senders_own_and_are_compared_crosswise() {
    // Initiator with IRD 4 and ORD 9, Responder with IRD 5 and ORD 7.
    let (reply, theirs) = answered(Config::default(), word("", 4, 9), 5, 7);
    assert_eq!(reply, word("", 5, 4));
    assert_eq!((theirs.ird, theirs.ord), (5, 4));
    assert_eq!((theirs.peer_ird, theirs.peer_ord), (Some(4), Some(9)));

    let config = Config { ird: 4, ord: 9, ..Config::default() };
    let ours = accepted(config, reply);
    assert_eq!((ours.ird, ours.ord), (4, 5));
    assert_eq!((ours.peer_ird, ours.peer_ord), (Some(5), Some(4)));
    assert_eq!(ours.fault, None);
}

/// Covers: EMPA-6581-9.1-12, EMPA-6581-9.1-13, EMPA-6581-9.1-14, EMPA-6581-9.1-15,
/// EMPA-6581-9.1-16
#[test]
fn corner_24_all_ones_is_no_number() {
    const ULP: u16 = 0x3fff;
    let config = Config { ird: 4, ord: 9, ..Config::default() };

    let (reply, theirs) = answered(Config::default(), word("", 4, ULP), 5, 3);
    assert_eq!(reply, word("", ULP, 3));
    assert_eq!((theirs.ird, theirs.ord, theirs.peer_ord), (5, 3, Some(ULP)));
    let (reply, theirs) = answered(Config::default(), word("", ULP, 9), 5, 7);
    assert_eq!(reply, word("", 5, ULP));
    assert_eq!((theirs.ird, theirs.ord, theirs.peer_ird), (5, 7, Some(ULP)));
    // The Responder's ULP may want it too.
    let (reply, theirs) = answered(Config::default(), word("", 4, 9), ULP, ULP);
    assert_eq!(reply, word("", ULP, ULP));
    assert_eq!((theirs.ird, theirs.ord), (ULP, ULP));

    let ours = accepted(config, word("", ULP, 3));
    assert_eq!((ours.ird, ours.ord, ours.peer_ird), (4, 9, Some(ULP)));
    let ours = accepted(config, word("", 5, ULP));
    assert_eq!((ours.ird, ours.ord, ours.peer_ord), (4, 5, Some(ULP)));
    assert_eq!(ours.fault, None);
    let asked = Config { ird: ULP, ord: ULP, ..config };
    let ours = accepted(asked, word("", 5, 7));
    assert_eq!((ours.ird, ours.ord, ours.fault), (ULP, ULP, None));
    assert_eq!((ours.peer_ird, ours.peer_ord), (Some(5), Some(7)));
}

/// Covers: EMPA-6581-9.1-03
#[test]
fn corner_25_a_read_rtr_needs_room_at_both_ends() {
    let read = RtrTypes { read: true, ..RtrTypes::NONE };
    // Neither end wants Reads; the Responder makes room for the one, and the Initiator sends it.
    let (reply, theirs) = answered(p2p(read), word("AD", 0, 0), 0, 0);
    assert_eq!(reply, word("AD", 1, 0));
    assert_eq!(theirs.ird, 1);
    let config = Config { ird: 0, ord: 0, ..p2p(read) };
    let ours = accepted(config, reply);
    assert_eq!((ours.rtr, ours.ord, ours.fault), (Some(Rtr::Read), 1, None));
    // A Responder that made no room cannot be sent one.
    let ours = accepted(p2p(read), word("AD", 0, 0));
    assert_eq!((ours.rtr, ours.fault), (None, Some(StartupFault::NoMatchingRtr)));
    // Nor is one picked that needs an ORD where there is another way.
    let both = RtrTypes { send: true, ..read };
    let none = Config { ird: 0, ord: 0, ..p2p(both) };
    assert_eq!(accepted(none, word("ABD", 1, 0)).rtr, Some(Rtr::Send));
    // IRD stays as it is if it is not negotiated, or if no Read was asked for.
    let (reply, theirs) = answered(p2p(read), word("AD", 0, 0x3fff), 0, 0);
    assert_eq!((reply, theirs.ird), (word("AD", 0x3fff, 0), 0));
    let (reply, theirs) = answered(p2p(RtrTypes::ALL), word("AC", 0, 0), 0, 0);
    assert_eq!((reply, theirs.ird), (word("AC", 0, 0), 0));
}

/// Covers: EMPA-6581-9.1-05, EMPA-6581-9.1-06, EMPA-6581-9.1-11
#[test]
fn corner_26_an_enhanced_reject_tells_what_would_have_been_needed() {
    let config = Config { ird: 2, ord: 12, ..Config::default() };
    let responder = responder(config, &raw(REQUEST, C | S, 2, &word("", 1, 2)));
    let frame = responder.reject(b"too small").unwrap();
    assert_eq!(frame[..18], raw(REPLY, C | S | R, 2, b"")[..18]);
    assert_eq!(frame[20..24], word("", 2, 12));

    let config = Config { ird: 1, ord: 2, ..Config::default() };
    let (reply, _) = reply_to(config, &frame).unwrap().unwrap();
    assert!(!reply.accepted);
    assert_eq!(reply.private_data, b"too small");
    let negotiated = reply.negotiated;
    assert_eq!((negotiated.peer_ird, negotiated.peer_ord), (Some(2), Some(12)));
    assert_eq!((negotiated.ird, negotiated.ord, negotiated.fault), (1, 2, None));
}

/// Covers: EMPA-6581-5-01, EMPA-6581-9.2-09
#[test]
fn corner_27_the_initiator_picks_an_rtr_that_both_ends_have() {
    let all = p2p(RtrTypes::ALL);
    for (flags, rtr) in [
        ("AB", Rtr::Send),
        ("AC", Rtr::Write),
        ("AD", Rtr::Read),
        ("ABCD", Rtr::Write),
        ("ABD", Rtr::Read),
    ] {
        let ours = accepted(all, word(flags, 4, 4));
        assert_eq!((ours.rtr, ours.fault, ours.peer_to_peer), (Some(rtr), None, true));
    }
    let send = p2p(RtrTypes { send: true, ..RtrTypes::NONE });
    assert_eq!(accepted(send, word("ABCD", 4, 4)).rtr, Some(Rtr::Send));
    // Without the peer-to-peer model there is none.
    assert_eq!(accepted(Config::default(), word("", 4, 4)).rtr, None);
}

/// Covers: EMPA-6581-9.1-07
#[test]
fn corner_29_more_ord_than_the_initiators_ird_ends_in_insufficient_ird() {
    let config = Config { ird: 4, ord: 4, ..Config::default() };
    assert_eq!(accepted(config, word("", 4, 4)).fault, None);
    let ours = accepted(config, word("", 4, 5));
    let fault = ours.fault.unwrap();
    assert_eq!((fault, fault.code()), (StartupFault::InsufficientIrd, 6));
    // Full Operation is entered nevertheless, in the framing that was agreed.
    let reply = raw(REPLY, M | S, 2, &word("", 4, 5));
    let (reply, _) = reply_to(config, &reply).unwrap().unwrap();
    assert!(reply.accepted && reply.negotiated.crc && reply.negotiated.send_markers);
}

#[test]
fn corner_29_no_common_rtr_or_another_model_ends_in_no_matching_rtr() {
    let write = p2p(RtrTypes { write: true, ..RtrTypes::NONE });
    for flags in ["AB", "AD", "ABD", "A", "", "BCD"] {
        let ours = accepted(write, word(flags, 4, 4));
        let fault = ours.fault.unwrap();
        assert_eq!((ours.rtr, fault, fault.code()), (None, StartupFault::NoMatchingRtr, 7));
    }
    // A peer-to-peer accept of a client-server Request.
    let ours = accepted(Config::default(), word("ABCD", 4, 4));
    assert_eq!(ours.fault, Some(StartupFault::NoMatchingRtr));
}

/// Covers: EMPA-6581-9.2-12, EMPA-6581-9.2-13, EMPA-6581-9.2-14, EMPA-6581-9.2-15
#[test]
fn corner_30_without_a_the_other_flags_are_neither_sent_nor_looked_at() {
    let request = initiator(Config { ird: 1, ord: 2, ..Config::default() }).request().to_vec();
    assert_eq!(request[20..24], word("", 1, 2));
    let (reply, theirs) = answered(Config::default(), word("BCD", 1, 1), 0, 0);
    assert_eq!(reply, word("", 0, 0));
    assert!(!theirs.peer_to_peer);
    // The Responder's own wish does not count.
    assert_eq!(answered(p2p(RtrTypes::ALL), word("", 1, 1), 1, 1).0, word("", 1, 1));

    let ours = accepted(Config::default(), word("BCD", 16, 16));
    assert_eq!((ours.rtr, ours.fault, ours.peer_to_peer), (None, None, false));
}

/// Covers: EMPA-6581-9.2-01, EMPA-6581-9.2-02
#[test]
fn a_peer_to_peer_request_names_each_rtr_that_the_initiator_can_send() {
    for (flags, rtr) in [
        ("ABCD", RtrTypes::ALL),
        ("AB", RtrTypes { send: true, ..RtrTypes::NONE }),
        ("AC", RtrTypes { write: true, ..RtrTypes::NONE }),
        ("AD", RtrTypes { read: true, ..RtrTypes::NONE }),
    ] {
        let config = Config { ird: 4, ord: 5, ..p2p(rtr) };
        assert_eq!(initiator(config).request()[20..], word(flags, 4, 5));
    }
    assert_eq!(Initiator::new(p2p(RtrTypes::NONE), b"", NOW).unwrap_err(), StartupError::NoRtrType);
}

/// Covers: EMPA-6581-9.2-03, EMPA-6581-9.2-04, EMPA-6581-9.2-05, EMPA-6581-9.2-06,
/// EMPA-6581-9.2-08, EMPA-6581-9.2-07
#[test]
fn the_reply_to_a_peer_to_peer_request_names_what_both_have_or_what_the_responder_has() {
    let own = RtrTypes { send: true, write: true, read: false };
    for (asked, offered) in [("ABCD", "ABC"), ("AC", "AC"), ("ABD", "AB"), ("AD", "ABC")] {
        let config = Config { peer_to_peer: false, ..p2p(own) };
        let (reply, theirs) = answered(config, word(asked, 4, 4), 4, 4);
        assert_eq!(reply, word(offered, 4, 4));
        assert!(theirs.peer_to_peer && theirs.rtr.is_none());
        let responder = responder(config, &raw(REQUEST, C | S, 2, &word(asked, 4, 4)));
        assert_eq!(responder.reject(b"").unwrap()[20], word(offered, 16, 16)[0]);
    }
    let none = responder(p2p(RtrTypes::NONE), &raw(REQUEST, C | S, 2, &word("AB", 4, 4)));
    assert_eq!(none.accept(1, 1, b""), Err(StartupError::NoRtrType));
}

/// Covers: EMPA-6581-6-03, EMPA-6581-9-01
#[test]
fn the_enhanced_word_is_big_endian_with_depths_of_14_bits() {
    let config = Config { ird: 0x1234, ord: 0x2345, ..p2p(RtrTypes::ALL) };
    let request = initiator(config).request().to_vec();
    assert_eq!(request[16..20], [C | S, 2, 0, 4]);
    assert_eq!(request[20..24], [0xd2, 0x34, 0xe3, 0x45]);
    let (received, _) = request_to(Config::default(), &request).unwrap().unwrap();
    assert_eq!((received.peer_ird, received.peer_ord), (Some(0x1234), Some(0x2345)));
    for config in [Config { ird: 0x4000, ..config }, Config { ord: 0x4000, ..config }] {
        let error = Initiator::new(config, b"", NOW).unwrap_err();
        assert_eq!(error, StartupError::Depth(0x4000));
    }
    let responder = responder(Config::default(), &request);
    assert_eq!(responder.accept(0x4000, 1, b""), Err(StartupError::Depth(0x4000)));
    assert_eq!(responder.accept(1, 0x4000, b""), Err(StartupError::Depth(0x4000)));
}

/// Ends that acknowledge by Reads of their own ask for one more than their programs know of.
#[test]
fn a_spare_read_is_negotiated_on_top_of_the_programs_depths() {
    // Depths of both programs and whether their ends have a spare; then ORD and spare of each.
    let cases = [
        ((16, 16, 1), (16, 16, 1), (16, 1), (16, 1)),
        ((0, 0, 1), (0, 0, 1), (0, 1), (0, 1)),
        ((1, 1, 1), (1, 1, 1), (1, 1), (1, 1)),
        ((1, 16, 1), (4, 16, 1), (4, 1), (1, 1)),
        // A peer without takes what its program takes: the program's own Reads go first, except
        // that of a larger depth one is kept.
        ((1, 1, 1), (1, 1, 0), (1, 0), (1, 0)),
        ((4, 4, 1), (4, 4, 0), (3, 1), (4, 0)),
        ((2, 2, 1), (16, 16, 0), (2, 1), (3, 0)),
        ((0, 0, 1), (0, 0, 0), (0, 0), (0, 0)),
        ((4, 4, 0), (4, 4, 0), (4, 0), (4, 0)),
    ];
    for (from, to, of_a, of_b) in cases {
        let config = |(ird, ord, spare)| Config { ird, ord, spare, ..Config::default() };
        let (a, b) = exchange(config(from), config(to), to.0, to.1);
        assert_eq!((a.ord, a.spare_ord), of_a, "{from:?} {to:?}");
        assert_eq!((b.ord, b.spare_ord), of_b, "{from:?} {to:?}");
        assert_eq!((a.ird, a.spare_ird), (from.0, from.2));
        assert_eq!((b.ird, b.spare_ird), (to.0, to.2));
        assert_eq!(a.fault, None);
    }
}

#[test]
fn a_peer_is_known_by_the_depths_of_its_program() {
    let config = Config { ird: 4, ord: 2, spare: 1, ..Config::default() };
    let request = initiator(config).request().to_vec();
    assert_eq!(request.last_chunk(), Some(&word("", 5, 3)));
    let (seen, _) = request_to(config, &request).unwrap().unwrap();
    assert_eq!((seen.peer_ird, seen.peer_ord), (Some(4), Some(2)));
    let (answer, terms) = answered(config, word("", 5, 3), 7, 8);
    assert_eq!(answer, word("", 8, 5));
    assert_eq!((terms.peer_ird, terms.peer_ord), (Some(4), Some(2)));
    assert_eq!((terms.inbound(), terms.outbound()), (8, 5));
    let terms = accepted(config, word("", 8, 5));
    assert_eq!((terms.peer_ird, terms.peer_ord, terms.fault), (Some(7), Some(4), None));
    assert_eq!((terms.inbound(), terms.outbound()), (5, 3));
    // More than all that was offered is still too much.
    let fault = accepted(config, word("", 8, 6)).fault;
    assert_eq!(fault, Some(StartupFault::InsufficientIrd));
    // A reject tells the whole.
    let responder = responder(config, &request);
    let reject = responder.reject(b"").unwrap();
    assert_eq!(reject.last_chunk(), Some(&word("", 5, 3)));
    // A value that is no number stays as it is, and the largest number too.
    let ends = Config { ird: 0x3fff, ord: 0x3ffe, ..config };
    assert_eq!(initiator(ends).request().last_chunk(), Some(&word("", 0x3fff, 0x3ffe)));
    let terms = accepted(config, word("", 0x3fff, 0x3fff));
    assert_eq!((terms.ord, terms.spare_ord, terms.spare_ird), (2, 0, 1));
    assert_eq!((terms.peer_ird, terms.peer_ord), (Some(0x3fff), Some(0x3fff)));
}

#[test]
fn a_spare_read_may_be_granted_once_the_request_has_come() {
    let without = Config { ird: 4, ord: 2, ..Config::default() };
    let with = Config { spare: 1, ..without };
    let mut late = responder(without, initiator(with).request());
    assert_eq!(late.set_spare(1), (Some(4), Some(2)));
    let early = responder(with, initiator(with).request());
    assert_eq!(late.accept(7, 8, b"").unwrap(), early.accept(7, 8, b"").unwrap());
    let mut nothing = Responder::new(without, NOW);
    assert_eq!(nothing.set_spare(1), (None, None));
}

/// Revision 1 tells nothing of depths: then the peer takes what the programs agree on.
#[test]
fn a_spare_read_needs_the_enhanced_word() {
    let config = Config { ird: 4, ord: 2, spare: 1, ..rev1() };
    let (a, b) = exchange(config, config, 4, 2);
    for terms in [a, b] {
        assert_eq!((terms.ird, terms.spare_ird, terms.ord, terms.spare_ord), (4, 1, 2, 0));
    }
}

/// The spare Read serves the one that a peer-to-peer connection begins with.
#[test]
fn a_read_rtr_may_use_the_spare_read() {
    let read = RtrTypes { read: true, ..RtrTypes::NONE };
    let config = Config { ird: 0, ord: 0, spare: 1, ..p2p(read) };
    let (a, b) = exchange(config, config, 0, 0);
    assert_eq!((a.rtr, a.fault), (Some(Rtr::Read), None));
    assert_eq!((a.ord, a.spare_ord, b.ird, b.spare_ird), (0, 1, 0, 1));
}

fn depth() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0), Just(1), Just(0x3fff), 0u16..20, 0u16..=0x3fff]
}

fn rtr() -> impl Strategy<Value = RtrTypes> {
    (1u8..8).prop_map(|bits| RtrTypes {
        send: bits & 1 != 0,
        write: bits & 2 != 0,
        read: bits & 4 != 0,
    })
}

fn config() -> impl Strategy<Value = Config> {
    (1u8..=2, any::<[bool; 4]>(), depth(), depth(), rtr()).prop_map(
        |(rev, [crc, markers, peer_to_peer, spare], ird, ord, rtr)| Config {
            rev,
            crc,
            markers,
            ird,
            ord,
            spare: u16::from(spare),
            peer_to_peer,
            rtr,
            ..Config::default()
        },
    )
}

proptest! {
    /// Covers: EMPA-6581-9.1-17, EMPA-6581-12-01
    #[test]
    fn two_ends_come_to_the_same_agreement(
        from in config(),
        to in config().prop_map(|config| Config { rev: 2, ..config }),
        ird in depth(),
        ord in depth(),
    ) {
        let (a, b) = exchange(from, to, ird, ord);
        prop_assert_eq!((a.crc, a.rev, a.enhanced), (b.crc, b.rev, b.enhanced));
        prop_assert_eq!((a.send_markers, a.receive_markers), (b.receive_markers, b.send_markers));
        if a.enhanced && a.fault.is_none() {
            prop_assert_eq!(a.peer_to_peer, b.peer_to_peer);
            prop_assert_eq!(a.rtr.is_some(), from.peer_to_peer);
            for (ord, ird) in [(a.outbound(), b.inbound()), (b.outbound(), a.inbound())] {
                let by_ulp = [ord, from.ird, from.ord].contains(&0x3fff);
                prop_assert!(ord <= ird || by_ulp);
            }
        }
        // Our own ends never ask for more than was offered.
        prop_assert_ne!(a.fault, Some(StartupFault::InsufficientIrd));
    }

    /// Covers: MPA-5044-7.1.2-23, MPA-5044-8-04
    #[test]
    fn any_octets_end_in_a_frame_an_error_or_a_wait(
        kind in 0usize..3,
        tail in prop::collection::vec(any::<u8>(), 0..600),
        from in config(),
    ) {
        let head: &[u8] = [&REQUEST[..], &REPLY[..], b""][kind];
        let input = [head, &tail].concat();
        for rev in [1, 2] {
            let config = Config { rev, peer_to_peer: from.peer_to_peer, ..from };
            let mut responder = Responder::new(config, NOW);
            if let Ok(Some((request, consumed))) = responder.receive(&input) {
                prop_assert_eq!(consumed, input.len());
                prop_assert!(request.private_data.len() <= MAX_PRIVATE_DATA);
                prop_assert!(responder.accept(1, 1, b"").is_ok());
            }
            if let Ok(Some((reply, consumed))) = initiator(config).receive(&input) {
                prop_assert!(consumed <= input.len());
                prop_assert!(reply.private_data.len() <= MAX_PRIVATE_DATA);
            }
        }
    }

    #[test]
    fn frames_read_as_they_were_written(
        is_reply: bool,
        flags: [bool; 3],
        enhanced in prop::option::of((any::<bool>(), rtr(), depth(), depth())),
        private_data in prop::collection::vec(any::<u8>(), 0..=508),
    ) {
        let frame = Frame {
            kind: if is_reply { FrameKind::Reply } else { FrameKind::Request },
            markers: flags[0],
            crc: flags[1],
            rejected: is_reply && flags[2],
            rev: if enhanced.is_some() { 2 } else { 1 },
            enhanced: enhanced.map(|(peer_to_peer, rtr, ird, ord)| EnhancedData {
                peer_to_peer,
                rtr: if peer_to_peer { rtr } else { RtrTypes::NONE },
                ird,
                ord,
            }),
            private_data: &private_data,
        };
        let octets = frame.encode().unwrap();
        for len in 0..octets.len() {
            prop_assert_eq!(Frame::parse(frame.kind, 2, &octets[..len]), Ok(None));
        }
        prop_assert_eq!(Frame::parse(frame.kind, 2, &octets), Ok(Some((frame, octets.len()))));
    }
}
