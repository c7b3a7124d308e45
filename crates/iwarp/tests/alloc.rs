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
/// While set, whoever allocates says where on standard error.
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

const SEND: SendOp = SendOp::Send { solicited: false, invalidate: None };
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
    let request = SendRequest { wr_id: 1, op, payload, signaled: true, fence: false };
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

/// What is done again and again; the number says how often before.
type Step<'a> = Box<dyn FnMut(usize) + 'a>;

fn steps<'a>(client: &'a End, server: &'a End) -> Vec<(&'static str, Step<'a>)> {
    const LEN: usize = 150_000;
    let (ours, theirs) = (client.region(LEN), server.region(LEN));
    let (sources, sinks) = (lists(&ours), lists(&theirs));
    let (stag, to) = (theirs.rkey(), theirs.base());
    let sends = move |number: usize| {
        let which = number % 3;
        server.qp.post_recv(&RecvRequest { wr_id: 0, sges: &sinks[which] }).unwrap();
        post(client, SEND, Payload::Sges(&sources[which]));
        next(&server.recv_cq);
        next(&client.send_cq);
    };
    let sources = lists(&ours);
    let (back_sinks, back_sources) = (lists(&ours), lists(&theirs));
    let both_ways = move |number: usize| {
        let which = number % 3;
        server.qp.post_recv(&RecvRequest { wr_id: 0, sges: &back_sources[which] }).unwrap();
        client.qp.post_recv(&RecvRequest { wr_id: 0, sges: &back_sinks[which] }).unwrap();
        post(client, SEND, Payload::Sges(&back_sinks[which]));
        post(server, SEND, Payload::Sges(&back_sources[which]));
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
        server.qp.post_recv(&RecvRequest { wr_id: 0, sges: &[] }).unwrap();
        post(client, SendOp::Write { stag, to }, Payload::Inline(&[7; 200]));
        post(client, SEND, Payload::Inline(&[]));
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
fn nothing_is_allocated_per_message() {
    // With one test at a time the harness runs it itself.
    IS_HARNESS.set(false);
    for (crc, markers) in [(true, false), (false, false), (true, true)] {
        let options = Options { crc, markers, ..Options::default() };
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
}

/// A caller that blocks for each message.
fn blocked() {
    let client = iwarp::Device::with_options(Options::default()).unwrap();
    let server = iwarp::Device::with_options(Options::default()).unwrap();
    let listener = iwarp::cm::Listener::bind(&server, "127.0.0.1:0".parse().unwrap()).unwrap();
    let channel = server.create_comp_channel().unwrap();
    let ours = client.create_cq(64, None).unwrap();
    let theirs = server.create_cq(64, Some(&channel)).unwrap();
    let (client_pd, server_pd) = (client.alloc_pd(), server.alloc_pd());
    let sender = client_pd.create_qp(&iwarp::QueuePairAttributes::new(&ours, &ours)).unwrap();
    let receiver = server_pd.create_qp(&iwarp::QueuePairAttributes::new(&theirs, &theirs)).unwrap();
    let _connections = common::couple(&client, &sender, &listener, &receiver);
    let message = || {
        receiver.post_recv(&RecvRequest { wr_id: 0, sges: &[] }).unwrap();
        theirs.request_notify(false);
        let payload = Payload::Inline(&[]);
        let request = SendRequest { wr_id: 1, op: SEND, payload, signaled: true, fence: false };
        sender.post_send(&request).unwrap();
        let event = channel.wait(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(event, Some(theirs.number()));
        next(&theirs);
        next(&ours);
    };
    (0..WARM_UP).for_each(|_| message());
    assert_steady("blocked receiver", |_| message());
}
