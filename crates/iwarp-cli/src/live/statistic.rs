// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp statistic`: the numbers of queue pairs, in the words of `rdma statistic`.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::facts::{Process, QueuePair, silence};
use super::rates::{Rates, earlier, find};
use super::times::Times;

/// Show the counters of queue pairs, one a line.
///
/// Of all processes that use this library, since each queue pair was made or reset: send work
/// requests that have ended and the bytes of all that were posted, messages that have come,
/// operations within the host that this end carried out alone, and what its TCP has sent again.
///
/// With --rates also the times of send work requests from their posts until their completions can
/// be polled, of those that had completions and ended well: half were within tx_p50_ns nanoseconds,
/// 99 of 100 within tx_p99_ns. The counters of ports are in /sys/class/infiniband below iwarp run,
/// where rdma statistic shows them.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only those of this process
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,
    /// Also rates for a second, and times of requests, of so many seconds from now on
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    rates: Option<u64>,
    /// As JSON
    #[arg(short, long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  iwarp statistic                               all queue pairs of all processes
  iwarp statistic --rates 1 --pid 4711          what moves in process 4711
  iwarp statistic --json                        for programs";

/// Seconds for which processes are watched beyond the time that was asked for.
const MARGIN: u64 = 5;

pub(crate) fn run(args: &Args) -> Result<()> {
    let (before, started) = match args.rates {
        None => (Vec::new(), None),
        Some(seconds) => {
            let before = Process::watched(args.pid, Duration::from_secs(seconds + MARGIN))?;
            let started = Instant::now();
            thread::sleep(Duration::from_secs(seconds));
            (before, Some(started))
        }
    };
    let all = Process::wanted(args.pid)?;
    let time = started.map(|started| started.elapsed());
    let mut list = Vec::new();
    for process in &all {
        match &process.answer {
            Ok(facts) => list.extend(facts.qp.iter().map(|qp| {
                let before = find(earlier(&before, process), qp);
                let of = time.map(|time| {
                    let times = before.map(|before| qp.times.since(&before.times));
                    (Rates::of(before, qp, time), times.unwrap_or_default())
                });
                members(process, qp, of)
            })),
            Err(error) => eprintln!("process {} {}", process.pid, silence(process, error)),
        }
    }
    if args.json {
        let object = |(name, value): (&str, Value)| (name.to_owned(), value);
        let list: Vec<Map<_, _>> =
            list.into_iter().map(|members| members.into_iter().map(object).collect()).collect();
        println!("{}", serde_json::to_string_pretty(&list)?);
        return Ok(());
    }
    for members in &list {
        println!("qp {}", words(members));
    }
    Ok(())
}

/// Names and values, in the order in which they are shown.
type Members = Vec<(&'static str, Value)>;

fn members(process: &Process, qp: &QueuePair, moved: Option<(Rates, Times)>) -> Members {
    let mut members = vec![
        ("device", json!(qp.device)),
        ("qpn", json!(qp.number)),
        ("pid", json!(process.pid)),
        ("comm", json!(process.name)),
        ("tx_requests", json!(qp.ended)),
        ("tx_bytes", json!(qp.octets)),
        ("rx_messages", json!(qp.arrivals)),
    ];
    if let Some(stream) = &qp.stream {
        members.push(("direct_reads", json!(stream.direct_reads)));
        members.push(("direct_writes", json!(stream.direct_writes)));
        members.extend(stream.retransmits.map(|count| ("retransmits", json!(count))));
    }
    if let Some((Rates { requests, octets, messages }, times)) = moved {
        members.push(("tx_requests_per_s", json!(requests.round() as u64)));
        members.push(("tx_bytes_per_s", json!(octets.round() as u64)));
        members.push(("rx_messages_per_s", json!(messages.round() as u64)));
        for (name, thousandths) in [("tx_p50_ns", 500), ("tx_p99_ns", 990)] {
            members.extend(times.within_which(thousandths).map(|nanos| (name, json!(nanos))));
        }
    }
    members
}

fn words(members: &Members) -> String {
    let word = |(name, value): &(&str, Value)| match value {
        Value::String(text) => format!("{name} {text}"),
        value => format!("{name} {value}"),
    };
    members.iter().map(word).collect::<Vec<_>>().join(" ")
}
