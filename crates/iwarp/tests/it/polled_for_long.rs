// SPDX-License-Identifier: MIT OR Apache-2.0

//! A program polls for long, so that the worker stays away and bells are hushed, or arms its queue
//! again and again. No event that comes then is missed, for any next act of the program.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use iwarp::cm::Listener;
use iwarp::{
    CompletionChannel, CompletionQueue, Ended, QueuePairAttributes, RecvRequest, WcStatus,
};

use crate::common::channels;
use crate::common::{DEADLINE, End, Setup, couple, next, until};

const SIGNAL: u64 = 1000;

/// More polls than it takes, with messages among them, so that the worker stays away from then on.
fn poll_for_long(client: &End, server: &End) {
    for id in 0..300 {
        server.post_recv(id, &[]);
        client.send(id, &[]);
        assert_eq!(client.sent().wr_id, id);
        assert_eq!(server.received().wr_id, id);
        assert_eq!(server.recv_cq.poll_one(), None);
    }
}

/// The client sends while the server goes to sleep in some way, from which it must be woken.
fn wakes_from(sleep: impl Fn(&CompletionChannel) + Sync) {
    let [(client, _), (server, channel)] = channels::connect();
    for _ in 0..50 {
        poll_for_long(&client, &server);
        server.post_recv(SIGNAL, &[]);
        server.recv_cq.request_notify(false);
        thread::scope(|scope| {
            scope.spawn(|| sleep(&channel));
            client.send(SIGNAL, &[]);
            assert_eq!(client.sent().wr_id, SIGNAL);
        });
        assert_eq!(server.received().wr_id, SIGNAL);
        while channel.try_next().is_some() {}
    }
}

#[test]
fn a_call_that_blocks_is_woken() {
    wakes_from(|channel| assert!(channel.wait(Some(DEADLINE)).unwrap().is_some()));
}

#[test]
fn a_program_that_sleeps_on_the_descriptor_is_woken() {
    wakes_from(channels::sleep);
}

/// As UCX's event loop does: it polls, arms its queue, and looks at the channel without waiting.
fn arm_for_long(end: &End, channel: &CompletionChannel) {
    for _ in 0..300 {
        assert_eq!(end.recv_cq.poll_one(), None);
        end.recv_cq.request_notify(false);
        assert!(channel.try_next().is_none());
    }
}

/// The server has armed its queue in vain many times when it goes to sleep. It is woken about as
/// soon as one that has not.
fn wakes_one_that_has_armed_from(sleep: impl Fn(&CompletionChannel) + Sync) {
    let [(client, _), (server, channel)] = channels::connect();
    for id in 0..50 {
        server.post_recv(id, &[]);
        arm_for_long(&server, &channel);
        thread::scope(|scope| {
            scope.spawn(|| sleep(&channel));
            client.send(id, &[]);
            assert_eq!(client.sent().wr_id, id);
        });
        assert_eq!(server.received().wr_id, id);
        while channel.try_next().is_some() {}
    }
}

#[test]
fn a_program_that_armed_in_vain_and_sleeps_on_the_descriptor_is_woken() {
    wakes_one_that_has_armed_from(channels::sleep);
}

#[test]
fn a_program_that_armed_in_vain_and_blocks_is_woken() {
    wakes_one_that_has_armed_from(|channel| {
        assert!(channel.wait(Some(DEADLINE)).unwrap().is_some());
    });
}

/// It moves its traffic itself meanwhile: events are for what its polls have found.
#[test]
fn a_program_that_arms_with_each_poll_receives_all() {
    const MESSAGES: u64 = 2_000;
    const RECEIVES: u64 = 16;
    let [(client, _), (server, channel)] = channels::connect();
    (0..RECEIVES).for_each(|id| server.post_recv(id, &[]));
    let received = AtomicU64::new(0);
    let count = || received.load(Ordering::Acquire);
    thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..MESSAGES {
                until("a receive", || (id < count() + RECEIVES).then_some(()));
                client.send(id, &[]);
                client.sent();
            }
        });
        until("all messages", || {
            while let Some(completion) = server.recv_cq.poll_one() {
                assert_eq!(completion.status, WcStatus::Success);
                server.post_recv(0, &[]);
                received.fetch_add(1, Ordering::Release);
            }
            server.recv_cq.request_notify(false);
            while channel.try_next().is_some() {}
            (count() == MESSAGES).then_some(())
        });
    });
}

#[test]
fn a_program_that_stops_polling_is_served() {
    let (client, server) = Setup::default().connect();
    let target = server.region(8);
    let word = target.buffer().unwrap().atomic_u64(0);
    for round in 1..=20u64 {
        poll_for_long(&client, &server);
        let source = client.region_of(&round.to_ne_bytes());
        client.write(1, source.whole(), &target, 0);
        until("the octets", || (word.load(Ordering::Acquire) == round).then_some(()));
        client.sent();
    }
}

#[test]
fn the_end_of_the_connection_is_seen() {
    let [(client, _), (server, channel)] = channels::connect();
    poll_for_long(&client, &server);
    server.post_recv(SIGNAL, &[]);
    server.recv_cq.request_notify(false);
    client.connection.disconnect();
    assert!(channel.wait(Some(DEADLINE)).unwrap().is_some());
    assert_eq!(next(&server.recv_cq).wr_id, SIGNAL);
    assert_eq!(server.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Closed));
}

/// The queue has a second stream from now on, then only that.
#[test]
fn streams_come_and_go() {
    let (client, server) = Setup::default().connect();
    let listener = Listener::bind(&server.device, "127.0.0.1:0").unwrap();
    poll_for_long(&client, &server);
    let ours =
        client.pd.create_qp(&QueuePairAttributes::new(&client.send_cq, &client.recv_cq)).unwrap();
    let theirs =
        server.pd.create_qp(&QueuePairAttributes::new(&server.send_cq, &server.recv_cq)).unwrap();
    let (connection, their_connection) = couple(&client.device, &ours, &listener, &theirs);
    let (device, pd) = (server.device.clone(), server.pd.clone());
    let (send_cq, recv_cq) = (server.send_cq.clone(), server.recv_cq.clone());
    let other = End { device, pd, send_cq, recv_cq, qp: theirs, connection: their_connection };
    let (device, pd) = (client.device.clone(), client.pd.clone());
    let (send_cq, recv_cq) = (client.send_cq.clone(), client.recv_cq.clone());
    let dialer = End { device, pd, send_cq, recv_cq, qp: ours, connection };
    poll_for_long(&client, &server);
    poll_for_long(&dialer, &other);
    client.connection.disconnect();
    assert_eq!(server.connection.wait_disconnected(Some(DEADLINE)), Some(Ended::Closed));
    poll_for_long(&dialer, &other);
    other.qp.post_recv(&RecvRequest::new(SIGNAL, &[])).unwrap();
    dialer.connection.disconnect();
    assert_eq!(next(&other.recv_cq).wr_id, SIGNAL);
}

/// A program with a queue for what it sends and one for what it receives, which arms the one of the
/// two that it waits for, sleeps, and afterwards looks at both (as QEMU's migration does).
#[test]
fn a_program_that_arms_its_queues_in_turn_is_woken() {
    const ROUNDS: u64 = 5_000;
    let ends = channels::connect();
    let [(client, _), (server, _)] = &ends;
    for end in [client, server] {
        (0..2).for_each(|id| end.post_recv(id, &[]));
    }
    thread::scope(|scope| {
        for (first, (end, channel)) in [true, false].into_iter().zip(&ends) {
            scope.spawn(move || {
                let mut early = false;
                for round in 0..ROUNDS {
                    for sends in [first, !first] {
                        if sends {
                            end.send(SIGNAL, &[]);
                            awaits(&end.send_cq, channel);
                        } else if !std::mem::take(&mut early) {
                            awaits(&end.recv_cq, channel);
                        }
                    }
                    end.post_recv(round, &[]);
                    early = end.recv_cq.poll_one().is_some();
                    (0..50).for_each(|_| assert_eq!(end.send_cq.poll_one(), None));
                }
            });
        }
    });
}

/// Sleeps on the descriptor until the queue has something, without ever having blocked in a call.
fn awaits(queue: &CompletionQueue, channel: &CompletionChannel) {
    queue.request_notify(false);
    while queue.poll_one().is_none() {
        channels::sleep(channel);
        while channel.try_next().is_some() {}
        queue.request_notify(false);
    }
}
