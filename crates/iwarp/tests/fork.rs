//! A forked child: what it inherits is dead and harms nobody, and it can begin anew. A
//! process of its own: a fork finds the locks of other tests' threads held.

mod common;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use iwarp::cm::{ConnectParams, EventChannel, Id, Listener, connect};
use iwarp::session;
use iwarp::{Access, Device, Options, PostError, QpState, QueuePair, RecvRequest};

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
    qp.post_recv(&RecvRequest { wr_id: 0, sges: &[sink.whole()] }).unwrap();
    let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("nobody connects");
    let connection = incoming.accept(&qp, &ConnectParams::default()).unwrap();
    let device = device.clone();
    let end = End { device, pd, send_cq, recv_cq, qp, connection };
    let len = end.received().byte_len as usize;
    let mut octets = sink.buffer().unwrap().to_vec();
    octets.truncate(len);
    octets
}

#[test]
fn what_a_child_inherits_answers_with_errors_and_can_be_dropped() {
    let _alone = common::alone();
    let before = sockets();
    let (client, server) = Setup::default().connect();
    ping(&client, &server);
    let connection: BTreeSet<_> = sockets().difference(&before).cloned().collect();
    assert!(connection.len() >= 2, "{connection:?}");
    let listener = Listener::bind(&server.device, "127.0.0.1:0".parse().unwrap()).unwrap();
    let channel = client.device.create_comp_channel().unwrap();
    let noisy = client.device.create_cq(8, Some(&channel)).unwrap();
    let srq = client.pd.create_srq(8, 1);
    let region = client.region(64);
    let window = client.pd.allocate_window(iwarp::verbs::WindowType::TwoA).unwrap();
    let events = EventChannel::new(&client.device).unwrap();
    let id = Id::new(&events).unwrap();
    let child = Forked::new(|| {
        assert!(client.device.is_inherited());
        assert!(sockets().is_disjoint(&connection), "the parent's connection is open here");
        let refused = |error: io::Error| assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        refused(client.device.create_cq(8, None).unwrap_err());
        refused(client.device.create_comp_channel().unwrap_err());
        refused(channel.wait(None).unwrap_err());
        refused(channel.look().unwrap_err());
        assert_eq!((channel.try_next(), noisy.poll_one(), noisy.depth()), (None, None, 0));
        refused(noisy.resize(9).unwrap_err());
        noisy.request_notify(false);
        assert!(client.pd.allocate(64, Access::LOCAL_WRITE).is_err());
        assert!(client.pd.allocate_window(iwarp::verbs::WindowType::TwoA).is_err());
        let receive = RecvRequest { wr_id: 0, sges: &[] };
        assert_eq!(srq.post(&receive), Err(PostError::WrongState));
        assert_eq!(client.qp.post_recv(&receive), Err(PostError::WrongState));
        let send = iwarp::SendRequest {
            wr_id: 0,
            op: iwarp::SendOp::Send { solicited: false, invalidate: None },
            payload: iwarp::Payload::Inline(b"x"),
            signaled: true,
            fence: false,
        };
        assert_eq!(client.qp.post_send(&send), Err(PostError::WrongState));
        assert_eq!((client.qp.state(), client.qp.is_connected()), (QpState::Err, false));
        assert!(client.qp.modify(QpState::Reset).is_err());
        assert_eq!((client.qp.outstanding(), client.device.connections()), ((0, 0), 0));
        assert_eq!(client.device.poll_async_event(), None);
        // A queue pair can be made, for what it is worth.
        let made: QueuePair = parts_of(&client);
        assert_eq!(made.state(), QpState::Err);
        assert!(window.next_stag().is_err());
        refused(id.bind("127.0.0.1:0".parse().unwrap()).unwrap_err());
        refused(id.resolve_addr(None, "127.0.0.1:9".parse().unwrap()).unwrap_err());
        refused(events.wait(Some(DEADLINE)).unwrap_err());
        refused(listener.accept(Some(DEADLINE)).unwrap_err());
        client.connection.disconnect();
        assert_eq!(client.connection.wait_disconnected(Some(DEADLINE)), None);
    });
    child.succeeded();
    ping(&client, &server);
    let child = Forked::new(move || {
        let (region, error) = region.deregister().unwrap_err();
        assert_eq!(error, iwarp::verbs::RegisterError::UnknownStag);
        drop((region, window, srq, noisy, channel, listener, id, events));
        drop((client, server));
    });
    child.succeeded();
}

fn parts_of(end: &End) -> QueuePair {
    end.pd.create_qp(&iwarp::QueuePairAttributes::new(&end.send_cq, &end.recv_cq)).unwrap()
}

#[test]
fn a_session_in_a_child_is_over() {
    let _alone = common::alone();
    let device = Device::with_options(Options::default()).unwrap();
    let pd = device.alloc_pd();
    let listener = session::Listener::bind(&pd, "127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    let accepting = thread::spawn(move || {
        let request = listener.accept().wait().unwrap();
        let session = session::Config::default().accept(request).wait().unwrap();
        (listener, session)
    });
    let ours = session::Session::connect(&pd, addr).wait().unwrap();
    let (listener, theirs) = accepting.join().unwrap();
    let pool = session::BlockPool::new(&pd, 64, 4).unwrap();
    let (sent, block) = (pool.take().unwrap(), pool.take().unwrap());
    let waiting = theirs.recv(block);
    let exposed = ours.expose(64, Access::REMOTE_READ).unwrap();
    let child = Forked::new(move || {
        assert!(pool.take().is_none());
        assert_eq!(pool.available(), 0);
        assert!(session::Block::new(&pd, 8).is_err());
        assert!(ours.expose(64, Access::REMOTE_READ).is_err());
        let failure = ours.send(sent).wait().unwrap_err();
        assert!(matches!(failure.error, session::OperationError::Disconnected));
        drop(failure);
        assert!(!waiting.is_done());
        assert!(waiting.wait().is_err());
        drop((exposed, pool, listener, ours, theirs, device));
    });
    child.succeeded();
}

/// The child lives on, with its copies of whatever it has open, while the parent's process ends.
#[test]
fn the_peer_sees_the_parent_go() {
    let _alone = common::alone();
    let server = Device::with_options(Options::default()).unwrap();
    let listener = Listener::bind(&server, "127.0.0.1:0".parse().unwrap()).unwrap();
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
    let listener = Listener::bind(&server, "127.0.0.1:0".parse().unwrap()).unwrap();
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
    let listener = Listener::bind(&device, "127.0.0.1:0".parse().unwrap()).unwrap();
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
                    let listener = Listener::bind(&own, "127.0.0.1:0".parse().unwrap()).unwrap();
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
