// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cases of two processes on one host: RDMA by each way between them, beside raw TCP and beside
//! what the machine does without any connection.

use super::plan::{
    ATOMIC, Case, Measure, Plan, ROUND_TRIP_SIZES, Selection, Subject, bandwidth, ping_pong, rate,
    round_trip,
};
use super::task::{Flow, Op, Transport, Wait, Yardstick};
use super::ways::Way;

const PING_SIZES: [usize; 1] = [4];
const TITLE: &str = "Within one host";

/// Adds the cases of the measures that are asked for, or of latency and bandwidth.
pub(super) fn add(plan: &mut Plan, selection: &Selection) {
    let measures = match &selection.measures[..] {
        [] => &[Measure::Latency, Measure::Bandwidth],
        some => some,
    };
    let transports = transports(selection);
    let mut cases = Vec::new();
    for measure in measures {
        match measure {
            Measure::Latency => {
                let sizes = Some(selection.sizes(&PING_SIZES));
                ping_pong(&Selection { sizes, ..selection.clone() }, &transports, &mut cases);
                round_trips(selection, &transports, &mut cases);
            }
            Measure::Bandwidth => bandwidth(selection, &transports, &mut cases),
            Measure::Rate => rate(selection, &transports, &mut cases),
            Measure::RoundTrip | Measure::Connect => {}
        }
    }
    for case in &mut cases {
        case.title = Some(TITLE.to_owned());
        let yardsticks = yardsticks(case);
        stand_beside(case, yardsticks);
    }
    plan.add(selection, cases);
}

/// Reads, and beside those of 8 bytes Atomics.
fn round_trips(selection: &Selection, transports: &[Transport], cases: &mut Vec<Case>) {
    let reads = selection.ops(&[Op::Read]);
    let atomics = selection.ops(&[Op::FetchAdd, Op::CompareSwap]);
    let mut sizes = match reads[..] {
        [] => Vec::new(),
        _ => selection.sizes(&ROUND_TRIP_SIZES),
    };
    if !atomics.is_empty() && !sizes.contains(&ATOMIC) {
        sizes.push(ATOMIC);
    }
    for size in sizes {
        let atomics = if size == ATOMIC { &atomics[..] } else { &[] };
        round_trip(selection, transports, &[&reads, atomics].concat(), size, cases);
    }
}

/// The kinds of RDMA connections, by each way.
fn transports(selection: &Selection) -> Vec<Transport> {
    let kinds = selection.transports();
    kinds.into_iter().flat_map(|kind| Way::ALL.map(|way| kind.by(way))).collect()
}

/// The ones that measure what a case does. There is none for many messages under way, of which the
/// system would copy each by a call.
fn yardsticks(case: &Case) -> Vec<Subject> {
    let writes = (Yardstick::ProcessVm, "process_vm_writev");
    let (flow, kinds) = match case.measure {
        Measure::Latency => (Flow::PingPong, vec![writes]),
        Measure::RoundTrip => (Flow::Request, vec![(Yardstick::ProcessVm, "process_vm_readv")]),
        Measure::Bandwidth => (Flow::Stream, vec![(Yardstick::Memcpy, "memcpy"), writes]),
        Measure::Rate | Measure::Connect => return Vec::new(),
    };
    let op = if flow == Flow::Request { Op::Read } else { Op::Write };
    let subject = |(kind, name): (Yardstick, &str)| {
        let task = case.task(flow, op, Wait::Poll, Wait::Events, 1);
        Subject::new(name.to_owned(), Transport::Yardstick(kind), 0, task, Vec::new())
    };
    kinds.into_iter().map(subject).collect()
}

/// Puts yardsticks in front of a case's lines, and compares RDMA with them. They are compared with
/// raw TCP and with the ones before them.
fn stand_beside(case: &mut Case, mut yardsticks: Vec<Subject>) {
    let count = yardsticks.len();
    for subject in &mut case.subjects {
        for place in &mut subject.baselines {
            *place += count;
        }
        if subject.transport.is_rdma() {
            subject.baselines.extend(0..count);
        }
    }
    let is_tcp = |subject: &&Subject| subject.transport == Transport::Tcp;
    let tcp = case.subjects.iter().take_while(is_tcp).count();
    for (place, yardstick) in yardsticks.iter_mut().enumerate() {
        yardstick.baselines = (count..count + tcp).chain(0..place).collect();
    }
    case.subjects.splice(0..0, yardsticks);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Places;

    fn plan(ops: &[Op], measures: &[Measure]) -> Plan {
        let mut plan = Plan::default();
        let selection = Selection {
            ops: ops.to_vec(),
            measures: measures.to_vec(),
            sizes: None,
            depth: None,
            list: None,
            connections: 1,
            crc: vec![false],
            markers: vec![false],
            waits: None,
            shared: false,
            congestion: None,
            places: Places::default(),
        };
        add(&mut plan, &selection);
        plan
    }

    fn names(case: &Case) -> Vec<&str> {
        case.subjects.iter().map(|subject| subject.name.as_str()).collect()
    }

    /// The names of the lines with which this one is compared.
    fn baselines<'a>(case: &'a Case, name: &str) -> Vec<&'a str> {
        let subject = case.subjects.iter().find(|subject| subject.name == name).expect(name);
        subject.baselines.iter().map(|&place| case.subjects[place].name.as_str()).collect()
    }

    #[test]
    fn each_way_stands_beside_raw_tcp_and_the_machine() {
        let plan = plan(&[Op::Write, Op::Send, Op::Read, Op::FetchAdd], &[]);
        let measures: Vec<_> = plan.cases.iter().map(|case| (case.measure, case.size)).collect();
        let bandwidth = [4 << 10, 64 << 10, 1 << 20].map(|size| (Measure::Bandwidth, size));
        let trips = [(Measure::Latency, 4), (Measure::RoundTrip, 8)];
        assert_eq!(measures, [&trips[..], &bandwidth].concat());
        for case in &plan.cases {
            for way in ["over TCP", "by rings", "auto"] {
                assert!(names(case).iter().any(|name| name.ends_with(way)), "{:?}", names(case));
            }
        }
        let last = plan.cases.last().expect("there are cases");
        let yardsticks = ["memcpy", "process_vm_writev"];
        assert_eq!(names(last)[..3], [yardsticks[0], yardsticks[1], "TCP"]);
        assert_eq!(baselines(last, "Write, by rings"), [&["TCP"][..], &yardsticks].concat());
        assert_eq!(baselines(last, "memcpy"), ["TCP"]);
        assert_eq!(baselines(last, "process_vm_writev"), ["TCP", "memcpy"]);
        let read = baselines(last, "Read, auto");
        assert_eq!(read, [&["TCP, server to client"][..], &yardsticks].concat());
        for name in ["Read, auto", "FetchAdd, over TCP"] {
            let request = "TCP request, client spins";
            assert_eq!(baselines(&plan.cases[1], name), [request, "process_vm_readv"]);
        }
    }

    #[test]
    fn lines_of_different_ways_have_contenders_of_their_own() {
        let plan = plan(&[Op::Write], &[Measure::Bandwidth]);
        for case in &plan.cases {
            let mut contenders: Vec<_> = case.subjects.iter().map(|s| s.contender).collect();
            contenders.sort_unstable();
            assert_eq!(contenders, (0..6).collect::<Vec<_>>());
            for subject in &case.subjects {
                let spec = &plan.specs[subject.contender];
                assert_eq!((spec.transport, spec.max_size), (subject.transport, 1 << 20));
            }
        }
    }

    #[test]
    fn a_yardstick_that_the_system_refuses_is_left_out() {
        let mut plan = plan(&[Op::Write], &[Measure::Bandwidth]);
        let contender = plan.cases[0].subjects[1].contender;
        plan.leave_out(contender);
        for case in &plan.cases {
            assert_eq!(names(case)[..2], ["memcpy", "TCP"]);
            assert_eq!(baselines(case, "Write, auto"), ["TCP", "memcpy"]);
            assert_eq!(baselines(case, "memcpy"), ["TCP"]);
        }
    }
}
