// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp why`: what a process waits for, in words.
//!
//! ```text
//!   peers   the other end of a queue pair, if it is on this host
//!   qp      what a queue pair waits for
//!   others  completion queues, ids, calls
//! ```

mod others;
mod peers;
mod qp;

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use super::facts::{Facts, Process, silence};
use peers::Peers;

/// Say why a process does not go on: what waits for what.
///
/// For each queue pair, completion queue and id of the connection manager that waits for something:
/// for what, and what to do. The process is asked twice, half a second apart, so that what moves is
/// told from what stands still. If the other end of a connection is on this host, and a process of
/// this user, it is asked as well.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The process; iwarp ps lists those that can be asked
    #[arg(value_name = "PID")]
    pid: u32,
    /// Also what goes on, and what waits for nothing
    #[arg(short, long)]
    all: bool,
}

const EXAMPLES: &str = "\
Examples:
  iwarp ps                                      the processes that can be asked
  iwarp why 4711                                what waits in process 4711
  iwarp why --all 4711                          also what goes on

Exit status: 0 if something waits, 3 if nothing does, 1 if the process cannot be asked.";

/// Exit status where nothing waits.
pub(crate) const NOTHING: u8 = 3;

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// Something that waits, or does not.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Finding {
    /// The object.
    what: String,
    /// Sentences, the most likely first; none where it waits for nothing.
    reasons: Vec<String>,
    /// It went on between the two looks.
    moves: bool,
}

/// True if something waits.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let process = Process::find(args.pid)?;
    let (pid, name) = (process.pid, &process.name);
    let before = match &process.answer {
        Ok(facts) => facts,
        Err(error) => {
            println!("{name} (process {pid}) {}", silence(&process, error));
            return Ok(true);
        }
    };
    thread::sleep(PAUSE);
    let now = process.again();
    let Some(facts) = now.facts() else {
        bail!("process {pid} has ended, or does not answer any more");
    };
    let others: Vec<_> = Process::all().into_iter().filter(|other| other.pid != pid).collect();
    let findings = findings(&now, before, facts, &others);
    let waits = |finding: &&Finding| !finding.moves && !finding.reasons.is_empty();
    let waiting = findings.iter().filter(waits).count();
    println!("{name} (process {pid})");
    for finding in findings.iter().filter(|finding| args.all || waits(finding)) {
        println!("\n{}{}", finding.what, if finding.moves { ": goes on" } else { "" });
        for reason in &finding.reasons {
            println!("  {reason}");
        }
    }
    if waiting == 0 {
        let moves = findings.iter().any(|finding| finding.moves);
        println!(
            "\n{}",
            if moves { "It goes on: nothing stands still." } else { "Nothing waits." }
        );
    }
    Ok(waiting > 0)
}

fn findings(now: &Process, before: &Facts, facts: &Facts, others: &[Process]) -> Vec<Finding> {
    let peers = Peers::new(now, others);
    let mut findings = Vec::from_iter(others::of_ports(now.pid, facts));
    findings.extend(facts.qp.iter().map(|qp| qp::finding(qp, before, facts, &peers)));
    findings.extend(others::findings(before, facts));
    findings
}
