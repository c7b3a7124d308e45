// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp perf`: measures speed, beside raw TCP in one run. The command line is [`Args`], and
//! [`run`] does what it asks for. Programs have no use for this crate.
//!
//! ```text
//!   args     the command line             plan     the cases: what is compared with what
//!   client   the measuring end            run      rounds in turn, counts, progress
//!   server   the other one                control  what they tell each other
//!   task     one round, as both see it    tcp, rdma + flows: the two kinds of contenders
//!   local    the cases of one host        memcpy, process_vm: yardsticks without a connection
//!   stats    medians, ratios, intervals   report   table, JSON, pictures
//! ```
#![forbid(unsafe_code)]

// `eprintln!` is its own.
#[macro_use]
extern crate iwarp_kit;

mod args;
mod byte_stream;
mod client;
mod control;
mod cpu;
mod crowd;
mod dial;
mod fleet;
mod flows;
mod hub;
mod local;
mod memcpy;
mod octets;
mod paper;
mod patience;
mod plan;
mod process_vm;
mod rdma;
mod report;
mod run;
mod scenarios;
mod server;
mod stats;
mod task;
mod tasks;
mod tcp;
mod tokio_tcp;
mod ways;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use iwarp_kit::child::{Server, loopback};
use iwarp_kit::output::Output;

pub use self::args::Args;
use self::args::{Cpus, Words};
use self::client::Client;
use self::plan::{Plan, Selection};
use self::report::compare::Earlier;
use self::report::{About, CaseReport, IdleReport, Report, html, table};
use self::run::{Pace, Runner};
use self::task::{Places, Spec, Transport};

/// The command line of a serving process of our own.
const CHILD: [&str; 6] = ["perf", "--server", "--port", "0", "--once", "--child"];
/// The time for which both ends do nothing, to see what that costs.
const IDLE_TIME: Duration = Duration::from_secs(5);
/// The pause before that: young connections have something to do still.
const SETTLING_TIME: Duration = Duration::from_secs(4);

/// Measures, or serves, as the command line says. Without a host it starts this program once more,
/// as `PROGRAM perf --server`.
///
/// # Errors
///
/// The reason why nothing could be measured, or the first byte that was wrong.
pub fn run(args: &Args) -> Result<()> {
    if let Some(settings) = args.serving()? {
        return server::run(&settings);
    }
    let words = Words::of(&args.words)?;
    let outputs = Outputs::open(args)?;
    let earlier = args.compare.as_deref().map(Earlier::read).transpose()?;
    let cpus = cpu::allowed()?;
    let places = args.places(&cpus, &words);
    let selection = args.selection(&words, places.clone())?;
    let mut plan = if words.is_local() { Plan::default() } else { Plan::new(&selection) };
    for &scenario in &words.scenarios {
        scenarios::add(&mut plan, scenario, &selection)?;
    }
    ensure!(
        words.paper || !plan.cases.is_empty(),
        "nothing to measure: no test can be made as asked"
    );
    plan.specs.iter().try_for_each(Spec::check)?;
    let (_server, mut client) = connect(args, &words, &places)?;
    let (quiet, pace) = (args.is_quiet(), args.pace());
    let mut report = Report::new(About::of(&client, &words, &selection, pace)?);
    report.run.cpus = cpus;
    if placed(&plan, &words, args) {
        report.run.places = places;
    }
    if words.paper {
        let (paper, cases) = paper::run(&mut client, &selection, pace, quiet)?;
        report.cases = cases;
        report.paper = Some(paper);
    }
    report.run.left_out = make_all(&mut client, &mut plan)?;
    if let Some(contender) = scenarios::crowded(&plan) {
        report.idle = look_at_idle(&mut client, contender)?;
    }
    report.cases.extend(measure(&mut client, plan, pace, quiet)?);
    report.run.learn(&client);
    report.conclude();
    outputs.write(&report)?;
    if !quiet {
        table::finish(&report, earlier.as_ref())?;
    }
    Ok(())
}

/// True if anything does not choose its CPUs by itself.
fn placed(plan: &Plan, words: &Words, args: &Args) -> bool {
    let chosen =
        plan.specs.iter().any(|spec| !spec.places.client.is_empty() && !spec.places.threads);
    words.paper || chosen || matches!(args.cpu, Some(Cpus::Each { .. }))
}

/// Connects to the server that is named, or to one of our own.
fn connect(args: &Args, words: &Words, places: &Places) -> Result<(Option<Server>, Client)> {
    // Pinned before there are other threads and processes, which inherit it.
    let server_cpus: &[usize] = match args.cpu {
        Some(Cpus::Each { client, .. }) => {
            cpu::pin(&[client])?;
            &places.server
        }
        _ => &[],
    };
    if let Some(host) = &words.host {
        let (host, port) = args.host_port(host)?;
        return Ok((None, Client::connect(host, port, server_cpus)?));
    }
    let bind = format!("--bind={}", loopback());
    let server = Server::start(&[&CHILD[..], &[&bind]].concat())?;
    let client = Client::connect(&server.addr.ip().to_string(), server.addr.port(), server_cpus)?;
    Ok((Some(server), client))
}

/// Makes the contenders of a plan, and drops the lines of yardsticks that the system refuses.
/// Returns the reason.
fn make_all(client: &mut Client, plan: &mut Plan) -> Result<Option<String>> {
    let mut left_out = None;
    for (number, spec) in plan.specs.clone().iter().enumerate() {
        client.make(spec)?;
        let refused = match spec.transport {
            Transport::Yardstick(_) => client.hindrance(number),
            Transport::Tcp | Transport::Iwarp { .. } => None,
        };
        if refused.is_some() {
            plan.leave_out(number);
            left_out = refused;
        }
    }
    Ok(left_out)
}

/// Measures all cases of a plan whose contenders are there, and shows each when it is done.
fn measure(client: &mut Client, plan: Plan, pace: Pace, quiet: bool) -> Result<Vec<CaseReport>> {
    let mut runner = Runner::new(client, pace, &plan.cases);
    let mut cases = Vec::with_capacity(plan.cases.len());
    for case in plan.cases {
        let case = CaseReport::new(&runner.run(case)?);
        if !quiet {
            runner.aside(|| table::sheet(&case).print())?;
        }
        cases.push(case);
    }
    runner.finish();
    Ok(cases)
}

/// The cost of idle connections while both programs do nothing.
fn look_at_idle(client: &mut Client, contender: usize) -> Result<Vec<IdleReport>> {
    client.rest(contender, SETTLING_TIME)?;
    let seconds = IDLE_TIME.as_secs_f64();
    let both = ["client", "server"].into_iter().zip(client.rest(contender, IDLE_TIME)?);
    Ok(both
        .filter_map(|(process, (usage, idle))| {
            Some(IdleReport { process, idle: idle?, seconds, cpu_seconds: usage.seconds() })
        })
        .collect())
}

impl About {
    fn of(client: &Client, words: &Words, selection: &Selection, pace: Pace) -> Result<Self> {
        let process = client.server.process;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            command: std::env::args().collect(),
            unix_time: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
            processor: cpu::processor(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpus: Vec::new(),
            places: Places::default(),
            server: match &words.host {
                None => format!("process {process} on this machine, over loopback"),
                Some(host) => format!("process {process} of {host}"),
            },
            rounds: pace.rounds,
            round_seconds: pace.time.as_secs_f64(),
            // The congestion control that is asked for, as long as no socket of raw TCP can be
            // asked.
            congestion: selection.congestion.clone().map(|name| [name.clone(), name]),
            local_path: None,
            left_out: None,
            sockets: "TCP_NODELAY, buffers as the system has them",
            load: cpu::load(),
        })
    }

    fn learn(&mut self, client: &Client) {
        if client.congestion.is_some() {
            self.congestion.clone_from(&client.congestion);
        }
        self.local_path = client.ways().word();
    }
}

/// The files that are written at the end, and were found before to be writable.
struct Outputs<'a> {
    /// `None`: to standard output.
    json: Option<Option<Output>>,
    html: Option<Output>,
    svg: Option<&'a Path>,
}

impl<'a> Outputs<'a> {
    fn open(args: &'a Args) -> Result<Self> {
        let json = |file: &PathBuf| match args.is_quiet() {
            true => Ok(None),
            false => Output::open(file).map(Some),
        };
        let svg = args.svg.as_deref();
        svg.map(html::make_directory).transpose()?;
        Ok(Self {
            json: args.json.as_ref().map(json).transpose()?,
            html: args.html.as_deref().map(Output::open).transpose()?,
            svg,
        })
    }

    fn write(self, report: &Report) -> Result<()> {
        if let Some(file) = self.json {
            let mut json = serde_json::to_string_pretty(report)?;
            json.push('\n');
            file.map_or_else(|| table::out(&json), |file| file.write(&json))?;
        }
        if let Some(file) = self.html {
            file.write(&html::page(report)?)?;
        }
        if let Some(dir) = self.svg {
            html::write_pictures(report, dir)?;
        }
        Ok(())
    }
}
