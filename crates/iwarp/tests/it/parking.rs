// SPDX-License-Identifier: MIT OR Apache-2.0

//! The personality of a RoCE device: completed means received, and messages wait for receives.

use iwarp::{
    Ended, Options, Personality, QpState, QueuePairAttributes, RecvRequest, SendOp,
    SharedReceiveQueue, WcOp, WcStatus,
};
use iwarp_proto::rdmap::wire::Opcode;

use crate::common;
use crate::common::raw::{self, Raw};
use crate::common::{End, Setup, pattern, until};

fn setup() -> Setup {
    Setup::both(&Options::new().personality(Personality::Roce))
}

#[test]
fn a_completed_write_has_arrived() {
    let (client, server) = setup().connect();
    let target = server.region(256);
    for round in 1..=2000u64 {
        let source = client.region_of(&pattern(256, round));
        client.write(round, source.whole(), &target, 0);
        assert_eq!(client.sent().wr_id, round);
        assert!(target.buffer().unwrap().to_vec() == pattern(256, round), "round {round}");
    }
}

/// The program that is to receive does nothing but post: its worker has put the messages aside.
#[test]
fn messages_wait_for_receives() {
    let (client, server) = setup().connect();
    for round in 0..50u64 {
        let len = 1 + (round as usize * 997) % 8000;
        let (source, mark) =
            (client.region_of(&pattern(len, round)), client.region_of(&pattern(8, round)));
        let (sink, target) = (server.region(len), server.region(8));
        client.send(round, &[source.whole()]);
        // Placed, though the message before it waits; what completes does so in order.
        client.write(round, mark.sge(0, 8), &target, 0);
        until("the Write", || {
            (target.buffer().unwrap().to_vec() == pattern(8, round)).then_some(())
        });
        assert!(client.send_cq.poll_one().is_none());
        server.post_recv(round, &[sink.whole()]);
        for _ in 0..2 {
            assert_eq!(client.sent().wr_id, round);
        }
        assert!(sink.buffer().unwrap().to_vec() == pattern(len, round));
        let completion = server.received();
        assert_eq!((completion.wr_id, completion.byte_len), (round, len as u32));
    }
}

/// More than is put aside, with other work on the same stream; and then the receives.
fn overfill(client: &End, server: &End, post: impl Fn(u64, &[iwarp::Sge])) {
    overfill_with(client, server, &post, 96 * 1024, 40);
    // None of these fits in.
    overfill_with(client, server, &post, 3 << 20, 4);
    overfill_with(client, server, &post, 1000, 40);
}

fn overfill_with(
    client: &End,
    server: &End,
    post: &impl Fn(u64, &[iwarp::Sge]),
    len: usize,
    count: u64,
) {
    let source = client.region_of(&pattern(len, 5));
    let target = server.region(64);
    for id in 0..count {
        client.send(id, &[source.whole()]);
    }
    client.write(count, source.sge(0, 64), &target, 0);
    let sinks: Vec<_> = (0..count).map(|_| server.region(len)).collect();
    for (id, sink) in (0..).zip(&sinks) {
        post(id, &[sink.whole()]);
        if id % 3 == 0 {
            let (completion, came) = (server.received(), id);
            assert!(completion.wr_id <= came && completion.op == WcOp::Recv);
        }
    }
    let left = count - (0..count).filter(|id| id % 3 == 0).count() as u64;
    for _ in 0..left {
        assert_eq!(server.received().byte_len as usize, len);
    }
    for id in 0..=count {
        assert_eq!(client.sent().wr_id, id);
    }
    assert!(sinks.iter().all(|sink| sink.buffer().unwrap().to_vec() == pattern(len, 5)));
    assert!(target.buffer().unwrap().to_vec() == pattern(len, 5)[..64]);
}

/// Covers: DDP-5041-7.1-04
#[test]
fn a_full_park_stops_the_stream_until_receives_are_there() {
    for crc in [true, false] {
        let options = Options::new().personality(Personality::Roce).crc(crc);
        let (client, server) = Setup::both(&options).connect();
        overfill(&client, &server, |id, sges| server.post_recv(id, sges));
    }
}

/// Replaces the server's queue pair by one that takes its receives from a shared queue, which is in
/// another protection domain if it is `apart`: the one that the server's end then has.
fn shared(options: &Options, apart: bool) -> (End, End, SharedReceiveQueue) {
    let devices = [0; 2].map(|_| iwarp::Device::with_options(options.clone()).unwrap());
    let listener = iwarp::cm::Listener::bind(&devices[1], "127.0.0.1:0").unwrap();
    let (pd, send_cq, recv_cq, qp) = common::parts(&devices[0], 64);
    let (their_pd, their_send_cq, their_recv_cq, _) = common::parts(&devices[1], 64);
    let domain = if apart { devices[1].alloc_pd() } else { their_pd.clone() };
    let srq = domain.create_srq(64, 1);
    let attributes = QueuePairAttributes::new(&their_send_cq, &their_recv_cq).srq(&srq);
    let their_qp = their_pd.create_qp(&attributes).unwrap();
    let (ours, theirs) = common::couple(&devices[0], &qp, &listener, &their_qp);
    let [device, their_device] = devices;
    let client = End { device, pd, send_cq, recv_cq, qp, connection: ours };
    let server = End {
        device: their_device,
        pd: domain,
        send_cq: their_send_cq,
        recv_cq: their_recv_cq,
        qp: their_qp,
        connection: theirs,
    };
    (client, server, srq)
}

#[test]
fn messages_wait_for_a_shared_queue_as_well() {
    for crc in [true, false] {
        let options = Options::new().personality(Personality::Roce).crc(crc);
        let (client, server, srq) = shared(&options, false);
        overfill(&client, &server, |wr_id, sges| {
            srq.post(&RecvRequest::new(wr_id, sges)).unwrap();
        });
    }
}

/// For any domain of the queue pair that takes them, and any length of the message.
#[test]
fn receives_of_a_shared_queue_are_in_its_domain() {
    for crc in [true, false] {
        let options = Options::new().personality(Personality::Roce).crc(crc);
        let (client, server, srq) = shared(&options, true);
        for len in [8, 1000, 300_000] {
            let (source, sink) = (client.region_of(&pattern(len, 3)), server.region(len));
            srq.post(&RecvRequest::new(1, &[sink.whole()])).unwrap();
            client.send(2, &[source.whole()]);
            assert_eq!(server.received().byte_len as usize, len);
            client.sent();
            assert!(sink.buffer().unwrap().to_vec() == pattern(len, 3));
        }
        let other = server.device.alloc_pd();
        let foreign = other.allocate(8, common::all_access()).unwrap();
        srq.post(&RecvRequest::new(3, &[foreign.whole()])).unwrap();
        let source = client.region(8);
        client.send(4, &[source.whole()]);
        assert_eq!(common::next(&server.recv_cq).status, WcStatus::LocalProtection);
        assert_eq!(common::next(&client.send_cq).status, WcStatus::RemoteOperation);
    }
}

/// A message that comes while its receive is being posted finds it, in either order.
#[test]
fn no_message_is_forgotten_beside_a_receive() {
    let options = Options::new().personality(Personality::Roce);
    for is_shared in [false, true] {
        let (client, server, srq) = if is_shared {
            shared(&options, false)
        } else {
            let (client, server) = Setup::both(&options).connect();
            let srq = server.pd.create_srq(1, 1);
            (client, server, srq)
        };
        let (source, sink) = (client.region(64), server.region(64));
        for round in 0..2000u64 {
            std::thread::scope(|scope| {
                scope.spawn(|| client.send(round, &[source.whole()]));
                let sges = [sink.whole()];
                let receive = RecvRequest::new(round, &sges);
                if is_shared {
                    srq.post(&receive).unwrap();
                } else {
                    server.qp.post_recv(&receive).unwrap();
                }
            });
            // The server's queue is not polled before the completion is in it.
            until("the message", || (server.qp.outstanding().1 == 0).then_some(()));
            assert_eq!(server.received().wr_id, round);
            assert_eq!(client.sent().wr_id, round);
        }
    }
}

/// The stream of a queue pair that gives up is read on, so that the other end learns of it.
#[test]
fn a_stream_that_stands_still_can_be_ended() {
    let (client, server) = setup().connect();
    let source = client.region(1 << 20);
    for id in 0..8 {
        client.post(id, SendOp::SEND, &[source.whole()]);
    }
    server.connection.disconnect();
    assert!(client.connection.wait_disconnected(Some(common::DEADLINE)).is_some());
    until("the end", || {
        let (ours, theirs) = (client.device.connections(), server.device.connections());
        (ours + theirs == 0).then_some(())
    });
}

/// Whichever end closes the connection, no more Sends have completed than were received, and those
/// that were not received say so.
#[test]
fn a_send_completes_at_both_ends_or_not_at_its_own() {
    const SENDS: u64 = 6;
    for round in 0..140u64 {
        let (client, server) = setup().connect();
        let source = client.region_of(&pattern(700, round));
        let sinks: Vec<_> = (0..SENDS).map(|_| server.region(700)).collect();
        let (receives, end) = (round % (SENDS + 1), [&client, &server][round as usize % 2]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (id, sink) in (0..receives).zip(&sinks) {
                    server.post_recv(id, &[sink.whole()]);
                }
            });
            for id in 0..SENDS {
                client.send(id, &[source.whole()]);
            }
            // The rest is on its way then, or waits for receives that never come.
            (0..receives).for_each(|id| assert_eq!(server.received().wr_id, id));
            end.connection.disconnect();
            // A message that the peer has not received outlives it, until the program moves.
            assert!(client.connection.wait_disconnected(Some(common::DEADLINE)).is_some());
            client.connection.disconnect();
        });
        let sent: Vec<_> = (0..SENDS).map(|_| common::next(&client.send_cq).status).collect();
        let completed = sent.iter().take_while(|status| **status == WcStatus::Success).count();
        assert!(completed as u64 <= receives, "round {round}: {sent:?}, {receives} were received");
        // An end that leaves says what it has received.
        let is_told = std::ptr::eq(end, &server);
        assert!(!is_told || completed as u64 == receives, "round {round}: {sent:?}");
        assert!(sent[completed..].iter().all(|status| *status == WcStatus::Flushed), "{sent:?}");
        for sink in &sinks[..receives as usize] {
            assert!(sink.buffer().unwrap().to_vec() == pattern(700, round));
        }
    }
}

/// As over InfiniBand, where only the connection manager tells that a peer has left.
#[test]
fn posted_requests_outlive_a_peer_that_left_until_the_program_moves() {
    for moves in [true, false] {
        let (client, server) = setup().connect();
        let source = client.region(64);
        // By then each end knows what the other is.
        server.post_recv(0, &[]);
        client.send(0, &[]);
        assert_eq!((server.received().wr_id, client.sent().wr_id), (0, 0));
        client.post_recv(1, &[]);
        server.connection.disconnect();
        assert_eq!(
            client.connection.wait_disconnected(Some(common::DEADLINE)),
            Some(Ended::Closed)
        );
        client.send(2, &[source.whole()]);
        assert_eq!(client.qp.state(), QpState::Rts);
        assert!(client.recv_cq.poll_one().is_none() && client.send_cq.poll_one().is_none());
        if moves {
            client.connection.disconnect();
        }
        let failed = if moves { WcStatus::Flushed } else { WcStatus::RetryExceeded };
        assert_eq!(common::next(&client.send_cq).status, failed);
        assert_eq!(common::next(&client.recv_cq).status, WcStatus::Flushed);
        assert_eq!(client.qp.state(), QpState::Err);
    }
}

/// A peer that is not this library has no word for what it has received, as Linux siw, whose
/// program may close before the Read behind the last Send is answered. But its system closes a
/// socket in good order only where all was read that it has acknowledged.
#[test]
fn a_stranger_that_closes_has_received_what_its_system_has_acknowledged() {
    let (end, mut peer) = of_a_stranger();
    let source = end.region_of(&pattern(700, 1));
    end.send(1, &[source.whole()]);
    peer.expect(Opcode::Send);
    peer.expect(Opcode::ReadRequest);
    drop(peer);
    let done = common::next(&end.send_cq);
    assert_eq!((done.wr_id, done.status), (1, WcStatus::Success));
    assert_eq!(end.connection.wait_disconnected(Some(common::DEADLINE)), Some(Ended::Closed));
    // A request that is posted now has no peer left to go to.
    end.send(2, &[]);
    assert_eq!(common::next(&end.send_cq).status, WcStatus::RetryExceeded);
}

#[test]
fn a_stranger_that_closes_without_reading_has_received_nothing() {
    let (end, peer) = of_a_stranger();
    let source = end.region_of(&pattern(700, 1));
    end.send(1, &[source.whole()]);
    peer.await_input();
    // Its system acknowledges that, and resets the connection.
    drop(peer);
    assert_eq!(common::next(&end.send_cq).status, WcStatus::Flushed);
}

/// An end of this personality, whose peer has said nothing that only this library says.
fn of_a_stranger() -> (End, Raw) {
    raw::pair_with(&Options::new().personality(Personality::Roce), true)
}
