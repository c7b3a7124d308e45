// SPDX-License-Identifier: MIT OR Apache-2.0

//! The engine: the threads that move the bytes, and when they do.
//!
//! The caller's thread moves them wherever it can: posting sends, polling an empty completion queue
//! receives, a blocking wait waits on the sockets themselves. One worker thread per process moves
//! all that no caller drives, so that a peer's one-sided operation is served while the program
//! computes. The connections of a completion queue form a [`group::Group`]; [`handover`] decides
//! whether its callers or the worker look after it.
//!
//! ```text
//!   endpoint   a queue pair's core behind its lock, and where its completions go
//!   ended      how its connection ended, and who is told
//!   mover      a stream or a datagram port, as the endpoint sees it
//!   group      the poll group of a completion queue
//!   ready_list streams without a descriptor that are ready
//!   cq         a completion queue: completions, and what a poll does that finds none
//!   census     objects that describe themselves to other processes
//!   channel    a completion channel: events, and the callers that wait for them
//!   srq        a shared receive queue
//!   event      asynchronous events of a device
//!   event_queue  those that wait for the program
//!   fate       what becomes of a connection, for the log
//!   policy     what is learned of programs by watching them, and what is made of it
//!   slots      what posts take and polls give back
//!   observe    who looks on, and the counters of a queue pair
//!   accept_set the poll set of a listener
//!   poll_set   what groups and accept sets have in common: callers or the worker drive them
//!   attend     what worker and callers do for a poll group, by its hand-over
//!   worker     the thread that serves what no caller drives; timers
//!   wake_fd    the descriptor that wakes a blocked caller
//!   timers     what is due by the device's clock, where connections are made
//!   clock      the system's time
//!   turns      workers without threads, for simulators
//!   tasks      descriptors that are waited for on behalf of others
//!   peer_watch whether a silent peer is still there
//!   send_memory  what the system may keep for peers that do not read
//!   local      agreement on a way past TCP, between two processes of one host
//!   control    answers to questions of other processes
//!   log_level  the level of the log in a running process
//!   live       the connections there are, for the end of the process
//!   service_ports  ports of datagram services
//!   network_faults  a network that has faults on purpose
//!   numbers    queue pair numbers, and the ports that some of them name
//!   devices    the devices, as the user names them
//!   profile    what sets each of them apart, and which one has an address
//!   kinds      personalities and wires
//!   gid        the addresses of a device, as programs for InfiniBand know them
//! ```
//!
//! The engine owns what it works on: endpoints, completion queues, channels, shared receive queues,
//! asynchronous events. The verbs are the handles that programs hold on these. Events of a
//! connection go up through traits that the engine defines (`ConnectionObserver`, `Task`).
//!
//! # Words
//!
//! - *caller, caller thread*: a thread of the program inside a call of the library.
//! - *worker*: the thread that moves what no caller moves, one for the devices of a process by
//!   default.
//! - *core*: the protocol of a queue pair as a state machine: iWARP's, or another.
//! - *endpoint*: a queue pair's core behind its lock, and the completion queues that its events go
//!   to.
//! - *port, network*: a connected stream of bytes, and the maker of such streams.
//! - *link*: one stream of an endpoint, from start-up to FIN or reset.
//! - *token*: the right to move one direction of a link, or a poll group.
//! - *poll set*: an epoll and its members; callers drive it while they are present, else the
//!   worker.
//! - *poll group*: the poll set of a completion queue: links and muxes whose completions end there.
//! - *accept set*: the poll set of a listener: the sockets that await their Request.
//! - *mux*: the mover of a datagram port for all queue pairs that share it.
//! - *train, burst*: packets that go to one queue pair in one send; the trains that are to be sent.
//! - *to drive*: to hold the token of a poll group and move its ready streams.
//! - *lease*: the time for which a caller's poll keeps the worker away from a poll group.
//! - *ready list, bell*: the counterpart of an epoll for streams without a descriptor; the
//!   descriptor that wakes a sleeping thread while the list is not empty.
//! - *hushed*: of a bell: it does not ring, because callers poll and no thread sleeps.
//! - *parked*: of a message: it waits for its receive. Of a poll group: a blocked caller serves it.
//! - *hello frame, count, farewell*: the zero-length Writes by which two ends with this library
//!   recognise each other, say how much was received while a message is parked, and take leave.
//! - *to outlive*: of work requests: to stay pending for a while after the peer has closed the
//!   stream.
//! - *acknowledgement*: the answer to a Read of no bytes: the peer has received everything sent
//!   before it.
//! - *rendezvous*: the way in which two queue pairs meet without the connection manager. Its
//!   listener is the port of up to 256 queue pairs.
//! - *member*: a link or a mux, as a poll group drives it.
//! - *mover*: a link or a mux, as an endpoint calls it.
//! - *wing*: all that belongs to one wire: start-up, movers, the making of cores.
//! - *choice*: the wires that a queue pair may still go on with.

pub(crate) mod accept_set;
pub(crate) mod attend;
pub(crate) mod census;
pub(crate) mod channel;
pub(crate) mod clock;
pub(crate) mod connect_order;
mod control;
pub(crate) mod cq;
pub(crate) mod devices;
pub(crate) mod ended;
pub(crate) mod endpoint;
pub(crate) mod event;
pub(crate) mod event_queue;
pub(crate) mod fate;
pub(crate) mod gid;
pub(crate) mod group;
pub(crate) mod handover;
pub(crate) mod kept;
pub(crate) mod kinds;
pub(crate) mod live;
pub(crate) mod local;
pub(crate) mod log_level;
pub(crate) mod mover;
pub(crate) mod network_faults;
pub(crate) mod numbers;
pub mod observe;
pub(crate) mod options;
pub(crate) mod peer_watch;
pub(crate) mod policy;
pub(crate) mod poll_set;
pub(crate) mod pool;
pub(crate) mod profile;
pub(crate) mod ready_list;
pub(crate) mod send_memory;
pub(crate) mod server;
pub(crate) mod service_ports;
pub(crate) mod slots;
pub(crate) mod speed;
pub(crate) mod srq;
pub(crate) mod sync;
pub(crate) mod tasks;
pub(crate) mod timers;
pub(crate) mod token;
pub(crate) mod turns;
pub(crate) mod users;
mod variables;
pub(crate) mod wake_fd;
pub(crate) mod worker;
pub(crate) mod writing;

use std::any::Any;
use std::io;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use iwarp_mem::MemoryTable;
use iwarp_os::Spare;

pub(crate) use clock::now;
use connect_order::ConnectOrder;
use control::Control;
use live::Live;
use numbers::Numbers;
use observe::{Remarks, SomeObserver};
use options::Options;
use pool::Pool;
use send_memory::SendMemory;
use service_ports::ServicePorts;
use sync::Mutex;
use timers::Timers;
use worker::Worker;

use crate::capture;
use crate::faults;
use crate::port::{Clock, DatagramNetwork, DatagramSettings, Network, Platform, Shared, described};

/// Reads and Atomics of a queue pair that may be under way at a time, in either direction.
pub(crate) const MAX_READS: u16 = 128;

/// The state that the devices of a process and their objects share. In a forked child it is dead:
/// the threads that held its locks do not exist, its descriptors are closed, and the rest belongs
/// to the parent. So the handles that programs have reach it, and all that holds it, through a
/// [`ProcessOwned`](iwarp_os::ProcessOwned).
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) memory: Arc<MemoryTable>,
    pub(crate) options: Options,
    /// The clock of its connections, once they are up.
    pub(crate) clock: Clock,
    /// Makes its connections.
    pub(crate) network: Arc<dyn Network>,
    /// Makes its ports for datagrams.
    pub(crate) datagrams: Option<Arc<dyn DatagramNetwork>>,
    /// The times of connection set-up.
    pub(crate) timers: Timers,
    pub(crate) pool: Pool,
    pub(crate) send_memory: Arc<SendMemory>,
    /// Makes connections and keeps times.
    pub(crate) worker: Arc<Worker>,
    /// Look after poll groups beside it, where there are to be several.
    others: Vec<Arc<Worker>>,
    next_worker: AtomicU32,
    pub(crate) live: Arc<Live>,
    pub(crate) numbers: Arc<Numbers>,
    pub(crate) service_ports: Arc<ServicePorts>,
    kept: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    /// Connections that are made in the order in which they were asked for.
    pub(crate) connect_order: Arc<ConnectOrder>,
    /// To refuse connections with when there are no descriptors.
    pub(crate) spare: Mutex<Spare>,
    next_pd: AtomicU32,
    /// Answers other processes, where it can.
    _control: Option<Control>,
}

impl Engine {
    pub(crate) fn new(options: Options, platform: Platform) -> io::Result<Self> {
        Self::with(options, platform, false, |_| Worker::start())
    }

    /// One on the system's network: it is captured where the options say so, and answers questions
    /// of other processes.
    pub(crate) fn of_system(options: Options, platform: Platform) -> io::Result<Self> {
        Self::with(options, platform, true, |_| Worker::start())
    }

    /// One whose workers have no threads ([`turns`]), and whose connections go by the platform's
    /// clock.
    pub(crate) fn turned(options: Options, platform: Platform) -> io::Result<Self> {
        Self::with(options, platform, false, |clock| Worker::without_thread(clock.clone()))
    }

    fn with(
        mut options: Options,
        platform: Platform,
        is_systems: bool,
        worker: impl Fn(&Clock) -> io::Result<Arc<Worker>>,
    ) -> io::Result<Self> {
        iwarp_mem::afford()?;
        let Platform { network, clock, datagrams } = platform;
        // In start-up a port is waited for beside others.
        let network = described(network, false);
        let pool = Pool::new()?;
        // In this order: what was started is stopped if the next one cannot be.
        let first = worker(&clock)?;
        let timers = Timers::new(Arc::clone(&first), clock.clone());
        // A capture wants to hear of no access to memory, each of which would pay for it.
        let accesses = options.observer.as_ref().map(SomeObserver::of_accesses);
        let captures = is_systems && options.capture.as_ref().is_some_and(capture::begin);
        if captures {
            // Another device of the process may have connections.
            first.at(clock.now(), Box::new(census::have_capture));
            options.observer = Some(Arc::new(Remarks(options.observer.take())).into());
        }
        let control = is_systems.then(|| Control::open(&first));
        let control = control.transpose().unwrap_or_else(|error| {
            tracing::debug!(%error, "other processes cannot ask about this one");
            None
        });
        let mut engine = Self {
            memory: Arc::new(MemoryTable::observed(faults::around(accesses))),
            connect_order: ConnectOrder::new(&timers),
            clock: first.clock().clone(),
            worker: first,
            others: Vec::new(),
            next_worker: AtomicU32::new(0),
            pool,
            send_memory: SendMemory::new(options.send_memory),
            live: Live::new(),
            numbers: Numbers::new(&network, options.ports.clone()),
            service_ports: Arc::default(),
            kept: Mutex::default(),
            spare: Mutex::default(),
            options,
            network,
            datagrams,
            timers,
            next_pd: AtomicU32::new(1),
            _control: control,
        };
        if engine.options.local.reaches_memory() {
            iwarp_mem::set_buffer_source(&iwarp_os::local::HeapBuffers);
        }
        for _ in 1..engine.options.workers {
            engine.others.push(worker(&clock)?);
        }
        if captures {
            Worker::write_captures(Arc::downgrade(&engine.worker));
        }
        Ok(engine)
    }

    /// The state of this type that a wing keeps for as long as anything of the device lives.
    pub(crate) fn kept<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        self.kept_or(T::default)
    }

    /// As [`Self::kept`], made by `make` the first time.
    pub(crate) fn kept_or<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut kept = self.kept.lock();
        let known = kept.iter().find_map(|known| Arc::clone(known).downcast().ok());
        known.unwrap_or_else(|| {
            let new = Arc::new(make());
            kept.push(Arc::clone(&new) as Arc<dyn Any + Send + Sync>);
            new
        })
    }

    /// Takes a share of the port for datagrams.
    pub(crate) fn open_datagrams(&self, patience: Duration) -> io::Result<Shared> {
        let network = self.datagrams.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let segmenting = self.options.udp_segment;
        let settings = DatagramSettings { segmenting, patience, ..DatagramSettings::default() };
        network.share(&settings)
    }

    /// All of them.
    pub(crate) fn workers(&self) -> impl Iterator<Item = &Arc<Worker>> {
        iter::once(&self.worker).chain(&self.others)
    }

    /// The worker that looks after the next poll group: each in its turn.
    pub(crate) fn group_worker(&self) -> &Arc<Worker> {
        let turn = self.next_worker.fetch_add(1, Ordering::Relaxed) as usize;
        match turn % (self.others.len() + 1) {
            0 => &self.worker,
            other => &self.others[other - 1],
        }
    }

    pub(crate) fn next_pd(&self) -> u32 {
        self.next_pd.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.workers().for_each(|worker| worker.stop());
        capture::write_out();
    }
}
