// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes that share a UDP port, and lose one another.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::common::DEADLINE;
use crate::common::process::{passed_apart, role, this_test};
use crate::common::sharers::{REP, REQ, Sharer, mad, packet, place, serve};
use crate::common::until;

/// Sends packets to processes, some at a time, and gets each of them back.
struct Sender {
    socket: UdpSocket,
    to: SocketAddr,
    /// Queue pairs, and the process that has each.
    alive: BTreeMap<u32, u32>,
    dead: Vec<u32>,
    number: u32,
}

/// Packets to one process that are under way at a time.
const WINDOW: u32 = 16;

impl Sender {
    fn new(to: SocketAddr) -> Self {
        let socket = UdpSocket::bind((to.ip(), 0)).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { socket, to, alive: BTreeMap::new(), dead: Vec::new(), number: 0 }
    }

    fn add(&mut self, sharer: &Sharer) {
        self.alive.insert(sharer.qpn, sharer.child.id());
    }

    /// A window of packets to each; `meanwhile` happens when they are under way, and then the queue
    /// pairs that it names are dead.
    fn round(&mut self, meanwhile: impl FnOnce() -> Option<u32>) {
        let first = self.number;
        self.number += WINDOW;
        for number in first..self.number {
            for qpn in self.alive.keys().chain(&self.dead) {
                self.socket.send_to(&packet(*qpn, number), self.to).unwrap();
            }
        }
        if let Some(dead) = meanwhile() {
            self.alive.remove(&dead);
            self.dead.push(dead);
        }
        let mut missing: BTreeMap<_, _> = self.alive.keys().map(|qpn| (*qpn, first)).collect();
        while missing.values().any(|next| *next < self.number) {
            let mut room = [0; 64];
            let len = self.socket.recv(&mut room).expect("a packet was lost");
            assert_eq!(len, 16);
            let word = |at: usize| u32::from_be_bytes(room[at..at + 4].try_into().unwrap());
            let (qpn, number, process) = (word(4), word(8), word(12));
            let Some(next) = missing.get_mut(&qpn) else {
                assert!(self.dead.contains(&qpn));
                continue;
            };
            assert_eq!((number, process), (*next, self.alive[&qpn]), "lost, or another's");
            *next += 1;
        }
    }

    fn rounds(&mut self, count: usize) {
        (0..count).for_each(|_| self.round(|| None));
    }
}

/// The creator, who is the first broker, and then whoever is: what others are sent is not lost.
///
/// Covers: ROCE-177
#[test]
fn a_member_that_is_killed_takes_no_packet_of_others_with_it() {
    if role().is_some() {
        return serve();
    }
    let (addr, test) = (place(), this_test!());
    let mut sharers: Vec<_> = (0..3).map(|_| Sharer::start(test, addr)).collect();
    let mut sender = Sender::new(addr);
    sharers.iter().for_each(|sharer| sender.add(sharer));
    sender.rounds(20);
    for _ in 0..5 {
        // The broker of the moment dies: first the creator.
        let broker = sharers.iter_mut().position(|sharer| sharer.ask("broker") == "true").unwrap();
        let mut broker = sharers.remove(broker);
        sender.round(|| {
            broker.kill();
            Some(broker.qpn)
        });
        sender.rounds(20);
        // Whoever is new finds the group, and disturbs nobody.
        let newcomer = Sharer::start(test, addr);
        assert!(!sender.alive.keys().chain(&sender.dead).any(|qpn| *qpn == newcomer.qpn));
        sender.add(&newcomer);
        sharers.push(newcomer);
        sender.rounds(20);
        // And so does a member that is not the broker.
        let other = sharers.iter_mut().position(|sharer| sharer.ask("broker") == "false").unwrap();
        let mut other = sharers.remove(other);
        sender.round(|| {
            other.kill();
            Some(other.qpn)
        });
        let newcomer = Sharer::start(test, addr);
        sender.add(&newcomer);
        sharers.push(newcomer);
        sender.rounds(20);
    }
}

/// What has come for QP 1 and was not read waits for the next broker.
///
/// Covers: ROCE-177
#[test]
fn requests_wait_for_the_next_broker() {
    if role().is_some() {
        return serve();
    }
    let (addr, test) = (place(), this_test!());
    let mut broker = Sharer::start(test, addr);
    let mut others = [0, 1].map(|_| Sharer::start(test, addr));
    assert_eq!(broker.ask("broker"), "true");
    for (service, sharer) in (100..).zip(&mut others) {
        assert_eq!(sharer.ask(&format!("listen {service}")), "Granted");
    }
    let peer = UdpSocket::bind((addr.ip(), 0)).unwrap();
    let ids = [others[0].comm_id, others[1].comm_id];
    broker.stop();
    for (service, id) in (100..).zip(ids) {
        for _ in 0..10 {
            peer.send_to(&mad(REQ, service), addr).unwrap();
            peer.send_to(&mad(REP, id.into()), addr).unwrap();
        }
    }
    broker.kill();
    for ((service, id), sharer) in (100..).zip(ids).zip(&mut others) {
        let expected = [(false, REQ, service), (false, REP, id.into())].repeat(10);
        assert_eq!(sharer.mads(20), expected);
    }
}

/// A service is one process's; what is no process's comes to the broker, to be refused.
#[test]
fn messages_go_to_whom_they_concern() {
    if role().is_some() {
        return serve();
    }
    let (addr, test) = (place(), this_test!());
    let mut sharers = [0, 1, 2].map(|_| Sharer::start(test, addr));
    let peer = UdpSocket::bind((addr.ip(), 0)).unwrap();
    for own in 0..3 {
        assert_eq!(sharers[own].ask("listen 7"), "Granted");
        for other in (0..3).filter(|other| *other != own) {
            assert_eq!(sharers[other].ask("listen 7"), "Taken");
            sharers[other].ask("unlisten 7");
        }
        let id = sharers[own].comm_id.into();
        for (attribute, key) in [(REQ, 7), (REP, id)] {
            peer.send_to(&mad(attribute, key), addr).unwrap();
            assert_eq!(sharers[own].mads(1), [(false, attribute, key)]);
        }
        sharers[own].ask("unlisten 7");
        // What the broker has answered it read behind that.
        let next = 20 + own;
        assert_eq!(sharers[own].ask(&format!("listen {next}")), "Granted");
        peer.send_to(&mad(REQ, 7), addr).unwrap();
        assert_eq!(sharers[0].mads(1), [(true, REQ, 7)]);
    }
    let id = sharers[2].comm_id.into();
    sharers[2].kill();
    // Its connection is closed: the next member gets another slot, behind it.
    let mut newcomer = Sharer::start(test, addr);
    assert_eq!(newcomer.ask("broker"), "false");
    peer.send_to(&mad(REP, id), addr).unwrap();
    assert_eq!(sharers[0].mads(1), [(true, REP, id)]);
}

/// A member that is stopped while the broker changes keeps its slot, and what it listens for.
#[test]
fn a_stopped_member_keeps_its_place() {
    if role().is_some() {
        return serve();
    }
    let (addr, test) = (place(), this_test!());
    let mut broker = Sharer::start(test, addr);
    let mut stopped = Sharer::start(test, addr);
    let mut third = Sharer::start(test, addr);
    assert_eq!(stopped.ask("listen 9"), "Granted");
    stopped.stop();
    broker.kill();
    assert_eq!(third.ask("broker"), "true");
    let slot = |sharer: &Sharer| sharer.qpn >> 18;
    let newcomers: Vec<_> = (0..3).map(|_| Sharer::start(test, addr)).collect();
    assert!(newcomers.iter().all(|newcomer| slot(newcomer) != slot(&stopped)));
    stopped.signal(rustix::process::Signal::CONT);
    assert_eq!(stopped.ask("broker"), "false");
    // Its service is its own again when the broker has heard of it.
    assert_eq!(stopped.ask("listen 9"), "Granted");
    assert_eq!(stopped.ask("listen 10"), "Granted");
    let peer = UdpSocket::bind((addr.ip(), 0)).unwrap();
    peer.send_to(&mad(REQ, 9), addr).unwrap();
    assert_eq!(stopped.mads(1), [(false, REQ, 9)]);
    let mut sender = Sender::new(addr);
    [&stopped, &third].into_iter().chain(&newcomers).for_each(|sharer| sender.add(sharer));
    sender.rounds(5);
}

#[test]
fn joining_and_leaving_leaves_nothing() {
    use crate::common::census::descriptors;
    use iwarp::port::share::Member;

    if role().as_deref() == Some("sharer") {
        return serve();
    }
    if passed_apart(this_test!(), DEADLINE * 3) {
        return;
    }
    let addr = place();
    // Alone: the group begins and ends with it.
    drop(Member::join(addr).unwrap());
    let before = descriptors();
    for _ in 0..100 {
        let member = Member::join(addr).unwrap();
        assert!(member.is_broker() && descriptors() <= before + 8);
    }
    assert_eq!(descriptors(), before);
    // With another, which goes on.
    let mut other = Sharer::start(this_test!(), addr);
    let (before, others) = (descriptors(), other.ask("descriptors"));
    let mut slots = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        let mut member = Member::join(addr).unwrap();
        assert!(!member.is_broker() && descriptors() <= before + 8);
        slots.insert(member.allocate_qpn().unwrap() >> 18);
    }
    assert_eq!(descriptors(), before);
    assert_eq!(other.ask("descriptors"), others);
    // Slots rest as long as they can.
    assert_eq!(slots.len(), 62);
}

/// There are 63 shares; who comes later is told so, and finds one when one is given back.
#[test]
fn the_last_share_is_the_63rd() {
    use iwarp::port::share::{Member, ShareError};

    if role().is_some() {
        return serve();
    }
    let addr = place();
    let _first = Sharer::start(this_test!(), addr);
    let mut members: Vec<_> = (0..62).map(|_| Member::join(addr).unwrap()).collect();
    assert!(matches!(Member::join(addr), Err(ShareError::Full { .. })));
    drop(members.swap_remove(30));
    crate::common::until("the broker to see it", || match Member::join(addr) {
        Err(ShareError::Full { .. }) => None,
        member => Some(member.unwrap()),
    });
}

/// Who asks a stopped process for a share is told which it is, and soon; it has one when that goes on.
#[test]
fn a_stopped_broker_is_not_waited_for() {
    use iwarp::port::share::{Member, ShareError};

    if role().is_some() {
        return serve();
    }
    let addr = place();
    let broker = Sharer::start(this_test!(), addr);
    broker.stop();
    let began = Instant::now();
    let error = Member::join(addr).unwrap_err();
    let (took, id) = (began.elapsed(), broker.child.id());
    assert!(matches!(error, ShareError::Silent { process: Some(it), .. } if it == id), "{error}");
    assert!(error.to_string().contains(&format!("kill -CONT {id}")), "{error}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    broker.signal(rustix::process::Signal::CONT);
    assert!(!Member::join(addr).unwrap().is_broker());
}

/// A queue pair that can do without datagrams does without those that a stopped process would have to
/// share, and later ones have them again.
#[test]
fn a_stopped_process_delays_no_queue_pair_that_can_do_without_it() {
    use iwarp::{Device, QpType, QueuePairAttributes};
    use std::net::Ipv6Addr;

    if role().as_deref() == Some("sharer") {
        return serve();
    }
    let test = this_test!();
    let apart = || {
        // SAFETY: what this thread opens and starts from now on is in a network of its own.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.ok()?;
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        up.ok()?.success().then_some(())?;
        let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, iwarp::port::share::ROCE_PORT));
        let other = Sharer::start(test, all);
        other.stop();
        let device = Device::with_options(crate::common::station::hasty()).unwrap();
        let (pd, cq) = (device.alloc_pd(), device.create_cq(64, None).unwrap());
        let attributes = QueuePairAttributes::new(&cq, &cq);
        let began = Instant::now();
        let queue_pairs: Vec<_> =
            (0..8).map(|_| pd.create_addressable_qp(&attributes).unwrap()).collect();
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        let datagrams = QueuePairAttributes::new(&cq, &cq).qp_type(QpType::Ud);
        let error = pd.create_qp(&datagrams).unwrap_err();
        assert!(error.to_string().contains("kill -CONT"), "{error}");
        other.signal(rustix::process::Signal::CONT);
        drop(queue_pairs);
        until("numbers in a slot again", || {
            let queue_pair = pd.create_addressable_qp(&attributes).unwrap();
            let beside = pd.create_qp(&datagrams).ok()?;
            (queue_pair.number() >> 18 == beside.number() >> 18).then_some(())
        });
        Some(())
    };
    std::thread::scope(|scope| scope.spawn(apart).join().unwrap());
}
