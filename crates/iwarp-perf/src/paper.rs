// SPDX-License-Identifier: MIT OR Apache-2.0

//! The measurements of Dalessandro, Devulapalli and Wyckoff, "Design and Implementation of the
//! iWarp Protocol in Software" (2005), made again, beside their own.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::client::Client;
use super::cpu;
use super::plan::{Measure, Plan, Selection};
use super::report::table::Sheet;
use super::report::{CaseReport, html::Picture, table};
use super::run::Pace;
use super::stats::median;
use super::task::{Flow, Kind, Op, Places, Spec, Task, Times, Transport, Wait};

/// Sizes of Table 1.
const SMALL: usize = 4;
const LARGE: usize = 64 << 10;
/// Sizes of Figure 2: powers of 4.
const LEAST: u32 = 3;
const MOST: u32 = 10;
/// Messages of Figures 3 and 4.
const LOAD_SIZES: [usize; 2] = [68_000, 4_000];
const DEPTH: usize = 16;
/// All senders of Figures 3 and 4 keep to this part of what the slowest can do.
const PART: f64 = 0.5;
/// The background tasks must get so much of their CPUs when nothing is sent.
const UNDISTURBED: f64 = 0.9;

/// The paper's values, by transport: plain TCP, CRC off, CRC on.
mod theirs {
    /// Table 1, plain TCP and software to software: µs.
    pub(super) const LATENCY: [(usize, [f64; 3]); 2] =
        [(super::SMALL, [62.7, 62.7, 62.2]), (super::LARGE, [624.5, 687.5, 1401.9])];
    /// Figure 2, large messages, read off: line rate without CRC, some 100 Mb/s less with it.
    pub(super) const THROUGHPUT: [f64; 3] = [1.0, 1.0, 0.9];
    /// Figures 3 and 4 in ratios to plain TCP, read off: sender, receiver.
    pub(super) const LOAD: [[[f64; 3]; 2]; 2] =
        [[[1.0, 1.43, 2.0], [1.0, 1.0, 1.0]], [[1.0, 1.2, 1.4], [1.0, 1.0, 1.0]]];
    /// Figure 3, 68 kB, in per cent.
    pub(super) const SENDER: [f64; 3] = [35.0, 50.0, 70.0];
    pub(super) const RECEIVER: f64 = 90.0;
}

/// All of it.
#[derive(Serialize, Debug)]
pub(super) struct Paper {
    /// Table 1.
    pub(super) latency: Vec<Line>,
    /// Figure 2.
    pub(super) throughput: Vec<Line>,
    /// Figures 3 and 4.
    pub(super) loads: Vec<Load>,
    /// A remark about them.
    pub(super) remark: Option<String>,
}

/// A value of ours, and theirs.
#[derive(Serialize, Debug)]
pub(super) struct Line {
    pub(super) size: usize,
    pub(super) name: String,
    /// Seconds, or bytes per second.
    pub(super) ours: f64,
    /// Ratio to raw TCP.
    pub(super) our_ratio: Option<f64>,
    /// Seconds; `None` where the paper has a curve.
    pub(super) theirs: Option<f64>,
    pub(super) their_ratio: Option<f64>,
}

/// The load of a CPU: the part that a background task of the lowest priority loses.
#[derive(Serialize, Debug)]
pub(super) struct Load {
    pub(super) size: usize,
    pub(super) side: &'static str,
    pub(super) name: &'static str,
    /// From 0 to 1; medians over rounds.
    pub(super) ours: f64,
    /// Ratio to raw TCP, if that has any.
    pub(super) our_ratio: Option<f64>,
    /// From 0 to 1, where the paper says it.
    pub(super) theirs: Option<f64>,
    pub(super) their_ratio: f64,
    /// The pace of all senders, in bytes per second.
    pub(super) pace: u64,
}

/// Measures everything and returns it with the cases that it comes from.
pub(super) fn run(
    client: &mut Client,
    selection: &Selection,
    pace: Pace,
    quiet: bool,
) -> Result<(Paper, Vec<CaseReport>)> {
    let cpus = cpu::allowed()?;
    // The paper's two ends had a machine each, with one CPU.
    let each = if cpus.len() < 2 { &[][..] } else { &[cpus[0], cpus[cpus.len() - 1]] };
    let (ops, crc, places) = (vec![Op::Write], vec![false, true], Places::halves(each));
    let both = Selection { ops, crc, places, ..selection.clone() };
    let latency = measure(
        client,
        &Selection {
            measures: vec![Measure::Latency],
            sizes: Some(vec![SMALL, LARGE]),
            waits: Some(vec![Wait::Poll, Wait::Memory]),
            ..both.clone()
        },
        pace,
        quiet,
    )?;
    let throughput = measure(
        client,
        &Selection {
            measures: vec![Measure::Bandwidth],
            sizes: Some((LEAST..=MOST).map(|power| 4 << (2 * power - 2)).collect()),
            waits: Some(vec![Wait::Poll]),
            depth: Some(DEPTH),
            ..both.clone()
        },
        pace,
        quiet,
    )?;
    let (loads, remark) = match *each {
        [here, there] => loads(client, &both, pace, [here, there])?,
        _ => {
            let why = "two CPUs are needed, and this process may use one";
            (Vec::new(), Some(why.to_owned()))
        }
    };
    let mut paper = Paper { latency: Vec::new(), throughput: Vec::new(), loads, remark };
    for case in &latency {
        paper.latency.extend(lines(case, |size, place| {
            let (_, times) = theirs::LATENCY.iter().find(|(of, _)| *of == size)?;
            Some((Some(times[place] * 1e-6), times[place] / times[0]))
        }));
    }
    for case in &throughput {
        paper.throughput.extend(lines(case, |size, place| {
            (size >= LARGE).then_some((None, theirs::THROUGHPUT[place]))
        }));
    }
    Ok((paper, latency.into_iter().chain(throughput).collect()))
}

fn measure(
    client: &mut Client,
    selection: &Selection,
    pace: Pace,
    quiet: bool,
) -> Result<Vec<CaseReport>> {
    let plan = Plan::new(selection);
    for spec in &plan.specs {
        client.make(spec)?;
    }
    let cases = super::measure(client, plan, pace, quiet)?;
    client.clear()?;
    Ok(cases)
}

/// A line for each subject of a case.
fn lines(
    case: &CaseReport,
    theirs: impl Fn(usize, usize) -> Option<(Option<f64>, f64)>,
) -> Vec<Line> {
    let line = |subject: &super::report::SubjectReport| {
        let theirs = theirs(case.size, place(subject.transport));
        Line {
            size: case.size,
            name: subject.name.clone(),
            ours: subject.summary.median,
            our_ratio: subject.versus.as_ref().map(|versus| versus.ratio.medians),
            theirs: theirs.and_then(|(value, _)| value),
            their_ratio: theirs.map(|(_, ratio)| ratio),
        }
    };
    case.subjects.iter().map(line).collect()
}

/// The place of a transport in the paper's rows.
const fn place(transport: Transport) -> usize {
    match transport {
        Transport::Tcp | Transport::Yardstick(_) => 0,
        Transport::Iwarp { crc: false, .. } => 1,
        Transport::Iwarp { crc: true, .. } => 2,
    }
}

/// Sender and receiver each have a CPU, which they share with a background task. All keep to one
/// pace, as the paper's did to that of its network, and sleep when there is nothing to do.
fn loads(
    client: &mut Client,
    selection: &Selection,
    pace: Pace,
    cpus: [usize; 2],
) -> Result<(Vec<Load>, Option<String>)> {
    const NAMES: [&str; 3] = ["TCP", "Write", "Write, CRC"];
    let mut transports = vec![Transport::Tcp];
    let rdma = |crc| Transport::Iwarp { crc, markers: false, local: None };
    transports.extend([false, true].map(rdma));
    for transport in transports {
        client.make(&Spec {
            transport,
            kind: Kind::Move,
            connections: 1,
            max_size: LOAD_SIZES[0],
            max_depth: DEPTH,
            congestion: selection.congestion.clone(),
            places: Places { threads: true, ..selection.places.clone() },
        })?;
    }
    let (mut loads, mut undisturbed) = (Vec::new(), Vec::new());
    for (figure, size) in LOAD_SIZES.into_iter().enumerate() {
        let mut round = Rounds { client, size, seed: 0 };
        let rate = round.slowest(pace.time)?;
        let rate = ((rate * PART) as u64).max(1);
        let count = ((rate as f64 * pace.time.as_secs_f64() / size as f64) as u64).max(1);
        round.client.background(Some(cpus))?;
        let mut measured = vec![[Vec::new(), Vec::new()]; NAMES.len()];
        for _ in 0..pace.rounds {
            let (alone, busy) = round.turns(0, Flow::Rest, count, rate)?;
            undisturbed.push(busy);
            for (contender, measured) in measured.iter_mut().enumerate() {
                let (turns, _) = round.turns(contender, Flow::Stream, count, rate)?;
                for side in 0..2 {
                    measured[side].push((1.0 - turns[side] / alone[side]).max(0.0));
                }
            }
        }
        round.client.background(None)?;
        for (at, side) in ["sender", "receiver"].into_iter().enumerate() {
            let tcp = median(&measured[0][at]);
            for (place, name) in NAMES.into_iter().enumerate() {
                let ours = median(&measured[place][at]);
                let percent = if at == 0 { theirs::SENDER[place] } else { theirs::RECEIVER };
                loads.push(Load {
                    size,
                    side,
                    name,
                    ours,
                    our_ratio: (tcp > 0.0).then(|| ours / tcp),
                    theirs: (figure == 0).then_some(percent / 100.0),
                    their_ratio: theirs::LOAD[figure][at][place],
                    pace: rate,
                });
            }
        }
    }
    client.clear()?;
    let undisturbed = median(&undisturbed);
    let remark = (undisturbed < UNDISTURBED).then(|| {
        format!(
            "unreliable: other programs left only {:.0} % of a CPU when nothing was sent",
            undisturbed * 100.0
        )
    });
    Ok((loads, remark))
}

struct Rounds<'a> {
    client: &'a mut Client,
    size: usize,
    seed: u64,
}

impl Rounds<'_> {
    fn task(&mut self, flow: Flow, count: u64, pace: u64) -> Task {
        self.seed += 1;
        Task {
            flow,
            op: Op::Write,
            wait: Wait::Events,
            server_wait: Wait::Events,
            size: self.size,
            count,
            depth: DEPTH,
            list: 1,
            connections: 1,
            seed: self.seed,
            computes: None,
            pace,
        }
    }

    /// Bytes per second of the slowest, each as fast as it can.
    fn slowest(&mut self, time: Duration) -> Result<f64> {
        let mut slowest = f64::INFINITY;
        for contender in 0..3 {
            let mut count = 64;
            let rate = loop {
                let task = self.task(Flow::Stream, count, 0);
                let taken = self.client.round(contender, &task, &mut Times::new(1))?.time;
                if taken >= time / 2 || count >= 1 << 20 {
                    break (count * self.size as u64) as f64 / taken.as_secs_f64();
                }
                count *= 4;
            };
            slowest = slowest.min(rate);
        }
        Ok(slowest)
    }

    /// Turns per second of the background tasks during a round, here and there, and the part of a
    /// CPU that the worse off of the two processes had.
    fn turns(
        &mut self,
        contender: usize,
        flow: Flow,
        count: u64,
        pace: u64,
    ) -> Result<([f64; 2], f64)> {
        let task = self.task(flow, count, pace);
        let sample = self.client.round(contender, &task, &mut Times::new(1))?;
        let both = [sample.client, sample.server];
        let busy = both.map(|usage| usage.seconds() / usage.wall);
        Ok((both.map(|usage| usage.turns as f64 / usage.wall), busy[0].min(busy[1])))
    }
}

impl Paper {
    pub(super) fn sheets(&self) -> Vec<Sheet> {
        let ratio = |ratio: Option<f64>| ratio.map(|r| format!("{r:.2}")).unwrap_or_default();
        let row = |measure: Measure| {
            move |line: &Line| {
                vec![
                    line.name.clone(),
                    iwarp_kit::size::show(line.size),
                    table::value(measure, line.ours),
                    ratio(line.our_ratio),
                    line.theirs.map(|value| table::value(measure, value)).unwrap_or_default(),
                    ratio(line.their_ratio),
                ]
            }
        };
        let header = ["", "size", "here", "x TCP", "paper", "paper x TCP"].map(str::to_owned);
        let mut sheets = vec![
            Sheet {
                headline: "Table 1 of the paper: half round trip, RDMA Writes".to_owned(),
                header: header.to_vec(),
                rows: self.latency.iter().map(row(Measure::Latency)).collect(),
            },
            Sheet {
                headline: "Figure 2 of the paper: throughput, one direction".to_owned(),
                header: header.to_vec(),
                rows: self.throughput.iter().map(row(Measure::Bandwidth)).collect(),
            },
        ];
        let percent = |part: f64| format!("{:.0} %", part * 100.0);
        let row = |load: &Load| {
            vec![
                format!("{}, {}", load.side, load.name),
                format!("{} bytes", load.size),
                table::value(Measure::Bandwidth, load.pace as f64),
                percent(load.ours),
                ratio(load.our_ratio),
                load.theirs.map(percent).unwrap_or_default(),
                format!("{:.2}", load.their_ratio),
            ]
        };
        let header = ["", "size", "all at", "load here", "x TCP", "paper", "paper x TCP"];
        sheets.push(Sheet {
            headline: format!(
                "Figures 3 and 4 of the paper: load of one CPU for each side{}",
                self.remark.as_ref().map(|remark| format!(" ({remark})")).unwrap_or_default()
            ),
            header: header.map(str::to_owned).to_vec(),
            rows: self.loads.iter().map(row).collect(),
        });
        sheets
    }

    /// Figures 3 and 4; Figure 2 is among those of the cases.
    pub(super) fn pictures(&self) -> Vec<Picture> {
        let mut groups: Vec<(String, Vec<f64>)> = Vec::new();
        for load in &self.loads {
            let name = format!("{}, {} bytes", load.side, load.size);
            match groups.last_mut() {
                Some((last, values)) if *last == name => values.push(load.ours * 100.0),
                _ => groups.push((name, vec![load.ours * 100.0])),
            }
        }
        if self.loads.iter().all(|load| load.ours == 0.0) {
            return Vec::new();
        }
        let title = "Load of the CPU, all at the same pace";
        vec![Picture::bars("paper-load", title, "%", &["TCP", "Write", "Write, CRC"], &groups)]
    }
}
