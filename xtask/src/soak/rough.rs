// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask soak --roce`: RC queue pairs that speak RoCE v2 between two hosts, where packets
//! are lost, repeated and overtaken all the time.
//!
//! There are no episodes: nothing that happens to packets excuses anything that a program sees, so
//! every connection has to end well, with all of its contents right.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::resident::{ROUGH, Resident};
use super::table::Table;
use super::watch::Watch;
use super::wire::Wire;
use super::{compile, shared_watches};
use crate::dist::Build;
use crate::programs::lab::{Lab, Side};
use crate::programs::process::Process;
use crate::programs::table::{Personality, Topology};

/// Processes that connect, each on as many threads: those of a host share its UDP port.
const CLIENTS: usize = 2;
/// Everything under way is done so soon after the end.
const SOON: Duration = Duration::from_secs(120);

/// The mishaps of packets, each to so many percent.
const WEATHER: [&str; 3] = ["loss", "reorder", "duplicate"];

pub(super) fn run(seed: u64, percent: u64, length: Duration) -> Result<String> {
    println!(
        "{percent} % of packets lost, {percent} % overtaken, {percent} % repeated; seed {seed}"
    );
    let lab = Lab::unconnected(Build::Ci, 1)?;
    compile(&lab.bin())?;
    let lane = &lab.lanes[0];
    let wire = Wire::connect(&lab.bin().join("wire"), lane, seed)?;
    let mut server = Resident::rough_server(lane)?;
    first(&lab, &server)?;
    server.is_warm();
    for what in WEATHER {
        wire.set(what, percent * 10)?;
    }
    let clients = (0..CLIENTS).map(|number| Resident::rough_client(lane, &server, number, seed));
    let mut clients: Vec<Resident> = clients.collect::<Result<_>>()?;
    let watches = shared_watches(clients.iter().chain([&server]));
    let over = AtomicBool::new(false);
    let mut table = Table::default();
    let deadline = Instant::now() + length;
    thread::scope(|scope| {
        scope.spawn(|| Watch::look_at(&watches, &over));
        while Instant::now() < deadline {
            thread::sleep(Duration::from_secs(1));
            if let Some(how) = clients.iter_mut().chain([&mut server]).find_map(Resident::has_ended)
            {
                table.problems.push(how);
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    for client in &mut clients {
        // The client comes to its end in this weather, too.
        if let Err(error) = client.finish(SOON) {
            table.problems.push(format!("{error:#}"));
        }
        table.problems.extend(client.problems());
        table.add_resident(client);
    }
    wire.clear()?;
    server.settle(SOON);
    table.problems.extend(server.problems());
    table.add_wire(wire.end()?);
    table.print(&clients.iter().chain([&server]).collect::<Vec<_>>());
    let (runs, verified) = (table.runs(), table.verified() as f64 / 1e9);
    let problems = &table.problems;
    if !problems.is_empty() {
        bail!("{} things went wrong:\n{}", problems.len(), problems.join("\n"));
    }
    ensure!(runs > 0, "no connection has come to its end");
    Ok(format!("{runs} connections over RoCE v2, {verified:.3} GB verified, nothing wrong"))
}

/// A connection while the network is good, after which the server is what it is when idle.
fn first(lab: &Lab, server: &Resident) -> Result<()> {
    let lane = &lab.lanes[0];
    let output = lane.directory().join("first.txt");
    let mut command = lane.command(Side::Client);
    command.envs(ROUGH);
    let text = format!("traffic ask SERVER {} 3 20 4", server.port);
    lane.run_with(&mut command, Personality::Roce, &[], Topology::Network, &text);
    let mut first = Process(lane.spawn(&mut command, &output)?);
    let status = first.ends(Instant::now() + SOON);
    let text = fs::read_to_string(output).unwrap_or_default();
    ensure!(status.is_some_and(|status| status.success()), "nothing works here:\n{text}");
    Ok(())
}
