// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads that are cancelled while they wait for completions, as C programs do it.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use iwarp::{CompletionChannel, CompletionQueue, Look};

use crate::common::{End, census, channels, until};

unsafe extern "C-unwind" {
    /// As in libc, but the thread's function may be unwound.
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
}

/// The work of a waiting thread, and its results.
struct Waiter<'a> {
    channel: &'a CompletionChannel,
    cq: &'a CompletionQueue,
    received: AtomicU64,
    tid: AtomicI32,
    finished: AtomicBool,
}

/// Waits for an event as an exported function of a C library does: while it sleeps, no frame here
/// has anything to drop.
fn event(channel: &CompletionChannel) -> u64 {
    loop {
        let fd = match channel.look() {
            Ok(Look::Event(cq)) => return cq,
            Ok(Look::Nothing(fd)) => fd,
            other => panic!("{other:?}"),
        };
        let _ = iwarp_os::cancel::wait_cancellable(fd, None);
    }
}

/// The thread of a C program: gets events for ever.
extern "C-unwind" fn gets_events(argument: *mut c_void) -> *mut c_void {
    // SAFETY: the test passes a `Waiter` that outlives the thread.
    let waiter = unsafe { &*argument.cast::<Waiter<'_>>() };
    waiter.tid.store(census::this_thread(), Ordering::Release);
    loop {
        waiter.cq.request_notify(false);
        while waiter.cq.poll_one().is_some() {
            waiter.received.fetch_add(1, Ordering::SeqCst);
        }
        event(waiter.channel);
        if waiter.finished.load(Ordering::SeqCst) {
            return null_mut();
        }
    }
}

fn start(waiter: &Waiter<'_>) -> libc::pthread_t {
    let mut thread = 0;
    let argument = std::ptr::from_ref(waiter).cast_mut().cast();
    // SAFETY: `waiter` outlives the thread, which every test joins.
    assert_eq!(unsafe { pthread_create(&mut thread, null(), gets_events, argument) }, 0);
    until("the thread", || (waiter.tid.load(Ordering::Acquire) != 0).then_some(()));
    thread
}

/// True if the thread was cancelled, and did not return by itself.
fn join(thread: libc::pthread_t) -> bool {
    let mut result = null_mut();
    // SAFETY: joined once.
    assert_eq!(unsafe { libc::pthread_join(thread, &mut result) }, 0);
    result as isize == -1
}

/// A client, a server, and the server's channel.
fn connect() -> (End, End, CompletionChannel) {
    let [(client, _), (server, channel)] = channels::connect();
    (client, server, channel)
}

fn waiter<'a>(channel: &'a CompletionChannel, cq: &'a CompletionQueue) -> Waiter<'a> {
    let (received, tid) = (AtomicU64::new(0), AtomicI32::new(0));
    Waiter { channel, cq, received, tid, finished: AtomicBool::new(false) }
}

/// The cancelled thread leaves nothing behind: the worker serves the peer's Reads when it has
/// gone, and other threads get their events.
#[test]
fn a_thread_that_waits_can_be_cancelled_a_thousand_times() {
    let (client, server, channel) = connect();
    let (target, local) = (server.region(64), client.region(64));
    for round in 0..1000u64 {
        let waiter = waiter(&channel, &server.recv_cq);
        let thread = start(&waiter);
        if round % 2 == 0 {
            census::until_asleep(&waiter.tid);
        }
        // SAFETY: not joined yet.
        assert_eq!(unsafe { libc::pthread_cancel(thread) }, 0);
        assert!(join(thread));
        client.read(round, local.whole(), &target, 0);
        assert_eq!(client.sent().wr_id, round);
    }
    // And one that is not cancelled.
    let waiter = waiter(&channel, &server.recv_cq);
    server.post_recv(7, &[target.whole()]);
    let thread = start(&waiter);
    waiter.finished.store(true, Ordering::SeqCst);
    client.send(0, &[local.whole()]);
    assert!(!join(thread));
    // Unless it came just before the thread looked.
    if waiter.received.load(Ordering::SeqCst) == 0 {
        server.received();
    }
}

/// Cancelled wherever it happens to be, with messages coming in and another thread waiting.
#[test]
fn messages_survive_the_cancellation_of_a_thread_at_work() {
    const ROUNDS: u64 = 300;
    const MESSAGES: u64 = 20;
    let (client, server, channel) = connect();
    let (target, local) = (server.region(64), client.region(64));
    let other = waiter(&channel, &server.recv_cq);
    let other_thread = start(&other);
    let mut received = 0;
    for round in 0..ROUNDS {
        for id in 0..MESSAGES {
            server.post_recv(id, &[target.whole()]);
        }
        let waiter = waiter(&channel, &server.recv_cq);
        let thread = start(&waiter);
        for id in 0..MESSAGES {
            client.send(id, &[local.whole()]);
            assert_eq!(client.sent().wr_id, id);
            if id == round % MESSAGES {
                // SAFETY: not joined yet.
                assert_eq!(unsafe { libc::pthread_cancel(thread) }, 0);
            }
        }
        assert!(join(thread));
        received += waiter.received.load(Ordering::SeqCst);
        // A completion that the cancelled thread has taken and not counted does not exist: it is
        // cancelled nowhere but in its sleep.
        until("all messages", || {
            let all = received + other.received.load(Ordering::SeqCst);
            (all == (round + 1) * MESSAGES).then_some(())
        });
    }
    other.finished.store(true, Ordering::SeqCst);
    server.post_recv(0, &[target.whole()]);
    client.send(0, &[local.whole()]);
    assert!(!join(other_thread));
}

/// The channel and everything on it can be dropped while the thread that waited there is gone.
#[test]
fn a_channel_whose_waiter_was_cancelled_can_be_destroyed() {
    for _ in 0..20 {
        let (client, server, channel) = connect();
        {
            let waiter = waiter(&channel, &server.recv_cq);
            let thread = start(&waiter);
            census::until_asleep(&waiter.tid);
            // SAFETY: not joined yet.
            assert_eq!(unsafe { libc::pthread_cancel(thread) }, 0);
            assert!(join(thread));
        }
        drop(channel);
        let device = server.device.clone();
        drop(server);
        until("the end", || (device.connections() == 0).then_some(()));
        drop(client);
    }
}
