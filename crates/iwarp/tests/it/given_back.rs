// SPDX-License-Identifier: MIT OR Apache-2.0

//! The RoCE port, which a process has no longer than it needs it.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

use iwarp::cm::{Event, EventChannel, EventKind, Id, PortSpace, UDP_QKEY};
use iwarp::port::share::ROCE_PORT;
use iwarp::{Device, QpType, QueuePairAttributes};
use iwarp_os::slots::SlotSocket;
use rustix::thread::UnshareFlags;

use crate::common::process::{goes_on, passed_apart, this_test};
use crate::common::station::hasty;
use crate::common::{DEADLINE, until};

/// An id that has asked for the service of another, and knows its queue pair.
fn found(channel: &EventChannel, server: &Id) -> Id {
    let next = || channel.wait(Some(DEADLINE)).unwrap().expect("an event");
    let client = Id::for_datagrams(channel, PortSpace::Udp).unwrap();
    client.resolve_addr(None, server.local_addr().unwrap()).unwrap();
    next();
    client.ask(b"who").unwrap();
    let asked = next();
    asked.id.answer_with(77, UDP_QKEY, b"me").unwrap();
    let Event { kind: EventKind::ServiceFound { qp: 77, .. }, .. } = next() else {
        panic!("it is found")
    };
    client
}

/// The drop-in libraries never close their device, and no other process may depend on one that has
/// closed all that it had.
///
/// Covers: ROCE-177
#[test]
fn the_port_is_given_back_after_the_last_use() {
    // Tests beside this one would have the port by the share of the process, in another network.
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let apart = || {
        // SAFETY: what this thread opens from now on is in a network of its own.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.ok()?;
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        up.ok()?.success().then_some(())?;
        let is_free = || SlotSocket::is_free((Ipv6Addr::UNSPECIFIED, ROCE_PORT).into()).unwrap();
        let given_back = || until("the port to be free", || is_free().then_some(()));
        let device = Device::with_options(hasty()).unwrap();
        let pd = device.alloc_pd();
        let cq = device.create_cq(8, None).unwrap();
        // And had again.
        for kind in [QpType::Ud, QpType::Rc, QpType::Ud] {
            goes_on();
            let queue_pair =
                |kind| pd.create_qp(&QueuePairAttributes::new(&cq, &cq).qp_type(kind)).unwrap();
            let one = queue_pair(kind);
            let other = queue_pair(QpType::Ud);
            drop(one);
            assert!(!is_free());
            drop(other);
            given_back();
            let channel = EventChannel::new(&device).unwrap();
            let id = Id::for_datagrams(&channel, PortSpace::Udp).unwrap();
            id.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            id.listen(1).unwrap();
            assert!(!is_free());
            let client = found(&channel, &id);
            drop(id);
            // An id that knows the answer needs the port no more.
            given_back();
            drop(client);
        }
        Some(())
    };
    std::thread::scope(|scope| scope.spawn(apart).join().unwrap());
}
