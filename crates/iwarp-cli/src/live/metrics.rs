// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp metrics`: the numbers of running processes as OpenMetrics, for Prometheus.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

use super::facts::{Facts, Process, QueuePair};
use super::times::Times;

/// Print the numbers of running processes as OpenMetrics, or serve them to Prometheus.
///
/// Of all processes of this user that use this library; of all users for root. Numbers that end in
/// _total are of the queue pairs that exist, so they begin anew with each of these.
///
/// With --times processes take the times of send work requests, from post until the completion can
/// be polled, of those that have completions and end well. That costs them two looks at the clock
/// for each request, and ends five minutes after the last look.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Serve them by HTTP at this address, under every path
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Also the times of send work requests, which processes take from the first look on
    #[arg(long)]
    times: bool,
}

const EXAMPLES: &str = "\
Examples:
  iwarp metrics                                 print them once
  iwarp metrics --listen 127.0.0.1:9471         for a scrape target of Prometheus
  iwarp metrics --listen 127.0.0.1:9471 --times with a histogram of the times of requests";

const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The time that one who asks may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time for which processes take times behind a look.
const WATCH: Duration = Duration::from_secs(300);
/// Buckets of times are as wide as the one before and all before that, from 256 ns to 17 s.
const BUCKETS: std::ops::RangeInclusive<u32> = 8..=34;
/// Bytes of a request that are read at most.
const MOST: u64 = 16 << 10;

pub(crate) fn run(args: &Args) -> Result<()> {
    let Some(addr) = args.listen else {
        print!("{}", text(&look(args.times)?));
        return Ok(());
    };
    let listener = TcpListener::bind(addr).with_context(|| format!("--listen {addr}"))?;
    eprintln!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        // One that goes away, or asks nonsense, is its own problem.
        let _ = stream.and_then(|stream| serve(stream, args.times));
    }
    Ok(())
}

/// The processes at this moment.
fn look(times: bool) -> Result<Vec<Process>> {
    if times { Process::watched(None, WATCH) } else { Ok(Process::all()) }
}

/// Answers one request (HTTP/1.1, RFC 9112), and closes.
fn serve(mut stream: TcpStream, times: bool) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(io::Read::take(&stream, MOST)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let (status, kind, body) = match request.split(' ').next() {
        Some("GET") => {
            let all = look(times).map_err(io::Error::other)?;
            ("200 OK", CONTENT, text(&all))
        }
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n".to_owned()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: \
         close\r\n\r\n{body}"
    )
}

/// A family of numbers.
struct Family {
    name: &'static str,
    is_total: bool,
    help: &'static str,
    /// The number of a process, or `None` where it has none.
    of: fn(&Facts) -> f64,
}

const FAMILIES: [Family; 12] = [
    gauge("iwarp_queue_pairs", "Queue pairs.", |facts| facts.qp.len() as f64),
    gauge("iwarp_connections", "Queue pairs that are connected.", |facts| {
        facts.qp.iter().filter(|qp| qp.connected).count() as f64
    }),
    gauge("iwarp_connections_in_memory", "Connections that go by memory of the host.", |facts| {
        let is = |qp: &&QueuePair| qp.stream.as_ref().is_some_and(|stream| stream.path == "memory");
        facts.qp.iter().filter(is).count() as f64
    }),
    gauge("iwarp_send_requests", "Send work requests under way.", |facts| {
        sum(facts, |qp| qp.sends)
    }),
    gauge("iwarp_receives", "Receives that are posted.", |facts| sum(facts, |qp| qp.receives)),
    gauge("iwarp_queue_pairs_without_receive", "Queue pairs with a message that waits.", |facts| {
        facts.qp.iter().filter(|qp| qp.parked).count() as f64
    }),
    gauge("iwarp_completions_waiting", "Completions that are not polled.", |facts| {
        facts.cq.iter().map(|cq| cq.waiting).sum::<u64>() as f64
    }),
    gauge("iwarp_ids", "Ids of the connection manager.", |facts| facts.cm_id.len() as f64),
    total("iwarp_send_requests_ended", "Send work requests that have ended.", |facts| {
        sum(facts, |qp| qp.ended)
    }),
    total("iwarp_messages_received", "Messages that have come.", |facts| {
        sum(facts, |qp| qp.arrivals)
    }),
    total("iwarp_direct_reads", "Reads within the host by this end alone.", |facts| {
        sum(facts, |qp| qp.stream.as_ref().map_or(0, |stream| stream.direct_reads))
    }),
    total(
        "iwarp_direct_writes",
        "Writes and Atomics within the host by this end alone.",
        |facts| sum(facts, |qp| qp.stream.as_ref().map_or(0, |stream| stream.direct_writes)),
    ),
];

const fn gauge(name: &'static str, help: &'static str, of: fn(&Facts) -> f64) -> Family {
    Family { name, is_total: false, help, of }
}

const fn total(name: &'static str, help: &'static str, of: fn(&Facts) -> f64) -> Family {
    Family { name, is_total: true, help, of }
}

fn sum(facts: &Facts, of: impl Fn(&QueuePair) -> u64) -> f64 {
    facts.qp.iter().map(of).sum::<u64>() as f64
}

/// All numbers, as OpenMetrics 1.0.
fn text(all: &[Process]) -> String {
    let mut text = String::new();
    // Writing to memory does not fail.
    let _ = writeln!(text, "# TYPE iwarp_process gauge");
    let _ = writeln!(text, "# HELP iwarp_process Processes: 1 if it answers, 0 if not.");
    for process in all {
        let answers = u8::from(process.answer.is_ok());
        let _ = writeln!(text, "iwarp_process{{{}}} {answers}", labels(process));
    }
    for Family { name, is_total, help, of } in &FAMILIES {
        let (kind, end) = if *is_total { ("counter", "_total") } else { ("gauge", "") };
        let _ = writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {help}");
        for process in all {
            if let Some(facts) = process.facts() {
                let _ = writeln!(text, "{name}{end}{{{}}} {}", labels(process), of(facts));
            }
        }
    }
    add_times(&mut text, all);
    text.push_str("# EOF\n");
    text
}

/// A histogram of the times of each process that has some.
fn add_times(text: &mut String, all: &[Process]) {
    let name = "iwarp_send_request_seconds";
    let _ = writeln!(text, "# TYPE {name} histogram\n# UNIT {name} seconds");
    let _ = writeln!(text, "# HELP {name} Times of send requests, from post to completion.");
    for process in all {
        let mut times = Times::default();
        let of = |facts: &Facts| facts.qp.iter().for_each(|qp| times.add(&qp.times));
        process.facts().into_iter().for_each(of);
        if times.is_empty() {
            continue;
        }
        let labels = labels(process);
        for power in BUCKETS {
            let nanos = 1_u64 << power;
            // A bucket of the process ends right before a power of two.
            let (count, end) = (times.within(nanos), nanos as f64 / 1e9);
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{end}\"}} {count}");
        }
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", times.count());
    }
}

fn labels(process: &Process) -> String {
    let name = process.name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("pid=\"{}\",program=\"{name}\"", process.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_of_each_process() {
        let times = Times::from([(255, 2), (300, 5), (1 << 40, 1)]);
        let qp = QueuePair { connected: true, sends: 3, ended: 7, times, ..QueuePair::default() };
        let facts = Facts { qp: vec![qp.clone(), qp], ..Facts::default() };
        let process = Process {
            pid: 12,
            user: 0,
            name: "a \"b\"".to_owned(),
            is_stopped: false,
            answer: Ok(facts),
        };
        let silent = Process {
            pid: 13,
            user: 0,
            name: "c".to_owned(),
            is_stopped: true,
            answer: Err(io::ErrorKind::TimedOut.into()),
        };
        let text = text(&[process, silent]);
        let labels = "{pid=\"12\",program=\"a \\\"b\\\"\"}";
        let inner = labels.trim_matches(['{', '}']);
        let bucket = |end, count| {
            format!("iwarp_send_request_seconds_bucket{{{inner},le=\"{end}\"}} {count}")
        };
        for line in [
            format!("iwarp_process{labels} 1"),
            "iwarp_process{pid=\"13\",program=\"c\"} 0".to_owned(),
            format!("iwarp_send_requests{labels} 6"),
            format!("iwarp_send_requests_ended_total{labels} 14"),
            bucket("0.000000256", 4),
            bucket("0.000000512", 14),
            bucket("17.179869184", 14),
            bucket("+Inf", 16),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in:\n{text}");
        }
        assert!(text.ends_with("\n# EOF\n"));
    }
}
