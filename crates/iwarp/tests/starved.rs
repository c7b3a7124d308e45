// SPDX-License-Identifier: MIT OR Apache-2.0

//! No memory: an allocator that refuses the n-th large allocation, or all from then on, for every n
//! that a scenario gets to. Each refusal ends in an error of a call or the end of a connection; the
//! process goes on, and what is made afterwards works. A process of its own, as the allocator
//! refuses every caller.
//!
//! Small objects are not refused: a program in Rust has none of the reserve that the drop-in
//! libraries have for them.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iwarp::cm::{ConnectParams, Listener, connect};
use iwarp::{
    Device, MemoryRegion, Options, Payload, Personality, PostError, QpType, QueuePairAttributes,
    RecvRequest, SendOp, SendRequest, WcStatus,
};

use crate::common::{DEADLINE, End, Setup, all_access, alone, couple, parts, pattern, until};

struct Refusing;

/// A size that is no larger is never refused.
const SMALL: usize = 4096;

/// Large allocations that succeed before the first that does not; `u64::MAX`: all do.
static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);
/// Not only one is refused.
static FOR_GOOD: AtomicBool = AtomicBool::new(false);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

fn refuses(size: usize) -> bool {
    if size <= SMALL || LEFT.load(Ordering::SeqCst) == u64::MAX {
        return false;
    }
    let count = |left: u64| match left {
        u64::MAX => None,
        0 if FOR_GOOD.load(Ordering::SeqCst) => Some(0),
        0 => Some(u64::MAX),
        left => Some(left - 1),
    };
    let refused = LEFT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) == Ok(0);
    REFUSED.fetch_add(refused.into(), Ordering::SeqCst);
    refused
}

// SAFETY: the system's allocator, which sometimes says no.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        if refuses(layout.size()) { null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        if refuses(layout.size()) { null_mut() } else { unsafe { System.alloc_zeroed(layout) } }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if refuses(new_size) {
            return null_mut();
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// While it exists, allocations are refused as [`starve`] says.
struct Starving;

impl Starving {
    fn after(left: u64) -> Self {
        REFUSED.store(0, Ordering::SeqCst);
        LEFT.store(left, Ordering::SeqCst);
        Self
    }
}

impl Drop for Starving {
    fn drop(&mut self) {
        LEFT.store(u64::MAX, Ordering::SeqCst);
    }
}

/// Runs `scenario` with every large allocation refused once, and with all refused from each on,
/// each time in a thread that has no buffers yet. It says when that begins, and drops the result
/// when it is over.
fn starve(scenario: impl Fn(&dyn Fn() -> Starving) + Sync) {
    let _alone = alone();
    for for_good in [false, true] {
        FOR_GOOD.store(for_good, Ordering::SeqCst);
        for n in 0.. {
            thread::scope(|scope| {
                let done = scope.spawn(|| scenario(&|| Starving::after(n))).join();
                done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            });
            assert_eq!(LEFT.load(Ordering::SeqCst), u64::MAX, "the scenario ends it");
            if REFUSED.load(Ordering::SeqCst) == 0 {
                assert!(n > 0, "nothing large was asked for");
                break;
            }
            assert!(n < 1000, "no end");
        }
    }
}

/// A connection between two devices moves bytes.
fn assert_usable(client: &Device, server: &Device) {
    let listener = Listener::bind(server, "127.0.0.1:0").unwrap();
    let (ours, theirs) = (parts(client, 16), parts(server, 16));
    let _connections = couple(client, &ours.3, &listener, &theirs.3);
    let source = ours.0.allocate(100_000, all_access()).unwrap();
    source.buffer().unwrap().write_at(0, &pattern(100_000, 7));
    let sink = theirs.0.allocate(100_000, all_access()).unwrap();
    theirs.3.post_recv(&RecvRequest::new(1, &[sink.whole()])).unwrap();
    ours.3.post_send(&send(&[source.whole()])).unwrap();
    assert_eq!(common::next(&ours.1).status, WcStatus::Success);
    assert_eq!(common::next(&theirs.2).status, WcStatus::Success);
    assert!(sink.buffer().unwrap().to_vec() == pattern(100_000, 7));
}

fn send<'a>(sges: &'a [iwarp::Sge]) -> SendRequest<'a> {
    let payload = Payload::Sges(sges);
    SendRequest::send(1, payload).signaled()
}

#[test]
fn objects_are_made_or_refused() {
    starve(|starving| {
        let hungry = starving();
        let made = Device::with_options(Options::default());
        if let Ok(device) = &made {
            let channel = device.create_comp_channel().ok();
            let cq = device.create_cq(5000, channel.as_ref());
            if let Ok(cq) = &cq {
                let resized = cq.resize(9000);
                assert_eq!(cq.depth(), if resized.is_ok() { 9000 } else { 5000 });
                let _ = device.alloc_pd().create_addressable_qp(&QueuePairAttributes::new(cq, cq));
            }
            let out_of_memory = |error: std::io::Error| {
                assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory, "{error}");
            };
            cq.map(drop).unwrap_or_else(out_of_memory);
        }
        drop(hungry);
        let usable = made.unwrap_or_else(|_| Device::with_options(Options::default()).unwrap());
        assert_usable(&usable, &usable);
    });
}

/// However many there are already: what is known of all of them is large by then.
#[test]
fn queue_pairs_are_made_or_refused() {
    // Beyond 448 numbers, beyond 512 queues that complete in one place, and with the second port
    // there is more to be kept than is small. That of the third has to be kept when all are given
    // back.
    for (before, addressable) in [(448, false), (230, true), (450, true)] {
        starve(|starving| {
            let device = Device::with_options(Options::default()).unwrap();
            let [few, many] = [(); 2].map(|()| device.create_cq(16, None).unwrap());
            let pd = device.alloc_pd();
            let make = |cq| {
                let attributes = QueuePairAttributes::new(cq, cq);
                if addressable {
                    pd.create_addressable_qp(&attributes)
                } else {
                    pd.create_qp(&attributes)
                }
            };
            let mut all = Vec::with_capacity(1000);
            all.extend((0..before).map(|n| make(if n < 192 { &few } else { &many }).unwrap()));
            let hungry = starving();
            for _ in 0..60 {
                match make(&many) {
                    Ok(qp) => all.push(qp),
                    Err(error) => {
                        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory, "{error}");
                    }
                }
            }
            let mut numbers: Vec<_> = all.iter().map(iwarp::QueuePair::number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), all.len());
            all.clear();
            drop(hungry);
            all.push(make(&many).unwrap());
            drop(all);
            assert_usable(&device, &device);
        });
    }
}

/// The first of them opens the port that all share, and the last closes it.
#[test]
fn queue_pairs_over_datagrams_are_made_or_refused() {
    starve(|starving| {
        let options = Options::new().personality(Personality::Roce);
        let device = Device::with_options(options).unwrap();
        let cq = device.create_cq(16, None).unwrap();
        let pd = device.alloc_pd();
        let make = |qp_type| pd.create_qp(&QueuePairAttributes::new(&cq, &cq).qp_type(qp_type));
        let types = [QpType::Ud, QpType::Uc, QpType::Rc];
        let hungry = starving();
        let made = types.map(make);
        drop(hungry);
        for error in made.iter().filter_map(|made| made.as_ref().err()) {
            assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory, "{error}");
        }
        for qp_type in types {
            make(qp_type).unwrap();
        }
        drop(made);
        assert_usable(&device, &device);
    });
}

#[test]
fn memory_is_registered_or_not() {
    starve(|starving| {
        let device = Device::with_options(Options::default()).unwrap();
        let pd = device.alloc_pd();
        let mut regions: Vec<MemoryRegion> = Vec::with_capacity(3000);
        let hungry = starving();
        // The table grows at 256, 512, 1024 and 2048.
        let made = (0..3000).map_while(|_| pd.allocate(16, all_access()).ok());
        regions.extend(made);
        let _ = pd.allocate(1 << 20, all_access());
        drop(hungry);
        let before = regions.len();
        regions.extend((before..3000).map(|_| pd.allocate(16, all_access()).unwrap()));
        drop(regions);
        assert_usable(&device, &device);
    });
}

/// Everything is posted in the end, in order, and completes once.
#[test]
fn a_request_is_posted_or_was_not() {
    const DEPTH: usize = 600;
    starve(|starving| {
        let device = Device::with_options(Options::default()).unwrap();
        let (pd, send_cq, recv_cq, qp) = parts(&device, DEPTH);
        let srq = pd.create_srq(DEPTH, 4);
        let region = pd.allocate(64, all_access()).unwrap();
        let list = [region.whole()];
        // Attempts that failed for want of memory are made again, when there is some.
        let post = |starving: bool, done: &mut [u64; 2]| {
            for wr_id in 0..DEPTH as u64 {
                let request = RecvRequest::new(wr_id, &list);
                let attempts: [&dyn Fn() -> Result<(), PostError>; 2] =
                    [&|| qp.post_recv(&request), &|| srq.post(&request)];
                for (attempt, done) in attempts.iter().zip(&mut *done) {
                    if *done != wr_id {
                        continue;
                    }
                    match attempt() {
                        Ok(()) => *done += 1,
                        Err(error) => {
                            assert!(starving && error == PostError::OutOfMemory, "{error}");
                        }
                    }
                }
            }
        };
        let mut done = [0; 2];
        let hungry = starving();
        post(true, &mut done);
        drop(hungry);
        post(false, &mut done);
        assert_eq!(done, [DEPTH as u64; 2]);
        drop((send_cq, qp.modify(iwarp::QpState::Err)));
        for wr_id in 0..DEPTH as u64 {
            let completion = common::next(&recv_cq);
            assert_eq!((completion.wr_id, completion.status), (wr_id, WcStatus::Flushed));
        }
        assert!(recv_cq.poll_one().is_none());
    });
}

#[test]
fn a_connection_is_made_or_refused() {
    starve(|starving| {
        let options = Options::default();
        let (client, server) =
            (Device::with_options(options.clone()), Device::with_options(options));
        let (client, server) = (client.unwrap(), server.unwrap());
        let listener = Listener::bind(&server, "127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (ours, theirs) = (parts(&client, 16), parts(&server, 16));
        let params = ConnectParams::default();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let incoming = listener.accept(Some(Duration::from_millis(5)));
                    if let Ok(Some(incoming)) = incoming {
                        return incoming.accept(&theirs.3, &params).ok();
                    }
                }
                None
            });
            let hungry = starving();
            let ended = connect(&client, addr, &ours.3, &params, DEADLINE);
            over.store(true, Ordering::SeqCst);
            let accepted = accepting.join().unwrap();
            drop(hungry);
            drop((ended, accepted));
        });
        drop((ours, theirs));
        assert_usable(&client, &server);
    });
}

/// Posts and polls until all that was posted has completed, well or not.
fn traffic(client: &End, server: &End, source: &MemoryRegion, sink: &MemoryRegion) {
    const ROUNDS: usize = 3;
    let deadline = Instant::now() + DEADLINE;
    let (mut sends, mut receives) = (0, 0);
    let (list, target) = ([source.whole()], [sink.whole()]);
    let (stag, to) = (sink.rkey(), sink.base());
    for _ in 0..ROUNDS {
        receives += usize::from(server.qp.post_recv(&RecvRequest::new(0, &target)).is_ok());
        for op in
            [SendOp::Write { stag, to }, SendOp::SEND, SendOp::Read { stag, to, invalidate: None }]
        {
            let request = SendRequest::new(1, op, &list).signaled();
            sends += usize::from(client.qp.post_send(&request).is_ok());
        }
        let mut alive = true;
        while sends > 0 || (receives > 0 && !alive) {
            if let Some(completion) = client.send_cq.poll_one() {
                sends -= 1;
                alive &= completion.status == WcStatus::Success;
            }
            receives -= usize::from(server.recv_cq.poll_one().is_some());
            if !alive {
                // The end that the other does not know yet.
                client.connection.disconnect();
                server.connection.disconnect();
            }
            assert!(Instant::now() < deadline, "{sends} sends, {receives} receives");
        }
        if !alive {
            return;
        }
    }
}

fn starve_traffic(options: &Options, len: usize) {
    starve(|starving| {
        let (client, server) = Setup::both(options).connect();
        let (source, sink) = (client.region(len), server.region(len));
        let hungry = starving();
        traffic(&client, &server, &source, &sink);
        drop(hungry);
        let (ours, theirs) = (client.device.clone(), server.device.clone());
        drop((client, server, source, sink));
        until("connections to end", || (ours.connections() == 0).then_some(()));
        assert_usable(&ours, &theirs);
    });
}

#[test]
fn traffic_goes_on_or_ends() {
    for (crc, markers) in [(true, false), (false, false), (true, true)] {
        for len in [20_000, 300_000] {
            starve_traffic(&Options::new().crc(crc).markers(markers), len);
        }
    }
}

/// The server's program posts no receives: what comes is put aside, or ends the connection.
#[test]
fn messages_without_receives_are_kept_or_end_the_connection() {
    const LEN: usize = 100_000;
    const COUNT: usize = 6;
    starve(|starving| {
        let options = Options::new().personality(Personality::Roce);
        let (client, server) = Setup::both(&options).connect();
        let (source, sink) = (client.region_of(&pattern(LEN, 3)), server.region(LEN));
        let (list, target) = ([source.whole()], [sink.whole()]);
        let hungry = starving();
        let posted = (0..COUNT).filter(|_| client.qp.post_send(&send(&list)).is_ok()).count();
        let mut status = Vec::with_capacity(COUNT);
        let deadline = Instant::now() + DEADLINE;
        while status.len() < posted {
            // One after the other, each behind what came before it.
            let taken = server.qp.post_recv(&RecvRequest::new(0, &target));
            use PostError::{OutOfMemory, QueueFull};
            assert!(matches!(taken, Ok(()) | Err(OutOfMemory | QueueFull)), "{taken:?}");
            while let Some(completion) = client.send_cq.poll_one() {
                status.push(completion.status);
            }
            if let Some(completion) = server.recv_cq.poll_one()
                && completion.status == WcStatus::Success
            {
                assert_eq!(completion.byte_len as usize, LEN);
            }
            assert!(Instant::now() < deadline, "{status:?} of {posted}");
        }
        drop(hungry);
        let (ours, theirs) = (client.device.clone(), server.device.clone());
        drop((client, server));
        assert_usable(&ours, &theirs);
    });
}
