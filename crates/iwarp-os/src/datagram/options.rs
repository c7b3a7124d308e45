// SPDX-License-Identifier: MIT OR Apache-2.0

//! Options that are set once.

use std::ffi::c_int;
use std::io;
use std::os::fd::AsFd;

use rustix::net::sockopt as option;

use super::DatagramSocket;
use crate::sockopt;

/// The ways in which a socket learns that packets are too long; both forbid fragmentation, and let
/// IPv4 packets go out with identification 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// From routers (`IP_PMTUDISC_DO`): sending more than the path takes is
    /// [`Refusal::TooLong`](super::Refusal::TooLong).
    Routers,
    /// From the interface alone (`IP_PMTUDISC_PROBE`): routers are not believed, and a packet that
    /// is too long for one of them is lost.
    Interface,
}

/// The room that the system granted, in bytes of its own memory: a packet takes some hundred bytes
/// more than it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// For packets that were not received yet; excess packets are dropped silently.
    pub receive: usize,
    /// For packets on their way out.
    pub send: usize,
}

/// Index in struct `sk_meminfo` of the number of packets that were dropped.
const DROPS: usize = 8;
const ON: c_int = 1;

impl DatagramSocket {
    /// Sets the options that every socket has; before it is bound, so that nothing comes in without
    /// them.
    pub(super) fn prepare(&self) -> io::Result<()> {
        let fd = self.as_fd();
        let udp = libc::SOL_UDP;
        self.set_discovery(Discovery::Routers)?;
        if self.has_ipv6() {
            let (ip, set) = (libc::IPPROTO_IPV6, sockopt::set_int);
            // Of packets of IPv4 it says where they were sent, too.
            if self.local.ip().is_unspecified() {
                set(fd, ip, libc::IPV6_RECVPKTINFO, ON)?;
            }
            set(fd, ip, libc::IPV6_RECVHOPLIMIT, ON)?;
            option::set_ipv6_recvtclass(self, true)?;
            // RoCE's packets have no UDP checksum: without this the system drops them.
            set(fd, udp, libc::UDP_NO_CHECK6_RX, ON)?;
            // Of a socket that another process has bound it cannot be changed, and was set.
            if !self.dual && !option::ipv6_v6only(self)? {
                option::set_ipv6_v6only(self, true)?;
            }
            // Since Linux 4.20, and only for sockets of `::`.
            let _ = set(fd, ip, libc::IPV6_MULTICAST_ALL, 0);
        }
        if self.has_ipv4() {
            let ip = libc::IPPROTO_IP;
            // Costs a look at the routing table for each packet, and a socket of one address knows.
            if self.local.ip().is_unspecified() && !self.dual {
                sockopt::set_int(fd, ip, libc::IP_PKTINFO, ON)?;
            }
            sockopt::set_int(fd, ip, libc::IP_RECVTTL, ON)?;
            option::set_ip_recvtos(self, true)?;
            sockopt::set_int(fd, ip, libc::IP_MULTICAST_ALL, 0)?;
        }
        // Since Linux 5.0; without it packets come one by one.
        let _ = sockopt::set_int(fd, udp, libc::UDP_GRO, ON);
        Ok(())
    }

    /// Sets how it learns that packets are too long; at first [`Discovery::Routers`].
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn set_discovery(&self, discovery: Discovery) -> io::Result<()> {
        let choose = |[routers, interface]: [c_int; 2]| match discovery {
            Discovery::Routers => routers,
            Discovery::Interface => interface,
        };
        if self.has_ipv6() {
            let value = choose([libc::IPV6_PMTUDISC_DO, libc::IPV6_PMTUDISC_PROBE]);
            sockopt::set_int(self.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, value)?;
        }
        if self.has_ipv4() {
            let value = choose([libc::IP_PMTUDISC_DO, libc::IP_PMTUDISC_PROBE]);
            sockopt::set_int(self.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value)?;
        }
        Ok(())
    }

    /// True if the system can cut packets from one send (`UDP_SEGMENT`, Linux 4.18). A device or a
    /// route may refuse it all the same.
    pub fn can_segment(&self) -> bool {
        sockopt::int(self.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
    }

    /// Sets whether packets that came as a train may arrive in one piece (`UDP_GRO`); at first they
    /// may.
    ///
    /// # Errors
    ///
    /// From a system that cannot do it.
    pub fn set_merging(&self, merging: bool) -> io::Result<()> {
        sockopt::set_int(self.as_fd(), libc::SOL_UDP, libc::UDP_GRO, merging.into())
    }

    /// True if packets that came as a train may arrive in one piece.
    pub fn merges(&self) -> bool {
        sockopt::int(self.as_fd(), libc::SOL_UDP, libc::UDP_GRO).is_ok_and(|value| value != 0)
    }

    /// Sets whether packets go out with a UDP checksum; at first they do. Without one the system
    /// cuts no packets from a send.
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn set_checksums(&self, checksums: bool) -> io::Result<()> {
        let (fd, without) = (self.as_fd(), (!checksums).into());
        if self.has_ipv6() {
            sockopt::set_int(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_TX, without)?;
        }
        if self.has_ipv4() {
            sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, without)?;
        }
        Ok(())
    }

    /// The byte with DSCP and ECN bits of messages that do not bring their own: 2 says that the
    /// path may mark congestion (ECT(0)).
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        if self.has_ipv6() {
            option::set_ipv6_tclass(self, class.into())?;
        }
        if self.has_ipv4() {
            option::set_ip_tos(self, class)?;
        }
        Ok(())
    }

    /// Asks for buffers of so many bytes and returns the sizes granted: administrators set the most
    /// (`net.core.rmem_max`, `wmem_max`), and the system doubles the request. A process that may
    /// change the limit (CAP_NET_ADMIN) has a receive buffer beyond it.
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn set_buffers(&self, octets: usize) -> io::Result<Buffers> {
        let forced = option::set_socket_recv_buffer_size_force(self, octets);
        forced.or_else(|_| option::set_socket_recv_buffer_size(self, octets))?;
        option::set_socket_send_buffer_size(self, octets)?;
        self.buffers()
    }

    /// The buffers that it has.
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn buffers(&self) -> io::Result<Buffers> {
        let receive = option::socket_recv_buffer_size(self)?;
        Ok(Buffers { receive, send: option::socket_send_buffer_size(self)? })
    }

    /// Packets that came and were dropped as the receive buffer was full, since the socket was
    /// made; the number wraps. 0 where the system does not say.
    pub fn overruns(&self) -> u32 {
        let mut words = [0; (DROPS + 1) * size_of::<u32>()];
        let got = sockopt::octets(self.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, &mut words);
        match words.last_chunk() {
            Some(drops) if got.is_ok_and(|len| len == words.len()) => u32::from_ne_bytes(*drops),
            _ => 0,
        }
    }
}
