// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finds the processes that hold a UDP port, or the names by which those that share it find each
//! other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;

/// In front of a share's abstract AF_UNIX names, as `/proc` shows them; the user and the address
/// follow.
const SHARE: &str = "@iwarp-roce/";

/// Stands for users that are unknown in this user namespace.
const UNMAPPED: u32 = 65_534;

/// Something that one process can have at a time.
#[derive(PartialEq, Eq, Debug)]
struct Held {
    /// For messages.
    what: String,
    /// The socket's inode.
    inode: u64,
    /// The socket's owner, where the system says so.
    user: Option<u32>,
}

/// Says of each holder of `port`, at any address of this network, what it holds.
pub(super) fn in_the_way(port: u16) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(format!("/proc/net/{file}")).unwrap_or_default();
    let mut held = [read("udp"), read("udp6")].concat().lines().filter_map(udp).collect::<Vec<_>>();
    held.retain(|(addr, _)| addr.port() == port);
    let mut held: Vec<Held> = held.into_iter().map(|(_, held)| held).collect();
    held.extend(read("unix").lines().filter_map(|line| name(line, port)));
    if held.is_empty() {
        return Vec::new();
    }
    let processes = processes(held.iter().map(|held| held.inode).collect());
    let mut holders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Held { what, inode, user } in held {
        let holder = processes.get(&inode).cloned().unwrap_or_else(|| unseen(user));
        holders.entry(holder).or_default().insert(what);
    }
    let line = |(holder, what): (String, BTreeSet<String>)| {
        format!("{holder} holds {}", what.into_iter().collect::<Vec<_>>().join(", "))
    };
    holders.into_iter().map(line).collect()
}

/// A line of `/proc/net/udp` or `/proc/net/udp6`, but for the headings.
fn udp(line: &str) -> Option<(SocketAddr, Held)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let addr = address(fields.get(1)?)?;
    let (user, inode) = (fields.get(7)?.parse().ok()?, fields.get(9)?.parse().ok()?);
    Some((addr, Held { what: format!("UDP {addr}"), inode, user: Some(user) }))
}

/// `0100007F:12B7`: words as the machine has them, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let mut octets = Vec::new();
    for at in (0..ip.len()).step_by(8) {
        let word = u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?;
        octets.extend(word.to_ne_bytes());
    }
    let ip = match <[u8; 4]>::try_from(octets.as_slice()) {
        Ok(v4) => IpAddr::from(v4),
        Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(octets.as_slice()).ok()?).into(),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// A line of `/proc/net/unix` with a name of a share of `port`: `@iwarp-roce/0/[::]:4791`, with
/// `/1` behind it for a slot.
fn name(line: &str, port: u16) -> Option<Held> {
    let mut fields = line.split_ascii_whitespace().skip(6);
    let (inode, name) = (fields.next()?.parse().ok()?, fields.next()?);
    let addr = name.strip_prefix(SHARE)?.split('/').nth(1)?;
    let ours = addr.parse::<SocketAddr>().ok()?.port() == port;
    ours.then(|| Held { what: name.to_owned(), inode, user: None })
}

/// Processes that have these sockets, by their sockets, as messages name them.
fn processes(inodes: BTreeSet<u64>) -> HashMap<u64, String> {
    let mut found = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let Some(pid) = file_name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // Not those of other users, and none where the process has just ended.
        let descriptors = fs::read_dir(entry.path().join("fd"));
        for descriptor in descriptors.into_iter().flatten().flatten() {
            let target = fs::read_link(descriptor.path()).unwrap_or_default();
            let inode = target.to_str().and_then(|target| {
                target.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
            });
            if let Some(inode) = inode.filter(|inode| inodes.contains(inode)) {
                found.entry(inode).or_insert_with(|| process(pid));
            }
        }
    }
    found
}

fn process(pid: u32) -> String {
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let user = fs::metadata(format!("/proc/{pid}")).map(|dir| user_name(dir.uid()));
    format!("process {pid} ({}) of {}", command.trim(), user.unwrap_or_default())
}

/// A holder that no process in sight is.
fn unseen(user: Option<u32>) -> String {
    match user {
        Some(0) => {
            "the kernel (module rdma_rxe), or a process of root whose descriptors cannot be \
                    seen,"
                .to_owned()
        }
        Some(user) if user != UNMAPPED => {
            format!("a process of {} whose descriptors cannot be seen", user_name(user))
        }
        _ => "a process whose descriptors cannot be seen".to_owned(),
    }
}

fn user_name(user: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    };
    users.lines().find_map(named).unwrap_or_else(|| format!("user {user}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;
    use std::net::UdpSocket;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

    const HEADINGS: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
                            retrnsmt   uid  timeout inode ref pointer drops";

    #[test]
    #[cfg(target_endian = "little")]
    fn lines_of_the_system_name_address_owner_and_socket() {
        let v4 = " 2161: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000 \
                  1000        0 34567 2 00000000e9becf91 0";
        let v6 = " 2161: 000080FE00000000000000000700A8C0:12B7 \
                  00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000 \
                  0        0 34568 2 0000000000000000 0";
        let held =
            |what: &str, inode, user| Held { what: what.to_owned(), inode, user: Some(user) };
        let found: Vec<_> = [HEADINGS, v4, v6, " 1: 0100007F:12B7"].into_iter().map(udp).collect();
        let addrs = ["127.0.0.1:4791", "[fe80::c0a8:7]:4791"];
        let [v4, v6] = addrs.map(|addr| (addr.parse().unwrap(), format!("UDP {addr}")));
        let v4 = (v4.0, held(&v4.1, 34_567, 1000));
        let v6 = (v6.0, held(&v6.1, 34_568, 0));
        assert_eq!(found, [None, Some(v4), Some(v6), None]);
    }

    #[test]
    fn names_of_a_share_are_found_by_the_port() {
        let line = |name: &str| {
            format!("00000000e9becf91: 00000002 00000000 00010000 0005 01 171624 {name}")
        };
        for ours in ["@iwarp-roce/0/[::]:4791", "@iwarp-roce/1000/127.0.0.1:4791/63"] {
            let held = Held { what: ours.to_owned(), inode: 171_624, user: None };
            assert_eq!(name(&line(ours), 4791), Some(held));
            assert_eq!(name(&line(ours), 479), None);
        }
        for other in ["", "/run/iwarp-roce/0/[::]:4791", "@iwarp-roce/0/[::]:47911", "@iwarp-roce/"]
        {
            assert_eq!(name(&line(other), 4791), None);
        }
        assert_eq!(name("Num       RefCount Protocol Flags    Type St Inode Path", 4791), None);
    }

    /// The names that are looked for are the library's.
    #[test]
    fn the_library_names_its_shares_so() {
        let source = shell::root().join("crates/iwarp/src/port/share/home.rs");
        let source = fs::read_to_string(source).expect("the share's names");
        let format = format!("format!(\"{}{{user}}/{{addr}}\")", &SHARE[1..]);
        assert!(source.contains(&format), "{format}");
    }

    #[test]
    fn a_holder_is_named_with_all_that_it_holds() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let addr = socket.local_addr().expect("its address");
        let share = format!("iwarp-roce/0/{addr}");
        let share_addr = UnixAddr::from_abstract_name(&share).expect("a name");
        let _share = UnixListener::bind_addr(&share_addr).expect("nobody else's");
        let lines = in_the_way(addr.port());
        let me = format!("process {} (", std::process::id());
        let what = format!(" holds @{share}, UDP {addr}");
        let named = |line: &String| line.starts_with(&me) && line.ends_with(&what);
        assert!(lines.iter().any(named), "{lines:?}, without {me}...{what}");
    }

    #[test]
    fn a_free_port_has_no_holders() {
        assert_eq!(in_the_way(0), Vec::<String>::new());
    }

    #[test]
    fn holders_out_of_sight_are_said_to_be_so() {
        let unused = u32::MAX - 7;
        assert!(unseen(Some(unused)).starts_with(&format!("a process of user {unused} whose")));
        assert!(unseen(Some(0)).contains("rdma_rxe"));
        assert_eq!(unseen(Some(UNMAPPED)), unseen(None));
    }
}
