// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use clap::ValueEnum;
use iwarp::Options;
use iwarp_kit::host_port::{HostPort, everywhere};
use iwarp_kit::size;

use super::control;
use super::plan::{Measure, Selection};
use super::run::Pace;
use super::scenarios::Scenario;
use super::server::Settings;
use super::task::{MAX_SIZE, Op, Places, Wait};

/// All words that name tests.
pub(super) const TESTS: &str = "write, send, read and atomic, with bw, lat and rate; connect, \
    clients, async, stream, local, compute, idle and paper";

/// Measure bandwidth, latency and message rate, and compare them with raw TCP in the same run.
///
/// Starts a server process on this machine, or uses one on another (`iwarp perf --server` on that
/// machine, `iwarp perf HOST` on this one). Raw TCP and RDMA move the same bytes between the same
/// two processes in alternating rounds; the result is the ratio of their medians. Every round's
/// bytes are verified: the exit status is 1 if one is wrong.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "\
Tests: any of write, read, send, atomic, with any of bw (bandwidth), lat (half a round trip; a whole
one for read and atomic), rate (messages per second). Without names: all measures of write, send and
read. Further tests:
  connect   connections made and ended per second
  clients   1, 2, 4 and 8 clients of one target process
  async     tasks of a tokio runtime that share a session, and blocking threads, compared with
            tokio's TCP
  stream    byte streams in place of TCP: writes of 64 KiB and 1 MiB, and a ping-pong of 64 bytes
  local     two processes of one host: RDMA over TCP, by rings in shared memory and by the default
            way, beside memcpy and process_vm_writev; write, send, read, atomic, bw, lat and rate
            choose among its lines
  compute   a target whose only thread computes and never calls the library
  idle      memory, CPU and poll time of idle connections (--connections, 10000 by default), and
            the loss of 4 busy ones among them
  paper     Table 1 and Figures 2 to 4 of Dalessandro, Devulapalli and Wyckoff, Design and
            Implementation of the iWarp Protocol in Software (2005), beside the paper's values

Examples:
  iwarp perf                               the picture, in a minute
  iwarp perf write bw --size 64K,1M        bandwidth of RDMA Write
  iwarp perf send lat --wait poll,events   latency, polling and sleeping
  iwarp perf atomic                        FetchAdd and CompareSwap
  iwarp perf local write bw --size 64K     RDMA Write past TCP, beside a memory copy
  iwarp perf --json run.json --html run.html
  taskset -c 0 iwarp perf lat              both ends on one CPU

Over two hosts:
  other:  iwarp perf --server
  this:   iwarp perf other write read bw")]
pub struct Args {
    /// Tests to run, and the host of the server, optionally with :PORT
    #[arg(value_name = "TEST | HOST")]
    pub(super) words: Vec<String>,

    /// Message sizes in bytes: a list such as 4,64K,1M
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_size)]
    size: Option<Vec<usize>>,
    /// All sizes from 4 bytes to 4 MiB, in powers of two
    #[arg(long, conflicts_with = "size")]
    all: bool,
    /// Messages under way on a connection [default: 16, rate 128]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=8192))]
    depth: Option<u64>,
    /// Messages posted in one call [default: 1, rate 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    list: Option<u64>,
    /// Connections that share the messages, served by one thread at each end
    #[arg(long, value_name = "N", default_value = "1",
        value_parser = clap::value_parser!(u64).range(1..=100_000))]
    connections: u64,
    /// CRC32c on the stream [default: both, local off]
    #[arg(long, value_enum)]
    crc: Option<Switch>,
    /// MPA markers in both directions
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    markers: Switch,
    /// Run all lines of raw TCP over the same connections, and likewise all lines of each kind of
    /// RDMA connection, so that effects of one line carry over to the next
    #[arg(long)]
    shared: bool,
    /// Ways in which the programs wait, a list [default: poll; lat also memory (write),
    /// events (send)]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "HOW")]
    wait: Option<Vec<Wait>>,

    /// Rounds of each line
    #[arg(long, default_value = "15", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rounds: u64,
    /// Length of a round in milliseconds
    #[arg(long, value_name = "MS", default_value = "50",
        value_parser = clap::value_parser!(u64).range(1..=10_000))]
    time: u64,
    /// Congestion control of all sockets within this host, for raw TCP and RDMA; `default` for the
    /// system's [default: IWARP_LOCAL_CONGESTION, else cubic]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// CPUs to run on, library threads included: one for both ends, one for the client and one for
    /// the server, or `any` to let the system choose [default: one half for each program, any for
    /// library threads; any with a HOST]
    #[arg(long, value_name = "CPUS", value_parser = parse_cpus)]
    pub(super) cpu: Option<Cpus>,

    /// Write all measurements to this file (- for standard output, without tables)
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Compare the ratios with those in this JSON file of an earlier run
    #[arg(long, value_name = "FILE")]
    pub(super) compare: Option<PathBuf>,
    /// Write a page with tables and pictures to this file
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write the pictures into this directory, for a paper
    #[arg(long, value_name = "DIR")]
    pub(super) svg: Option<PathBuf>,

    /// Serve clients, one after the other
    #[arg(long, conflicts_with_all = ["words", "json", "html", "svg", "compare"])]
    server: bool,
    /// Address to listen on, optionally with :PORT [default: all]
    #[arg(long, value_name = "ADDR", requires = "server")]
    bind: Option<String>,
    /// TCP port of the server; the system chooses further ones [default: 18516]
    #[arg(long)]
    port: Option<u16>,
    /// Serve one client only
    #[arg(long, requires = "server")]
    once: bool,
    /// The client is about to come, or never.
    #[arg(long, hide = true, requires = "server")]
    child: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Switch {
    Off,
    On,
    Both,
}

impl Switch {
    fn values(self) -> Vec<bool> {
        match self {
            Self::Off => vec![false],
            Self::On => vec![true],
            Self::Both => vec![false, true],
        }
    }
}

/// The CPUs that both ends run on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cpus {
    Any,
    Each { client: usize, server: usize },
}

fn parse_cpus(text: &str) -> Result<Cpus, String> {
    let number = |text: &str| text.trim().parse().map_err(|_| "expected 0, 0,1 or any".to_owned());
    match text.split_once(',') {
        _ if text == "any" => Ok(Cpus::Any),
        Some((client, server)) => {
            Ok(Cpus::Each { client: number(client)?, server: number(server)? })
        }
        None => number(text).map(|both| Cpus::Each { client: both, server: both }),
    }
}

fn parse_size(text: &str) -> Result<usize, String> {
    let size = size::parse(text)?;
    if (1..=MAX_SIZE).contains(&size) { Ok(size) } else { Err("expected 1 to 1GiB".to_owned()) }
}

impl Args {
    /// True if another process of this program started this one, as its server.
    pub fn is_child(&self) -> bool {
        self.child
    }

    /// The settings of the server, if one is wanted.
    pub(super) fn serving(&self) -> Result<Option<Settings>> {
        if !self.server {
            return Ok(None);
        }
        Ok(Some(Settings {
            addrs: self.bound()?,
            once: self.once,
            child: self.child,
            patience: self.child.then_some(control::GREETING),
        }))
    }

    /// The addresses of which a server listens on the first that this host has.
    fn bound(&self) -> Result<Vec<SocketAddr>> {
        let Some(address) = &self.bind else {
            return Ok(everywhere(self.port.unwrap_or(control::PORT)).into());
        };
        let (host, port) = self.host_port(address)?;
        let found = (host, port).to_socket_addrs();
        Ok(found.with_context(|| format!("cannot find {host}"))?.collect())
    }

    /// The host and the port that an address on the command line means.
    pub(super) fn host_port<'a>(&self, address: &'a str) -> Result<(&'a str, u16)> {
        let host_port = HostPort::parse(address).map_err(Error::msg)?;
        let port = host_port.port_or("--port", self.port, control::PORT).map_err(Error::msg)?;
        Ok((host_port.host, port))
    }

    pub(super) fn pace(&self) -> Pace {
        Pace { rounds: self.rounds as usize, time: Duration::from_millis(self.time) }
    }

    /// True if standard output is for JSON alone.
    pub(super) fn is_quiet(&self) -> bool {
        self.json.as_ref().is_some_and(|file| file.as_os_str() == "-")
    }

    pub(super) fn selection(&self, words: &Words, places: Places) -> Result<Selection> {
        let sizes = || (2..=22).map(|shift| 1 << shift).collect();
        let congestion = match self.congestion.as_deref() {
            None => Options::from_env()?.local_congestion,
            Some("default") => None,
            Some(name) => Some(name.to_owned()),
        };
        // Shared memory has none unless it is demanded.
        let usual_crc = if words.is_local() { Switch::Off } else { Switch::Both };
        Ok(Selection {
            ops: words.ops.clone(),
            measures: words.measures.clone(),
            sizes: if self.all { Some(sizes()) } else { self.size.clone() },
            depth: self.depth.map(|depth| depth as usize),
            list: self.list.map(|list| list as usize),
            connections: self.connections as usize,
            crc: self.crc.unwrap_or(usual_crc).values(),
            markers: self.markers.values(),
            waits: self.wait.clone(),
            shared: self.shared,
            congestion,
            // A program that runs on one CPU altogether need not be told again.
            places: if self.cpu.is_some() { Places::default() } else { places },
        })
    }

    /// The CPUs that both ends are to run on. Another host's are not known here.
    pub(super) fn places(&self, cpus: &[usize], words: &Words) -> Places {
        match self.cpu {
            Some(Cpus::Any) => Places::default(),
            Some(Cpus::Each { client, server }) => {
                Places { client: vec![client], server: vec![server], threads: true }
            }
            None if words.host.is_some() => Places::default(),
            None => Places::halves(cpus),
        }
    }
}

/// The meaning of the words of the command line.
#[derive(Default, Debug)]
pub(super) struct Words {
    pub(super) ops: Vec<Op>,
    pub(super) measures: Vec<Measure>,
    pub(super) scenarios: Vec<Scenario>,
    pub(super) paper: bool,
    pub(super) host: Option<String>,
}

impl Words {
    /// True if measures are those of the ways within the host.
    pub(super) fn is_local(&self) -> bool {
        self.scenarios.contains(&Scenario::Local)
    }

    pub(super) fn of(words: &[String]) -> Result<Self> {
        let mut found = Self::default();
        for word in words {
            match word.as_str() {
                "write" => found.ops.push(Op::Write),
                "send" => found.ops.push(Op::Send),
                "read" => found.ops.push(Op::Read),
                "paper" => found.paper = true,
                "atomic" => found.ops.extend([Op::FetchAdd, Op::CompareSwap]),
                other => {
                    if let Ok(measure) = Measure::from_str(other, false) {
                        found.measures.push(measure);
                    } else if let Ok(scenario) = Scenario::from_str(other, false) {
                        found.scenarios.push(scenario);
                    } else {
                        ensure!(found.host.is_none(), "{other} is not a test. Tests are {TESTS}.");
                        found.host = Some(other.to_owned());
                    }
                }
            }
        }
        if found.ops.is_empty() {
            found.ops = vec![Op::Write, Op::Send, Op::Read];
            if found.is_local() {
                found.ops.push(Op::FetchAdd);
            }
        }
        if let (true, Some(host)) = (found.is_local(), &found.host) {
            bail!(
                "local measures two processes of this host, and starts the other one itself: leave \
                 out {host}, or local. For two hosts: iwarp perf {host} write read bw"
            );
        }
        if found.measures.is_empty() && found.scenarios.is_empty() && !found.paper {
            found.measures = vec![Measure::Bandwidth, Measure::Latency, Measure::Rate];
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{Measure, Op, TESTS, Words};

    #[test]
    fn every_test_that_is_named_is_one() {
        let words = TESTS.split([',', ';', ' ']).filter(|word| !["", "and", "with"].contains(word));
        for word in words {
            assert_eq!(Words::of(&[word.to_owned()]).expect(word).host, None, "{word}");
        }
        let words = ["there", "nosuch"].map(str::to_owned);
        let error = Words::of(&words).expect_err("two hosts").to_string();
        assert!(error.contains("nosuch is not a test") && error.contains("compute"), "{error}");
    }

    #[test]
    fn other_words_choose_among_the_lines_of_one_host() {
        let of = |words: &str| Words::of(&words.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let words = of("local").expect("it is a test");
        assert!(words.is_local() && words.measures.is_empty());
        assert_eq!(words.ops, [Op::Write, Op::Send, Op::Read, Op::FetchAdd]);
        let words = of("write local bw").expect("they are tests");
        assert_eq!((words.ops, words.measures), (vec![Op::Write], vec![Measure::Bandwidth]));
        let error = of("local there").expect_err("another host").to_string();
        assert!(error.contains("leave out there") && error.contains("iwarp perf there"), "{error}");
    }
}
