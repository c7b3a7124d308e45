//! The addresses of this host.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::ptr::NonNull;

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
    /// Largest packet in octets, if known.
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
    let list = IfAddrs::new()?;
    let mut found: Vec<Interface> = Vec::new();
    for entry in list.iter() {
        // SAFETY: `getifaddrs` gives each entry a NUL-terminated name that lives as long as the
        // list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy();
        // An IPv4 address may carry a label of its own ("eth0:1").
        let name = name.split(':').next().unwrap_or_default();
        let place = match found.iter().position(|known| known.name == name) {
            Some(place) => place,
            None => {
                found.push(describe(&probe, name, entry.ifa_flags));
                found.len() - 1
            }
        };
        // SAFETY: address and netmask are null or point to what `getifaddrs` filled in.
        found[place].addrs.extend(unsafe { address(entry) });
    }
    Ok(found)
}

/// Whether this host has an interface of that name.
pub fn is_interface(name: &str) -> bool {
    let probe = udp_socket(AddressFamily::INET).or_else(|_| udp_socket(AddressFamily::INET6));
    probe.is_ok_and(|probe| rustix::net::netdevice::name_to_index(probe, name).is_ok())
}

/// The address that packets to `destination` would have as their source. Nothing is sent.
///
/// # Errors
///
/// `NetworkUnreachable` and its like where there is no route.
pub fn source_for(destination: IpAddr) -> io::Result<IpAddr> {
    source_for_scoped(SocketAddr::new(destination, DISCARD))
}

/// As [`source_for`], for a destination whose scope matters (link-local IPv6). The port is not
/// used, but must not be zero.
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

/// The addresses of `interfaces` that are up, in the order in which a device should offer them:
/// the sources of the default routes, then other global addresses; those of bridges, link-local
/// and loopback ones last, because several hosts may own the same.
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

/// Whether an address means something on its own link only.
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

fn describe(probe: &OwnedFd, name: &str, flags: u32) -> Interface {
    let has = |flag: std::ffi::c_int| flags & flag as u32 != 0;
    Interface {
        name: name.to_owned(),
        index: rustix::net::netdevice::name_to_index(probe, name).unwrap_or(0),
        up: has(libc::IFF_UP),
        running: has(libc::IFF_RUNNING),
        loopback: has(libc::IFF_LOOPBACK),
        point_to_point: has(libc::IFF_POINTOPOINT),
        bridge: Path::new("/sys/class/net").join(name).join("bridge").exists(),
        mtu: mtu(probe, name),
        mac: mac(probe, name),
        addrs: Vec::new(),
    }
}

fn mtu(probe: &OwnedFd, name: &str) -> Option<u32> {
    let answer = ask::<{ libc::SIOCGIFMTU as Opcode }>(probe, name)?;
    // SAFETY: after SIOCGIFMTU the union holds the MTU.
    u32::try_from(unsafe { answer.ifr_ifru.ifru_mtu }).ok()
}

fn mac(probe: &OwnedFd, name: &str) -> Option<[u8; 6]> {
    let answer = ask::<{ libc::SIOCGIFHWADDR as Opcode }>(probe, name)?;
    // SAFETY: after SIOCGIFHWADDR the union holds the hardware address.
    let hardware = unsafe { answer.ifr_ifru.ifru_hwaddr };
    if hardware.sa_family != libc::ARPHRD_ETHER {
        return None;
    }
    Some(std::array::from_fn(|octet| hardware.sa_data[octet] as u8))
}

/// Asks about an interface with an `ioctl` that takes a name and answers in `ifreq`'s union.
fn ask<const QUESTION: Opcode>(probe: &OwnedFd, name: &str) -> Option<libc::ifreq> {
    // SAFETY: plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One place stays zero, as the end of the name.
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as _;
    }
    // SAFETY: private to this file, and called with questions that read and write one `ifreq`.
    unsafe { rustix::ioctl::ioctl(probe, Updater::<QUESTION, _>::new(&mut request)) }.ok()?;
    Some(request)
}

/// # Safety
///
/// Address and netmask of `entry` are null or point to socket addresses.
unsafe fn address(entry: &libc::ifaddrs) -> Option<InterfaceAddr> {
    // SAFETY: from the caller.
    let (addr, mask) = unsafe { (inet(entry.ifa_addr)?, inet(entry.ifa_netmask)) };
    let prefix_len = mask.map_or(0, |(mask, _)| match mask {
        IpAddr::V4(mask) => mask.to_bits().count_ones(),
        IpAddr::V6(mask) => mask.to_bits().count_ones(),
    });
    let (ip, scope_id) = addr;
    Some(InterfaceAddr { ip, prefix_len: prefix_len as u8, scope_id })
}

/// # Safety
///
/// `addr` is null or points to a socket address of its family's size.
unsafe fn inet(addr: *const libc::sockaddr) -> Option<(IpAddr, u32)> {
    // SAFETY: from the caller; the family, the first field, says what the rest is. Read without
    // alignment, as the pointer promises only that of `sockaddr`.
    unsafe {
        match libc::c_int::from(addr.as_ref()?.sa_family) {
            libc::AF_INET => {
                let v4 = addr.cast::<libc::sockaddr_in>().read_unaligned();
                Some((Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr)).into(), 0))
            }
            libc::AF_INET6 => {
                let v6 = addr.cast::<libc::sockaddr_in6>().read_unaligned();
                Some((Ipv6Addr::from(v6.sin6_addr.s6_addr).into(), v6.sin6_scope_id))
            }
            _ => None,
        }
    }
}

/// The C library's list.
struct IfAddrs {
    first: *mut libc::ifaddrs,
}

impl IfAddrs {
    fn new() -> io::Result<Self> {
        let mut first = std::ptr::null_mut();
        // SAFETY: writes the head of a list, which may be null, to `first`.
        if unsafe { libc::getifaddrs(&mut first) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(IfAddrs { first })
    }

    fn iter(&self) -> impl Iterator<Item = &libc::ifaddrs> {
        let mut next = NonNull::new(self.first);
        std::iter::from_fn(move || {
            // SAFETY: an entry of the list, which lives as long as `self`.
            let entry = unsafe { next?.as_ref() };
            next = NonNull::new(entry.ifa_next);
            Some(entry)
        })
    }
}

impl Drop for IfAddrs {
    fn drop(&mut self) {
        // SAFETY: the list is `getifaddrs`' own, and no entry is borrowed any more.
        unsafe { libc::freeifaddrs(self.first) };
    }
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
    fn what_is_reported_is_what_the_system_shows() {
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
