// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of `docs/programs.md` with scenarios, and its records.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use super::document::{self, name};
use super::scenario::Scenario;
use super::table::Topology;

/// The key of a scenario: group, description and device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(String, String, String);

impl Key {
    pub(crate) fn of(scenario: &Scenario) -> Self {
        Self(scenario.group.to_owned(), scenario.what.to_owned(), device(scenario))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.0, self.1, self.2)
    }
}

/// The result of a scenario in one topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    works: bool,
    version: String,
    compared: String,
    beside: String,
}

/// By scenario and topology.
pub(crate) type Records = BTreeMap<(Key, &'static str), Record>;

impl Record {
    /// The record of a script that succeeded, from what it printed.
    pub(crate) fn works(said: &str) -> Self {
        Self { works: true, ..Self::fails(said) }
    }

    /// The record of a script that failed, from what it printed.
    pub(crate) fn fails(said: &str) -> Self {
        let lines = |prefix: &str| {
            let found = said.lines().filter_map(|line| line.strip_prefix(prefix));
            found.map(|line| line.replace('|', "/")).collect::<Vec<_>>().join("; ")
        };
        Self {
            works: false,
            version: lines("version: "),
            compared: lines("compared: "),
            beside: lines("beside: "),
        }
    }
}

fn device(scenario: &Scenario) -> String {
    document::device(scenario.personality, None, scenario.options())
}

/// The records in the document.
pub(crate) fn recorded(text: &str) -> Records {
    let mut records = Records::new();
    let (mut group, mut version) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            group = heading.to_owned();
            version.clear();
        }
        if let Some(versions) = line.strip_prefix("Versions: ") {
            version = versions.trim_end_matches('.').to_owned();
        }
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [what, device, compared, loopback, network, beside] = cells[..] else { continue };
        let what = what.trim_end_matches(" ¹");
        for (topology, cell) in [(Topology::Loopback, loopback), (Topology::Network, network)] {
            let works = match cell {
                "works" => true,
                "fails" => false,
                _ => continue,
            };
            let key = Key(group.clone(), what.to_owned(), device.to_owned());
            let record = Record {
                works,
                version: version.clone(),
                compared: compared.to_owned(),
                beside: of_place(beside, topology),
            };
            records.insert((key, name(topology)), record);
        }
    }
    records
}

/// Speeds of both topologies are in one cell.
fn of_place(cell: &str, topology: Topology) -> String {
    let prefix = format!("{}: ", name(topology));
    cell.split("<br>").find_map(|part| part.strip_prefix(&*prefix)).unwrap_or_default().to_owned()
}

/// Writes the tables.
pub(crate) fn write(text: &mut String, scenarios: &[Scenario], records: &Records) {
    text.push_str(HEAD);
    let known = scenarios.iter().flat_map(|scenario| {
        scenario
            .topologies
            .iter()
            .filter_map(|topology| records.get(&(Key::of(scenario), name(*topology))))
    });
    let (work, fail): (Vec<_>, Vec<_>) = known.partition(|record| record.works);
    let _ = writeln!(text, "{} runs work, {} do not work.", work.len(), fail.len());
    for group in scenarios.chunk_by(|one, next| one.group == next.group) {
        write_group(text, group, records);
    }
}

fn write_group(text: &mut String, scenarios: &[Scenario], records: &Records) {
    let _ = write!(text, "\n### {}\n\n", scenarios[0].group);
    let of = |scenario: &Scenario, topology| {
        let runs_there = scenario.topologies.contains(&topology);
        records.get(&(Key::of(scenario), name(topology))).filter(|_| runs_there)
    };
    let topologies = [Topology::Loopback, Topology::Network];
    let mut versions: Vec<&str> = scenarios
        .iter()
        .flat_map(|scenario| topologies.iter().filter_map(move |topology| of(scenario, *topology)))
        .flat_map(|record| record.version.split("; "))
        .chain(
            scenarios
                .iter()
                .flat_map(|scenario| scenario.wheels)
                .flat_map(|wheel| wheel.split_whitespace().filter(|word| word.contains("=="))),
        )
        .filter(|version| !version.is_empty())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    if !versions.is_empty() {
        let _ = write!(text, "Versions: {}.\n\n", versions.join("; "));
    }
    text.push_str("| What is done | Device | Compared | Loopback | Network | Beside TCP |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for scenario in scenarios {
        let cell = |topology| match of(scenario, topology) {
            Some(record) if record.works => "works",
            Some(_) => "fails",
            None => "",
        };
        let found = topologies.map(|topology| of(scenario, topology));
        let compared = found.iter().flatten().map(|record| &*record.compared);
        let compared = compared.max_by_key(|text| text.len()).unwrap_or_default();
        let beside: Vec<String> = topologies
            .iter()
            .zip(&found)
            .filter_map(|(topology, record)| {
                let beside = &record.as_ref()?.beside;
                (!beside.is_empty()).then(|| format!("{}: {beside}", name(*topology)))
            })
            .collect();
        let _ = writeln!(
            text,
            "| {}{} | {} | {compared} | {} | {} | {} |",
            scenario.what,
            if scenario.always { " ¹" } else { "" },
            device(scenario),
            cell(Topology::Loopback),
            cell(Topology::Network),
            beside.join("<br>"),
        );
    }
    for scenario in scenarios {
        if let Some(cause) = scenario.cause {
            let _ = write!(text, "\n{}: {cause}\n", scenario.what);
        }
    }
}

/// The lines that the record lacks, where it must be complete.
pub(crate) fn compare(now: &Records, recorded: &Records) -> Vec<String> {
    let lacking = now.keys().filter(|which| !recorded.contains_key(which));
    lacking
        .map(|(key, topology)| format!("{key}, {topology}: is not in docs/programs.md"))
        .collect()
}

const HEAD: &str = "
## Programs with their data compared

These runs take more than a pair of commands: a script (`xtask/src/programs/scenarios`) starts the
programs, unmodified and as an ordinary user, and compares the data at both ends. *Beside TCP*: the
speed as a multiple of the program's own TCP transport in the same run, and *busy*: with a busy loop
for each processor beside; both depend on the machine, and are measured with `cargo xtask programs
--release --jobs 1`. `cargo xtask test --all` runs the rows with ¹; `cargo xtask programs --all`
runs all of them, and `cargo xtask programs --only GROUP` the rows under one heading. All of these
first install the packages they need from Debian and PyPI.

";

#[cfg(test)]
mod tests {
    use super::super::scenario;
    use super::*;

    #[test]
    fn written_records_are_recorded() {
        let said = "version: tool 1.2\ncompared: all | of it\nbeside: 2.00 x\nother";
        let scenarios = scenario::all();
        let records: Records = scenarios
            .iter()
            .flat_map(|scenario| {
                scenario.topologies.iter().map(|topology| (Key::of(scenario), name(*topology)))
            })
            .zip([true, false].into_iter().cycle())
            .map(|(key, works)| {
                (key, if works { Record::works(said) } else { Record::fails(said) })
            })
            .collect();
        let mut text = String::new();
        write(&mut text, &scenarios, &records);
        let found = recorded(&text);
        assert_eq!(found.len(), records.len(), "two scenarios with one name");
        for (key, record) in &records {
            let found = &found[key];
            assert_eq!((found.works, &*found.compared), (record.works, "all / of it"));
            assert_eq!(found.beside, record.beside);
        }
        assert!(compare(&records, &found).is_empty());
        // The versions of a group are not the next one's.
        let lines = "### A\nVersions: a 1.\n### B\n| it runs | iwarp | all | works | works | |\n";
        assert!(recorded(lines).values().all(|record| record.version.is_empty()));
        assert_eq!(compare(&records, &Records::new()).len(), records.len());
    }
}
