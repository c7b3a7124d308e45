// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracle bites: with a defect in the memory or the link, or with another seed, what it has
//! to find is found; and without one nothing is.

use std::ops::Range;

use iwarp_sim::{Flaw, Mode, Options, Summary, run_from_bytes, run_seed};

fn run(seeds: Range<u64>, mode: Option<Mode>) -> Summary {
    let options = Options { steps: 600, mode, ..Options::default() };
    crate::run(seeds, |seed| run_seed(seed, &options), Summary::add)
}

fn finds(flaw: Flaw, mode: Mode, what: &str) {
    let options = Options { steps: 600, mode: Some(mode), flaw, ..Options::default() };
    crate::finds(flaw, what, 40, |seed| run_seed(seed, &options));
}

/// Legal programs on a slow network: everything succeeds, in order, and the stream ends well.
///
/// Covers: RDMAP-5040-5.1-05, RDMAP-5040-5.2.1-06, RDMAP-5040-5.2.1-07, RDMAP-5040-5.2.1-10,
/// Covers: RDMAP-5040-5.3-05, RDMAP-5040-5.3-08, RDMAP-5040-5.5-02, RDMAP-5040-5.5-03,
/// Covers: RDMAP-5040-5.5-05, RDMAP-5040-5.5-06, RDMAP-5040-5.5-07, RDMAP-5040-5.5-11,
/// Covers: RDMAP-5040-5.5-12, RDMAP-5040-5.5-13, RDMAP-5040-6.1-04,
/// Covers: DDP-5041-5.2-01, DDP-5041-5.2-03, DDP-5041-5.2-04, DDP-5041-5.2-05, DDP-5041-5.2-07,
/// Covers: DDP-5041-5.2-08, DDP-5041-5.3-01, DDP-5041-5.3-02, DDP-5041-5.3-03, DDP-5041-5.3-05,
/// Covers: DDP-5041-5.3-06, DDP-5041-5.4-01, DDP-5041-5.4-02, DDP-5041-6.2.1-01,
/// Covers: EXT-7306-5.2.1-12, EXT-7306-5.2.1-13, EXT-7306-5.2.1-14, EXT-7306-5.2.2-07,
/// Covers: EXT-7306-5.4-07, EXT-7306-5.4-08, EXT-7306-5.4-09, EXT-7306-7-01, EXT-7306-7-02,
/// Covers: EXT-7306-7-03, VERBS-hilland-6.5-01, MPA-5044-4.1-03, MPA-5044-4.3-02, MPA-5044-4.3-03
#[test]
fn legal_programs_always_succeed() {
    let total = run(0..120, Some(Mode::Clean));
    assert!(total.completions > 10_000 && total.connections > 100, "{total:?}");
}

/// Programs that err, memory that goes away between a check and its use, ends that disconnect,
/// abort and break: every request ends once, at most one in error that is not flushed, and
/// nothing follows a Terminate.
///
/// Covers: RDMAP-5040-5.4-07, RDMAP-5040-5.4-08, VERBS-hilland-6.2.4-01, VERBS-hilland-6.4-01,
/// Covers: VERBS-hilland-6.2.2.3-02
#[test]
fn ends_that_break_leave_nothing_behind() {
    let total = run(0..150, Some(Mode::Rough));
    assert!(total.connections > 200, "{total:?}");
}

/// Covers: MPA-5044-6-01, MPA-5044-6-03
#[test]
fn corner_12_no_changed_octet_is_placed_where_crcs_are_on() {
    let total = run(0..60, Some(Mode::Corrupt));
    assert!(total.connections > 60, "{total:?}");
}

#[test]
fn changed_octets_without_crcs_touch_nothing_that_was_not_given() {
    let total = run(0..60, Some(Mode::Unchecked));
    assert!(total.connections > 60, "{total:?}");
}

/// Each known way to break a rule is answered by the Terminate that it calls for.
///
/// Covers: DDP-5041-7.1-01, DDP-5041-7.1-02, DDP-5041-7.1-07, DDP-5041-7.1-08, DDP-5041-7.1-09,
/// Covers: DDP-5041-7.1-10, DDP-5041-7.1-11, DDP-5041-7.1-12, DDP-5041-7.1-13, DDP-5041-7.1-14,
/// Covers: DDP-5041-7.1-17, RDMAP-5040-7.2-02, RDMAP-5040-7.2-03, RDMAP-5040-7.2-04,
/// Covers: RDMAP-5040-7.2-09, RDMAP-5040-7.2-10, RDMAP-5040-7.2-12, RDMAP-5040-7.2-13,
/// Covers: RDMAP-5040-6.1-05, RDMAP-5040-7.1-05, RDMAP-5040-5.4-10, EXT-7306-5.1.1-03
#[test]
fn hostile_peers_get_the_right_terminate() {
    let total = run(0..60, Some(Mode::Hostile));
    assert!(total.connections > 500, "{total:?}");
}

#[test]
fn the_same_seed_does_the_same() {
    for seed in 0..20 {
        let options = Options { steps: 500, ..Options::default() };
        let once = run_seed(seed, &options).unwrap_or_else(|failure| panic!("{failure}"));
        let again = run_seed(seed, &options).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(once, again);
    }
    let digest = |seed| run_seed(seed, &Options::default()).map(|summary| summary.digest).ok();
    assert_ne!(digest(1), digest(2));
}

#[test]
fn a_failure_is_replayed_with_its_trace() {
    let options = Options {
        steps: 600,
        mode: Some(Mode::Clean),
        flaw: Flaw::PlaceShort,
        ..Options::default()
    };
    let failure = (0..20).find_map(|seed| run_seed(seed, &options).err()).expect("a failure");
    assert!(!failure.trace.is_empty());
    let again = run_seed(failure.seed, &options).expect_err("the same failure");
    assert_eq!((failure.place, failure.why, failure.trace), (again.place, again.why, again.trace));
}

#[test]
fn octets_placed_short_are_found() {
    finds(Flaw::PlaceShort, Mode::Clean, "not what");
}

#[test]
fn octets_placed_beside_are_found() {
    finds(Flaw::PlaceBeside, Mode::Clean, "not what");
}

#[test]
fn octets_gathered_wrong_are_found() {
    finds(Flaw::GatherWrong, Mode::Clean, "differ from what was posted");
    finds(Flaw::GatherWrong, Mode::Clean, "not there since the request came");
}

#[test]
fn atomics_with_the_wrong_result_are_found() {
    finds(Flaw::AtomicReturnsNew, Mode::Clean, "atomic operation returned");
}

#[test]
fn stags_that_stay_valid_are_found() {
    finds(Flaw::KeepInvalidated, Mode::Clean, "reported invalidated and is valid");
}

#[test]
fn lost_octets_are_found() {
    finds(Flaw::LinkDrops, Mode::Clean, "");
}

#[test]
fn changed_octets_are_found() {
    finds(Flaw::LinkChanges, Mode::Clean, "wrong CRC");
    finds(Flaw::LinkChanges, Mode::Clean, "wrong octets placed");
}

#[test]
fn lost_completions_are_found() {
    finds(Flaw::LoseCompletion, Mode::Clean, "held back");
}

#[test]
fn repeated_completions_are_found() {
    finds(Flaw::RepeatCompletion, Mode::Clean, "receive");
}

#[test]
fn a_stream_that_stops_is_found() {
    finds(Flaw::LinkStops, Mode::Clean, "never completed");
}

#[test]
fn a_farewell_that_counts_wrong_is_found() {
    finds(Flaw::FarewellHigh, Mode::Clean, "messages received");
    finds(Flaw::FarewellLow, Mode::Clean, "received");
}

/// A count that is too low cannot have completed what did complete.
#[test]
fn a_count_of_an_end_at_which_messages_wait_that_is_wrong_is_found() {
    finds(Flaw::CountHigh, Mode::Clean, "");
    finds(Flaw::CountLow, Mode::Clean, "completed before it was done");
}

#[test]
fn a_count_that_is_lost_is_found() {
    finds(Flaw::CountLost, Mode::Clean, "was received, and has not completed");
}

#[test]
fn any_octets_make_a_run() {
    run_from_bytes(&[]);
    let mut octets = Vec::new();
    for round in 0..60u64 {
        octets.clear();
        octets.resize(40 + 30 * round as usize, 0);
        iwarp_sim::choice::pattern(round, &mut octets);
        run_from_bytes(&octets);
    }
}
