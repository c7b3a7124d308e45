// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connection requests that wait at a listener of sessions.

use iwarp::cm::{ConnectError, ConnectParams, StartupError};
use iwarp::{Device, Options, ProtectionDomain};
use iwarp_session::{Config, Connecting, ListenConfig, Listener, Request, Session};

use crate::common::DEADLINE;

fn domain() -> ProtectionDomain {
    Device::open().unwrap().alloc_pd()
}

fn ask(pd: &ProtectionDomain, listener: &Listener, number: u8) -> Connecting {
    let params = ConnectParams::new().private_data([number]);
    Config::new().params(params).connect(pd, listener.local_addr().unwrap())
}

fn next(listener: &Listener) -> Request {
    listener.accept().wait_timeout(DEADLINE).unwrap()
}

/// True if the connection was closed without an answer.
fn is_refused(connecting: Connecting) -> bool {
    match connecting.wait_timeout(DEADLINE).unwrap_err() {
        ConnectError::Startup(StartupError::Closed) => true,
        // It was closed with the request unread.
        ConnectError::Io(_) => true,
        ConnectError::Rejected { .. } => false,
        error => panic!("{error:?}"),
    }
}

/// Of eight peers `waiting` wait, and the others are refused at once.
fn holds(listener: &Listener, waiting: usize) {
    let pd = domain();
    let mut peers: Vec<_> = (0..8).map(|number| Some(ask(&pd, listener, number))).collect();
    let requests: Vec<_> = (0..waiting).map(|_| next(listener)).collect();
    let mut waits = requests.iter().map(|request| {
        let [number] = request.private_data() else { panic!("{request:?}") };
        peers[usize::from(*number)].take().unwrap()
    });
    let first = waits.next().unwrap();
    let others: Vec<_> = waits.collect();
    assert!(peers.into_iter().flatten().all(is_refused));
    assert!(is_refused(ask(&pd, listener, 8)), "those that were taken have no answer yet");
    // An answer makes room for one.
    let mut requests = requests.into_iter();
    requests.next().unwrap().reject(b"").unwrap();
    assert!(!is_refused(first));
    let connecting = ask(&pd, listener, 9);
    let _session = Session::accept(next(listener)).wait_timeout(DEADLINE).unwrap();
    assert!(connecting.wait_timeout(DEADLINE).unwrap().is_connected());
    drop((requests, others));
}

#[test]
fn a_backlog_is_exact() {
    for backlog in [1, 3] {
        let config = ListenConfig::new().backlog(backlog);
        holds(&config.bind(&domain(), "127.0.0.1:0").unwrap(), backlog);
    }
    // Not less than one.
    holds(&ListenConfig::new().backlog(0).bind(&domain(), "127.0.0.1:0").unwrap(), 1);
}

#[test]
fn without_one_the_options_decide() {
    let few = || Device::with_options(Options::new().max_pending(2)).unwrap().alloc_pd();
    holds(&Listener::bind(&few(), "127.0.0.1:0").unwrap(), 2);
    // More than the options say, and fewer.
    holds(&ListenConfig::new().backlog(4).bind(&few(), "127.0.0.1:0").unwrap(), 4);
    holds(&ListenConfig::new().backlog(1).bind(&few(), "127.0.0.1:0").unwrap(), 1);
}

#[test]
fn a_request_that_is_dropped_makes_room() {
    let listener = ListenConfig::new().backlog(1).bind(&domain(), "127.0.0.1:0").unwrap();
    // One that does not ask again with another revision of MPA.
    let pd = Device::with_options(Options::new().fall_back(false)).unwrap().alloc_pd();
    for number in 0..5 {
        let connecting = ask(&pd, &listener, number);
        drop(next(&listener));
        assert!(is_refused(connecting));
    }
}
