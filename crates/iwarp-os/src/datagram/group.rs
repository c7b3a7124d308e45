// SPDX-License-Identifier: MIT OR Apache-2.0

//! Multicast.

use std::io;
use std::net::IpAddr;

use rustix::io::Errno;
use rustix::net::sockopt as option;

use super::DatagramSocket;

/// IPv4's options take an address or the number of an interface; the number wins.
const BY_NUMBER: std::net::Ipv4Addr = std::net::Ipv4Addr::UNSPECIFIED;

impl DatagramSocket {
    /// Has packets to `group` come in that arrive at an interface, by its index. Only those to the
    /// port of this socket are received, and, where the socket is bound to a group, only those to
    /// that one.
    ///
    /// # Errors
    ///
    /// `AddrInUse` where it has joined already; `InvalidInput` where that is no group of the
    /// socket's family; `NotFound` (`ENODEV`) for an interface that is not there.
    pub fn join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        let done = match self.checked(group)? {
            IpAddr::V4(group) => {
                option::set_ip_add_membership_with_ifindex(self, &group, &BY_NUMBER, interface)
            }
            IpAddr::V6(group) => option::set_ipv6_add_membership(self, &group, interface),
        };
        done.map_err(io::Error::from)
    }

    /// Takes [`Self::join`] back.
    ///
    /// # Errors
    ///
    /// `AddrNotAvailable` where it has not joined.
    pub fn leave(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        let done = match self.checked(group)? {
            IpAddr::V4(group) => {
                option::set_ip_drop_membership_with_ifindex(self, &group, &BY_NUMBER, interface)
            }
            IpAddr::V6(group) => option::set_ipv6_drop_membership(self, &group, interface),
        };
        done.map_err(io::Error::from)
    }

    /// Has packets to groups go out at that interface, unless a message names another.
    ///
    /// # Errors
    ///
    /// `NotFound` (`ENODEV`), `AddrNotAvailable` for an interface that is not there.
    pub fn send_to_groups_by(&self, interface: u32) -> io::Result<()> {
        if self.has_ipv6() {
            option::set_ipv6_multicast_if(self, interface)?;
        }
        if self.has_ipv4() {
            option::set_ip_multicast_if_with_ifindex(self, &BY_NUMBER, &BY_NUMBER, interface)?;
        }
        Ok(())
    }

    /// Gives packets to groups so many hops to live, unless a message says otherwise, and has them
    /// reach sockets of this host too where `looped`.
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn send_to_groups(&self, hops: u8, looped: bool) -> io::Result<()> {
        if self.has_ipv6() {
            option::set_ipv6_multicast_hops(self, hops.into())?;
            option::set_ipv6_multicast_loop(self, looped)?;
        }
        if self.has_ipv4() {
            option::set_ip_multicast_ttl(self, hops.into())?;
            option::set_ip_multicast_loop(self, looped)?;
        }
        Ok(())
    }

    fn checked(&self, group: IpAddr) -> io::Result<IpAddr> {
        let ours = if group.is_ipv6() { self.has_ipv6() } else { self.has_ipv4() };
        if !ours || !group.is_multicast() {
            return Err(Errno::INVAL.into());
        }
        Ok(group)
    }
}
