//! Programs that sleep in `poll` on the descriptor of a completion channel and call the library
//! only when it is readable: the worker moves their connections, at once.

use std::thread;
use std::time::{Duration, Instant};

use iwarp::CompletionChannel;

use crate::common;
use crate::common::End;
use crate::common::channels;

/// The machine may be busy: what the best tenth did not exceed.
fn best_tenth(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 10]
}

/// Waits for a message as programs do: sleep, take the event, arm the queue, poll until it is
/// empty. The queue is armed when this is called, and again when it returns.
fn receive(end: &End, channel: &CompletionChannel) {
    loop {
        channels::sleep(channel);
        if channel.try_next().is_none() {
            continue;
        }
        end.recv_cq.request_notify(false);
        let mut came = false;
        while end.recv_cq.poll_one().is_some() {
            came = true;
        }
        if came {
            return;
        }
    }
}

#[test]
fn a_message_wakes_a_program_that_sleeps_on_the_descriptor_at_once() {
    const ROUNDS: u64 = 400;
    let [(client, channel), (server, their_channel)] = channels::connect();
    let (source, sink) = (client.region(4), client.region(4));
    let (their_source, their_sink) = (server.region(4), server.region(4));
    for end in [&client, &server] {
        end.recv_cq.request_notify(false);
        assert_eq!(end.recv_cq.poll_one(), None);
    }
    let mut times: Vec<Duration> = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                server.post_recv(round, &[their_sink.whole()]);
                receive(&server, &their_channel);
                server.send(round, &[their_source.whole()]);
                server.sent();
            }
        });
        for round in 0..ROUNDS {
            client.post_recv(round, &[sink.whole()]);
            // Its receive may not be there yet: that ends a connection.
            common::until("a receive", || (server.qp.outstanding().1 == 1).then_some(()));
            let start = Instant::now();
            client.send(round, &[source.whole()]);
            client.sent();
            receive(&client, &channel);
            times.push(start.elapsed());
        }
    });
    // A lease that outlives the program's going to sleep takes half a millisecond, each way, always.
    let best = best_tenth(&mut times);
    assert!(best < Duration::from_micros(700), "{best:?}");
}

/// The program polls for a while before it goes to sleep, and its queue is served by then.
#[test]
fn a_program_that_polled_before_is_woken_too() {
    let mut times = Vec::new();
    // A connection for each: the engine learns what kind of program this is.
    for round in 0..20u64 {
        let [(client, _), (server, channel)] = channels::connect();
        let (source, sink) = (client.region(4), server.region(4));
        server.post_recv(round, &[sink.whole()]);
        // The worker is woken by something, and finds that the program polls.
        client.write(round, source.whole(), &sink, 0);
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(300) {
            assert_eq!(server.recv_cq.poll_one(), None);
        }
        server.recv_cq.request_notify(round % 2 == 0);
        let start = Instant::now();
        let solicited = iwarp::SendOp::Send { solicited: true, invalidate: None };
        client.post(round, solicited, &[source.whole()]);
        channels::sleep(&channel);
        times.push(start.elapsed());
        assert_eq!(channel.try_next(), Some(server.recv_cq.number()));
        assert_eq!(server.received().wr_id, round);
    }
    let best = best_tenth(&mut times);
    assert!(best < Duration::from_micros(300), "{best:?}");
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
        assert_eq!(client.device.poll_async_event(), None);
    }
}
