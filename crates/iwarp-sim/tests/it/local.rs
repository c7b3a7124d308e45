// SPDX-License-Identifier: MIT OR Apache-2.0

//! The simulator of connections within a host: programs find no difference to TCP in the library as
//! it is, and find what is planted in it.

use std::ops::Range;

use iwarp::flaw::Flaw;
use iwarp_sim::local::{Options, Summary, run_seed};

fn run(seeds: Range<u64>) -> Summary {
    crate::run(seeds, |seed| run_seed(seed, &Options::default()), Summary::add)
}

fn finds(flaw: Flaw, what: &str) {
    let options = Options { flaw, ..Options::default() };
    crate::finds(flaw, what, 500, |seed| run_seed(seed, &options));
}

#[test]
fn ways_past_tcp_show_what_tcp_shows() {
    let total = run(0..150);
    assert!(total.completions > 5_000 && total.moved > 150 && total.direct > 250, "{total:?}");
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..20 {
        assert_eq!(run(seed..seed + 1), run(seed..seed + 1), "seed {seed}");
    }
}

#[test]
fn a_direct_access_that_overtakes_a_message_is_found() {
    finds(Flaw::DirectOvertakes, "sees something else");
}

#[test]
fn an_access_to_memory_that_is_deregistered_is_found() {
    finds(Flaw::RevokesNothing, "memory has changed that is registered no more");
}
