// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rows that were run with either device: which programs need one of them.

use std::collections::BTreeMap;

use anyhow::Result;

use super::document::{self, Key, Verdict};
use super::table::{Personality, Row};
use super::{Run, lab_for, run_each};
use crate::dist::Build;

/// Devices to run rows with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Which {
    Iwarp,
    Roce,
    Both,
}

/// The rows with these devices instead of their own, each once. Rows with another device at the
/// server's end are left out: there is nothing to compare.
pub(super) fn rows(rows: &[Row], which: Which) -> Vec<Row> {
    let devices: &[Personality] = match which {
        Which::Iwarp => &[Personality::Iwarp],
        Which::Roce => &[Personality::Roce],
        Which::Both => &[Personality::Iwarp, Personality::Roce],
    };
    let mut all: Vec<Row> = Vec::new();
    for row in rows.iter().filter(|row| row.server_personality.is_none()) {
        for device in devices {
            let row = row.with_personality(*device);
            if !all.iter().any(|known| Key::of(known) == Key::of(&row)) {
                all.push(row);
            }
        }
    }
    all
}

/// The number of times that a row has worked with each device.
#[derive(Default)]
struct Count {
    good: [u32; 2],
    runs: [u32; 2],
}

/// Runs everything so often, and prints the rows that did not always work, or not with both.
pub(super) fn run(runs: &[Run], times: u32, jobs: usize) -> Result<()> {
    let mut counts: BTreeMap<(String, &str), Count> = BTreeMap::new();
    let lab = lab_for(runs, jobs, Build::Ci)?;
    for _ in 0..times {
        // Each failure counts, so none is tried again.
        let (verdicts, _) = run_each(&lab, runs.to_vec());
        for Run { row, topology } in runs {
            let topology = document::name(*topology);
            let Some(verdict) = verdicts.get(&(Key::of(row), topology)) else { continue };
            // Both have everything in common but the device's name.
            let what = Key::of(&row.with_personality(Personality::Roce)).to_string();
            let count = counts.entry((what, topology)).or_default();
            let device = row.personality as usize;
            count.runs[device] += 1;
            count.good[device] += u32::from(Verdict::is_good(verdict));
        }
    }
    let always = |count: &&Count| count.good == count.runs;
    println!("\n| Command | Place | iwarp | roce |\n|---|---|---|---|");
    for ((what, topology), count) in counts.iter().filter(|(_, count)| !always(count)) {
        let [iwarp, roce] = [0, 1].map(|device| match count.runs[device] {
            0 => "not run".to_owned(),
            runs => format!("{} of {runs}", count.good[device]),
        });
        println!("| {what} | {topology} | {iwarp} | {roce} |");
    }
    let good = counts.values().filter(always).count();
    println!("\n{good} of {} rows always did what they should.", counts.len());
    Ok(())
}
