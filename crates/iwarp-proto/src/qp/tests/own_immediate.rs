// SPDX-License-Identifier: MIT OR Apache-2.0

//! Immediate data with a Send or a Write: opcodes of our own, and a Write with the Immediate Data
//! of RFC 7306 behind it. Both only as far as the peer has said that it knows them.

use core::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;

use super::octets::{self, send, tagged, untagged};
use super::*;
use crate::qp::Park;

const MAGIC_STAG: u32 = 0x6957_4152;
const MAGIC_TO: u64 = 0x5048_454c_0100_0000;
const MARKED: &[u8; 8] = b"abcdwimm";

fn asking() -> Config {
    Config { extensions: Extensions::Ask, ..config() }
}

fn hello(capabilities: u64) -> Vec<u8> {
    tagged(octets::WRITE, true, MAGIC_STAG, MAGIC_TO | capabilities, &[])
}

const fn send_immediate(solicited: bool) -> SendOp {
    SendOp::SendImmediate { solicited, data: *b"abcd" }
}

fn write_immediate(at: u64, solicited: bool) -> SendOp {
    let (stag, to) = (Stag(OPEN), TaggedOffset(OPEN_BASE + at));
    SendOp::WriteImmediate { stag, to, solicited, data: *b"abcd" }
}

/// An initiator, and a peer of our own kind that has said so.
fn known(capabilities: u64) -> Raw {
    let mut raw = Raw::initiator(asking(), |_| {});
    assert_eq!(raw.back(), [hello(15)]);
    raw.send(&hello(capabilities));
    raw
}

fn received(wr_id: u64, op: WcOp, byte_len: u32, immediate: &[u8; 8]) -> WorkCompletion {
    let mut completion = WorkCompletion::new(wr_id, QP, op, WcStatus::Success);
    completion.byte_len = byte_len;
    completion.immediate = Some(*immediate);
    completion
}

#[test]
fn a_send_with_immediate_is_a_send_that_carries_four_octets_in_its_header() {
    let mut raw = known(15);
    raw.end.tx.set_mulpdu(128);
    raw.end.host.fill(LOCAL, 0, &pattern(150, 3));
    raw.end.post(1, SEND, &[]);
    raw.end.post(2, send_immediate(false), &[local(0, 150)]);
    raw.end.post_inline(3, send_immediate(true), b"in line");
    let word = u32::from_be_bytes(*b"abcd");
    let octets = pattern(150, 3);
    assert_eq!(
        raw.back(),
        [
            send(1, &[]),
            untagged(0x4c, false, word, 0, 2, 0, &octets[..110]),
            untagged(0x4c, true, word, 0, 2, 110, &octets[110..]),
            untagged(0x4d, true, word, 0, 3, 0, b"in line"),
        ]
    );
    let success = |wr_id| (wr_id, WcStatus::Success, WcOp::Send);
    assert_eq!(outcomes(&raw.end.completions()), [success(1), success(2), success(3)]);
}

#[test]
fn a_received_send_with_immediate_completes_its_receive_with_the_four_octets() {
    let mut raw = known(15);
    for wr_id in 1..4 {
        raw.end.receive(wr_id, &[local(wr_id * 100, 100)]);
    }
    let word = u32::from_be_bytes(*b"wxyz");
    raw.send(&untagged(0x4c, false, word, 0, 1, 0, b"he"));
    raw.send(&untagged(0x4c, true, word, 0, 1, 2, b"llo"));
    raw.send(&untagged(0x4d, true, 0, 0, 2, 0, &[]));
    raw.send(&send(3, b"plain"));
    let completions = raw.end.completions();
    assert_eq!(completions[0], received(1, WcOp::Recv, 5, b"wxyz\0\0\0\0"));
    assert_eq!(completions[0].immediate_word(), Some(*b"wxyz"));
    let mut solicited = received(2, WcOp::Recv, 0, &[0; 8]);
    solicited.solicited = true;
    assert_eq!(completions[1], solicited);
    assert_eq!((completions[2].wr_id, completions[2].immediate_word()), (3, None));
    assert_eq!(raw.end.host.octets(LOCAL)[100..105], *b"hello");
}

/// Covers: RDMAP-5040-7.2-02
#[test]
fn sends_with_immediate_of_a_peer_that_has_not_told_of_them_are_unknown_opcodes() {
    let park = Park { octets: 1000, messages: 2, timer: Duration::ZERO };
    // A peer of RFC 5040, one with RFC 7306, one that has all of ours but these.
    let peers = [&[][..], &[0], &[3], &[11]];
    for (said, opcode, qn) in product(&peers, &[0x4c, 0x4d], &[0, 1, 2, 3]) {
        for (role, park) in [
            (Role::Initiator, None),
            (Role::Initiator, Some(park)),
            (Role::Responder, None),
            (Role::Responder, Some(park)),
        ] {
            let mut raw = Raw::with(Config { park, ..asking() }, role, |_| {});
            raw.end.receive(1, &[local(0, 100)]);
            let _hello = raw.back();
            said.iter().for_each(|capabilities| raw.send(&hello(*capabilities)));
            let _hello = raw.back();
            let ulpdu = untagged(opcode, true, 7, qn, 1, 0, b"data");
            assert_eq!(raw.refuse(&ulpdu), quoting([0x02, 0x06], 22, &ulpdu[..18], &[]));
            assert_eq!(raw.end.host.touches(), []);
        }
    }
}

/// Covers: RDMAP-5040-7.2-02
#[test]
fn an_end_that_has_not_told_of_sends_with_immediate_takes_them_for_unknown_opcodes() {
    for extensions in [Extensions::Assume, Extensions::Refuse] {
        for (said, opcode, qn) in product(&[None, Some(15)], &[0x4c, 0x4d], &[0, 1]) {
            let mut raw = Raw::responder(Config { extensions, ..config() }, |_| {});
            raw.end.receive(1, &[]);
            said.iter().for_each(|capabilities| raw.send(&hello(*capabilities)));
            let ulpdu = untagged(opcode, true, 7, qn, 1, 0, &[]);
            assert_eq!(raw.refuse(&ulpdu), quoting([0x02, 0x06], 18, &ulpdu[..18], &[]));
        }
    }
    // An opcode that is not assigned stays unknown to all.
    let mut raw = known(15);
    let ulpdu = untagged(0x4e, true, 0, 0, 1, 0, &[]);
    assert_eq!(raw.refuse(&ulpdu), quoting([0x02, 0x06], 18, &ulpdu[..18], &[]));
}

/// Words of the other end in between do not unsay it.
#[test]
fn a_hello_of_the_peer_holds_for_the_whole_stream() {
    let mut raw = known(4);
    for wr_id in 1..4 {
        raw.end.receive(wr_id, &[]);
    }
    raw.send(&untagged(0x4c, true, 1, 0, 1, 0, &[]));
    raw.send(&hello(0));
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"data"));
    raw.send(&untagged(0x4d, true, 2, 0, 2, 0, &[]));
    assert_eq!(raw.end.completions().len(), 2);
    assert_eq!(raw.end.state(), QpState::Rts);
}

fn product<A: Copy, B: Copy, C: Copy>(a: &[A], b: &[B], c: &[C]) -> Vec<(A, B, C)> {
    let pairs = a.iter().flat_map(|a| b.iter().map(move |b| (*a, *b)));
    pairs.flat_map(|(a, b)| c.iter().map(move |c| (a, b, *c))).collect()
}

proptest! {
    /// An opcode counts where both ends have it: those of RFC 5040 always, those of RFC 7306 unless
    /// this end refuses them, our own if the sender's hello frame has the bit and this end asks.
    /// Others are unexpected before their queue is looked at.
    ///
    /// Covers: RDMAP-5040-7.2-02, RDMAP-5040-7.2-07, EXT-7306-8.2-02
    #[test]
    fn an_opcode_counts_where_both_ends_have_it(
        said in proptest::option::of((1u64..256, 0u64..1 << 24)),
        extensions in select(vec![Extensions::Ask, Extensions::Assume, Extensions::Refuse]),
        (initiator, parks) in any::<(bool, bool)>(),
        number in 0u8..16,
        qn in 0u32..4,
    ) {
        let park = parks.then_some(Park { octets: 1000, messages: 2, timer: Duration::ZERO });
        let role = if initiator { Role::Initiator } else { Role::Responder };
        let mut raw = Raw::with(Config { extensions, park, ..config() }, role, |_| {});
        raw.end.receive(1, &[local(0, 100)]);
        let _hello = raw.back();
        if let Some((version, capabilities)) = said {
            let to = (0x5048_454c << 32) | (version << 24) | capabilities;
            raw.send(&tagged(octets::WRITE, true, MAGIC_STAG, to, &[]));
        }
        let _hello = raw.back();
        let told = said.is_some_and(|(_, capabilities)| capabilities & 4 != 0);
        let queue = match number {
            1 => Some(1),
            3..=6 => Some(0),
            7 => Some(2),
            8 | 9 if extensions != Extensions::Refuse => Some(0),
            0xa if extensions != Extensions::Refuse => Some(1),
            0xb if extensions != Extensions::Refuse => Some(3),
            0xc | 0xd if extensions == Extensions::Ask && told => Some(0),
            _ => None,
        };
        // Not the right length for any but Sends, whose faults come later than that of the opcode.
        let ulpdu = untagged(0x40 | number, true, 7, qn, 1, 0, b"data");
        raw.send(&ulpdu);
        let faults = raw.end.events().into_iter().find_map(|event| match event {
            Event::Fault(fault) => Some(fault.code()),
            _ => None,
        });
        let code = faults.map(|code| (code.layer, code.etype, code.code));
        match queue {
            None => prop_assert_eq!(code, Some((0, 2, 0x06))),
            Some(queue) if queue != qn => prop_assert_eq!(code, Some((1, 2, 0x01))),
            // No request asked for this answer.
            Some(3) => prop_assert_eq!(code, Some((0, 2, 0x06))),
            Some(_) => prop_assert_ne!(code, Some((0, 2, 0x06))),
        }
        if matches!(number, 3 | 5 | 0xc | 0xd) && queue == Some(qn) {
            prop_assert_eq!(code, None);
        }
    }
}

#[test]
fn immediate_data_that_the_peer_does_not_take_fails_alone_and_nothing_of_it_is_sent() {
    let fails = |op| (WcStatus::RemoteInvalidRequest, op);
    let works = |op| (WcStatus::Success, op);
    let cases = [
        // A peer of RFC 5040, one with RFC 7306, one of an earlier version of ours.
        (0, fails(WcOp::Send), fails(WcOp::Write)),
        (2, fails(WcOp::Send), works(WcOp::Write)),
        (3, fails(WcOp::Send), works(WcOp::Write)),
        (4, works(WcOp::Send), fails(WcOp::Write)),
    ];
    for (capabilities, of_send, of_write) in cases {
        let mut raw = known(capabilities);
        raw.end.post(1, send_immediate(false), &[local(0, 4)]);
        raw.end.post(2, write_immediate(0, false), &[local(0, 4)]);
        raw.end.post(3, SEND, &[]);
        let opcodes: Vec<u8> = raw.back().iter().map(|ulpdu| ulpdu[1]).collect();
        let mut expected = Vec::new();
        if of_send.0 == WcStatus::Success {
            expected.push(0x4c);
        }
        if of_write.0 == WcStatus::Success {
            expected.extend([octets::WRITE, octets::IMMEDIATE]);
        }
        expected.push(octets::SEND);
        assert_eq!(opcodes, expected, "{capabilities}");
        assert_eq!(
            outcomes(&raw.end.completions()),
            [
                (1, of_send.0, of_send.1),
                (2, of_write.0, of_write.1),
                (3, WcStatus::Success, WcOp::Send)
            ],
            "{capabilities}"
        );
        assert_eq!(raw.end.state(), QpState::Rts);
    }
}

#[test]
fn the_program_s_word_of_the_peer_means_rfc_7306_and_not_our_own() {
    let mut raw = Raw::initiator(config(), |_| {});
    raw.end.post(1, send_immediate(false), &[]);
    raw.end.post(2, write_immediate(0, false), &[local(0, 4)]);
    let back = raw.back();
    // The peer is told nothing that only our kind understands.
    assert_eq!(back[1], untagged(octets::IMMEDIATE, true, 0, 0, 1, 0, b"abcd\0\0\0\0"));
    assert_eq!(back.len(), 2);
    assert_eq!(
        outcomes(&raw.end.completions()),
        [(1, WcStatus::RemoteInvalidRequest, WcOp::Send), (2, WcStatus::Success, WcOp::Write)]
    );
}

/// Covers: EXT-7306-6.3-01, EXT-7306-6.3-04, EXT-7306-7-05
#[test]
fn a_write_with_immediate_is_a_write_and_immediate_data_with_nothing_between() {
    let mut raw = known(15);
    raw.end.tx.set_mulpdu(128);
    raw.end.host.fill(LOCAL, 0, &pattern(200, 9));
    raw.end.post(1, write_immediate(8, false), &[local(0, 200)]);
    raw.end.post_inline(2, write_immediate(0, true), b"in line");
    raw.end.post(3, write_immediate(0, false), &[]);
    // The peer asks for something meanwhile: it is answered behind both halves.
    raw.end.tx.transmit(&raw.end.qp, &raw.end.host, &mut raw.end.out, 1);
    raw.send(&octets::read_request(1, 0, 0, 0));
    raw.end.post(4, SEND, &[]);
    let octets = pattern(200, 9);
    let to = OPEN_BASE + 8;
    let back = raw.back();
    let mut rest = back.iter();
    let mut next = || rest.next().expect("an FPDU").clone();
    assert_eq!(next(), tagged(octets::WRITE, false, OPEN, to, &octets[..114]));
    assert_eq!(next(), tagged(octets::WRITE, true, OPEN, to + 114, &octets[114..]));
    assert_eq!(next(), untagged(octets::IMMEDIATE, true, 0, 0, 1, 0, MARKED));
    assert_eq!(next()[1], octets::READ_RESPONSE);
    assert_eq!(next(), tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"in line"));
    assert_eq!(next(), untagged(octets::IMMEDIATE_SOLICITED, true, 0, 0, 2, 0, MARKED));
    assert_eq!(next(), tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[]));
    assert_eq!(next(), untagged(octets::IMMEDIATE, true, 0, 0, 3, 0, MARKED));
    assert_eq!(next(), send(4, &[]));
    assert_eq!(rest.next(), None);
    let success = |wr_id| (wr_id, WcStatus::Success, WcOp::Write);
    assert_eq!(outcomes(&raw.end.completions())[..3], [success(1), success(2), success(3)]);
}

#[test]
fn a_write_with_immediate_completes_once_when_both_halves_are_taken() {
    let mut raw = known(15);
    raw.end.post(1, write_immediate(0, false), &[local(0, 40)]);
    raw.end.build();
    let all = raw.end.out.len();
    assert_eq!(raw.end.take(all - 1).len(), all - 1);
    assert_eq!(raw.end.completions(), []);
    raw.end.take(1);
    assert_eq!(outcomes(&raw.end.completions()), [(1, WcStatus::Success, WcOp::Write)]);
}

#[test]
fn a_fenced_write_with_immediate_waits_as_a_whole() {
    let mut raw = known(15);
    raw.end.post(1, read_op(0), &[local(0, 8)]);
    raw.end.post_fenced(2, write_immediate(0, false), &[local(0, 8)]);
    let request = raw.back().remove(0);
    assert_eq!(raw.back().len(), 0);
    let (stag, to) = (octets::word(&request, 18), octets::long(&request, 22));
    raw.send(&tagged(octets::READ_RESPONSE, true, stag, to, &[1; 8]));
    assert_eq!(raw.back().len(), 2);
    assert_eq!(raw.end.completions().len(), 2);
}

#[test]
fn the_immediate_data_behind_a_write_reports_the_length_of_the_write() {
    let mut raw = known(15);
    for wr_id in 1..6 {
        raw.end.receive(wr_id, &[local(wr_id * 8, 8)]);
    }
    let to = OPEN_BASE;
    let immediate = |msn, data: &[u8]| untagged(octets::IMMEDIATE, true, 0, 0, msn, 0, data);
    // In two segments; of nothing; none; unmarked; marked, but not of a Write.
    raw.send(&tagged(octets::WRITE, false, OPEN, to, &[1; 100]));
    raw.send(&tagged(octets::WRITE, true, OPEN, to + 100, &[2; 23]));
    raw.send(&immediate(1, MARKED));
    raw.send(&tagged(octets::WRITE, true, 0, 0, &[]));
    raw.send(&immediate(2, MARKED));
    raw.send(&immediate(3, MARKED));
    raw.send(&tagged(octets::WRITE, true, OPEN, to, &[3; 5]));
    raw.send(&immediate(4, b"abcd\0\0\0\0"));
    raw.send(&tagged(octets::WRITE, true, OPEN, to, &[3; 5]));
    raw.send(&octets::read_request(1, 0, 0, 0));
    raw.send(&immediate(5, MARKED));
    assert_eq!(
        raw.end.completions(),
        [
            received(1, WcOp::RecvWriteImmediate, 123, b"abcd\0\0\0\0"),
            received(2, WcOp::RecvWriteImmediate, 0, b"abcd\0\0\0\0"),
            received(3, WcOp::RecvImmediate, 8, MARKED),
            received(4, WcOp::RecvImmediate, 8, b"abcd\0\0\0\0"),
            received(5, WcOp::RecvImmediate, 8, MARKED),
        ]
    );
    let untouched = |touch: &Touch| matches!(touch, Touch::Placed { stag: OPEN, .. });
    assert!(raw.end.host.touches().iter().all(untouched), "no receive's buffer is touched");
}

#[test]
fn a_peer_of_another_kind_has_no_writes_with_immediate() {
    let mut raw = known(3);
    raw.end.receive(1, &[]);
    raw.send(&tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[3; 5]));
    raw.send(&untagged(octets::IMMEDIATE, true, 0, 0, 1, 0, MARKED));
    assert_eq!(raw.end.completions(), [received(1, WcOp::RecvImmediate, 8, MARKED)]);
}

/// The hello frame is a Write of nothing as well.
#[test]
fn immediate_data_behind_the_hello_frame_belongs_to_no_write() {
    let mut raw = known(15);
    raw.end.receive(1, &[]);
    raw.send(&untagged(octets::IMMEDIATE, true, 0, 0, 1, 0, MARKED));
    assert_eq!(raw.end.completions(), [received(1, WcOp::RecvImmediate, 8, MARKED)]);
}

#[test]
fn a_write_of_nothing_never_looks_like_the_hello_frame() {
    let (stag, to) = (Stag(MAGIC_STAG), TaggedOffset(MAGIC_TO));
    let mut raw = known(15);
    raw.end.post(1, SendOp::Write { stag, to }, &[]);
    let op = SendOp::WriteImmediate { stag, to, solicited: false, data: *b"abcd" };
    raw.end.post(2, op, &[]);
    raw.end.post(3, SendOp::Write { stag, to }, &[local(0, 1)]);
    let nothing = tagged(octets::WRITE, true, 0, 0, &[]);
    let back = raw.back();
    assert_eq!(back[0], nothing);
    assert_eq!(back[1], nothing);
    assert_eq!(back[2], untagged(octets::IMMEDIATE, true, 0, 0, 1, 0, MARKED));
    assert_eq!(back[3], tagged(octets::WRITE, true, MAGIC_STAG, MAGIC_TO, &[0]));
}

/// A program may send such octets of its own, behind a Write of its own.
#[test]
fn immediate_data_that_only_looks_written_is_kept_apart_from_the_write() {
    let mut pair = Pair::with(asking(), |_| {});
    let alone = SendOp::Immediate { solicited: false, data: *MARKED };
    for wr_id in 1..5 {
        pair.b.receive(wr_id, &[]);
    }
    pair.a.post(1, write_op(0), &[local(0, 9)]);
    pair.a.post(2, alone, &[]);
    pair.a.post(3, write_immediate(0, false), &[local(0, 7)]);
    pair.a.post(4, alone, &[]);
    pair.a.post(5, write_op(0), &[]);
    pair.a.post(6, alone, &[]);
    pair.run();
    assert_eq!(
        pair.b.completions(),
        [
            received(1, WcOp::RecvImmediate, 8, MARKED),
            received(2, WcOp::RecvWriteImmediate, 7, b"abcd\0\0\0\0"),
            received(3, WcOp::RecvImmediate, 8, MARKED),
            received(4, WcOp::RecvImmediate, 8, MARKED),
        ]
    );
    assert_eq!(pair.a.completions().len(), 6);
}

#[test]
fn two_of_our_kind_exchange_immediate_data_of_every_sort() {
    for (crc, markers) in [(true, false), (true, true), (false, false)] {
        for len in [0, 1, 4000, 30_000] {
            let mut pair = Pair::with(asking(), |terms| {
                (terms.crc, terms.send_markers, terms.receive_markers) = (crc, markers, markers);
            });
            let octets = pattern(len as usize, 5);
            pair.a.host.fill(LOCAL, 0, &octets);
            pair.b.receive(1, &[]);
            pair.b.receive(2, &[local(0, len)]);
            pair.a.post(1, write_immediate(0, false), &[local(0, len)]);
            pair.a.post(2, send_immediate(false), &[local(0, len)]);
            pair.run_in_steps(1000);
            assert_eq!(
                pair.b.completions(),
                [
                    received(1, WcOp::RecvWriteImmediate, len, b"abcd\0\0\0\0"),
                    received(2, WcOp::Recv, len, b"abcd\0\0\0\0")
                ]
            );
            assert_eq!(pair.b.host.octets(OPEN)[..len as usize], octets);
            assert_eq!(pair.b.host.octets(LOCAL)[..len as usize], octets);
            assert_eq!(pair.a.completions().len(), 2);
        }
    }
}

/// A responder may be told to close before it may send anything.
#[test]
fn a_write_with_immediate_is_told_of_even_behind_a_disconnect() {
    let mut pair = Pair::with(asking(), |_| {});
    pair.a.receive(1, &[]);
    pair.b.post(1, write_immediate(0, false), &[local(0, 9)]);
    let greeting = pair.a.take_all();
    pair.b.arrive(&greeting);
    pair.b.qp.borrow_mut().disconnect();
    pair.run();
    assert_eq!(pair.a.completions(), [received(1, WcOp::RecvWriteImmediate, 9, b"abcd\0\0\0\0")]);
    assert_eq!(outcomes(&pair.b.completions()), [(1, WcStatus::Success, WcOp::Write)]);
}

#[test]
fn a_write_whose_source_is_refused_sends_no_immediate_data() {
    let mut raw = known(15);
    let foreign = Sge { addr: LOCAL_BASE, length: 8, lkey: Stag(0xbad) };
    raw.end.post(1, write_immediate(0, false), &[foreign]);
    assert_eq!(raw.terminate()[..2], [0x00, 0x00]);
    let ended = (1, WcStatus::LocalProtection, WcOp::Write);
    assert_eq!(outcomes(&raw.end.completions()), [ended]);
}

#[test]
fn local_octets_beside_immediate_data_that_goes_alone_are_refused() {
    let raw = known(15);
    let alone = SendOp::Immediate { solicited: false, data: [0; 8] };
    assert_eq!(raw.end.try_post(1, alone, &[local(0, 1)]), Err(PostError::Invalid));
    assert_eq!(raw.end.try_post(1, alone, &[local(0, 0)]), Ok(()));
}

#[test]
fn requests_with_immediate_data_wait_to_know_the_peer() {
    for op in [send_immediate(false), write_immediate(0, false)] {
        let mut raw = Raw::initiator(asking(), |_| {});
        raw.end.post(1, op, &[local(0, 4)]);
        assert_eq!(raw.back(), [hello(15)]);
        assert!(raw.end.qp.borrow().poll_timeout().is_some());
        raw.send(&hello(15));
        assert!(!raw.back().is_empty());
        assert_eq!(raw.end.completions()[0].status, WcStatus::Success);
    }
}
