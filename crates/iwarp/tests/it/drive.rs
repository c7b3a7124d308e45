// SPDX-License-Identifier: MIT OR Apache-2.0

//! Event loops that move connections themselves, by a descriptor and a call: over TCP, and over
//! streams without descriptors. The workers of most tests here take no turn unless they are given
//! one, so that all that moves is moved by the loop.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use iwarp::cm::{ConnectParams, EventChannel, EventKind, Id};
use iwarp::drive::{Drive, Turn};
use iwarp::port::{MemoryNetwork, Network, Platform};
use iwarp::{
    Device, LocalPath, MemoryRegion, Options, ProtectionDomain, QpState, QueuePair,
    QueuePairAttributes, RecvRequest, SendOp, SendRequest, WcOp, WorkCompletion,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::scene::Scene;
use crate::common::{DEADLINE, all_access, pattern, succeeded};

/// One end, which an event loop drives.
struct End {
    pd: ProtectionDomain,
    drive: Drive,
    qp: QueuePair,
    _id: Id,
    events: EventChannel,
}

impl End {
    fn region_of(&self, octets: &[u8]) -> MemoryRegion {
        let region = self.pd.allocate(octets.len(), all_access()).unwrap();
        region.buffer().unwrap().write_at(0, octets);
        region
    }

    fn send(&self, wr_id: u64, region: &MemoryRegion) {
        self.qp.post_send(&SendRequest::send(wr_id, &[region.whole()]).signaled()).unwrap();
    }

    fn recv(&self, wr_id: u64, region: &MemoryRegion) {
        self.qp.post_recv(&RecvRequest::new(wr_id, &[region.whole()])).unwrap();
    }

    /// Its turns until it is to sleep; its completions, all of which are successes.
    fn turns(&self) -> Vec<WorkCompletion> {
        let mut completions = Vec::new();
        while self.drive.turn(|one| completions.push(succeeded(one))).unwrap() == Turn::Again {}
        completions
    }
}

/// Watches the descriptors of some ends, for that long; says which are readable.
fn watch<const N: usize>(ends: [&End; N], timeout: Timespec) -> [bool; N] {
    let fds = ends.map(|end| end.drive.descriptor().unwrap());
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    poll(&mut fds, Some(&timeout)).unwrap();
    fds.map(|fd| fd.revents().contains(PollFlags::IN))
}

fn at_once() -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: 0 }
}

/// The event loop of both ends: it hands over their completions until `enough`.
fn run(ends: &[End; 2], mut enough: impl FnMut(usize, WorkCompletion) -> bool) {
    let patience = Timespec::try_from(DEADLINE).unwrap();
    let mut due = [true; 2];
    loop {
        for (which, end) in ends.iter().enumerate().filter(|(which, _)| due[*which]) {
            if end.turns().into_iter().any(|completion| enough(which, completion)) {
                return;
            }
        }
        due = watch(ends.each_ref(), patience);
        assert!(due.contains(&true), "no descriptor tells of what is to be done");
    }
}

/// Networks with one host, and its address.
fn networks() -> [(Arc<dyn Network>, IpAddr); 2] {
    let addr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    [(Platform::default().network, addr), (MemoryNetwork::new().host(addr), addr)]
}

/// Two connected ends, on a device of its own each.
fn connect(scene: &Scene, network: &Arc<dyn Network>, addr: IpAddr) -> [End; 2] {
    connect_as(Options::default(), scene, network, addr)
}

/// As above, with these options.
fn connect_as(
    options: Options,
    scene: &Scene,
    network: &Arc<dyn Network>,
    addr: IpAddr,
) -> [End; 2] {
    let events = [(); 2].map(|()| {
        let device = scene.device(options.clone(), Arc::clone(network), None);
        let pd = device.alloc_pd();
        (EventChannel::of(&pd).unwrap(), pd)
    });
    let event = |which: usize| scene.until("an event", || events[which].0.try_next());
    let listening = Id::new(&events[1].0).unwrap();
    listening.bind(SocketAddr::new(addr, 0)).unwrap();
    listening.listen(1).unwrap();
    let [(client_drive, ours), (server_drive, theirs)] = events.each_ref().map(|(_, pd)| {
        let drive = Drive::new(pd, 1024).unwrap();
        let qp = pd.create_qp(&QueuePairAttributes::new(drive.cq(), drive.cq())).unwrap();
        (drive, qp)
    });
    let id = Id::new(&events[0].0).unwrap();
    id.resolve_addr(None, listening.local_addr().unwrap()).unwrap();
    assert!(matches!(event(0).kind, EventKind::AddressResolved));
    id.connect(&ours, &ConnectParams::default()).unwrap();
    let request = event(1);
    assert!(matches!(request.kind, EventKind::ConnectRequest { .. }));
    request.id.accept(&theirs, &ConnectParams::default()).unwrap();
    for which in 0..2 {
        assert!(matches!(event(which).kind, EventKind::Established { .. }));
    }
    while scene.turn() {}
    let [(to_client, client), (to_server, server)] = events;
    let end = |pd, drive, qp, id, events| End { pd, drive, qp, _id: id, events };
    [
        end(client, client_drive, ours, id, to_client),
        end(server, server_drive, theirs, request.id, to_server),
    ]
}

/// Sends a message to and fro so many times.
fn ping(ends: &[End; 2], rounds: u64) {
    let regions = ends.each_ref().map(|end| (end.region_of(b"ping"), end.region_of(&[0; 4])));
    for (end, (_, sink)) in ends.iter().zip(&regions) {
        end.recv(0, sink);
    }
    ends[0].send(0, &regions[0].0);
    let mut received = [0; 2];
    run(ends, |which, completion| {
        if completion.op != WcOp::Recv {
            return false;
        }
        received[which] += 1;
        let (source, sink) = &regions[which];
        let goes_on = received[which] < rounds;
        if goes_on {
            ends[which].recv(0, sink);
        }
        if goes_on || which == 1 {
            ends[which].send(0, source);
        }
        received == [rounds; 2]
    });
    for (_, sink) in &regions {
        assert_eq!(sink.buffer().unwrap().to_vec(), b"ping");
    }
}

#[test]
fn a_loop_moves_two_queue_pairs_and_no_worker_is_needed() {
    for (network, addr) in networks() {
        let scene = Scene::new();
        let ends = connect(&scene, &network, addr);
        let before = scene.turns();
        ping(&ends, 100);
        assert_eq!(scene.turns(), before);
    }
}

/// More than a socket holds, so each end waits for room again and again.
#[test]
fn a_loop_is_told_of_room_for_what_waits_to_go_out() {
    const LEN: usize = 16 << 20;
    for (network, addr) in networks() {
        let scene = Scene::new();
        let ends = connect(&scene, &network, addr);
        let data = [1, 2].map(|seed| pattern(LEN, seed));
        let regions = [0, 1].map(|which| {
            let end: &End = &ends[which];
            (end.region_of(&data[which]), end.pd.allocate(LEN, all_access()).unwrap())
        });
        for (which, end) in ends.iter().enumerate() {
            let remote = &regions[1 - which].1;
            let op = SendOp::Write { stag: remote.rkey(), to: remote.base() };
            let source = [regions[which].0.whole()];
            end.qp.post_send(&SendRequest::new(1, op, &source).signaled()).unwrap();
            // Behind it: it comes when all of that is in place.
            end.recv(2, &regions[which].0);
            let op = SendOp::Immediate { solicited: false, data: [7; 8] };
            end.qp.post_send(&SendRequest::new(3, op, iwarp::Payload::NONE).signaled()).unwrap();
        }
        let mut arrived = [false; 2];
        run(&ends, |which, completion| {
            arrived[which] |= completion.wr_id == 2;
            arrived == [true; 2]
        });
        for which in 0..2 {
            let sink = regions[1 - which].1.buffer().unwrap().to_vec();
            assert!(sink == data[which], "the Write of end {which}");
        }
    }
}

#[test]
fn the_last_look_before_a_sleep_raises_no_event_for_what_it_hands_over() {
    for (network, addr) in networks() {
        let scene = Scene::new();
        let ends = connect(&scene, &network, addr);
        let [client, server] = &ends;
        let (source, sink) = (client.region_of(b"x"), server.region_of(b"-"));
        server.recv(1, &sink);
        let mut taken = Vec::new();
        while !server.drive.may_sleep(|one| taken.push(one)) {}
        assert!(taken.is_empty(), "the queue is armed, and nothing has come");
        client.send(2, &source);
        assert_eq!(watch([server], DEADLINE.try_into().unwrap()), [true]);
        assert!(!server.drive.may_sleep(|one| taken.push(succeeded(one))));
        assert_eq!(taken.len(), 1);
        assert_eq!(server.drive.channel().try_next(), None);
    }
}

#[test]
fn a_loop_that_sleeps_is_told_once_of_each_thing() {
    for (network, addr) in networks() {
        let scene = Scene::new();
        // A connection that moves tells of that as well.
        let options = Options::default().local(LocalPath::Off);
        let ends = connect_as(options, &scene, &network, addr);
        ping(&ends, 1);
        ends.iter().for_each(|end| drop(end.turns()));
        let [client, server] = &ends;
        assert_eq!(watch([client, server], at_once()), [false; 2], "there is nothing to do");
        server.drive.wake();
        assert_eq!(watch([client, server], at_once()), [false, true]);
        assert!(server.turns().is_empty());
        assert_eq!(watch([client, server], at_once()), [false; 2]);
        // A thread that polls the queue itself leaves nothing to the loop.
        let (source, sink) = (client.region_of(b"x"), server.region_of(b"-"));
        server.recv(1, &sink);
        client.send(2, &source);
        assert_eq!(watch([server], DEADLINE.try_into().unwrap()), [true]);
        let received = scene.until("a message", || server.drive.cq().poll_one());
        assert_eq!(succeeded(received).wr_id, 1);
        assert!(server.turns().is_empty());
        assert_eq!(watch([server], at_once()), [false]);
    }
}

#[test]
fn the_worker_moves_what_a_loop_leaves() {
    for (network, addr) in networks() {
        let scene = Scene::new();
        let ends = connect(&scene, &network, addr);
        ping(&ends, 100);
        let [client, server] = &ends;
        let (source, sink) = (client.region_of(b"x"), server.region_of(b"-"));
        server.recv(1, &sink);
        server.turns();
        client.send(2, &source);
        // No turn follows: the program does other things.
        scene.until("the worker", || (server.qp.outstanding().1 == 0).then_some(()));
        assert_eq!(sink.buffer().unwrap().to_vec(), b"x");
        // When it comes back, it is told.
        assert_eq!(watch([server], at_once()), [true]);
        let received: Vec<_> = server.turns().iter().map(|completion| completion.wr_id).collect();
        assert_eq!(received, [1]);
        ping(&ends, 100);
    }
}

#[test]
fn the_worker_moves_what_a_loop_moved_that_is_gone() {
    for (network, addr) in networks() {
        let scene = Scene::new();
        let ends = connect(&scene, &network, addr);
        ping(&ends, 100);
        let [client, server] = ends;
        let (source, sink) = (client.region_of(b"x"), server.region_of(b"-"));
        server.recv(1, &sink);
        server.turns();
        let cq = server.drive.cq().clone();
        let descriptor = server.drive.descriptor().unwrap().try_clone_to_owned().unwrap();
        drop(server.drive);
        let mut fds = [PollFd::new(&descriptor, PollFlags::IN)];
        assert_eq!(
            poll(&mut fds, Some(&at_once())),
            Ok(1),
            "a loop that sleeps is told of the end"
        );
        client.send(2, &source);
        scene.until("the worker", || (server.qp.outstanding().1 == 0).then_some(()));
        assert_eq!(sink.buffer().unwrap().to_vec(), b"x");
        assert_eq!(cq.poll_one().map(|completion| completion.wr_id), Some(1));
        client.qp.disconnect();
        let ended = scene.until("the end", || server.events.try_next());
        assert!(matches!(ended.kind, EventKind::Disconnected(_)));
    }
}

/// A task of tokio's in the place of each loop, on devices with workers.
#[cfg(feature = "tokio")]
#[test]
fn tasks_of_an_async_runtime_are_loops() {
    use iwarp::cm::Listener;
    use iwarp::{Access, Device};
    use tokio::io::unix::AsyncFd;

    const ROUNDS: u64 = 500;

    #[allow(
        deprecated,
        reason = "its danger is an object that changes its descriptor; OwnedFd does not, and what \
                  replaces it is unsafe"
    )]
    async fn play(drive: &Drive, mut completed: impl FnMut(WorkCompletion) -> bool) {
        let descriptor = drive.descriptor().unwrap().try_clone_to_owned().unwrap();
        let descriptor = AsyncFd::new(descriptor).unwrap();
        let mut enough = false;
        while !enough {
            match drive.turn(|one| enough |= completed(succeeded(one))).unwrap() {
                Turn::Again => tokio::task::yield_now().await,
                Turn::Sleep if enough => {}
                Turn::Sleep => descriptor.readable().await.unwrap().clear_ready(),
            }
        }
    }

    let parts = [(); 2].map(|()| {
        let device = Device::with_options(Options::default()).unwrap();
        let pd = device.alloc_pd();
        let drive = Drive::new(&pd, 64).unwrap();
        let qp = pd.create_qp(&QueuePairAttributes::new(drive.cq(), drive.cq())).unwrap();
        let region = pd.allocate(4, Access::LOCAL_WRITE).unwrap();
        (device, drive, qp, region)
    });
    let [client, server] = &parts;
    let listener = Listener::bind(&server.0, "127.0.0.1:0").unwrap();
    let _connections = crate::common::couple(&client.0, &client.2, &listener, &server.2);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (_, _, qp, region) in &parts {
        qp.post_recv(&RecvRequest::new(0, &[region.whole()])).unwrap();
    }
    let played = parts.each_ref().map(|(_, drive, qp, region)| {
        let recv = || qp.post_recv(&RecvRequest::new(0, &[region.whole()])).unwrap();
        let send = || qp.post_send(&SendRequest::send(0, &[region.whole()]).signaled()).unwrap();
        let mut rounds = 0;
        let is_client = std::ptr::eq(drive, &raw const client.1);
        if is_client {
            send();
        }
        play(drive, move |completion| {
            if completion.op == WcOp::Recv {
                rounds += 1;
                if rounds < ROUNDS {
                    recv();
                }
                if rounds < ROUNDS || !is_client {
                    send();
                }
            }
            rounds == ROUNDS
        })
    });
    let [ours, theirs] = played;
    runtime.block_on(async {
        let both = async { tokio::join!(ours, theirs) };
        tokio::time::timeout(DEADLINE, both).await.expect("a loop is not told");
    });
}

/// A program that posts for each completion leaves the loop its turns.
#[test]
fn a_turn_ends_though_its_completions_bring_others() {
    for (network, addr) in networks() {
        let scene = Scene::new();
        let [client, _server] = connect(&scene, &network, addr);
        let region = client.region_of(b"x");
        // Refused as flushed at once, so that each post brings a completion.
        client.qp.modify(QpState::Err).unwrap();
        let mut completed = 0_u64;
        client.send(0, &region);
        while completed < 5000 {
            let before = completed;
            let _ = client.drive.turn(|_| {
                completed += 1;
                client.send(completed, &region);
            });
            assert!(completed - before <= 256, "a turn handed over {}", completed - before);
        }
    }
}

#[test]
fn a_queue_without_places_is_refused() {
    let pd = Device::with_options(Options::default()).unwrap().alloc_pd();
    for depth in [0, usize::MAX] {
        let refused = Drive::new(&pd, depth).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
}

/// A thread that waits on the channel, and a loop that sleeps on a duplicate, hear of the end,
/// though they are the last that know of it.
#[test]
fn waits_end_with_what_drives() {
    let pd = Device::with_options(Options::default()).unwrap().alloc_pd();
    let drive = Drive::new(&pd, 16).unwrap();
    let (channel, duplicate) = (drive.channel().clone(), drive.duplicate().unwrap());
    let waiter = thread::spawn(move || channel.wait(None).unwrap_err().kind());
    drop(drive);
    assert_eq!(waiter.join().unwrap(), ErrorKind::BrokenPipe);
    let mut fds = [PollFd::from_borrowed_fd(duplicate.as_fd(), PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&Timespec::try_from(DEADLINE).unwrap())).unwrap(), 1);
}

/// However often a loop is woken, one turn takes it.
#[test]
fn a_loop_that_was_woken_often_has_one_turn_more() {
    let pd = Device::with_options(Options::default()).unwrap().alloc_pd();
    let drive = Drive::new(&pd, 16).unwrap();
    while drive.turn(|_| unreachable!()).unwrap() == Turn::Again {}
    let is_due = || {
        let mut fds = [PollFd::from_borrowed_fd(drive.descriptor().unwrap(), PollFlags::IN)];
        poll(&mut fds, Some(&at_once())).unwrap() == 1
    };
    assert!(!is_due());
    (0..1000).for_each(|_| drive.wake());
    assert!(is_due());
    while drive.turn(|_| unreachable!()).unwrap() == Turn::Again {}
    assert!(!is_due());
}
