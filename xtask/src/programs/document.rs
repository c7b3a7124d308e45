// SPDX-License-Identifier: MIT OR Apache-2.0

//! `docs/programs.md`: the programs that were run, and the results; also the record that later runs
//! are held to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::fs;

use anyhow::{Context, Result};

use super::scenario;
use super::scenario_record::{self, Records};
use super::symbols::Symbol;
use super::table::{Expect, Personality, Row, Topology};
use crate::shell;

const FILE: &str = "docs/programs.md";

/// The result of a row in one topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Works,
    /// It says no, as it should.
    Refused,
    /// It learns in time that its peer is lost.
    Told,
    /// It fails.
    Fails,
}

/// By row and topology.
pub(crate) type Verdicts = BTreeMap<(Key, &'static str), Verdict>;

/// The key of a row: the command and the device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(String, String);

impl Key {
    pub(crate) fn of(row: &Row) -> Self {
        let mut device = device(row.personality, row.server_personality, &row.options());
        if row.two_ports {
            device.push_str(", two ports");
        }
        Self(commands(row), device)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.1)
    }
}

impl Verdict {
    /// Of a row, by whether it did what it should.
    pub(crate) fn of(row: &Row, good: bool) -> Self {
        match (good, &row.expect) {
            (true, Expect::Success(_)) => Self::Works,
            (true, Expect::Refusal(_)) => Self::Refused,
            (true, Expect::Loss(..)) => Self::Told,
            (false, _) => Self::Fails,
        }
    }

    /// True if that is what the row is for.
    pub(crate) fn is_good(&self) -> bool {
        !matches!(self, Self::Fails)
    }

    const fn shown(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Refused => "says no",
            Self::Told => "is told",
            Self::Fails => "fails",
        }
    }

    fn parse(cell: &str) -> Option<Self> {
        match cell {
            "works" => Some(Self::Works),
            "says no" => Some(Self::Refused),
            "is told" => Some(Self::Told),
            "fails" => Some(Self::Fails),
            _ => None,
        }
    }
}

/// For a cell's column.
pub(crate) fn name(topology: Topology) -> &'static str {
    match topology {
        Topology::Loopback => "loopback",
        Topology::Network => "network",
    }
}

/// For a cell too: the client's device, the server's where it is another, and whether it is shown.
pub(crate) fn device(own: Personality, servers: Option<Personality>, options: &[&str]) -> String {
    let mut device = own.name().to_owned();
    if let Some(servers) = servers {
        let _ = write!(device, ", server {}", servers.name());
    }
    for option in options {
        let _ = write!(device, ", {}", option.trim_start_matches('-'));
    }
    device
}

/// Client and server, or just the former where the latter is that without the address.
fn commands(row: &Row) -> String {
    let commands = commands_alone(row);
    match row.expect {
        Expect::Loss(how, ..) => format!("{commands}, {}", how.told()),
        _ => commands,
    }
}

fn commands_alone(row: &Row) -> String {
    let same = row.client.replace(" SERVER", "") == row.server.replace(" SERVER", "");
    if row.server.is_empty() || same {
        format!("`{}`", row.client)
    } else {
        format!("`{}`; server `{}`", row.client, row.server)
    }
}

/// The rows that the document has.
pub(crate) fn recorded() -> Verdicts {
    let text = fs::read_to_string(shell::root().join(FILE)).unwrap_or_default();
    let mut verdicts = Verdicts::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [command, device, loopback, network] = cells[..] else { continue };
        let key = Key(command.to_owned(), device.to_owned());
        for (topology, cell) in [(Topology::Loopback, loopback), (Topology::Network, network)] {
            if let Some(verdict) = Verdict::parse(cell) {
                verdicts.insert((key.clone(), name(topology)), verdict);
            }
        }
    }
    verdicts
}

/// The scenarios that the document has.
pub(crate) fn recorded_scenarios() -> Records {
    scenario_record::recorded(&fs::read_to_string(shell::root().join(FILE)).unwrap_or_default())
}

/// The functions that the document says work.
pub(crate) fn recorded_symbols() -> BTreeSet<String> {
    let text = fs::read_to_string(shell::root().join(FILE)).unwrap_or_default();
    let works = text.lines().filter(|line| line.ends_with("| works |"));
    works.filter_map(|line| line.split('`').nth(1)).map(str::to_owned).collect()
}

/// Writes it anew.
pub(crate) fn write(
    rows: &[Row],
    verdicts: &Verdicts,
    records: &Records,
    symbols: &[Symbol],
) -> Result<()> {
    let mut text = String::from(HEAD);
    let count = |wanted: &dyn Fn(&Verdict) -> bool| verdicts.values().filter(|v| wanted(v)).count();
    let _ = writeln!(
        text,
        "{} runs work, {} say no as they should, {} are told of a lost peer, {} do not work.",
        count(&|verdict| *verdict == Verdict::Works),
        count(&|verdict| *verdict == Verdict::Refused),
        count(&|verdict| *verdict == Verdict::Told),
        count(&|verdict| !verdict.is_good()),
    );
    for group in rows.chunk_by(|one, next| one.group == next.group) {
        write_group(&mut text, group, verdicts);
    }
    scenario_record::write(&mut text, &scenario::all(), records);
    text.push_str(SYMBOLS);
    for symbol in symbols {
        let state = if symbol.served { "works" } else { "EOPNOTSUPP" };
        let users = symbol.users.join(", ");
        let _ = writeln!(text, "| `{}` | {} | {users} | {state} |", symbol.name, symbol.version);
    }
    let path = shell::root().join(FILE);
    fs::create_dir_all(path.parent().context("it is in a folder")?)?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes the table of rows of one kind.
fn write_group(text: &mut String, rows: &[Row], verdicts: &Verdicts) {
    let _ = write!(text, "\n### {}\n\n", rows[0].group);
    text.push_str("| Command | Device | Loopback | Network |\n|---|---|---|---|\n");
    for row in rows {
        let key = Key::of(row);
        let cell = |topology| {
            verdicts.get(&(key.clone(), name(topology))).map_or("", |verdict| verdict.shown())
        };
        let (loopback, network) = (cell(Topology::Loopback), cell(Topology::Network));
        let _ = writeln!(text, "| {} | {} | {loopback} | {network} |", key.0, key.1);
    }
}

const HEAD: &str = "\
# Programs that run

This page lists unmodified programs of Debian 12 that run under [`iwarp run`](run.md) as an ordinary
user, and the tests and examples of Rust crates from crates.io. `cargo xtask programs` generates it.
`cargo xtask test --all` runs everything here except the [programs with their data
compared](#programs-with-their-data-compared) that take long to install, and fails if anything here
does not work.

*Loopback*: both processes run on one host, and the server's address is 127.0.0.1. *Network*: they
run on two hosts (network namespaces) with an Ethernet of MTU 1500 between them. *Device*: the
personality, which is `roce` by default; the server's personality if it differs; `sysfs` if
`--sysfs` was given, and `shared-heap` if that was; and whether it has two ports
(`roce0=lo+eth0`). `SERVER` and `CLIENT` are addresses. Where a row has one command for a client
and a server, the server's command is the same without the address. The commands are short on
purpose: they show that a program works, not its speed. A run works if both processes exit with
status 0 and print the right output, if any. *Says no*: a request that the device does not support
fails at once with the program's own error message. *Is told*: a client fails within a second after
its server was killed, and within 30 s after its server went silent (10 s if the program sets the
queue pair's timeout).

";

const SYMBOLS: &str = "
## Symbols

The public symbols of libibverbs.so.1 and librdmacm.so.1, in the versions that programs are linked
with today, and the packages above that import them. *EOPNOTSUPP*: the symbol exists, so that
programs start, but the function fails with that error. The list omits the names from before 2007
and the private names of rdma-core's drivers, which exist for the same reason.

| Symbol | Version | Imported by | State |
|---|---|---|---|
";
