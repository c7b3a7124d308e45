// SPDX-License-Identifier: MIT OR Apache-2.0

//! A port number of two listeners, reached from another host.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use iwarp_os::poll::wait_readable;
use iwarp_os::socket::beside::{self, RDMA_CLASS};
use iwarp_os::{Epoll, Events, FdPlace, Interest, Ipv6Listen, Sharing, TcpSocket};
use rustix::net::{AddressFamily, SocketType, socket};

use crate::hosts::{self, Host};

fn until_writable(socket: &TcpSocket) {
    let epoll = Epoll::new(FdPlace::Internal).unwrap();
    epoll.add(socket, 0, Interest::WRITE).unwrap();
    let mut events = Events::with_capacity(1);
    let limit = Some(std::time::Duration::from_secs(20));
    assert_eq!(epoll.wait(&mut events, limit).unwrap(), 1, "nothing in 20 s");
}

#[test]
fn clients_of_either_kind_come_from_another_host() {
    if !hosts::possible() {
        return;
    }
    beside::enable();
    let [here, there] = Host::pair();
    for (any, dialled, family) in [
        ("0.0.0.0:7471", "10.9.0.1:7471", AddressFamily::INET),
        ("[::]:7472", "[fd09::1]:7472", AddressFamily::INET6),
        ("[::]:7473", "10.9.0.1:7473", AddressFamily::INET6),
    ] {
        let [any, dialled] = [any, dialled].map(|text| text.parse::<SocketAddr>().unwrap());
        let (_admission, ours, theirs) = here.run(|| {
            let ours = TcpSocket::reserve(any, Ipv6Listen::DualStack, Sharing::Exclusive).unwrap();
            let theirs = socket(family, SocketType::STREAM, None).unwrap();
            let admission = ours.admit().unwrap();
            ours.start_listening(16).unwrap();
            beside::bind(theirs.as_fd(), any).unwrap();
            rustix::net::listen(&theirs, 16).unwrap();
            (admission, ours, theirs)
        });
        let theirs = TcpListener::from(theirs);
        for _ in 0..20 {
            let (marked, plain) = there.run(|| {
                let marked = TcpSocket::connectable(None, dialled).unwrap();
                marked.set_traffic_class(RDMA_CLASS).unwrap();
                marked.start_connecting(dialled).unwrap();
                until_writable(&marked);
                (marked, TcpStream::connect(dialled).unwrap())
            });
            wait_readable([ours.as_fd()], None).unwrap();
            let (_, came) = ours.accept().unwrap();
            assert_eq!(came.port(), marked.local_addr().unwrap().port());
            let (_, came) = theirs.accept().unwrap();
            assert_eq!(came.port(), plain.local_addr().unwrap().port());
        }
    }
}
