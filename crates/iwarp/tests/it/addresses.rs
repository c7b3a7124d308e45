// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers and listeners by name, and peers with several addresses.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use iwarp::cm::{self, Addresses, ConnectError, ConnectParams};
use iwarp::{Device, ProtectionDomain, QueuePair, QueuePairAttributes};
use iwarp_session::{Listener, Session};

use crate::common::DEADLINE;

fn domain() -> ProtectionDomain {
    Device::open().unwrap().alloc_pd()
}

/// An address where no program listens.
fn dead() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Connects a session to the listener by any of `addresses`.
fn reaches(listener: &Listener, addresses: impl Into<Addresses>) {
    let connecting = Session::connect(&domain(), addresses);
    let client = thread::spawn(move || connecting.wait_timeout(DEADLINE).unwrap());
    let request = listener.accept().wait_timeout(DEADLINE).unwrap();
    let server = Session::accept(request).wait_timeout(DEADLINE).unwrap();
    let client = client.join().unwrap();
    assert_eq!(client.peer_addr(), server.local_addr());
    assert_eq!(client.local_addr(), server.peer_addr());
}

#[test]
fn sessions_meet_by_name() {
    let listener = Listener::bind(&domain(), "localhost:0").unwrap();
    let addr = listener.local_addr().unwrap();
    assert!(addr.ip().is_loopback() && addr.port() != 0);
    reaches(&listener, format!("localhost:{}", addr.port()));
    reaches(&listener, ("localhost", addr.port()));
    reaches(&listener, addr.to_string());
    reaches(&listener, addr);
}

#[test]
fn the_next_address_is_tried() {
    let listener = Listener::bind(&domain(), "127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    // The other family too: the local end is that of the address that will do.
    reaches(&listener, [SocketAddr::from(([0; 8], 1)), dead(), addr, dead()]);
    // A server of another kind, which closes the connection instead of answering.
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let there = other.local_addr().unwrap();
    thread::scope(|scope| {
        // With each revision of MPA once.
        scope.spawn(|| (0..2).for_each(|_| drop(other.accept().unwrap())));
        reaches(&listener, [there, addr]);
    });
}

#[test]
fn the_last_error_is_told() {
    let error = Session::connect(&domain(), [dead(), dead()]).wait_timeout(DEADLINE).unwrap_err();
    let text = error.to_string();
    let ConnectError::Unreachable(error) = error else { panic!("{error:?}") };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    for part in ["cannot reach the peer: 127.0.0.1:", "no program listens there"] {
        assert!(text.contains(part), "{text}");
    }
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = taken.local_addr().map(|addr| (taken, addr)).unwrap();
    let error = Listener::bind(&domain(), [taken.1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = Listener::bind(&domain(), [taken.1, free]).unwrap();
    assert_ne!(listener.local_addr(), Some(taken.1));
}

#[test]
fn a_peer_that_refuses_has_answered() {
    let [refuses, other] = [0; 2].map(|_| Listener::bind(&domain(), "127.0.0.1:0").unwrap());
    let addresses = [&refuses, &other].map(|listener| listener.local_addr().unwrap());
    let connecting = Session::connect(&domain(), addresses);
    refuses.accept().wait_timeout(DEADLINE).unwrap().reject(b"not today").unwrap();
    let error = connecting.wait_timeout(DEADLINE).unwrap_err();
    let ConnectError::Rejected { private_data, .. } = error else { panic!("{error:?}") };
    assert_eq!(private_data, b"not today");
}

#[test]
fn text_without_an_address_is_refused() {
    for text in ["localhost", "localhost:port", ""] {
        let error = Session::connect(&domain(), text).wait_timeout(DEADLINE).unwrap_err();
        let ConnectError::Unreachable(error) = error else { panic!("{error:?}") };
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let error = Listener::bind(&domain(), text).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn looking_up_keeps_to_the_deadline_and_may_be_given_up() {
    let listener = Listener::bind(&domain(), "127.0.0.1:0").unwrap();
    let named = || ("localhost", listener.local_addr().unwrap().port());
    let pd = domain();
    // The deadline holds whether the name is known by then or not.
    for _ in 0..20 {
        drop(Session::connect(&pd, named()));
        let error = Session::connect(&pd, named()).wait_timeout(Duration::ZERO).unwrap_err();
        assert!(matches!(error, ConnectError::Timeout), "{error:?}");
    }
}

fn queue_pair(device: &Device) -> QueuePair {
    let cq = device.create_cq(4, None).unwrap();
    device.alloc_pd().create_qp(&QueuePairAttributes::new(&cq, &cq)).unwrap()
}

#[test]
fn blocking_calls_take_names_too() {
    let (client, server) = (Device::open().unwrap(), Device::open().unwrap());
    let listener = cm::Listener::bind(&server, ("localhost", 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    let params = ConnectParams::default();
    for addresses in [("localhost", addr.port()).into(), Addresses::from([dead(), addr])] {
        thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                let incoming = listener.accept(Some(DEADLINE)).unwrap().unwrap();
                incoming.accept(&queue_pair(&server), &ConnectParams::default()).unwrap()
            });
            let qp = queue_pair(&client);
            let connection = cm::connect(&client, addresses, &qp, &params, DEADLINE).unwrap();
            let accepted = accepting.join().unwrap();
            assert_eq!(connection.local_addr(), accepted.peer_addr());
        });
    }
    let qp = queue_pair(&client);
    let all = [dead(), dead()];
    let error = cm::connect(&client, all, &qp, &params, DEADLINE).unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable(_)), "{error:?}");
    let error = cm::connect(&client, "nowhere", &qp, &params, DEADLINE).unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable(_)), "{error:?}");
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_meet_by_name() {
    crate::tasks::run(async {
        let listener = Listener::bind(&domain(), "localhost:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connecting = Session::connect(&domain(), format!("localhost:{port}"));
        let accepting = async { Session::accept(listener.accept().await?).await };
        let (client, server) = tokio::join!(connecting, accepting);
        assert_eq!(client.unwrap().peer_addr(), server.unwrap().local_addr());
        let addresses = [dead(), listener.local_addr().unwrap()];
        let accepting = async { Session::accept(listener.accept().await?).await };
        let (client, server) = tokio::join!(Session::connect(&domain(), addresses), accepting);
        assert_eq!(client.unwrap().peer_addr(), server.unwrap().local_addr());
    });
}
