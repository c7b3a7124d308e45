// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs of the type UD in several processes of one host, some of which are killed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use iwarp::{
    Access, CompletionQueue, DatagramAttributes, Destination, Device, MemoryRegion, Options,
    Payload, ProtectionDomain, QpState, QpType, QueuePair, QueuePairAttributes, RecvRequest,
    SendOp, SendRequest, WcStatus,
};
use iwarp_roce::wire::grh;
use rustix::thread::UnshareFlags;

use crate::common::process::{Child, role, say, setting, this_test};
use crate::common::{DEADLINE, Idle, until};
use crate::hosts::{self, Host};

const GRH: usize = 40;
const QKEY: u32 = 0x7654;
/// Bytes of a place for what comes.
const PLACE: usize = 64;
const PLACES: usize = 512;
/// The `wr_id` of sends; those of receives are places.
const SENT: u64 = u64::MAX;
/// Messages to one process that are under way at a time.
const WINDOW: u32 = 8;

/// A queue pair that takes and sends messages of eight bytes: a number, and a process.
struct Station {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    _pd: ProtectionDomain,
}

/// The packet that has come, and its source.
struct Got {
    number: u32,
    process: u32,
    qp: u32,
    grh: [u8; GRH],
}

impl Got {
    /// The way back; there is none where it was sent to a group.
    fn back(&self) -> Destination {
        Destination { address: grh::answer(&self.grh).unwrap(), qp: self.qp, qkey: QKEY }
    }

    /// The sender's address.
    fn source(&self) -> IpAddr {
        let octets = &self.grh;
        if octets[0] >> 4 == 6 {
            IpAddr::from(*octets[8..24].first_chunk::<16>().unwrap())
        } else {
            IpAddr::from(*octets[32..36].first_chunk::<4>().unwrap())
        }
    }
}

impl Station {
    fn on(device: &Device) -> Self {
        let pd = device.alloc_pd();
        let cq = device.create_cq(4 * PLACES, None).unwrap();
        let attributes = QueuePairAttributes::new(&cq, &cq)
            .qp_type(QpType::Ud)
            .max_recv_wr(PLACES)
            .max_send_wr(PLACES);
        let qp = pd.create_qp(&attributes).unwrap();
        let memory = pd.allocate(PLACES * PLACE, Access::LOCAL_WRITE).unwrap();
        qp.modify(QpState::Init).unwrap();
        let station = Self { qp, cq, memory, _pd: pd };
        (0..PLACES).for_each(|place| station.receive(place));
        station.qp.set_datagram(&DatagramAttributes::with_qkey(QKEY)).unwrap();
        station.qp.modify(QpState::Rtr).unwrap();
        station.qp.modify(QpState::Rts).unwrap();
        station
    }

    fn receive(&self, place: usize) {
        let sges = [self.memory.sge(place * PLACE, PLACE)];
        self.qp.post_recv(&RecvRequest::new(place as u64, &sges)).unwrap();
    }

    fn send(&self, to: &Destination, number: u32) {
        self.send_to_all(&[*to], number);
    }

    /// In one list, so that the messages go out together.
    fn send_to_all(&self, all: &[Destination], number: u32) {
        let octets = [number.to_be_bytes(), std::process::id().to_be_bytes()].concat();
        let requests: Vec<_> = all
            .iter()
            .map(|to| SendRequest::new(SENT, SendOp::SEND, Payload::Inline(&octets)).to(to))
            .map(SendRequest::signaled)
            .collect();
        self.qp.post_sends(&requests).unwrap();
    }

    /// The next message, if one has come.
    fn next(&self) -> Option<Got> {
        let done = self.cq.poll_one()?;
        assert_eq!(done.status, WcStatus::Success);
        if done.wr_id == SENT {
            return None;
        }
        let place = done.wr_id as usize;
        let mut octets = [0; GRH + 8];
        self.memory.buffer().unwrap().read_at(place * PLACE, &mut octets);
        self.receive(place);
        assert_eq!(done.byte_len as usize, octets.len());
        let word = |at: usize| u32::from_be_bytes(octets[at..at + 4].try_into().unwrap());
        Some(Got {
            number: word(GRH),
            process: word(GRH + 4),
            qp: done.source_qp.unwrap().get(),
            grh: *octets.first_chunk().unwrap(),
        })
    }
}

fn device() -> Device {
    Device::with_options(Options::default()).unwrap()
}

/// The process that [`Echo::start`] starts: sends everything back.
fn echo() {
    let device = device();
    let station = Station::on(&device);
    say("number", station.qp.number());
    let mut idle = Idle::default();
    loop {
        if let Some(got) = station.next() {
            station.send(&got.back(), got.number);
            idle.over();
        } else {
            idle.pause();
        }
    }
}

struct Echo {
    child: Child,
    qpn: u32,
}

impl Echo {
    fn start(test: &str) -> Self {
        let child = Child::start(test, "echo", &[]);
        let qpn = child.hear("number", DEADLINE).parse().unwrap();
        Self { child, qpn }
    }

    /// Its queue pair and its process.
    fn name(&self) -> (u32, u32) {
        (self.qpn, self.child.id())
    }
}

/// A window of messages to each process; `meanwhile` happens when they are under way, and says
/// which queue pair is dead then. All others send everything back, and nothing else comes.
fn round(
    station: &Station,
    way: (IpAddr, IpAddr),
    first: u32,
    echoes: &[(u32, u32)],
    meanwhile: impl FnOnce() -> Option<u32>,
) {
    let address = iwarp::AddressVector::new(way.0, way.1);
    let all: Vec<_> =
        echoes.iter().map(|(qp, _)| Destination { address, qp: *qp, qkey: QKEY }).collect();
    for number in first..first + WINDOW {
        station.send_to_all(&all, number);
    }
    let dead = meanwhile();
    let numbers: BTreeSet<u32> = (first..first + WINDOW).collect();
    let mut missing: BTreeMap<_, _> = echoes.iter().map(|echo| (*echo, numbers.clone())).collect();
    until("all messages", || {
        while let Some(got) = station.next() {
            let from = (got.qp, got.process);
            assert_eq!(got.source(), way.1);
            let left = missing.get_mut(&from).is_some_and(|left| left.remove(&got.number));
            assert!(left || dead.is_some_and(|dead| dead == from.0), "{from:?} {}", got.number);
        }
        let mut alive = missing.iter().filter(|((qp, _), _)| dead != Some(*qp));
        alive.all(|(_, left)| left.is_empty()).then_some(())
    });
}

/// Ten processes and their peer use the port at once, over IPv4 and IPv6. The first one, which
/// serves the others, is killed in the midst, and then others; newcomers disturb no other.
///
/// Covers: ROCE-175, ROCE-177
#[test]
fn processes_share_the_port_and_lose_one_another() {
    let test = this_test!();
    match role().as_deref() {
        None => return Child::start(test, "apart", &[]).succeeds(2 * DEADLINE),
        Some("echo") => return echo(),
        Some(_) => {}
    }
    // SAFETY: what this thread opens and starts from now on is in a network of its own.
    if unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.is_err() {
        return;
    }
    let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.unwrap().success());
    let mut echoes: Vec<_> = (0..10).map(|_| Echo::start(test)).collect();
    let (first_device, second_device) = (device(), device());
    // Two devices of one process, and one port.
    let stations = [Station::on(&first_device), Station::on(&second_device)];
    let ways = ["127.0.0.1", "::1"].map(|ip| -> IpAddr { ip.parse().unwrap() });
    let mut number = 0;
    let mut turn = |echoes: &[(u32, u32)], meanwhile: &mut dyn FnMut() -> Option<u32>| {
        for station in &stations {
            for ip in ways {
                round(station, (ip, ip), number, echoes, &mut *meanwhile);
                number += WINDOW;
            }
        }
    };
    let names = |echoes: &[Echo]| echoes.iter().map(Echo::name).collect::<Vec<_>>();
    for killed in [0, 4, 0, 8, 2] {
        for _ in 0..5 {
            turn(&names(&echoes), &mut || None);
        }
        let all = names(&echoes);
        let mut victim = echoes.remove(killed);
        let qpn = victim.qpn;
        turn(&all, &mut || {
            victim.child.kill();
            Some(qpn)
        });
        victim.child.wait(DEADLINE);
        echoes.push(Echo::start(test));
        turn(&names(&echoes), &mut || None);
    }
}

/// Several processes of one host, and a peer on another.
///
/// Covers: ROCE-175
#[test]
fn processes_share_the_port_of_a_host() {
    let test = this_test!();
    match role().as_deref() {
        None => {}
        Some("echo") => return echo(),
        Some(_) => return far(),
    }
    if !hosts::possible() {
        return;
    }
    let [a, b] = Host::pair();
    let echoes: Vec<_> = (0..3).map(|_| b.run(|| Echo::start(test))).collect();
    let names: Vec<_> =
        echoes.iter().map(|echo| format!("{} {}", echo.qpn, echo.child.id())).collect();
    let settings = [("IWARP_TEST_ECHOES", names.join(","))];
    let peers: Vec<_> = (0..2).map(|_| a.run(|| Child::start(test, "far", &settings))).collect();
    peers.into_iter().for_each(|peer| peer.succeeds(DEADLINE));
}

fn far() {
    let echoes = setting("IWARP_TEST_ECHOES");
    let echoes: Vec<(u32, u32)> = echoes
        .split(',')
        .map(|echo| {
            let (qpn, process) = echo.split_once(' ').unwrap();
            (qpn.parse().unwrap(), process.parse().unwrap())
        })
        .collect();
    let device = device();
    let station = Station::on(&device);
    for turn in 0..50 {
        let way = if turn % 2 == 0 { ["10.9.0.1", "10.9.0.2"] } else { ["fd09::1", "fd09::2"] };
        let [from, to] = way.map(|ip| -> IpAddr { ip.parse().unwrap() });
        round(&station, (from, to), turn * WINDOW, &echoes, || None);
    }
}

/// A datagram that is sent to a group comes to all queue pairs with its Q_Key that are attached,
/// those of the sender's own process and host among them, and to no others.
///
/// Covers: ROCE-012, ROCE-127
#[test]
fn groups_reach_all_that_are_attached() {
    let test = this_test!();
    match role().as_deref() {
        None => {}
        Some(_) => return member(),
    }
    if !hosts::possible() {
        return;
    }
    let [a, b] = Host::pair();
    for (group, from) in [("239.7.7.7", "10.9.0.1"), ("ff15::77", "fd09::1")] {
        let group_settings = [("IWARP_TEST_GROUP", group.to_owned())];
        let members = [&a, &b, &b].map(|host| {
            let child = host.run(|| Child::start(test, "member", &group_settings));
            child.hear("attached", DEADLINE);
            child
        });
        let mut settings = group_settings.to_vec();
        settings.push(("IWARP_TEST_FROM", from.to_owned()));
        a.run(|| Child::start(test, "sender", &settings)).succeeds(DEADLINE);
        members.into_iter().for_each(|member| member.succeeds(DEADLINE));
    }
}

/// Attaches a queue pair, gets a message by it, and none any more when it is detached; sends, too,
/// if it is told from which address.
fn member() {
    let group: IpAddr = setting("IWARP_TEST_GROUP").parse().unwrap();
    let device = device();
    let (station, other) = (Station::on(&device), Station::on(&device));
    assert!(station.qp.attach_multicast("10.0.0.1".parse().unwrap()).is_err());
    assert!(station.qp.detach_multicast(group).is_err());
    for _ in 0..2 {
        station.qp.attach_multicast(group).unwrap();
    }
    say("attached", station.qp.number());
    let mut last = 0;
    if role().as_deref() == Some("sender") {
        let from: IpAddr = setting("IWARP_TEST_FROM").parse().unwrap();
        let address = iwarp::AddressVector::new(from, group);
        let send = |qkey, number| {
            other.send(&Destination { address, qp: 0x00ff_ffff, qkey }, number);
        };
        send(QKEY + 1, 1);
        send(QKEY, 2);
        // No datagram is sure to be heard; the last one ends it.
        until("the last message", || {
            if other.cq.poll_one().is_some() {
                send(QKEY, 3);
            }
            let got = station.next()?;
            assert!([2, 3].contains(&got.number));
            assert_eq!(got.source(), from);
            last = got.number;
            (last == 3).then_some(())
        });
    } else {
        until("the last message", || {
            let got = station.next()?;
            assert!([2, 3].contains(&got.number), "it has another Q_Key");
            assert!(last <= got.number);
            last = got.number;
            (last == 3).then_some(())
        });
    }
    // The one that was not attached got nothing.
    assert!(other.next().is_none());
    station.qp.detach_multicast(group).unwrap();
    assert!(station.qp.detach_multicast(group).is_err());
}
