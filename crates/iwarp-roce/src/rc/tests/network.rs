// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two queue pairs over a network that loses, repeats, delays and reorders: every operation arrives
//! once, in its order, with its octets.

use std::collections::{BTreeMap, VecDeque};

use iwarp_types::mock::Invalidation;
use iwarp_types::{AtomicOp, Payload, Receive, SendOp, WcOp};
use proptest::prelude::*;

use super::*;

/// Each request has so much memory of its own.
const AREA: u64 = 1 << 15;
const SOURCE: u32 = 0x1000;
const SINK: u32 = 0x2000;
const TARGET: u32 = 0x3000;
const RECEIVES: u32 = 0x4000;
const COUNTER: u32 = 0x5000;
/// Regions, one a request, that are invalidated.
const DOOMED: u32 = 0x10_0000;
const TARGET_BASE: u64 = 1 << 40;

/// A generator of numbers by a seed: xorshift64*.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn once_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }
}

/// The network and the ends.
#[derive(Clone, Debug)]
struct Scene {
    seed: u64,
    mtu: u8,
    requests: usize,
    longest: u64,
    /// One in so many packets is lost, comes twice, is late; 0: none.
    lost: u64,
    twice: u64,
    late: u64,
    depth: u8,
    budget: usize,
    shared: bool,
    wraps: bool,
}

fn scenes() -> impl Strategy<Value = Scene> {
    let network = (any::<u64>(), 0..30u64, 0..30u64, 0..30u64);
    let ends = (1..=5u8, 1..40usize, prop_oneof![Just(600u64), Just(5000), Just(AREA)]);
    let more = (1..=5u8, prop_oneof![Just(1usize), Just(5000), Just(65_536)], any::<[bool; 2]>());
    (network, ends, more).prop_map(|(network, ends, more)| {
        let (seed, lost, twice, late) = network;
        let (mtu, requests, longest) = ends;
        let (depth, budget, [shared, wraps]) = more;
        // Fewer than one in five at most, so that retries suffice.
        let rare = |times: u64| if times == 0 { 0 } else { times + 4 };
        let (lost, twice, late) = (rare(lost), rare(twice), rare(late));
        Scene { seed, mtu, requests, longest, lost, twice, late, depth, budget, shared, wraps }
    })
}

/// One end, and what it is to see.
struct End {
    rc: Rc,
    host: Host,
    path: Path,
    /// Numbers of the requests that were posted, and whether each is signalled.
    posted: VecDeque<(u64, bool, WcOp)>,
    silent: u32,
    next: u64,
    /// Receives that are posted, and that messages of the peer's will take.
    receives: u64,
    due: u64,
    /// The reports that are expected of receives.
    expected: VecDeque<Expected>,
    counter: u64,
    checks: Vec<Check>,
}

/// The report that is expected of a receive.
#[derive(Clone, PartialEq, Debug)]
struct Expected {
    op: WcOp,
    octets: Vec<u8>,
    byte_len: u32,
    immediate: Option<[u8; 4]>,
    invalidated: Option<Stag>,
    solicited: bool,
}

/// The octets that are to be found in the memory of an end.
struct Check {
    stag: u32,
    at: u64,
    octets: Vec<u8>,
}

struct Network {
    scene: Scene,
    dice: Dice,
    now: Time,
    ends: [End; 2],
    /// Packets under way by the time of their arrival.
    air: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    sent: u64,
    /// The number of times that packets of a PSN were lost.
    losses: BTreeMap<(usize, u32, bool), u32>,
}

fn end(scene: &Scene, which: usize) -> End {
    let (qp, psn) = [(OWN_QP, 0xff_fff0), (PEER_QP, 5)][which];
    let (peer_qp, peer_psn) = [(PEER_QP, 5), (OWN_QP, 0xff_fff0)][which];
    let psn_of = |psn| if scene.wraps { Psn::new(psn) } else { Psn::new(psn & 0xff) };
    let addresses = [OWN, PEER];
    let path = Path::new(AddressVector::new(addresses[which], addresses[1 - which]), 0xc000);
    let config = Config {
        qp: QpId(qp),
        pd: PdId(1),
        max_send_wr: 16,
        max_recv_wr: 16,
        shared_receive: scene.shared,
        ..Config::default()
    };
    let attributes = Attributes {
        path,
        dest_qp: peer_qp,
        mtu: Mtu::from_code(scene.mtu).unwrap(),
        sq_psn: psn_of(psn),
        rq_psn: psn_of(peer_psn),
        timeout: 10,
        retry_count: 7,
        rnr_retry: 7,
        min_rnr_timer: crate::wire::RnrTimer::new(1 + scene.mtu),
        max_rd_atomic: scene.depth,
        max_dest_rd_atomic: scene.depth,
        access: Access::REMOTE,
        ..attributes()
    };
    let mut rc = Rc::new(config);
    rc.modify(QpState::Init).unwrap();
    rc.set_attributes(&attributes);
    rc.modify(QpState::Rtr).unwrap();
    rc.modify(QpState::Rts).unwrap();
    let host = Host::default();
    let len = scene.requests * AREA as usize;
    let all = Access::LOCAL_WRITE | Access::REMOTE;
    host.register(PdId(1), SOURCE, 0, len, Access::LOCAL_READ);
    host.register(PdId(1), SINK, 0, len, Access::LOCAL_WRITE);
    host.register(PdId(1), RECEIVES, 0, len, Access::LOCAL_WRITE);
    host.register(PdId(1), TARGET, TARGET_BASE, len, all);
    host.register(PdId(1), COUNTER, 0, 8, all);
    End {
        rc,
        host,
        path,
        posted: VecDeque::new(),
        silent: 0,
        next: 0,
        receives: 0,
        due: 0,
        expected: VecDeque::new(),
        counter: 0,
        checks: Vec::new(),
    }
}

/// Cuts memory into elements of random lengths.
fn elements(dice: &mut Dice, stag: u32, at: u64, length: u64) -> Vec<Sge> {
    let mut list = Vec::new();
    let mut done = 0;
    for left in (0..1 + dice.below(4)).rev() {
        let part = if left == 0 { length - done } else { dice.below(length - done + 1) };
        list.push(Sge { addr: at + done, length: part as u32, lkey: Stag(stag) });
        done += part;
    }
    list
}

impl Network {
    fn new(scene: Scene) -> Self {
        let ends = [end(&scene, 0), end(&scene, 1)];
        let dice = Dice(scene.seed | 1);
        let now = Time(Duration::from_secs(1));
        Self { scene, dice, now, ends, air: BTreeMap::new(), sent: 0, losses: BTreeMap::new() }
    }

    /// Posts the next request of an end.
    fn post(&mut self, which: usize) {
        let dice = &mut self.dice;
        let [a, b] = &mut self.ends;
        let (end, peer) = if which == 0 { (a, b) } else { (b, a) };
        let number = end.next;
        end.next += 1;
        let at = number * AREA;
        let length = match dice.below(4) {
            0 => dice.below(3),
            1 => u64::from(self.scene.mtu) * 256 * dice.below(3) % (self.scene.longest + 1),
            _ => dice.below(self.scene.longest + 1),
        };
        let octets = pattern(length as usize, number as u8 ^ 0x55);
        let (stag, to) = (Stag(TARGET), TaggedOffset(TARGET_BASE + at));
        let data = (number as u32).to_be_bytes();
        let solicited = dice.once_in(2);
        let mut list = elements(dice, SOURCE, at, length);
        let mut inline = dice.once_in(3) && length <= 256;
        let mut takes = None;
        let received = Expected {
            op: WcOp::Recv,
            octets: octets.clone(),
            byte_len: length as u32,
            immediate: None,
            invalidated: None,
            solicited,
        };
        let op = match dice.below(11) {
            0 | 1 => {
                peer.checks.push(Check { stag: TARGET, at, octets: octets.clone() });
                SendOp::Write { stag, to }
            }
            2 => {
                peer.checks.push(Check { stag: TARGET, at, octets: octets.clone() });
                let op = WcOp::RecvWriteImmediate;
                let octets = Vec::new();
                takes = Some(Expected { op, octets, immediate: Some(data), ..received });
                SendOp::WriteImmediate { stag, to, solicited, data }
            }
            3 => {
                takes = Some(Expected { immediate: Some(data), ..received });
                SendOp::SendImmediate { solicited, data }
            }
            4 => {
                let doomed = DOOMED + 2 * number as u32;
                peer.host.register(PdId(1), doomed, 0, 8, Access::REMOTE_READ);
                takes = Some(Expected { invalidated: Some(Stag(doomed)), ..received });
                SendOp::Send { solicited, invalidate: Some(Stag(doomed)) }
            }
            5 | 6 => {
                peer.host.fill(TARGET, at as usize, &octets);
                end.checks.push(Check { stag: SINK, at, octets: octets.clone() });
                list = elements(dice, SINK, at, length);
                inline = false;
                SendOp::Read { stag, to, invalidate: None }
            }
            7 | 8 => {
                list = elements(dice, SINK, at, 8);
                inline = false;
                let octets = peer.counter.to_ne_bytes().to_vec();
                end.checks.push(Check { stag: SINK, at, octets });
                let op = if dice.once_in(2) {
                    AtomicOp::FetchAdd { add: number + 1, mask: 0 }
                } else {
                    let compare = if dice.once_in(2) { peer.counter } else { 1 };
                    let (compare_mask, swap_mask) = (u64::MAX, u64::MAX);
                    AtomicOp::CompareSwap { compare, compare_mask, swap: number, swap_mask }
                };
                peer.counter = op.apply(peer.counter);
                SendOp::Atomic { stag: Stag(COUNTER), to: TaggedOffset(0), op }
            }
            9 => {
                let doomed = DOOMED + 2 * number as u32 + 1;
                end.host.register(PdId(1), doomed, 0, 8, Access::REMOTE_READ);
                end.host.change(doomed, |region| region.invalidation = Invalidation::Local);
                list.clear();
                inline = false;
                SendOp::LocalInvalidate(Stag(doomed))
            }
            _ => {
                takes = Some(received);
                SendOp::Send { solicited, invalidate: None }
            }
        };
        end.host.fill(SOURCE, at as usize, &octets);
        if let Some(expected) = takes {
            peer.due += 1;
            peer.expected.push_back(expected);
        }
        let payload = if inline { Payload::Inline(&octets) } else { Payload::Sges(&list) };
        let mut request = SendRequest::new(number, op, payload);
        request.signaled = dice.once_in(2);
        request.fence = dice.once_in(4);
        end.posted.push_back((number, request.signaled, op.completes_as()));
        end.rc.post_send(&request).unwrap();
    }

    fn post_receive(&mut self, which: usize) {
        let end = &mut self.ends[which];
        let number = end.receives;
        end.receives += 1;
        let sges = elements(&mut self.dice, RECEIVES, number * AREA, AREA);
        if self.scene.shared {
            end.host.pool.borrow_mut().push_back(Receive { wr_id: number, sges });
        } else {
            end.rc.post_recv(&RecvRequest::new(number, &sges)).unwrap();
        }
    }

    /// Posts at random what may be posted.
    fn act(&mut self) {
        for which in 0..2 {
            let end = &self.ends[which];
            if end.next < self.scene.requests as u64
                && end.rc.outstanding().0 < 16
                && self.dice.once_in(2)
            {
                self.post(which);
            }
            let end = &self.ends[which];
            let more = end.receives < end.due && end.rc.outstanding().1 < 16;
            if more && self.dice.once_in(3) {
                self.post_receive(which);
            }
        }
    }

    fn transmit(&mut self, which: usize) {
        let end = &mut self.ends[which];
        let mut burst = Burst::new(Numbering::Counted, self.scene.budget);
        let wanted = end.rc.wanted();
        end.rc.transmit(&mut burst, self.now, &end.host);
        assert!(burst.is_empty() || wanted == Wanted::Much);
        assert!(burst.is_full() || end.rc.wanted() == Wanted::Nothing);
        let under_way = end.rc.requester.sent - end.rc.requester.acknowledged;
        assert!(under_way <= 512 << 10);
        let packets: Vec<Vec<u8>> =
            burst.packets().map(|(_, octets)| octets[..octets.len() - 4].to_vec()).collect();
        for octets in packets {
            self.carry(1 - which, octets);
        }
    }

    fn carry(&mut self, to: usize, octets: Vec<u8>) {
        let packet = Packet::parse(&octets).unwrap();
        let mtu = 128 << self.scene.mtu;
        assert!(packet.payload.len() <= mtu);
        let key = (to, packet.header.bth.psn.number(), packet.header.message.is_response());
        let losses = self.losses.entry(key).or_default();
        if *losses < 2 && self.dice.once_in(self.scene.lost) {
            *losses += 1;
            return;
        }
        for _ in 0..1 + u64::from(self.dice.once_in(self.scene.twice)) {
            let delay = match self.dice.once_in(self.scene.late) {
                true if self.dice.once_in(10) => self.dice.below(30_000),
                true => self.dice.below(300),
                false => 5,
            };
            let at = self.now.plus(Duration::from_micros(delay));
            self.sent += 1;
            self.air.insert((at, self.sent), (to, octets.clone()));
        }
    }

    /// Takes what an end tells.
    fn hear(&mut self, which: usize) {
        let end = &mut self.ends[which];
        while let Some(event) = end.rc.poll_event() {
            match event {
                Event::SilentSends(count) => {
                    end.silent += count;
                }
                Event::SendCompleted(wc) => {
                    for _ in 0..core::mem::take(&mut end.silent) {
                        let (_, signaled, _) = end.posted.pop_front().unwrap();
                        assert!(!signaled);
                    }
                    let (number, signaled, op) = end.posted.pop_front().unwrap();
                    assert_eq!((wc.wr_id, wc.status, wc.op), (number, WcStatus::Success, op));
                    assert!(signaled);
                }
                Event::ReceiveCompleted(wc) => {
                    let expected = end.expected.pop_front().unwrap();
                    assert_eq!((wc.status, wc.op), (WcStatus::Success, expected.op));
                    assert_eq!(wc.byte_len, expected.byte_len);
                    assert_eq!(wc.immediate_word(), expected.immediate);
                    assert_eq!(wc.invalidated, expected.invalidated);
                    assert_eq!(wc.solicited, expected.solicited);
                    let at = (wc.wr_id * AREA) as usize;
                    let memory = end.host.octets_at(RECEIVES, at, expected.octets.len());
                    assert_eq!(memory, expected.octets);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn is_done(&self) -> bool {
        self.ends.iter().all(|end| {
            end.next == self.scene.requests as u64
                && end.rc.outstanding().0 == 0
                && end.expected.is_empty()
        })
    }

    fn run(mut self) -> u64 {
        let mut rounds = 0;
        while !self.is_done() {
            rounds += 1;
            assert!(rounds < 2_000_000, "no end: {:?}", self.ends[0].rc);
            self.act();
            for which in 0..2 {
                self.transmit(which);
                self.hear(which);
            }
            // To the next arrival or deadline, or a little on, where something may be posted.
            let arrival = self.air.first_key_value().map(|((at, _), _)| *at);
            let deadlines = self.ends.iter().filter_map(|end| end.rc.poll_timeout());
            let step = self.now.plus(Duration::from_micros(20));
            let next = deadlines.chain(arrival).chain([step]).min().unwrap();
            self.now = self.now.max(next);
            while let Some(first) = self.air.first_entry() {
                if first.key().0 > self.now {
                    break;
                }
                let (to, octets) = first.remove();
                let from = self.ends[1 - to].path;
                let end = &mut self.ends[to];
                let packet = Packet::parse(&octets).unwrap();
                end.rc.receive(&packet, &from, self.now, &end.host, &end.host);
                self.hear(to);
            }
            for end in &mut self.ends {
                if end.rc.poll_timeout().is_some_and(|at| at <= self.now) {
                    end.rc.handle_timeout(self.now);
                }
            }
        }
        for (which, end) in self.ends.iter().enumerate() {
            for check in &end.checks {
                let found = end.host.octets_at(check.stag, check.at as usize, check.octets.len());
                assert_eq!(found, check.octets, "{which} {:#x} at {:#x}", check.stag, check.at);
            }
            let value = end.host.octets_at(COUNTER, 0, 8);
            assert_eq!(value, end.counter.to_ne_bytes());
            let unended = end.posted.len() as u32;
            let silent = end.posted.iter().filter(|(_, signaled, _)| !signaled).count() as u32;
            assert_eq!(unended, silent, "every signalled request has completed");
            let bank = end.host.bank.borrow();
            assert!(bank.regions.iter().all(|region| region.valid == (region.stag.0 < DOOMED)));
        }
        self.sent
    }
}

trait OctetsAt {
    fn octets_at(&self, stag: u32, at: usize, len: usize) -> Vec<u8>;
}

impl OctetsAt for Host {
    fn octets_at(&self, stag: u32, at: usize, len: usize) -> Vec<u8> {
        let bank = self.bank.borrow();
        let region = bank.regions.iter().find(|region| region.stag.0 == stag).unwrap();
        region.octets[at..at + len].to_vec()
    }
}

pub(super) fn cases() -> u32 {
    std::env::var("RC_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    /// Covers: ROCE-040, ROCE-043, ROCE-044, ROCE-051, ROCE-053, ROCE-055, ROCE-056, ROCE-061,
    /// ROCE-070, ROCE-071, ROCE-077, ROCE-078, ROCE-080, ROCE-084, ROCE-103
    #[test]
    fn everything_arrives_once_and_in_order(scene in scenes()) {
        Network::new(scene).run();
    }
}
