// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs that sleep in `poll` on the descriptor of a completion channel and call the library
//! only when it is readable: the worker moves their connections, at once. Judged in virtual time:
//! the clock stands still from the moment at which a program goes to sleep until it is told.

use std::time::Duration;

use iwarp::Options;

use crate::common::channels;
use crate::common::scene::{Actor, STEP, Scene};
use crate::common::succeeded;

/// The acts of a program that was told: it takes the event, arms the queue, and polls until that is
/// empty. Returns the number of messages.
fn receive(end: &Actor) -> usize {
    assert_eq!(end.recv_channel.try_next(), Some(end.recv_cq.number()), "it was not told");
    end.recv_cq.request_notify(false);
    std::iter::from_fn(|| end.recv_cq.poll_one()).map(succeeded).count()
}

#[test]
fn a_message_wakes_a_program_that_sleeps_on_the_descriptor_at_once() {
    const ROUNDS: u64 = 400;
    let scene = Scene::new();
    let ends = scene.connect(&Options::default());
    let regions = ends.each_ref().map(|end| (end.region(4), end.region(4)));
    for end in &ends {
        end.recv_cq.request_notify(false);
        assert_eq!(end.recv_cq.poll_one(), None);
    }
    while scene.turn() {}
    for round in 0..ROUNDS {
        for which in 0..2 {
            let (from, to) = (&ends[which], &ends[1 - which]);
            to.post_recv(round, &[regions[1 - which].1.whole()]);
            from.send(round, &[regions[which].0.whole()]);
            from.sent(&scene);
            // A lease that outlives the program's going to sleep would take half a millisecond.
            let told = scene.clock.now();
            while scene.turn() {}
            assert_eq!(receive(to), 1, "round {round}");
            assert_eq!(scene.clock.now(), told);
        }
    }
}

/// The program polls for a while before it goes to sleep, and its queue is served by then.
#[test]
fn a_program_that_polled_before_is_woken_too() {
    // A connection for each: the engine learns what kind of program this is.
    for round in 0..20u64 {
        let scene = Scene::new();
        let [client, server] = scene.connect(&Options::default());
        let (source, sink) = (client.region(4), server.region(4));
        server.post_recv(round, &[sink.whole()]);
        // The worker is woken by something, and finds that the program polls.
        client.write(round, source.whole(), &sink, 0);
        let polls = Duration::from_micros(300).as_nanos() / STEP.as_nanos();
        for _ in 0..polls {
            assert_eq!(server.recv_cq.poll_one(), None);
            scene.pause();
        }
        server.recv_cq.request_notify(round % 2 == 0);
        while scene.turn() {}
        let solicited = iwarp::SendOp::Send { solicited: true, invalidate: None };
        client.post(round, solicited, &[source.whole()]);
        let posted = scene.clock.now();
        while scene.turn() {}
        assert_eq!(scene.clock.now(), posted);
        assert_eq!(receive(&server), 1, "round {round}");
    }
}

/// The last look before the program sleeps receives a part of a message: the rest is served as soon
/// as it comes.
#[test]
fn a_last_look_that_finds_half_a_message_keeps_no_worker_away() {
    const LEN: usize = 600_000;
    let scene = Scene::new();
    let [client, server] = scene.connect(&Options::default());
    let (source, sink) = (client.region(LEN), server.region(LEN));
    for round in 0..20 {
        // The worker has found that leases may be short.
        for id in 0..8 {
            server.post_recv(id, &[]);
            server.recv_cq.poll_one();
            client.send(id, &[]);
            scene.pass(Duration::from_millis(2));
            server.received(&scene);
            client.sent(&scene);
        }
        while server.recv_channel.try_next().is_some() {}
        server.post_recv(round, &[sink.whole()]);
        server.recv_cq.request_notify(false);
        client.send_cq.request_notify(false);
        client.send(round, &[source.whole()]);
        assert_eq!(server.recv_cq.poll_one(), None, "all of it was there");
        let asleep = scene.clock.now();
        while scene.turn() {}
        assert_eq!(receive(&server), 1, "round {round}");
        assert_eq!(scene.clock.now(), asleep);
        client.sent(&scene);
    }
}

/// Something that waits goes nowhere when the program sets the descriptor's flags, and reading it
/// waits for nothing.
#[test]
fn taking_an_event_that_is_not_there_does_not_wait() {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    let [(client, channel), _] = channels::connect();
    // As a real one: whether calls wait is the program's choice.
    let flags = fcntl_getfl(&channel).unwrap();
    assert!(!flags.contains(OFlags::NONBLOCK));
    for flags in [flags, flags | OFlags::NONBLOCK] {
        fcntl_setfl(&channel, flags).unwrap();
        assert_eq!(channel.try_next(), None);
        assert_eq!(channel.wait(Some(Duration::from_millis(1))).unwrap(), None);
        assert_eq!(client.device.poll_async_event().unwrap(), None);
    }
}
