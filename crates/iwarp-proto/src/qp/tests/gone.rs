// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that the program has taken away while it is registered.

use super::octets::{atomic_request, fetch_add, read_request, send, tagged};
use super::*;
use crate::qp::Fault;

fn ends_with(raw: &mut Raw, remote: bool) {
    let events = raw.end.events();
    let fault = events.iter().find_map(|event| match event {
        Event::Fault(fault) => Some(*fault),
        _ => None,
    });
    assert!(
        matches!(fault, Some(Fault::BadAddress { remote: told, .. }) if told == remote),
        "{events:?}"
    );
}

fn modes() -> impl Iterator<Item = (bool, bool)> {
    [(true, false), (true, true), (false, false), (false, true)].into_iter()
}

fn raw_in(crc: bool, markers: bool) -> Raw {
    Raw::responder(config(), |terms| {
        (terms.crc, terms.send_markers, terms.receive_markers) = (crc, markers, false);
    })
}

/// The peer did nothing wrong: a local catastrophe, which quotes nothing.
///
/// Covers: RDMAP-5040-7.1-01
#[test]
fn a_peers_access_ends_with_a_terminate_that_does_not_blame_it() {
    let accesses = [
        tagged(octets::WRITE, true, OPEN, OPEN_BASE, b"xyz"),
        tagged(octets::WRITE, true, OPEN, OPEN_BASE, &[1; 900]),
        read_request(1, 4, OPEN, OPEN_BASE),
        read_request(1, 3000, OPEN, OPEN_BASE),
        atomic_request(1, OPEN, OPEN_BASE, fetch_add(1)),
    ];
    for (crc, markers) in modes() {
        for ulpdu in &accesses {
            let mut raw = raw_in(crc, markers);
            raw.send(&tagged(octets::WRITE, true, 0, 0, &[]));
            raw.end.receive(9, &[]);
            raw.end.host.change(OPEN, |region| region.gone = true);
            assert_eq!(raw.refuse(ulpdu), [0, 0, 0, 0], "crc {crc}, markers {markers}");
            ends_with(&mut raw, true);
            assert!(raw.end.host.touches().is_empty());
        }
    }
}

/// Covers: RDMAP-5040-7.1-01
#[test]
fn a_receive_whose_memory_is_gone_says_so_and_the_rest_is_flushed() {
    for (crc, markers) in modes() {
        for len in [4, 900] {
            let mut raw = raw_in(crc, markers);
            raw.end.receive(1, &[local(0, 1000)]);
            raw.end.receive(2, &[local(0, 1000)]);
            raw.end.host.change(LOCAL, |region| region.gone = true);
            assert_eq!(raw.refuse(&send(1, &vec![7; len])), [0, 0, 0, 0]);
            let events = raw.end.events();
            let ended: Vec<_> = events.iter().cloned().filter_map(completion).collect();
            assert_eq!(
                outcomes(&ended),
                [(1, WcStatus::LocalProtection, WcOp::Recv), (2, WcStatus::Flushed, WcOp::Recv)]
            );
        }
    }
}

/// Only what was built of the message before goes out.
///
/// Covers: RDMAP-5040-7.1-01
#[test]
fn a_request_whose_source_is_gone_says_so_and_the_rest_is_flushed() {
    for (crc, markers) in modes() {
        for len in [4, 900, 3000] {
            for op in [SEND, write_op(0)] {
                let mut raw = raw_in(crc, markers);
                raw.send(&tagged(octets::WRITE, true, 0, 0, &[]));
                raw.end.post(1, SEND, &[]);
                assert!(!raw.back().is_empty(), "the stream has taken it");
                raw.end.host.change(LOCAL, |region| region.gone = true);
                raw.end.post(2, op, &[local(0, len)]);
                raw.end.post(3, SEND, &[]);
                let back = raw.back();
                assert_eq!(back.last().map(|ulpdu| ulpdu[18..].to_vec()), Some(vec![0, 0, 0, 0]));
                let ended = raw.end.completions();
                let expected = [WcStatus::Success, WcStatus::LocalProtection, WcStatus::Flushed];
                let told: Vec<_> = ended.iter().map(|ended| ended.status).collect();
                assert_eq!(told, expected, "crc {crc}, markers {markers}, {len}");
            }
        }
    }
}

/// With CRC off long payloads lie in the program's memory until the stream takes them. If they go
/// away in between, their header may be taken already: the stream is reset.
#[test]
fn a_source_that_goes_when_its_header_was_built_ends_its_own_request() {
    let mut raw = raw_in(false, false);
    raw.send(&tagged(octets::WRITE, true, 0, 0, &[]));
    raw.end.tx.set_mulpdu(4114);
    raw.end.post(1, SEND, &[local(0, 100)]);
    raw.end.post(2, SEND, &[local(0, 3000)]);
    raw.end.post(3, SEND, &[local(0, 3000)]);
    raw.end.build();
    let error = iwarp_types::AccessError::BadAddress(7);
    let number = 1;
    raw.end.tx.lost(&raw.end.qp, &raw.end.out, number, error);
    assert_eq!(raw.end.disposition(), Disposition::Abort);
    let ended = raw.end.completions();
    let told: Vec<_> = ended.iter().map(|ended| (ended.wr_id, ended.status)).collect();
    let expected = [(1, WcStatus::Flushed), (2, WcStatus::LocalProtection), (3, WcStatus::Flushed)];
    assert_eq!(told, expected);
}
