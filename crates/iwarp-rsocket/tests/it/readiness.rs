// SPDX-License-Identifier: MIT OR Apache-2.0

//! The system's own `poll` on the descriptors, in the states of `poll-table.csv`.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use iwarp_rsocket::{Domain, Socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::support::{host, listener, pair};

const NONE: PollFlags = PollFlags::empty();
const IN_OUT: PollFlags = PollFlags::IN.union(PollFlags::OUT);
const ENDED: PollFlags = IN_OUT.union(PollFlags::RDHUP);
const OVER: PollFlags = ENDED.union(PollFlags::HUP);

fn shown(socket: &Socket) -> PollFlags {
    let all = IN_OUT | PollFlags::RDHUP | PollFlags::PRI;
    socket
        .with_descriptor(|fd| {
            let mut fds = [PollFd::from_borrowed_fd(fd, all)];
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("it polls");
            fds[0].revents()
        })
        .expect("it is open")
}

/// Waits for what the peer's act brings about, without a call of the socket's.
#[track_caller]
fn becomes(socket: &Socket, wanted: PollFlags) {
    let until = Instant::now() + Duration::from_secs(20);
    while shown(socket) != wanted {
        assert!(Instant::now() < until, "{:?} in place of {wanted:?}", shown(socket));
        std::thread::yield_now();
    }
}

/// Covers: RS-POLL-01, RS-POLL-02
#[test]
fn data_and_ends_are_shown() {
    let (client, server) = pair();
    let mut room = [0; 64];
    becomes(&client, PollFlags::OUT);
    becomes(&server, PollFlags::OUT);
    for _ in 0..3 {
        client.send_all(b"data").expect("it goes out");
        becomes(&server, IN_OUT);
        assert_eq!(server.try_recv(&mut room[..3]).expect("data"), 3);
        assert_eq!(shown(&server), IN_OUT, "one byte is left");
        assert_eq!(server.try_recv(&mut room).expect("data"), 1);
        assert_eq!(shown(&server), PollFlags::OUT);
    }
    client.send_all(b"last").expect("it goes out");
    client.shutdown(Shutdown::Write).expect("it is connected");
    assert_eq!(shown(&client), PollFlags::OUT);
    becomes(&server, ENDED);
    assert_eq!(server.try_recv(&mut room).expect("data"), 4);
    assert_eq!(shown(&server), ENDED);
    server.shutdown(Shutdown::Write).expect("it is connected");
    assert_eq!(shown(&server), OVER);
    becomes(&client, OVER);
}

/// The other half of the ring is announced without a call of the other end.
///
/// Covers: RS-FLOW-12, RS-POLL-01, RS-POLL-02
#[test]
fn a_full_buffer_is_not_writable() {
    let (client, server) = pair();
    let bytes = vec![0; 100_000];
    let until = Instant::now() + Duration::from_secs(20);
    let mut sent = 0;
    while shown(&client) != NONE {
        sent += client.try_send(&bytes).unwrap_or(0);
        assert!(Instant::now() < until, "{sent}");
    }
    assert!(sent > 200_000, "the buffer, and more than half of the ring: {sent}");
    let mut room = vec![0; 100_000];
    while sent > 0 {
        sent -= server.recv(&mut room).expect("bytes");
    }
    becomes(&client, PollFlags::OUT);
    becomes(&server, PollFlags::OUT);
}

/// A call that was about to sleep, and found the byte just then, is as over as any.
///
/// Covers: RS-POLL-02
#[test]
fn data_are_shown_behind_a_call_that_has_waited() {
    let (client, server) = pair();
    let mut byte = [0];
    std::thread::scope(|scope| {
        let (told, hears) = std::sync::mpsc::channel();
        let client = &client;
        scope.spawn(move || {
            for number in hears {
                client.send_all(&[number]).expect("it goes out");
            }
        });
        for number in 0..=250 {
            told.send(number).expect("it sends");
            assert_eq!((server.recv(&mut byte).expect("a byte"), byte), (1, [number]));
            told.send(number).expect("it sends");
            becomes(&server, IN_OUT);
            assert_eq!(server.try_recv(&mut byte).expect("a byte"), 1);
        }
    });
}

/// Covers: RS-POLL-02
#[test]
fn a_listener_is_readable_while_a_connection_waits() {
    let host = host();
    let (listener, addr) = listener(&host, Domain::Ipv4);
    assert_eq!(shown(&listener), NONE);
    let client = Socket::new(&host, Domain::Ipv4).expect("a socket");
    client.connect(addr).expect("it connects");
    becomes(&listener, PollFlags::IN);
    let (server, _) = listener.accept().expect("it comes in");
    assert_eq!(shown(&listener), NONE);
    client.close().expect("it is open");
    becomes(&server, ENDED);
}

/// Covers: RS-API-09, RS-POLL-02
#[test]
fn a_refused_connection_is_an_error_until_it_is_told() {
    let host = host();
    let (gone, addr) = listener(&host, Domain::Ipv4);
    gone.close().expect("it is open");
    let client = Socket::new(&host, Domain::Ipv4).expect("a socket");
    let _ = client.try_connect(addr);
    becomes(&client, OVER | PollFlags::ERR);
    let error = client.take_error().expect("an error");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(shown(&client), OVER);
    assert!(client.take_error().is_none());
}

/// Covers: RS-POLL-02
#[test]
fn a_reset_is_an_error_until_it_is_told() {
    let (client, server) = pair();
    client.abort();
    becomes(&server, OVER | PollFlags::ERR);
    assert!(server.try_recv(&mut [0]).is_err());
    assert_eq!(shown(&server), OVER);
}
