// SPDX-License-Identifier: MIT OR Apache-2.0

//! The simulator of RoCE v2: nothing is found in it as it is, and what is planted in it is.

use std::ops::Range;

use iwarp_sim::roce::{Flaw, Kind, Options, Summary, run_from_bytes, run_seed};

fn run(kind: Kind, seeds: Range<u64>) -> Summary {
    let options = Options { kind: Some(kind), ..Options::default() };
    crate::run(seeds, |seed| run_seed(seed, &options), Summary::add)
}

fn finds(kind: Kind, flaw: Flaw, what: &str) {
    let options = Options { flaw, kind: Some(kind), ..Options::default() };
    crate::finds(flaw, what, 100, |seed| run_seed(seed, &options));
}

/// Covers: ROCE-109, ROCE-110, ROCE-111, ROCE-112
#[test]
fn uc_keeps_all_rules() {
    let total = run(Kind::Uc, 0..200);
    assert!(total.arrived > 2000 && total.lost > 1000, "{total:?}");
}

/// Covers: ROCE-114, ROCE-116, ROCE-118, ROCE-121, ROCE-129
#[test]
fn ud_keeps_all_rules() {
    let total = run(Kind::Ud, 0..200);
    assert!(total.arrived > 2000 && total.lost > 500, "{total:?}");
}

#[test]
fn a_seed_repeats_itself() {
    for kind in Kind::ALL {
        assert_eq!(run(kind, 0..10), run(kind, 0..10));
        assert_ne!(run(kind, 0..1).digest, run(kind, 1..2).digest);
    }
}

#[test]
fn a_qkey_that_nobody_looks_at_is_found() {
    finds(Kind::Ud, Flaw::QkeyIgnored, "nothing had to complete");
}

#[test]
fn a_message_that_is_told_too_early_is_found() {
    for kind in Kind::ALL {
        finds(kind, Flaw::PlacedLate, "wrong octets");
    }
}

#[test]
fn a_receive_that_is_used_again_is_found() {
    for kind in Kind::ALL {
        finds(kind, Flaw::StaleReceive, "");
    }
}

#[test]
fn completions_that_are_lost_or_told_twice_are_found() {
    for kind in Kind::ALL {
        finds(kind, Flaw::CompletionLost, "");
        finds(kind, Flaw::CompletionTwice, "");
    }
}

/// The runs that fuzzers try: octets decide, and every other run has a hostile peer.
#[test]
fn octets_decide_too() {
    let mut state = 1;
    for _ in 0..300 {
        let mut word = || iwarp_sim::choice::split_mix(&mut state);
        let len = word() % 2000;
        let octets: Vec<u8> = (0..len).map(|_| word() as u8).collect();
        run_from_bytes(&octets);
    }
}

#[test]
fn rc_keeps_all_rules() {
    let total = run(Kind::Rc, 0..200);
    assert!(total.arrived > 2000 && total.lost > 1000, "{total:?}");
}

#[test]
fn requests_done_twice_are_found() {
    finds(Kind::Rc, Flaw::DoneTwice, "");
}
