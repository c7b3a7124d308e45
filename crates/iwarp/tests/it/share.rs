// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes that share a UDP port, and lose one another.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use iwarp::port::share::{Member, ShareError};
use iwarp_os::process::Debuggee;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::DEADLINE;
use crate::common::process::{
    Child, listen_to_parent, passed_apart, role, say, setting, this_test,
};
use crate::common::sharers::{REP, REQ, Sharer, echo_until_end, mad, packet, place, serve};
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

/// The time within which a process that asks a stopped one for a share has one, or knows why not.
const PROMPT: Duration = Duration::from_millis(700);

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

/// Kills the creator, who is the first broker, and then each next one: packets for others are not
/// lost.
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
        // A newcomer finds the group, and disturbs no member.
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

/// A request that has come for QP 1 and was not read waits for the next broker.
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
        // A request that the broker has answered it read behind that.
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
    assert_eq!(slots.len(), 46);
}

const CROWD: usize = 1001;

/// Of a user without rights, under the usual limit of descriptors.
///
/// Covers: ROCE-175
#[test]
fn a_thousand_processes_have_a_share_each() {
    if role().is_some() {
        return crowd();
    }
    let addr = place();
    let child = Child::start(this_test!(), "crowd", &[("IWARP_TEST_ADDR", addr.to_string())]);
    let said = child.hear("joined", DEADLINE * 4);
    let numbers: BTreeSet<u32> = said.split(' ').map(|number| number.parse().unwrap()).collect();
    assert_eq!(numbers.len(), CROWD);
    let socket = UdpSocket::bind((addr.ip(), 0)).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut processes = BTreeSet::new();
    for number in numbers {
        socket.send_to(&packet(number, 3), addr).unwrap();
        let mut room = [0; 64];
        let len = socket.recv(&mut room).unwrap();
        assert_eq!((len, &room[..12]), (16, &packet(number, 3)[..]));
        processes.insert(room[12..16].to_vec());
    }
    assert_eq!(processes.len(), CROWD);
}

/// Processes that echo, made by forks, as that is cheap.
fn crowd() {
    use std::io::{Read, Write};

    if rustix::process::geteuid().is_root() {
        let nobody = rustix::thread::Uid::from_raw(65534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
    }
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(1024), ..limits }).unwrap();
    let addr = setting("IWARP_TEST_ADDR").parse().unwrap();
    let (mut numbers, mut number) = std::io::pipe().unwrap();
    let (end, kept) = std::io::pipe().unwrap();
    let mut kept = Some(kept);
    let mut all = Vec::new();
    for _ in 0..CROWD {
        // SAFETY: the child goes on with this thread alone, which has no lock.
        match unsafe { libc::fork() } {
            -1 => panic!("{}", std::io::Error::last_os_error()),
            0 => {
                // SAFETY: kills this process if it hangs.
                unsafe { libc::alarm(4 * DEADLINE.as_secs() as u32) };
                drop(kept.take());
                let mut member = Member::join(addr).unwrap();
                let data = UdpSocket::from(member.take_socket().unwrap());
                number.write_all(&member.allocate_qpn().unwrap().to_ne_bytes()).unwrap();
                echo_until_end(&mut member, &data, &end);
                std::process::exit(0);
            }
            _ => {}
        }
        let mut octets = [0; 4];
        numbers.read_exact(&mut octets).unwrap();
        all.push(u32::from_ne_bytes(octets).to_string());
    }
    say("joined", all.join(" "));
    listen_to_parent();
}

/// True if the system lets this process have the descriptors of another one.
fn may_debug(process: u32) -> bool {
    let user = rustix::process::geteuid().as_raw();
    Debuggee::of_user(process, user).and_then(|other| other.descriptor(0)).is_ok()
}

/// A process that finds none but a stopped one takes part without its help, or is told soon which
/// it is, where the system does not allow that. The stopped one goes on as a member and has lost
/// nothing.
///
/// Covers: ROCE-177
#[test]
fn a_stopped_broker_is_gone_around() {
    if role().is_some() {
        return serve();
    }
    goes_around(this_test!(), false);
}

/// Likewise of a process that hangs, which cannot be told from a slow one at once.
///
/// Covers: ROCE-177
#[test]
fn a_broker_that_hangs_is_gone_around() {
    if role().is_some() {
        return serve();
    }
    goes_around(this_test!(), true);
}

fn goes_around(test: &str, hangs: bool) {
    let addr = place();
    let mut stopped = Sharer::start(test, addr);
    assert_eq!(stopped.ask("listen 9"), "Granted");
    if hangs {
        stopped.hang();
    } else {
        stopped.stop();
    }
    let id = stopped.child.id();
    let join = || {
        let began = Instant::now();
        let joined = Member::join(addr);
        let took = began.elapsed();
        if let Err(error) = &joined
            && !may_debug(id)
        {
            assert!(matches!(error, ShareError::Silent { process: Some(it), .. } if *it == id));
            let remedy = error.to_string().contains(&format!("kill -CONT {id}"));
            assert!(hangs || remedy && took < PROMPT, "{took:?}: {error}");
            return None;
        }
        let member = joined.unwrap();
        assert!(took < PROMPT, "{took:?}");
        assert!(member.is_broker());
        Some(member)
    };
    // One after the other: then only the stopped one is left, which is not the one asked last.
    let Some(member) = join() else { return };
    drop(member);
    let Some(mut member) = join() else { return };
    // Packets that come for it wait until it goes on.
    let mut sender = Sender::new(addr);
    sender.add(&stopped);
    let peer = UdpSocket::bind((addr.ip(), 0)).unwrap();
    while_driven(&mut member, || {
        sender.round(|| {
            if hangs {
                stopped.go_on();
            } else {
                stopped.signal(rustix::process::Signal::CONT);
            }
            None
        });
        assert_eq!(stopped.ask("broker"), "false");
        // Said behind what it listened for before.
        assert_eq!(stopped.ask("listen 10"), "Granted");
        peer.send_to(&mad(REQ, 9), addr).unwrap();
        assert_eq!(stopped.mads(1), [(false, REQ, 9)]);
        let newcomer = Sharer::start(test, addr);
        sender.add(&newcomer);
        sender.rounds(3);
    });
    assert!(member.is_broker());
}

/// Gives the member its turns while something else is done.
fn while_driven<R>(member: &mut Member, what: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    let is_over = || over.load(Ordering::Relaxed);
    let deadline = Instant::now() + DEADLINE;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over() && Instant::now() < deadline {
                member.drive(Duration::from_millis(10), |_| is_over()).unwrap();
            }
        });
        let result = what();
        over.store(true, Ordering::Relaxed);
        result
    })
}

/// Members notice that the broker is stopped, or hangs, as soon as there is something that it
/// should do: for new ones, for one that listens, and for packets of the connection manager.
///
/// Covers: ROCE-177
#[test]
fn a_broker_that_does_not_answer_is_succeeded() {
    if role().is_some() {
        return serve();
    }
    for hangs in [false, true] {
        for need in ["a share", "a service", "a packet"] {
            let (addr, test) = (place(), this_test!());
            let mut broker = Sharer::start(test, addr);
            let mut others = [0, 1].map(|_| Sharer::start(test, addr));
            assert_eq!(broker.ask("listen 8"), "Granted");
            assert_eq!(others[0].ask("listen 9"), "Granted");
            if hangs {
                broker.hang()
            } else {
                broker.stop()
            }
            let began = Instant::now();
            let peer = UdpSocket::bind((addr.ip(), 0)).unwrap();
            let mut newcomer = None;
            match need {
                "a share" => newcomer = Some(Sharer::start(test, addr)),
                "a service" => assert_eq!(others[1].ask("listen 10"), "Granted"),
                _ => {
                    peer.send_to(&mad(REQ, 9), addr).unwrap();
                    assert_eq!(others[0].mads(1), [(false, REQ, 9)]);
                }
            }
            let took = began.elapsed();
            assert!(took < Duration::from_secs(1), "{need}: {took:?}");
            // The faster one is the broker: a process that wants a share, or one that has one.
            let mut all = others.iter_mut().chain(&mut newcomer);
            assert!(all.any(|other| other.ask("broker") == "true"), "{need}");
            // Its service is not refused to peers, who ask again.
            peer.send_to(&mad(REQ, 8), addr).unwrap();
            if hangs {
                broker.go_on();
            } else {
                broker.signal(rustix::process::Signal::CONT);
            }
            assert_eq!(broker.ask("broker"), "false");
            let mut sender = Sender::new(addr);
            let all = [&broker].into_iter().chain(&others).chain(&newcomer);
            all.for_each(|sharer| sender.add(sharer));
            sender.rounds(3);
            // Said behind what it listened for before.
            assert_eq!(broker.ask("listen 11"), "Granted");
            peer.send_to(&mad(REQ, 8), addr).unwrap();
            assert_eq!(broker.mads(1), [(false, REQ, 8)]);
        }
    }
}

/// Requests for a service that no process has are refused at once, but not for what a stopped
/// process listens for.
#[test]
fn a_stopped_process_keeps_no_peer_of_others_waiting() {
    if role().is_some() {
        return serve();
    }
    let (addr, test) = (place(), this_test!());
    let mut broker = Sharer::start(test, addr);
    let mut other = Sharer::start(test, addr);
    assert_eq!(broker.ask("listen 8"), "Granted");
    assert_eq!(broker.ask("listen 7"), "Granted");
    broker.ask("unlisten 8");
    broker.stop();
    assert_eq!(other.ask("listen 9"), "Granted");
    assert_eq!(other.ask("broker"), "true");
    let peer = UdpSocket::bind((addr.ip(), 0)).unwrap();
    for service in [7, 8] {
        peer.send_to(&mad(REQ, service), addr).unwrap();
    }
    assert_eq!(other.mads(1), [(true, REQ, 8)]);
}

/// A queue pair that can do without datagrams does without those that a stopped process would have
/// to share, and later ones have them again.
#[test]
fn a_stopped_process_delays_no_queue_pair_that_can_do_without_it() {
    use iwarp::{Device, Personality, QpType, QueuePairAttributes};
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
        // Of the other personality RC is iWARP's.
        let options = crate::common::station::hasty().personality(Personality::Roce);
        let device = Device::with_options(options).unwrap();
        let (pd, cq) = (device.alloc_pd(), device.create_cq(64, None).unwrap());
        let attributes = QueuePairAttributes::new(&cq, &cq);
        let began = Instant::now();
        let queue_pairs: Vec<_> =
            (0..8).map(|_| pd.create_addressable_qp(&attributes).unwrap()).collect();
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        let datagrams = QueuePairAttributes::new(&cq, &cq).qp_type(QpType::Ud);
        match pd.create_qp(&datagrams) {
            Err(error) if !may_debug(other.child.id()) => {
                assert!(error.to_string().contains("kill -CONT"), "{error}");
            }
            made => {
                // No queue pair had to do without.
                let slot = made.unwrap().number() >> 18;
                assert!(queue_pairs.iter().all(|one| one.number() >> 18 == slot));
            }
        }
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
