// SPDX-License-Identifier: MIT OR Apache-2.0

//! The counts of a soak, and the table at its end.

use std::collections::BTreeMap;

use super::resident::Resident;

/// The result of an episode.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) messages: u64,
    pub(super) sent: u64,
    pub(super) verified: u64,
    /// Processes that failed as the fault allows.
    pub(super) expected: u64,
    /// Everything else that went wrong, in words.
    pub(super) problems: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    runs: u64,
    good: u64,
    messages: u64,
    sent: u64,
    verified: u64,
    expected: u64,
    unexpected: u64,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    programs: BTreeMap<&'static str, Line>,
    faults: BTreeMap<&'static str, Line>,
    wires: BTreeMap<String, u64>,
    pub(super) problems: Vec<String>,
}

impl Table {
    pub(super) fn add(&mut self, program: &'static str, fault: &'static str, outcome: &Outcome) {
        for line in [self.programs.entry(program), self.faults.entry(fault)] {
            let line = line.or_default();
            line.runs += 1;
            line.good += u64::from(outcome.expected == 0 && outcome.problems.is_empty());
            line.messages += outcome.messages;
            line.sent += outcome.sent;
            line.verified += outcome.verified;
            line.expected += outcome.expected;
            line.unexpected += outcome.problems.len() as u64;
        }
    }

    pub(super) fn add_wire(&mut self, counts: Vec<(String, u64)>) {
        for (what, number) in counts {
            *self.wires.entry(what).or_default() += number;
        }
    }

    /// Connections of the resident clients, which belong to no episode.
    pub(super) fn add_resident(&mut self, client: &Resident) {
        let said = client.said();
        let line = self.programs.entry("traffic, resident client").or_default();
        line.runs += said.done + said.ended + said.refused;
        line.good += said.done;
        line.messages += said.messages;
        line.sent += said.octets;
        line.verified += said.octets;
    }

    pub(super) fn verified(&self) -> u64 {
        self.programs.values().map(|line| line.verified).sum()
    }

    pub(super) fn runs(&self) -> u64 {
        self.programs.values().map(|line| line.runs).sum()
    }

    pub(super) fn print(&self, residents: &[&Resident]) {
        const HEAD: &str =
            "  runs    good    messages   MB sent  MB verified  errors expected  not expected";
        println!("\n{:<26}{HEAD}", "program");
        print_lines(&self.programs);
        println!("\n{:<26}{HEAD}", "fault");
        print_lines(&self.faults);
        println!("\npackets");
        let words: Vec<_> = self.wires.iter().map(|(what, n)| format!("{what} {n}")).collect();
        println!("{}", words.join(", "));
        println!(
            "\n{:<26}{:>24}{:>22}{:>20}",
            "lives as long as the soak", "RSS in MiB", "descriptors", "threads"
        );
        println!("{:<26}{:>24}{:>22}{:>20}", "", "idle, most, end", "idle, most, end", "the same");
        for resident in residents {
            print_resident(resident);
        }
    }
}

fn print_lines(lines: &BTreeMap<&'static str, Line>) {
    for (name, line) in lines {
        println!(
            "{name:<26}{:>6}{:>8}{:>12}{:>10.1}{:>13.1}{:>17}{:>14}",
            line.runs,
            line.good,
            line.messages,
            line.sent as f64 / 1e6,
            line.verified as f64 / 1e6,
            line.expected,
            line.unexpected
        );
    }
}

fn print_resident(resident: &Resident) {
    let watch = resident.watch();
    let (Some(first), Some(last)) = (watch.samples.first(), watch.samples.last()) else { return };
    let warm = watch.warm.as_ref().unwrap_or(first);
    let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
    let row = |first: String, most: String, last: String| format!("{first}, {most}, {last}");
    println!(
        "{:<26}{:>24}{:>22}{:>20}",
        resident.name,
        row(mib(warm.rss_kib), mib(watch.most(|s| s.rss_kib)), mib(last.rss_kib)),
        row(warm.files.to_string(), watch.most(|s| s.files).to_string(), last.files.to_string()),
        row(
            warm.threads.to_string(),
            watch.most(|s| s.threads).to_string(),
            last.threads.to_string()
        ),
    );
}
