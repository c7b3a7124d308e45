// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two connected sockets.

use std::net::SocketAddr;

use iwarp::{Device, Options, Personality};
use iwarp_rsocket::{Domain, Host, Socket};

pub(crate) const PERSONALITIES: [Personality; 2] = [Personality::Iwarp, Personality::Roce];

pub(crate) fn host_of(options: Options) -> Host {
    Host::new(&Device::with_options(options).expect("a device")).expect("a host")
}

pub(crate) fn host() -> Host {
    host_of(Options::default())
}

pub(crate) fn listener(host: &Host, domain: Domain) -> (Socket, SocketAddr) {
    let listener = Socket::new(host, domain).expect("a socket");
    let addr = match domain {
        Domain::Ipv4 => "127.0.0.1:0",
        Domain::Ipv6 => "[::1]:0",
    };
    listener.bind(addr.parse().expect("an address")).expect("a port");
    listener.listen(16).expect("it listens");
    let addr = listener.local_addr().expect("its address");
    (listener, addr)
}

/// The end that has connected, and the one that has accepted.
pub(crate) fn pair_on(host: &Host) -> (Socket, Socket) {
    let (listener, addr) = listener(host, Domain::Ipv4);
    let client = Socket::new(host, Domain::Ipv4).expect("a socket");
    client.connect(addr).expect("it connects");
    let (server, peer) = listener.accept().expect("it comes in");
    assert_eq!(peer, client.local_addr().expect("its address"));
    (client, server)
}

pub(crate) fn pair() -> (Socket, Socket) {
    pair_on(&host())
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}
