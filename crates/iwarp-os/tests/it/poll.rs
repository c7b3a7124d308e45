// SPDX-License-Identifier: MIT OR Apache-2.0

//! Epoll, eventfd and the blocking wait.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::Barrier;
use std::time::Duration;

use iwarp_os::poll::wait_readable;
use iwarp_os::{Epoll, EventFd, EventFdKind, Events, FdPlace, Interest, Ready, clock};

const NOW: Option<Duration> = Some(Duration::ZERO);
const LIMIT: Option<Duration> = Some(Duration::from_secs(20));

fn event() -> EventFd {
    EventFd::new(EventFdKind::Counter, FdPlace::Internal).unwrap()
}

fn set() -> Epoll {
    Epoll::new(FdPlace::Internal).unwrap()
}

fn found(epoll: &Epoll, timeout: Option<Duration>) -> Vec<Ready> {
    let mut events = Events::with_capacity(8);
    let n = epoll.wait(&mut events, timeout).unwrap();
    assert_eq!(n, events.len());
    assert_eq!(n == 0, events.is_empty());
    events.iter().collect()
}

fn tokens(epoll: &Epoll, timeout: Option<Duration>) -> Vec<u64> {
    let mut tokens: Vec<_> = found(epoll, timeout).iter().map(|ready| ready.token).collect();
    tokens.sort();
    tokens
}

#[test]
fn a_counter_is_taken_at_once_and_a_semaphore_one_by_one() {
    let counter = event();
    assert_eq!(counter.try_wait().unwrap(), 0);
    counter.signal().unwrap();
    counter.add(4).unwrap();
    assert_eq!(counter.try_wait().unwrap(), 5);
    assert_eq!(counter.drain().unwrap(), 0);

    let semaphore = EventFd::new(EventFdKind::Semaphore, FdPlace::Program).unwrap();
    semaphore.add(3).unwrap();
    assert_eq!(semaphore.try_wait().unwrap(), 1);
    assert_eq!(semaphore.drain().unwrap(), 2);
    assert_eq!(semaphore.drain().unwrap(), 0);
}

#[test]
fn a_full_counter_does_not_block_the_signaller() {
    let counter = event();
    counter.add(u64::MAX - 1).unwrap();
    counter.signal().unwrap();
    assert_eq!(counter.drain().unwrap(), u64::MAX - 1);
    assert_eq!(counter.add(u64::MAX).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn level_stays_edge_does_not_one_shot_disarms() {
    let [level, edge, once] = [event(), event(), event()];
    let epoll = set();
    epoll.add(&level, 1, Interest::READ).unwrap();
    epoll.add(&edge, 2, Interest::READ.edge()).unwrap();
    epoll.add(&once, u64::MAX, Interest::READ.one_shot()).unwrap();
    assert_eq!(tokens(&epoll, NOW), []);
    let all = [&level, &edge, &once];
    all.iter().for_each(|event| event.signal().unwrap());
    assert_eq!(tokens(&epoll, LIMIT), [1, 2, u64::MAX]);
    assert_eq!(tokens(&epoll, LIMIT), [1]);
    all.iter().for_each(|event| event.signal().unwrap());
    assert_eq!(tokens(&epoll, LIMIT), [1, 2]);
    // Armed again with its signals pending, it fires at once.
    epoll.modify(&once, 9, Interest::READ.one_shot()).unwrap();
    assert_eq!(tokens(&epoll, NOW), [1, 9]);
    epoll.delete(&level).unwrap();
    assert_eq!(tokens(&epoll, NOW), []);
    assert_eq!(epoll.delete(&level).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(epoll.add(&edge, 3, Interest::READ).unwrap_err().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn a_group_inside_a_worker_s_set_fires_again_when_armed_with_data_pending() {
    let (group, worker) = (set(), set());
    let sockets = [event(), event()];
    for (token, socket) in sockets.iter().enumerate() {
        group.add(socket, token as u64, Interest::READ).unwrap();
    }
    let armed = Interest::READ.one_shot();
    worker.add(&group, 77, armed).unwrap();
    assert_eq!(tokens(&worker, NOW), []);
    sockets[1].signal().unwrap();
    assert_eq!(tokens(&worker, LIMIT), [77]);
    // Disarmed: new data elsewhere in the group does not wake the worker.
    sockets[0].signal().unwrap();
    assert_eq!(tokens(&worker, NOW), []);
    assert_eq!(tokens(&group, NOW), [0, 1]);
    worker.modify(&group, 77, armed).unwrap();
    assert_eq!(tokens(&worker, NOW), [77]);
    // Armed while the group is empty: it fires with the next signal.
    sockets.iter().for_each(|socket| assert_eq!(socket.drain().unwrap(), 1));
    worker.modify(&group, 77, armed).unwrap();
    assert_eq!(tokens(&worker, NOW), []);
    sockets[0].signal().unwrap();
    assert_eq!(tokens(&worker, LIMIT), [77]);
    // Sets that contain each other are refused.
    assert!(group.add(&worker, 1, Interest::READ).is_err());
}

#[test]
fn a_wait_lasts_as_long_as_it_is_told() {
    let epoll = set();
    let event = event();
    for micros in [50, 999, 1000, 1500, 2000] {
        let timeout = Duration::from_micros(micros);
        let start = clock::now();
        assert_eq!(found(&epoll, Some(timeout)), []);
        assert!(clock::now() - start >= timeout, "{micros}");
        let start = clock::now();
        assert_eq!(wait_readable([event.as_fd()], Some(timeout)).unwrap(), [false]);
        assert!(clock::now() - start >= timeout, "{micros}");
    }
    // Longer than any interface can express is for ever, not an error.
    event.signal().unwrap();
    epoll.add(&event, 5, Interest::READ).unwrap();
    assert_eq!(tokens(&epoll, Some(Duration::MAX)), [5]);
    assert_eq!(wait_readable([event.as_fd()], Some(Duration::MAX)).unwrap(), [true]);
}

#[test]
fn events_beyond_the_room_come_with_the_next_wait() {
    let epoll = set();
    let sources: Vec<_> = (0..5).map(|_| event()).collect();
    for (token, source) in sources.iter().enumerate() {
        source.signal().unwrap();
        epoll.add(source, token as u64, Interest::READ.one_shot()).unwrap();
    }
    let mut events = Events::with_capacity(2);
    let mut seen = Vec::new();
    // Both ways in: whole milliseconds and less.
    for timeout in [NOW, Some(Duration::from_micros(1)), NOW] {
        let n = epoll.wait(&mut events, timeout).unwrap();
        assert!(n <= 2);
        seen.extend(events.iter().map(|ready| ready.token));
    }
    seen.sort();
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    assert_eq!(epoll.wait(&mut events, NOW).unwrap(), 0);
}

#[test]
fn readiness_of_a_socket_pair() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let epoll = set();
    let interest = Interest::READ | Interest::WRITE | Interest::PEER_END;
    epoll.add(&ours, 1, interest).unwrap();
    let quiet = Ready {
        token: 1,
        readable: false,
        writable: true,
        peer_end: false,
        hangup: false,
        error: false,
    };
    assert_eq!(found(&epoll, NOW), [quiet]);
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(found(&epoll, NOW), [Ready { readable: true, peer_end: true, ..quiet }]);
    drop(theirs);
    let gone = found(&epoll, NOW);
    assert!(gone[0].hangup && gone[0].peer_end, "{gone:?}");
    epoll.modify(&ours, 2, Interest::NONE).unwrap();
    let gone = found(&epoll, NOW);
    assert!(gone[0].hangup && !gone[0].readable && gone[0].token == 2, "{gone:?}");
}

#[test]
fn a_signal_from_another_thread_ends_the_wait() {
    let (first, second) = (event(), event());
    let epoll = set();
    epoll.add(&second, 3, Interest::READ).unwrap();
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            second.signal().unwrap();
        });
        start.wait();
        assert_eq!(tokens(&epoll, None), [3]);
        let ready = wait_readable([first.as_fd(), second.as_fd()], None).unwrap();
        assert_eq!(ready, [false, true]);
    });
}

#[test]
fn an_epoll_set_can_be_waited_for_like_any_descriptor() {
    let (epoll, event) = (set(), event());
    epoll.add(&event, 1, Interest::READ).unwrap();
    assert_eq!(wait_readable([epoll.as_fd()], NOW).unwrap(), [false]);
    event.signal().unwrap();
    assert_eq!(wait_readable([epoll.as_fd()], LIMIT).unwrap(), [true]);
}
