// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pair 1, the general services interface: management datagrams, which the connection manager
//! speaks.
//!
//! Datagrams for this process come from the broker of the port's share, or, on a host of its own,
//! by the port itself. A handler gets them; it sends others by the port, as UD packets of queue
//! pair 1. Any worker of an engine that uses the port looks after the share: the first that is
//! there.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use iwarp_mem::OutOfMemory;
use iwarp_os::{Interest, Ready};
use iwarp_roce::cm::{MAD_LEN, gsi_header, gsi_payload};
use iwarp_roce::wire::icrc::IdMemory;
use iwarp_roce::wire::{Burst, Counters, PORT, Packet, Path, Psn, Received, receive};
use iwarp_types::CommIds;
use iwarp_types::{AddressVector, Digest, Time};

use crate::capture::{Datagram, watch_datagrams};
use crate::engine::clock::now;
use crate::engine::sync::{AtomicBool, AtomicU32, Mutex, Ordering};
use crate::engine::tasks::{Task, Tasks};
use crate::engine::worker::{Deadline, Timed, Worker};
use crate::faults;
use crate::port::DatagramShare;
use crate::port::share::{Listening, Mad};

/// Peers whose way of numbering packets is remembered.
const PEERS: usize = 64;
/// Datagrams that wait to be sent. More are lost, as on a network.
const OUTGOING: usize = 1024;

/// The receiver of management datagrams: the connection manager. It is called without any lock, by
/// a worker or by a thread that moves packets, and must not wait.
pub(crate) trait MadHandler: Any + Send + Sync {
    /// A management datagram has come by `path`, whose source is the sender: to queue pair 1 of
    /// this host, with the Q_Key and the ICRC that it should have. `unclaimed`: it names a service
    /// or a communication id that no process of this host has, and is to be refused as such.
    fn received(&self, path: &Path, mad: &[u8; MAD_LEN], unclaimed: bool);

    /// Tells the outcome for a service that was [asked for](Gsi::listen): requests for it come
    /// to this process, or it is another's. May be told more than once.
    fn listening(&self, service: u64, granted: bool);

    /// The port is to be given back if it does not need it. It lets go of the port then; false
    /// where it does need it.
    fn rest(self: Arc<Self>) -> bool {
        true
    }
}

/// See the [module](self). There is one for each [`Mux`](super::mux::Mux).
pub(crate) struct Gsi {
    share: Mutex<Box<dyn DatagramShare>>,
    /// Services whose fate the handler does not know yet.
    asked: Mutex<Vec<u64>>,
    handler: Mutex<Option<Weak<dyn MadHandler>>>,
    checks: Mutex<Checks>,
    outgoing: Mutex<VecDeque<(Path, [u8; MAD_LEN])>>,
    /// Some may wait there: changed under its lock, and read without.
    has_outgoing: AtomicBool,
    psn: AtomicU32,
    carers: Mutex<Vec<Weak<Carer>>>,
    /// See [`Self::receive_before_by`].
    receive_before: OnceLock<ReceiveBefore>,
}

/// See [`Gsi::receive_before_by`].
type ReceiveBefore = Box<dyn Fn() + Send + Sync>;

/// The memory for ICRCs of packets that the broker handed on.
struct Checks {
    ids: IdMemory,
    counters: Counters,
}

impl fmt::Debug for Gsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gsi").field("share", &self.share).finish_non_exhaustive()
    }
}

impl Gsi {
    pub(super) fn new(share: Box<dyn DatagramShare>) -> Result<Self, OutOfMemory> {
        let ids = IdMemory::new(PEERS).map_err(|_| OutOfMemory)?;
        Ok(Self {
            share: Mutex::new(share),
            asked: Mutex::default(),
            handler: Mutex::new(None),
            checks: Mutex::new(Checks { ids, counters: Counters::default() }),
            outgoing: Mutex::default(),
            has_outgoing: AtomicBool::new(false),
            psn: AtomicU32::new(0),
            carers: Mutex::default(),
            receive_before: OnceLock::new(),
        })
    }

    /// Has the port read by this before datagrams that came another way are handed on: a peer that
    /// disconnects has acknowledged what came to it before, which its DREQ by way of the broker
    /// overtakes easily. A thread that is held up in the midst of reading is waited for briefly.
    pub(super) fn receive_before_by(&self, receive: impl Fn() + Send + Sync + 'static) {
        let _ = self.receive_before.set(Box::new(receive));
    }

    /// The handler. All devices that use the port share it: `make` is called if there is none. It
    /// lasts as long as some device keeps it.
    pub(crate) fn handler_or<H: MadHandler>(&self, make: impl FnOnce() -> Arc<H>) -> Arc<H> {
        let mut handler = self.handler.lock();
        let known = handler
            .as_ref()
            .and_then(Weak::upgrade)
            .map(|known| -> Arc<dyn Any + Send + Sync> { known });
        if let Some(Ok(known)) = known.map(Arc::downcast) {
            return known;
        }
        let made = make();
        let weak: Weak<H> = Arc::downgrade(&made);
        *handler = Some(weak);
        made
    }

    /// Communication ids: answers that name one come to this process.
    pub(crate) fn comm_ids(&self) -> io::Result<CommIds> {
        self.with_share(|share| share.comm_ids())
    }

    /// Asks for the requests that name a service. If the answer is [`Listening::Asked`] the handler
    /// is told the outcome.
    pub(crate) fn listen(&self, service: u64) -> io::Result<Listening> {
        let listening = self.with_share(|share| share.listen(service))?;
        if listening == Listening::Asked {
            self.asked.lock().push(service);
            // It may have been settled meanwhile.
            self.tell_listening();
        }
        Ok(listening)
    }

    /// The progress with a service; `None` if it was not asked for.
    #[cfg(test)]
    pub(crate) fn listening(&self, service: u64) -> Option<Listening> {
        self.share.lock().listening(service)
    }

    /// Gives a service back.
    pub(crate) fn unlisten(&self, service: u64) {
        self.asked.lock().retain(|asked| *asked != service);
        self.with_share(|share| share.unlisten(service));
    }

    /// True if the share gets datagrams another way than by the port.
    pub(super) fn hears(&self) -> bool {
        !self.share.lock().descriptors().is_none()
    }

    /// The TCP ports with which numbers of this process's slot begin.
    pub(crate) fn ports(&self) -> io::Result<RangeInclusive<u16>> {
        self.share.lock().ports()
    }

    pub(super) fn allocate_qpn(&self) -> io::Result<u32> {
        self.share.lock().allocate_qpn()
    }

    pub(super) fn free_qpn(&self, number: u32) {
        self.share.lock().free_qpn(number);
    }

    /// True if the handler, if there is one, can do without the port.
    pub(super) fn rest(&self) -> bool {
        self.handler().is_none_or(MadHandler::rest)
    }

    /// Does something after that time, on a worker that looks after the share. It is dropped where
    /// there is none, and when that worker ends.
    pub(super) fn later(&self, after: Duration, what: Box<dyn FnOnce() + Send>) {
        let carer = self.carers.lock().iter().find_map(Weak::upgrade);
        if let Some(carer) = carer {
            carer.worker.at(carer.worker.clock().now().plus(after), what);
        }
    }

    /// Does something with the share, after which it may want its turn at another time.
    fn with_share<R>(&self, what: impl FnOnce(&mut dyn DatagramShare) -> R) -> R {
        let mut share = self.share.lock();
        let result = what(&mut **share);
        let next = share.next_timeout();
        drop(share);
        let carers: Vec<_> = self.carers.lock().iter().filter_map(Weak::upgrade).collect();
        carers.iter().for_each(|carer| carer.watch(next));
        result
    }

    /// Gives the share its turn, and the handler what has come.
    fn turn(&self) {
        let mads = self.with_share(|share| {
            share.turn(now().0);
            std::iter::from_fn(|| share.next_mad()).collect::<Vec<_>>()
        });
        if !mads.is_empty()
            && let Some(receive) = self.receive_before.get()
        {
            receive();
        }
        for mad in mads {
            self.check(&mad);
        }
        self.tell_listening();
    }

    fn tell_listening(&self) {
        let settled: Vec<_> = {
            let share = self.share.lock();
            let mut settled = Vec::new();
            self.asked.lock().retain(|service| match share.listening(*service) {
                Some(Listening::Asked) => true,
                listening => {
                    settled.push((*service, listening == Some(Listening::Granted)));
                    false
                }
            });
            settled
        };
        let Some(handler) = self.handler().filter(|_| !settled.is_empty()) else { return };
        for (service, granted) in settled {
            handler.listening(service, granted);
        }
    }

    fn handler(&self) -> Option<Arc<dyn MadHandler>> {
        self.handler.lock().as_ref()?.upgrade()
    }

    /// Takes a packet that the broker has read.
    fn check(&self, mad: &Mad) {
        if faults::is_pulled() {
            return;
        }
        let address = AddressVector::new(mad.from.ip(), mad.to);
        let path = Path { destination_port: PORT, ..Path::new(address, mad.from.port()) };
        if let Some(watch) = watch_datagrams() {
            let datagram = Datagram { path, octets: &mad.octets[..], number: 0 };
            watch.moved(false, std::iter::once(datagram));
        }
        let octets = {
            let mut checks = self.checks.lock();
            let Checks { ids, counters } = &mut *checks;
            match receive(&path, &mad.octets[..], now(), ids, counters) {
                Some(Received::Packet(packet)) => gsi_payload(&packet).copied(),
                _ => None,
            }
        };
        if let (Some(octets), Some(handler)) = (octets, self.handler()) {
            handler.received(&path, &octets, mad.unclaimed);
        }
    }

    /// Takes a packet for queue pair 1 that has come by the port.
    pub(super) fn receive(&self, path: &Path, packet: &Packet<'_>) {
        if let (Some(octets), Some(handler)) = (gsi_payload(packet), self.handler()) {
            handler.received(path, octets, false);
        }
    }

    /// Puts a datagram into the queue that [`Self::transmit`] empties. It leaves from this port.
    pub(super) fn push(&self, path: &Path, mad: &[u8; MAD_LEN]) {
        let mut outgoing = self.outgoing.lock();
        if outgoing.len() < OUTGOING && outgoing.try_reserve(1).is_ok() {
            outgoing.push_back((*path, *mad));
            self.has_outgoing.store(true, Ordering::Release);
        }
    }

    /// True if datagrams wait to be sent.
    #[inline]
    fn has_outgoing(&self) -> bool {
        self.has_outgoing.load(Ordering::Acquire)
    }

    /// Builds packets until there is nothing to send or `burst` is full.
    pub(super) fn transmit(&self, burst: &mut Burst, source_port: u16) {
        while !burst.is_full() && self.has_outgoing() {
            let next = {
                let mut outgoing = self.outgoing.lock();
                let next = outgoing.pop_front();
                self.has_outgoing.store(!outgoing.is_empty(), Ordering::Release);
                next
            };
            let Some((path, mad)) = next else { return };
            let psn = Psn::new(self.psn.fetch_add(1, Ordering::Relaxed));
            let path = Path { source_port, ..path };
            let fill = |out: &mut [u8], digest: &mut Digest| {
                out.copy_from_slice(&mad);
                digest.update(out);
                Ok::<(), std::convert::Infallible>(())
            };
            let Ok(()) = burst.push(&path, &gsi_header(psn), MAD_LEN, fill);
        }
    }
}

/// An engine's worker, as it looks after the share.
struct Carer {
    gsi: Weak<Gsi>,
    worker: Arc<Worker>,
    /// When it is going to.
    alarm: Mutex<Option<(Duration, Deadline)>>,
    this: Weak<Self>,
}

/// Looks after the share as long as this lives.
#[derive(Debug)]
pub(super) struct GsiReader {
    gsi: Arc<Gsi>,
    tasks: Arc<Tasks>,
    task: u64,
}

impl fmt::Debug for Carer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carer").finish_non_exhaustive()
    }
}

impl GsiReader {
    /// The worker looks after the share from now on.
    pub(super) fn new(gsi: &Arc<Gsi>, worker: &Arc<Worker>) -> io::Result<Self> {
        let worker = Arc::clone(worker);
        let tasks = Arc::clone(worker.tasks());
        let carer = Arc::new_cyclic(|this| Carer {
            gsi: Arc::downgrade(gsi),
            worker,
            alarm: Mutex::new(None),
            this: this.clone(),
        });
        let task = {
            let mut carers = gsi.carers.lock();
            carers.retain(|carer| carer.strong_count() > 0);
            carers.push(Arc::downgrade(&carer));
            let share = gsi.share.lock();
            let task: Arc<dyn Task> = Arc::<Carer>::clone(&carer);
            tasks.add(share.descriptors(), Interest::READ, task)?
        };
        // Work that was due before is done, too.
        gsi.turn();
        Ok(Self { gsi: Arc::clone(gsi), tasks, task })
    }
}

impl Drop for GsiReader {
    fn drop(&mut self) {
        self.tasks.remove(self.task, self.gsi.share.lock().descriptors());
    }
}

impl Carer {
    /// The share wants its turn at that time.
    fn watch(&self, at: Option<Duration>) {
        let mut alarm = self.alarm.lock();
        if alarm.as_ref().map(|(at, _)| *at) == at {
            return;
        }
        let this: Weak<dyn Timed> = Weak::<Self>::clone(&self.this);
        let next = at.map(|at| (at, self.worker.deadline_of(Time(at), this)));
        let before = std::mem::replace(&mut *alarm, next);
        drop(alarm);
        drop(before);
    }

    fn turn(&self) {
        if let Some(gsi) = self.gsi.upgrade() {
            gsi.turn();
        }
    }
}

impl Task for Carer {
    fn ready(&self, _: Ready) {
        self.turn();
    }
}

impl Timed for Carer {
    fn due(self: Arc<Self>) {
        // That time may be the next one again.
        let over = self.alarm.lock().take();
        drop(over);
        self.turn();
    }
}

#[cfg(all(test, not(model)))]
mod tests;
