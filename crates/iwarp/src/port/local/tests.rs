// SPDX-License-Identifier: MIT OR Apache-2.0

//! A port that moves from its first stream to a ring.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use iwarp_os::local::{Marks, Ring};
use iwarp_os::{Ipv6Listen, Sharing};

use super::{Channel, LocalPort, ROOM, Way};
use crate::port::{Descriptors, Ends, IoPart, IoPartMut, MemoryNetwork, Port};

/// Two ends that have a way, which neither uses yet.
fn pair() -> [LocalPort; 2] {
    pair_with(|line| line)
}

/// The second one's stream is what `wrap` makes of it.
fn pair_with(wrap: impl FnOnce(Box<dyn Port>) -> Box<dyn Port>) -> [LocalPort; 2] {
    let host = MemoryNetwork::new().host([192, 0, 2, 1].into());
    let reservation =
        host.reserve(([192, 0, 2, 1], 0).into(), Ipv6Listen::Only, Sharing::Exclusive).unwrap();
    let addr = reservation.local_addr().unwrap();
    let acceptor = reservation.listen(1).unwrap();
    let there = host.connect(None, addr, None).unwrap();
    let ends = [there, wrap(acceptor.accept().unwrap())].map(LocalPort::new);
    let (ring, memory) = Ring::create(ROOM).unwrap();
    let rings = [ring, Ring::join(memory.as_fd(), ROOM).unwrap()];
    let (marks, fds) = Marks::create().unwrap();
    let [memory, peers, own]: [OwnedFd; 3] =
        fds.passed().map(|fd| fd.try_clone_to_owned().unwrap());
    let marks = [marks, Marks::join(memory, peers, own).unwrap()];
    for ((port, ring), marks) in ends.iter().zip(rings).zip(marks) {
        let channel = Channel::new(marks);
        assert!(channel.set_slot(0, port.waker()));
        assert!(port.set_way(Way { ring: Arc::new(ring), channel, slot: 0 }));
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

/// Something that happens once.
type Act = Box<dyn FnOnce() + Send>;

/// A stream with something that happens as soon as it is asked for bytes.
struct Meanwhile {
    line: Box<dyn Port>,
    act: Arc<Mutex<Option<Act>>>,
}

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Port for Meanwhile {
    fn send(&self, parts: &[IoPart<'_>], more: bool) -> std::io::Result<usize> {
        self.line.send(parts, more)
    }

    fn recv(&self, parts: &mut [IoPartMut<'_>]) -> std::io::Result<usize> {
        let act = self.act.lock().unwrap().take();
        act.into_iter().for_each(|act| act());
        self.line.recv(parts)
    }

    fn has_input(&self) -> std::io::Result<bool> {
        self.line.has_input()
    }

    fn shutdown_write(&self) -> std::io::Result<()> {
        self.line.shutdown_write()
    }

    fn ends(&self) -> Ends {
        self.line.ends()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.line.descriptors()
    }
}

/// The peer's first bytes in the ring, and its end, come while TCP is asked for bytes.
#[test]
fn an_end_of_tcp_does_not_come_before_what_is_in_the_ring() {
    for is_killed in [false, true] {
        let act = Arc::default();
        let its = Arc::clone(&act);
        let [one, other] = pair_with(|line| Box::new(Meanwhile { line, act: its }));
        let killed = Arc::new(Mutex::new(None));
        let grave = Arc::clone(&killed);
        let leave = move || {
            one.permit(false);
            one.switch().unwrap();
            send(&one, b"by the ring");
            if is_killed {
                // Its end by TCP is the system's.
                one.line.shutdown_write().unwrap();
                *grave.lock().unwrap() = Some(one);
            }
        };
        *act.lock().unwrap() = Some(Box::new(leave));
        assert_eq!(recv(&other).unwrap(), b"by the ring");
        let left = recv(&other).map_err(|error| error.kind());
        match is_killed {
            false => assert_eq!(left, Ok(Vec::new())),
            true => assert_eq!(left, Err(std::io::ErrorKind::ConnectionReset)),
        }
        drop(killed);
    }
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
