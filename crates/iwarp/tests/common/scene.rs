// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two devices on a network in memory, in virtual time: their programs are threads of which one
//! acts at a time, and their workers have no threads but take a turn when they would be awake.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use iwarp::cm::{ConnectParams, EventChannel, EventKind, Id};
use iwarp::port::{DatagramNetwork, ManualClock, MemoryNetwork, Network, Platform};
use iwarp::{CompletionChannel, Device, Options, QueuePairAttributes, Turns, WorkCompletion};

use crate::common::meet::{LOOPBACK, TestHost};
use crate::common::{End, succeeded};

/// The time by which the clock goes on when a program pauses: about as long as a poll takes.
pub const STEP: Duration = Duration::from_nanos(500);
/// Longest time that any one thing takes, in virtual time.
const DEADLINE: Duration = Duration::from_secs(5);

/// See the [module](self).
pub struct Scene {
    pub clock: ManualClock,
    workers: Mutex<Workers>,
    acting: Mutex<Acting>,
    changed: Condvar,
}

#[derive(Default)]
struct Workers {
    turns: Vec<Turns>,
    taken: u64,
}

#[derive(Default)]
struct Acting {
    /// The program whose turn it is.
    which: usize,
    gone: Vec<bool>,
}

thread_local! {
    /// The program of this thread.
    static PROGRAM: Cell<Option<usize>> = const { Cell::new(None) };
    /// The scene that this thread plays.
    static PLAYED: RefCell<Option<Arc<Scene>>> = const { RefCell::new(None) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scene {
    pub fn new() -> Arc<Self> {
        let clock = ManualClock::new();
        let scene = Arc::new(Self {
            clock: clock.clone(),
            workers: Mutex::default(),
            acting: Mutex::default(),
            changed: Condvar::new(),
        });
        let its = Arc::downgrade(&scene);
        // Within the library a caller gives up its CPU as a program does.
        clock.meanwhile(move |_, time| {
            if let Some(scene) = its.upgrade() {
                scene.pause_for(time);
            }
        });
        scene
    }

    /// Has this thread wait in the scene's time, wherever it waits [`until`](super::until)
    /// something.
    pub fn play(self: &Arc<Self>) -> Playing {
        Playing(PLAYED.replace(Some(Arc::clone(self))))
    }

    /// The scene that this thread plays.
    pub fn played() -> Option<Arc<Self>> {
        PLAYED.with_borrow(Clone::clone)
    }

    /// A device whose workers take turns here.
    pub fn device(
        &self,
        options: Options,
        network: Arc<dyn Network>,
        datagrams: Option<Arc<dyn DatagramNetwork>>,
    ) -> Device {
        let platform = Platform { network, clock: self.clock.clone().into(), datagrams };
        let (device, turns) = Device::turned(options, platform).unwrap();
        lock(&self.workers).turns.push(turns);
        device
    }

    /// Turns that workers have taken.
    pub fn turns(&self) -> u64 {
        lock(&self.workers).taken
    }

    /// Time passes, workers that are awake take a turn, and the next program acts.
    pub fn pause(&self) {
        self.pause_for(STEP);
    }

    fn pause_for(&self, time: Duration) {
        self.clock.advance(time.max(STEP));
        self.turn();
        let Some(own) = PROGRAM.get() else { return };
        let mut acting = lock(&self.acting);
        self.pass_on(&mut acting, own);
        drop(self.changed.wait_while(acting, |acting| acting.which != own));
    }

    /// Each worker that is awake takes a turn. False when none is.
    pub fn turn(&self) -> bool {
        let mut workers = lock(&self.workers);
        let Workers { turns, taken } = &mut *workers;
        let before = *taken;
        for turns in turns {
            for worker in 0..turns.workers() {
                if turns.is_awake(worker) {
                    *taken += 1;
                    turns.turn(worker);
                }
            }
        }
        before != *taken
    }

    /// Lets workers alone act for so long; returns the number of their turns.
    pub fn pass(&self, time: Duration) -> u64 {
        let (before, end) = (self.turns(), self.clock.now() + time);
        loop {
            while self.turn() {
                assert!(self.turns() < before + 100_000, "workers spin");
            }
            let now = self.clock.now();
            let next = self.next_wake().map_or(end, |next| next.min(end));
            if next <= now && now >= end {
                return self.turns() - before;
            }
            self.clock.advance(next.saturating_sub(now));
        }
    }

    /// When the next worker wakes by itself.
    fn next_wake(&self) -> Option<Duration> {
        let workers = lock(&self.workers);
        let each = workers.turns.iter();
        each.flat_map(|turns| (0..turns.workers()).filter_map(|of| turns.sleeps_until(of))).min()
    }

    fn pass_on(&self, acting: &mut Acting, own: usize) {
        let all = acting.gone.len();
        let next = (1..=all).map(|step| (own + step) % all).find(|next| !acting.gone[*next]);
        acting.which = next.unwrap_or(own);
        self.changed.notify_all();
    }

    /// Tries until there is something; panics at the deadline.
    pub fn until<T>(&self, what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
        let end = self.clock.now() + DEADLINE;
        loop {
            if let Some(found) = attempt() {
                return found;
            }
            let now = self.clock.now();
            assert!(now < end, "waited too long for {what}");
            if PROGRAM.get().is_some() {
                self.pause();
            } else if !self.turn() {
                // No program acts: on to the next event.
                let next = self.next_wake().unwrap_or_default();
                self.clock.advance(next.saturating_sub(now).max(STEP));
            }
        }
    }

    /// Runs programs until all have ended. One acts at a time, until it pauses.
    pub fn act(&self, programs: [&(dyn Fn() + Sync); 2]) {
        *lock(&self.acting) = Acting { which: 0, gone: vec![false; programs.len()] };
        thread::scope(|scope| {
            for (own, program) in programs.into_iter().enumerate() {
                scope.spawn(move || {
                    PROGRAM.set(Some(own));
                    let _last = Leaves(self, own);
                    let acting = lock(&self.acting);
                    drop(self.changed.wait_while(acting, |acting| acting.which != own));
                    program();
                });
            }
        });
    }

    /// A host where queue pairs meet without the connection manager.
    pub fn host(&self) -> TestHost {
        let network = MemoryNetwork::new().host(LOOPBACK.parse().unwrap());
        TestHost::of(self.device(Options::default(), network, None), LOOPBACK)
    }

    /// Two devices, connected: client and server, whose completion queues have a channel each.
    pub fn connect(&self, options: &Options) -> [Actor; 2] {
        let network = MemoryNetwork::new();
        let devices = [1, 2].map(|last| {
            let addr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
            let device = self.device(options.clone(), network.host(addr), None);
            (device, SocketAddr::new(addr, 4791))
        });
        let events = devices.each_ref().map(|(device, _)| EventChannel::new(device).unwrap());
        let event = |which: usize| {
            self.until("an event of the connection manager", || events[which].try_next())
        };
        let listening = Id::new(&events[1]).unwrap();
        listening.bind(devices[1].1).unwrap();
        listening.listen(1).unwrap();
        let [client, server] = devices.each_ref().map(|(device, _)| Actor::new(device));
        let id = Id::new(&events[0]).unwrap();
        id.resolve_addr(None, devices[1].1).unwrap();
        assert!(matches!(event(0).kind, EventKind::AddressResolved));
        id.connect(&client.qp, &ConnectParams::default()).unwrap();
        let request = event(1);
        assert!(matches!(request.kind, EventKind::ConnectRequest { .. }));
        request.id.accept(&server.qp, &ConnectParams::default()).unwrap();
        for which in 0..2 {
            assert!(matches!(event(which).kind, EventKind::Established { .. }));
        }
        let with = |mut actor: Actor, id, events| {
            actor.end.connection = Some((id, events));
            actor
        };
        let [to_client, to_server] = events;
        [with(client, id, to_client), with(server, request.id, to_server)]
    }
}

/// This thread plays a scene until this is dropped.
pub struct Playing(Option<Arc<Scene>>);

impl Drop for Playing {
    fn drop(&mut self) {
        PLAYED.set(self.0.take());
    }
}

/// A program that goes, in any way.
struct Leaves<'a>(&'a Scene, usize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let Self(scene, own) = *self;
        let mut acting = lock(&scene.acting);
        acting.gone[own] = true;
        scene.pass_on(&mut acting, own);
    }
}

/// One end, in virtual time.
pub struct Actor {
    end: End<Option<(Id, EventChannel)>>,
    pub send_channel: CompletionChannel,
    pub recv_channel: CompletionChannel,
}

impl Deref for Actor {
    type Target = End<Option<(Id, EventChannel)>>;

    fn deref(&self) -> &Self::Target {
        &self.end
    }
}

impl Actor {
    fn new(device: &Device) -> Self {
        let pd = device.alloc_pd();
        let [send_channel, recv_channel] = [(); 2].map(|()| device.create_comp_channel().unwrap());
        let send_cq = device.create_cq(512, Some(&send_channel)).unwrap();
        let recv_cq = device.create_cq(512, Some(&recv_channel)).unwrap();
        let qp = pd.create_qp(&QueuePairAttributes::new(&send_cq, &recv_cq)).unwrap();
        let end = End { device: device.clone(), pd, send_cq, recv_cq, qp, connection: None };
        Self { end, send_channel, recv_channel }
    }

    /// The next receive completion, which must be a success.
    pub fn received(&self, scene: &Scene) -> WorkCompletion {
        succeeded(scene.until("a completion", || self.recv_cq.poll_one()))
    }

    /// The next send completion, which must be a success.
    pub fn sent(&self, scene: &Scene) -> WorkCompletion {
        succeeded(scene.until("a completion", || self.send_cq.poll_one()))
    }
}
