// SPDX-License-Identifier: MIT OR Apache-2.0

//! A program within the host sees no difference between TCP and the ways past it: programs by lot
//! are played by TCP, by rings, and where ends access each other's memory, and have to find the
//! same completions, ends of connections, and contents of memory.
//!
//! `IWARP_ORACLE` is the number of programs, `IWARP_ORACLE_SEED` the first one.

use iwarp::{LocalPath, Options};

use crate::common::DEADLINE;
use crate::common::player::{Seen, Stage};
use crate::common::process::{goes_on, number, passed_apart, seed, this_test};
use crate::common::script::Script;

#[test]
fn all_ways_within_the_host_show_a_program_what_tcp_shows() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let programs = number("IWARP_ORACLE", 25);
    let first = seed("IWARP_ORACLE_SEED");
    // Messages wait for their receives on devices of the second kind.
    for (options, waits) in [(Options::new(), false), (Options::for_any_program(), true)] {
        let stage = |way| Stage::new(&options, way, waits);
        let by_tcp = stage(LocalPath::Off);
        let others = [LocalPath::Rings, LocalPath::Auto].map(|way| (way, stage(way)));
        let [mut direct, mut posted] = [0; 2];
        for seed in (first..).take(programs as usize) {
            let script = Script::new(seed, waits);
            let expected = by_tcp.play(&script, false);
            for (way, stage) in &others {
                let seen = stage.play(&script, seed % 4 != 0);
                compare(&script, &expected, &seen, &format!("seed {seed}, {way:?}, {waits}"));
                if *way == LocalPath::Auto {
                    direct += seen.direct;
                    posted += seen.posted;
                }
            }
            goes_on();
        }
        println!("{direct} of {posted} requests were carried out directly");
        // Of a few programs there may be none that comes to that.
        assert!(programs < 20 || direct > posted / 50, "{direct} of {posted}");
    }
}

fn compare(script: &Script, expected: &Seen, seen: &Seen, which: &str) {
    let mut both = expected.lines.iter().zip(&seen.lines);
    let differs = both.position(|(one, other)| one != other);
    if differs.is_none() && expected.lines.len() == seen.lines.len() {
        return;
    }
    let at = differs.unwrap_or(expected.lines.len().min(seen.lines.len()));
    let around =
        |lines: &[String]| lines[at.saturating_sub(12)..(at + 8).min(lines.len())].join("\n");
    panic!(
        "{which}:\n{script:#?}\nby TCP:\n{}\nseen:\n{}",
        around(&expected.lines),
        around(&seen.lines)
    );
}
