//! A peer of the personality of a RoCE device learns that its message was received, also from a
//! program that leaves the moment it has it.

#[path = "common/channels.rs"]
mod channels;
mod common;

use std::thread;

use common::{DEADLINE, next};
use iwarp::{Ended, Options, Personality, WcStatus};

/// The worker that delivers the message has yet to see what asks for the acknowledgement when the
/// program, which it has woken, drops the queue pair.
#[test]
fn what_is_received_is_acknowledged_although_its_receiver_leaves() {
    let roce = Options { personality: Personality::Roce, ..Options::default() };
    for round in 0..300 {
        let [(client, _), (server, channel)] = channels::connect_with(&roce);
        server.post_recv(round, &[]);
        server.recv_cq.request_notify(false);
        thread::scope(|scope| {
            scope.spawn(move || {
                channels::sleep(&channel);
                assert_eq!(server.received().wr_id, round);
                drop(server);
            });
            client.send(round, &[]);
            assert_eq!(client.sent().wr_id, round);
        });
    }
}

/// A peer sends its last message and goes: over InfiniBand the connection manager tells of that, and
/// receives stay until this end leaves too. Programs that poll take a flushed one for a failure,
/// whatever came before it.
#[test]
fn an_end_is_told_before_receives_are_flushed() {
    let roce = Options { personality: Personality::Roce, ..Options::default() };
    let [(client, _), (server, _)] = channels::connect_with(&roce);
    client.post_recv(1, &[]);
    client.post_recv(2, &[]);
    server.send(1, &[]);
    assert_eq!(client.received().wr_id, 1);
    assert_eq!(server.sent().wr_id, 1);
    drop(server);
    assert_eq!(client.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Closed));
    assert_eq!(client.recv_cq.poll_one(), None);
    // By itself after a moment: there are programs that wait for that alone.
    let last = next(&client.recv_cq);
    assert_eq!((last.wr_id, last.status), (2, WcStatus::Flushed));
}
