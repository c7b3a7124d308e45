// SPDX-License-Identifier: MIT OR Apache-2.0

//! The results, ready to be shown.

mod charts;
pub(super) mod compare;
pub(super) mod html;
mod look;
mod overview;
pub(super) mod table;

use serde::Serialize;

use super::cpu::Usage;
use super::paper::Paper;
use super::plan::{Case, Measure};
use super::run::{Outcome, Results};
use super::stats::{Ratio, Summary};
use super::task::{Idle, Places, Times, Transport, Wait};

/// Version of the JSON.
const FORMAT: u32 = 1;
const GIB: f64 = (1 << 30) as f64;

/// Everything about a run.
#[derive(Serialize, Debug)]
pub(super) struct Report {
    /// Version of this format.
    pub(super) format: u32,
    pub(super) run: About,
    /// The reason why the values may not mean much, if there is one.
    pub(super) warning: Option<String>,
    pub(super) cases: Vec<CaseReport>,
    /// The cost of idle connections.
    pub(super) idle: Vec<IdleReport>,
    pub(super) paper: Option<Paper>,
}

/// The cost of idle connections for one of the processes.
#[derive(Serialize, Clone, Debug)]
pub(super) struct IdleReport {
    pub(super) process: &'static str,
    #[serde(flatten)]
    pub(super) idle: Idle,
    /// Seconds during which both processes did nothing.
    pub(super) seconds: f64,
    /// CPU seconds that it took meanwhile.
    pub(super) cpu_seconds: f64,
}

/// The circumstances of the measurement.
#[derive(Serialize, Clone, Debug)]
pub(super) struct About {
    /// Version of the command.
    pub(super) version: &'static str,
    pub(super) command: Vec<String>,
    /// Seconds since 1970.
    pub(super) unix_time: u64,
    pub(super) processor: String,
    pub(super) kernel: String,
    /// The CPUs that the client might run on.
    pub(super) cpus: Vec<usize>,
    /// The CPUs on which client and server did run, if they were told.
    pub(super) places: Places,
    /// The server: this host's other process, or another host.
    pub(super) server: String,
    pub(super) rounds: usize,
    /// Seconds of a round.
    pub(super) round_seconds: f64,
    /// Congestion control of raw TCP, at the client and at the server.
    pub(super) congestion: Option<[String; 2]>,
    /// The way of RDMA within the host, at the end of the last rounds: `off` (TCP), `rings`, or
    /// `rings: 2 of 5` connections.
    pub(super) local_path: Option<String>,
    /// The lines that could not be measured, and the reason.
    pub(super) left_out: Option<String>,
    /// The other options of all sockets.
    pub(super) sockets: &'static str,
    /// Threads that ran or wanted to, on average in the minute before.
    pub(super) load: f64,
}

#[derive(Serialize, Debug)]
pub(super) struct CaseReport {
    pub(super) title: Option<String>,
    pub(super) measure: Measure,
    /// The unit of all values and quartiles.
    pub(super) unit: &'static str,
    pub(super) size: usize,
    pub(super) depth: usize,
    pub(super) list: usize,
    pub(super) connections: usize,
    pub(super) subjects: Vec<SubjectReport>,
}

#[derive(Serialize, Debug)]
pub(super) struct SubjectReport {
    pub(super) name: String,
    pub(super) transport: Transport,
    pub(super) wait: Wait,
    pub(super) server_wait: Wait,
    /// Messages of a round.
    pub(super) messages: u64,
    /// The way of its connections within the host at the end of the last round, as
    /// [`About::local_path`] has it.
    pub(super) local_path: Option<String>,
    /// The part of the messages that the client carried out by itself in the server's memory, of
    /// operations that can be.
    pub(super) direct_part: Option<f64>,
    #[serde(flatten)]
    pub(super) summary: Summary,
    /// The baseline that counts, if this is not raw TCP: the fastest where latency is measured, the
    /// first elsewhere.
    pub(super) versus: Option<Versus>,
    /// The other baselines.
    pub(super) also_versus: Vec<Versus>,
    pub(super) client_cpu: Cost,
    pub(super) server_cpu: Cost,
    pub(super) percentiles: Option<Percentiles>,
    /// One value of each round.
    pub(super) values: Vec<f64>,
}

#[derive(Serialize, Clone, Debug)]
pub(super) struct Versus {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) ratio: Ratio,
    /// Ratio of the medians over all messages of all rounds, where they were timed.
    pub(super) p50: Option<f64>,
}

/// The cost of one side.
#[derive(Serialize, Clone, Copy, Debug)]
pub(super) struct Cost {
    /// CPU seconds for a GiB.
    pub(super) seconds_per_gib: f64,
    /// CPU microseconds for a message.
    pub(super) us_per_message: f64,
    /// Part of that time that was spent in the kernel.
    pub(super) system_part: f64,
    /// CPUs busy on average.
    pub(super) cpus: f64,
    /// Context switches for a message.
    pub(super) switches_per_message: f64,
}

/// Times of single messages, in seconds.
#[derive(Serialize, Clone, Copy, Debug)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
}

impl Report {
    /// A report without results.
    pub(super) fn new(run: About) -> Self {
        let (cases, idle) = (Vec::new(), Vec::new());
        Self { format: FORMAT, run, warning: None, cases, idle, paper: None }
    }

    /// All is measured: adds a warning if that cannot be trusted.
    pub(super) fn conclude(&mut self) {
        self.warning = overview::warning(self);
    }

    /// Tables beside those of the cases.
    fn more_sheets(&self) -> Vec<table::Sheet> {
        let row = |report: &IdleReport| {
            vec![
                report.process.to_owned(),
                report.idle.connections.to_string(),
                format!("{:.2} KiB", report.idle.memory_each / 1024.0),
                format!("{:.3} µs", report.idle.empty_poll * 1e6),
                format!("{:.1} ms in {} s", report.cpu_seconds * 1e3, report.seconds),
            ]
        };
        let header = ["", "idle", "resident memory each", "an empty poll", "CPU while idle"];
        let sheet = table::Sheet {
            headline: "Idle connections".to_owned(),
            header: header.map(str::to_owned).to_vec(),
            rows: self.idle.iter().map(row).collect(),
        };
        let mut sheets = if self.idle.is_empty() { Vec::new() } else { vec![sheet] };
        sheets.extend(self.paper.iter().flat_map(Paper::sheets));
        sheets
    }

    /// Pictures beside those of the cases.
    fn pictures(&self) -> Vec<html::Picture> {
        self.paper.as_ref().map(Paper::pictures).unwrap_or_default()
    }
}

impl CaseReport {
    pub(super) fn new(outcome: &Outcome) -> Self {
        let Outcome { case, results } = outcome;
        let subjects = (0..results.len()).map(|at| SubjectReport::new(case, results, at)).collect();
        Self {
            title: case.title.clone(),
            measure: case.measure,
            unit: match case.measure {
                Measure::Bandwidth => "bytes/s",
                Measure::Latency | Measure::RoundTrip => "s",
                Measure::Rate => "messages/s",
                Measure::Connect => "connections/s",
            },
            size: case.size,
            depth: case.depth,
            list: case.list,
            connections: case.connections,
            subjects,
        }
    }
}

impl SubjectReport {
    fn new(case: &Case, results: &[Results], at: usize) -> Self {
        let (subject, own) = (&case.subjects[at], &results[at]);
        let mut baselines = subject.baselines.clone();
        if matches!(case.measure, Measure::Latency | Measure::RoundTrip) {
            let median = |&place: &usize| super::stats::median(&results[place].values);
            // Raw TCP counts, however fast a machine is without a connection.
            let is_tcp = |&place: &usize| case.subjects[place].transport == Transport::Tcp;
            baselines
                .sort_by(|a, b| is_tcp(b).cmp(&is_tcp(a)).then(median(a).total_cmp(&median(b))));
        }
        let mut versus = baselines.iter().map(|&place| Versus {
            name: case.subjects[place].name.clone(),
            ratio: Ratio::of(&own.values, &results[place].values),
            p50: Percentiles::of(&own.times)
                .zip(Percentiles::of(&results[place].times))
                .map(|(own, other)| own.p50 / other.p50),
        });
        Self {
            name: subject.name.clone(),
            transport: subject.transport,
            wait: subject.task.wait,
            server_wait: subject.task.server_wait,
            messages: own.count,
            local_path: own.ways.word(),
            direct_part: own.direct_part(subject),
            summary: Summary::of(&own.values),
            versus: versus.next(),
            also_versus: versus.collect(),
            client_cpu: Cost::new(case, own, &own.client),
            server_cpu: Cost::new(case, own, &own.server),
            percentiles: Percentiles::of(&own.times),
            values: own.values.clone(),
        }
    }
}

impl Cost {
    fn new(case: &Case, results: &Results, usage: &Usage) -> Self {
        let messages = results.messages as f64;
        let seconds = usage.seconds();
        // A round trip moves the bytes twice.
        let times = if case.measure == Measure::Latency { 2.0 } else { 1.0 };
        Self {
            seconds_per_gib: seconds / (messages * case.size as f64 * times / GIB),
            us_per_message: seconds / (messages * times) * 1e6,
            system_part: if seconds > 0.0 { usage.system / seconds } else { 0.0 },
            cpus: seconds / results.seconds,
            switches_per_message: usage.switches as f64 / (messages * times),
        }
    }
}

impl Percentiles {
    fn of(times: &Times) -> Option<Self> {
        let at = |part| times.quantile(part) as f64 * 1e-9;
        (times.len() > 0).then(|| Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{About, CaseReport, Cost, Report, SubjectReport, Versus};
    use crate::plan::Measure;
    use crate::stats::{Ratio, Summary};
    use crate::task::{Places, Transport, Wait};

    /// Bandwidth of lines with these ratios to the first, whose intervals reach so far around them.
    pub(super) fn report(lines: &[(&str, f64)], around: f64) -> Report {
        let subjects = lines.iter().enumerate().map(|(place, &(name, value))| {
            let (q1, q3) = (value, value);
            let [low, high] = [1.0 - around, 1.0 + around].map(|part| value * part);
            let ratio = Ratio { medians: value, q1, q3, low, high };
            let cost = Cost {
                seconds_per_gib: 0.1,
                us_per_message: 1.0,
                system_part: 0.5,
                cpus: 1.0,
                switches_per_message: 0.0,
            };
            SubjectReport {
                name: name.to_owned(),
                transport: match place {
                    0 => Transport::Tcp,
                    _ => {
                        Transport::Iwarp { crc: name.contains("CRC"), markers: false, local: None }
                    }
                },
                wait: Wait::Poll,
                server_wait: Wait::Poll,
                messages: 1,
                local_path: None,
                direct_part: None,
                summary: Summary { median: value * 1e9, q1, q3 },
                versus: (place > 0).then(|| Versus {
                    name: lines[0].0.to_owned(),
                    ratio,
                    p50: None,
                }),
                also_versus: Vec::new(),
                client_cpu: cost,
                server_cpu: cost,
                percentiles: None,
                values: vec![value],
            }
        });
        let case = CaseReport {
            title: None,
            measure: Measure::Bandwidth,
            unit: "bytes/s",
            size: 4096,
            depth: 16,
            list: 1,
            connections: 1,
            subjects: subjects.collect(),
        };
        let mut report = Report::new(About {
            version: "0",
            command: vec!["iwarp".to_owned(), "perf".to_owned()],
            unix_time: 0,
            processor: "a processor".to_owned(),
            kernel: "6".to_owned(),
            cpus: vec![0, 1],
            places: Places::default(),
            server: "process 7".to_owned(),
            rounds: 1,
            round_seconds: 0.05,
            congestion: None,
            local_path: None,
            left_out: None,
            sockets: "as they are",
            load: 0.1,
        });
        report.cases.push(case);
        report
    }
}
