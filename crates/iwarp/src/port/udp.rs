// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagram ports of the system's UDP. The only file that names it.

use std::io;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use iwarp_os::datagram::{
    Arrival, Binding, DatagramSocket, Glimpse, Outgoing, ReceiveBatch, Refusal, SendBatch,
};
use iwarp_types::AddressVector;
use iwarp_types::{Numbering, Path, Trains};

use crate::capture::{Datagram, watch_datagrams};
use crate::faults;

use super::share::{Member, ROCE_PORT, ShareError};
use super::ways::Ways;
use super::{
    BurstCursor, DatagramCounters, DatagramNetwork, DatagramPort, DatagramSettings, Descriptors,
    Findings, Intake, Packets, Sent, Shared, lock, traffic,
};
use crate::hash::OwnKeys;
use crate::port::traffic::Moved;
use crate::report;

/// Messages that one system call takes.
const MESSAGES: usize = 32;
/// Pieces that one system call brings, each of up to 64 KiB.
const PIECES: usize = 16;
/// Addresses whose interfaces are remembered.
const INTERFACES: usize = 64;
/// Hops of packets to groups that do not say it themselves: as RoCE's have in Linux.
const GROUP_HOPS: u8 = 64;
/// ECN-capable transport, as its senders mark packets (RFC 3168).
const ECT0: u8 = 2;
/// The time that a test waits for what should come at once.
const TEST: Duration = Duration::from_millis(200);

/// The UDP of this host's system.
pub fn datagrams() -> Arc<dyn DatagramNetwork> {
    Arc::new(Udp)
}

#[derive(Clone, Copy, Debug)]
struct Udp;

impl DatagramNetwork for Udp {
    fn open(
        &self,
        addr: SocketAddr,
        settings: &DatagramSettings,
    ) -> io::Result<Box<dyn DatagramPort>> {
        Ok(Box::new(UdpPort::open(addr, settings)?))
    }

    fn share(&self, settings: &DatagramSettings) -> io::Result<Shared> {
        let join = |ip: IpAddr| Member::join_within((ip, ROCE_PORT).into(), settings.patience);
        let mut member = match join(Ipv6Addr::UNSPECIFIED.into()) {
            // A host without IPv6.
            Err(ShareError::System { source, .. }) if lacks_ipv6(&source) => {
                join(Ipv4Addr::UNSPECIFIED.into())?
            }
            joined => joined?,
        };
        // A new member has it.
        let socket = member.take_socket().ok_or(io::ErrorKind::NotFound)?;
        Ok((Box::new(UdpPort::shared(socket, settings)?), Box::new(member)))
    }

    fn is_of_process(&self) -> bool {
        true
    }

    fn open_group(&self, group: SocketAddr, at: IpAddr) -> io::Result<Box<dyn DatagramPort>> {
        if !group.ip().is_multicast() || group.is_ipv4() != at.is_ipv4() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let interface = interface_of(at)?;
        let socket = DatagramSocket::bind(group, Binding::Everybody)?;
        socket.join(group.ip(), interface)?;
        Ok(Box::new(UdpPort::on(socket, &DatagramSettings::default())?))
    }
}

/// The interface that has an address.
fn interface_of(ip: IpAddr) -> io::Result<u32> {
    let interfaces = iwarp_os::addr::interfaces()?;
    let has = |interface: &&iwarp_os::Interface| interface.addrs.iter().any(|addr| addr.ip == ip);
    // All of this network is the loopback interface's.
    let found = interfaces
        .iter()
        .find(has)
        .or_else(|| interfaces.iter().find(|interface| interface.loopback && ip.is_loopback()));
    Ok(found.ok_or(io::ErrorKind::AddrNotAvailable)?.index)
}

fn lacks_ipv6(error: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    error.raw_os_error() == Some(EAFNOSUPPORT) || error.kind() == io::ErrorKind::AddrNotAvailable
}

/// A socket.
#[derive(Debug)]
struct UdpPort {
    socket: DatagramSocket,
    /// Of a socket of all addresses: the interfaces of those for which the routes do not do.
    interfaces: Mutex<OwnKeys<IpAddr, u32>>,
    /// Likewise: those by which packets with their addresses leave.
    ways: OnceLock<Ways>,
    sending: Mutex<SendBatch>,
    receiving: Mutex<ReceiveBatch>,
    settings: DatagramSettings,
    /// The system cuts packets from one send.
    segments: AtomicBool,
    /// The interface of the packet to a group that was handed out last; 0: not known.
    arrived_at: AtomicU32,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    lost: AtomicU64,
    too_long: AtomicU64,
    received: AtomicU64,
    damaged: AtomicU64,
}

/// Each is counted by one thread at a time.
fn count(counter: &AtomicU64, more: usize) {
    counter.store(counter.load(Ordering::Relaxed) + more as u64, Ordering::Relaxed);
}

/// The content of one message: packets of one train.
#[derive(Clone)]
struct Piece<'a> {
    path: &'a Path,
    octets: &'a [u8],
    segment: usize,
    packets: usize,
    /// The burst's place behind it.
    end: BurstCursor,
}

/// The packets of a message.
fn datagrams_of(piece: Piece<'_>) -> impl Iterator<Item = Datagram<'_>> {
    let packets = piece.octets.chunks(piece.segment.max(1)).enumerate();
    packets.map(move |(number, octets)| Datagram { path: *piece.path, octets, number })
}

/// The packets of a burst from `cursor` to the train with the number `end`: the rest of each train
/// in one message where it is `whole`, else each packet in one.
fn pieces(
    burst: &dyn Trains,
    cursor: BurstCursor,
    end: usize,
    whole: bool,
) -> impl Iterator<Item = Piece<'_>> {
    let trains = (cursor.trains..end).map_while(|index| Some((index, burst.train(index)?)));
    trains.flat_map(move |(index, train)| {
        let before = if index == cursor.trains { cursor.packets } else { 0 };
        let rest = train.octets.get(before * train.segment..).unwrap_or_default();
        let each = if whole { train.packets - before } else { 1 };
        rest.chunks((each * train.segment).max(1)).enumerate().map(move |(nth, octets)| {
            let packets = before + (nth + 1) * each;
            let end = if packets < train.packets {
                BurstCursor { trains: index, packets }
            } else {
                BurstCursor { trains: index + 1, packets: 0 }
            };
            Piece { path: train.path, octets, segment: train.segment, packets: each, end }
        })
    })
}

impl UdpPort {
    fn open(addr: SocketAddr, settings: &DatagramSettings) -> io::Result<Self> {
        if addr.ip().is_multicast() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let socket = DatagramSocket::bind(addr, Binding::Alone)?;
        if !addr.ip().is_unspecified() {
            // Others of this host may have joined the group; the sender does not know.
            socket.send_to_groups_by(interface_of(addr.ip())?)?;
            socket.send_to_groups(GROUP_HOPS, true)?;
        }
        Self::on(socket, settings)
    }

    /// The socket of a share.
    fn shared(socket: OwnedFd, settings: &DatagramSettings) -> io::Result<Self> {
        let socket = DatagramSocket::adopt(socket)?;
        socket.send_to_groups(GROUP_HOPS, true)?;
        Self::on(socket, settings)
    }

    fn on(socket: DatagramSocket, settings: &DatagramSettings) -> io::Result<Self> {
        if !settings.checksums {
            socket.set_checksums(false)?;
        }
        socket.set_buffers(settings.buffer)?;
        let segments = settings.segmenting && settings.checksums && socket.can_segment();
        Ok(Self {
            socket,
            interfaces: Mutex::default(),
            ways: OnceLock::new(),
            sending: Mutex::new(SendBatch::new(MESSAGES)?),
            receiving: Mutex::new(ReceiveBatch::new(PIECES)?),
            settings: *settings,
            segments: AtomicBool::new(segments),
            arrived_at: AtomicU32::new(0),
            counts: Counts::default(),
        })
    }

    fn outgoing<'a>(&self, path: &Path, octets: &'a [u8], segment: usize) -> Outgoing<'a> {
        let AddressVector { source, destination, flow_label, .. } = path.address;
        let ecn = if self.settings.ecn { ECT0 } else { 0 };
        let class = path.address.traffic_class | ecn;
        let mut destination = SocketAddr::new(destination, path.destination_port);
        if let (SocketAddr::V6(to), SocketAddr::V6(from)) =
            (&mut destination, self.socket.local_addr())
        {
            // The scope of a link, if there is one: then both ends are on it.
            to.set_scope_id(from.scope_id());
        }
        Outgoing {
            octets,
            destination,
            source,
            interface: self.interface(source, destination.ip()),
            segment,
            traffic_class: (class != 0).then_some(class),
            // 0 and 1 stand for the default.
            hop_limit: (path.address.hop_limit > 1).then_some(path.address.hop_limit),
            flow_label,
        }
    }

    /// The interface that a packet has to go by, where the routes do not know: from a socket of all
    /// addresses to a group, within a link, or as a device that is bound to an interface has it.
    fn interface(&self, source: IpAddr, destination: IpAddr) -> u32 {
        let of_link = |ip| matches!(ip, IpAddr::V6(ip) if Ipv6Addr::is_unicast_link_local(&ip));
        if !(destination.is_multicast() || of_link(destination)) {
            return self.ways.get().map_or(0, |ways| ways.interface(source, destination));
        }
        if !self.socket.local_addr().ip().is_unspecified() {
            return 0;
        }
        let mut interfaces = lock(&self.interfaces);
        if let Some(known) = interfaces.get(&source) {
            return *known;
        }
        // An address that is not there is refused by the system.
        let found = interface_of(source).unwrap_or(0);
        if interfaces.len() >= INTERFACES {
            interfaces.clear();
        }
        interfaces.insert(source, found);
        found
    }

    /// Joins a group at the interfaces that are up, of those that are meant.
    fn join_among(&self, group: IpAddr, is_meant: impl Fn(u32) -> bool) -> io::Result<()> {
        if !group.is_multicast() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut joined = Err(io::ErrorKind::AddrNotAvailable.into());
        let interfaces = iwarp_os::addr::interfaces()?;
        for interface in interfaces.iter().filter(|one| one.up && is_meant(one.index)) {
            match self.socket.join(group, interface.index) {
                // It has joined there already.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => joined = Ok(()),
                // One that has none of it, or more than the system lets a socket join.
                Err(error) if joined.is_err() => joined = Err(error),
                Err(_) => {}
                Ok(()) => joined = Ok(()),
            }
        }
        joined
    }

    /// The system cuts no packets from now on.
    fn stop_segmenting(&self) {
        if self.segments.swap(false, Ordering::Relaxed) {
            let local = self.socket.local_addr();
            report!(
                burst 1,
                WARN,
                %local,
                "the system does not cut several packets from one send here (UDP_SEGMENT): each \
                 packet takes a call, which costs more"
            );
        }
    }

    /// Deals with the first message of those that were not taken. `Some`: nothing more is to be
    /// tried now.
    fn refused(
        &self,
        batch: &mut SendBatch,
        refusal: Refusal,
        piece: &Piece<'_>,
        cursor: &mut BurstCursor,
    ) -> io::Result<Option<Sent>> {
        match refusal {
            Refusal::Full => return Ok(Some(Sent::Full)),
            Refusal::TooLong => return Ok(Some(self.too_long(piece, cursor))),
            Refusal::Lost(error) => {
                tracing::debug!(%error, path = ?piece.path, "packets are lost");
                count(&self.counts.lost, piece.packets);
                *cursor = piece.end;
            }
            Refusal::Failed(error) => return Err(error),
            Refusal::Segmenting => {
                // Of a train of packets that are too long some systems say this too. The first
                // packet goes by itself either way, and tells which it is.
                let segment = piece.segment;
                let first = self.outgoing(piece.path, &piece.octets[..segment], segment);
                let watch = watch_datagrams();
                let result = self.socket.send(batch, [first]);
                if let (Some(watch), Ok(_)) = (&watch, &result) {
                    watch.moved(true, datagrams_of(piece.clone()).take(1));
                }
                drop(watch);
                match result {
                    Ok(_) => {
                        count(&self.counts.sent, 1);
                        let octets = segment.min(piece.octets.len());
                        traffic::sent(|| iter::once(from(piece.path, octets, 1)));
                        cursor.packets += 1;
                        self.stop_segmenting();
                    }
                    Err(Refusal::Full) => return Ok(Some(Sent::Full)),
                    Err(Refusal::TooLong) => return Ok(Some(self.too_long(piece, cursor))),
                    Err(Refusal::Failed(error)) => return Err(error),
                    Err(Refusal::Lost(_) | Refusal::Segmenting) => {
                        count(&self.counts.lost, piece.packets);
                        *cursor = piece.end;
                    }
                }
            }
        }
        Ok(None)
    }

    /// Packets that follow in the train are as long.
    fn too_long(&self, piece: &Piece<'_>, cursor: &mut BurstCursor) -> Sent {
        count(&self.counts.too_long, piece.packets);
        *cursor = BurstCursor { trains: cursor.trains + 1, packets: 0 };
        Sent::TooLong(*piece.path)
    }
}

/// The way in which the trains of a burst go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Each in one message.
    Whole,
    /// Packet by packet.
    Single,
    /// Only the first packet of each: the ICRCs of others count on being cut from one message.
    Firsts,
}

impl DatagramPort for UdpPort {
    fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    fn numbering(&self) -> Numbering {
        if self.segments.load(Ordering::Relaxed) { Numbering::Counted } else { Numbering::Zero }
    }

    fn send_until(
        &self,
        burst: &dyn Trains,
        cursor: &mut BurstCursor,
        end: usize,
    ) -> io::Result<Sent> {
        if faults::is_pulled() {
            // As of any other that a network loses, the sender knows nothing.
            *cursor = BurstCursor { trains: end, packets: 0 };
            return Ok(Sent::All);
        }
        let batch = &mut *lock(&self.sending);
        loop {
            // Only IPv4's packets have identifications.
            let numbered = self.socket.has_ipv4();
            let way = match (self.numbering(), burst.numbering()) {
                (Numbering::Counted, Numbering::Counted) => Way::Whole,
                (Numbering::Counted, Numbering::Zero) if !numbered => Way::Whole,
                (Numbering::Zero, Numbering::Counted) if numbered => Way::Firsts,
                _ => Way::Single,
            };
            if way == Way::Firsts && cursor.packets > 0 {
                let train = burst.train(cursor.trains).map_or(0, |train| train.packets);
                count(&self.counts.lost, train.saturating_sub(cursor.packets));
                *cursor = BurstCursor { trains: cursor.trains + 1, packets: 0 };
                continue;
            }
            let rest = || pieces(burst, *cursor, end, way == Way::Whole);
            let most = if way == Way::Firsts { 1 } else { usize::MAX };
            let messages =
                rest().map(|piece| self.outgoing(piece.path, piece.octets, piece.segment));
            let watch = watch_datagrams();
            let result = self.socket.send(batch, messages.take(most));
            if let (Some(watch), Ok(taken)) = (&watch, &result) {
                watch.moved(true, rest().take(*taken).flat_map(datagrams_of));
            }
            drop(watch);
            match result {
                Ok(0) => return Ok(Sent::All),
                Ok(taken) => {
                    let mut packets = 0;
                    let end = rest().take(taken).fold(*cursor, |_, piece| {
                        packets += piece.packets;
                        piece.end
                    });
                    count(&self.counts.sent, packets);
                    traffic::sent(|| {
                        let taken = rest().take(taken);
                        taken.map(|piece| from(piece.path, piece.octets.len(), piece.packets))
                    });
                    *cursor = end;
                }
                Err(refusal) => {
                    // Something was tried.
                    let Some(piece) = rest().next() else { return Ok(Sent::All) };
                    if let Some(sent) = self.refused(batch, refusal, &piece, cursor)? {
                        return Ok(sent);
                    }
                }
            }
        }
    }

    fn receive_all(&self, take: &mut dyn FnMut(&mut Packets<'_>)) -> io::Result<Intake> {
        let batch = &mut *lock(&self.receiving);
        let more = self.socket.receive(batch)? == PIECES;
        if faults::is_pulled() {
            return Ok(Intake { packets: 0, more });
        }
        if let Some(watch) = watch_datagrams() {
            watch.moved(
                false,
                batch.arrivals().flat_map(|arrival| {
                    let path = path_of(&arrival);
                    let numbered = arrival.packets().enumerate();
                    numbered.map(move |(number, octets)| Datagram { path, octets, number })
                }),
            );
        }
        let mut packets = 0;
        let mut all = batch
            .arrivals()
            .flat_map(|arrival| {
                let path = path_of(&arrival);
                if path.address.destination.is_multicast() {
                    self.arrived_at.store(arrival.interface, Ordering::Relaxed);
                }
                arrival.packets().map(move |packet| (path, packet))
            })
            .inspect(|_| packets += 1);
        take(&mut all);
        // Packets that were not taken are lost.
        all.for_each(|_| {});
        count(&self.counts.received, packets);
        traffic::received(|| batch.arrivals().map(|arrival| to(&arrival)));
        self.counts.damaged.store(batch.damaged(), Ordering::Relaxed);
        Ok(Intake { packets, more })
    }

    fn join(&self, group: IpAddr) -> io::Result<()> {
        self.join_among(group, |_| true)
    }

    fn leave(&self, group: IpAddr) {
        self.leave_but(group, &[]);
    }

    fn join_at(&self, group: IpAddr, interfaces: &[u32]) -> io::Result<()> {
        self.join_among(group, |index| interfaces.contains(&index))
    }

    fn leave_but(&self, group: IpAddr, interfaces: &[u32]) {
        for interface in iwarp_os::addr::interfaces().unwrap_or_default() {
            if !interfaces.contains(&interface.index) {
                let _ = self.socket.leave(group, interface.index);
            }
        }
    }

    fn leave_by(&self, interfaces: &[String]) {
        if !interfaces.is_empty() && self.socket.local_addr().ip().is_unspecified() {
            self.ways.get_or_init(|| Ways::new(interfaces.to_vec()));
        }
    }

    fn arrived_at(&self, _: IpAddr) -> Option<u32> {
        Some(self.arrived_at.load(Ordering::Relaxed)).filter(|index| *index != 0)
    }

    fn has_input(&self) -> io::Result<bool> {
        self.socket.has_input()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        Descriptors::one(self.socket.as_fd())
    }

    fn counters(&self) -> DatagramCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { sent, lost, too_long, received, damaged } = &self.counts;
        DatagramCounters {
            sent: of(sent),
            lost: of(lost),
            too_long: of(too_long),
            received: of(received),
            damaged: of(damaged),
        }
    }

    fn overruns(&self) -> u64 {
        self.socket.overruns().into()
    }

    fn self_test(&self) -> io::Result<Findings> {
        let [from, to] = [Self::beside(self)?, Self::beside(self)?];
        let buffers = self.socket.buffers()?;
        let local = self.socket.local_addr().ip();
        let mut path = Path::new(AddressVector::new(local, local), from.local_addr().port());
        path.destination_port = to.local_addr().port();
        let leaves_as_meant = from.leaves_as_meant(&path, b"one packet")?;
        to.try_receive(1)?;
        let octets = [7; 2 * TEST_SEGMENT + 1];
        let train = from.outgoing(&path, &octets, TEST_SEGMENT);
        let segments = self.segments.load(Ordering::Relaxed)
            && from.socket.send(&mut SendBatch::new(1)?, [train]).is_ok();
        let merges = segments && {
            let sizes = to.try_receive(3)?;
            sizes.len() == 3 && to.socket.merges()
        };
        from.socket.set_checksums(false)?;
        let alone = from.outgoing(&path, b"unchecked", usize::MAX);
        let unchecked = from.socket.send(&mut SendBatch::new(1)?, [alone]).is_ok()
            && to.try_receive(1)?.len() == 1;
        let (receive_buffer, send_buffer) = (buffers.receive, buffers.send);
        let findings =
            Findings { segments, merges, unchecked, leaves_as_meant, receive_buffer, send_buffer };
        if !unchecked || leaves_as_meant == Some(false) {
            report!(
                burst 1, WARN, %local, ?findings,
                "RoCE v2 may not work with other hosts: checksums cover the IP headers, which \
                 this system handles differently"
            );
        }
        Ok(findings)
    }

    fn leaves_as_meant(&self, path: &Path, packet: &[u8]) -> io::Result<Option<bool>> {
        let message = self.outgoing(path, packet, packet.len());
        let seen = self.socket.glimpse(&message, TEST)?;
        count(&self.counts.sent, 1);
        let address = path.address;
        Ok(seen.map(|Glimpse { source, destination, id, .. }| {
            let from = SocketAddr::new(address.source, path.source_port);
            let to = SocketAddr::new(address.destination, path.destination_port);
            source == from && destination == to && id.is_none_or(|id| id == (0, true))
        }))
    }
}

/// Packets that leave by a path, for those who count them.
const fn from(path: &Path, octets: usize, packets: usize) -> Moved {
    Moved { addr: path.address.source, interface: None, octets, packets }
}

/// Packets that came, likewise.
fn to(arrival: &Arrival<'_>) -> Moved {
    let addr = arrival.destination.ip();
    let (mut octets, mut packets) = (0, 0);
    for packet in arrival.packets() {
        octets += packet.len();
        packets += 1;
    }
    Moved { addr, interface: addr.is_multicast().then_some(arrival.interface), octets, packets }
}

/// Bytes of a packet of a test.
const TEST_SEGMENT: usize = 64;

impl UdpPort {
    /// A port at an equal address, for a test.
    fn beside(port: &Self) -> io::Result<Self> {
        let mut addr = port.socket.local_addr();
        addr.set_port(0);
        Self::open(addr, &port.settings)
    }

    /// The lengths of packets that come before long, until there are so many.
    fn try_receive(&self, packets: usize) -> io::Result<Vec<usize>> {
        let mut lengths = Vec::new();
        while lengths.len() < packets {
            if !iwarp_os::poll::wait_readable([self.socket.as_fd()], Some(TEST))?[0] {
                break;
            }
            self.receive(&mut |_, packet| lengths.push(packet.len()))?;
        }
        Ok(lengths)
    }
}

/// The way that a packet has come.
fn path_of(arrival: &Arrival<'_>) -> Path {
    let address = AddressVector {
        source: arrival.source.ip(),
        destination: arrival.destination.ip(),
        flow_label: 0,
        traffic_class: arrival.traffic_class,
        hop_limit: arrival.hop_limit,
    };
    let destination_port = arrival.destination.port();
    Path { destination_port, ..Path::new(address, arrival.source.port()) }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::convert::Infallible;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use iwarp_roce::wire::{Bth, Burst, Header, Message, Position, Psn, SendTail, Transport};
    use iwarp_types::Digest;

    use super::*;

    fn push(burst: &mut Burst, path: &Path, psn: u32) {
        let header = Header {
            bth: Bth::new(17, Psn::new(psn)),
            transport: Transport::Rc,
            deth: None,
            message: Message::Send { position: Position::Only, tail: SendTail::Plain },
        };
        let fill = |out: &mut [u8], digest: &mut Digest| {
            digest.update(out);
            Ok::<(), Infallible>(())
        };
        burst.push(path, &header, 100, fill).unwrap();
    }

    /// If the way does not let the system cut packets, the port sees it at the first train, and
    /// says so: packets of later bursts go one by one. Of those that were built before, IPv4's lose
    /// what has become wrong.
    ///
    /// Covers: ROCE-027
    #[test]
    fn a_way_that_cuts_no_packets_is_noticed() {
        for (ip, first) in [(Ipv4Addr::LOCALHOST.into(), 2), (Ipv6Addr::LOCALHOST.into(), 10)] {
            let open = |ip: IpAddr| {
                UdpPort::open(SocketAddr::new(ip, 0), &DatagramSettings::default()).unwrap()
            };
            let (from, to) = (open(ip), open(ip));
            // The system refuses trains without checksums just as it does those over IPsec.
            from.socket.set_checksums(false).unwrap();
            let mut path = Path::new(AddressVector::new(ip, ip), from.local_addr().port());
            path.destination_port = to.local_addr().port();
            let other = Path { source_port: 1, ..path };
            assert_eq!(from.numbering(), Numbering::Counted);
            for (burst, expected) in [(Numbering::Counted, first), (Numbering::Zero, 10)] {
                let mut burst = Burst::new(burst, 1 << 20);
                for psn in 0..10 {
                    push(&mut burst, if psn < 5 { &path } else { &other }, psn);
                }
                let mut cursor = BurstCursor::default();
                assert_eq!(from.send(&burst, &mut cursor).unwrap(), Sent::All);
                assert_eq!(cursor, BurstCursor { trains: 2, packets: 0 });
                assert_eq!(from.numbering(), Numbering::Zero);
                assert_eq!(to.try_receive(expected).unwrap().len(), expected);
                assert!(!to.has_input().unwrap());
            }
            let counters = from.counters();
            assert_eq!((counters.sent, counters.lost), (first as u64 + 10, 10 - first as u64));
        }
    }
}
