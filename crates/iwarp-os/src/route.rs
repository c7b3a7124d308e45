// SPDX-License-Identifier: MIT OR Apache-2.0

//! Routes by a certain interface.
//!
//! IPv4 takes a destination for one of the interface's own link where the routes know no way by
//! that interface, so that trying it out tells nothing: the routing tables have to be asked.

use std::io;
use std::net::IpAddr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Of `struct nlmsghdr`.
const HEAD: usize = 16;
/// Of `struct rtmsg`.
const ROUTE: usize = 12;
/// Of `struct rtattr`.
const ATTRIBUTE: usize = 4;

const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
/// `RTM_F_FIB_MATCH`: the entry of the table is the answer, and an error without one.
const FIB_MATCH: u32 = 0x2000;

/// True if the routes of this host have a way by `interface` from an address of that to another
/// host. Sends nothing.
///
/// # Errors
///
/// When the system does not tell: no netlink in a sandbox, no descriptors left.
pub fn leads_by(interface: u32, source: IpAddr, destination: IpAddr) -> io::Result<bool> {
    let (source, destination) = (source.to_canonical(), destination.to_canonical());
    if source.is_ipv4() != destination.is_ipv4() {
        return Ok(false);
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // The default protocol is NETLINK_ROUTE.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, None)?;
    rustix::net::send(&socket, &question(interface, source, destination), SendFlags::empty())?;
    // The kernel answers before the call returns.
    let mut room = [0_u8; 4096];
    let (got, _) = rustix::net::recv(&socket, &mut room[..], RecvFlags::DONTWAIT)?;
    answer(&room[..got], interface)
}

fn question(interface: u32, source: IpAddr, destination: IpAddr) -> Vec<u8> {
    let mut octets = vec![0; HEAD + ROUTE];
    octets[4..6].copy_from_slice(&libc::RTM_GETROUTE.to_ne_bytes());
    octets[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    let family = if source.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    octets[HEAD] = family.as_raw() as u8;
    let bits = if source.is_ipv4() { 32 } else { 128 };
    octets[HEAD + 1..HEAD + 3].fill(bits);
    octets[HEAD + 8..].copy_from_slice(&FIB_MATCH.to_ne_bytes());
    let mut put = |name: u16, value: &[u8]| {
        octets.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
        octets.extend(name.to_ne_bytes());
        octets.extend(value);
    };
    for (name, ip) in [(libc::RTA_DST, destination), (libc::RTA_SRC, source)] {
        match ip {
            IpAddr::V4(ip) => put(name, &ip.octets()),
            IpAddr::V6(ip) => put(name, &ip.octets()),
        }
    }
    put(libc::RTA_OIF, &interface.to_ne_bytes());
    let len = octets.len() as u32;
    octets[..4].copy_from_slice(&len.to_ne_bytes());
    octets
}

fn answer(octets: &[u8], interface: u32) -> io::Result<bool> {
    let truncated = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = octets.get(4..6).ok_or_else(truncated)?;
    let number = |at: usize| {
        let four = octets.get(at..at + 4).and_then(|four| four.try_into().ok());
        four.map(i32::from_ne_bytes).ok_or_else(truncated)
    };
    if kind == (libc::NLMSG_ERROR as u16).to_ne_bytes() {
        return match Errno::from_raw_os_error(-number(HEAD)?) {
            // So say entries against packets (unreachable, blackhole, prohibit), too.
            Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::INVAL | Errno::ACCESS => Ok(false),
            error => Err(error.into()),
        };
    }
    if kind != libc::RTM_NEWROUTE.to_ne_bytes() {
        return Err(truncated());
    }
    let mut rest = octets.get(HEAD + ROUTE..).ok_or_else(truncated)?;
    // An entry with several ways, of which one may be the interface's, has been looked up by that.
    let mut only = None;
    while let Some((head, _)) = rest.split_first_chunk::<ATTRIBUTE>() {
        let [a, b, c, d] = *head;
        let (len, name) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let Some(value) = rest.get(ATTRIBUTE..len) else { break };
        if name == libc::RTA_OIF {
            only = value.try_into().ok().map(u32::from_ne_bytes);
        }
        rest = rest.get(len.next_multiple_of(ATTRIBUTE)..).unwrap_or_default();
    }
    Ok(only.is_none_or(|only| only == interface))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut octets = vec![0; HEAD];
        octets[4..6].copy_from_slice(&kind.to_ne_bytes());
        octets.extend(content);
        octets
    }

    fn attribute(name: u16, value: u32) -> Vec<u8> {
        [&8_u16.to_ne_bytes()[..], &name.to_ne_bytes(), &value.to_ne_bytes()].concat()
    }

    #[test]
    fn only_an_entry_of_the_interface_is_a_way() {
        let entry = |attributes: &[Vec<u8>]| {
            let content = [&[0; ROUTE][..], &attributes.concat()].concat();
            answer(&message(libc::RTM_NEWROUTE, &content), 7).unwrap()
        };
        let table = attribute(libc::RTA_TABLE, 254);
        assert!(entry(&[table.clone(), attribute(libc::RTA_OIF, 7)]));
        assert!(!entry(&[table.clone(), attribute(libc::RTA_OIF, 8)]));
        assert!(entry(&[table]));
        // Lengths that make no sense end it.
        assert!(entry(&[vec![0, 0, 0, 0], attribute(libc::RTA_OIF, 8)]));
    }

    #[test]
    fn errors_that_are_none_of_the_routes_are_told() {
        let error = |number: i32| {
            let octets = message(libc::NLMSG_ERROR as u16, &(-number).to_ne_bytes());
            answer(&octets, 7).map_err(|error| error.raw_os_error())
        };
        assert_eq!(error(libc::EHOSTUNREACH), Ok(false));
        assert_eq!(error(libc::ENOMEM), Err(Some(libc::ENOMEM)));
        assert!(answer(&[0; 5], 7).is_err());
        assert!(answer(&message(libc::NLMSG_ERROR as u16, &[]), 7).is_err());
        assert!(answer(&message(libc::NLMSG_DONE as u16, &[0; 16]), 7).is_err());
    }

    #[test]
    fn families_do_not_mix() {
        let [four, six] = ["127.0.0.1", "::1"].map(|ip| ip.parse().unwrap());
        assert!(!leads_by(1, four, six).unwrap());
    }
}
