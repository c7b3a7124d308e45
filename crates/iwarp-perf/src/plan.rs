// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cases, and the subjects that each compares.

use clap::ValueEnum;
use serde::Serialize;

use super::flows::MOST;
use super::task::{Flow, Kind, Op, Places, Spec, Task, Transport, Wait};
use super::ways::Way;

const BANDWIDTH_SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
const LATENCY_SIZES: [usize; 2] = [4, 64 << 10];
pub(super) const ROUND_TRIP_SIZES: [usize; 1] = [8];
const RATE_SIZES: [usize; 1] = [64];
/// Bytes that an Atomic works on (RFC 7306 §5).
pub(super) const ATOMIC: usize = 8;
pub(super) const BANDWIDTH_DEPTH: usize = 16;
const RATE_DEPTH: usize = 128;
const RATE_LIST: usize = 32;

/// The quantity that is measured.
#[derive(ValueEnum, Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Measure {
    /// Bytes per second
    #[value(name = "bw")]
    Bandwidth,
    /// Half a round trip
    #[value(name = "lat")]
    Latency,
    /// A whole round trip, where the other program has no part in it
    #[value(skip)]
    RoundTrip,
    /// Messages per second
    Rate,
    /// Connections per second
    #[value(skip)]
    Connect,
}

/// The wishes of the command line. Defaults depend on what is measured.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    pub(super) ops: Vec<Op>,
    pub(super) measures: Vec<Measure>,
    pub(super) sizes: Option<Vec<usize>>,
    pub(super) depth: Option<usize>,
    pub(super) list: Option<usize>,
    pub(super) connections: usize,
    pub(super) crc: Vec<bool>,
    pub(super) markers: Vec<bool>,
    pub(super) waits: Option<Vec<Wait>>,
    /// All lines of a transport share connections.
    pub(super) shared: bool,
    pub(super) congestion: Option<String>,
    /// The CPUs that both processes run on; some scenarios have places of their own.
    pub(super) places: Places,
}

/// All that is to be done.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) specs: Vec<Spec>,
    pub(super) cases: Vec<Case>,
}

/// Subjects that are measured in turn, and compared.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The comparison, if it is not simply RDMA with raw TCP.
    pub(super) title: Option<String>,
    pub(super) measure: Measure,
    pub(super) size: usize,
    pub(super) depth: usize,
    pub(super) list: usize,
    pub(super) connections: usize,
    pub(super) subjects: Vec<Subject>,
}

/// One line of a case.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) transport: Transport,
    /// The index in [`Plan::specs`] of the one that does it; settled last.
    pub(super) contender: usize,
    /// The task, without its number of messages.
    pub(super) task: Task,
    /// The lines that it is compared with.
    pub(super) baselines: Vec<usize>,
}

impl Subject {
    pub(super) const fn new(
        name: String,
        transport: Transport,
        contender: usize,
        task: Task,
        baselines: Vec<usize>,
    ) -> Self {
        Self { name, transport, contender, task, baselines }
    }
}

impl Plan {
    /// Messages between two programs, by all that is selected.
    pub(super) fn new(selection: &Selection) -> Self {
        let transports = selection.transports();
        let mut cases = Vec::new();
        for &measure in &selection.measures {
            match measure {
                Measure::Bandwidth => bandwidth(selection, &transports, &mut cases),
                Measure::Latency => latency(selection, &transports, &mut cases),
                Measure::Rate => rate(selection, &transports, &mut cases),
                Measure::RoundTrip | Measure::Connect => {}
            }
        }
        let mut plan = Self::default();
        plan.add(selection, cases);
        plan
    }

    /// Adds cases whose contenders are not settled, and makes these.
    pub(super) fn add(&mut self, selection: &Selection, cases: Vec<Case>) {
        let (specs, first) = (self.specs.len(), self.cases.len());
        self.cases.extend(cases);
        self.hand_out(selection, specs, first);
    }

    /// Drops the lines of a contender that cannot do it, and comparisons with them.
    pub(super) fn leave_out(&mut self, contender: usize) {
        for case in &mut self.cases {
            let mut next = 0;
            let places: Vec<Option<usize>> = case
                .subjects
                .iter()
                .map(|subject| {
                    let place = (subject.contender != contender).then_some(next);
                    next += usize::from(place.is_some());
                    place
                })
                .collect();
            case.subjects.retain(|subject| subject.contender != contender);
            for subject in &mut case.subjects {
                let left = subject.baselines.iter().filter_map(|&place| places[place]);
                subject.baselines = left.collect();
            }
        }
    }

    /// Makes contenders, and assigns the subjects to them. Lines have connections of their own: the
    /// use of one leaves its traces in windows, buffers, and in what the library has learned of its
    /// program. A line uses one contender for all its sizes. Those of other cases than `first` and
    /// the ones behind it are the first `specs`.
    fn hand_out(&mut self, selection: &Selection, specs: usize, first: usize) {
        let mut kinds = Vec::new();
        for subject in self.cases[first..].iter_mut().flat_map(|case| &mut case.subjects) {
            let Task { flow, op, wait, .. } = subject.task;
            let kind = (subject.transport, (!selection.shared).then_some((flow, op, wait)));
            let known = kinds.iter().position(|known| *known == kind);
            subject.contender = known.map(|place| specs + place).unwrap_or_else(|| {
                kinds.push(kind);
                self.specs.push(Spec {
                    transport: subject.transport,
                    kind: Kind::Move,
                    connections: selection.connections,
                    max_size: 1,
                    max_depth: 1,
                    congestion: selection.congestion.clone(),
                    places: selection.places.clone(),
                });
                self.specs.len() - 1
            });
            let spec = &mut self.specs[subject.contender];
            spec.max_size = spec.max_size.max(subject.task.size);
            spec.max_depth = spec.max_depth.max(subject.task.depth);
        }
    }

    /// Adds a contender and returns its number.
    pub(super) fn contender(&mut self, spec: Spec) -> usize {
        self.specs.push(spec);
        self.specs.len() - 1
    }
}

pub(super) fn bandwidth(selection: &Selection, transports: &[Transport], cases: &mut Vec<Case>) {
    let depth = selection.depth.unwrap_or(BANDWIDTH_DEPTH);
    let list = selection.list.unwrap_or(1).min(depth);
    let ops = selection.ops(&[Op::Write, Op::Send, Op::Read]);
    for size in selection.sizes(&BANDWIDTH_SIZES) {
        let mut case = Case::new(Measure::Bandwidth, size, depth, list, selection.connections);
        if ops.iter().any(|&op| op != Op::Read) {
            case.tcp("TCP", Flow::Stream, Wait::Events, Wait::Events, 1);
            for &wait in selection.waits(&[Wait::Poll]) {
                for &op in ops.iter().filter(|&&op| op != Op::Read) {
                    if wait != Wait::Memory || op == Op::Write {
                        case.iwarp(transports, Flow::Stream, op, wait, wait, &["TCP"]);
                    }
                }
            }
        }
        if ops.contains(&Op::Read) {
            let name = "TCP, server to client";
            case.tcp(name, Flow::Fetch, Wait::Events, Wait::Events, 1);
            for &wait in selection.waits(&[Wait::Poll]) {
                case.iwarp(transports, Flow::Fetch, Op::Read, wait, Wait::Events, &[name]);
            }
        }
        case.into(cases);
    }
}

fn latency(selection: &Selection, transports: &[Transport], cases: &mut Vec<Case>) {
    ping_pong(selection, transports, cases);
    round_trips(selection, transports, cases);
}

pub(super) fn ping_pong(selection: &Selection, transports: &[Transport], cases: &mut Vec<Case>) {
    for size in selection.sizes(&LATENCY_SIZES) {
        let mut case = Case::new(Measure::Latency, size, 1, 1, 1);
        let (blocking, spinning) = ("TCP, blocking", "TCP, spinning");
        case.tcp(blocking, Flow::PingPong, Wait::Events, Wait::Events, 1);
        case.tcp(spinning, Flow::PingPong, Wait::Poll, Wait::Poll, 1);
        for op in selection.ops(&[Op::Write, Op::Send]) {
            let (usual, possible) = match op {
                Op::Write => ([Wait::Poll, Wait::Memory], &[Wait::Poll, Wait::Memory][..]),
                _ => ([Wait::Poll, Wait::Events], &[Wait::Poll, Wait::Events, Wait::Fd][..]),
            };
            for &wait in selection.waits(&usual).iter().filter(|wait| possible.contains(wait)) {
                let best: &[&str] = if wait.sleeps() { &[blocking] } else { &[spinning, blocking] };
                case.iwarp(transports, Flow::PingPong, op, wait, wait, best);
            }
        }
        case.into(cases);
    }
}

fn round_trips(selection: &Selection, transports: &[Transport], cases: &mut Vec<Case>) {
    let reads = selection.ops(&[Op::Read]);
    for size in selection.sizes(&ROUND_TRIP_SIZES).into_iter().filter(|_| !reads.is_empty()) {
        round_trip(selection, transports, &reads, size, cases);
    }
    let atomics = selection.ops(&[Op::FetchAdd, Op::CompareSwap]);
    if !atomics.is_empty() {
        round_trip(selection, transports, &atomics, ATOMIC, cases);
    }
}

/// The target of Reads and Atomics is blocked elsewhere; so is raw TCP's.
pub(super) fn round_trip(
    selection: &Selection,
    transports: &[Transport],
    ops: &[Op],
    size: usize,
    cases: &mut Vec<Case>,
) {
    let mut case = Case::new(Measure::RoundTrip, size, 1, 1, 1);
    for &wait in selection.waits(&[Wait::Poll]).iter().filter(|&&wait| wait != Wait::Memory) {
        let name = match wait {
            Wait::Poll => "TCP request, client spins",
            _ => "TCP request, blocking",
        };
        let how = if wait.sleeps() { Wait::Events } else { Wait::Poll };
        case.tcp(name, Flow::Request, how, Wait::Events, 1);
        for &op in ops {
            case.iwarp(transports, Flow::Request, op, wait, Wait::Events, &[name]);
        }
    }
    case.into(cases);
}

pub(super) fn rate(selection: &Selection, transports: &[Transport], cases: &mut Vec<Case>) {
    let depth = selection.depth.unwrap_or(RATE_DEPTH);
    let list = selection.list.unwrap_or(RATE_LIST).min(depth);
    let connections = selection.connections;
    let streams = selection.ops(&[Op::Write, Op::Send]);
    for size in selection.sizes(&RATE_SIZES).into_iter().filter(|_| !streams.is_empty()) {
        let mut case = Case::new(Measure::Rate, size, depth, list, connections);
        let (single, lists) = ("TCP, a write each", format!("TCP, {list} a write"));
        case.tcp(single, Flow::Stream, Wait::Events, Wait::Events, 1);
        case.tcp(&lists, Flow::Stream, Wait::Events, Wait::Events, list);
        for &wait in selection.waits(&[Wait::Poll]) {
            for &op in &streams {
                if wait != Wait::Memory || op == Op::Write {
                    case.iwarp(transports, Flow::Stream, op, wait, wait, &[single, &lists]);
                }
            }
        }
        case.into(cases);
    }
    let mut requests = Vec::new();
    let reads = selection.ops(&[Op::Read]);
    if !reads.is_empty() {
        requests.extend(selection.sizes(&RATE_SIZES).into_iter().map(|size| (size, reads.clone())));
    }
    let atomics = selection.ops(&[Op::FetchAdd, Op::CompareSwap]);
    if !atomics.is_empty() {
        requests.push((ATOMIC, atomics));
    }
    for (size, ops) in requests {
        let mut case = Case::new(Measure::Rate, size, depth, list, connections);
        let name = "TCP requests";
        case.tcp(name, Flow::Request, Wait::Events, Wait::Events, 1);
        for &wait in selection.waits(&[Wait::Poll]).iter().filter(|&&wait| wait != Wait::Memory) {
            for &op in &ops {
                case.iwarp(transports, Flow::Request, op, wait, Wait::Events, &[name]);
            }
        }
        case.into(cases);
    }
}

impl Selection {
    /// The kinds of RDMA connections.
    pub(super) fn transports(&self) -> Vec<Transport> {
        let with = |&markers| {
            self.crc.iter().map(move |&crc| Transport::Iwarp { crc, markers, local: None })
        };
        self.markers.iter().flat_map(with).collect()
    }

    /// The operations of `possible` that are asked for.
    pub(super) fn ops(&self, possible: &[Op]) -> Vec<Op> {
        self.ops.iter().copied().filter(|op| possible.contains(op)).collect()
    }

    pub(super) fn sizes(&self, usual: &[usize]) -> Vec<usize> {
        self.sizes.clone().unwrap_or_else(|| usual.to_vec())
    }

    fn waits<'a>(&'a self, usual: &'a [Wait]) -> &'a [Wait] {
        self.waits.as_deref().unwrap_or(usual)
    }
}

impl Case {
    pub(super) fn new(
        measure: Measure,
        size: usize,
        depth: usize,
        list: usize,
        connections: usize,
    ) -> Self {
        let list = list.min(MOST);
        Self { title: None, measure, size, depth, list, connections, subjects: Vec::new() }
    }

    /// A case is kept where there is RDMA in it.
    fn into(self, cases: &mut Vec<Case>) {
        if self.subjects.iter().any(|subject| subject.transport.is_rdma()) {
            cases.push(self);
        }
    }

    pub(super) fn task(
        &self,
        flow: Flow,
        op: Op,
        wait: Wait,
        server_wait: Wait,
        list: usize,
    ) -> Task {
        Task {
            flow,
            op,
            wait,
            server_wait,
            size: self.size,
            count: 0,
            depth: self.depth.max(list),
            list,
            connections: self.connections,
            seed: 0,
            computes: None,
            pace: 0,
        }
    }

    /// A kind of raw TCP, once.
    fn tcp(&mut self, name: &str, flow: Flow, wait: Wait, server_wait: Wait, list: usize) {
        if self.subjects.iter().any(|subject| subject.name == name) {
            return;
        }
        let task = self.task(flow, Op::Send, wait, server_wait, list);
        let (name, transport) = (name.to_owned(), Transport::Tcp);
        self.subjects.push(Subject { name, transport, contender: 0, task, baselines: Vec::new() });
    }

    /// Each kind of RDMA connection, once.
    fn iwarp(
        &mut self,
        transports: &[Transport],
        flow: Flow,
        op: Op,
        wait: Wait,
        server_wait: Wait,
        baselines: &[&str],
    ) {
        let place = |name: &&str| self.subjects.iter().position(|other| other.name == *name);
        let baselines: Vec<usize> = baselines.iter().filter_map(place).collect();
        for &transport in transports {
            let task = self.task(flow, op, wait, server_wait, self.list);
            let name = format!("{}{}", name(op, wait), transport.suffix());
            let baselines = baselines.clone();
            self.subjects.push(Subject { name, transport, contender: 0, task, baselines });
        }
    }
}

fn name(op: Op, wait: Wait) -> String {
    let op = match op {
        Op::Write => "Write",
        Op::Send => "Send",
        Op::Read => "Read",
        Op::FetchAdd => "FetchAdd",
        Op::CompareSwap => "CompareSwap",
    };
    let wait = match wait {
        Wait::Poll => "",
        Wait::Memory => ", spins on memory",
        Wait::Events => ", events",
        Wait::Fd => ", poll(2)",
    };
    format!("{op}{wait}")
}

impl Transport {
    /// The ending that tells its lines from others'.
    pub(super) fn suffix(self) -> String {
        let Self::Iwarp { crc, markers, local } = self else { return String::new() };
        let crc = if crc { ", CRC" } else { "" };
        let markers = if markers { ", markers" } else { "" };
        format!("{crc}{markers}{}", local.map_or("", Way::suffix))
    }
}
