// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two connected ends in one process, and waiting with a deadline.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of it")]

pub mod census;
pub mod channels;
pub mod kin;
pub mod knows;
pub mod meet;
pub mod mixed;
pub mod neighbours;
pub mod pages;
pub mod player;
pub mod process;
pub mod raw;
pub mod reports;
pub mod sandbox;
pub mod scene;
pub mod script;
pub mod sessions;
pub mod sharers;
pub mod sockets;
pub mod station;
pub mod victim;
pub mod victims;

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use iwarp::cm::{ConnectParams, Connection, Listener, connect};
use iwarp::{
    Access, AsyncEvent, CompletionQueue, Device, MemoryRegion, Options, ProtectionDomain,
    QueuePair, QueuePairAttributes, RecvRequest, SendOp, SendRequest, Sge, WcStatus,
    WorkCompletion,
};

use scene::Scene;

/// Longest time that any one thing here may take.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// The patience of [`until`]: a wait that ends with what it waits for costs nothing by being
/// patient, and a CPU that others use, or a sanitizer, makes a test many times slower.
pub const EVENTUALLY: Duration = DEADLINE.saturating_mul(3);

/// One end, with what keeps its connection.
pub struct End<C = Connection> {
    pub device: Device,
    pub pd: ProtectionDomain,
    pub send_cq: CompletionQueue,
    pub recv_cq: CompletionQueue,
    pub qp: QueuePair,
    pub connection: C,
}

/// The settings with which a pair is made.
#[derive(Clone)]
pub struct Setup {
    pub client: Options,
    pub server: Options,
    pub params: ConnectParams,
    pub depth: usize,
    pub addr: SocketAddr,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            client: Options::default(),
            server: Options::default(),
            params: ConnectParams::default(),
            depth: 256,
            addr: "127.0.0.1:0".parse().unwrap(),
        }
    }
}

impl Setup {
    /// Both ends with these options.
    pub fn both(options: &Options) -> Self {
        Self { client: options.clone(), server: options.clone(), ..Self::default() }
    }

    /// Connects a client (first) and a server, each a device of its own.
    pub fn connect(&self) -> (End, End) {
        let server = Device::with_options(self.server.clone()).unwrap();
        let listener = Listener::bind(&server, self.addr).unwrap();
        let addr = listener.local_addr().unwrap();
        let depth = self.depth;
        let params = self.params.clone();
        let accepting = thread::spawn(move || {
            let (pd, send_cq, recv_cq, qp) = parts(&server, depth);
            let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("nobody connects");
            let connection = incoming.accept(&qp, &params).unwrap();
            End { device: server, pd, send_cq, recv_cq, qp, connection }
        });
        let client = Device::with_options(self.client.clone()).unwrap();
        let (pd, send_cq, recv_cq, qp) = parts(&client, depth);
        let connection = connect(&client, addr, &qp, &self.params, DEADLINE).unwrap();
        let client = End { device: client, pd, send_cq, recv_cq, qp, connection };
        (client, accepting.join().unwrap())
    }
}

/// The parts that a connection needs.
pub fn parts(
    device: &Device,
    depth: usize,
) -> (ProtectionDomain, CompletionQueue, CompletionQueue, QueuePair) {
    let pd = device.alloc_pd();
    let (send_cq, recv_cq, qp) = queues(device, &pd, depth);
    (pd, send_cq, recv_cq, qp)
}

/// The completion queues and the queue pair of a connection, in that protection domain.
pub fn queues(
    device: &Device,
    pd: &ProtectionDomain,
    depth: usize,
) -> (CompletionQueue, CompletionQueue, QueuePair) {
    let send_cq = device.create_cq(depth * 2, None).unwrap();
    let recv_cq = device.create_cq(depth * 2, None).unwrap();
    let attributes = QueuePairAttributes::new(&send_cq, &recv_cq)
        .max_send_wr(depth)
        .max_recv_wr(depth)
        .max_send_sge(32)
        .max_recv_sge(32);
    let qp = pd.create_qp(&attributes).unwrap();
    (send_cq, recv_cq, qp)
}

/// Connects two queue pairs of this process: the client's end, and the server's.
pub fn couple(
    client: &Device,
    ours: &QueuePair,
    listener: &Listener,
    theirs: &QueuePair,
) -> (Connection, Connection) {
    let params = ConnectParams::default();
    let addr = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("nobody connects");
            incoming.accept(theirs, &params).unwrap()
        });
        let connection = connect(client, addr, ours, &params, DEADLINE).unwrap();
        (connection, accepting.join().unwrap())
    })
}

/// Every right there is.
pub fn all_access() -> Access {
    Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::MW_BIND
}

impl<C> End<C> {
    pub fn region(&self, len: usize) -> MemoryRegion {
        self.pd.allocate(len, all_access()).unwrap()
    }

    /// A region that holds `octets`.
    pub fn region_of(&self, octets: &[u8]) -> MemoryRegion {
        let region = self.region(octets.len());
        region.buffer().unwrap().write_at(0, octets);
        region
    }

    pub fn post(&self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        let request = SendRequest::new(wr_id, op, sges).signaled();
        self.qp.post_send(&request).unwrap();
    }

    pub fn post_recv(&self, wr_id: u64, sges: &[Sge]) {
        self.qp.post_recv(&RecvRequest::new(wr_id, sges)).unwrap();
    }

    pub fn send(&self, wr_id: u64, sges: &[Sge]) {
        self.post(wr_id, SendOp::SEND, sges);
    }

    pub fn write(&self, wr_id: u64, local: Sge, remote: &MemoryRegion, offset: u64) {
        let to = remote.base().advanced(offset);
        self.post(wr_id, SendOp::Write { stag: remote.rkey(), to }, &[local]);
    }

    pub fn read(&self, wr_id: u64, local: Sge, remote: &MemoryRegion, offset: u64) {
        let to = remote.base().advanced(offset);
        self.post(wr_id, SendOp::Read { stag: remote.rkey(), to, invalidate: None }, &[local]);
    }

    /// The next send completion, which must be a success.
    pub fn sent(&self) -> WorkCompletion {
        succeeded(next(&self.send_cq))
    }

    /// The next receive completion, which must be a success.
    pub fn received(&self) -> WorkCompletion {
        succeeded(next(&self.recv_cq))
    }

    /// Waits for an asynchronous event that `wanted` picks.
    pub fn async_event(&self, wanted: impl Fn(&AsyncEvent) -> bool) -> AsyncEvent {
        let next = || self.device.poll_async_event().unwrap().filter(|event| wanted(event));
        until("an asynchronous event", next)
    }
}

pub fn succeeded(completion: WorkCompletion) -> WorkCompletion {
    assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
    completion
}

/// The next completion of a queue.
pub fn next(cq: &CompletionQueue) -> WorkCompletion {
    until("a completion", || cq.poll_one())
}

/// Tries until there is something; panics after [`EVENTUALLY`].
pub fn until<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    within(EVENTUALLY, || what.to_owned(), attempt)
}

/// Tries until there is something, in the time of the [`Scene`] that this thread plays, if it does.
/// Panics, and says what was missing, where the last attempt began
/// only after the deadline: a thread that is kept from running has not tried.
pub fn within<T>(
    patience: Duration,
    what: impl Fn() -> String,
    mut attempt: impl FnMut() -> Option<T>,
) -> T {
    if let Some(scene) = Scene::played() {
        return scene.until(&what(), attempt);
    }
    let deadline = Instant::now() + patience;
    let mut idle = Idle::default();
    loop {
        let late = Instant::now() >= deadline;
        if let Some(found) = attempt() {
            return found;
        }
        assert!(!late, "waited too long for {}", what());
        idle.pause();
    }
}

/// Attempts in a row that found nothing. Their thread leaves the CPU to others: a dozen processes
/// that do nothing but yield to one another keep those away that they wait for.
#[derive(Default)]
pub struct Idle(u32);

impl Idle {
    /// Something was found.
    pub fn over(&mut self) {
        self.0 = 0;
    }

    /// Lets others run, the longer the longer nothing was found.
    pub fn pause(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            ..64 => thread::yield_now(),
            64..1024 => thread::sleep(Duration::from_micros(50)),
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut octets = Vec::with_capacity(len + 8);
    while octets.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        octets.extend_from_slice(&state.to_le_bytes());
    }
    octets.truncate(len);
    octets
}

/// Held by a test that no other of its binary may run beside, as they share the process and its
/// CPUs.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}
