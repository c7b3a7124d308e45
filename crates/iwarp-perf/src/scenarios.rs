// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cases beyond messages between two programs: connecting, many clients, a target that computes,
//! a crowd of idle connections, tasks, byte streams. Cases of one host have their own module.

use anyhow::Result;
use clap::ValueEnum;

use super::cpu;
use super::local;
use super::plan::{BANDWIDTH_DEPTH, Case, Measure, Plan, Selection, Subject};
use super::task::{Flow, Kind, Op, Places, Spec, Task, Transport, Wait};

const CLIENTS: [usize; 4] = [1, 2, 4, 8];
const CLIENTS_SIZES: [usize; 2] = [64 << 10, 1 << 20];
const COMPUTE_SIZES: [usize; 1] = [64 << 10];
const CROWD_SIZES: [usize; 1] = [64 << 10];
/// Idle connections where the command line does not say how many.
const CROWD: usize = 10_000;
const ASYNC_SIZES: [usize; 1] = [128];
/// Bytes of the writes to a byte stream, one way, and back and forth.
const STREAM_SIZES: [usize; 2] = [64 << 10, 1 << 20];
const PING_SIZES: [usize; 1] = [64];
/// Connections of tasks over TCP.
const TCP_TASKS: usize = 8;
/// Tasks that share a session, at most.
const MOST_TASKS: usize = 64;
/// Threads that share a session.
const THREADS: usize = 4;
/// Busy ones among them.
const BUSY: usize = 4;

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    Connect,
    Clients,
    Compute,
    Idle,
    Async,
    Stream,
    Local,
}

/// Adds the cases of a scenario, and what does them.
pub(super) fn add(plan: &mut Plan, scenario: Scenario, selection: &Selection) -> Result<()> {
    match scenario {
        Scenario::Connect => connect(plan, selection),
        Scenario::Clients => clients(plan, selection),
        Scenario::Compute => compute(plan, selection)?,
        Scenario::Idle => crowd(plan, selection),
        Scenario::Async => tasks(plan, selection),
        Scenario::Stream => byte_streams(plan, selection),
        Scenario::Local => local::add(plan, selection),
    }
    Ok(())
}

/// The place of the contender with this number of idle connections.
pub(super) fn crowded(plan: &Plan) -> Option<usize> {
    plan.specs.iter().position(|spec| matches!(spec.kind, Kind::Crowd(_)))
}

fn connect(plan: &mut Plan, selection: &Selection) {
    let mut case = Case::new(Measure::Connect, 20, 1, 1, 1);
    let task = |wait| case_task(Flow::Dial, Op::Send, wait, 20, 1, 1);
    let ways = [
        (Wait::Poll, "", "TCP connect, 20 bytes each way, close"),
        (Wait::Events, ", end awaited", "TCP connect, 20 bytes each way, close, end awaited"),
    ];
    let mut transports = vec![Transport::Tcp];
    transports.extend(selection.transports());
    for transport in transports {
        let spec = spec(selection, transport, Kind::Dial, 1, 20);
        let contender = plan.contender(spec);
        for (place, (wait, suffix, tcp)) in ways.into_iter().enumerate() {
            let (name, baselines) = match transport {
                Transport::Tcp => (tcp.to_owned(), Vec::new()),
                Transport::Iwarp { .. } | Transport::Yardstick(_) => {
                    (format!("connect, disconnect{suffix}{}", transport.suffix()), vec![place])
                }
            };
            case.subjects.push(Subject { name, transport, contender, task: task(wait), baselines });
        }
    }
    plan.cases.push(case);
}

fn clients(plan: &mut Plan, selection: &Selection) {
    let sizes = selection.sizes(&CLIENTS_SIZES);
    let depth = selection.depth.unwrap_or(BANDWIDTH_DEPTH);
    let most = sizes.iter().copied().max().unwrap_or(1);
    let mut fleets = Vec::new();
    let mut transports = vec![Transport::Tcp];
    transports.extend(selection.transports());
    for transport in transports {
        for n in CLIENTS {
            let fleet = spec(&selection.anywhere(), transport, Kind::Fleet, n, most);
            fleets.push((transport, n, plan.contender(fleet)));
        }
    }
    for op in selection.ops(&[Op::Write, Op::Read]) {
        for &size in &sizes {
            let mut case = Case::new(Measure::Bandwidth, size, depth, 1, 1);
            case.title = Some(format!("All clients of one target together, {}", word(op)));
            let (flow, server_wait) = match op {
                Op::Read => (Flow::Fetch, Wait::Events),
                _ => (Flow::Stream, Wait::Poll),
            };
            let mut alone = 0;
            for (place, &(transport, n, contender)) in fleets.iter().enumerate() {
                if n == 1 {
                    alone = place;
                }
                let is_tcp = transport == Transport::Tcp;
                let (wait, server_wait) =
                    if is_tcp { (Wait::Events, Wait::Events) } else { (Wait::Poll, server_wait) };
                let task = Task {
                    server_wait,
                    connections: n,
                    ..case_task(flow, op, wait, size, depth, 1)
                };
                let clients = if n == 1 { "1 client" } else { &format!("{n} clients") };
                let name = match is_tcp {
                    true => format!("TCP, {clients}"),
                    false => format!("{clients}{}", transport.suffix()),
                };
                let mut baselines = Vec::new();
                if !is_tcp {
                    // As many over raw TCP: these come first, in this order, too.
                    baselines.push(place % CLIENTS.len());
                }
                if n > 1 {
                    baselines.push(alone);
                }
                case.subjects.push(Subject { name, transport, contender, task, baselines });
            }
            plan.cases.push(case);
        }
    }
}

/// The target is the server; it computes on the last CPU that it may run on.
fn compute(plan: &mut Plan, selection: &Selection) -> Result<()> {
    let cpus = cpu::allowed()?;
    let (first, last) = (cpus[0], *cpus.last().unwrap_or(&cpus[0]));
    let on_first = Places { client: vec![first], server: vec![first], threads: true };
    let sizes = selection.sizes(&COMPUTE_SIZES);
    let depth = selection.depth.unwrap_or(BANDWIDTH_DEPTH);
    let most = sizes.iter().copied().max().unwrap_or(1);
    let mut contenders = Vec::new();
    let anywhere = selection.anywhere();
    for transport in selection.transports() {
        let free = spec(&anywhere, transport, Kind::Move, 1, most);
        let left = Spec { places: on_first.clone(), ..free.clone() };
        contenders.push((transport, plan.contender(free), String::new()));
        if first != last {
            let name = format!(", all else on CPU {first}");
            contenders.push((transport, plan.contender(left), name));
        }
    }
    for op in selection.ops(&[Op::Write, Op::Read]) {
        for &size in &sizes {
            let mut case = Case::new(Measure::Bandwidth, size, depth, 1, 1);
            let flow = if op == Op::Read { Flow::Fetch } else { Flow::Push };
            case.title = Some(format!("A target that computes, {}", word(op)));
            for (transport, contender, place) in &contenders {
                let suffix = format!("{place}{}", transport.suffix());
                let idle = case.subjects.len();
                let task = case_task(flow, op, Wait::Poll, size, depth, 1);
                for computes in [None, Some(last)] {
                    let (name, baselines) = match computes {
                        None => (format!("idle target{suffix}"), Vec::new()),
                        Some(cpu) => (format!("computing on CPU {cpu}{suffix}"), vec![idle]),
                    };
                    let (task, transport) = (Task { computes, ..task.clone() }, *transport);
                    let contender = *contender;
                    case.subjects.push(Subject { name, transport, contender, task, baselines });
                }
            }
            plan.cases.push(case);
        }
    }
    Ok(())
}

fn crowd(plan: &mut Plan, selection: &Selection) {
    let sizes = selection.sizes(&CROWD_SIZES);
    let depth = selection.depth.unwrap_or(BANDWIDTH_DEPTH);
    let most = sizes.iter().copied().max().unwrap_or(1);
    let idle = if selection.connections > 1 { selection.connections } else { CROWD };
    // One kind of connection: the crowd is what is looked at.
    let Some(transport) = selection.transports().into_iter().last() else { return };
    let alone = plan.contender(spec(selection, transport, Kind::Move, BUSY, most));
    let among = plan.contender(spec(selection, transport, Kind::Crowd(idle), BUSY, most));
    for op in selection.ops(&[Op::Write, Op::Read]) {
        for &size in &sizes {
            let mut case = Case::new(Measure::Bandwidth, size, depth, 1, BUSY);
            case.title = Some(format!("Busy connections in a crowd, {}", word(op)));
            let (flow, server_wait) = match op {
                Op::Read => (Flow::Fetch, Wait::Events),
                _ => (Flow::Stream, Wait::Poll),
            };
            let task = Task {
                server_wait,
                connections: BUSY,
                ..case_task(flow, op, Wait::Poll, size, depth, 1)
            };
            let suffix = transport.suffix();
            let lines = [
                (format!("{BUSY} alone{suffix}"), alone, vec![]),
                (format!("{BUSY} among {idle} idle ones{suffix}"), among, vec![0]),
            ];
            for (name, contender, baselines) in lines {
                let task = task.clone();
                case.subjects.push(Subject { name, transport, contender, task, baselines });
            }
            plan.cases.push(case);
        }
    }
}

/// Tasks of a tokio runtime: those of RDMA share one session, those of TCP have connections of
/// their own. And threads that block on one session.
fn tasks(plan: &mut Plan, selection: &Selection) {
    let anywhere = selection.anywhere();
    for &size in &selection.sizes(&ASYNC_SIZES) {
        let mut of = |transport, kind, connections| {
            plan.contender(spec(&anywhere, transport, kind, connections, size))
        };
        let few = of(Transport::Tcp, Kind::Tasks, TCP_TASKS);
        let shared: Vec<_> = selection
            .transports()
            .into_iter()
            .map(|transport| {
                let tasks = of(transport, Kind::Tasks, MOST_TASKS);
                (transport, tasks, of(transport, Kind::Threads, THREADS))
            })
            .collect();
        let mut asked = Case::new(Measure::Rate, size, 1, 1, 1);
        asked.title =
            Some("Asked for one by one by async tasks: Reads, or answers over TCP".into());
        let mut echoed = Case::new(Measure::Latency, size, 1, 1, 1);
        echoed.title = Some("Ping-pong of two async tasks".into());
        let task =
            |flow, op, n| Task { connections: n, ..case_task(flow, op, Wait::Events, size, 1, 1) };
        let ask = |n| task(Flow::Request, Op::Read, n);
        let echo = task(Flow::PingPong, Op::Send, 1);
        let (transport, contender) = (Transport::Tcp, few);
        for (name, n) in [("tokio TCP, 1 connection", 1), ("tokio TCP, 8 connections", TCP_TASKS)] {
            asked.subjects.push(Subject::new(name.into(), transport, contender, ask(n), vec![]));
        }
        let name = "tokio TCP".into();
        echoed.subjects.push(Subject::new(name, transport, contender, echo.clone(), vec![]));
        for (transport, tasks, threads) in shared {
            let suffix = transport.suffix();
            for (n, baseline) in [(1, 0), (8, 1), (MOST_TASKS, 1)] {
                let name = format!("1 session, {n} {}{suffix}", plural(n, "task"));
                let subject = Subject::new(name, transport, tasks, ask(n), vec![baseline]);
                asked.subjects.push(subject);
            }
            let alone = asked.subjects.len();
            for n in [1, THREADS] {
                let name = format!("1 session, {n} blocking {}{suffix}", plural(n, "thread"));
                let baselines = if n == 1 { vec![0] } else { vec![alone] };
                asked.subjects.push(Subject::new(name, transport, threads, ask(n), baselines));
            }
            let name = format!("Send{suffix}");
            echoed.subjects.push(Subject::new(name, transport, tasks, echo.clone(), vec![0]));
        }
        plan.cases.extend([asked, echoed]);
    }
}

/// Byte streams in place of TCP, with default sizes, by threads that block.
fn byte_streams(plan: &mut Plan, selection: &Selection) {
    let sizes = |usual: &[usize]| selection.sizes(usual);
    let (streamed, echoed) = (sizes(&STREAM_SIZES), sizes(&PING_SIZES));
    let most = streamed.iter().chain(&echoed).copied().max().unwrap_or(1);
    let mut transports = vec![Transport::Tcp];
    transports.extend(selection.transports());
    let mut contenders = |flow| {
        let contender = |&transport: &Transport| {
            (transport, flow, plan.contender(spec(selection, transport, Kind::Bytes, 1, most)))
        };
        transports.iter().map(contender).collect::<Vec<_>>()
    };
    // Each flow has connections of its own: one leaves its traces in windows and buffers.
    let both = [
        (
            contenders(Flow::Stream),
            streamed,
            Measure::Bandwidth,
            "Writes to a byte stream, one way",
        ),
        (contenders(Flow::PingPong), echoed, Measure::Latency, "Ping-pong over a byte stream"),
    ];
    for (contenders, sizes, measure, title) in both {
        for size in sizes {
            let mut case = Case::new(measure, size, 1, 1, 1);
            case.title = Some(title.into());
            for &(transport, flow, contender) in &contenders {
                let (name, baselines) = match transport {
                    Transport::Tcp => ("TCP".to_owned(), vec![]),
                    Transport::Iwarp { .. } | Transport::Yardstick(_) => {
                        (format!("byte stream{}", transport.suffix()), vec![0])
                    }
                };
                let task = case_task(flow, Op::Send, Wait::Events, size, 1, 1);
                case.subjects.push(Subject::new(name, transport, contender, task, baselines));
            }
            plan.cases.push(case);
        }
    }
}

fn plural(n: usize, what: &str) -> String {
    if n == 1 { what.to_owned() } else { format!("{what}s") }
}

impl Selection {
    fn anywhere(&self) -> Self {
        Self { places: Places::default(), ..self.clone() }
    }
}

fn spec(
    selection: &Selection,
    transport: Transport,
    kind: Kind,
    connections: usize,
    max_size: usize,
) -> Spec {
    let max_depth = selection.depth.unwrap_or(BANDWIDTH_DEPTH);
    let (congestion, places) = (selection.congestion.clone(), selection.places.clone());
    Spec { transport, kind, connections, max_size, max_depth, congestion, places }
}

fn case_task(flow: Flow, op: Op, wait: Wait, size: usize, depth: usize, list: usize) -> Task {
    Task {
        flow,
        op,
        wait,
        server_wait: wait,
        size,
        count: 0,
        depth,
        list,
        connections: 1,
        seed: 0,
        computes: None,
        pace: 0,
    }
}

fn word(op: Op) -> &'static str {
    if op == Op::Read { "Read" } else { "Write" }
}
