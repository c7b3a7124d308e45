// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask soak`: mixed traffic, verified, while processes are killed and stopped, packets are
//! lost, connections are cut, and descriptors and CPUs are short.
//!
//! Lane 0 is calm: clients and servers that live as long as the soak, beside everybody else's load.
//! In each of the others episode follows episode (`plan.rs`): a pair of programs (`traffic.rs`) and
//! something bad that happens to them (`faults.rs`), over a network of our own (`wire.rs`).
//! Anything that a fault does not explain is an error, and so is anything that long-lived processes
//! do not give back.

mod episode;
mod faults;
mod plan;
mod resident;
mod rough;
mod table;
mod traffic;
mod watch;
mod wire;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use crate::dist::Build;
use crate::packages;
use crate::programs::lab::{Lab, Lane, Side};
use crate::programs::process::Process;
use crate::programs::table::{Personality, Topology};
use crate::shell;
use episode::Stage;
use plan::Episode;
use resident::Resident;
use table::Table;
use watch::Watch;
use wire::Wire;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Time that it takes
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// Seed of everything that is drawn [default: the time]
    #[arg(long, value_parser = parse_seed)]
    seed: Option<u64>,
    /// Lanes with faults, each with one episode at a time
    #[arg(long, default_value_t = 2)]
    lanes: usize,
    /// Only one episode of the seed, as its line names it: LANE.NUMBER
    #[arg(long, value_name = "EPISODE")]
    only: Option<String>,
    /// List the episodes that would come first, and exit
    #[arg(long, value_name = "NUMBER")]
    list: Option<usize>,
    /// RC over RoCE v2 instead, while packets are lost, overtaken and repeated all the time
    #[arg(long, conflicts_with_all = ["only", "list", "lanes"])]
    roce: bool,
    /// With --roce: so many of a hundred are lost, as many overtaken, as many repeated
    #[arg(long, default_value_t = 5, requires = "roce")]
    percent: u64,
    /// Take the last build as it is
    #[arg(long)]
    no_build: bool,
}

const PERSONALITIES: [Personality; 2] = [Personality::Iwarp, Personality::Roce];

fn parse_seed(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x");
    let number = digits.map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    number.map_err(|error| error.to_string())
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let time = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let seed = args.seed.unwrap_or_else(time);
    if let Some(number) = args.list {
        for lane in 1..=args.lanes {
            for episode in plan::episodes(seed, lane).take(number) {
                println!("{}", told(lane, &episode));
            }
        }
        return Ok(());
    }
    packages::ensure(&["soak"])?;
    if !args.no_build {
        Build::Ci.make()?;
    }
    let length = Duration::from_secs_f64(args.minutes * 60.0);
    let said = match args.roce {
        true => rough::run(seed, args.percent, length),
        false => soak(seed, args.lanes, length, args.only.as_deref()),
    };
    said.map(|said| println!("\n{said}"))
}

/// The seed of the step `soak`.
pub(crate) const SEED: u64 = 10;

/// Soaks as a step of `cargo xtask test` does: with the same episodes every time, so that no change
/// fails for a fault that it has nothing to do with. New ones are drawn by `cargo xtask soak`.
pub(crate) fn check(seed: u64, minutes: f64) -> Result<String> {
    Build::Ci.make()?;
    soak(seed, 2, Duration::from_secs_f64(minutes * 60.0), None)
}

fn soak(seed: u64, lanes: usize, length: Duration, only: Option<&str>) -> Result<String> {
    println!("seed {seed}; again: cargo xtask soak --seed {seed} --lanes {lanes}");
    let only = only.map(parse_only).transpose()?;
    let lab = Lab::unconnected(Build::Ci, 1 + lanes)?;
    compile(&lab.bin())?;
    let wire = |(lane, seed)| Wire::connect(&lab.bin().join("wire"), lane, seed);
    let wires = lab.lanes.iter().zip(seed..).map(wire).collect::<Result<Vec<_>>>()?;
    let mut servers = Vec::new();
    for (number, lane) in lab.lanes.iter().enumerate() {
        servers.push(start_servers(lane, number)?);
    }
    let clients: Vec<Resident> = servers[0]
        .iter()
        .zip(PERSONALITIES)
        .map(|(server, personality)| Resident::client(&lab.lanes[0], server, personality))
        .collect::<Result<_>>()?;
    let burners = burn(&lab, seed)?;
    let watches = shared_watches(servers.iter().flatten().chain(&clients));

    let table = Mutex::new(Table::default());
    let deadline = Instant::now() + length;
    let over = AtomicBool::new(false);
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let (table, over) = (&table, &over);
        scope.spawn(move || Watch::look_at(&watches, over));
        // The first lane has no episodes.
        let stormy = lab.lanes.iter().zip(&wires).zip(&mut servers).enumerate().skip(1);
        let running: Vec<_> = stormy
            .map(|(number, ((lane, wire), servers))| {
                let episodes = plan::episodes(seed, number);
                scope.spawn(move || {
                    storm(number, lane, wire, servers, episodes, only, deadline, table)
                })
            })
            .collect();
        let results =
            running.into_iter().map(|lane| lane.join().expect("a lane does not panic")).collect();
        if only.is_none() {
            thread::sleep(deadline.saturating_duration_since(Instant::now()));
        }
        over.store(true, Ordering::Relaxed);
        results
    });
    drop(burners);
    let table = table.into_inner().expect("not poisoned");
    results.into_iter().collect::<Result<()>>()?;
    conclude(table, servers, clients, wires)
}

/// For the thread that looks at all of them.
fn shared_watches<'a>(all: impl Iterator<Item = &'a Resident>) -> Vec<Arc<Mutex<Watch>>> {
    all.map(Resident::shared_watch).collect()
}

/// Servers of both kinds that have served a client.
fn start_servers(lane: &Lane, number: usize) -> Result<Vec<Resident>> {
    PERSONALITIES
        .iter()
        .map(|&personality| {
            let server = Resident::server(lane, number, personality)?;
            let output = lane.directory().join("first.txt");
            let mut command = lane.command(Side::Client);
            let text = format!("traffic ask SERVER {} 3 20 4", server.port);
            lane.run_with(&mut command, personality, &[], Topology::Network, &text);
            let mut first = Process(lane.spawn(&mut command, &output)?);
            let status = first.ends(Instant::now() + Duration::from_secs(60));
            let text = fs::read_to_string(output).unwrap_or_default();
            ensure!(status.is_some_and(|status| status.success()), "nothing works here:\n{text}");
            server.is_warm();
            Ok(server)
        })
        .collect()
}

/// Episode after episode, until time is over.
#[allow(clippy::too_many_arguments, reason = "called once")]
fn storm(
    number: usize,
    lane: &Lane,
    wire: &Wire,
    servers: &mut [Resident],
    episodes: impl Iterator<Item = Episode>,
    only: Option<(usize, u64)>,
    deadline: Instant,
    table: &Mutex<Table>,
) -> Result<()> {
    let chosen = |episode: &Episode| only.is_none_or(|only| only == (number, episode.number));
    if only.is_some_and(|(lane, _)| lane != number) {
        return Ok(());
    }
    for episode in episodes.filter(chosen) {
        if Instant::now() > deadline && only.is_none() {
            break;
        }
        let start = Instant::now();
        let outcome = Stage { lane, wire }.run(&episode, servers);
        let outcome = outcome.with_context(|| told(number, &episode))?;
        let word = if outcome.problems.is_empty() { "ok     " } else { "WRONG  " };
        println!("{word}{:6.1} s  {}", start.elapsed().as_secs_f64(), told(number, &episode));
        let mut table = table.lock().expect("not poisoned");
        table.add(episode.traffic.name(), episode.fault.name(), &outcome);
        for problem in &outcome.problems {
            println!("    {problem}");
        }
        if let Some(first) = outcome.problems.first() {
            table.problems.push(format!("{}: {first}", told(number, &episode)));
        }
        if only.is_some() {
            break;
        }
    }
    Ok(())
}

/// Looks at what is left, prints the table, and says what it was.
fn conclude(
    mut table: Table,
    servers: Vec<Vec<Resident>>,
    mut clients: Vec<Resident>,
    wires: Vec<Wire>,
) -> Result<String> {
    for client in &mut clients {
        if let Err(error) = client.finish(Duration::from_secs(90)) {
            table.problems.push(format!("{error:#}"));
        }
        table.problems.extend(client.problems());
        table.add_resident(client);
    }
    let mut servers: Vec<Resident> = servers.into_iter().flatten().collect();
    for server in &mut servers {
        match server.has_ended() {
            Some(how) => table.problems.push(how),
            None => server.settle(Duration::from_secs(30)),
        }
        table.problems.extend(server.problems());
    }
    for wire in wires {
        table.add_wire(wire.end()?);
    }
    table.print(&servers.iter().chain(&clients).collect::<Vec<_>>());
    let problems = &table.problems;
    if !problems.is_empty() {
        bail!("{} things went wrong:\n{}", problems.len(), problems.join("\n"));
    }
    let (runs, verified) = (table.runs(), table.verified() as f64 / 1e9);
    Ok(format!("{runs} runs, {verified:.2} GB verified, nothing wrong"))
}

/// The line of an episode.
fn told(lane: usize, episode: &Episode) -> String {
    let Episode { number, traffic, personality, fault, after, .. } = episode;
    let personality = format!("{personality:?}").to_lowercase();
    let (what, fault, after) = (traffic.told(), fault.told(), after.as_millis());
    format!("{lane}.{number}: {what}, {personality}; {fault}, after {after} ms")
}

fn parse_only(text: &str) -> Result<(usize, u64)> {
    let (lane, number) = text.split_once('.').context("--only wants LANE.NUMBER")?;
    Ok((lane.parse()?, number.parse()?))
}

/// The programs of ours that are C.
fn compile(bin: &Path) -> Result<()> {
    let source = |name: &str| shell::root().join("xtask/src/soak/c").join(name);
    let cc = |name: &str, files: &[&str], more: &[&str]| {
        let mut cc = shell::program("cc");
        cc.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(bin.join(name));
        shell::output(cc.args(files.iter().map(|file| source(file))).args(more)).map(|_| ())
    };
    cc("wire", &["wire.c"], &[])?;
    cc("traffic", &["traffic.c", "exchange.c"], &["-lrdmacm", "-libverbs"])
}

/// Takes much of the CPU time from everybody.
fn burn(lab: &Lab, seed: u64) -> Result<Vec<Process>> {
    let burner = |number: usize| {
        let lane = &lab.lanes[0];
        let mut command = lane.command(Side::Server);
        command.arg(lab.bin().join("traffic")).arg("burn").arg((seed + number as u64).to_string());
        Ok(Process(lane.spawn(&mut command, &lane.directory().join("burner.txt"))?))
    };
    (0..thread::available_parallelism()?.get()).map(burner).collect()
}
