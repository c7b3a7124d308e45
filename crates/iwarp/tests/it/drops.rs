// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handles may go in any order, at any time, and leave nothing behind.

use std::any::Any;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use iwarp::cm::{ConnectParams, Connection, EventChannel, EventKind, Id, Listener, connect};
use iwarp::{Device, Ended, Options, RecvRequest};
use iwarp_proto::mpa::wire::FrameKind;

use crate::common::process::{goes_on, passed_apart, this_test};
use crate::common::raw::Raw;
use crate::common::{DEADLINE, EVENTUALLY, all_access, parts, until, within};

/// The objects of the process: descriptors with what they stand for, and threads.
fn held(what: &str, about: impl Fn(&Path) -> String) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/self/{what}")).unwrap();
    let names = entries
        .flatten()
        .map(|entry| format!("{what} {}: {}", entry.file_name().display(), about(&entry.path())));
    names.collect()
}

fn held_now() -> Vec<String> {
    let target = |path: &Path| fs::read_link(path).unwrap_or_default().display().to_string();
    let name = |path: &Path| fs::read_to_string(path.join("comm")).unwrap_or_default();
    [held("fd", target), held("task", name)].concat()
}

/// Every order of the numbers below `n`.
fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in orders(n - 1) {
        for at in 0..n {
            let mut order = shorter.clone();
            order.insert(at, n - 1);
            all.push(order);
        }
    }
    all
}

/// Drops all of them in that order.
fn drop_in(order: &[usize], handles: Vec<Box<dyn Any>>) {
    let mut handles: Vec<_> = handles.into_iter().map(Some).collect();
    assert_eq!(order.len(), handles.len());
    for number in order {
        drop(handles[*number].take());
    }
}

/// Time limits that end nothing here: what goes does so at once, by what is dropped, and a process
/// that others keep from running would come to a short one.
fn patient() -> Options {
    Options::new().startup_timeout(EVENTUALLY * 2).linger(EVENTUALLY * 2)
}

/// The other end of the connections that are dropped.
struct Peer {
    device: Device,
    listener: Listener,
}

impl Peer {
    fn new() -> Self {
        let device = Device::with_options(patient()).unwrap();
        let listener = Listener::bind(&device, "127.0.0.1:0").unwrap();
        Self { device, listener }
    }

    /// Accepts one connection and waits for its end.
    fn serve(&self) -> (Connection, Box<dyn Any>) {
        let (pd, send_cq, recv_cq, qp) = parts(&self.device, 4);
        let incoming = self.listener.accept(Some(DEADLINE)).unwrap().expect("a request");
        let connection = incoming.accept(&qp, &ConnectParams::default()).unwrap();
        (connection, Box::new((pd, send_cq, recv_cq, qp)))
    }
}

fn connected_handles_go(peer: &Peer, order: &[usize]) {
    let device = Device::with_options(patient()).unwrap();
    let (pd, send_cq, recv_cq, qp) = parts(&device, 4);
    let region = pd.allocate(64, all_access()).unwrap();
    qp.post_recv(&RecvRequest::new(1, &[region.whole()])).unwrap();
    let addr = peer.listener.local_addr().unwrap();
    let (connection, (served, handles)) = std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let (connection, handles) = peer.serve();
            (connection, Sendable(handles))
        });
        let connection = connect(&device, addr, &qp, &ConnectParams::default(), DEADLINE).unwrap();
        (connection, serving.join().unwrap())
    });
    drop_in(
        order,
        vec![
            Box::new(connection),
            Box::new(qp),
            Box::new((send_cq, recv_cq)),
            Box::new(region),
            Box::new(pd),
            Box::new(device),
        ],
    );
    assert_eq!(served.wait_disconnected(Some(DEADLINE)), Some(Ended::Closed), "{order:?}");
    drop((served, handles));
}

/// The handles are `Send`; the box forgot it.
struct Sendable(#[allow(dead_code, reason = "kept alive")] Box<dyn Any>);
// SAFETY: only handles of the library are put in, which are `Send`.
unsafe impl Send for Sendable {}

fn connecting_handles_go(mute: &TcpListener, order: &[usize]) {
    let device = Device::with_options(patient()).unwrap();
    let (pd, send_cq, recv_cq, qp) = parts(&device, 4);
    let channel = EventChannel::new(&device).unwrap();
    let id = Id::new(&channel).unwrap();
    id.resolve_addr(None, mute.local_addr().unwrap()).unwrap();
    let event = channel.wait(Some(DEADLINE)).unwrap().unwrap();
    assert!(matches!(event.kind, EventKind::AddressResolved));
    drop(event);
    id.connect(&qp, &ConnectParams::default()).unwrap();
    let mut raw = Raw::accept(mute);
    raw.startup(FrameKind::Request);
    drop_in(
        order,
        vec![
            Box::new(id),
            Box::new(channel),
            Box::new(qp),
            Box::new((send_cq, recv_cq)),
            Box::new(pd),
            Box::new(device),
        ],
    );
    raw.expect_end();
}

#[test]
fn handles_go_in_any_order_and_leave_nothing() {
    // It counts descriptors and threads.
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let peer = Peer::new();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let first: Vec<_> = (0..6).collect();
    connected_handles_go(&peer, &first);
    until("connections to go", || (peer.device.connections() == 0).then_some(()));
    // The descriptor on which this thread sleeps stays with it, once it has slept; a connection may
    // come too fast.
    let nobody = peer.listener.accept(Some(Duration::from_millis(10))).unwrap();
    assert!(nobody.is_none());
    let known = until("a quiet start", || {
        let now = held_now();
        (now.len() == held_now().len()).then_some(now)
    });
    for order in orders(6) {
        goes_on();
        connected_handles_go(&peer, &order);
        connecting_handles_go(&mute, &order);
    }
    until("connections to go", || (peer.device.connections() == 0).then_some(()));
    within(
        EVENTUALLY,
        || format!("the rest to go: at first {known:#?}, at last {:#?}", held_now()),
        || (held_now().len() <= known.len()).then_some(()),
    );
}
