// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rows of the table, and their order.

use std::cmp::Ordering;
use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::NOTHING;

use crate::live::facts::{Facts, Process, QueuePair, silence};
use crate::live::rates::{Rates, earlier, find, short};
use crate::live::times::{self, Times};

/// A line for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    QueuePairs,
    Processes,
}

impl Scope {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::QueuePairs => Self::Processes,
            Self::Processes => Self::QueuePairs,
        }
    }
}

/// The largest first, but for numbers of processes.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Bytes,
    Requests,
    Messages,
    Pid,
}

impl Order {
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Bytes => Self::Requests,
            Self::Requests => Self::Messages,
            Self::Messages => Self::Pid,
            Self::Pid => Self::Bytes,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Requests => "requests",
            Self::Messages => "messages",
            Self::Pid => "pid",
        }
    }

    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let by = match self {
            Self::Bytes => b.rates.octets.total_cmp(&a.rates.octets),
            Self::Requests => b.rates.requests.total_cmp(&a.rates.requests),
            Self::Messages => b.rates.messages.total_cmp(&a.rates.messages),
            Self::Pid => Ordering::Equal,
        };
        by.then(a.pid.cmp(&b.pid)).then(a.number.cmp(&b.number))
    }
}

/// The names of the columns.
pub(super) const COLUMNS: [&str; 13] = [
    "PID", "PROGRAM", "QP", "STATE", "WAY", "REQ/s", "B/s", "MSG/s", "P50", "P99", "SENDS",
    "RECVS", "UNPOLLED",
];

/// A line of the table.
#[derive(Debug)]
struct Row {
    pid: u32,
    number: u64,
    rates: Rates,
    cells: [String; COLUMNS.len()],
}

/// The table, and a line about all of it.
#[derive(Debug)]
pub(super) struct Rows {
    rows: Vec<Row>,
    order: Order,
    /// Processes, queue pairs, and those of them that are connected.
    counts: [usize; 3],
    sum: Rates,
    /// Processes without an answer, each with the reason.
    silent: Vec<String>,
}

impl Rows {
    pub(super) fn new(
        before: &[Process],
        now: &[Process],
        time: Duration,
        scope: Scope,
        order: Order,
    ) -> Self {
        let mut table = Self {
            rows: Vec::new(),
            order,
            counts: [now.len(), 0, 0],
            sum: Rates::default(),
            silent: Vec::new(),
        };
        for process in now {
            match &process.answer {
                Ok(facts) => table.add(earlier(before, process), process, facts, time, scope),
                Err(error) => table.silent.push(format!(
                    "{} (process {}) {}",
                    process.name,
                    process.pid,
                    silence(process, error)
                )),
            }
        }
        table.rows.sort_by(|a, b| order.compare(a, b));
        table
    }

    fn add(
        &mut self,
        before: Option<&Facts>,
        process: &Process,
        facts: &Facts,
        time: Duration,
        scope: Scope,
    ) {
        let rates = Rates::of_process(before, facts, time);
        self.sum = self.sum.and(rates);
        let connected = facts.qp.iter().filter(|qp| qp.connected).count();
        self.counts[1] += facts.qp.len();
        self.counts[2] += connected;
        match scope {
            Scope::Processes => {
                let mut times = Times::default();
                facts.qp.iter().for_each(|qp| times.add(&new_times(find(before, qp), qp)));
                self.rows.push(of_process(process, facts, (rates, times), connected));
            }
            Scope::QueuePairs => self.rows.extend(facts.qp.iter().map(|qp| {
                let before = find(before, qp);
                let moved = (Rates::of(before, qp, time), new_times(before, qp));
                of_queue_pair(process, facts, qp, moved)
            })),
        }
    }

    /// The line about all of it.
    pub(super) fn title(&self) -> String {
        let [processes, qps, connected] = self.counts;
        let Rates { requests, octets, messages } = self.sum;
        format!(
            "{processes} processes, {qps} queue pairs, {connected} connected   {} requests/s, \
             {}B/s, {} messages/s   by {}",
            short(requests),
            short(octets),
            short(messages),
            self.order.name()
        )
    }

    /// The cells of each line.
    pub(super) fn cells(&self) -> impl Iterator<Item = &[String; COLUMNS.len()]> {
        self.rows.iter().map(|row| &row.cells)
    }

    /// Processes without an answer, each with the reason.
    pub(super) fn silent(&self) -> &[String] {
        &self.silent
    }

    /// All of it as text.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(NOTHING).set_header(COLUMNS);
        for cells in self.cells() {
            table.add_row(cells);
        }
        let mut lines = vec![self.title(), table.to_string()];
        lines.extend_from_slice(&self.silent);
        lines.join("\n")
    }
}

/// Times of requests that have ended since the look before.
fn new_times(before: Option<&QueuePair>, now: &QueuePair) -> Times {
    before.map_or_else(Times::default, |before| now.times.since(&before.times))
}

/// Rates, and times of requests.
type Moved = (Rates, Times);

fn of_queue_pair(process: &Process, facts: &Facts, qp: &QueuePair, moved: Moved) -> Row {
    let unpolled =
        |number| facts.cq.iter().find(|cq| cq.number == number).map_or(0, |cq| cq.waiting);
    let mut waiting = unpolled(qp.send_cq);
    if qp.recv_cq != qp.send_cq {
        waiting += unpolled(qp.recv_cq);
    }
    row(
        process,
        qp.number,
        moved,
        [qp.number.to_string(), qp.state.clone(), way(qp).to_owned()],
        [format!("{}/{}", qp.sends, qp.depth), qp.receives.to_string(), waiting.to_string()],
    )
}

fn of_process(process: &Process, facts: &Facts, moved: Moved, connected: usize) -> Row {
    let sum = |of: fn(&QueuePair) -> u64| facts.qp.iter().map(of).sum::<u64>();
    let mut ways: Vec<_> = facts.qp.iter().filter(|qp| qp.connected).map(way).collect();
    ways.sort_unstable();
    ways.dedup();
    let waiting: u64 = facts.cq.iter().map(|cq| cq.waiting).sum();
    row(
        process,
        0,
        moved,
        [facts.qp.len().to_string(), format!("{connected} up"), ways.join("+")],
        [sum(|qp| qp.sends).to_string(), sum(|qp| qp.receives).to_string(), waiting.to_string()],
    )
}

fn row(
    process: &Process,
    number: u64,
    (rates, times): Moved,
    [qp, state, way]: [String; 3],
    [sends, receives, unpolled]: [String; 3],
) -> Row {
    let Rates { requests, octets, messages } = rates;
    let within =
        |thousandths| times.within_which(thousandths).map_or_else(|| "-".to_owned(), times::short);
    let cells = [
        process.pid.to_string(),
        process.name.clone(),
        qp,
        state,
        way,
        short(requests),
        short(octets),
        short(messages),
        within(500),
        within(990),
        sends,
        receives,
        unpolled,
    ];
    Row { pid: process.pid, number, rates, cells }
}

/// The way that its traffic takes.
fn way(qp: &QueuePair) -> &str {
    match (&qp.stream, &qp.packets) {
        (Some(stream), _) => &stream.path,
        (None, Some(_)) => "udp",
        (None, None) => "-",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io;

    use super::*;
    use crate::live::facts::{CompletionQueue, Stream};

    fn qp(number: u64, octets: u64) -> QueuePair {
        QueuePair {
            number,
            state: "Rts".to_owned(),
            send_cq: 1,
            recv_cq: 1,
            sends: 3,
            depth: 16,
            connected: true,
            ended: octets / 10,
            octets,
            stream: Some(Stream { path: "memory".to_owned(), ..Stream::default() }),
            // Each byte takes a microsecond.
            times: Times::from([(octets * 1000, octets)]),
            ..QueuePair::default()
        }
    }

    fn process(pid: u32, answer: io::Result<Facts>) -> Process {
        Process { pid, user: 0, name: "busy".to_owned(), is_stopped: false, answer }
    }

    /// Two processes, of which the second does not answer, and a second later.
    pub(in crate::live::top) fn rows(scope: Scope, order: Order) -> Rows {
        let cq = CompletionQueue { number: 1, waiting: 5, ..CompletionQueue::default() };
        let facts =
            |a, b| Facts { qp: vec![qp(7, a), qp(8, b)], cq: vec![cq.clone()], ..Facts::default() };
        let before = [process(12, Ok(facts(0, 0)))];
        let silent = process(13, Err(io::ErrorKind::TimedOut.into()));
        let now = [process(12, Ok(facts(1_000, 90_000))), silent];
        Rows::new(&before, &now, Duration::from_secs(1), scope, order)
    }

    #[test]
    fn busy_lines_are_at_the_top() {
        let table = rows(Scope::QueuePairs, Order::Bytes);
        let cells: Vec<_> = table.cells().map(|cells| cells.join(" ")).collect();
        assert_eq!(
            cells,
            [
                "12 busy 8 Rts memory 9.0k 90k 0 90ms 90ms 3/16 0 5",
                "12 busy 7 Rts memory 100 1.0k 0 1.0ms 1.0ms 3/16 0 5"
            ]
        );
        let by_number = rows(Scope::QueuePairs, Order::Pid);
        assert_eq!(by_number.cells().next().expect("a line")[2], "7");
    }

    #[test]
    fn lines_of_processes_are_sums() {
        let table = rows(Scope::Processes, Order::Requests);
        let cells: Vec<_> = table.cells().map(|cells| cells.join(" ")).collect();
        assert_eq!(cells, ["12 busy 2 2 up memory 9.1k 91k 0 90ms 90ms 6 0 5"]);
        let text = table.text();
        assert!(text.starts_with("2 processes, 2 queue pairs, 2 connected   9.1k requests/s"));
        assert!(text.contains("busy (process 13) does not answer"), "{text}");
    }
}
