// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two managers with a network between them that loses, repeats, delays and reorders, in virtual
//! time; and programs that do what comes to their minds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use iwarp_roce::cm::{
    Accept, Answer, CommId, Connect, Event, EventKind, MAD_LEN, Manager, Random, RejectReason,
    Resolve, Seeded, UDP_QKEY,
};
use iwarp_roce::wire::{Path, Transport};
use iwarp_types::{QpId, Time};
use proptest::prelude::*;

use crate::cm::scene::*;

#[derive(Clone, Copy, Debug)]
struct Conditions {
    /// In percent.
    loss: u32,
    duplicates: u32,
    /// The longest way, in milliseconds.
    delay: u32,
    /// The longest that a program thinks, in milliseconds.
    thought: u32,
    /// Programs that never answer, in percent.
    asleep: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Deed {
    Connect,
    Resolve,
    Answer(CommId),
    Ready(CommId),
    End(CommId),
}

enum Due {
    Datagram(usize, Path, Box<[u8; MAD_LEN]>),
    Deed(usize, Deed),
}

/// The facts that an end's program knows about one of its connections.
#[derive(Default, Debug)]
struct Known {
    told: BTreeSet<&'static str>,
    /// The peer's queue pair, and the own one.
    qps: Option<(u32, u32)>,
    established: bool,
    /// Set if no event may come any more.
    over: bool,
    /// Set if the program itself ended it, so that no event need come.
    given_up: bool,
}

struct World {
    faults: Conditions,
    random: Seeded,
    now: Time,
    ends: [Manager<Seeded>; 2],
    queue: BTreeMap<(Time, u64), Due>,
    serial: u64,
    known: [BTreeMap<CommId, Known>; 2],
    next_qp: u32,
}

impl World {
    fn new(seed: u64, faults: Conditions) -> Self {
        let mut ends =
            [A, B].map(|end| Manager::new(settings(end), Seeded(seed ^ (end as u64 + 1))));
        for end in &mut ends {
            end.listen(&listen(SERVICE, Transport::Rc)).unwrap();
            end.listen(&listen(DATAGRAMS, Transport::Ud)).unwrap();
        }
        Self {
            faults,
            random: Seeded(seed),
            now: Time::default(),
            ends,
            queue: BTreeMap::new(),
            serial: 0,
            known: Default::default(),
            next_qp: 0x100,
        }
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.random.next() % limit.max(1)
    }

    fn percent(&mut self, chance: u32) -> bool {
        self.below(100) < chance
    }

    fn later(&mut self, longest: u32, due: Due) {
        let after = self.below(longest);
        self.serial += 1;
        let at = self.now.plus(Duration::from_millis(after.into()));
        self.queue.insert((at, self.serial), due);
    }

    fn intend(&mut self, end: usize, deed: Deed) {
        let thought = self.faults.thought;
        self.later(thought, Due::Deed(end, deed));
    }

    fn fresh_qp(&mut self) -> QpId {
        self.next_qp += 1;
        QpId(self.next_qp)
    }

    fn known(&mut self, end: usize, id: CommId) -> &mut Known {
        self.known[end].entry(id).or_default()
    }

    fn perform(&mut self, end: usize, deed: Deed) {
        let (now, choice) = (self.now, self.below(100));
        let qp = self.fresh_qp();
        let path = way(end);
        let manager = &mut self.ends[end];
        match deed {
            Deed::Connect => {
                let id = manager.connect(&Connect { path, qp, ..connect() }, now).unwrap();
                self.known(end, id).qps = Some((0, qp.0));
            }
            Deed::Resolve => {
                let id = manager.resolve(&Resolve { path, ..resolve() }, now).unwrap();
                self.known(end, id);
            }
            // Calls fail where the peer has given up meanwhile.
            Deed::Answer(id) if choice < 70 => {
                let accept = Accept { qp, ..accept() };
                let attributes = manager.attributes(id, &accept);
                if manager.accept(id, &accept, now).is_ok() {
                    let peer = attributes.unwrap().dest_qp;
                    self.known(end, id).qps = Some((peer, qp.0));
                } else {
                    let answer = Answer { qp, qkey: UDP_QKEY, private_data: b"" };
                    if manager.answer_datagrams(id, &answer, now).is_ok() {
                        self.known(end, id).given_up = true;
                    }
                }
            }
            Deed::Answer(id) | Deed::Ready(id) if choice > 90 => {
                if manager.reject(id, RejectReason::Consumer, b"", now).is_ok() {
                    self.known(end, id).given_up = true;
                }
            }
            Deed::Answer(id) => {
                manager.close(id, now);
                self.known(end, id).given_up = true;
            }
            Deed::Ready(id) => {
                if manager.ready(id, b"").is_ok() {
                    self.known(end, id).established = true;
                    let peer = self.known(end, id).qps.unwrap().0;
                    if choice < 20 {
                        self.ends[1 - end].packet_arrived(QpId(peer));
                        self.listen_to(1 - end);
                    }
                }
            }
            Deed::End(id) if choice < 80 => _ = manager.disconnect(id, b"", now),
            Deed::End(id) => {
                manager.close(id, now);
                self.known(end, id).given_up = true;
            }
        }
    }

    fn listen_to(&mut self, end: usize) {
        while let Some(Event { id, kind }) = self.ends[end].poll_event() {
            let asleep = self.faults.asleep;
            let awake = !self.percent(asleep);
            let known = self.known[end].entry(id).or_default();
            assert!(!known.over, "{id:?} was over, then {kind:?}");
            assert!(!known.given_up, "{id:?} was given up, then {kind:?}");
            let mut next = None;
            let name = match kind {
                EventKind::ConnectRequest(_) => {
                    next = Some(Deed::Answer(id));
                    "request"
                }
                EventKind::ConnectResponse(response) => {
                    let own = known.qps.map(|(_, own)| own);
                    known.qps = own.map(|own| (response.attributes.dest_qp, own));
                    next = Some(Deed::Ready(id));
                    "response"
                }
                EventKind::Established { .. } => {
                    known.established = true;
                    "established"
                }
                EventKind::Resolved(_) => {
                    known.over = true;
                    "resolved"
                }
                EventKind::Rejected { timewait, .. } => {
                    known.established = false;
                    known.over = !timewait;
                    "end"
                }
                EventKind::Unreachable(_) => {
                    known.over = true;
                    "end"
                }
                EventKind::Disconnected { .. } => {
                    known.established = false;
                    "end"
                }
                EventKind::TimewaitExit { qp } => {
                    known.over = true;
                    assert!(!self.ends[end].holds(qp));
                    "exit"
                }
            };
            assert!(known.told.insert(name), "{name} was told twice");
            if let Some(deed) = next
                && awake
            {
                self.intend(end, deed);
            }
        }
    }

    fn carry(&mut self, end: usize) {
        while let Some((path, octets)) = self.ends[end].poll_transmit() {
            let Conditions { loss, duplicates, delay, .. } = self.faults;
            if self.percent(loss) {
                continue;
            }
            let copies = 1 + u32::from(self.percent(duplicates));
            for _ in 0..copies {
                self.later(delay, Due::Datagram(1 - end, path, Box::new(octets)));
            }
        }
    }

    /// Lets things happen until nothing is to happen any more.
    fn run(&mut self) {
        for _ in 0..200_000 {
            for end in [A, B] {
                self.carry(end);
                self.listen_to(end);
            }
            let first = self.queue.first_key_value().map(|((at, _), _)| *at);
            let timer = self.ends.iter().filter_map(Manager::next_timeout).min();
            let Some(at) = first.into_iter().chain(timer).min() else { return };
            self.now = self.now.max(at);
            for end in &mut self.ends {
                end.advance(self.now);
                assert!(end.next_timeout().is_none_or(|due| due > self.now));
            }
            if first == Some(at) {
                match self.queue.pop_first().unwrap().1 {
                    Due::Datagram(to, path, octets) => {
                        self.ends[to].receive(&octets[..], &path, self.now);
                    }
                    Due::Deed(end, deed) => self.perform(end, deed),
                }
            }
        }
        panic!("it never ends");
    }

    /// The queue pairs of established connections, as one end knows them: its own, the peer's.
    fn established(&self, end: usize) -> BTreeSet<(u32, u32)> {
        let connections = self.known[end].values().filter(|known| known.established);
        connections.map(|known| known.qps.unwrap()).map(|(peer, own)| (own, peer)).collect()
    }

    /// Connects, until nothing more comes of it.
    fn connect(seed: u64, faults: Conditions, connections: u32) -> Self {
        let mut world = Self::new(seed, faults);
        for number in 0..connections {
            let end = (number % 2) as usize;
            world.intend(end, Deed::Connect);
            world.intend(1 - end, Deed::Resolve);
        }
        world.run();
        world
    }

    /// The queue pairs of connections that `A` believes in, and those that `B` does.
    fn beliefs(&self) -> [BTreeSet<(u32, u32)>; 2] {
        let (a, b) = (self.established(A), self.established(B));
        assert_eq!(self.ends[A].len(), a.len());
        assert_eq!(self.ends[B].len(), b.len());
        [a, b.iter().map(|(own, peer)| (*peer, *own)).collect()]
    }

    /// Ends a connection at an end.
    fn end_at(&mut self, end: usize, mut chosen: impl FnMut(&mut Self) -> bool) {
        let established = self.known[end].iter().filter(|(_, known)| known.established);
        let ids: Vec<_> = established.map(|(id, _)| *id).collect();
        for id in ids {
            if chosen(self) {
                self.intend(end, Deed::End(id));
            }
        }
    }

    fn assert_all_is_over(&self) {
        for end in [A, B] {
            assert!(self.ends[end].is_clean(), "{} are left", self.ends[end].len());
            for (id, known) in &self.known[end] {
                assert!(known.over || known.given_up, "nothing came of {id:?}: {known:?}");
            }
        }
    }
}

fn agree(seed: u64, faults: Conditions, connections: u32) {
    let mut world = World::connect(seed, faults, connections);
    let [a, b] = world.beliefs();
    assert_eq!(a, b, "one end believes in what the other does not");
    // One end is enough, either or both.
    world.end_at(A, |_| true);
    world.end_at(B, |world| world.percent(50));
    world.run();
    world.assert_all_is_over();
}

fn faults() -> impl Strategy<Value = Conditions> {
    (0u32..=20, 0u32..=30, 1u32..4000, 1u32..4000, 0u32..=10).prop_map(
        |(loss, duplicates, delay, thought, asleep)| Conditions {
            loss,
            duplicates,
            delay,
            thought,
            asleep,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Covers: ROCE-153, ROCE-155, ROCE-156, ROCE-157, ROCE-159, ROCE-161
    #[test]
    fn both_ends_agree_in_the_end(seed: u64, faults in faults(), connections in 1u32..6) {
        agree(seed, faults, connections);
    }
}

/// No message gets through, and still everything ends.
#[test]
fn without_a_network_everything_ends() {
    let faults = Conditions { loss: 100, duplicates: 0, delay: 1, thought: 100, asleep: 0 };
    agree(1, faults, 6);
}

/// Three messages cannot make two ends sure of each other where any may be lost. A program that
/// takes longer to say that it is ready than the peer repeats its REP (18 s) may be the only one
/// that believes in its connection: where the REJ of the peer that gave up was lost, and either its
/// own RTU or the REJ that answers that. Any next step ends it: its packets have no answer, and its
/// DREQ has one.
#[test]
fn a_half_open_connection_ends_with_its_only_end() {
    let faults =
        Conditions { loss: 19, duplicates: 26, delay: 14_417, thought: 26_042, asleep: 10 };
    let mut half_open = 0;
    for seed in [7_749_897_307_442_490_425, 4_423_586].into_iter().chain(0..300) {
        let mut world = World::connect(seed, faults, 4);
        let [a, b] = world.beliefs();
        half_open += a.symmetric_difference(&b).count();
        for end in [A, B] {
            world.end_at(end, |_| true);
        }
        world.run();
        world.assert_all_is_over();
    }
    assert!(half_open > 0, "these faults show nothing");
}
