// SPDX-License-Identifier: MIT OR Apache-2.0

//! The user who has the other end of a TCP connection within this host.
//!
//! The system tells it to every user: `sock_diag` finds a socket by its two addresses, and where
//! that is denied or absent `/proc/net/tcp` and `tcp6` list them all. Users are seen as in our own
//! user namespace; one that it does not know is the overflow user (65534, mostly).
//!
//! (Considered: netlink crates, five of them for one question; `procfs`, which reads whole tables
//! into memory; and the C library's look-up of users, which loads modules that may ask the
//! network.)

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use crate::addr::source_for_scoped;

/// The owner of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A process of the user with this id.
    User(u32),
    /// No process: it was closed, or no program has accepted the connection yet.
    None,
    /// It is on another host, or in another network namespace.
    Elsewhere,
}

/// The owner of the socket at `addr` that is connected to `to`.
///
/// # Errors
///
/// When `addr` is an address of this host and the system tells nothing of its sockets.
pub fn owner_of(addr: SocketAddr, to: SocketAddr) -> io::Result<Owner> {
    let (addr, to) = (canonical(addr), canonical(to));
    if !addr.ip().is_loopback() && !source_for_scoped(addr).is_ok_and(|ip| ip == addr.ip()) {
        return Ok(Owner::Elsewhere);
    }
    // Not found also means that the kernel has no such module. So the list has the last word.
    if let Ok(owner @ Owner::User(_)) = asked(addr, to) {
        return Ok(owner);
    }
    listed(addr, to)
}

/// The owners of the UDP sockets that have an address and port, or all addresses and that port, as
/// far as the system tells.
pub fn udp_owners(addr: SocketAddr) -> Vec<Owner> {
    let addr = canonical(addr);
    // Of the thread: it may have another network than the process.
    let files = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
    let lines =
        files.iter().filter_map(|file| Some(BufReader::new(File::open(file).ok()?).lines()));
    let lines = lines.flat_map(|lines| lines.map_while(Result::ok));
    lines.filter_map(|line| udp_entry(&line, addr)).collect()
}

/// The owner that a line of that list names, if it is about such a socket.
fn udp_entry(line: &str, addr: SocketAddr) -> Option<Owner> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (ip, port) = end_of_entry(fields.next()?)?;
    let meet = ip == addr.ip() || ip.is_unspecified() || addr.ip().is_unspecified();
    if port != addr.port() || !meet {
        return None;
    }
    let uid = fields.nth(5)?.parse().ok()?;
    let inode: u64 = fields.nth(1)?.parse().ok()?;
    // The kernel's own have none.
    Some(if inode != 0 { Owner::User(uid) } else { Owner::None })
}

/// The user whose rights this process has, and the one that has started it.
pub fn own_users() -> [u32; 2] {
    [rustix::process::geteuid().as_raw(), rustix::process::getuid().as_raw()]
}

/// False where the number may be that of several users: our user namespace shows those that it does
/// not know under one number, which can be the own one as well.
pub fn is_known(user: u32) -> bool {
    /// The usual one, and the map of a namespace that knows all users.
    const OVERFLOW: u32 = 65_534;
    const ALL: [&str; 3] = ["0", "0", "4294967295"];
    let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    let overflow = overflow.ok().and_then(|number| number.trim().parse().ok());
    if user != overflow.unwrap_or(OVERFLOW) {
        return true;
    }
    let map = std::fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| map.split_ascii_whitespace().eq(ALL))
}

/// The id of the user with that name in `/etc/passwd`.
pub fn user_id(name: &str) -> Option<u32> {
    let lines = BufReader::new(File::open("/etc/passwd").ok()?).lines();
    lines.map_while(Result::ok).find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        fields.nth(1)?.parse().ok()
    })
}

fn canonical(addr: SocketAddr) -> SocketAddr {
    match (addr.ip(), addr.ip().to_canonical()) {
        (IpAddr::V6(_), ip @ IpAddr::V4(_)) => SocketAddr::new(ip, addr.port()),
        _ => addr,
    }
}

const ESTABLISHED: u8 = 1;
/// Type of the message: `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
/// Of `struct nlmsghdr`.
const HEAD: usize = 16;
/// Of `struct inet_diag_sockid`.
const SOCKET: usize = 48;

/// The answer of `sock_diag`.
fn asked(addr: SocketAddr, to: SocketAddr) -> io::Result<Owner> {
    let protocol = Some(netlink::SOCK_DIAG);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
    let question = question(addr, to);
    rustix::net::send(&socket, &question, SendFlags::empty())?;
    // The kernel answers before the call returns.
    let mut room = [0_u8; 1024];
    let (got, _) = rustix::net::recv(&socket, &mut room[..], RecvFlags::DONTWAIT)?;
    answer(&room[..got], &question[HEAD + 8..]).ok_or_else(|| Errno::NOENT.into())
}

fn question(addr: SocketAddr, to: SocketAddr) -> [u8; HEAD + 8 + SOCKET] {
    let mut octets = [0; HEAD + 8 + SOCKET];
    let len = octets.len() as u32;
    octets[..4].copy_from_slice(&len.to_ne_bytes());
    octets[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    octets[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    octets[HEAD] = family.as_raw() as u8;
    octets[HEAD + 1] = rustix::net::ipproto::TCP.as_raw().get() as u8;
    octets[HEAD + 4..HEAD + 8].copy_from_slice(&u32::MAX.to_ne_bytes());
    let socket = &mut octets[HEAD + 8..];
    socket[..2].copy_from_slice(&addr.port().to_be_bytes());
    socket[2..4].copy_from_slice(&to.port().to_be_bytes());
    for (place, ip) in [(4, addr.ip()), (20, to.ip())] {
        match ip {
            IpAddr::V4(ip) => socket[place..place + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => socket[place..place + 16].copy_from_slice(&ip.octets()),
        }
    }
    if let SocketAddr::V6(v6) = addr {
        socket[36..40].copy_from_slice(&v6.scope_id().to_ne_bytes());
    }
    // Any cookie.
    socket[40..].fill(0xff);
    octets
}

/// `socket` is what was asked for: where no connection is found, a listener may be.
fn answer(octets: &[u8], socket: &[u8]) -> Option<Owner> {
    let kind = u16::from_ne_bytes(octets.get(4..6)?.try_into().ok()?);
    let found = octets.get(HEAD..)?;
    if kind != BY_FAMILY || found.get(4..4 + 36)? != &socket[..36] {
        return None;
    }
    let number =
        |place: usize| Some(u32::from_ne_bytes(found.get(place..place + 4)?.try_into().ok()?));
    let (uid, inode) = (number(4 + SOCKET + 12)?, number(4 + SOCKET + 16)?);
    // A socket that no process has, has no inode, and counts as root's.
    Some(if found[1] == ESTABLISHED && inode != 0 { Owner::User(uid) } else { Owner::None })
}

/// The answer of the lists in `/proc`.
fn listed(addr: SocketAddr, to: SocketAddr) -> io::Result<Owner> {
    let mut result = Err(io::ErrorKind::Unsupported.into());
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let lines = match File::open(file) {
            Ok(file) => BufReader::new(file).lines(),
            Err(error) => {
                result = result.or(Err(error));
                continue;
            }
        };
        result = Ok(Owner::None);
        for line in lines {
            if let Some(owner) = entry(&line?, addr, to) {
                return Ok(owner);
            }
        }
    }
    result
}

/// The owner that a line of the list names, if it is about this socket.
fn entry(line: &str, addr: SocketAddr, to: SocketAddr) -> Option<Owner> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let mut is = |end: SocketAddr| {
        let found = fields.next().and_then(end_of_entry);
        found == Some((end.ip(), end.port()))
    };
    if !is(addr) || !is(to) {
        return None;
    }
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    let uid = fields.nth(3)?.parse().ok()?;
    let inode: u64 = fields.nth(1)?.parse().ok()?;
    Some(if state == ESTABLISHED && inode != 0 { Owner::User(uid) } else { Owner::None })
}

/// `0100007F:1F90`: words as the machine has them.
fn end_of_entry(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut octets = [0; 16];
    let words = octets.chunks_exact_mut(4).zip(0_usize..);
    let count = ip.len() / 8;
    for (word, place) in words.take(count) {
        let digits = ip.get(place * 8..place * 8 + 8)?;
        word.copy_from_slice(&u32::from_str_radix(digits, 16).ok()?.to_ne_bytes());
    }
    let ip = match (count, octets) {
        (1, [a, b, c, d, ..]) => IpAddr::from([a, b, c, d]),
        (4, octets) => IpAddr::from(Ipv6Addr::from(octets)).to_canonical(),
        _ => return None,
    };
    Some((ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair(addr: &str) -> Option<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind(addr).ok()?;
        let to = match listener.local_addr().unwrap() {
            SocketAddr::V6(at) if at.ip().is_unspecified() => {
                SocketAddr::new(IpAddr::from([127, 0, 0, 1]), at.port())
            }
            at => at,
        };
        let one = TcpStream::connect(to).unwrap();
        let (other, _) = listener.accept().unwrap();
        Some((one, other))
    }

    #[test]
    fn ours_is_ours() {
        let mine = Owner::User(own_users()[0]);
        // A host without IPv6 has the first only.
        for addr in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Some((one, other)) = pair(addr) else { continue };
            for (end, seen) in [(&one, &other), (&other, &one)] {
                let (addr, to) = (seen.peer_addr().unwrap(), seen.local_addr().unwrap());
                assert_eq!(owner_of(addr, to).unwrap(), mine, "{addr} to {to}, {end:?}");
                let (addr, to) = (canonical(addr), canonical(to));
                assert_eq!(listed(addr, to).unwrap(), mine);
                if let Ok(owner) = asked(addr, to) {
                    assert_eq!(owner, mine);
                }
            }
        }
    }

    /// Neither is root's, for which they would be taken.
    #[test]
    fn a_socket_without_a_process_has_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let stream = TcpStream::connect(at).unwrap();
        let from = stream.local_addr().unwrap();
        // It is not accepted yet.
        assert_eq!(owner_of(at, from).unwrap(), Owner::None);
        let (other, _) = listener.accept().unwrap();
        assert!(matches!(owner_of(at, from).unwrap(), Owner::User(_)));
        drop(stream);
        assert_eq!(owner_of(from, at).unwrap(), Owner::None);
        drop(other);
        assert_eq!(owner_of(from, at).unwrap(), Owner::None);
        // Only the listener is left, which is not the connection.
        assert_eq!(owner_of(at, SocketAddr::from(([127, 0, 0, 1], 1))).unwrap(), Owner::None);
    }

    #[test]
    fn a_udp_port_is_somebodys() {
        let mine = Owner::User(own_users()[0]);
        for addr in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = std::net::UdpSocket::bind(addr) else { continue };
            let at = socket.local_addr().unwrap();
            assert!(udp_owners(at).contains(&mine));
            let all = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), at.port());
            assert!(udp_owners(all).contains(&mine));
        }
        let line = "  1: 0100007F:12B7 00000000:0000 07 0:0 00:0 0  1000 0 0 2 x 0";
        let addr = SocketAddr::from((u32::from_ne_bytes([127, 0, 0, 1]).to_ne_bytes(), 4791));
        if cfg!(target_endian = "little") {
            assert_eq!(udp_entry(line, addr), Some(Owner::None), "the kernel's");
        }
    }

    #[test]
    fn others_are_elsewhere() {
        let there = SocketAddr::from(([192, 0, 2, 77], 4000));
        let here = SocketAddr::from(([127, 0, 0, 1], 4000));
        assert_eq!(owner_of(there, here).unwrap(), Owner::Elsewhere);
    }

    #[test]
    fn users_have_names() {
        assert_eq!(user_id("root"), Some(0));
        assert_eq!(user_id("no such user"), None);
        assert_eq!(user_id(""), None);
    }

    #[test]
    fn nonsense_is_no_entry() {
        let (addr, to) = ("127.0.0.1:8080".parse().unwrap(), "127.0.0.1:80".parse().unwrap());
        let word = u32::from_ne_bytes([127, 0, 0, 1]);
        let line = format!(
            "   0: {word:08X}:1F90 {word:08X}:0050 01 0:0 00:0 0  1000 0 4711 1 x 20 4 1 10 -1"
        );
        assert_eq!(entry(&line, addr, to), Some(Owner::User(1000)));
        assert_eq!(entry(&line, to, addr), None);
        for end in 0..line.len() {
            let cut = entry(&line[..end], addr, to);
            assert!(cut.is_none() || end > line.len() - 40, "{end}: {cut:?}");
        }
        assert_eq!(answer(&[0; 15], &question(addr, to)[HEAD + 8..]), None);
        assert_eq!(answer(&[20; 80], &question(addr, to)[HEAD + 8..]), None);
    }
}
