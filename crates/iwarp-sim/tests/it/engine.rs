// SPDX-License-Identifier: MIT OR Apache-2.0

//! The simulator of the whole library: nothing is found in it as it is, and what is planted in it
//! is.

use std::ops::Range;

use iwarp_sim::engine::{Flaw, Options, Summary, run_seed};

fn run(seeds: Range<u64>) -> Summary {
    crate::run(seeds, |seed| run_seed(seed, &Options::default()), Summary::add)
}

fn finds(flaw: Flaw, what: &str) {
    let options = Options { flaw, ..Options::default() };
    crate::finds(flaw, what, 300, |seed| run_seed(seed, &options));
}

#[test]
fn all_rules_are_kept() {
    let total = run(0..200);
    assert!(total.completions > 10_000 && total.connections > 200, "{total:?}");
    assert!(total.pauses > 1000, "no caller paused: {total:?}");
    assert!(total.moved > 30 && total.direct > 100, "no way past TCP: {total:?}");
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..20 {
        assert_eq!(run(seed..seed + 1), run(seed..seed + 1), "seed {seed}");
    }
}

#[test]
fn a_lost_wake_up_is_found() {
    finds(Flaw::TimerWakesNobody, "told in time");
    finds(Flaw::SleeperArmsNothing, "all workers sleep");
}

#[test]
fn a_group_that_is_not_armed_again_is_found() {
    finds(Flaw::ServedNotArmed, "all workers sleep");
}

#[test]
fn a_completion_that_is_handed_out_twice_is_found() {
    finds(Flaw::CompletionTwice, "has completed before");
}

#[test]
fn a_lease_that_never_ends_is_found() {
    finds(Flaw::LeaseForEver, "all workers sleep");
}

#[test]
fn a_bell_that_stays_hushed_is_found() {
    finds(Flaw::StaysHushed, "");
}

#[test]
fn a_wake_up_that_a_port_without_descriptor_loses_is_found() {
    finds(Flaw::WakeLost, "all workers sleep");
}

#[test]
fn bytes_in_a_ring_of_which_the_peer_is_not_told_are_found() {
    finds(Flaw::MarkLost, "all workers sleep");
}

#[test]
fn a_fork_check_that_is_left_out_is_found() {
    finds(Flaw::ForkUnchecked, "forked child");
}
