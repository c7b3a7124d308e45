// SPDX-License-Identifier: MIT OR Apache-2.0

//! A datagram port that many queue pairs share: reading it ([`receive`]) and writing it ([`send`]),
//! the multicast groups that it has joined ([`groups`]), and the time that it is kept ([`rest`]).
//!
//! It is a member of the poll groups of all queue pairs that it serves, so a thread that drives one
//! of them moves the packets of all: the port cannot say whose a packet is before it is read.
//!
//! All queue pairs of a device share one datagram port. Over UDP the mux is one for the process;
//! over memory, where each device is a host of its own, each device has one. The mux has the port's
//! two tokens. Queue pairs with something to send wait in a queue and fill the burst in turn. A
//! burst consists of *trains*: packets that go to one queue pair in one send, equal in length
//! except the last, which the kernel cuts apart (`UDP_SEGMENT`). The burst includes the ICRCs,
//! computed in the pass that copies the payload. A process opens its share of UDP port 4791 when
//! its first queue pair needs datagrams.

mod groups;
mod numbers;
mod receive;
mod rest;
mod send;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_mem::OutOfMemory;
use iwarp_os::{Interest, PerProcess, Ready};
use iwarp_roce::cm::MAD_LEN;
use iwarp_roce::wire::Path;

use self::groups::Groups;
use self::receive::Rx;
use self::send::{Tx, Waiting};
use crate::engine::endpoint::Endpoint;
use crate::engine::group::{Group, Member, MemberWaker, Memberships, ready_of};
use crate::engine::mover::PacketMover;
use crate::engine::poll_set::By;
use crate::engine::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use crate::engine::token::Token;
use crate::engine::worker::Worker;
use crate::engine::{Engine, now};
use crate::hash::OwnKeys;
use crate::port::{Clock, DatagramPort, Descriptors, Shared};
use crate::report;
use crate::wire::roce::counted::Counted;
use crate::wire::roce::gsi::{Gsi, GsiReader};

/// Times that a thread waits for another process to give it a share of the port: one that needs it,
/// and one that can do without.
const PATIENCE: Duration = Duration::from_secs(1);
const PROMPT: Duration = Duration::from_millis(100);
/// The pause before a thread that can do without tries again.
const PAUSE: Duration = Duration::from_secs(1);

/// The port has no room.
const BLOCKED: u32 = 1;
/// The poll groups wait for room.
const AWAITS_ROOM: u32 = 2;
/// Queue pairs wait for the pace.
const PACED: u32 = 4;
/// The port cannot be received from, and is not waited for.
const RESTS: u32 = 8;
/// A worker is going to check whether the port is still needed.
const LOOKS: u32 = 16;

/// The time that it rests: it stays ready all the time.
const REST: Duration = Duration::from_millis(100);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Mux {
    itself: Weak<Self>,
    port: Box<dyn DatagramPort>,
    /// Queue pair 1, and what else the process has of the port.
    gsi: Arc<Gsi>,
    clock: Clock,
    counted: Counted,
    rx: Token<Rx>,
    tx: Token<Tx>,
    /// Queue pairs that have something to send.
    waiting: Waiting,
    /// The queue pairs that it serves, by number.
    queue_pairs: Mutex<OwnKeys<u32, Weak<Endpoint>>>,
    groups: Groups,
    flags: AtomicU32,
    /// Of a port without a descriptor.
    waker: Option<Arc<MemberWaker>>,
    memberships: Memberships,
    /// The number of queue pairs that have brought it into a group, by the number of the group.
    users: Mutex<HashMap<u64, usize>>,
    /// The number of queue pair numbers that lead here.
    lodgers: AtomicU32,
    /// Devices that keep it, and where they do.
    keepers: AtomicU32,
    places: Mutex<Vec<Weak<Mutex<Option<Used>>>>>,
    /// One that serves it, to keep the time by.
    worker: Mutex<Weak<Worker>>,
}

/// The place in which a device keeps the one that it uses, from the first queue pair on that needs
/// it to the last ([`rest`]).
#[derive(Debug, Default)]
pub(crate) struct MuxPlace {
    used: Arc<Mutex<Option<Used>>>,
    /// Time before which a thread that can do without does not try again, as finding out that none
    /// can be had takes long; in nanoseconds of the system's clock.
    failed_until: AtomicU64,
}

#[derive(Debug)]
struct Used {
    mux: Arc<Mux>,
    _reader: GsiReader,
    /// Group that reads a port whose share hears by the port alone, also while no queue pair does.
    group: Option<Arc<Group>>,
}

impl Used {
    fn new(mux: Arc<Mux>, engine: &Engine) -> io::Result<Self> {
        let reader = GsiReader::new(&mux.gsi, &engine.worker)?;
        mux.keepers.fetch_add(1, Ordering::AcqRel);
        let mut used = Self { mux, _reader: reader, group: None };
        if !used.mux.gsi.hears() {
            let group = Group::new(&engine.worker, engine.options.without);
            used.mux.enter(&group)?;
            used.group = Some(group);
        }
        Ok(used)
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            self.mux.exit(group);
        }
        self.mux.keepers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The one of all devices of this process, where the port is shared by processes.
static OF_PROCESS: PerProcess<Mutex<Weak<Mux>>> = PerProcess::new();

impl MuxPlace {
    /// The one there is, or another that is opened. May wait for a second then.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the device has no datagrams; those of taking a share of the port, which
    /// are told the user as well.
    pub(crate) fn open(&self, engine: &Engine) -> io::Result<Arc<Mux>> {
        self.try_open(engine, PATIENCE).inspect_err(|error| {
            report!(burst 1, WARN, "no UD or UC queue pair can be made, nor RC over RoCE v2: {error}");
        })
    }

    /// Likewise, for threads that can do without. They wait only briefly for a process that has to
    /// give a share, and try again later if the failure need not last.
    pub(crate) fn open_if_any(&self, engine: &Engine) -> Option<Arc<Mux>> {
        let nanos = |at: Duration| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        if nanos(now().0) < self.failed_until.load(Ordering::Relaxed) {
            return None;
        }
        let opened = self.try_open(engine, PROMPT);
        if let Err(error) = &opened {
            let until = match error.kind() {
                // Memory that is short at this moment need not be next time, and that is soon found
                // out.
                io::ErrorKind::OutOfMemory => 0,
                // A process that is stopped or busy need not stay so.
                io::ErrorKind::TimedOut => nanos(now().0 + PAUSE),
                _ => u64::MAX,
            };
            self.failed_until.store(until, Ordering::Relaxed);
            report!(burst 1, INFO, "RC queue pairs speak iWARP only: {error}");
        }
        opened.ok()
    }

    fn try_open(&self, engine: &Engine, patience: Duration) -> io::Result<Arc<Mux>> {
        let mut place = self.used.lock();
        if let Some(used) = &*place {
            return Ok(Arc::clone(&used.mux));
        }
        let network = engine.datagrams.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        // One without threads lives in a time of its own.
        let mux = if network.is_of_process() && engine.clock.as_manual().is_none() {
            let mut of_process = OF_PROCESS.get().lock();
            match of_process.upgrade() {
                Some(mux) => mux,
                None => {
                    let opened = Mux::of(engine, patience)?;
                    *of_process = Arc::downgrade(&opened);
                    opened
                }
            }
        } else {
            Mux::of(engine, patience)?
        };
        *place = Some(Used::new(Arc::clone(&mux), engine)?);
        mux.kept_at(&self.used);
        self.failed_until.store(0, Ordering::Relaxed);
        Ok(mux)
    }
}

impl Member for Mux {
    fn descriptors(&self) -> Descriptors<'_> {
        self.port.descriptors()
    }

    fn waker(&self) -> Option<&Arc<MemberWaker>> {
        self.waker.as_ref()
    }

    fn interest(&self) -> Interest {
        let flags = self.flags.load(Ordering::Relaxed);
        let hears = if flags & RESTS == 0 { Interest::READ } else { Interest::NONE };
        let room = if flags & AWAITS_ROOM != 0 { Interest::WRITE } else { Interest::NONE };
        hears | room
    }

    fn readiness(&self, token: u64) -> Option<Ready> {
        ready_of(self.port.readiness(), self.interest(), token)
    }

    fn ready(&self, ready: Ready, _: By) {
        if ready.writable {
            self.end_blocking();
            self.transmit_waiting();
            if self.awaits_in_vain() {
                self.update_interest();
            }
        }
        if ready.readable || ready.error || ready.hangup {
            self.receive();
        }
    }

    fn can_be_tried(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & BLOCKED == 0
    }

    fn attempt(&self, _: By) -> bool {
        self.transmit_paced();
        self.receive()
    }

    fn awaits_in_vain(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & (AWAITS_ROOM | BLOCKED) == AWAITS_ROOM
    }

    fn update_interest(&self) {
        self.memberships.update(self, || {
            // One read-modify-write: a thread that is blocked from now on sees the result, or this
            // sees its mark.
            let follow = |flags| match flags & BLOCKED {
                0 => Some(flags & !AWAITS_ROOM),
                _ => Some(flags | AWAITS_ROOM),
            };
            let _ = self.flags.fetch_update(Ordering::AcqRel, Ordering::Acquire, follow);
        });
    }

    fn memberships(&self) -> &Memberships {
        &self.memberships
    }
}

impl PacketMover<Endpoint> for Mux {
    fn serve(&self, endpoint: &Arc<Endpoint>) -> io::Result<()> {
        {
            let mut queue_pairs = self.queue_pairs.lock();
            queue_pairs.try_reserve(1).map_err(|_| OutOfMemory)?;
            queue_pairs.insert(endpoint.id(), Arc::downgrade(endpoint));
        }
        for group in endpoint.groups() {
            if let Err(error) = self.enter(group) {
                self.forget(endpoint);
                return Err(error);
            }
        }
        Ok(())
    }

    fn forget(&self, endpoint: &Endpoint) {
        self.queue_pairs.lock().remove(&endpoint.id());
        endpoint.groups().into_iter().for_each(|group| self.exit(group));
    }

    fn transmit(&self, endpoint: &Arc<Endpoint>) {
        self.send_for(endpoint);
    }

    fn catch_up(&self) {
        self.receive();
    }

    fn attach(&self, group: IpAddr, endpoint: &Arc<Endpoint>) -> io::Result<()> {
        self.join(group, endpoint)
    }

    fn detach(&self, group: Option<IpAddr>, endpoint: &Endpoint) {
        self.leave(group, endpoint);
    }
}

impl Mux {
    fn of(engine: &Engine, patience: Duration) -> io::Result<Arc<Self>> {
        let shared = engine.open_datagrams(patience)?;
        let devices = engine.options.visible_devices();
        let bound = devices.iter().flat_map(|device| device.port_interfaces());
        shared.0.leave_by(&bound.flatten().map(str::to_owned).collect::<Vec<_>>());
        Ok(Self::new(shared, engine.clock.clone())?)
    }

    fn new((port, share): Shared, clock: Clock) -> Result<Arc<Self>, OutOfMemory> {
        let (gsi, rx, tx) = (Arc::new(Gsi::new(share)?), Rx::new()?, Tx::new(&*port)?);
        let mux = Arc::new_cyclic(|itself| Self {
            itself: Weak::clone(itself),
            gsi,
            waker: MemberWaker::of_datagrams(&*port),
            tx: Token::new(tx),
            clock,
            counted: Counted::open(),
            port,
            rx: Token::new(rx),
            waiting: Waiting::default(),
            queue_pairs: Mutex::default(),
            groups: Groups::default(),
            flags: AtomicU32::new(0),
            memberships: Memberships::default(),
            users: Mutex::default(),
            lodgers: AtomicU32::new(0),
            keepers: AtomicU32::new(0),
            places: Mutex::default(),
            worker: Mutex::new(Weak::new()),
        });
        let weak = Arc::downgrade(&mux);
        mux.gsi.receive_before_by(move || {
            if let Some(mux) = weak.upgrade() {
                mux.receive();
                // Another thread may have been at it.
                mux.rx.settle();
            }
        });
        Ok(mux)
    }

    /// Queue pair 1.
    pub(crate) const fn gsi(&self) -> &Arc<Gsi> {
        &self.gsi
    }

    /// Sends a management datagram from queue pair 1, now or when there is room. It leaves from
    /// this port, even if the path has another source port.
    pub(crate) fn send_mad(&self, path: &Path, mad: &[u8; MAD_LEN]) {
        self.gsi.push(path, mad);
        if self.users.lock().is_empty() {
            // No poll group would notice that there is room.
            self.end_blocking();
        }
        self.transmit_waiting();
    }

    fn enter(&self, group: &Arc<Group>) -> io::Result<()> {
        let itself = self.itself.upgrade().ok_or(io::ErrorKind::NotFound)?;
        let mut users = self.users.lock();
        users.try_reserve(1).map_err(|_| OutOfMemory)?;
        self.memberships.join(group, &(itself as Arc<dyn Member>), || false)?;
        *users.entry(group.id()).or_default() += 1;
        *self.worker.lock() = Arc::downgrade(group.worker());
        self.end_rest();
        Ok(())
    }

    fn exit(&self, group: &Arc<Group>) {
        let mut users = self.users.lock();
        let Some(count) = users.get_mut(&group.id()) else { return };
        *count -= 1;
        if *count == 0 {
            users.remove(&group.id());
            self.memberships.leave_one(group, self);
        }
    }

    /// The queue pair of a number.
    fn queue_pair(&self, number: u32) -> Option<Arc<Endpoint>> {
        self.queue_pairs.lock().get(&number)?.upgrade()
    }

    fn end_blocking(&self) {
        self.flags.fetch_and(!BLOCKED, Ordering::AcqRel);
    }

    /// Sending waits until there is room.
    fn await_room(&self) {
        let before = self.flags.fetch_or(BLOCKED, Ordering::AcqRel);
        if before & AWAITS_ROOM == 0 {
            self.update_interest();
        }
    }

    /// Packets that have come cannot be received: looks again after a while.
    #[cold]
    fn rest(&self, error: &io::Error) {
        report!(
            burst 1, WARN, %error,
            "cannot receive from the RoCE port (a sandbox that forbids recvmmsg?): \
             UD, UC and RC over RoCE v2 get no packets"
        );
        let worker = self.worker.lock().upgrade();
        let Some(worker) = worker else { return };
        if self.flags.fetch_or(RESTS, Ordering::AcqRel) & RESTS != 0 {
            return;
        }
        self.update_interest();
        let itself = Weak::clone(&self.itself);
        let again = move || {
            if let Some(mux) = itself.upgrade() {
                mux.end_rest();
            }
        };
        worker.at(self.clock.now().plus(REST), Box::new(again));
    }

    fn end_rest(&self) {
        if self.flags.fetch_and(!RESTS, Ordering::AcqRel) & RESTS != 0 {
            self.update_interest();
        }
    }

    fn is_blocked(&self) -> bool {
        self.flags.load(Ordering::Acquire) & BLOCKED != 0
    }
}
