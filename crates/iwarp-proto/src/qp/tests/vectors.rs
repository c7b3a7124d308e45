// SPDX-License-Identifier: MIT OR Apache-2.0

//! The recorded messages of `tests/data/vectors.json`, octet for octet: those that an end makes,
//! and those that it takes.

use std::string::String;

use super::octets::{self, word};
use super::*;
use crate::mpa::error::{MpaError, StartupFault};
use crate::mpa::startup::Rtr;
use crate::qp::Fault;
use crate::rdmap::wire::TerminateCode;

const SOURCE: u32 = 0xb0b1_b2b3;

/// The FPDU of that name, without or with markers.
fn recorded(name: &str, markers: bool) -> Vec<u8> {
    let text = include_str!("../../../tests/data/vectors.json");
    let all: serde_json::Value = serde_json::from_str(text).unwrap();
    let prefix = if markers { "mk_" } else { "nomk_" };
    let hex: String = all[std::format!("{prefix}{name}")].as_str().expect(name).into();
    hex::decode(hex).unwrap()
}

fn ends(role: Role, markers: bool, change: impl FnOnce(&mut Negotiated)) -> Raw {
    let raw = Raw::with(config(), role, |terms| {
        (terms.send_markers, terms.receive_markers) = (markers, markers);
        change(terms);
    });
    // 0, 1, 2, ... is the payload of the recorded messages.
    raw.end.host.register(PD, SOURCE, 0x20, 0x100, Access::REMOTE_READ | Access::REMOTE_ATOMIC);
    for stag in [LOCAL, SOURCE] {
        raw.end.host.fill(stag, 0, &(0..32).collect::<Vec<u8>>());
    }

    raw
}

/// Checks the octets that an end must send first when it has done `start`.
fn makes(name: &str, start: impl Fn(&mut Raw), change: impl Fn(&mut Negotiated)) {
    for markers in [false, true] {
        let mut raw = ends(Role::Initiator, markers, &change);
        start(&mut raw);
        assert_eq!(raw.end.take_all(), recorded(name, markers), "{name}");
    }
}

/// Checks the answer that an end must give to a recorded message: another one.
fn answers(name: &str, answer: &str) {
    for markers in [false, true] {
        let mut raw = ends(Role::Responder, markers, |_| {});
        raw.end.arrive(&recorded(name, markers));
        assert_eq!(raw.end.take_all(), recorded(answer, markers), "{name}");
    }
}

fn post(op: SendOp, len: u32) -> impl Fn(&mut Raw) {
    move |raw| raw.end.post(1, op, &[local(0, len)])
}

/// Covers: DDP-5041-4.2-01, DDP-5041-4.3-01, RDMAP-5040-4.1-01, RDMAP-5040-4.1-03,
/// RDMAP-5040-4.1-05, EXT-7306-4.1-02, EXT-7306-6.3-05, EMPA-6581-9.2-09
#[test]
fn sends_writes_and_immediate_data_are_made_as_recorded() {
    let send = |solicited, invalidate| SendOp::Send { solicited, invalidate };
    let stag = Some(Stag(0xdead_be01));
    let write = SendOp::Write { stag: Stag(0x0102_0304), to: TaggedOffset(0x1122_3344_5566_7788) };
    let data = [0, 1, 2, 3, 4, 5, 6, 7];
    makes("write_stag01020304_to1122334455667788_16B", post(write, 16), |_| {});
    makes("send_inv_stagDEADBE01", post(send(false, stag), 16), |_| {});
    makes("send_se", post(send(true, None), 16), |_| {});
    makes("send_se_inv_stagDEADBE01", post(send(true, stag), 16), |_| {});
    makes("imm_8B", post(SendOp::Immediate { solicited: false, data }, 0), |_| {});
    makes("imm_se_8B", post(SendOp::Immediate { solicited: true, data }, 0), |_| {});
    let hello = |raw: &mut Raw| raw.end.post_inline(1, SEND, b"hello");
    makes("send_msn1_5B_pad3", hello, |_| {});
    for (name, rtr) in [("write_zero_len_rtr", Rtr::Write), ("send_zero_len_rtr", Rtr::Send)] {
        makes(
            name,
            |_| {},
            |terms| {
                (terms.peer_to_peer, terms.rtr) = (true, Some(rtr));
            },
        );
    }
}

/// Covers: RDMAP-5040-4.4-01, EXT-7306-5.2.1-15, EXT-7306-5.2.1-05
#[test]
fn requests_are_made_as_recorded_but_for_the_names_they_choose() {
    let source = (Stag(SOURCE), TaggedOffset(0x20));
    let mut raw = ends(Role::Initiator, false, |_| {});
    raw.end.post(
        1,
        SendOp::Read { stag: source.0, to: source.1, invalidate: None },
        &[local(0, 16)],
    );
    let mut back = raw.back().remove(0);
    let expected = recorded("readreq_msn1_16B", false);
    back[18..30].copy_from_slice(&expected[20..32]);
    assert_eq!(back, expected[2..expected.len() - 4]);
    let (stag, to) = (Stag(SOURCE), TaggedOffset(0x40));
    let cas = SendOp::Atomic {
        stag,
        to,
        op: AtomicOp::CompareSwap {
            compare: 0x2222_2222_2222_2222,
            compare_mask: u64::MAX,
            swap: 0x1111_1111_1111_1111,
            swap_mask: u64::MAX,
        },
    };
    let add = SendOp::Atomic { stag, to, op: AtomicOp::FetchAdd { add: 7, mask: 0 } };
    for (name, op) in [("atomic_fetchadd", add), ("atomic_cmpswap", cas)] {
        let mut raw = ends(Role::Initiator, false, |_| {});
        raw.end.post(1, op, &[local(0, 8)]);
        let mut back = raw.back().remove(0);
        let expected = recorded(name, false);
        back[22..26].copy_from_slice(&expected[24..28]);
        assert_eq!(back, expected[2..expected.len() - 4], "{name}");
    }
}

/// Covers: RDMAP-5040-4.4-02, RDMAP-5040-5.2.1-14, RDMAP-5040-4.8-01, EXT-7306-5.2.2-08,
/// EXT-7306-5.2.1-03
#[test]
fn requests_are_answered_as_recorded() {
    answers("readreq_msn1_16B", "readresp_16B");
    for markers in [false, true] {
        let mut raw = ends(Role::Responder, markers, |_| {});
        raw.end.host.fill(SOURCE, 0x20, &0x0102_0304_0506_0708u64.to_ne_bytes());
        raw.end.arrive(&recorded("atomic_fetchadd", markers));
        assert_eq!(raw.end.take_all(), recorded("atomic_resp", markers));
        let sum = 0x0102_0304_0506_070fu64.to_ne_bytes();
        assert_eq!(raw.end.host.octets(SOURCE)[0x20..0x28], sum);

        let mut raw = ends(Role::Responder, markers, |_| {});
        raw.end.host.change(SOURCE, |region| region.valid = false);
        raw.end.arrive(&recorded("readreq_msn1_16B", markers));
        let terminate = recorded("term_rdmap_rreq_invalid_stag_0_1_00_MDR", markers);
        assert_eq!(raw.end.take_all(), terminate);

        let mut raw = ends(Role::Responder, markers, |_| {});
        raw.end.host.register(PD, 0x0102_0304, 0, 0x100, Access::REMOTE_WRITE);
        raw.end.arrive(&recorded("write_stag01020304_to1122334455667788_16B", markers));
        assert_eq!(raw.end.take_all(), recorded("term_ddp_base_bounds_1_1_01", markers));

        // An RTR Read may name anything.
        let mut raw = ends(Role::Responder, markers, |_| {});
        raw.end.arrive(&recorded("readreq_zero_len_rtr", markers));
        assert_eq!(raw.end.events(), [Event::FirstHeard]);
        let sink = (1, 1);
        assert_eq!(raw.back(), [octets::tagged(octets::READ_RESPONSE, true, sink.0, sink.1, &[])]);
    }
}

/// Covers: RDMAP-5040-4.8-01, EMPA-6581-8-01, EMPA-6581-9.1-10, EMPA-6581-9.2-11, MPA-5044-8-05
#[test]
fn terminates_are_made_and_taken_as_recorded() {
    for (name, fault, code) in [
        ("term_local_catastrophic_no_hdr", Fault::Local(""), (0, 0, 0)),
        ("term_mpa_crc_2_0_02", Fault::Framing(MpaError::Crc.fault()), (2, 0, 2)),
        (
            "term_mpa_insufficient_ird_2_0_06",
            Fault::Startup(StartupFault::InsufficientIrd),
            (2, 0, 6),
        ),
        ("term_mpa_no_rtr_2_0_07", Fault::Startup(StartupFault::NoMatchingRtr), (2, 0, 7)),
    ] {
        makes(name, |raw| raw.end.qp.borrow_mut().fail(fault), |_| {});
        for markers in [false, true] {
            let mut raw = ends(Role::Initiator, markers, |_| {});
            raw.end.arrive(&recorded(name, markers));
            let (layer, etype, code) = code;
            let told = TerminateCode { layer, etype, code };
            assert_eq!(raw.end.events(), [Event::Terminated(told)]);
        }
    }
}

#[test]
fn recorded_messages_do_what_they_say() {
    for markers in [false, true] {
        let arrive = |raw: &mut Raw, name| raw.end.arrive(&recorded(name, markers));
        let payload: Vec<u8> = (0..16).collect();

        let mut raw = ends(Role::Responder, markers, |_| {});
        raw.end.host.register(PD, 0x0102_0304, 0x1122_3344_5566_7788, 16, Access::REMOTE_WRITE);
        arrive(&mut raw, "write_stag01020304_to1122334455667788_16B");
        assert_eq!(raw.end.host.octets(0x0102_0304), payload);
        assert_eq!(raw.end.events(), [Event::FirstHeard]);
        let mut raw = ends(Role::Responder, markers, |_| {});
        arrive(&mut raw, "write_zero_len_rtr");
        assert_eq!(raw.end.events(), [Event::FirstHeard]);

        for (name, solicited, invalidated, len) in [
            ("send_msn1_5B_pad3", false, None, 5),
            ("send_zero_len_rtr", false, None, 0),
            ("send_se", true, None, 16),
            ("send_inv_stagDEADBE01", false, Some(Stag(0xdead_be01)), 16),
            ("send_se_inv_stagDEADBE01", true, Some(Stag(0xdead_be01)), 16),
        ] {
            let mut raw = ends(Role::Responder, markers, |_| {});
            raw.end.host.register(PD, 0xdead_be01, 0, 8, Access::REMOTE_WRITE);
            raw.end.receive(1, &[local(64, 64)]);
            arrive(&mut raw, name);
            let completions = raw.end.completions();
            assert_eq!(completions.len(), 1, "{name}");
            assert_eq!(completions[0].byte_len, len);
            assert_eq!(completions[0].solicited, solicited);
            assert_eq!(completions[0].invalidated, invalidated);
            let expected = if len == 5 { b"hello" } else { &payload[..len as usize] };
            assert_eq!(raw.end.host.octets(LOCAL)[64..64 + len as usize], *expected);
        }
        for (name, solicited) in [("imm_8B", false), ("imm_se_8B", true)] {
            let mut raw = ends(Role::Responder, markers, |_| {});
            raw.end.receive(1, &[]);
            arrive(&mut raw, name);
            let completions = raw.end.completions();
            assert_eq!(completions[0].immediate, Some([0, 1, 2, 3, 4, 5, 6, 7]));
            assert_eq!(completions[0].solicited, solicited);
        }
        let mut raw = ends(Role::Responder, markers, |_| {});
        raw.end.host.fill(SOURCE, 0x20, &[0x22; 8]);
        arrive(&mut raw, "atomic_cmpswap");
        assert_eq!(word(&raw.back()[0], 18), 0x55aa_55aa);
        assert_eq!(raw.end.host.octets(SOURCE)[0x20..0x28], [0x11; 8]);

        // Terminates that quote what this end is supposed to have sent.
        for (name, layer, code) in [
            ("term_ddp_base_bounds_1_1_01", 1, 1),
            ("term_rdmap_rreq_invalid_stag_0_1_00_MDR", 0, 0),
        ] {
            let mut raw = ends(Role::Responder, markers, |_| {});
            arrive(&mut raw, name);
            let told = TerminateCode { layer, etype: 1, code };
            assert_eq!(raw.end.events(), [Event::Terminated(told)]);
        }
    }
}
