// SPDX-License-Identifier: MIT OR Apache-2.0

//! A port that moves from its first stream to a ring.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use iwarp_os::local::{Marks, Ring};
use iwarp_os::{Ipv6Listen, Sharing};

use super::{Channel, LocalPort, ROOM, Way};
use crate::port::{IoPart, IoPartMut, MemoryNetwork, Port};

/// Two ends that have a way, which neither uses yet.
fn pair() -> [LocalPort; 2] {
    let host = MemoryNetwork::new().host([192, 0, 2, 1].into());
    let reservation =
        host.reserve(([192, 0, 2, 1], 0).into(), Ipv6Listen::Only, Sharing::Exclusive).unwrap();
    let addr = reservation.local_addr().unwrap();
    let acceptor = reservation.listen(1).unwrap();
    let there = host.connect(None, addr, None).unwrap();
    let ends = [there, acceptor.accept().unwrap()].map(LocalPort::new);
    let (ring, memory) = Ring::create(ROOM).unwrap();
    let rings = [ring, Ring::join(memory.as_fd(), ROOM).unwrap()];
    let (marks, fds) = Marks::create().unwrap();
    let [memory, peers, own]: [OwnedFd; 3] =
        fds.passed().map(|fd| fd.try_clone_to_owned().unwrap());
    let marks = [marks, Marks::join(memory, peers, own).unwrap()];
    for ((port, ring), marks) in ends.iter().zip(rings).zip(marks) {
        let channel = Channel::new(marks);
        assert!(channel.set_slot(0, port.waker()));
        assert!(port.set_way(Way { ring, channel, slot: 0 }));
    }
    ends
}

fn send(port: &LocalPort, octets: &[u8]) {
    assert_eq!(port.send(&[IoPart::new(octets)], false).unwrap(), octets.len());
}

fn recv(port: &LocalPort) -> std::io::Result<Vec<u8>> {
    let mut room = [0; 64];
    let len = port.recv(&mut [IoPartMut::new(&mut room)])?;
    Ok(room[..len].to_vec())
}

#[test]
fn bytes_that_came_first_are_not_taken_for_those_of_the_ring() {
    let [one, other] = pair();
    send(&one, b"by the stream");
    one.permit(false);
    assert_eq!(one.switch(), Some(false));
    send(&one, b"by the ring");
    assert_eq!(recv(&other).unwrap(), b"by the stream");
    assert_eq!(other.came_with(), None, "they still have CRCs");
    assert_eq!(recv(&other).unwrap(), b"by the ring");
    assert_eq!(other.came_with(), Some(false));
}

#[test]
fn an_end_is_told_by_the_ring_and_a_reset_is_not() {
    for resets in [false, true] {
        let [one, other] = pair();
        for end in [&one, &other] {
            end.permit(false);
            end.switch().unwrap();
        }
        if resets {
            one.reset_on_close();
        }
        drop(one);
        other.line_speaks();
        let left = recv(&other).map_err(|error| error.kind());
        match resets {
            false => assert_eq!(left, Ok(Vec::new())),
            true => assert_eq!(left, Err(std::io::ErrorKind::ConnectionReset)),
        }
    }
}

#[test]
fn a_process_that_marks_all_the_time_gets_its_turn_and_no_more() {
    let [one, other] = pair();
    let channel = Arc::clone(&other.way.get().unwrap().channel);
    // Each look finds another mark.
    struct MarksAgain(Arc<Channel>);
    impl std::fmt::Debug for MarksAgain {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("MarksAgain")
        }
    }
    impl crate::port::Wake for MarksAgain {
        fn wake(&self, _: crate::port::Readiness) {
            self.0.mark(0);
        }
    }
    let peer = Arc::clone(&one.way.get().unwrap().channel);
    other.set_waker(crate::port::Waker::new(Arc::new(MarksAgain(peer))));
    // Before it listens, so that the mark itself rings no bell.
    one.way.get().unwrap().channel.mark(0);
    channel.listen();
    channel.look();
    let bell = iwarp_os::poll::wait_readable([channel.bell()], Some(std::time::Duration::ZERO));
    assert_eq!(bell.unwrap(), [true], "nothing brings about the next look");
}
