// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bounds on the locks and atomic read-modify-writes of a message's way, as a caller's thread takes
//! them: on a network in memory and in virtual time, so that no other thread does some of the work.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::cm::{ConnectParams, EventChannel, EventKind, Id};
use crate::engine::sync::counted::Counts;
use crate::port::{ManualClock, MemoryDatagrams, MemoryNetwork, Platform};
use crate::{
    Access, AddressVector, CompletionQueue, DatagramAttributes, Destination, Device, MemoryRegion,
    Options, Payload, ProtectionDomain, QpState, QpType, QueuePair, QueuePairAttributes,
    RecvRequest, SendOp, SendRequest, Turns, WcStatus,
};

/// Messages before the one that is counted, by which all is made that is made once.
const BEFORE: u64 = 8;
const SIZE: usize = 64;
/// Bytes in front of a datagram in its receive.
const GRH: usize = 40;
const QKEY: u32 = 0x1234;

/// Hosts without threads.
struct World {
    clock: ManualClock,
    network: MemoryNetwork,
    datagrams: MemoryDatagrams,
    turns: Vec<Turns>,
}

/// One of two ends.
struct End {
    _pd: ProtectionDomain,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    qp: QueuePair,
    memory: MemoryRegion,
}

/// Locks and read-modify-writes of a call, at most. The network in memory wakes its members by a
/// list, which takes some of them that a descriptor does not: up to three locks of a sender, four
/// of a receiver.
struct Bound {
    /// Locks of an endpoint's core.
    core: u32,
    locks: u32,
    read_modify_writes: u32,
}

impl Bound {
    const fn new(core: u32, locks: u32, read_modify_writes: u32) -> Self {
        Self { core, locks, read_modify_writes }
    }

    fn holds_for(&self, what: &str, counts: &Counts) {
        let holds = counts.locks_of("endpoint::Locked") <= self.core
            && counts.locks() <= self.locks
            && counts.read_modify_writes <= self.read_modify_writes;
        assert!(holds, "{what}: {counts:#?}");
    }
}

fn host(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

impl World {
    fn new() -> Self {
        let (clock, network) = (ManualClock::new(), MemoryNetwork::new());
        Self { clock, network, datagrams: MemoryDatagrams::new(1), turns: Vec::new() }
    }

    fn device(&mut self, options: &Options, at: IpAddr) -> Device {
        let platform = Platform {
            network: self.network.host(at),
            clock: self.clock.clone().into(),
            datagrams: Some(self.datagrams.host(at)),
        };
        let (device, turns) = Device::turned(options.clone(), platform).unwrap();
        self.turns.push(turns);
        device
    }

    /// Workers take turns until there is something.
    fn until<T>(&mut self, mut attempt: impl FnMut() -> Option<T>) -> T {
        for _ in 0..100_000 {
            if let Some(found) = attempt() {
                return found;
            }
            self.clock.advance(Duration::from_micros(1));
            self.turn();
        }
        panic!("waited too long");
    }

    /// Workers that are awake take a turn.
    fn turn(&mut self) {
        for turns in &mut self.turns {
            for worker in 0..turns.workers() {
                if turns.is_awake(worker) {
                    turns.turn(worker);
                }
            }
        }
    }

    /// Two ends that the connection manager has connected.
    fn connect(&mut self, options: &Options) -> [End; 2] {
        let hosts = [1, 2].map(host);
        let devices = hosts.map(|at| self.device(options, at));
        let events = devices.each_ref().map(|device| EventChannel::new(device).unwrap());
        let at = SocketAddr::new(hosts[1], 4791);
        let listening = Id::new(&events[1]).unwrap();
        listening.bind(at).unwrap();
        listening.listen(1).unwrap();
        let ends = devices.each_ref().map(|device| End::new(device, QpType::Rc));
        let id = Id::new(&events[0]).unwrap();
        id.resolve_addr(None, at).unwrap();
        self.until(|| events[0].try_next());
        id.connect(&ends[0].qp, &ConnectParams::default()).unwrap();
        let request = self.until(|| events[1].try_next());
        request.id.accept(&ends[1].qp, &ConnectParams::default()).unwrap();
        for events in &events {
            let event = self.until(|| events.try_next());
            assert!(matches!(event.kind, EventKind::Established { .. }), "{:?}", event.kind);
        }
        // Long enough for all that an end does about a peer that it has not heard.
        for _ in 0..10 {
            self.clock.advance(Duration::from_millis(100));
            self.turn();
        }
        // They last as long as the connection is to.
        std::mem::forget((id, request.id, events));
        ends
    }
}

impl End {
    fn new(device: &Device, qp_type: QpType) -> Self {
        let pd = device.alloc_pd();
        let [send_cq, recv_cq] = [(); 2].map(|()| device.create_cq(64, None).unwrap());
        let attributes = QueuePairAttributes::new(&send_cq, &recv_cq).qp_type(qp_type);
        let qp = pd.create_qp(&attributes).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = pd.allocate(GRH + SIZE, access).unwrap();
        Self { _pd: pd, send_cq, recv_cq, qp, memory }
    }

    fn post(&self, op: SendOp, to: Option<&Destination>) {
        let sges = [self.memory.sge(0, SIZE)];
        let request = SendRequest::new(1, op, Payload::Sges(&sges)).signaled();
        let request = to.into_iter().fold(request, SendRequest::to);
        self.qp.post_send(&request).unwrap();
    }

    fn post_recv(&self) {
        self.qp.post_recv(&RecvRequest::new(2, &[self.memory.whole()])).unwrap();
    }

    /// A Write of the peer's to the start of its memory.
    fn write_here(&self) -> SendOp {
        SendOp::Write { stag: self.memory.rkey(), to: self.memory.base() }
    }
}

fn completed(cq: &CompletionQueue) -> Option<WcStatus> {
    cq.poll_one().map(|completion| completion.status)
}

/// A message is posted and sent, and the peer polls until it has come: the bounds of both.
fn message(options: &Options, op: fn(&End) -> SendOp, [sent, received]: [Bound; 2]) {
    let mut world = World::new();
    let [from, to] = world.connect(options);
    let op = op(&to);
    let is_send = op == SendOp::SEND;
    let mut last = None;
    for _ in 0..=BEFORE {
        if is_send {
            to.post_recv();
        }
        let sending = Counts::of(|| from.post(op, None));
        let receiving = Counts::of(|| {
            assert_eq!(completed(&to.recv_cq), is_send.then_some(WcStatus::Success));
        });
        assert_eq!(world.until(|| completed(&from.send_cq)), WcStatus::Success);
        last = Some((sending, receiving));
    }
    let (sending, receiving) = last.unwrap();
    sent.holds_for("sending", &sending);
    received.holds_for("receiving", &receiving);
}

#[test]
fn a_write_under_the_default_device() {
    let bounds = [Bound::new(3, 7, 15), Bound::new(4, 14, 32)];
    message(&Options::for_any_program(), End::write_here, bounds);
}

#[test]
fn a_write_under_the_personality_iwarp() {
    let bounds = [Bound::new(3, 8, 17), Bound::new(1, 7, 17)];
    message(&Options::default(), End::write_here, bounds);
}

#[test]
fn a_send_under_the_default_device() {
    let bounds = [Bound::new(3, 7, 15), Bound::new(4, 16, 36)];
    message(&Options::for_any_program(), |_| SendOp::SEND, bounds);
}

#[test]
fn a_send_under_the_personality_iwarp() {
    let bounds = [Bound::new(3, 8, 17), Bound::new(1, 9, 21)];
    message(&Options::default(), |_| SendOp::SEND, bounds);
}

#[test]
fn a_datagram() {
    let mut world = World::new();
    let [from, to] = [1, 2].map(|last| {
        let end = End::new(&world.device(&Options::for_any_program(), host(last)), QpType::Ud);
        end.qp.modify(QpState::Init).unwrap();
        end.qp.set_datagram(&DatagramAttributes::with_qkey(QKEY)).unwrap();
        end.qp.modify(QpState::Rtr).unwrap();
        end.qp.modify(QpState::Rts).unwrap();
        end
    });
    let address = AddressVector::new(host(1), host(2));
    let destination = Destination { address, qp: to.qp.number(), qkey: QKEY };
    let mut last = None;
    for _ in 0..=BEFORE {
        to.post_recv();
        let sending = Counts::of(|| from.post(SendOp::SEND, Some(&destination)));
        let receiving = Counts::of(|| assert_eq!(completed(&to.recv_cq), Some(WcStatus::Success)));
        assert_eq!(completed(&from.send_cq), Some(WcStatus::Success));
        last = Some((sending, receiving));
    }
    let (sending, receiving) = last.unwrap();
    Bound::new(2, 10, 23).holds_for("sending", &sending);
    Bound::new(1, 10, 22).holds_for("receiving", &receiving);
}
