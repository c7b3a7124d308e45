// SPDX-License-Identifier: MIT OR Apache-2.0

//! The addresses of this host.
//!
//! (Considered for the MTU of an interface: `if-addrs`, which has neither flags nor links without
//! addresses.)

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::ifaddrs::InterfaceAddress;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use rustix::ioctl::{Opcode, Updater};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// Index, which is also the scope of its link-local addresses.
    pub index: u32,
    /// Switched on (`IFF_UP`).
    pub up: bool,
    /// Able to carry packets: has a link (`IFF_RUNNING`).
    pub running: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// A link with one other end: a tunnel, a VPN.
    pub point_to_point: bool,
    /// A bridge: its address is often the same on many hosts (`docker0`).
    pub bridge: bool,
    /// Largest packet in bytes, if known.
    pub mtu: Option<u32>,
    /// Ethernet address, if it has one.
    pub mac: Option<[u8; 6]>,
    /// Its addresses, in the system's order.
    pub addrs: Vec<InterfaceAddr>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddr {
    /// The address.
    pub ip: IpAddr,
    /// Length of the network's prefix in bits.
    pub prefix_len: u8,
    /// Scope of a link-local IPv6 address, else 0.
    pub scope_id: u32,
}

/// All interfaces, in the system's order, with their addresses.
///
/// # Errors
///
/// When the system does not tell: no netlink in a sandbox, no descriptors left.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let probe = udp_socket(AddressFamily::INET).or_else(|_| udp_socket(AddressFamily::INET6))?;
    let mut found: Vec<Interface> = Vec::new();
    for entry in nix::ifaddrs::getifaddrs()? {
        // An IPv4 address may carry a label of its own ("eth0:1").
        let name = entry.interface_name.split(':').next().unwrap_or_default();
        let place = match found.iter().position(|known| known.name == name) {
            Some(place) => place,
            None => {
                found.push(describe(&probe, name, entry.flags));
                found.len() - 1
            }
        };
        let interface = &mut found[place];
        interface.mac = interface.mac.or(mac(&entry));
        interface.addrs.extend(address(&entry));
    }
    Ok(found)
}

/// True if this host has an interface of that name.
pub fn is_interface(name: &str) -> bool {
    let probe = udp_socket(AddressFamily::INET).or_else(|_| udp_socket(AddressFamily::INET6));
    probe.is_ok_and(|probe| rustix::net::netdevice::name_to_index(probe, name).is_ok())
}

/// True if the address is one of this host's interfaces, in this network namespace. All are on a
/// system that lets sockets have other hosts' addresses (`net.ipv4.ip_nonlocal_bind`).
pub fn is_own(addr: SocketAddr) -> bool {
    let (mut addr, family) = match addr {
        SocketAddr::V4(_) => (addr, AddressFamily::INET),
        SocketAddr::V6(_) => (addr, AddressFamily::INET6),
    };
    addr.set_port(0);
    udp_socket(family).is_ok_and(|socket| rustix::net::bind(&socket, &addr).is_ok())
}

/// The address that packets to `destination` would have as their source. Sends nothing.
///
/// # Errors
///
/// `NetworkUnreachable` and its like where there is no route.
pub fn source_for(destination: IpAddr) -> io::Result<IpAddr> {
    source_for_scoped(SocketAddr::new(destination, DISCARD))
}

/// The address that packets to `destination` would have as their source, where its scope matters
/// (link-local IPv6). The port is not used, but must not be zero.
///
/// # Errors
///
/// As [`source_for`].
pub fn source_for_scoped(destination: SocketAddr) -> io::Result<IpAddr> {
    let family = if destination.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = udp_socket(family)?;
    // Connecting a datagram socket looks up the route and picks the source, no more.
    rustix::net::connect(&socket, &destination)?;
    Ok(SocketAddr::try_from(rustix::net::getsockname(&socket)?)?.ip())
}

/// The IPv4 source address of the default route, if there is one.
pub fn default_source_v4() -> Option<IpAddr> {
    // Documentation networks (RFC 5737): never routed specially, except where an administrator
    // blocks one of them.
    [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(203, 0, 113, 1)]
        .into_iter()
        .find_map(|somewhere| source_for(somewhere.into()).ok())
        .filter(|source| !source.is_unspecified())
}

/// The IPv6 source address of the default route, if there is one.
pub fn default_source_v6() -> Option<IpAddr> {
    // The documentation prefixes (RFC 3849, RFC 9637), for the same reason.
    [Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 1)]
        .into_iter()
        .find_map(|somewhere| source_for(somewhere.into()).ok())
        .filter(|source| !source.is_unspecified())
}

/// The addresses of `interfaces` that are up, in the order in which a device should offer them: the
/// sources of the default routes, then other global addresses; those of bridges, link-local and
/// loopback ones last, because several hosts may own them.
pub fn by_reach(interfaces: &[Interface]) -> Vec<(InterfaceAddr, &Interface)> {
    order(interfaces, [default_source_v4(), default_source_v6()])
}

fn order(
    interfaces: &[Interface],
    sources: [Option<IpAddr>; 2],
) -> Vec<(InterfaceAddr, &Interface)> {
    let up = interfaces.iter().filter(|interface| interface.up);
    let mut found: Vec<_> = up
        .flat_map(|interface| interface.addrs.iter().map(move |addr| (*addr, interface)))
        .collect();
    found.sort_by_key(|(addr, interface)| {
        let ip = addr.ip;
        match sources.iter().position(|source| *source == Some(ip)) {
            _ if interface.loopback || ip.is_loopback() => 5,
            _ if is_link_local(ip) => 4,
            Some(place) => place,
            None if interface.bridge => 3,
            None => 2,
        }
    });
    found
}

/// True if an address means something on its own link only.
pub const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// The port of the discard service. Any but zero would do.
const DISCARD: u16 = 9;

fn udp_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?)
}

fn describe(probe: &OwnedFd, name: &str, flags: InterfaceFlags) -> Interface {
    Interface {
        name: name.to_owned(),
        index: rustix::net::netdevice::name_to_index(probe, name).unwrap_or(0),
        up: flags.contains(InterfaceFlags::IFF_UP),
        running: flags.contains(InterfaceFlags::IFF_RUNNING),
        loopback: flags.contains(InterfaceFlags::IFF_LOOPBACK),
        point_to_point: flags.contains(InterfaceFlags::IFF_POINTOPOINT),
        bridge: Path::new("/sys/class/net").join(name).join("bridge").exists(),
        mtu: mtu(probe, name),
        mac: None,
        addrs: Vec::new(),
    }
}

/// Each interface has one entry with the address of its link.
fn mac(entry: &InterfaceAddress) -> Option<[u8; 6]> {
    let link = entry.address.as_ref()?.as_link_addr()?;
    if link.hatype() == libc::ARPHRD_ETHER { link.addr() } else { None }
}

fn address(entry: &InterfaceAddress) -> Option<InterfaceAddr> {
    let (ip, scope_id) = inet(entry.address.as_ref())?;
    let prefix_len = match inet(entry.netmask.as_ref()) {
        Some((IpAddr::V4(mask), _)) => mask.to_bits().count_ones(),
        Some((IpAddr::V6(mask), _)) => mask.to_bits().count_ones(),
        None => 0,
    };
    Some(InterfaceAddr { ip, prefix_len: prefix_len as u8, scope_id })
}

fn inet(addr: Option<&SockaddrStorage>) -> Option<(IpAddr, u32)> {
    let addr = addr?;
    let v4 = addr.as_sockaddr_in().map(|v4| (v4.ip().into(), 0));
    v4.or_else(|| addr.as_sockaddr_in6().map(|v6| (v6.ip().into(), v6.scope_id())))
}

fn mtu(probe: &OwnedFd, name: &str) -> Option<u32> {
    // SAFETY: plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One place stays zero, as the end of the name.
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as _;
    }
    // SAFETY: SIOCGIFMTU reads and writes one `ifreq`.
    let question = unsafe { Updater::<{ libc::SIOCGIFMTU as Opcode }, _>::new(&mut request) };
    // SAFETY: as above.
    unsafe { rustix::ioctl::ioctl(probe, question) }.ok()?;
    // SAFETY: after SIOCGIFMTU the union holds the MTU.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_there() {
        let all = interfaces().unwrap();
        let lo = all.iter().find(|interface| interface.loopback).unwrap();
        assert!(lo.up && !lo.bridge && !lo.point_to_point);
        assert_ne!(lo.index, 0);
        assert!(lo.mtu.unwrap() >= 1280);
        assert_eq!(lo.mac, None, "a loopback device has no Ethernet address");
        let localhost =
            InterfaceAddr { ip: Ipv4Addr::LOCALHOST.into(), prefix_len: 8, scope_id: 0 };
        assert!(lo.addrs.contains(&localhost), "{lo:?}");
    }

    #[test]
    fn reported_interfaces_match_the_system() {
        for interface in interfaces().unwrap() {
            let shown = |file: &str| {
                let path = format!("/sys/class/net/{}/{file}", interface.name);
                std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
            };
            let Some(index) = shown("ifindex") else { continue };
            assert_eq!(interface.index.to_string(), index);
            assert_eq!(interface.mtu.map(|mtu| mtu.to_string()), shown("mtu"));
            if shown("type").as_deref() == Some("1") {
                let mac: Vec<_> =
                    interface.mac.unwrap().iter().map(|octet| format!("{octet:02x}")).collect();
                assert_eq!(Some(mac.join(":")), shown("address"));
            }
        }
    }

    #[test]
    fn every_address_can_be_bound_and_has_its_scope() {
        for interface in interfaces().unwrap() {
            for addr in interface.addrs {
                match addr.ip {
                    IpAddr::V4(_) => assert!(addr.prefix_len <= 32),
                    IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                        assert_eq!(addr.scope_id, interface.index);
                    }
                    IpAddr::V6(_) => assert!(addr.prefix_len <= 128),
                }
                if let IpAddr::V4(ip) = addr.ip {
                    std::net::UdpSocket::bind((ip, 0)).unwrap();
                }
            }
        }
    }

    fn interface(name: &str, ips: &[&str]) -> Interface {
        let addrs = ips.iter().map(|ip| InterfaceAddr {
            ip: ip.parse().unwrap(),
            prefix_len: 24,
            scope_id: 0,
        });
        Interface {
            name: name.to_owned(),
            index: 1,
            up: name != "down0",
            running: true,
            loopback: name == "lo",
            point_to_point: false,
            bridge: name == "br0",
            mtu: Some(1500),
            mac: None,
            addrs: addrs.collect(),
        }
    }

    #[test]
    fn addresses_that_many_hosts_own_come_last() {
        let interfaces = [
            interface("lo", &["127.0.0.1", "::1"]),
            interface("down0", &["198.51.100.1"]),
            interface("br0", &["198.51.100.77"]),
            interface("eth7", &["fe80::7", "2001:db8::7", "198.51.100.7"]),
            interface("eth8", &["203.0.113.8", "2001:db8::8"]),
        ];
        let sources = ["203.0.113.8", "2001:db8::8"].map(|ip| ip.parse().ok());
        let order: Vec<_> =
            order(&interfaces, sources).iter().map(|(addr, _)| addr.ip.to_string()).collect();
        assert_eq!(
            order,
            [
                "203.0.113.8",
                "2001:db8::8",
                "2001:db8::7",
                "198.51.100.7",
                "198.51.100.77",
                "fe80::7",
                "127.0.0.1",
                "::1"
            ]
        );
    }

    #[test]
    fn the_source_for_loopback_is_loopback() {
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(source_for(Ipv4Addr::new(127, 1, 2, 3).into()).unwrap(), localhost);
    }

    #[test]
    fn the_default_source_is_an_address_of_ours() {
        let all = interfaces().unwrap();
        for source in [default_source_v4(), default_source_v6()].into_iter().flatten() {
            let ours = all.iter().flat_map(|interface| &interface.addrs).any(|a| a.ip == source);
            assert!(ours, "{source} is on no interface");
        }
    }
}
