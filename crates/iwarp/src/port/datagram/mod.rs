// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ports that carry packets: of many queue pairs, to and from many peers.
//!
//! A [`DatagramPort`] takes [`Trains`] and hands out what has come packet by packet.
//! It may lose packets, and hand them out twice, late and in another order. It does not look into
//! them: others find out whether an ICRC holds.
//!
//! ```text
//!   around   a network around another
//!   both     one port of two, for IPv4 and IPv6
//!   faults   a network around another that loses, repeats, reorders and damages packets
//!   pace     how fast packets go to a peer whose buffer is small
//!   record   a network around another that remembers what passes
//!   share    a process's share of the port that RoCE v2 has
//!   whole    that of a process with a host for itself
//! ```

mod around;
mod both;
mod faults;
mod pace;
mod record;
mod share;
mod whole;

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use iwarp_types::{Numbering, Path, Trains};

use super::{Descriptors, Readiness, Waker};

pub use both::BothFamilies;
pub use faults::DatagramFaults;
pub use pace::Pace;
pub use record::{PacketRecording, PassedPacket};
pub use share::{DatagramShare, Shared};
pub use whole::WholePort;

/// The settings with which a port is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramSettings {
    /// The system may cut packets from one send of many, where it can.
    pub segmenting: bool,
    /// Packets say that the path may mark congestion (ECT(0)).
    pub ecn: bool,
    /// Packets have a UDP checksum. Without one the system cuts no packets.
    pub checksums: bool,
    /// Bytes of buffers to ask the system for.
    pub buffer: usize,
    /// The longest time that a share waits for the process that gives shares.
    pub patience: Duration,
}

impl Default for DatagramSettings {
    fn default() -> Self {
        let patience = Duration::from_secs(1);
        Self { segmenting: true, ecn: false, checksums: true, buffer: 4 << 20, patience }
    }
}

/// Packets that have come, each with the way that it has come.
pub type Packets<'a> = dyn Iterator<Item = (Path, &'a [u8])> + 'a;

/// The point up to which the trains of a burst were taken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BurstCursor {
    /// Trains that were taken whole.
    pub trains: usize,
    /// Packets that were taken of the one behind them.
    pub packets: usize,
}

/// The fate of a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// All of it was taken.
    All,
    /// The rest was not: the port says when there is room.
    Full,
    /// Packets that go this way are longer than it takes. They are lost; those behind them were not
    /// tried yet.
    TooLong(Path),
}

/// The counts of a port, since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DatagramCounters {
    /// Packets that were taken.
    pub sent: u64,
    /// Packets that were lost for want of memory, a route or a firewall's leave.
    pub lost: u64,
    /// Packets that were lost as they were too long.
    pub too_long: u64,
    /// Packets that were handed out.
    pub received: u64,
    /// The packets that came damaged or without saying where they were sent.
    pub damaged: u64,
}

/// The packets of one call of [`DatagramPort::receive_all`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Intake {
    /// The number of packets.
    pub packets: usize,
    /// There may have been more than the call takes. If not, none was left at its end.
    pub more: bool,
}

/// The facts that a port has found out about the system below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Findings {
    /// The system cuts packets from one send, and they arrive as they were.
    pub segments: bool,
    /// Packets of a train arrive in one piece.
    pub merges: bool,
    /// Packets without a UDP checksum come in.
    pub unchecked: bool,
    /// Packets leave with the addresses, the ports and the identification (0, not to be fragmented)
    /// that their ICRCs have; `None`: that cannot be seen here. It was tried within this host: only
    /// the peer sees what a card or another host does.
    pub leaves_as_meant: Option<bool>,
    /// Bytes of the system's memory for what came and was not received.
    pub receive_buffer: usize,
    /// Bytes of the system's memory for what is on its way out.
    pub send_buffer: usize,
}

/// A place at which packets come and go. Used by several threads at once, but each direction by one
/// at a time. No call waits but [`Self::self_test`] and [`Self::leaves_as_meant`].
pub trait DatagramPort: Send + Sync + Debug {
    /// Its address and port.
    fn local_addr(&self) -> SocketAddr;

    /// The numbers that it gives as identifications to packets, which the ICRCs of a burst have to
    /// follow. It may change to [`Numbering::Zero`], and then never changes back.
    fn numbering(&self) -> Numbering;

    /// Takes trains of `burst` from `cursor` to the one with the number `end`, and moves it on.
    /// Their paths have the port of this one as their source port: it is what packets leave with.
    /// In a burst of another numbering, packets whose ICRCs became wrong are lost.
    ///
    /// # Errors
    ///
    /// If the port is gone. Failures on the way are loss.
    fn send_until(
        &self,
        burst: &dyn Trains,
        cursor: &mut BurstCursor,
        end: usize,
    ) -> io::Result<Sent>;

    /// Takes all trains of `burst` from `cursor` on.
    ///
    /// # Errors
    ///
    /// As [`Self::send_until`].
    fn send(&self, burst: &dyn Trains, cursor: &mut BurstCursor) -> io::Result<Sent> {
        self.send_until(burst, cursor, usize::MAX)
    }

    /// Hands what has come to `take`, packet by packet with its ICRC, and says how many there were;
    /// the path's source is the sender. One call may leave some for the next.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where nothing has come; anything else where the port is gone.
    fn receive(&self, take: &mut dyn FnMut(&Path, &[u8])) -> io::Result<usize> {
        let take = &mut |packets: &mut Packets<'_>| {
            packets.for_each(|(path, packet)| take(&path, packet));
        };
        Ok(self.receive_all(take)?.packets)
    }

    /// As [`Self::receive`]: hands all of it out at once, for `take` to go through.
    ///
    /// # Errors
    ///
    /// As for [`Self::receive`].
    fn receive_all(&self, take: &mut dyn FnMut(&mut Packets<'_>)) -> io::Result<Intake>;

    /// Has packets to a multicast group come in that arrive at any interface of this host. A
    /// repetition changes nothing.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where that is no group; those of the system.
    fn join(&self, group: IpAddr) -> io::Result<()>;

    /// Takes [`Self::join`] back.
    fn leave(&self, group: IpAddr);

    /// As [`Self::join`], for packets that arrive at certain interfaces, by their indices. A port
    /// that knows no interfaces takes them all.
    ///
    /// # Errors
    ///
    /// As for [`Self::join`].
    fn join_at(&self, group: IpAddr, _interfaces: &[u32]) -> io::Result<()> {
        self.join(group)
    }

    /// Takes [`Self::join`] and [`Self::join_at`] back at all interfaces but these, which are some.
    fn leave_but(&self, _group: IpAddr, _interfaces: &[u32]) {}

    /// Packets to other hosts from an address of one of these interfaces leave by that, where the
    /// routes have a way there. A port that knows no interfaces has no say in it.
    fn leave_by(&self, _interfaces: &[String]) {}

    /// The interface at which the packet to a group of this family arrived that was handed out
    /// last; `None` where that is not known.
    fn arrived_at(&self, _group: IpAddr) -> Option<u32> {
        None
    }

    /// True if something has come that was not handed out yet.
    ///
    /// # Errors
    ///
    /// If the port is gone.
    fn has_input(&self) -> io::Result<bool>;

    /// The descriptors that report that something has come, and that there is room, as with
    /// [`Port`](super::Port::descriptors).
    fn descriptors(&self) -> Descriptors<'_>;

    /// The readiness of a port without a descriptor.
    fn readiness(&self) -> Readiness {
        Readiness::empty()
    }

    /// Sets the waker of a port without a descriptor.
    fn set_waker(&self, _: Waker) {}

    /// Its counts.
    fn counters(&self) -> DatagramCounters;

    /// Packets that came since it was made, and were dropped as no call took them out of the buffer
    /// in time. The system counts them, so this may be a call of it.
    fn overruns(&self) -> u64;

    /// Tries what can be tried within this host, for some tenths of a second at most.
    ///
    /// # Errors
    ///
    /// If nothing could be tried at all.
    fn self_test(&self) -> io::Result<Findings>;

    /// Sends one packet, and says whether it left this host with the headers that its ICRC has. To
    /// be tried with the first packet to a peer: a firewall or a gateway of this host may change
    /// them. `None`: that cannot be seen.
    ///
    /// # Errors
    ///
    /// As for sending, in the system's own form.
    fn leaves_as_meant(&self, _: &Path, _: &[u8]) -> io::Result<Option<bool>> {
        Ok(None)
    }
}

/// The maker of such ports: the network as one host sees it.
pub trait DatagramNetwork: Send + Sync + Debug {
    /// A port at one address of this host, or at all those of a family (port 0: any).
    ///
    /// # Errors
    ///
    /// `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`; `InvalidInput` for a group's address.
    fn open(
        &self,
        addr: SocketAddr,
        settings: &DatagramSettings,
    ) -> io::Result<Box<dyn DatagramPort>>;

    /// Takes this process's share of the RoCE port (4791) at all addresses of this host: those of
    /// IPv4 and, where there is that, IPv6. May wait as long as the settings allow.
    ///
    /// # Errors
    ///
    /// As [`Self::open`]; their text is for the user.
    fn share(&self, settings: &DatagramSettings) -> io::Result<Shared> {
        let open = |ip: IpAddr| self.open((ip, Path::PORT).into(), settings);
        let port = match [open(Ipv4Addr::UNSPECIFIED.into()), open(Ipv6Addr::UNSPECIFIED.into())] {
            [Ok(v4), Ok(v6)] => Box::new(BothFamilies::new(v4, v6)),
            [Ok(port), Err(_)] | [Err(_), Ok(port)] => port,
            [Err(error), Err(_)] => return Err(error),
        };
        Ok((port, Box::new(WholePort::default())))
    }

    /// True if [`Self::share`] gives a process one share at a time, which is then for all of its
    /// devices.
    fn is_of_process(&self) -> bool {
        false
    }

    /// A port that has joined a multicast group at the interface of `at`, an address of this host,
    /// until it is dropped. Others may open it too: each gets a copy of every packet to the group.
    ///
    /// # Errors
    ///
    /// `AddrNotAvailable` where `at` is no address of this host; `InvalidInput` where `group` is no
    /// group of its family.
    fn open_group(&self, group: SocketAddr, at: IpAddr) -> io::Result<Box<dyn DatagramPort>>;
}
