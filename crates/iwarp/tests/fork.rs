// SPDX-License-Identifier: MIT OR Apache-2.0

//! A forked child: what it inherits is dead and does no harm, and it can begin anew. A process of
//! its own: a fork finds the locks of other tests' threads held.

mod common;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use iwarp::cm::{ConnectParams, ConnectionState, EventChannel, Id, Listener, connect};
use iwarp::drive::Drive;
use iwarp::verbs::{Prefetch, RegisterError, WindowType};
use iwarp::{
    Access, AtomicOp, CompletionChannel, CompletionQueue, DatagramAttributes, Device, Ended,
    MemoryRegion, ModifyError, Options, Payload, PostError, ProtectionDomain, QpState, QueuePair,
    QueuePairAttributes, RecvRequest, SendRequest,
};

use crate::common::{DEADLINE, End, Setup, couple, parts};

/// Runs `child` in a forked process, which must leave with 0 in time; what happens there to a
/// thread of the parent cannot happen here: it has but one.
struct Forked(libc::pid_t);

impl Forked {
    fn new(child: impl FnOnce()) -> Self {
        // SAFETY: the child goes on with this thread alone, and calls what the library promises to
        // serve there; the C library's allocator works in a child.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", io::Error::last_os_error()),
            0 => {
                // SAFETY: kills this process if it hangs.
                unsafe { libc::alarm(DEADLINE.as_secs() as u32) };
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
                // SAFETY: runs the handlers of the exit, as a C program does.
                unsafe { libc::exit(i32::from(result.is_err())) }
            }
            pid => Self(pid),
        }
    }

    fn succeeded(self) {
        let mut status = 0;
        // SAFETY: writes to `status`, which outlives the call.
        assert_eq!(unsafe { libc::waitpid(self.0, &mut status, 0) }, self.0);
        assert!(libc::WIFEXITED(status), "killed by signal {}", libc::WTERMSIG(status));
        assert_eq!(libc::WEXITSTATUS(status), 0);
    }
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// The sockets that this process has open, by their inodes. Some of an earlier test's may go at any
/// moment: their connections end in the background.
fn sockets() -> BTreeSet<PathBuf> {
    let list = std::fs::read_dir("/proc/self/fd").unwrap();
    list.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .collect()
}

fn ping(client: &End, server: &End) {
    let (source, sink) = (client.region_of(b"ping"), server.region(4));
    server.post_recv(1, &[sink.whole()]);
    client.send(2, &[source.whole()]);
    client.sent();
    server.received();
    assert_eq!(sink.buffer().unwrap().to_vec(), b"ping");
}

/// A device of the child's own, and a message to the parent's.
fn begin_anew(addr: SocketAddr) {
    let device = Device::open().unwrap();
    let (pd, send_cq, recv_cq, qp) = parts(&device, 8);
    let connection = connect(&device, addr, &qp, &ConnectParams::default(), DEADLINE).unwrap();
    let end = End { device, pd, send_cq, recv_cq, qp, connection };
    let source = end.region_of(b"from the child");
    end.send(1, &[source.whole()]);
    end.sent();
}

/// Takes one message from one connection.
fn serve_one(device: &Device, listener: &Listener) -> Vec<u8> {
    let (pd, send_cq, recv_cq, qp) = parts(device, 8);
    let sink = pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    qp.post_recv(&RecvRequest::new(0, &[sink.whole()])).unwrap();
    let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("nobody connects");
    let connection = incoming.accept(&qp, &ConnectParams::default()).unwrap();
    let device = device.clone();
    let end = End { device, pd, send_cq, recv_cq, qp, connection };
    let len = end.received().byte_len as usize;
    let mut octets = sink.buffer().unwrap().to_vec();
    octets.truncate(len);
    octets
}

/// Covers: RDMAP-5040-8.1.1-10, SEC-5042-7.1-01
#[test]
fn inherited_handles_answer_with_errors_and_can_be_dropped() {
    let _alone = common::alone();
    let before = sockets();
    let (client, server) = Setup::default().connect();
    ping(&client, &server);
    let connection: BTreeSet<_> = sockets().difference(&before).cloned().collect();
    assert!(connection.len() >= 2, "{connection:?}");
    let listener = Listener::bind(&server.device, "127.0.0.1:0").unwrap();
    let channel = client.device.create_comp_channel().unwrap();
    let noisy = client.device.create_cq(8, Some(&channel)).unwrap();
    let srq = client.pd.create_srq(8, 1);
    let region = client.region(64);
    let window = client.pd.allocate_window(WindowType::TwoA).unwrap();
    let events = EventChannel::new(&client.device).unwrap();
    let id = Id::new(&events).unwrap();
    let child = Forked::new(|| {
        assert!(client.device.is_inherited());
        assert!(sockets().is_disjoint(&connection), "the parent's connection is open here");
        refused(client.device.create_cq(8, None));
        refused(client.device.create_comp_channel());
        refused(channel.wait(None));
        refused(channel.look());
        assert_eq!((channel.try_next(), noisy.poll_one(), noisy.depth()), (None, None, 0));
        refused(noisy.resize(9));
        noisy.request_notify(false);
        assert!(client.pd.allocate(64, Access::LOCAL_WRITE).is_err());
        assert!(client.pd.allocate_window(WindowType::TwoA).is_err());
        let receive = RecvRequest::new(0, &[]);
        assert_eq!(srq.post(&receive), Err(PostError::WrongState));
        assert_eq!(client.qp.post_recv(&receive), Err(PostError::WrongState));
        assert_eq!(client.qp.post_send(&inline(b"x")), Err(PostError::WrongState));
        assert_eq!((client.qp.state(), client.qp.is_connected()), (QpState::Err, false));
        assert!(client.qp.modify(QpState::Reset).is_err());
        assert_eq!((client.qp.outstanding(), client.device.connections()), ((0, 0), 0));
        refused(client.device.poll_async_event());
        refused(make_qp(&client));
        assert!(window.next_stag().is_err());
        refused(id.bind("127.0.0.1:0".parse().unwrap()));
        refused(id.resolve_addr(None, "127.0.0.1:9".parse().unwrap()));
        refused(id.connect_first_with(1, &ConnectParams::default()));
        refused(id.use_number(1, &ConnectParams::default()));
        assert!(!id.speaks_roce());
        refused(id.ask(b""));
        refused(id.answer(&client.qp, 0, b""));
        refused(id.answer_with(1, 0, b""));
        refused(events.wait(Some(DEADLINE)));
        refused(listener.accept(Some(DEADLINE)));
        client.connection.disconnect();
        assert_eq!(client.connection.wait_disconnected(Some(DEADLINE)), None);
    });
    child.succeeded();
    ping(&client, &server);
    let child = Forked::new(move || {
        let (region, error) = region.deregister().unwrap_err();
        assert_eq!(error, RegisterError::UnknownStag);
        drop((region, window, srq, noisy, channel, listener, id, events));
        drop((client, server));
    });
    child.succeeded();
}

fn make_qp(end: &End) -> io::Result<QueuePair> {
    end.pd.create_qp(&QueuePairAttributes::new(&end.send_cq, &end.recv_cq))
}

/// The sources with methods that programs call, on objects that a child may have inherited.
const SOURCES: [&str; 31] = [
    include_str!("../src/verbs/channel.rs"),
    include_str!("../src/verbs/cq.rs"),
    include_str!("../src/verbs/create.rs"),
    include_str!("../src/verbs/device.rs"),
    include_str!("../src/verbs/inherit.rs"),
    include_str!("../src/verbs/mr.rs"),
    include_str!("../src/verbs/pd.rs"),
    include_str!("../src/verbs/qp.rs"),
    include_str!("../src/verbs/srq.rs"),
    include_str!("../src/cm/blocking.rs"),
    include_str!("../src/cm/channel.rs"),
    include_str!("../src/cm/id.rs"),
    include_str!("../src/cm/id/calls.rs"),
    include_str!("../src/cm/id/datagrams.rs"),
    include_str!("../src/cm/id/candidates.rs"),
    include_str!("../src/cm/id/listening.rs"),
    include_str!("../src/cm/id/ports.rs"),
    include_str!("../src/cm/made.rs"),
    include_str!("../src/drive.rs"),
    include_str!("../../iwarp-session/src/batch.rs"),
    include_str!("../../iwarp-session/src/block.rs"),
    include_str!("../../iwarp-session/src/credits.rs"),
    include_str!("../../iwarp-session/src/closed.rs"),
    include_str!("../../iwarp-session/src/operations.rs"),
    include_str!("../../iwarp-session/src/pending.rs"),
    include_str!("../../iwarp-session/src/permit.rs"),
    include_str!("../../iwarp-session/src/pool.rs"),
    include_str!("../../iwarp-session/src/receiver.rs"),
    include_str!("../../iwarp-session/src/receivers.rs"),
    include_str!("../../iwarp-session/src/scope.rs"),
    include_str!("../../iwarp-session/src/setup.rs"),
];

/// A method that is new has to be called in one of the tests here.
#[test]
fn every_public_method_is_called_in_a_child() {
    let called = include_str!("fork.rs");
    let mut methods = 0;
    for source in SOURCES {
        for (start, _) in source.match_indices("    pub ") {
            // An item that is hidden in the docs is for simulators and tests.
            if source[..start].trim_end().ends_with("#[doc(hidden)]") {
                continue;
            }
            let rest = &source[start..];
            let Some((head, arguments)) = rest.split_once('(') else { continue };
            let words: Vec<&str> = head.split_whitespace().collect();
            let ["pub", .., "fn", name] = words[..] else { continue };
            if words.contains(&"trait") {
                continue;
            }
            let receiver = arguments.split([',', ')', ':']).next().unwrap_or_default();
            if !receiver.split([' ', '&']).any(|word| word == "self") {
                continue;
            }
            let name = name.split('<').next().unwrap_or_default();
            methods += 1;
            assert!(called.contains(&format!(".{name}(")), "{name} is not called in a child");
        }
    }
    assert!(methods > 120, "{methods}");
}

/// A daemon opens, registers and listens, and forks; the child serves.
#[test]
fn a_child_goes_on_with_what_has_no_connection() {
    let _alone = common::alone();
    let (client, server) = Setup::default().connect();
    let device = client.device.sibling().unwrap();
    let (pd, channel) = (device.alloc_pd(), device.create_comp_channel().unwrap());
    let region = pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    let events = EventChannel::new(&device).unwrap();
    let id = Id::new(&events).unwrap();
    id.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    id.listen(8).unwrap();
    let (addr, idle) = (id.local_addr().unwrap(), Id::new(&events).unwrap());
    let child = Forked::new(|| {
        let own = Device::open().unwrap().take_over(&device).unwrap();
        assert_eq!(own.async_fd().as_raw_fd(), device.async_fd().as_raw_fd());
        // SAFETY: the memory is the library's, which the child has as well.
        let (own_pd, left) = unsafe { own.take_over_pd(&pd) }.unwrap();
        assert_eq!(left, 0);
        let own_region = own_pd.adopt(region.lkey()).unwrap();
        assert!(!own_region.is_inherited());
        let own_channel = own.take_over_channel(&channel).unwrap();
        assert_eq!(own_channel.as_fd().as_raw_fd(), channel.as_fd().as_raw_fd());
        let own_events = EventChannel::take_over(&own, &events).unwrap();
        assert_eq!(own_events.as_fd().as_raw_fd(), events.as_fd().as_raw_fd());
        let own_id = Id::take_over(&own_events, &id).unwrap();
        assert_eq!(own_id.local_addr(), Some(addr));
        assert_eq!(own_id.state(), ConnectionState::Listening);
        let own_idle = Id::take_over(&own_events, &idle).unwrap();
        assert_eq!(own_idle.state(), ConnectionState::Idle);
        let again = Id::take_over(&own_events, &own_id).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::InvalidInput);

        let asks = thread::spawn(move || begin_anew(addr));
        take_one(&own, &own_pd, &own_channel, (&own_events, &own_id), &region);
        asks.join().unwrap();
    });
    child.succeeded();
    ping(&client, &server);
    // The listener was the child's: none of its connections has come in here.
    assert!(events.try_next().is_none());
}

/// Takes a connection and one message, with all that is given.
fn take_one(
    device: &Device,
    pd: &ProtectionDomain,
    channel: &CompletionChannel,
    (events, listener): (&EventChannel, &Id),
    region: &MemoryRegion,
) {
    let cq = device.create_cq(8, Some(channel)).unwrap();
    let qp = pd.create_qp(&QueuePairAttributes::new(&cq, &cq)).unwrap();
    qp.post_recv(&RecvRequest::new(1, &[region.whole()])).unwrap();
    cq.request_notify(false);
    let request = events.wait(Some(DEADLINE)).unwrap().expect("nobody connects");
    assert_eq!(request.listener.as_ref(), Some(listener));
    request.id.accept(&qp, &ConnectParams::default()).unwrap();
    assert_eq!(channel.wait(Some(DEADLINE)).unwrap(), Some(cq.number()));
    assert_eq!(cq.poll_one().expect("an event came").byte_len, 14);
    assert_eq!(&region.buffer().unwrap().to_vec()[..14], b"from the child");
}

fn refused<T>(result: io::Result<T>) {
    assert_eq!(result.err().and_then(|error| error.raw_os_error()), Some(libc::ENODEV));
}

/// Forks while this thread has a completion queue locked, so that the child finds it locked for
/// ever.
fn fork_with_a_lock_held(cq: &CompletionQueue, child: impl FnOnce()) -> Forked {
    let (mut child, mut forked) = (Some(child), None);
    let fork = |_| forked = Some(Forked::new(|| child.take().unwrap()()));
    assert_eq!(cq.poll_each(1, fork), 1);
    // The objects that `child` holds are dropped in the parent too, where nothing is locked any
    // more.
    forked.unwrap()
}

#[test]
fn verbs_in_a_child_answer_and_none_hangs() {
    let _alone = common::alone();
    let (client, server) = Setup::default().connect();
    let channel = client.device.create_comp_channel().unwrap();
    let noisy = client.device.create_cq(8, Some(&channel)).unwrap();
    let srq = client.pd.create_srq(8, 1);
    let mut region = client.region(64);
    let window = client.pd.allocate_window(WindowType::TwoA).unwrap();
    let (send_cq, recv_cq) = (client.send_cq.clone(), client.recv_cq.clone());
    let attributes = QueuePairAttributes::new(&send_cq, &recv_cq);
    let found = client.pd.create_addressable_qp(&attributes).unwrap();
    let peer = client.device.gids().unwrap()[0].addr;
    let gid = client.device.gids().unwrap().remove(0);
    let (number, device_name) = (client.qp.number(), client.device.name().to_owned());
    let (guid, lkey) = (client.device.node_guid(), region.lkey());
    client.post_recv(1, &[region.whole()]);
    let source = server.region_of(b"x");
    server.send(2, &[source.whole()]);
    server.sent();
    let came = std::time::Instant::now();
    while client.recv_cq.poll(&mut Vec::new(), 0) == 0 && came.elapsed() < DEADLINE {
        // Moves what has come, and takes nothing.
        if client.qp.outstanding().1 == 0 {
            break;
        }
    }
    let child = fork_with_a_lock_held(&recv_cq, || {
        let device = &client.device;
        assert!(device.is_inherited());
        refused(device.sibling());
        refused(device.named_sibling(0));
        refused(device.gids());
        refused(device.gid_table());
        refused(device.lid());
        refused(device.port_gid_table(1));
        refused(device.port_lid(1));
        refused(device.create_comp_channel());
        refused(device.create_cq(8, None));
        assert_eq!((device.name(), device.node_guid()), (&*device_name, guid));
        assert_eq!(device.system_image_guid(), guid);
        assert_eq!((device.place_of(peer), device.connections()), (None, 0));
        assert_eq!(device.port_of(peer), None);
        assert_eq!(device.options().personality, device.personality());
        assert_eq!(device.options().speed, device.speed());
        assert!(device.attributes().max_qp > 0 && !device.addresses().unwrap().is_empty());
        assert!(device.async_fd().as_raw_fd() >= 0);
        refused(device.poll_async_event());
        device.discard_async_events(|_| true);

        let pd = device.alloc_pd();
        for pd in [&pd, &client.pd] {
            let id = pd.id();
            assert_eq!(id.0 == 0, id != client.pd.id());
            assert!(pd.allocate(64, Access::LOCAL_WRITE).is_err());
            let buffer = Arc::new(iwarp::Buffer::try_new(64).unwrap());
            assert!(pd.register(Arc::clone(&buffer), Access::LOCAL_WRITE).is_err());
            let place = std::ptr::null_mut();
            // SAFETY: nothing is registered in a child.
            assert!(unsafe { pd.register_raw(place, 8, Access::LOCAL_WRITE) }.is_err());
            // SAFETY: likewise.
            assert!(unsafe { pd.register_raw_at(place, 8, 0, Access::LOCAL_WRITE) }.is_err());
            // SAFETY: likewise.
            assert!(unsafe { pd.register_everything(Access::ON_DEMAND) }.is_err());
            assert!(pd.register_part(Arc::clone(&buffer), 0..8, Access::LOCAL_WRITE).is_err());
            assert!(pd.adopt(lkey).is_err());
            assert!(pd.prefetch(region.whole(), Prefetch::Read).is_err());
            assert!(pd.check_advice(region.whole(), Prefetch::Read).is_err());
            assert!(pd.allocate_window(WindowType::TwoA).is_err());
            refused(pd.create_qp(&attributes));
            refused(pd.create_addressable_qp(&attributes));
            let srq = pd.create_srq(8, 1);
            let receive = RecvRequest::new(0, &[]);
            assert_eq!(srq.post(&receive), Err(PostError::WrongState));
            assert_eq!(srq.number(), 0);
        }

        assert_eq!((region.lkey(), region.rkey(), region.base().0), (lkey, lkey, 0));
        assert_eq!((region.len(), region.is_empty()), (64, false));
        assert!(region.is_inherited() && srq.is_inherited() && client.qp.is_inherited());
        assert!(region.access().contains(Access::LOCAL_WRITE));
        assert!(region.buffer().is_some() && region.sge(0, 8).length == 8);
        assert_eq!(region.whole().length, 64);
        // SAFETY: nothing is changed in a child.
        assert!(unsafe { region.reregister(None, None, Some(Access::LOCAL_WRITE)) }.is_err());
        let (region, error) = region.deregister().unwrap_err();
        assert_eq!(error, RegisterError::UnknownStag);
        region.disown();
        assert_eq!(window.kind(), WindowType::TwoA);
        assert_ne!(window.stag(), lkey);
        assert!(window.next_stag().is_err());

        // One of the three is locked.
        for cq in [&client.recv_cq, &client.send_cq, &noisy] {
            assert!(cq.number() > 0 && cq.depth() == 0);
            assert_eq!(cq.poll(&mut Vec::new(), 8), 0);
            assert_eq!(cq.poll_each(8, |_| unreachable!()), 0);
            assert_eq!(cq.poll_one(), None);
            cq.request_notify(false);
            cq.discard(number);
            refused(cq.resize(9));
        }
        refused(channel.wait(Some(DEADLINE)));
        refused(channel.look());
        CompletionChannel::stop_looking();
        channel.discard(noisy.number());
        assert_eq!(channel.try_next(), None);
        assert!(channel.as_fd().as_raw_fd() >= 0);
        srq.set_limit(3);
        assert_eq!((srq.limit(), srq.depth()), (0, 8));

        let receive = RecvRequest::new(0, &[]);
        let send = inline(b"x");
        for qp in [&client.qp, &found] {
            assert_eq!((qp.state(), qp.is_connected()), (QpState::Err, false));
            refused(system(qp.modify(QpState::Reset)));
            refused(system(qp.connect_to(&iwarp::Peer::new(&gid, peer, number, 0))));
            qp.set_psn(3);
            qp.set_reads(false);
            refused(qp.set_datagram(&DatagramAttributes::default()));
            let group = std::net::Ipv4Addr::new(239, 1, 2, 3).into();
            refused(qp.attach_multicast(group));
            refused(qp.set_port(1));
            refused(qp.detach_multicast(group));
            assert_eq!((qp.psn(), qp.peer().is_none()), (0, true));
            qp.set_retry(iwarp::Retry::default());
            qp.set_rnr_retry(7);
            qp.set_rnr_timer(0);
            let _ = (
                qp.retry(),
                qp.capabilities(),
                qp.counters(),
                qp.local_path(),
                qp.path_within_host(),
            );
            assert_eq!(qp.post_send(&send), Err(PostError::WrongState));
            assert_eq!(qp.post_sends(&[send]), Err((0, PostError::WrongState)));
            assert_eq!(qp.post_recv(&receive), Err(PostError::WrongState));
            assert_eq!(qp.post_recvs(&[receive]), Err((0, PostError::WrongState)));
            qp.set_remote_access(Access::empty());
            qp.disconnect();
            qp.abort();
            qp.retire();
            assert_eq!((qp.read_depths(), qp.room(), qp.outstanding()), ((0, 0), (0, 0), (0, 0)));
        }
        assert_eq!(client.qp.number(), number);
        let _ = format!("{device:?} {:?} {:?} {:?}", client.qp, client.recv_cq, client.pd);
        drop((found, srq, channel, window, client, server));
    });
    child.succeeded();
}

#[test]
fn an_event_loop_in_a_child_is_refused() {
    let _alone = common::alone();
    let pd = Device::open().unwrap().alloc_pd();
    let drive = Drive::new(&pd, 8).unwrap();
    let child = Forked::new(|| {
        refused(Drive::new(&pd, 8));
        refused(drive.descriptor());
        refused(drive.duplicate());
        refused(drive.turn(|_| unreachable!()));
        assert_eq!((drive.take(), drive.cq().depth()), (None, 0));
        refused(drive.channel().wait(Some(DEADLINE)));
        drive.wake();
    });
    child.succeeded();
    let child = Forked::new(move || drop((drive, pd)));
    child.succeeded();
}

fn inline(octets: &[u8]) -> SendRequest<'_> {
    SendRequest::send(0, Payload::Inline(octets)).signaled()
}

/// The answer of the system to a change of state.
fn system(result: Result<(), ModifyError>) -> io::Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(ModifyError::System(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_connection_manager_in_a_child_answers_and_does_not_hang() {
    let _alone = common::alone();
    let any = "127.0.0.1:0".parse().unwrap();
    let (client, server) = Setup::default().connect();
    let listener = Listener::bind(&server.device, any).unwrap();
    let addr = listener.local_addr().unwrap();
    let events = EventChannel::new(&client.device).unwrap();
    let (id, calling) = (Id::new(&events).unwrap(), Id::new(&events).unwrap());
    let (pd, _send_cq, _recv_cq, qp) = parts(&client.device, 8);
    calling.resolve_addr(None, addr).unwrap();
    calling.connect(&qp, &ConnectParams::default()).unwrap();
    let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("nobody connects");
    let params = ConnectParams::default();
    let child = Forked::new(|| {
        for id in [&id, &calling] {
            assert_eq!(id.state(), ConnectionState::Idle);
            id.set_context(Arc::new(3));
            assert!(id.context().is_none());
            id.migrate(&events);
            id.set_share_address(true);
            id.set_ipv6_only(true);
            id.set_traffic_class(1);
            id.notify(0, 0);
            refused(id.bind(any));
            refused(id.listen(1));
            assert_eq!((id.local_addr(), id.peer_addr()), (None, None));
            assert_eq!((id.device_place(), id.port_number()), (None, None));
            refused(id.resolve_addr(None, addr));
            refused(id.resolve_route());
            refused(id.connect(&qp, &params));
            refused(id.connect_first(&params));
            refused(id.establish(&qp));
            refused(id.accept(&qp, &params));
            assert!(id.try_accept(&qp, &params).is_err());
            refused(id.resolve(addr.into()));
            assert!(!id.resolve_next());
            refused(id.reject(&[]));
            id.disconnect();
            id.close();
            assert!(format!("{id:?}").contains("inherited"));
        }
        assert!(id == id.clone() && id != calling);
        refused(Id::new(&events));
        refused(EventChannel::new(&client.device));
        refused(EventChannel::for_any_device(&client.device));
        refused(EventChannel::of(&client.pd));
        refused(events.check());
        refused(events.wait(Some(DEADLINE)));
        assert!(events.try_next().is_none());
        assert_eq!(listener.local_addr(), None);
        refused(listener.accept(Some(DEADLINE)));
        refused(Listener::bind(&client.device, any));
        assert!(connect(&client.device, addr, &qp, &params, DEADLINE).is_err());
        assert_eq!((incoming.private_data(), incoming.peer_addr()), (&[][..], None));
        let _ = incoming.read_depths();
        assert!(incoming.accept(&qp, &params).is_err());
        let connection = &client.connection;
        assert_eq!((connection.local_addr(), connection.peer_addr()), (None, None));
        assert!(connection.private_data().is_empty());
        assert_eq!(connection.id().state(), ConnectionState::Idle);
        connection.disconnect();
        assert_eq!(connection.wait_disconnected(Some(DEADLINE)), None);
        drop((events, id, calling, listener, pd, qp, client, server));
    });
    child.succeeded();
}

#[test]
fn sessions_in_a_child_answer_and_none_hangs() {
    let _alone = common::alone();
    let device = Device::with_options(Options::default()).unwrap();
    let pd = device.alloc_pd();
    let listener = iwarp_session::Listener::bind(&pd, "127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let accept =
        || iwarp_session::Session::accept(listener.accept().wait().unwrap()).wait().unwrap();
    let (ours, theirs) = thread::scope(|scope| {
        let theirs = scope.spawn(accept);
        (iwarp_session::Session::connect(&pd, addr).wait().unwrap(), theirs.join().unwrap())
    });
    let granted = theirs.expose(64, Access::REMOTE).unwrap();
    let grant = iwarp_session::RemoteGrant::from_octets(&granted.grant().to_octets());
    let calling = [0; 3].map(|_| iwarp_session::Session::connect(&pd, addr));
    let requests = [0; 3].map(|_| listener.accept().wait().unwrap());
    let pool = iwarp_session::BlockPool::new(&pd, 64, 16).unwrap();
    let mut blocks = std::iter::from_fn(|| pool.try_take()).collect::<Vec<_>>();
    let pending = [0; 3].map(|_| ours.recv(blocks.pop().unwrap()));
    let [prepared, other, third] =
        [0; 3].map(|_| iwarp_session::Config::default().prepare(&pd).unwrap());
    let mut own = blocks.pop().unwrap();
    own.fill_from(b"the program's own");
    let [permit, other_permit] = [0; 2].map(|_| ours.try_reserve().unwrap());
    let pool_of_credits = iwarp_session::BlockPool::new(&pd, 64, 3).unwrap();
    let credited = iwarp_session::Config::default().prepare(&pd).unwrap();
    let (credits, mut heard) = credited.credited(&pool_of_credits, 1).unwrap();
    let crediting = credits.reserve();
    let (reserving, taking, closed) = (ours.reserve(), pool.take(), ours.closed());
    let received = iwarp_session::BlockPool::new(&pd, 64, 4).unwrap();
    let mut receiver = theirs.receiver(&received, 2).unwrap();
    let child = Forked::new(move || {
        assert_eq!((&*own, own.capacity()), (&b"the program's own"[..], 64));
        own.set_len(3);
        own.set_range(1..2);
        assert_eq!((own.range(), &*own), (1..2, &b"h"[..]));
        let mut block = || blocks.pop().unwrap();
        assert!(ours.send(block()).wait().is_err());
        let failure = ours.send([block(), block()]).wait().unwrap_err();
        assert_eq!(failure.blocks.len(), 2);
        assert!(ours.send_with(block(), iwarp_session::SendFlags::default()).wait().is_err());
        assert!(ours.send_inline(b"x").wait().is_err());
        assert!(ours.immediate([0; 8]).wait().is_err());
        assert!(ours.recv(block()).wait().is_err());
        assert!(ours.write(block(), &grant, 0).wait().is_err());
        assert!(ours.read(&grant, 0, block()).wait().is_err());
        assert!(ours.fetch_add(&grant, 0, 1).wait().is_err());
        assert!(ours.compare_swap(&grant, 0, 1, 2).wait().is_err());
        assert!(ours.write_inline(b"x", &grant, 0).wait().is_err());
        assert!(ours.write_immediate(block(), &grant, 0, [0; 4]).wait().is_err());
        assert!(ours.atomic(&grant, 0, AtomicOp::FetchAdd { add: 1, mask: 0 }).wait().is_err());
        assert!(ours.expose(64, Access::REMOTE_READ).is_err());
        let _ = ours.metrics();
        assert!(permit.send_inline(b"x").wait().is_err());
        assert!(crediting.wait().is_err() && credits.try_reserve().is_none());
        assert!(credits.reserve().wait_timeout(DEADLINE).is_err());
        assert!(credits.reserve_many(2).wait().is_err() && ours.reserve_many(2).wait().is_err());
        assert!(heard.recv().wait().is_err() && credited.credited(&received, 1).is_err());
        assert_eq!(credits.available(), 0);
        drop(other_permit);
        assert!(reserving.wait().is_err() && ours.try_reserve().is_none());
        assert!(ours.reserve().wait_timeout(DEADLINE).is_err());
        assert!(taking.wait().is_err() && pool.take().wait_timeout(DEADLINE).is_err());
        assert!(pool.try_take().is_none());
        assert_eq!((closed.wait(), ours.ended()), (Ended::Lost, None));
        assert_eq!(ours.closed().wait_timeout(DEADLINE).unwrap(), Ended::Lost);
        assert!(receiver.recv().wait().is_err());
        assert!(receiver.recv().wait_timeout(DEADLINE).is_err());
        assert_eq!((receiver.posted(), receiver.pool().count()), (0, 4));
        assert_eq!(receiver.pools().len(), 1);
        assert!(ours.receiver(&received, 1).is_err() && prepared.receiver(&received, 1).is_err());
        let (mut answer, mut more) = ([0; 8], [0; 8]);
        let (first, second) = more.split_at_mut(4);
        ours.scope(|scope| {
            assert!(scope.send(b"x").wait().is_err());
            assert!(scope.write(b"x", &grant, 0).wait().is_err());
            let (one, other) = answer.split_at_mut(4);
            assert!(scope.recv(one).wait().is_err());
            assert!(scope.read(&grant, 0, other).wait().is_err());
            assert!(scope.send_parts([&b"x"[..]]).wait().is_err());
            assert!(scope.write_parts([&b"x"[..]], &grant, 0).wait().is_err());
            assert!(scope.recv_parts([first]).wait().is_err());
            assert!(scope.read_parts(&grant, 0, [second]).wait().is_err());
        });
        assert!(!ours.is_connected() && ours.private_data().is_empty());
        assert_eq!((ours.local_addr(), ours.peer_addr()), (None, None));
        assert_eq!(ours.pd().id(), pd.id());
        ours.abort();
        let _ = format!("{ours:?} {prepared:?} {pool:?}");
        let [one, two, three] = pending;
        assert!(!one.is_done());
        assert!(one.wait().is_err());
        assert!(two.wait_timeout(DEADLINE).unwrap().is_err());
        drop(three);
        assert!(ours.close().wait().is_err());
        assert_eq!((pool.available(), pool.count(), pool.block_len()), (0, 16, 64));
        assert!(pool.try_take().is_none());
        assert!(prepared.recv(block()).wait().is_err());
        assert!(prepared.expose(64, Access::REMOTE_READ).is_err());
        let mut prepared = prepared;
        prepared.set_private_data(b"x");
        assert!(prepared.connect(addr).wait().is_err());
        assert!(iwarp_session::Config::default().prepare(&pd).is_err());
        let [first, second, dropped] = requests;
        assert!(first.private_data().is_empty() && first.peer_addr().is_none());
        assert_eq!(first.pd().id(), pd.id());
        assert!(other.accept(first).wait().is_err());
        refused(second.reject(&[]));
        drop((dropped, third));
        let [one, two, three] = calling;
        assert!(one.wait().is_err());
        assert!(two.wait_timeout(DEADLINE).is_err());
        drop(three);
        refused(listener.accept().wait());
        refused(listener.accept().wait_timeout(DEADLINE));
        assert_eq!(listener.local_addr(), None);
        drop((own, blocks, pool, receiver, received, granted, theirs, listener, pd, device));
    });
    child.succeeded();
}

#[test]
fn a_batch_in_a_child_is_not_posted() {
    let _alone = common::alone();
    let device = Device::with_options(Options::default()).unwrap();
    let pd = device.alloc_pd();
    let listener = iwarp_session::Listener::bind(&pd, "127.0.0.1:0").unwrap();
    let pool = iwarp_session::BlockPool::new(&pd, 64, 16).unwrap();
    let [client, server] = [(); 2].map(|()| iwarp_session::Config::default().prepare(&pd).unwrap());
    let [(credits, heard), others] = [&client, &server].map(|end| end.credited(&pool, 4).unwrap());
    let connecting = client.connect(listener.local_addr().unwrap());
    let theirs = server.accept(listener.accept().wait().unwrap()).wait().unwrap();
    let ours = connecting.wait().unwrap();
    let credit = credits.reserve().wait_timeout(DEADLINE).unwrap();
    let granted = theirs.expose(8, Access::REMOTE).unwrap();
    let grant = iwarp_session::RemoteGrant::from_octets(&granted.grant().to_octets());
    let block = || iwarp_session::Block::new(&pd, 8).unwrap();
    let [spare, other] = [(); 2].map(|()| block());
    let mut batch = Some(ours.batch());
    let write = batch.as_mut().unwrap().write_inline(b"together", &grant, 0);
    let read = batch.as_mut().unwrap().read(&grant, 0, block());
    let permit = ours.try_reserve().unwrap();
    let child = Forked::new(|| {
        let mut inherited = batch.take().unwrap();
        assert!(inherited.is_empty());
        inherited.add_permit(permit).unwrap();
        inherited.add_credit(credit).unwrap();
        let refused = inherited.read(&grant, 0, spare).wait().unwrap_err();
        assert!(refused.block.is_some());
        assert!(!write.is_done() && write.wait().is_err());
        assert!(inherited.post().is_err());
        let mut own = ours.batch();
        assert!(own.send(other).wait().is_err());
        drop(own);
    });
    child.succeeded();
    batch.unwrap().post().unwrap();
    assert_eq!(&*read.wait().unwrap(), b"together");
    drop((heard, others));
}

#[test]
fn a_session_in_a_child_is_over() {
    let _alone = common::alone();
    let device = Device::with_options(Options::default()).unwrap();
    let pd = device.alloc_pd();
    let listener = iwarp_session::Listener::bind(&pd, "127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let accepting = thread::spawn(move || {
        let request = listener.accept().wait().unwrap();
        let session = iwarp_session::Config::default().accept(request).wait().unwrap();
        (listener, session)
    });
    let ours = iwarp_session::Session::connect(&pd, addr).wait().unwrap();
    let (listener, theirs) = accepting.join().unwrap();
    let pool = iwarp_session::BlockPool::new(&pd, 64, 4).unwrap();
    let (sent, block) = (pool.try_take().unwrap(), pool.try_take().unwrap());
    let waiting = theirs.recv(block);
    let exposed = ours.expose(64, Access::REMOTE_READ).unwrap();
    let child = Forked::new(move || {
        assert!(pool.try_take().is_none());
        assert_eq!(pool.available(), 0);
        assert!(iwarp_session::Block::new(&pd, 8).is_err());
        assert!(ours.expose(64, Access::REMOTE_READ).is_err());
        let failure = ours.send(sent).wait().unwrap_err();
        assert!(matches!(failure.error, iwarp_session::OperationError::Disconnected));
        drop(failure);
        assert!(!waiting.is_done());
        assert!(waiting.wait().is_err());
        drop((exposed, pool, listener, ours, theirs, device));
    });
    child.succeeded();
}

/// The child lives on, with its copies of all that it has open, while the parent's process ends.
#[test]
fn the_peer_sees_the_parent_go() {
    let _alone = common::alone();
    let server = Device::with_options(Options::default()).unwrap();
    let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (mut stay, mut go) = io::pipe().unwrap();
    let parent = Forked::new(|| {
        let device = Device::open().unwrap();
        let (_pd, _send_cq, _recv_cq, qp) = parts(&device, 8);
        let _connection = connect(&device, addr, &qp, &ConnectParams::default(), DEADLINE).unwrap();
        let _child = Forked::new(|| stay.read_exact(&mut [0]).unwrap());
        // SAFETY: as if by a crash: nothing is sent, nothing is run.
        unsafe { libc::_exit(0) };
    });
    let (pd, send_cq, recv_cq, qp) = parts(&server, 8);
    let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("nobody connects");
    let connection = incoming.accept(&qp, &ConnectParams::default()).unwrap();
    parent.succeeded();
    let ended = connection.wait_disconnected(Some(Duration::from_secs(5)));
    assert!(ended.is_some(), "the child keeps the connection open");
    go.write_all(&[0]).unwrap();
    drop((pd, send_cq, recv_cq));
}

#[test]
fn a_child_has_a_device_of_its_own() {
    let _alone = common::alone();
    let shared = Device::open().unwrap();
    let server = Device::with_options(Options::default()).unwrap();
    let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let child = Forked::new(|| {
        begin_anew(addr);
        // And so has its child.
        Forked::new(|| begin_anew(addr)).succeeded();
        assert!(shared.is_inherited());
    });
    for _ in 0..2 {
        assert_eq!(serve_one(&server, &listener), b"from the child");
    }
    child.succeeded();
}

#[test]
fn forking_in_the_middle_of_everything_stops_nobody() {
    let _alone = common::alone();
    const FORKS: u64 = 500;
    let (client, server) = Setup::default().connect();
    let device = Device::with_options(Options::default()).unwrap();
    let listener = Listener::bind(&device, "127.0.0.1:0").unwrap();
    let done = AtomicBool::new(false);
    let (pings, connections, devices) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let go_on = |count: &AtomicU64| {
        count.fetch_add(1, Ordering::Relaxed);
        !done.load(Ordering::Relaxed)
    };
    thread::scope(|scope| {
        // In a failed test too.
        let _done = OnDrop(|| done.store(true, Ordering::Relaxed));
        scope.spawn(|| {
            while go_on(&pings) {
                ping(&client, &server)
            }
        });
        scope.spawn(|| {
            while go_on(&connections) {
                let ours = parts(&device, 8);
                let theirs = parts(&device, 8);
                let (a, b) = couple(&device, &ours.3, &listener, &theirs.3);
                drop((a, b));
            }
        });
        scope.spawn(|| {
            while go_on(&devices) {
                let device = Device::open().unwrap();
                let pd = device.alloc_pd();
                let _region = pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
                let _cq = device.create_cq(8, None).unwrap();
            }
        });
        for round in 0..FORKS {
            let child = Forked::new(|| {
                assert_eq!(client.qp.state(), QpState::Err);
                assert_eq!(client.recv_cq.poll_one(), None);
                let own = Device::open().unwrap();
                let pd = own.alloc_pd();
                let region = pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
                let cq = own.create_cq(8, None).unwrap();
                assert_eq!(cq.poll_one(), None);
                if round % 50 == 0 {
                    // A connection within the child, from one queue pair to another.
                    let listener = Listener::bind(&own, "127.0.0.1:0").unwrap();
                    let (ours, theirs) = (parts(&own, 8), parts(&own, 8));
                    couple(&own, &ours.3, &listener, &theirs.3);
                }
                drop((region, cq, pd, own));
            });
            child.succeeded();
        }
    });
    let counts = [&pings, &connections, &devices].map(|count| count.load(Ordering::Relaxed));
    assert!(counts.iter().all(|&count| count > 20), "{counts:?}");
}

/// The child takes none of the parent's packets, and closes its copies of what the parent holds.
///
/// Covers: ROCE-180
#[test]
fn a_share_of_a_port_is_dead_in_a_child() {
    use iwarp::port::share::Member;

    let addr = common::sharers::place();
    let mut member = Member::join(addr).unwrap();
    let data = UdpSocket::from(member.take_socket().unwrap());
    let (descriptor, qpn) =
        (member.descriptor().unwrap().as_raw_fd(), member.allocate_qpn().unwrap());
    let mut member = Some(member);
    Forked::new(|| {
        let mut member = member.take().unwrap();
        let enodev = |error: io::Error| assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        enodev(member.turn(Duration::ZERO).unwrap_err());
        enodev(member.allocate_qpn().unwrap_err());
        enodev(member.comm_ids().unwrap_err());
        enodev(member.ports().unwrap_err());
        enodev(member.listen(1).unwrap_err());
        enodev(member.descriptor().unwrap_err());
        assert!(member.next_mad().is_none() && member.next_timeout().is_none());
        assert!(!member.is_broker() && !member.has_broker() && member.take_socket().is_none());
        member.free_qpn(qpn);
        member.unlisten(1);
        // SAFETY: asks about a number.
        assert_eq!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) }, -1);
        drop(member);
    })
    .succeeded();
    let sender = UdpSocket::bind((addr.ip(), 0)).unwrap();
    let packet = common::sharers::packet(qpn, 1);
    sender.send_to(&packet, addr).unwrap();
    let mut room = [0; 64];
    assert_eq!(data.recv(&mut room).unwrap(), packet.len());
}
