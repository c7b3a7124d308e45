// SPDX-License-Identifier: MIT OR Apache-2.0

//! The other end of a queue pair, where it is a process of this host that can be asked.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::live::facts::{Process, QueuePair};

/// The processes among which peers are found.
pub(super) struct Peers<'a> {
    all: Vec<&'a Process>,
}

/// The other end of a queue pair.
pub(super) struct Peer<'a> {
    pub(super) process: &'a Process,
    pub(super) qp: &'a QueuePair,
}

impl<'a> Peers<'a> {
    /// A process may be its own peer.
    pub(super) fn new(own: &'a Process, others: &'a [Process]) -> Self {
        Self { all: std::iter::once(own).chain(others).collect() }
    }

    /// The other end of this one.
    pub(super) fn of(&self, qp: &QueuePair) -> Option<Peer<'a>> {
        self.all.iter().find_map(|process| {
            let all = &process.facts()?.qp;
            let qp = all.iter().find(|other| are_ends(qp, other))?;
            Some(Peer { process, qp })
        })
    }

    /// The process at the other end that does not answer since it is stopped.
    pub(super) fn stopped(&self, qp: &QueuePair) -> Option<&'a Process> {
        let stream = qp.stream.as_ref()?;
        let (local, peer) = stream.local.zip(stream.peer)?;
        let mut stopped = self.all.iter().copied().filter(|process| process.is_stopped);
        stopped.find(|process| has_socket(process.pid, peer, local).unwrap_or(false))
    }
}

/// True if a process has the TCP socket with these ends, its own first. `None` where the system
/// does not tell.
fn has_socket(pid: u32, own: SocketAddr, other: SocketAddr) -> Option<bool> {
    let tables =
        ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")));
    let lines: Vec<String> = tables
        .into_iter()
        .flatten()
        .flat_map(|table| table.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let inode = lines.iter().find_map(|line| inode_of(line, own, other))?;
    let name = format!("socket:[{inode}]");
    let mut sockets = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    Some(sockets.any(|fd| fs::read_link(fd.path()).is_ok_and(|link| link.as_os_str() == &*name)))
}

/// The number of the socket in a line of `/proc/net/tcp`, if its ends are these.
fn inode_of(line: &str, own: SocketAddr, other: SocketAddr) -> Option<&str> {
    let mut words = line.split_whitespace();
    let is = |words: &mut std::str::SplitWhitespace<'_>, addr| {
        words.next().and_then(address_of) == Some(addr)
    };
    words.next()?;
    let found = is(&mut words, own) && is(&mut words, other);
    // State, queues, timer, retransmits, user, timeout.
    words.nth(6).filter(|_| found)
}

/// An address as `/proc/net/tcp` shows it: words of the processor, in hexadecimal.
fn address_of(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut octets = Vec::new();
    for at in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
        octets.extend(word.to_ne_bytes());
    }
    let ip = match octets.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?)),
        _ => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?)).to_canonical(),
    };
    Some(SocketAddr::new(ip, port))
}

/// True if the two have a connection with each other.
fn are_ends(one: &QueuePair, other: &QueuePair) -> bool {
    if let (Some(one), Some(other)) = (&one.stream, &other.stream) {
        return one.local.is_some() && one.local == other.peer && one.peer == other.local;
    }
    match (&one.packets, &other.packets) {
        (Some(own), Some(its)) => {
            let is = (own.peer_qp, its.peer_qp) == (other.number, one.number);
            is && (&own.local, &own.peer) == (&its.peer, &its.local)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_found_by_its_ends() {
        let line = "   0: 0100007F:1F90 0100007F:A000 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0000";
        let addr = |text: &str| text.parse().expect("an address");
        let (own, other) = (addr("127.0.0.1:8080"), addr("127.0.0.1:40960"));
        assert_eq!(inode_of(line, own, other), Some("4242"));
        assert_eq!(inode_of(line, other, own), None);
        let mapped = "0000000000000000FFFF00000100007F:1F90";
        assert_eq!(address_of(mapped), Some(own));
    }
}
