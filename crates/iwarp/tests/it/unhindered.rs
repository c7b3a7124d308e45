// SPDX-License-Identifier: MIT OR Apache-2.0

//! The personality of a RoCE device: a message that was received completes, though one behind it
//! waits for a receive. Programs post that receive when they have heard of the completion.

use iwarp::{LocalPath, Options, Personality};

use crate::common::{End, Setup, pattern, until};

fn connected(path: LocalPath, crc: bool) -> (End, End) {
    let options = Options::new().personality(Personality::Roce).local(path).demands_crc(crc);
    let (client, server) = Setup::both(&options).connect();
    until("the way", || {
        // Polling moves what has come.
        assert_eq!((client.recv_cq.poll_one(), server.recv_cq.poll_one()), (None, None));
        ([client.qp.local_path(), server.qp.local_path()] == [path; 2]).then_some(())
    });
    (client, server)
}

fn ways() -> impl Iterator<Item = (End, End)> {
    let ways = [LocalPath::Off, LocalPath::Rings].map(|path| [(path, false), (path, true)]);
    ways.into_iter().flatten().map(|(path, crc)| connected(path, crc))
}

/// Messages that fit into the park, and messages that do not.
#[test]
fn each_message_of_a_burst_completes_before_the_next_one_has_a_receive() {
    for (client, server) in ways() {
        for len in [8, 100_000, 2 << 20] {
            let (from, inbox) = (client.region_of(&pattern(len, 7)), server.region(len));
            for turn in 0..4 {
                client.send(turn, &[from.whole()]);
            }
            for turn in 0..4 {
                server.post_recv(turn, &[inbox.whole()]);
                assert_eq!(server.received().wr_id, turn);
                assert_eq!(client.sent().wr_id, turn, "{len}");
            }
            assert!(inbox.buffer().unwrap().to_vec() == pattern(len, 7));
        }
    }
}

#[test]
fn a_write_completes_before_the_message_behind_it_has_a_receive() {
    for (client, server) in ways() {
        for len in [0, 8, 2 << 20] {
            let (from, target) =
                (client.region_of(&pattern(8.max(len), 7)), server.region(2 << 20));
            client.write(1, from.sge(0, len), &target, 0);
            client.send(2, &[from.whole()]);
            assert_eq!(client.sent().wr_id, 1, "{len}");
            let inbox = server.region(8.max(len));
            server.post_recv(3, &[inbox.whole()]);
            assert_eq!((server.received().wr_id, client.sent().wr_id), (3, 2));
        }
    }
}

/// Each end has a receive for the first message of the other alone.
#[test]
fn two_ends_whose_messages_wait_at_each_other_complete_what_was_received() {
    for (client, server) in ways() {
        let sources = [&client, &server].map(|end| (end, end.region_of(&pattern(8, 7))));
        for (end, from) in &sources {
            for turn in 0..4 {
                end.send(turn, &[from.whole()]);
            }
        }
        let inboxes = [&client, &server].map(|end| (end, end.region(8)));
        for turn in 0..4 {
            for (end, inbox) in &inboxes {
                end.post_recv(turn, &[inbox.whole()]);
            }
            for (end, _) in &inboxes {
                assert_eq!((end.received().wr_id, end.sent().wr_id), (turn, turn));
            }
        }
    }
}
