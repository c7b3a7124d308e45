// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport under the engine and the connection manager: connected streams of bytes
//! ([`Port`]), and what makes them ([`Network`]).
//!
//! A device holds one network, TCP unless it was opened with another
//! ([`Device::on_platform`](crate::Device::on_platform)). No other module names a transport, so
//! that streams can be recorded, hurt or replaced under the whole library.
//!
//! ```text
//!   tcp          sockets of the system
//!   datagram     ports that carry packets, what makes them, and how they are used
//!   udp          sockets of the system for those
//!   ways         interfaces by which datagrams leave, where devices are bound to some
//!   traffic      what both of these move, for other processes
//!   memory       both ends in this process
//!   record       a network around another that remembers what passes
//!   faults       a network around another that delays, cuts and corrupts
//!   around       what those two have in common
//!   local        a TCP connection within the host that moves to memory which both ends share
//!   clock        the time by which connections are made
//!   descriptors  how a port says that it is ready
//!   waker        how one says it that has no descriptor
//!   described    descriptors for those that have none
//!   share        several processes on one UDP port
//! ```
//!
//! Dispatch is one virtual call for each system call's worth of bytes, none for each segment.
//!
//! A port has readiness to read and room to write, each with a descriptor of its own, one for both,
//! or none. A network reserves, listens, connects, and knows the process at the other end. Wrappers
//! around any network record the traffic, or delay, cut and corrupt it by seed. Tests and
//! simulators open devices on them. A port that may hold bytes that its descriptor does not report
//! says so (`may_hold`), and is read until it has none. Start-up waits for ports without a
//! descriptor together with others, so `described` gives them two descriptors until messages pass.
//! The step `purity` sees to it that only `tcp` and `udp` name the sockets of their kind.

mod around;
pub(crate) mod clock;
mod datagram;
mod described;
mod descriptors;
mod faults;
pub(crate) mod local;
mod memory;
mod record;
pub mod share;
mod tcp;
pub(crate) mod traffic;
mod udp;
mod waker;
mod ways;

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::capture::Tap;

pub use clock::{Clock, ManualClock};
pub use datagram::{
    BothFamilies, BurstCursor, DatagramCounters, DatagramFaults, DatagramNetwork, DatagramPort,
    DatagramSettings, DatagramShare, Findings, Intake, Pace, PacketRecording, Packets,
    PassedPacket, Sent, Shared, WholePort,
};
pub(crate) use described::described;
pub use descriptors::Descriptors;
pub use faults::Faults;
pub use iwarp_os::owner::Owner;
pub use iwarp_os::{IoPart, IoPartMut, Ipv6Listen, Sharing, Spare, Vitals};
pub use local::Annex;
pub use memory::{MemoryDatagrams, MemoryNetwork};
pub use record::{Direction, Passed, Recording};
pub use udp::datagrams;
pub(crate) use waker::Wake;
pub use waker::{Readiness, Waker, WakerSlot};

/// A stream of bytes between two ends, or one that is being connected: then sending says
/// `WouldBlock`, and later the error of an attempt that failed.
///
/// A port is used by several threads at once, but each direction by one at a time. No call waits.
pub trait Port: Send + Sync + Debug {
    /// Sends what is taken at once, and says how many bytes that are. `more`: the caller owes
    /// another call, and the last segment may wait for it. The first 600 bytes of a connection,
    /// which may be a start-up frame and a proof, are taken whole once it is there.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where nothing is taken; `EFAULT` where the first byte is not there
    /// ([`IoPart::gather`] says so); anything else ends the connection.
    fn send(&self, parts: &[IoPart<'_>], more: bool) -> io::Result<usize>;

    /// Receives what is there; 0 is the end of the stream.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where nothing is there; `EFAULT` where the first byte has no place, and then
    /// nothing is taken from the stream; anything else ends the connection.
    fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize>;

    /// True if bytes have come that were not received yet. Takes none.
    ///
    /// # Errors
    ///
    /// As for receiving.
    fn has_input(&self) -> io::Result<bool>;

    /// Ends sending: the peer gets the end behind what was sent. Receiving goes on.
    ///
    /// # Errors
    ///
    /// If the connection is gone already.
    fn shutdown_write(&self) -> io::Result<()>;

    /// The addresses of its ends.
    fn ends(&self) -> Ends;

    /// The descriptors that report that something has come, and that there is room to send, each
    /// for as long as it is so (level-triggered). They change only at [`Self::begin`]. A port has
    /// none if it is polled, or told of its input by other threads of the process; then it has
    /// [`Self::readiness`] and [`Self::set_waker`].
    fn descriptors(&self) -> Descriptors<'_>;

    /// The calls that can be made now without `WouldBlock`, for as long as it is so. Asked of ports
    /// without a descriptor, by the thread that moves them.
    fn readiness(&self) -> Readiness {
        Readiness::empty()
    }

    /// A port without a descriptor wakes by `waker` from now on, and by no other, each time
    /// something begins to be ready that was not; [`WakerSlot`] keeps it. The library asks by
    /// itself for what is ready already.
    fn set_waker(&self, _: Waker) {}

    /// True if it may keep bytes that have come where its descriptor does not report them, as a
    /// port does that decrypts whole records. Such a port is read until it says `WouldBlock`,
    /// others until a call brings less than there was room for. Asked once.
    fn may_hold(&self) -> bool {
        false
    }

    /// Start-up is done: from now on messages pass.
    ///
    /// # Errors
    ///
    /// If the connection is gone already.
    fn begin(&mut self, _: &Settings<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Closing will reset the stream: the peer gets an error, and what it has not received is lost.
    fn reset_on_close(&self) {}

    /// The error that a descriptor reported, if it did.
    ///
    /// # Errors
    ///
    /// That error.
    fn take_error(&self) -> io::Result<()> {
        Ok(())
    }

    /// Bytes that one segment of the transport takes (EMSS, RFC 5044 §4.2).
    fn max_segment(&self) -> usize {
        1460
    }

    /// Sets the byte with DSCP and ECN bits, where there is one.
    ///
    /// # Errors
    ///
    /// From the system.
    fn set_traffic_class(&self, _: u8) -> io::Result<()> {
        Ok(())
    }

    /// Takes nothing more while so many bytes wait to be sent.
    fn limit_unsent(&self, _: usize) {}

    /// The state of affairs between the ends; `None` where it cannot be known.
    ///
    /// # Errors
    ///
    /// If the port is gone.
    fn vitals(&self) -> io::Result<Option<Vitals>> {
        Ok(None)
    }

    /// A silent peer is asked again within that time, where that can be chosen.
    fn ask_within(&self, _: Duration) {}

    /// The peer is asked even where nothing is outstanding, and the stream ends where it is silent
    /// for so long; `None`: as [`Settings::idle`] had it.
    fn ask_idle(&self, _: Option<Duration>) {}

    /// Ends the stream when bytes stay unacknowledged for so long (`None`: never), on a port whose
    /// [`Self::vitals`] says nothing.
    fn bound_silence(&self, _: Option<Duration>) {}

    /// From now on its traffic counts on the port of an RDMA device with this number among those of
    /// all devices, for other processes.
    #[doc(hidden)]
    fn count_on(&mut self, _: usize) {}

    /// True if it is the system's own, whose ends are processes of this host or others: then its
    /// bytes may go another way between them. A port around another one says no, as it is there to
    /// see them.
    #[doc(hidden)]
    fn is_systems(&self) -> bool {
        false
    }

    /// Its place in a capture, where it may be in one.
    #[doc(hidden)]
    #[allow(private_interfaces, reason = "hidden from programs, whose ports are in none")]
    fn tap(&self) -> Option<&Tap> {
        None
    }

    /// The port, where it may move to shared memory.
    #[doc(hidden)]
    #[allow(private_interfaces, reason = "hidden from programs, which have no such port")]
    fn local(&self) -> Option<&local::LocalPort> {
        None
    }
}

/// A listening address, at which connections come in.
pub trait Acceptor: Send + Sync + Debug {
    /// Takes a connection that is waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where none is; a shortage of descriptors or memory, where it goes on waiting;
    /// anything else concerns that connection only.
    fn accept(&self) -> io::Result<Box<dyn Port>>;

    /// Takes a connection that is waiting and closes it, with the spare descriptor if it needs one.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where none is waiting.
    fn refuse_one(&self, _: &mut Spare) -> io::Result<()> {
        self.accept().map(drop)
    }

    /// The descriptors that report that a connection is waiting, by their input.
    fn descriptors(&self) -> Descriptors<'_>;

    /// The one that this process, a forked child, has of this one, its parent's, which came of a
    /// reservation that was [bequeathed](Reservation::bequeath).
    ///
    /// # Errors
    ///
    /// `Unsupported`; `EBADF` where the child has closed it.
    fn inherit(&self) -> io::Result<Box<dyn Acceptor>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Ends listening: no connection comes in any more, nor in forked children.
    fn end(&self) {}
}

/// An address and port that no other socket gets as long as this lives.
pub trait Reservation: Send + Sync + Debug {
    /// The address and port.
    ///
    /// # Errors
    ///
    /// From the system.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Sets what the packets of connections carry that come of it.
    ///
    /// # Errors
    ///
    /// From the system.
    fn set_traffic_class(&self, _: u8) -> io::Result<()> {
        Ok(())
    }

    /// From now on forked children have it as well, to [`inherit`](Self::inherit) it.
    fn bequeath(&self) {}

    /// From now on a TCP socket of the program's own, in this process, may have the address as
    /// well, where that can be: connections of either kind then find the listener that they are
    /// for.
    fn admit_program(&self) {}

    /// The one that this process, a forked child, has of this one, its parent's.
    ///
    /// # Errors
    ///
    /// `Unsupported`; `EBADF` where the child has closed it.
    fn inherit(&self) -> io::Result<Box<dyn Reservation>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Connections come in here from now on: `backlog` of them may wait.
    ///
    /// # Errors
    ///
    /// The reservation, and what was wrong: `AddrInUse` where another that shares the port listens.
    fn listen(
        self: Box<Self>,
        backlog: u32,
    ) -> Result<Box<dyn Acceptor>, (Box<dyn Reservation>, io::Error)>;

    /// Connections come in at one address of the port, which stays reserved at all of them.
    ///
    /// # Errors
    ///
    /// `AddrNotAvailable`; `AddrInUse` where something listens there.
    fn listen_at(&self, ip: IpAddr, scope_id: u32, backlog: u32) -> io::Result<Box<dyn Acceptor>>;

    /// Begins a connection from here. Options of [`Network::connect`].
    ///
    /// # Errors
    ///
    /// As there.
    fn connect(
        self: Box<Self>,
        peer: SocketAddr,
        traffic_class: Option<u8>,
    ) -> io::Result<Box<dyn Port>>;
}

/// The maker of ports: the network as one host sees it.
pub trait Network: Send + Sync + Debug {
    /// Takes an address (port 0: any) without listening yet: peers are refused.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`.
    fn reserve(
        &self,
        addr: SocketAddr,
        ipv6: Ipv6Listen,
        sharing: Sharing,
    ) -> io::Result<Box<dyn Reservation>>;

    /// As [`Self::reserve`], where a TCP socket of the program's own has the address: see
    /// [`Reservation::admit_program`].
    ///
    /// # Errors
    ///
    /// As there; `AddrInUse` where that cannot be, or anything else has the address.
    fn reserve_beside_program(
        &self,
        _: SocketAddr,
        _: Ipv6Listen,
    ) -> io::Result<Box<dyn Reservation>> {
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Begins a connection to `peer`, from `local` if given (port 0: any).
    ///
    /// # Errors
    ///
    /// `AddrInUse`, `AddrNotAvailable`, `NetworkUnreachable`; `ConnectionRefused` where that is
    /// known at once. Else the port tells the outcome.
    fn connect(
        &self,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        traffic_class: Option<u8>,
    ) -> io::Result<Box<dyn Port>>;

    /// A connection of one end at an address of this host: what is sent comes back.
    ///
    /// # Errors
    ///
    /// `AddrNotAvailable`, `TimedOut`.
    fn looped(&self, ip: IpAddr, scope_id: u32) -> io::Result<Box<dyn Port>>;

    /// The address of this host from which `peer` is reached.
    ///
    /// # Errors
    ///
    /// `NetworkUnreachable`, `HostUnreachable`.
    fn source_for(&self, peer: SocketAddr) -> io::Result<IpAddr>;

    /// The owner of the process that has the end `theirs` of a connection with `ours`.
    ///
    /// # Errors
    ///
    /// When `theirs` is within this host and nothing says whose it is.
    fn owner_of(&self, theirs: SocketAddr, ours: SocketAddr) -> io::Result<Owner>;
}

/// The addresses of a connection's ends, kept because asking the system costs a call each time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// Ours, where it is known.
    pub local: Option<SocketAddr>,
    /// The peer's.
    pub peer: SocketAddr,
}

impl Ends {
    /// The peer's address for people: of an IPv4 address on an IPv6 socket they want the former.
    pub fn name(&self) -> SocketAddr {
        SocketAddr::new(self.peer.ip().to_canonical(), self.peer.port())
    }
}

/// Locks what no panic leaves in a state that others could not go on with.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An IPv4 address as such, where an IPv6 socket has it.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        ip if ip == addr.ip() => addr,
        ip => SocketAddr::new(ip, addr.port()),
    }
}

/// The device's options for a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings<'a> {
    /// The time that it is idle before the peer is asked whether it is there; `None`: for ever.
    pub idle: Option<Duration>,
    /// Congestion control within this host; `None`: the system's default.
    pub local_congestion: Option<&'a str>,
}

/// The network and the clock that a device uses.
#[derive(Clone, Debug)]
pub struct Platform {
    /// Makes its connections.
    pub network: Arc<dyn Network>,
    /// Makes its ports for datagrams; `None` where there are none.
    pub datagrams: Option<Arc<dyn DatagramNetwork>>,
    /// The times of connection set-up.
    pub clock: Clock,
}
