// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;

use iwarp_os::ProcessOwned;
use iwarp_types::{
    Access, Accessor, BoxedCore, Limits, PostError, QpId, QpState, QpType, RecvRequest, RnrTimer,
    SendRequest, TransitionError, setters,
};
use thiserror::Error;

use crate::connect::{DatagramAttributes, Meeting, Peer, Retry};
use crate::engine::ended::{ConnectionObserver, Ended};
use crate::engine::endpoint::{CoreConfig, Endpoint, EndpointCore, Shape};
use crate::engine::mover::{PacketMover, ReactorStream};
use crate::engine::numbers::{Number, PSN_BITS};
use crate::engine::observe::Counters;
use crate::engine::options::{LocalPath, Personality};
use crate::engine::profile::Profile;
use crate::engine::sync::Mutex;
use crate::port::{Annex, Port, Vitals};
use crate::verbs::cq::CompletionQueue;
use crate::verbs::device::ATTRIBUTES;
use crate::verbs::pd::{PdCore, ProtectionDomain};
use crate::verbs::srq::SharedReceiveQueue;
use crate::wire::choice::{self, Begun};

/// The settings of a queue pair: the two completion queues, and by chained setters what differs
/// from [`Self::new`].
///
/// ```
/// use iwarp::{Device, QueuePairAttributes};
///
/// let device = Device::open()?;
/// let cq = device.create_cq(64, None)?;
/// let attributes = QueuePairAttributes::new(&cq, &cq).max_send_wr(32).max_inline(64);
/// let qp = device.alloc_pd().create_qp(&attributes)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QueuePairAttributes<'a> {
    /// The queue in which send work requests complete.
    pub send_cq: &'a CompletionQueue,
    /// The queue in which receive work requests complete.
    pub recv_cq: &'a CompletionQueue,
    /// The queue that receives are taken from, if not the queue pair's own.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// Send work requests that may be posted without one's completion being polled.
    pub max_send_wr: usize,
    /// Receive work requests that may be posted without one's completion being polled.
    pub max_recv_wr: usize,
    /// Elements of a send work request.
    pub max_send_sge: usize,
    /// Elements of a receive work request.
    pub max_recv_sge: usize,
    /// Bytes of inline data.
    pub max_inline: usize,
    /// Its type.
    pub qp_type: QpType,
    /// Count its operations for [`QueuePair::counters`].
    pub counted: bool,
}

impl<'a> QueuePairAttributes<'a> {
    /// Middling sizes: 128 requests each way, 16 elements, 256 bytes of inline data.
    pub const fn new(send_cq: &'a CompletionQueue, recv_cq: &'a CompletionQueue) -> Self {
        Self {
            send_cq,
            recv_cq,
            srq: None,
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 16,
            max_recv_sge: 16,
            max_inline: 256,
            qp_type: QpType::Rc,
            counted: false,
        }
    }

    /// No queue pair gets more than its share.
    pub(super) fn check(&self) -> io::Result<()> {
        let (most, asked) = (ATTRIBUTES.max_qp_wr, self.max_send_wr.max(self.max_recv_wr));
        if asked > most as usize {
            let why = format!("{asked} work requests in one queue; the most is {most}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(())
    }

    setters! {
        into srq: Option<&'a SharedReceiveQueue>,
        max_send_wr: usize,
        max_recv_wr: usize,
        max_send_sge: usize,
        max_recv_sge: usize,
        max_inline: usize,
        qp_type: QpType,
        counted: bool,
    }
}

/// The capabilities for which a queue pair was made, under the names of `struct ibv_qp_cap`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// Send work requests that may be outstanding.
    pub max_send_wr: usize,
    /// Receive work requests that may be outstanding.
    pub max_recv_wr: usize,
    /// Elements of a send work request.
    pub max_send_sge: usize,
    /// Elements of a receive work request.
    pub max_recv_sge: usize,
    /// Bytes of inline data.
    pub max_inline: usize,
}

/// The reason why a queue pair did not change its state.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// The verbs do not allow it.
    #[error(transparent)]
    Transition(#[from] TransitionError),
    /// The system does not: the port cannot listen, no descriptors are left. `InvalidInput` when
    /// a queue pair that is not addressable is to meet a peer.
    #[error("the queue pair cannot be connected: {0}")]
    System(io::Error),
}

impl From<io::Error> for ModifyError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<ModifyError> for io::Error {
    fn from(error: ModifyError) -> Self {
        match error {
            ModifyError::Transition(error) => Self::new(io::ErrorKind::InvalidInput, error),
            ModifyError::System(error) => error,
        }
    }
}

/// A queue pair. Connect a reliable one with [`crate::cm`], or, if it is addressable, by
/// [`Self::connect_to`].
///
/// Dropping it ends its connection in good order: what was accepted still goes out, in the
/// background and for a bounded time.
#[derive(Debug)]
pub struct QueuePair {
    inner: ProcessOwned<Inner>,
    number: u32,
    capabilities: Capabilities,
}

/// The state behind it.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) endpoint: Arc<Endpoint>,
    /// The meeting with its peer, if that can be done without the connection manager.
    pub(super) meeting: Option<Arc<dyn Meeting>>,
    pub(super) retry: Mutex<Retry>,
    pub(super) psn: AtomicU32,
    /// The attributes that the program has told for packets, where it may speak RoCE v2.
    pub(super) told: Mutex<DatagramAttributes>,
    _srq: Option<SharedReceiveQueue>,
}

/// The attributes of an RC queue pair before the program has told it anything.
fn untold() -> DatagramAttributes {
    DatagramAttributes::default().access(Access::REMOTE)
}

impl Inner {
    /// With the core that the device's wires have for it.
    fn of_wires(
        pd: &Arc<PdCore>,
        number: Number,
        attributes: &QueuePairAttributes<'_>,
    ) -> io::Result<Self> {
        Self::with_core(pd, number, attributes, |config, packets| pd.wires.begin(config, packets))
    }

    fn with_core(
        pd: &Arc<PdCore>,
        number: Number,
        attributes: &QueuePairAttributes<'_>,
        begin: impl FnOnce(&CoreConfig, bool) -> io::Result<Begun>,
    ) -> io::Result<Self> {
        let engine = Arc::clone(&pd.engine);
        let config = CoreConfig {
            qp: QpId(number.value()),
            pd: pd.id,
            qp_type: attributes.qp_type,
            max_send_wr: attributes.max_send_wr,
            max_recv_wr: attributes.max_recv_wr,
            limits: Limits {
                max_send_sge: attributes.max_send_sge,
                max_inline: attributes.max_inline,
            },
            max_recv_sge: attributes.max_recv_sge,
            shared_receive: attributes.srq.is_some(),
            receive_pd: attributes.srq.and_then(|srq| Some(srq.core.alive()?.pd())),
        };
        let srq = attributes.srq.map(|srq| srq.core.check().cloned()).transpose()?;
        // A peer that knows its number may send packets.
        let packets = number.mux().map(|mux| Arc::clone(mux) as Arc<dyn PacketMover<Endpoint>>);
        let (core, choice) = begin(&config, packets.is_some())?;
        let endpoint = Endpoint::new(
            engine,
            number,
            Shape {
                core,
                choice,
                packets,
                config,
                profile: Arc::clone(&pd.wires.profile),
                counted: attributes.counted,
            },
            Arc::clone(attributes.send_cq.core.check()?),
            Arc::clone(attributes.recv_cq.core.check()?),
            srq,
            Arc::clone(&pd.events),
        )?;
        Ok(Self {
            endpoint,
            meeting: None,
            retry: Mutex::default(),
            psn: AtomicU32::default(),
            told: Mutex::new(untold()),
            _srq: attributes.srq.cloned(),
        })
    }
}

impl QueuePair {
    pub(crate) fn new(pd: &Arc<PdCore>, attributes: &QueuePairAttributes<'_>) -> io::Result<Self> {
        if attributes.qp_type != QpType::Rc {
            return Self::over_datagrams(pd, attributes);
        }
        let number = pd.wires.number()?;
        let inner = Inner::of_wires(pd, number, attributes)?;
        // Reset may always become Init.
        let _ = inner.endpoint.modify(QpState::Init);
        Ok(Self::of(inner, attributes))
    }

    pub(crate) fn addressable(
        pd: &Arc<PdCore>,
        attributes: &QueuePairAttributes<'_>,
    ) -> io::Result<Self> {
        iwarp_mem::afford()?;
        let number = pd.wires.addressable_number()?;
        let mut inner = Inner::of_wires(pd, number, attributes)?;
        if pd.wires.profile.options.personality == Personality::Iwarp {
            // As an RNIC has it. Reset may always become Init.
            let _ = inner.endpoint.modify(QpState::Init);
        }
        inner.meeting = Some(pd.wires.meeting(&inner.endpoint));
        inner.psn = AtomicU32::new(getrandom::u32()? & PSN_BITS);
        Ok(Self::of(inner, attributes))
    }

    /// Makes one whose protocol is what `core` returns, for the accessor that it is to use memory
    /// as; it is in Init. See [`wire`](crate::wire).
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a type other than RC; when there is no memory for it.
    #[doc(hidden)]
    pub fn on_core(
        pd: &ProtectionDomain,
        attributes: &QueuePairAttributes<'_>,
        core: impl FnOnce(Accessor) -> BoxedCore,
    ) -> io::Result<Self> {
        let pd = pd.core.check()?;
        iwarp_mem::afford()?;
        let number = pd.engine.numbers.plain()?;
        let begin = |config: &CoreConfig, _| {
            if config.qp_type != QpType::Rc {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let core = core(Accessor { pd: config.pd, qp: config.qp });
            io::Result::Ok((Box::new(core) as Box<dyn EndpointCore>, None))
        };
        let inner = Inner::with_core(pd, number, attributes, begin)?;
        inner.endpoint.modify(QpState::Init).map_err(io::Error::other)?;
        Ok(Self::of(inner, attributes))
    }

    /// Makes one that sends packets instead of a stream; it is in Reset.
    fn over_datagrams(pd: &Arc<PdCore>, attributes: &QueuePairAttributes<'_>) -> io::Result<Self> {
        iwarp_mem::afford()?;
        let number = pd.wires.packet_number()?;
        Ok(Self::of(Inner::of_wires(pd, number, attributes)?, attributes))
    }

    /// Has a queue pair of the type UD get the datagrams for a multicast group, too, that arrive at
    /// the interface of its port or device, or at any interface of this host if that has none:
    /// those of others, and those that go out from this host. They need its Q_Key. Once more
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a queue pair of another type, and for an address that is no group's;
    /// those of the system where the group cannot be joined.
    pub fn attach_multicast(&self, group: IpAddr) -> io::Result<()> {
        self.endpoint()?.attach_multicast(group)
    }

    /// Ends [`Self::attach_multicast`].
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it is not attached.
    pub fn detach_multicast(&self, group: IpAddr) -> io::Result<()> {
        self.endpoint()?.detach_multicast(group)
    }

    /// Gives a queue pair of [`Self::on_core`] its stream; how that ends is told to `ended`, once.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it has one, or speaks iWARP; others from the system.
    #[doc(hidden)]
    pub fn attach(&self, port: Box<dyn Port>, ended: Sender<Ended>) -> io::Result<()> {
        choice::attach(self.endpoint()?, port, Arc::new(TellEnd(ended)))
    }

    fn of(inner: Inner, attributes: &QueuePairAttributes<'_>) -> Self {
        Self {
            number: inner.endpoint.id(),
            inner: ProcessOwned::new(inner),
            capabilities: Capabilities {
                max_send_wr: attributes.max_send_wr,
                max_recv_wr: attributes.max_recv_wr,
                max_send_sge: attributes.max_send_sge,
                max_recv_sge: attributes.max_recv_sge,
                max_inline: attributes.max_inline,
            },
        }
    }

    /// The part of it that the library has.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    pub(crate) fn endpoint(&self) -> io::Result<&Arc<Endpoint>> {
        Ok(&self.inner.check()?.endpoint)
    }

    /// The state behind it; `ENODEV` in a forked child.
    pub(super) fn inner(&self) -> io::Result<&Inner> {
        self.inner.check()
    }

    /// The answer to the program's question about it; `None` in a forked child.
    fn ask<R>(&self, question: impl FnOnce(&dyn EndpointCore) -> R) -> Option<R> {
        Some(self.inner.alive()?.endpoint.with(|core| question(core)))
    }

    /// True in a forked child of the process that made it: then it is dead, and nothing can be
    /// posted to it.
    pub fn is_inherited(&self) -> bool {
        self.inner.is_inherited()
    }

    /// Its number (24 bits).
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Announces that the program gives it up: when this returns, no completion and no event of it
    /// is added to those that wait. Work already posted still goes out when it is dropped.
    pub fn retire(&self) {
        if let Some(inner) = self.inner.alive() {
            inner.endpoint.retire();
        }
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.ask(|core| core.state()).unwrap_or(QpState::Err)
    }

    /// Changes its state. The connection manager does what connecting needs; an addressable queue
    /// pair goes to Rtr by [`Self::connect_to`] and can be found by its peer from then on. Going
    /// to Reset drops its connection and forgets everything, to Err ends it in good order.
    ///
    /// # Errors
    ///
    /// [`ModifyError`]
    pub fn modify(&self, to: QpState) -> Result<(), ModifyError> {
        let Inner { endpoint, meeting, psn, told, .. } = self.inner.check()?;
        if let Some(meeting) = meeting
            && matches!(to, QpState::Reset | QpState::Err)
        {
            meeting.withdraw();
        }
        match to {
            QpState::Rtr => {
                if let Some(peer) = self.told_peer() {
                    return self.connect_to(&peer);
                }
                endpoint.listen_for_datagrams()?;
            }
            QpState::Rts => self.tell_for_rts()?,
            QpState::Reset => {
                *told.lock() = untold();
                endpoint.set_reads(true);
                endpoint.set_port(0);
            }
            _ => {}
        }
        endpoint.modify(to)?;
        if let Some(meeting) = meeting
            && to == QpState::Rts
        {
            meeting.tell_psn(psn.load(Ordering::Relaxed));
        }
        Ok(())
    }

    /// Takes an addressable queue pair from Init to Rtr and has it meet `peer`, whose program does
    /// likewise. Returns at once: receives may be posted before and after, sends from Rts on, which
    /// wait until there is a connection. The local address has to be one of the device's.
    ///
    /// Either end may turn out to be the one that connects. They do so when one of them is in Rts,
    /// as only then do both know the number by which they know each other ([`Self::psn`]). As long
    /// as no send work waits the peer has any time to come; when some does, it fails with
    /// [`WcStatus::RetryExceeded`](crate::WcStatus::RetryExceeded) after the time of
    /// [`Self::set_retry`], but not within 3 s. An end that has met its peer in Rtr learns in Rts
    /// whether the peer expects its number. If not, it goes to Err.
    ///
    /// # Errors
    ///
    /// [`ModifyError`]
    pub fn connect_to(&self, peer: &Peer) -> Result<(), ModifyError> {
        let Inner { endpoint, meeting, .. } = self.inner.check()?;
        let Some(meeting) = meeting else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        };
        check_source(endpoint.home(), peer.local)?;
        if self.speaks_roce_to(peer)? {
            return Ok(());
        }
        // A fault is said before anything has happened.
        if self.state().may_become(QpState::Rtr) {
            Arc::clone(meeting).list(peer)?;
        }
        endpoint.modify(QpState::Rtr)?;
        Ok(Arc::clone(meeting).seek(peer)?)
    }

    /// The number from which its packets are numbered (`sq_psn`, 24 bits): a random one, unless
    /// [`Self::set_psn`] says another. The program tells it to the peer's, along with address and
    /// queue pair number, which sets it as [`Peer::psn`]: by it the two ends tell each other from
    /// strangers.
    pub fn psn(&self) -> u32 {
        self.inner.alive().map_or(0, |inner| inner.psn.load(Ordering::Relaxed))
    }

    /// Sets the number from which its packets are numbered, before it goes to Rts. With one number
    /// for all queue pairs, it is easy to take one for another.
    pub fn set_psn(&self, psn: u32) {
        if let Some(inner) = self.inner.alive() {
            inner.psn.store(psn & PSN_BITS, Ordering::Relaxed);
        }
    }

    /// Says whether the program allows itself Reads and Atomics, until the next Reset: programs for
    /// InfiniBand say so by a `max_rd_atomic` other than 0. If they do not, or the ends have agreed
    /// on none, posting one fails with [`PostError::Invalid`].
    pub fn set_reads(&self, allowed: bool) {
        if let Some(inner) = self.inner.alive() {
            inner.endpoint.set_reads(allowed);
        }
    }

    /// The peer that [`Self::connect_to`] was told, until the next Reset.
    pub fn peer(&self) -> Option<Peer> {
        self.inner.alive()?.meeting.as_ref()?.peer()
    }

    /// Says how long a peer may be silent before work fails.
    pub fn set_retry(&self, retry: Retry) {
        let Some(inner) = self.inner.alive() else { return };
        *inner.retry.lock() = retry;
        inner.endpoint.set_patience(retry.limit());
        if let Some(meeting) = &inner.meeting {
            meeting.set_retry(retry);
        }
    }

    /// Says how often a message of this end that finds no receive is sent again: 0 to 6, or 7 for
    /// without end, as at first (IBA vol. 1, 9.7.5.2.8). Over iWARP nothing is sent again: the peer
    /// keeps the message, and after so many of its RNR times ends the connection, by which the Send
    /// fails with [`RnrRetryExceeded`](crate::WcStatus::RnrRetryExceeded). Only peers that run this
    /// library, as a device like InfiniBand's, do so. A device that is like an RNIC ignores this.
    pub fn set_rnr_retry(&self, count: u8) {
        if let Some(inner) = self.inner.alive() {
            inner.endpoint.with(|core| core.set_rnr_retry(count));
        }
    }

    /// Says how long this end has a peer wait before each repetition of a message without a
    /// receive: code 0 (655 ms, as at first) to 31, as in `ibv_modify_qp(3)`'s `min_rnr_timer`. A
    /// device that is like an RNIC lets no message wait, and ignores this.
    pub fn set_rnr_timer(&self, code: u8) {
        if let Some(inner) = self.inner.alive() {
            inner.endpoint.with(|core| core.set_rnr_timer(RnrTimer::new(code).duration()));
        }
    }

    /// The time that a peer may be silent before work fails.
    pub fn retry(&self) -> Retry {
        self.inner.alive().map_or_else(Retry::default, |inner| *inner.retry.lock())
    }

    /// The sizes that it was made for.
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Posts a send work request. It has a place in the queue until its completion was polled; one
    /// that is not signalled, until that of the next signalled one was, or as soon as it is done
    /// while no completion of a send waits to be polled.
    ///
    /// # Errors
    ///
    /// [`PostError`] says why it was not taken.
    pub fn post_send(&self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.post_sends(std::slice::from_ref(request)).map_err(|(_, error)| error)
    }

    /// Posts send work requests in order; those that fit together go out in one system call.
    ///
    /// # Errors
    ///
    /// Which was refused, and why: those before it were taken, those behind it not looked at.
    pub fn post_sends(&self, requests: &[SendRequest<'_>]) -> Result<(), (usize, PostError)> {
        match self.inner.alive() {
            Some(inner) => inner.endpoint.post_send(requests),
            None => Err((0, PostError::WrongState)),
        }
    }

    /// Posts a receive work request, which has a place in the queue until its completion was
    /// polled.
    ///
    /// # Errors
    ///
    /// [`PostError`] says why it was not taken.
    pub fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.post_recvs(std::slice::from_ref(request)).map_err(|(_, error)| error)
    }

    /// Posts receive work requests in order.
    ///
    /// # Errors
    ///
    /// As [`Self::post_sends`].
    pub fn post_recvs(&self, requests: &[RecvRequest<'_>]) -> Result<(), (usize, PostError)> {
        match self.inner.alive() {
            Some(inner) => inner.endpoint.post_recv(requests),
            None => Err((0, PostError::WrongState)),
        }
    }

    /// Ends its stream in good order: of iWARP, what was accepted still goes out. The rest
    /// completes as flushed, posted receives without a connection as well. Returns at once. In a
    /// forked child it does nothing. Programs use [`Id::disconnect`](crate::cm::Id::disconnect),
    /// which tells a peer over RoCE v2, too.
    #[doc(hidden)]
    pub fn disconnect(&self) {
        if let Some(inner) = self.inner.alive() {
            inner.endpoint.disconnect();
        }
    }

    /// Ends its stream with a reset: nothing that was accepted needs to go out. Otherwise as
    /// [`Self::disconnect`].
    #[doc(hidden)]
    pub fn abort(&self) {
        if let Some(inner) = self.inner.alive() {
            inner.endpoint.abort();
        }
    }

    /// Its operations so far, if it [counts](QueuePairAttributes::counted) them.
    pub fn counters(&self) -> Option<Counters> {
        self.inner.alive()?.endpoint.counters()
    }

    /// The way that its connection takes within the host: [`LocalPath::Rings`] once what it sends
    /// goes by shared memory; see [`Options::local`](crate::Options::local).
    pub fn local_path(&self) -> LocalPath {
        let link = self.inner.alive().and_then(|inner| inner.endpoint.link());
        if link.is_some_and(|link| link.has_moved()) { LocalPath::Rings } else { LocalPath::Off }
    }

    /// The way of a connection by iWARP that is up, if both its ends are on this host.
    #[doc(hidden)]
    pub fn path_within_host(&self) -> Option<LocalPath> {
        let link = self.inner.alive()?.endpoint.link()?;
        match link.moves() {
            true => Some(LocalPath::Rings),
            false => (!link.is_closed() && link.is_within_host()).then_some(LocalPath::Off),
        }
    }

    /// True if what its connection sends from now on goes by shared memory.
    #[doc(hidden)]
    pub fn moves_within_host(&self) -> bool {
        let link = self.inner.alive().and_then(|inner| inner.endpoint.link());
        link.is_some_and(|link| link.moves())
    }

    /// Keeps the memory beside the ring of a connection that moves to shared memory, until the next
    /// connection or the end of the queue pair: see [`Self::annex`].
    #[doc(hidden)]
    pub fn keep_annex(&self) {
        if let Some(inner) = self.inner.alive() {
            inner.endpoint.keep_annex();
        }
    }

    /// The memory beside the ring of its connection, also when that is over.
    #[doc(hidden)]
    pub fn annex(&self) -> Option<Annex> {
        self.inner.alive()?.endpoint.annex()
    }

    /// That memory, if the peer has it as well and neither end wants CRCs there.
    #[doc(hidden)]
    pub fn annex_to_leave(&self) -> Option<Annex> {
        let endpoint = &self.inner.alive()?.endpoint;
        endpoint.link().filter(|link| link.moves_without_crc())?;
        endpoint.annex()
    }

    /// Calls `tell` each time that a connection of it moves to shared memory. To be called once.
    #[doc(hidden)]
    pub fn when_moved(&self, tell: impl Fn() + Send + Sync + 'static) {
        if let Some(inner) = self.inner.alive() {
            inner.endpoint.when_moved(Box::new(tell));
        }
    }

    /// The Reads that this end has carried out by itself on its connection: from the memory of
    /// another process of the host, without that process.
    #[doc(hidden)]
    pub fn direct_reads(&self) -> u64 {
        let link = self.inner.alive().and_then(|inner| inner.endpoint.link());
        link.map_or(0, |link| link.direct_reads())
    }

    /// The Writes and Atomics that this end has carried out by itself, likewise: in memory of
    /// another process that this one maps.
    #[doc(hidden)]
    pub fn direct_writes(&self) -> u64 {
        let link = self.inner.alive().and_then(|inner| inner.endpoint.link());
        link.map_or(0, |link| link.direct_writes())
    }

    /// The state of affairs between the ends, of a connection over TCP that is up.
    #[doc(hidden)]
    pub fn vitals(&self) -> Option<Vitals> {
        let link = self.inner.alive()?.endpoint.link()?;
        if link.is_closed() { None } else { link.vitals() }
    }

    /// Its stream, for a task that drives it in the reactor of an async runtime, once there is one.
    #[doc(hidden)]
    pub fn reactor_stream(&self) -> Option<Arc<dyn ReactorStream>> {
        Some(self.inner.alive()?.endpoint.link()?.in_reactor())
    }

    /// True if its connection is up.
    pub fn is_connected(&self) -> bool {
        self.ask(|core| core.is_connected()).unwrap_or(false)
    }

    /// Says what the peer may do through this queue pair of what the memory grants: those of the
    /// remote rights that `access` has (`qp_access_flags`). It counts at once and until the next
    /// Reset, instead of what was said before and of [`DatagramAttributes::access`].
    pub fn set_remote_access(&self, access: Access) {
        if let Some(inner) = self.inner.alive() {
            inner.endpoint.with(|core| core.set_remote_access(access));
            if let Some(link) = inner.endpoint.link() {
                link.show_nothing();
            }
        }
    }

    /// The read depths that the connection agreed on: outbound (ORD) and inbound (IRD).
    pub fn read_depths(&self) -> (usize, usize) {
        self.ask(|core| core.read_depths()).unwrap_or_default()
    }

    /// Work requests that may be posted at this moment: sends and receives.
    pub fn room(&self) -> (usize, usize) {
        self.inner.alive().map_or((0, 0), |inner| inner.endpoint.room())
    }

    /// Work requests that have not completed: sends and receives.
    pub fn outstanding(&self) -> (usize, usize) {
        self.ask(|core| core.outstanding()).unwrap_or_default()
    }
}

/// Checks that packets or a stream from an address leave from the device that they are of.
///
/// # Errors
///
/// `InvalidInput` for an address that is not the device's, or not the port's.
pub(super) fn check_source(home: &Profile, source: IpAddr) -> io::Result<()> {
    if home.has(source) {
        return Ok(());
    }
    let why = format!("{source} is no address of {home}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Tells the program by a channel.
struct TellEnd(Sender<Ended>);

impl ConnectionObserver for TellEnd {
    fn disconnected(&self, why: Ended) {
        // The program may not want to know any more.
        let _ = self.0.send(why);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(meeting) = &self.meeting {
            meeting.withdraw();
        }
        self.endpoint.engine.memory.revoke_stream(self.endpoint.qp_id());
        self.endpoint.abandon();
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;
    use crate::engine::options::Options;
    use crate::verbs::device::Device;

    #[test]
    fn no_queue_has_more_work_requests_than_the_device() {
        let device = Device::with_options(Options::default()).unwrap();
        let cq = device.create_cq(1, None).unwrap();
        let (attributes, most) =
            (QueuePairAttributes::new(&cq, &cq), ATTRIBUTES.max_qp_wr as usize);
        assert!(attributes.max_send_wr(most).max_recv_wr(most).check().is_ok());
        for wrong in [attributes.max_send_wr(most + 1), attributes.max_recv_wr(most + 1)] {
            let error = wrong.check().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("65537 work requests"), "{error}");
        }
    }

    #[test]
    fn a_queue_pair_that_cannot_meet_a_peer_refuses_one() {
        let device = Device::with_options(Options::default()).unwrap();
        let cq = device.create_cq(1, None).unwrap();
        let qp = device.alloc_pd().create_qp(&QueuePairAttributes::new(&cq, &cq)).unwrap();
        let here = IpAddr::from([127, 0, 0, 1]);
        let error = io::Error::from(qp.connect_to(&Peer::at(here, here, 17, 0)).unwrap_err());
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!((qp.state(), qp.peer()), (QpState::Init, None));
    }

    #[test]
    fn a_change_of_state_against_the_verbs_is_invalid_input() {
        let wrong = TransitionError { from: QpState::Reset, to: QpState::Rts };
        let error = io::Error::from(ModifyError::from(wrong));
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let inner = error.into_inner().and_then(|inner| inner.downcast::<TransitionError>().ok());
        assert_eq!(inner.map(|inner| *inner), Some(wrong));
        let error = io::Error::from(ModifyError::from(io::Error::from_raw_os_error(98)));
        assert_eq!(error.raw_os_error(), Some(98));
    }
}
