// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp conform`: tests an iWARP stack against the RFCs.

mod orders;
mod restart;
mod silence;
mod target;

use std::fs;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use iwarp_conform::case::{Case, Role, Roles};
use iwarp_conform::peer::Peer;
use iwarp_conform::run::{self, Settings};
use iwarp_conform::verdict::{Outcome, Verdict};
use iwarp_conform::{catalog, pcapng, readings, report, requirements};
use iwarp_kit::host_port::{HostPort, everywhere};
use iwarp_kit::lines;

use restart::Restarted;
use silence::Watch;

/// The port unless told otherwise.
const PORT: u16 = 7175;

/// Test whether an iWARP stack, card or driver does what the RFCs say.
///
/// Runs scripted cases against a peer, one connection for each, good ones and bad ones, and says
/// of each whether the peer conforms, deviates (with what was expected, what came and its bytes),
/// or could not be seen. The tester has an encoder and decoder of its own and needs no device.
///
/// The program that answers (--peer) decides what can be seen. `any`: the start-up, framing,
/// errors, and Reads of no bytes, which every stack answers by itself. `rping`: as a client it
/// lends memory too. `verbs`: interop/conform_target.c, a program for any RDMA device: all but how
/// it answers operations of RFC 7306. `ours`: everything; it is `iwarp conform --target`.
#[derive(clap::Args, Debug)]
#[command(
    group = clap::ArgGroup::new("what").required(true)
        .args(["peer_at", "listen", "target", "call", "list", "explain", "readings"]),
    after_long_help = "\
Examples:
  iwarp conform --target                         a peer that shows everything
  iwarp conform --peer ours 192.0.2.1            test it as a server
  iwarp conform --peer ours --listen             test a client; on the other host:
  iwarp conform --call 192.0.2.1                 a client that shows everything
  iwarp conform --peer rping 192.0.2.1:7174      test the stack under an rping -s -P
  iwarp conform --restart 'ib_send_bw -R -p 7175' 127.0.0.1
                                                 test the stack under perftest, here
  iwarp conform --explain ddp-send-too-long      what a case does, and what the RFCs say of it

Exit status: 0 nothing deviates, 1 something does, 2 no case could be run."
)]
pub(crate) struct Args {
    /// Connect to a server there [default port: 7175]
    #[arg(value_name = "HOST[:PORT]")]
    peer_at: Option<String>,
    /// Wait for clients at this address [default: all, port 7175]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1)]
    listen: Option<Option<String>>,
    /// Be a server to be tested: lend memory, and answer each Send
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1)]
    target: Option<Option<String>>,
    /// Be a client to be tested, which connects there until nobody listens
    #[arg(long, value_name = "HOST[:PORT]")]
    call: Option<String>,
    /// Show the names of the cases
    #[arg(long)]
    list: bool,
    /// Show what a case does, or what a requirement says, and where it leaves a choice which one
    /// this project, Linux siw and cards take
    #[arg(long, value_name = "NAME|ID")]
    explain: Option<String>,
    /// Show all choices that the RFCs leave, as a page in Markdown
    #[arg(long)]
    readings: bool,
    /// Which program answers
    #[arg(long, value_enum, default_value_t)]
    peer: PeerName,
    /// Only the cases of this name, or of this requirement; may be given several times
    #[arg(long, value_name = "NAME|ID")]
    only: Vec<String>,
    /// Cases from the files *.case in this folder instead of those that come along
    #[arg(long, value_name = "DIR")]
    cases: Option<PathBuf>,
    /// Ask for CRCs
    #[arg(long, value_enum, default_value_t = Switch::On)]
    crc: Switch,
    /// Ask the peer for markers
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    markers: Switch,
    /// MPA revision of the Requests
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    revision: u8,
    /// Seconds that the peer may take for a step
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    patience: u64,
    /// Seconds for all cases: those that are left then are not run [default: 900, with --slow 7200]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Milliseconds to wait between the peer's Reply and the first FPDU. Linux siw loses some that
    /// come at once
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pause: u64,
    /// Start the server by this command of the shell for each case, and end it afterwards: for
    /// programs that serve one connection, like perftest's
    #[arg(long, value_name = "COMMAND", requires = "peer_at")]
    restart: Option<String>,
    /// Also run the cases that wait for a peer's time limits, a minute and more each
    #[arg(long)]
    slow: bool,
    /// Write the verdicts as JUnit's XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the verdicts as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a capture of each case into this folder, for Wireshark and tshark
    #[arg(long, value_name = "DIR")]
    pcapng: Option<PathBuf>,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
enum PeerName {
    #[default]
    Any,
    Rping,
    Verbs,
    Ours,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Switch {
    On,
    Off,
}

impl Args {
    /// The time for all cases together.
    fn limit_in_force(&self) -> Duration {
        let default = if self.slow { 7200 } else { 900 };
        Duration::from_secs(self.limit.unwrap_or(default))
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match carry_out(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("iwarp conform: {}", lines::reason(&error));
            ExitCode::from(2)
        }
    }
}

/// Carries out the command; true if nothing deviates.
fn carry_out(args: &Args) -> Result<bool> {
    if let Some(addr) = &args.target {
        target::serve(&local(addr.as_deref())?)?;
        return Ok(true);
    }
    if let Some(addr) = &args.call {
        target::call(first(addr)?)?;
        return Ok(true);
    }
    if args.readings {
        print!("{}", readings::page());
        return Ok(true);
    }
    let cases = match &args.cases {
        Some(folder) => catalog::folder(folder)?,
        None => catalog::embedded()?,
    };
    if let Some(name) = &args.explain {
        explain(&cases, name)?;
        return Ok(true);
    }
    let role = if args.listen.is_some() { Role::Listen } else { Role::Connect };
    let wanted: Vec<&Case> = cases.iter().filter(|case| is_wanted(case, &args.only)).collect();
    if args.list {
        for case in wanted {
            println!("{:<34} {}", case.name, case.title);
        }
        return Ok(true);
    }
    let wanted: Vec<&Case> = wanted.into_iter().filter(|case| case.role.has(role)).collect();
    if wanted.is_empty() {
        bail!("there is no such case; iwarp conform --list names them");
    }
    test(args, &wanted)
}

fn is_wanted(case: &Case, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|name| case.name == *name || case.covers.contains(name))
}

/// Runs the cases, and shows what they say as they go.
fn test(args: &Args, cases: &[&Case]) -> Result<bool> {
    let settings = Settings {
        crc: args.crc == Switch::On,
        markers: args.markers == Switch::On,
        revision: args.revision,
        peer: match args.peer {
            PeerName::Any => Peer::Any,
            PeerName::Rping => Peer::Rping,
            PeerName::Verbs => Peer::Verbs,
            PeerName::Ours => Peer::Ours,
        },
        patience: Duration::from_secs(args.patience),
        pause: Duration::from_millis(args.pause),
        starts: args.restart.is_some(),
        slow: args.slow,
    };
    let listener = match &args.listen {
        Some(addr) => {
            let addrs = local(addr.as_deref())?;
            let listener = TcpListener::bind(&addrs[..])
                .with_context(|| format!("cannot listen at {}", addrs[0]))?;
            eprintln!("listening on {}", listener.local_addr()?);
            Some(listener)
        }
        None => None,
    };
    let peer = args.peer_at.as_deref().map(first).transpose()?;
    let role = if listener.is_some() { Role::Listen } else { Role::Connect };
    let mut outcomes = Vec::new();
    let mut watch = Watch::new(settings.patience, args.limit_in_force(), listener.is_some());
    for case in cases {
        if let Some(why) = watch.stops(cases.len() - outcomes.len()) {
            eprintln!("iwarp conform: {why}");
            outcomes.extend(cases[outcomes.len()..].iter().map(|case| not_run(case, &why, role)));
            break;
        }
        let server = args.restart.as_deref().map(Restarted::start).transpose()?;
        let outcome = match (&listener, peer) {
            (Some(listener), _) => run::listen(listener, case, &settings),
            (None, Some(peer)) => run::connect(peer, case, &settings),
            (None, None) => bail!("there is no peer"),
        };
        drop(server);
        watch.has_run(&outcome);
        print!("{}", report::line(case, &outcome));
        if let Some(folder) = &args.pcapng {
            write_capture(folder, case, &outcome)?;
        }
        outcomes.push(outcome);
    }
    print!("{}", report::summary(&outcomes));
    if let Some(file) = &args.json {
        write(file, report::json(cases, &outcomes)?)?;
    }
    if let Some(file) = &args.junit {
        write(file, report::junit(cases, &outcomes))?;
    }
    let count = report::count(&outcomes);
    if count.not_seen == outcomes.len() {
        bail!("nothing could be seen of this peer");
    }
    Ok(count.deviates == 0)
}

/// The outcome of a case that is left out because the run ends early.
fn not_run(case: &Case, why: &str, role: Role) -> Outcome {
    let verdict = Verdict::NotSeen { why: format!("not run: {why}") };
    Outcome { case: case.name.clone(), role, verdict, took: Duration::ZERO, record: None }
}

fn write_capture(folder: &Path, case: &Case, outcome: &Outcome) -> Result<()> {
    let Some(record) = &outcome.record else { return Ok(()) };
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let comment = format!("{}: {}", case.name, case.title);
    write(&folder.join(format!("{}.pcapng", case.name)), pcapng::capture(record, &comment))
}

fn write(file: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}

/// Says what a case does, or what a requirement says.
fn explain(cases: &[Case], name: &str) -> Result<()> {
    if let Some(case) = cases.iter().find(|case| case.name == name) {
        let role = match case.role {
            Roles::One(Role::Connect) => "servers",
            Roles::One(Role::Listen) => "clients",
            Roles::Either => "servers and clients",
        };
        println!("{}: {}\nfor {role}\n", case.name, case.title);
        for step in &case.steps {
            println!("    {}", step.text);
        }
        for id in &case.covers {
            println!();
            explain_requirement(id)?;
        }
        print!("{}", readings::explain(&[name]));
        return Ok(());
    }
    if let Some(reading) = readings::all().iter().find(|reading| reading.name == name) {
        print!("{}", reading.text());
        for id in &reading.of {
            println!();
            explain_requirement(id)?;
        }
        return Ok(());
    }
    explain_requirement(name)?;
    print!("{}", readings::explain(&[name]));
    println!("\nCases:");
    for case in cases.iter().filter(|case| case.covers.iter().any(|id| id == name)) {
        println!("    {:<34} {}", case.name, case.title);
    }
    Ok(())
}

fn explain_requirement(id: &str) -> Result<()> {
    let found = requirements::find(id)
        .with_context(|| format!("there is neither a case nor a requirement {id}"))?;
    let document = if found.document.starts_with(|first: char| first.is_ascii_digit()) {
        format!("RFC {}", found.document)
    } else {
        found.document
    };
    println!("{id} ({document}, section {}, {})\n    {}", found.section, found.level, found.text);
    Ok(())
}

/// The addresses to listen at, at least one: the first that this host has is taken.
fn local(addr: Option<&str>) -> Result<Vec<SocketAddr>> {
    addr.map_or_else(|| Ok(everywhere(PORT).into()), all)
}

fn first(text: &str) -> Result<SocketAddr> {
    Ok(all(text)?[0])
}

/// All addresses of a host, at least one.
fn all(text: &str) -> Result<Vec<SocketAddr>> {
    let address = HostPort::parse(text).map_err(anyhow::Error::msg)?;
    let found = (address.host, address.port.unwrap_or(PORT))
        .to_socket_addrs()
        .with_context(|| format!("cannot find {}", address.host))?;
    let found: Vec<_> = found.collect();
    ensure!(!found.is_empty(), "{text} has no address");
    Ok(found)
}
