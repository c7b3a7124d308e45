// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer of the personality of a RoCE device learns that its message was received, also from a
//! program that leaves the moment it has it.

use std::thread;

use iwarp::{Options, Personality};

use crate::common::channels;

/// The worker that delivers the message has yet to see what asks for the acknowledgement when the
/// program, which it has woken, drops the queue pair.
#[test]
fn a_received_message_is_acknowledged_though_its_receiver_leaves() {
    let roce = Options::new().personality(Personality::Roce);
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
