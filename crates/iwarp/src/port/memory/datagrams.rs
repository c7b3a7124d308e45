// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagram ports within a process, and the fate of packets on the way.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use iwarp_types::{Numbering, Path, Trains};

use crate::port::faults::Draws;
use crate::port::{
    BurstCursor, DatagramCounters, DatagramFaults, DatagramNetwork, DatagramPort, DatagramSettings,
    Descriptors, Findings, Intake, Packets, Readiness, Sent, Waker, WakerSlot, lock,
};

/// Hosts whose datagram ports reach each other. A clone is another handle of the network.
///
/// Addresses are names: nothing need be configured for them. Packets are always cut as with
/// [`Numbering::Counted`], as far as that means anything here.
#[derive(Clone, Debug)]
pub struct MemoryDatagrams(Arc<Mutex<Fabric>>);

#[derive(Debug)]
struct Fabric {
    draws: Draws,
    faults: DatagramFaults,
    /// Bytes of the longest packet, with the headers of IP and UDP.
    mtu: usize,
    /// Bytes that a port keeps until they are received; what is more is lost.
    buffer: usize,
    ports: Vec<Weak<Inbox>>,
    /// Storage for those that a call wakes.
    woken: Vec<Arc<Inbox>>,
    next_any: u16,
}

/// Packets of any length that UDP has.
const MTU: usize = 1 << 16;
const BUFFER: usize = 1 << 20;

/// The first port of those that are chosen for others.
const FIRST_ANY: u16 = 49_152;

impl MemoryDatagrams {
    /// One without hosts, whose faults are drawn from `seed`.
    pub fn new(seed: u64) -> Self {
        let faults = DatagramFaults::default();
        let (ports, woken) = Default::default();
        Self(Arc::new(Mutex::new(Fabric {
            draws: Draws(seed),
            faults,
            mtu: MTU,
            buffer: BUFFER,
            ports,
            woken,
            next_any: FIRST_ANY,
        })))
    }

    /// Changes the faults for packets that are sent from now on.
    pub fn set_faults(&self, faults: DatagramFaults) {
        lock(&self.0).faults = faults;
    }

    /// Changes the bytes of the longest packet, with the headers of IP and UDP.
    pub fn set_mtu(&self, octets: usize) {
        lock(&self.0).mtu = octets;
    }

    /// Changes the bytes that a port keeps until they are received; what is more is lost.
    pub fn set_buffer(&self, octets: usize) {
        lock(&self.0).buffer = octets;
    }

    /// The network as the host with that address sees it.
    pub fn host(&self, ip: IpAddr) -> Arc<dyn DatagramNetwork> {
        Arc::new(Host { network: self.clone(), ip })
    }
}

#[derive(Debug)]
struct Host {
    network: MemoryDatagrams,
    ip: IpAddr,
}

impl DatagramNetwork for Host {
    fn open(&self, addr: SocketAddr, _: &DatagramSettings) -> io::Result<Box<dyn DatagramPort>> {
        let all = addr.ip().is_unspecified() && addr.is_ipv4() == self.ip.is_ipv4();
        let ip = if all { self.ip } else { addr.ip() };
        if ip.is_multicast() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if ip != self.ip {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        self.add(SocketAddr::new(ip, addr.port()), false)
    }

    fn open_group(&self, group: SocketAddr, at: IpAddr) -> io::Result<Box<dyn DatagramPort>> {
        if !group.ip().is_multicast() || group.is_ipv4() != at.is_ipv4() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if at != self.ip {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        self.add(group, true)
    }
}

impl Host {
    fn add(&self, mut addr: SocketAddr, shared: bool) -> io::Result<Box<dyn DatagramPort>> {
        let mut fabric = lock(&self.network.0);
        fabric.ports.retain(|port| port.strong_count() > 0);
        let taken = |fabric: &Fabric, addr| {
            fabric.ports.iter().filter_map(Weak::upgrade).any(|inbox| inbox.addr == addr)
        };
        let tries = if addr.port() == 0 { u16::MAX - FIRST_ANY } else { 0 };
        for _ in 0..tries {
            addr.set_port(fabric.next_any);
            fabric.next_any = fabric.next_any.checked_add(1).unwrap_or(FIRST_ANY);
            if !taken(&fabric, addr) {
                break;
            }
        }
        if !shared && taken(&fabric, addr) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let inbox = Arc::new(Inbox {
            addr,
            groups: Mutex::default(),
            state: Mutex::default(),
            taken: Mutex::default(),
            waker: WakerSlot::default(),
        });
        fabric.ports.push(Arc::downgrade(&inbox));
        let network = self.network.clone();
        Ok(Box::new(MemoryPort { network, inbox, counts: Counts::default() }))
    }
}

/// The packets that have come to a port.
#[derive(Debug)]
struct Inbox {
    addr: SocketAddr,
    /// Groups that it has joined.
    groups: Mutex<HashSet<IpAddr>>,
    state: Mutex<Arrived>,
    /// Storage for those that a call takes.
    taken: Mutex<Vec<(Path, Vec<u8>)>>,
    waker: WakerSlot,
}

#[derive(Debug, Default)]
struct Arrived {
    packets: VecDeque<(Path, Vec<u8>)>,
    octets: usize,
    overrun: u64,
    /// Storage of packets that were received.
    spare: Vec<Vec<u8>>,
}

/// Storage that is kept for later packets.
const SPARE: usize = 64;

impl Inbox {
    /// Puts a packet in front of the last `back` of those that wait. True if it is now the only
    /// one.
    fn put(&self, path: &Path, packet: &[u8], back: usize, buffer: usize) -> bool {
        let mut arrived = lock(&self.state);
        let arrived = &mut *arrived;
        if arrived.octets + packet.len() > buffer {
            arrived.overrun += 1;
            return false;
        }
        let mut octets = arrived.spare.pop().unwrap_or_default();
        octets.extend_from_slice(packet);
        arrived.octets += packet.len();
        let place = arrived.packets.len().saturating_sub(back);
        arrived.packets.insert(place, (*path, octets));
        arrived.packets.len() == 1
    }

    fn take(&self) -> Option<(Path, Vec<u8>)> {
        let mut arrived = lock(&self.state);
        let (path, packet) = arrived.packets.pop_front()?;
        arrived.octets -= packet.len();
        Some((path, packet))
    }

    fn give_back(&self, mut packet: Vec<u8>) {
        let spare = &mut lock(&self.state).spare;
        if spare.len() < SPARE {
            packet.clear();
            spare.push(packet);
        }
    }
}

/// A port.
#[derive(Debug)]
struct MemoryPort {
    network: MemoryDatagrams,
    inbox: Arc<Inbox>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    too_long: AtomicU64,
    received: AtomicU64,
}

impl Fabric {
    /// Brings a packet to the ports that it is for, as the faults have it. Ports that begin to have
    /// input are put into `woken`.
    fn carry(&mut self, path: &Path, packet: &[u8], woken: &mut Vec<Arc<Inbox>>) {
        let faults = self.faults;
        let to = SocketAddr::new(path.address.destination, path.destination_port);
        let theirs = |inbox: &Arc<Inbox>| {
            inbox.addr.port() == to.port()
                && (inbox.addr.ip() == to.ip() || lock(&inbox.groups).contains(&to.ip()))
        };
        let ports = std::mem::take(&mut self.ports);
        for inbox in ports.iter().filter_map(Weak::upgrade).filter(theirs) {
            for _ in 0..faults.copies(&mut self.draws) {
                let back = faults.overtakes(&mut self.draws);
                let changed = faults.damaged(&mut self.draws, packet);
                if inbox.put(path, changed.as_deref().unwrap_or(packet), back, self.buffer) {
                    woken.push(Arc::clone(&inbox));
                }
            }
        }
        self.ports = ports;
    }
}

impl DatagramPort for MemoryPort {
    fn local_addr(&self) -> SocketAddr {
        self.inbox.addr
    }

    fn numbering(&self) -> Numbering {
        Numbering::Counted
    }

    fn send_until(
        &self,
        burst: &dyn Trains,
        cursor: &mut BurstCursor,
        end: usize,
    ) -> io::Result<Sent> {
        let mut fabric = lock(&self.network.0);
        let mut woken = std::mem::take(&mut fabric.woken);
        let mut sent = Sent::All;
        'trains: while let Some(train) = burst.train(cursor.trains).filter(|_| cursor.trains < end)
        {
            let headers = if train.path.address.destination.is_ipv4() { 28 } else { 48 };
            if headers + train.segment > fabric.mtu {
                sent = Sent::TooLong(*train.path);
                let lost = (train.packets - cursor.packets) as u64;
                self.counts.too_long.fetch_add(lost, Ordering::Relaxed);
                *cursor = BurstCursor { trains: cursor.trains + 1, packets: 0 };
                break;
            }
            for packet in train.octets.chunks(train.segment).skip(cursor.packets) {
                let Fabric { draws, faults, .. } = &mut *fabric;
                if faults.finds_it_full(draws) {
                    sent = Sent::Full;
                    break 'trains;
                }
                fabric.carry(train.path, packet, &mut woken);
                self.counts.sent.fetch_add(1, Ordering::Relaxed);
                cursor.packets += 1;
            }
            *cursor = BurstCursor { trains: cursor.trains + 1, packets: 0 };
        }
        drop(fabric);
        for inbox in woken.drain(..) {
            inbox.waker.wake(Readiness::INPUT);
        }
        lock(&self.network.0).woken = woken;
        Ok(sent)
    }

    fn receive_all(&self, take: &mut dyn FnMut(&mut Packets<'_>)) -> io::Result<Intake> {
        // Packets that are sent meanwhile are for the next call.
        let mut all = mem::take(&mut *lock(&self.inbox.taken));
        all.extend(std::iter::from_fn(|| self.inbox.take()));
        if all.is_empty() {
            *lock(&self.inbox.taken) = all;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        take(&mut all.iter().map(|(path, packet)| (*path, &packet[..])));
        let packets = all.len();
        all.drain(..).for_each(|(_, packet)| self.inbox.give_back(packet));
        *lock(&self.inbox.taken) = all;
        self.counts.received.fetch_add(packets as u64, Ordering::Relaxed);
        Ok(Intake { packets, more: true })
    }

    fn join(&self, group: IpAddr) -> io::Result<()> {
        if !group.is_multicast() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        lock(&self.inbox.groups).insert(group);
        Ok(())
    }

    fn leave(&self, group: IpAddr) {
        lock(&self.inbox.groups).remove(&group);
    }

    fn has_input(&self) -> io::Result<bool> {
        Ok(!lock(&self.inbox.state).packets.is_empty())
    }

    fn descriptors(&self) -> Descriptors<'_> {
        Descriptors::none()
    }

    /// A sender that was told that it is full may try again at once.
    fn readiness(&self) -> Readiness {
        let mut ready = Readiness::ROOM;
        ready.set(Readiness::INPUT, !lock(&self.inbox.state).packets.is_empty());
        ready
    }

    fn set_waker(&self, waker: Waker) {
        self.inbox.waker.set(waker);
    }

    fn counters(&self) -> DatagramCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DatagramCounters {
            sent: of(&self.counts.sent),
            too_long: of(&self.counts.too_long),
            received: of(&self.counts.received),
            ..DatagramCounters::default()
        }
    }

    fn overruns(&self) -> u64 {
        lock(&self.inbox.state).overrun
    }

    fn self_test(&self) -> io::Result<Findings> {
        let buffer = lock(&self.network.0).buffer;
        Ok(Findings {
            segments: true,
            merges: true,
            unchecked: true,
            leaves_as_meant: Some(true),
            receive_buffer: buffer,
            send_buffer: buffer,
        })
    }
}
