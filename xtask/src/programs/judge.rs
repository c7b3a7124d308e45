// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs one row and says whether it works.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::clock;
use super::lab::{Lane, Side};
use super::process::Process;
use super::table::{Expect, Loss, Row, Topology};

/// The time that a program may take to say no.
const AT_ONCE: Duration = Duration::from_secs(8);

/// Lines of a program's output that are shown where it fails: so many of its first, and of its
/// last.
const SHOWN: usize = 25;

/// Runs both commands of a row.
///
/// # Errors
///
/// The reason why it does not work, with what the programs said.
pub(crate) fn run(lane: &Lane, row: &Row, topology: Topology) -> Result<()> {
    let (server_says, client_says) =
        (lane.directory().join("server.txt"), lane.directory().join("client.txt"));
    let attempt = || {
        for file in [&server_says, &client_says] {
            let _ = fs::remove_file(file);
        }
        let result = attempt(lane, row, topology, &server_says, &client_says);
        lane.sweep();
        result
    };
    let result = clock::repeated(row.measures, attempt, |result, measurement| {
        result.is_err() && measurement.is_refused([&server_says, &client_says])
    });
    result.map_err(|error| {
        let mut text = format!("{error:#}");
        for (who, file) in [("server", &server_says), ("client", &client_says)] {
            let said = fs::read(file).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).into_owned();
            let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
            // A complaint comes first where the rest is kept in a buffer until the program ends.
            for line in &lines[..lines.len().min(SHOWN)] {
                text.push_str(&format!("\n    {who}: {line}"));
            }
            for line in &lines[lines.len().saturating_sub(SHOWN).max(SHOWN.min(lines.len()))..] {
                text.push_str(&format!("\n    {who}: {line}"));
            }
        }
        anyhow::anyhow!(text)
    })
}

fn attempt(
    lane: &Lane,
    row: &Row,
    topology: Topology,
    server_says: &Path,
    client_says: &Path,
) -> Result<()> {
    let limit = match row.expect {
        Expect::Refusal(_) => AT_ONCE,
        Expect::Success(_) | Expect::Loss(..) => Duration::from_secs(row.limit),
    };
    let deadline = Instant::now() + limit;
    let mut server = None;
    if !row.server.is_empty() {
        let started =
            server.insert(Process(lane.start(row, topology, Side::Server, server_says)?));
        started.listens(row.port, deadline)?;
    }
    let mut client = Process(lane.start(row, topology, Side::Client, client_says)?);
    let (mut deadline, mut status) = (deadline, None);
    if let Expect::Loss(how, within, _) = row.expect {
        client.is_at_work(deadline)?;
        match how {
            Loss::Killed => drop(server.take()),
            Loss::Silent => lane.unplug()?,
        }
        deadline = Instant::now() + within;
        status = client.ends(deadline);
        lane.plug()?;
        ensure!(status.is_some(), "the client does not notice in {within:?}");
    }
    let status = status.or_else(|| client.ends(deadline));
    let said = fs::read_to_string(client_says).unwrap_or_default();
    let text = match row.expect {
        Expect::Refusal(text) | Expect::Loss(_, _, text) => {
            ensure!(status.is_some(), "the program neither works nor says no");
            ensure!(status.is_some_and(|status| !status.success()), "the program does not say no");
            text
        }
        Expect::Success(text) => {
            let Some(status) = status else { bail!("the client does not end in {limit:?}") };
            ensure!(status.success(), "the client fails: {status}");
            text
        }
    };
    ensure!(said.contains(text), "the client does not say \"{}\"", text.escape_debug());
    let own_end = matches!(row.expect, Expect::Success(_)) && !row.server_stays;
    let Some(mut server) = server.filter(|_| own_end) else { return Ok(()) };
    match server.ends(deadline) {
        None => bail!("the server does not end in {limit:?}"),
        Some(status) => ensure!(status.success(), "the server fails: {status}"),
    }
    Ok(())
}
