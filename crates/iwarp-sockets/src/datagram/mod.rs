// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagram sockets: a UDP socket, by which ends find each other's queue pairs, and UD queue pairs
//! (RS-DG-01).
//!
//! The driver owns both and makes address handles. This core decides by which of them a datagram
//! goes, and what its header says.
//!
//! ```text
//!   send           a datagram goes out: by which way, behind which header
//!   received_udp   one came over UDP: its data, an answer, a queue pair to make a handle for
//!   resolved       the handle is made
//!   received_ud    one came over UD: its sender and data
//!   connect        the peer is fixed
//! ```

mod destinations;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use iwarp_types::Time;
use thiserror::Error;

use self::destinations::Destinations;
use crate::wire::{DatagramError, QPN_MASK, UdHeader, UdpHeader, UdpOp};

/// Q_Key of all UD queue pairs of rsockets.
pub const QKEY: u32 = 0x0123_4567;
/// Octets of the longest datagram with its header; a receive over UD has room for so many behind
/// those of the GRH.
pub const SLOT_LEN: usize = 2048;

/// The settings of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Destinations to remember; at least 1. Each has an address handle.
    pub destinations: usize,
    /// Time without a datagram from a destination after which one goes by UDP again, in case its
    /// queue pair is another by now (RS-DG-10).
    pub silence: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { destinations: 1024, silence: Duration::from_secs(10) }
    }
}

/// The local end of a datagram's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Local {
    /// Local address for the destination, and the socket's UDP port.
    pub addr: SocketAddr,
    /// Number of the queue pair at that address.
    pub qpn: u32,
    /// Octets that a packet of the way holds.
    pub mtu: usize,
}

/// The way of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way<'a, H> {
    /// By the queue pair.
    Ud {
        /// The destination's address handle.
        handle: &'a H,
        /// The destination's queue pair.
        qpn: u32,
        /// The header in front of the data.
        header: UdHeader,
    },
    /// By the UDP socket.
    Udp {
        /// The destination.
        to: SocketAddr,
        /// The header in front of the data.
        header: UdpHeader,
    },
}

/// The reason why a datagram cannot be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SendError {
    /// There is no destination: `EDESTADDRREQ`.
    #[error("the datagram socket is not connected, and the call names no destination")]
    NoDestination,
    /// It is too long: `EMSGSIZE`.
    #[error("a datagram of {len} octets is longer than the {most} that fit")]
    TooLong {
        /// Its octets.
        len: usize,
        /// The most that fit.
        most: usize,
    },
}

/// A queue pair of which this end has heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learned {
    /// Its socket. The handle is for the address of that, not for one in the header (RS-DG-09).
    pub peer: SocketAddr,
    /// Its number.
    pub qpn: u32,
}

/// A datagram that came over UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdpArrival<'a> {
    /// Data for the program.
    pub data: Option<&'a [u8]>,
    /// The header to answer with, alone.
    pub answer: Option<UdpHeader>,
    /// Make an address handle for it, and call [`resolved`](Datagrams::resolved).
    pub learned: Option<Learned>,
}

/// A datagram socket. `H` is the driver's address handle.
#[derive(Clone, Debug)]
pub struct Datagrams<H> {
    config: Config,
    destinations: Destinations<H>,
    peer: Option<SocketAddr>,
}

impl<H> Datagrams<H> {
    /// A socket that knows no destination.
    pub fn new(config: Config) -> Self {
        Self { config, destinations: Destinations::new(config.destinations.max(1)), peer: None }
    }

    /// Fixes the peer: others' datagrams are dropped. `None` dissolves that.
    pub fn connect(&mut self, peer: Option<SocketAddr>) {
        self.peer = peer;
    }

    /// The peer, if it is fixed.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Octets of the longest datagram to such an address. It fits behind either header, as it may
    /// take either way.
    pub fn most(to: IpAddr) -> usize {
        SLOT_LEN - UdpHeader { op: UdpOp::Data, qpn: 0, addr: to }.len()
    }

    /// The way of a datagram of `len` octets, to the peer unless a destination is named. A
    /// datagram that no packet holds goes by the UDP socket, which divides it (RS-DG-05).
    pub fn send(
        &mut self,
        to: Option<SocketAddr>,
        len: usize,
        local: &Local,
        now: Time,
    ) -> Result<Way<'_, H>, SendError> {
        let to = to.or(self.peer).ok_or(SendError::NoDestination)?;
        let most = Self::most(to.ip());
        if len > most {
            return Err(SendError::TooLong { len, most });
        }
        let header = UdHeader { source: local.addr };
        let fits = header.len() + len <= local.mtu;
        let destination = self.destinations.used(plain(to), now);
        let Some(known) =
            destination.filter(|known| fits && !known.is_silent(now, self.config.silence))
        else {
            return Ok(Way::Udp { to, header: udp_header(UdpOp::Data, local) });
        };
        Ok(Way::Ud { handle: &known.handle, qpn: known.qpn, header })
    }

    /// A datagram came over UDP from `source`.
    pub fn received_udp<'a>(
        &mut self,
        source: SocketAddr,
        octets: &'a [u8],
        local: &Local,
        now: Time,
    ) -> Result<UdpArrival<'a>, DatagramError> {
        let (header, data) = UdpHeader::read(octets)?;
        if self.is_stranger(source) {
            return Ok(UdpArrival::default());
        }
        let is_known = self.destinations.heard(plain(source), Some(header.qpn), now);
        let learned = (!is_known).then_some(Learned { peer: source, qpn: header.qpn });
        Ok(match header.op {
            UdpOp::Data => {
                let answer = Some(udp_header(UdpOp::Control, local));
                UdpArrival { data: Some(data), answer, learned }
            }
            // Never answered, or two ends would answer each other for ever.
            UdpOp::Control => UdpArrival { data: None, answer: None, learned },
        })
    }

    /// The address handle for a queue pair is made. A handle that it takes the place of, or that is
    /// forgotten for it, comes back.
    pub fn resolved(&mut self, learned: Learned, handle: H, now: Time) -> Option<H> {
        self.destinations.insert(plain(learned.peer), learned.qpn, handle, now)
    }

    /// A datagram came over UD: its sender and data; `None` if a peer is fixed, and it is another.
    pub fn received_ud<'a>(
        &mut self,
        octets: &'a [u8],
        now: Time,
    ) -> Result<Option<(SocketAddr, &'a [u8])>, DatagramError> {
        let (UdHeader { source }, data) = UdHeader::read(octets)?;
        if self.is_stranger(source) {
            return Ok(None);
        }
        self.destinations.heard(plain(source), None, now);
        Ok(Some((source, data)))
    }

    /// Forgets a destination whose handle is of no use: the handle.
    pub fn forget(&mut self, peer: SocketAddr) -> Option<H> {
        self.destinations.remove(plain(peer))
    }

    /// All handles, at the end.
    pub fn into_handles(self) -> impl Iterator<Item = H> {
        self.destinations.into_handles()
    }

    fn is_stranger(&self, source: SocketAddr) -> bool {
        self.peer.is_some_and(|peer| plain(peer) != plain(source))
    }
}

fn udp_header(op: UdpOp, local: &Local) -> UdpHeader {
    UdpHeader { op, qpn: local.qpn & QPN_MASK, addr: local.addr.ip() }
}

/// The address without what differs between datagrams of one socket: flow, and the scope that only
/// one of the two headers has.
fn plain(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip(), addr.port())
}
