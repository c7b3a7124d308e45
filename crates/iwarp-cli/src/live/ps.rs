// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp ps`: the processes that have a device of this library.

use anyhow::Result;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde_json::json;

use super::facts::{Process, silence};

/// List the running processes that use this library.
///
/// Processes of this user; of all users for root. A process appears with its first device. The
/// columns: number, program, queue pairs, how many of them are connected, ids of the connection
/// manager, completion queues.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// As JSON
    #[arg(short, long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  iwarp ps                                      a line for each process
  iwarp ps --json                               for programs";

pub(crate) fn run(args: &Args) -> Result<()> {
    let all = Process::all();
    if args.json {
        let of = |process: &Process| {
            json!({
                "pid": process.pid,
                "user": process.user,
                "name": process.name,
                "stopped": process.is_stopped,
                "qp": process.facts().map(|facts| facts.qp.len()),
                "cq": process.facts().map(|facts| facts.cq.len()),
                "cm_id": process.facts().map(|facts| facts.cm_id.len()),
            })
        };
        let list: Vec<_> = all.iter().map(of).collect();
        println!("{}", serde_json::to_string_pretty(&list)?);
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(["PID", "PROGRAM", "QP", "CONNECTED", "CM_ID", "CQ", ""]);
    for process in &all {
        let mut row = vec![process.pid.to_string(), process.name.clone()];
        match &process.answer {
            Ok(facts) => {
                let connected = facts.qp.iter().filter(|qp| qp.connected).count();
                let counts = [facts.qp.len(), connected, facts.cm_id.len(), facts.cq.len()];
                row.extend(counts.map(|count| count.to_string()));
            }
            Err(error) => {
                row.extend(["-", "-", "-", "-"].map(str::to_owned));
                row.push(silence(process, error));
            }
        }
        table.add_row(row);
    }
    println!("{table}");
    Ok(())
}
