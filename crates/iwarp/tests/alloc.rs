// SPDX-License-Identifier: MIT OR Apache-2.0

//! Steady state allocates nothing. A process of its own, as its allocator counts every thread.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iwarp::{
    AtomicOp, CompletionQueue, MemoryRegion, Options, Payload, PostError, RecvRequest, SendOp,
    SendRequest, Sge, WcStatus, WorkCompletion,
};

use crate::common::{DEADLINE, End, Setup};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static HARNESS_KNOWN: AtomicBool = AtomicBool::new(false);
/// While set, the next allocation is told on standard error, with its backtrace.
static TELLING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The test harness's thread allocates when it says that a test takes long.
    static IS_HARNESS: Cell<bool> = const { Cell::new(false) };
}

/// Counts an allocation of any thread but the harness's, which is the first of the process to make
/// one, and tells of the first that should not be.
fn count() {
    if !HARNESS_KNOWN.swap(true, Ordering::Relaxed) {
        IS_HARNESS.set(true);
    }
    if IS_HARNESS.get() {
        return;
    }
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    if TELLING.swap(false, Ordering::Relaxed) {
        let thread = thread::current();
        let name = thread.name().unwrap_or("a nameless thread");
        eprintln!("allocated by {name}:\n{}", Backtrace::force_capture());
    }
}

// SAFETY: the system's allocator, with a count beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Messages before counting begins, and while it lasts.
const WARM_UP: usize = 1500;
const COUNTED: usize = 4000;
const ROUNDS: usize = 4;

/// The next completion, without an allocation of the test's own.
fn next(cq: &CompletionQueue) -> WorkCompletion {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(completion) = cq.poll_one() {
            assert_eq!(completion.status, WcStatus::Success);
            return completion;
        }
        // The poll rests by itself where that helps.
        assert!(Instant::now() < deadline, "waited too long");
    }
}

fn post(end: &End, op: SendOp, payload: Payload<'_>) {
    let request = SendRequest::new(1, op, payload).signaled();
    let deadline = Instant::now() + DEADLINE;
    while let Err(error) = end.qp.post_send(&request) {
        assert_eq!(error, PostError::QueueFull);
        assert!(Instant::now() < deadline, "waited too long");
        end.send_cq.poll_one();
    }
}

/// A few lists of elements over a region.
fn lists(region: &MemoryRegion) -> [Vec<Sge>; 3] {
    [
        vec![region.sge(0, 64)],
        vec![region.sge(10, 9000), region.sge(20_000, 1)],
        vec![region.whole()],
    ]
}

/// The step that is done again and again; the number says how often before.
type Workload<'a> = Box<dyn FnMut(usize) + 'a>;

fn steps<'a>(client: &'a End, server: &'a End) -> Vec<(&'static str, Workload<'a>)> {
    const LEN: usize = 150_000;
    let (ours, theirs) = (client.region(LEN), server.region(LEN));
    let (sources, sinks) = (lists(&ours), lists(&theirs));
    let (stag, to) = (theirs.rkey(), theirs.base());
    let sends = move |number: usize| {
        let which = number % 3;
        server.qp.post_recv(&RecvRequest::new(0, &sinks[which])).unwrap();
        post(client, SendOp::SEND, Payload::Sges(&sources[which]));
        next(&server.recv_cq);
        next(&client.send_cq);
    };
    let sources = lists(&ours);
    let (back_sinks, back_sources) = (lists(&ours), lists(&theirs));
    let both_ways = move |number: usize| {
        let which = number % 3;
        server.qp.post_recv(&RecvRequest::new(0, &back_sources[which])).unwrap();
        client.qp.post_recv(&RecvRequest::new(0, &back_sinks[which])).unwrap();
        post(client, SendOp::SEND, Payload::Sges(&back_sinks[which]));
        post(server, SendOp::SEND, Payload::Sges(&back_sources[which]));
        next(&server.recv_cq);
        next(&client.recv_cq);
        next(&client.send_cq);
        next(&server.send_cq);
    };
    let write_sources = sources.clone();
    let writes = move |number: usize| {
        post(client, SendOp::Write { stag, to }, Payload::Sges(&write_sources[number % 3]));
        next(&client.send_cq);
    };
    let reads = move |number: usize| {
        let op = SendOp::Read { stag, to, invalidate: None };
        post(client, op, Payload::Sges(&sources[number % 3]));
        next(&client.send_cq);
    };
    let inline = move |_| {
        server.qp.post_recv(&RecvRequest::new(0, &[])).unwrap();
        post(client, SendOp::Write { stag, to }, Payload::Inline(&[7; 200]));
        post(client, SendOp::SEND, Payload::Inline(&[]));
        next(&server.recv_cq);
        next(&client.send_cq);
        next(&client.send_cq);
    };
    // The regions live as long as their users.
    let keep = (ours, theirs);
    let atomics = move |_| {
        let op = SendOp::Atomic { stag, to, op: AtomicOp::FetchAdd { add: 1, mask: 0 } };
        post(client, op, Payload::Sges(&[keep.0.sge(0, 8)]));
        next(&client.send_cq);
        assert_eq!(keep.1.len(), LEN);
    };
    vec![
        ("Send", Box::new(sends)),
        ("Send both ways", Box::new(both_ways)),
        ("Write", Box::new(writes)),
        ("Read", Box::new(reads)),
        ("inline Write and Send", Box::new(inline)),
        ("FetchAdd", Box::new(atomics)),
    ]
}

/// Asserts that `message`, done again and again, allocates nothing in any thread. A thread that
/// has its first work in the midst of it, because the test's own lost the CPU, may make what it
/// keeps from then on: so there are several rounds, and one must be without.
fn assert_steady(what: &str, mut message: impl FnMut(usize)) {
    for round in 1..=ROUNDS {
        TELLING.store(round == ROUNDS, Ordering::SeqCst);
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        (0..COUNTED).for_each(&mut message);
        let made = ALLOCATIONS.load(Ordering::SeqCst) - before;
        TELLING.store(false, Ordering::SeqCst);
        println!("{what}: {made} in {COUNTED} messages");
        if made == 0 {
            return;
        }
    }
    panic!("{what}: allocations in each of {ROUNDS} rounds");
}

/// One test: others beside it would be counted too.
#[test]
fn messages_allocate_nothing() {
    // With one test at a time the harness runs it itself.
    IS_HARNESS.set(false);
    for (crc, markers) in [(true, false), (false, false), (true, true)] {
        let options = Options::new().crc(crc).markers(markers);
        let (client, server) = Setup::both(&options).connect();
        let mut steps = steps(&client, &server);
        // All of them first: what one leaves in the pools serves the others.
        for (_, step) in &mut steps {
            (0..WARM_UP).for_each(&mut *step);
        }
        for (what, step) in &mut steps {
            assert_steady(&format!("{what}, crc {crc}, markers {markers}"), step);
        }
    }
    blocked();
    packets();
}

/// A caller that blocks for each message.
fn blocked() {
    let client = iwarp::Device::with_options(Options::default()).unwrap();
    let server = iwarp::Device::with_options(Options::default()).unwrap();
    let listener = iwarp::cm::Listener::bind(&server, "127.0.0.1:0").unwrap();
    let channel = server.create_comp_channel().unwrap();
    let ours = client.create_cq(64, None).unwrap();
    let theirs = server.create_cq(64, Some(&channel)).unwrap();
    let (client_pd, server_pd) = (client.alloc_pd(), server.alloc_pd());
    let sender = client_pd.create_qp(&iwarp::QueuePairAttributes::new(&ours, &ours)).unwrap();
    let receiver = server_pd.create_qp(&iwarp::QueuePairAttributes::new(&theirs, &theirs)).unwrap();
    let _connections = common::couple(&client, &sender, &listener, &receiver);
    let message = || {
        receiver.post_recv(&RecvRequest::new(0, &[])).unwrap();
        theirs.request_notify(false);
        let request = SendRequest::send(1, Payload::Inline(&[])).signaled();
        sender.post_send(&request).unwrap();
        let event = channel.wait(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(event, Some(theirs.number()));
        next(&theirs);
        next(&ours);
    };
    (0..WARM_UP).for_each(|_| message());
    assert_steady("blocked receiver", |_| message());
}

/// Packets through datagram ports, as trains and one by one, over UDP and in memory.
fn packets() {
    use iwarp::Outbox;
    use iwarp::port::{DatagramNetwork, DatagramSettings, MemoryDatagrams, Sent, datagrams};
    use iwarp_roce::wire::{Bth, Header, Message, Path, Position, Psn, SendTail, Transport};
    use std::convert::Infallible;
    use std::net::{IpAddr, Ipv4Addr};

    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let header = Header {
        bth: Bth::new(17, Psn::new(0)),
        transport: Transport::Uc,
        deth: None,
        message: Message::Send { position: Position::Only, tail: SendTail::Plain },
    };
    let exchange = |what: &str, network: &dyn DatagramNetwork, segmenting| {
        let settings = DatagramSettings { segmenting, ..DatagramSettings::default() };
        let open = || network.open((ip, 0).into(), &settings).unwrap();
        let (from, to) = (open(), open());
        let way = iwarp_types::AddressVector::new(ip, ip);
        let mut path = Path::new(way, from.local_addr().port());
        path.destination_port = to.local_addr().port();
        path.address.traffic_class = 8;
        let mut outbox = Outbox::new(&*from, 1 << 16);
        let mut exchange = |_| {
            let burst = outbox.fill(&*from).unwrap();
            for _ in 0..8 {
                let fill = |_: &mut [u8], _: &mut iwarp_types::Digest| Ok::<(), Infallible>(());
                let Ok(()) = burst.push(&path, &header, 512, fill);
            }
            assert_eq!(outbox.flush(&*from).unwrap(), Sent::All);
            let mut got = 0;
            let deadline = Instant::now() + DEADLINE;
            while got < 8 {
                assert!(Instant::now() < deadline, "waited too long");
                let _ = to.receive(&mut |_, _| got += 1);
            }
        };
        (0..WARM_UP).for_each(&mut exchange);
        assert_steady(what, exchange);
    };
    exchange("trains over UDP", &*datagrams(), true);
    exchange("packets over UDP", &*datagrams(), false);
    exchange("packets in memory", &*MemoryDatagrams::new(1).host(ip), true);
}
