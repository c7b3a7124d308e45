// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use iwarp_os::{EventFd, PerProcess, ProcessOwned};
use iwarp_types::PdId;

use crate::engine::census::{self, Described, Kind, Place};
use crate::engine::cq::CqCore;
use crate::engine::event::AsyncEvent;
use crate::engine::event_queue::AsyncQueue;
use crate::engine::gid::Gid;
use crate::engine::local::{self, Hindrance};
use crate::engine::network_faults::platform;
use crate::engine::options::{OptionError, Options, Personality, Wire};
use crate::engine::profile::{Profile, no_device};
use crate::engine::speed::Speed;
use crate::engine::turns::Turns;
use crate::engine::{Engine, MAX_READS};
use crate::faults;
use crate::port::Platform;
use crate::report::Object;
use crate::verbs::channel::CompletionChannel;
use crate::verbs::cq::CompletionQueue;
use crate::verbs::pd::{PdCore, ProtectionDomain};
use crate::wire::choice::Wires;
use crate::wire::choice::wing::Wing;

/// Limits of the device, under the names of `struct ibv_device_attr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceAttributes {
    /// Version of this library.
    pub fw_ver: &'static str,
    /// Vendor: one of the locally administered numbers, which no vendor has. Not zero, because
    /// programs take that for an unknown device.
    pub vendor_id: u32,
    /// The vendor's number of this part.
    pub vendor_part_id: u32,
    /// The vendor's version of it.
    pub hw_ver: u32,
    /// Bytes of the largest region.
    pub max_mr_size: u64,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of a queue.
    pub max_qp_wr: u32,
    /// Elements of a work request.
    pub max_sge: u32,
    /// Elements of a Read.
    pub max_sge_rd: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Completions of a queue.
    pub max_cqe: u32,
    /// Regions.
    pub max_mr: u32,
    /// Windows.
    pub max_mw: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// Reads and Atomics that a queue pair serves at a time (IRD).
    pub max_qp_rd_atom: u16,
    /// Reads and Atomics that a queue pair has outstanding (ORD).
    pub max_qp_init_rd_atom: u16,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Receives of a shared receive queue.
    pub max_srq_wr: u32,
    /// Elements of a receive of a shared receive queue.
    pub max_srq_sge: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Multicast groups, and queue pairs of one. There is no limit here; the system's for IPv4 is
    /// 20 groups for each process by default (`net.ipv4.igmp_max_memberships`).
    pub max_mcast_grp: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
    /// Bytes of a message.
    pub max_msg_sz: u32,
    /// Page sizes that regions may have, as a mask: all, since pages do not matter.
    pub page_size_cap: u64,
    /// Reads and Atomics that all queue pairs serve at a time.
    pub max_res_rd_atom: u32,
    /// Completion vectors.
    pub num_comp_vectors: u32,
    /// Partition keys; there is the default one alone.
    pub max_pkeys: u16,
    /// Ports: one, unless the user has given the device [several](crate::NamedDevice).
    pub phys_port_cnt: u8,
    /// Time that the device takes to answer, as `timeout` of a queue pair counts it.
    pub local_ca_ack_delay: u8,
}

pub(super) const ATTRIBUTES: DeviceAttributes = DeviceAttributes {
    fw_ver: env!("CARGO_PKG_VERSION"),
    vendor_id: 0x02_69_57,
    vendor_part_id: 1,
    hw_ver: 1,
    max_mr_size: 1 << 47,
    max_qp: 1 << 17,
    max_qp_wr: 1 << 16,
    max_sge: 32,
    max_sge_rd: 32,
    max_cq: 1 << 17,
    max_cqe: 1 << 22,
    max_mr: 1 << 20,
    max_mw: 1 << 20,
    max_pd: 1 << 17,
    max_qp_rd_atom: MAX_READS,
    max_qp_init_rd_atom: MAX_READS,
    max_srq: 1 << 17,
    max_srq_wr: 1 << 16,
    max_srq_sge: 32,
    max_ah: 1 << 20,
    max_mcast_grp: 1024,
    max_inline_data: 512,
    max_msg_sz: 1 << 31,
    page_size_cap: !0xfff,
    max_res_rd_atom: (MAX_READS as u32) << 17,
    num_comp_vectors: 1,
    max_pkeys: 1,
    phys_port_cnt: 1,
    local_ca_ack_delay: 15,
};

/// An RDMA device of this process. Unless the user has [named some](Options::devices) there is one,
/// with all local addresses, IPv4 and IPv6. The devices of a process share its threads, its memory
/// and its share of UDP port 4791.
#[derive(Clone, Debug)]
pub struct Device {
    core: ProcessOwned<Arc<DeviceCore>>,
    /// The facts that do not change are true in a forked child, too.
    profile: Arc<Profile>,
    /// Of the asynchronous events: a child has it open as well.
    async_fd: Arc<EventFd>,
}

#[derive(Debug)]
pub(crate) struct DeviceCore {
    pub(crate) engine: Arc<Engine>,
    pub(crate) events: Arc<AsyncQueue>,
    wires: Arc<Wires>,
    /// The host's, once it was asked for.
    guid: Arc<OnceLock<u64>>,
}

impl DeviceCore {
    fn new(
        engine: Arc<Engine>,
        events: Arc<AsyncQueue>,
        wires: Arc<Wires>,
        guid: Arc<OnceLock<u64>>,
    ) -> Arc<Self> {
        let this = Arc::new(Self { engine, events, wires, guid });
        let described: Weak<dyn Described> = Arc::<Self>::downgrade(&this);
        census::enter(this.place(), described);
        this
    }

    /// Its place in the census.
    fn place(&self) -> Place {
        census::of(Kind::Device, self)
    }
}

impl Drop for DeviceCore {
    fn drop(&mut self) {
        census::leave(self.place());
    }
}

impl Described for DeviceCore {
    fn cable(&self, is_pulled: bool) {
        for (port, _) in (1..).zip(self.wires.profile.ports()) {
            self.events.push(match is_pulled {
                true => AsyncEvent::PortError { port },
                false => AsyncEvent::PortActive { port },
            });
        }
    }

    fn describe(&self, to: &mut Object) {
        to.text("name", &self.wires.profile.name);
        to.text("link", if faults::is_pulled() { "down" } else { "up" });
    }
}

static SHARED: PerProcess<Mutex<Weak<DeviceCore>>> = PerProcess::new();

/// The reason why the device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The environment asks for something that does not exist.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The system is out of descriptors, memory or threads.
    #[error("cannot open the device: {0}")]
    System(io::Error),
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Options(error) => Self::new(io::ErrorKind::InvalidInput, error),
            OpenError::System(error) => error,
        }
    }
}

impl Device {
    /// Opens the device, behaving as the environment says ([`Options::from_env`]). As long as
    /// it is open anywhere in the process, all callers get that one. A forked child that opens it
    /// has one of its own; the inherited one is dead, and answers with errors.
    ///
    /// # Errors
    ///
    /// [`OpenError`]
    pub fn open() -> Result<Self, OpenError> {
        Self::open_with(Options::default())
    }

    /// Opens it as [`Self::open`] does, with other defaults than [`Options::default`]. If it is
    /// open already, the options it was opened with count.
    ///
    /// # Errors
    ///
    /// [`OpenError`]
    pub fn open_with(defaults: Options) -> Result<Self, OpenError> {
        let mut shared = SHARED.get().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(core) = shared.upgrade() {
            return Ok(Self::of(core));
        }
        let device = Self::with_options(defaults.with_env()?)?;
        if iwarp_os::environment::is_foreign() {
            tracing::debug!("runs with more rights than its user: no IWARP_* variable counts");
        }
        *shared = Arc::downgrade(device.core.check()?);
        Ok(device)
    }

    /// Opens a device of its own that behaves as `options` say.
    ///
    /// # Errors
    ///
    /// When descriptors or a thread cannot be made.
    pub fn with_options(options: Options) -> io::Result<Self> {
        let platform = platform(options.faults);
        if let Some(rules) = &options.fault_rules {
            faults::install(rules);
        }
        Self::over(Engine::of_system(options, platform)?, None)
    }

    /// As [`Self::with_options`], over another network than the system's TCP: for simulators and
    /// tests, with the ports of [`crate::port`]. No promise of stability.
    ///
    /// # Errors
    ///
    /// As [`Self::with_options`].
    #[doc(hidden)]
    pub fn on_platform(options: Options, platform: Platform) -> io::Result<Self> {
        Self::over(Engine::new(options, platform)?, None)
    }

    /// As [`Self::on_platform`], with a wire of the program's own in place of iWARP and RoCE v2.
    ///
    /// # Errors
    ///
    /// As [`Self::with_options`].
    #[doc(hidden)]
    pub fn on_wing(options: Options, platform: Platform, wing: Arc<dyn Wing>) -> io::Result<Self> {
        Self::over(Engine::new(options, platform)?, Some(wing))
    }

    /// As [`Self::on_platform`], without threads: the result says when the workers take their
    /// turns. All that the device does goes by the platform's clock. One thread takes all turns: by
    /// its life other processes know that this one lives.
    ///
    /// # Errors
    ///
    /// When descriptors cannot be made.
    #[doc(hidden)]
    pub fn turned(options: Options, platform: Platform) -> io::Result<(Self, Turns)> {
        let engine = Engine::turned(options, platform)?;
        let turns = Turns::new(&engine);
        Ok((Self::over(engine, None)?, turns))
    }

    fn over(engine: Engine, wing: Option<Arc<dyn Wing>>) -> io::Result<Self> {
        let engine = Arc::new(engine);
        let wires = Wires::new(&engine, wing).of(0).ok_or_else(no_device)?;
        let observer = engine.options.observer.clone();
        let events = Arc::new(AsyncQueue::new()?.observed(observer));
        Ok(Self::of(DeviceCore::new(engine, events, wires, Arc::default())))
    }

    fn of(core: Arc<DeviceCore>) -> Self {
        let profile = Arc::clone(&core.wires.profile);
        let async_fd = Arc::clone(core.events.fd());
        Self { core: ProcessOwned::new(core), profile, async_fd }
    }

    /// This device once more, with asynchronous events of its own: those of the objects that are
    /// made with it.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be made; `ENODEV` in a forked child.
    pub fn sibling(&self) -> io::Result<Self> {
        self.named_sibling(self.place())
    }

    /// As [`Device::sibling`], but the device that stands at `place` of [`Options::devices`]: with
    /// its name, addresses, personality, wire and speed.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is none; when the descriptor cannot be made; `ENODEV` in a forked
    /// child.
    pub fn named_sibling(&self, place: usize) -> io::Result<Self> {
        self.core.check()?;
        self.sibling_with(place, AsyncQueue::new()?)
    }

    pub(super) fn sibling_with(&self, place: usize, events: AsyncQueue) -> io::Result<Self> {
        let core = self.core.check()?;
        let wires = core.wires.of(place).ok_or(io::ErrorKind::InvalidInput)?;
        let engine = Arc::clone(&core.engine);
        let events = Arc::new(events.observed(engine.options.observer.clone()));
        let guid = Arc::clone(&core.guid);
        Ok(Self::of(DeviceCore::new(engine, events, wires, guid)))
    }

    /// True in a forked child of the process that opened it. It is dead there with all that belongs
    /// to it: nothing can be posted, nothing completes, dropping does nothing. Open another one.
    pub fn is_inherited(&self) -> bool {
        self.core.is_inherited()
    }

    /// Its name: `iwarp0`, `roce0` with the personality of a RoCE device, or what the user has
    /// named it.
    pub fn name(&self) -> &str {
        &self.profile.name
    }

    /// The kind of device that it looks like.
    pub fn personality(&self) -> Personality {
        self.options().personality
    }

    /// The speed that its port is said to have.
    pub fn speed(&self) -> Speed {
        self.options().speed
    }

    /// Its EUI-64, identical in all processes of the host: from the Ethernet address of its first
    /// interface, or from the host's own id. Each further device has the next number.
    pub fn node_guid(&self) -> u64 {
        self.system_image_guid().wrapping_add(self.place() as u64)
    }

    /// The EUI-64 of the first device, by which programs know that others are on the same host.
    pub fn system_image_guid(&self) -> u64 {
        let known = self.core.alive().map(|core| &core.guid);
        known
            .map_or_else(iwarp_os::guid::of_host, |guid| *guid.get_or_init(iwarp_os::guid::of_host))
    }

    /// Its GID table, or that of its first port: the addresses that the host, or the interface that
    /// the user has given to this device, has at this moment. GID 0 is the address from
    /// which the default route is used; other global addresses follow; those of bridges,
    /// link-local and loopback ones come last, as several hosts may have them. A place in the table
    /// is kept for its address: an address that is gone leaves a gap, a new one comes at the end.
    ///
    /// # Errors
    ///
    /// When asking the system fails; `ENODEV` in a forked child.
    pub fn gids(&self) -> io::Result<Vec<Gid>> {
        Ok(self.gid_table()?.to_vec())
    }

    /// [`Self::gids`] without a copy, for programs that ask often: a system call, where no address
    /// has changed since.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn gid_table(&self) -> io::Result<Arc<[Gid]>> {
        self.core.check()?.wires.profile.gids()
    }

    /// Place of the [named device](Options::devices) that has an address of this host: the first of
    /// several. Loopback is the first device's where no other has it. `None` where none has the
    /// address, and in a forked child.
    pub fn place_of(&self, addr: IpAddr) -> Option<usize> {
        Some(self.core.alive()?.wires.profiles().at(addr)?.place)
    }

    /// Its limits. A completion queue takes a descriptor once a queue pair has connected that
    /// completes there, or a thread waits for it, as on a channel.
    pub fn attributes(&self) -> DeviceAttributes {
        // There are eight ports at most.
        DeviceAttributes { phys_port_cnt: self.profile.ports().len() as u8, ..ATTRIBUTES }
    }

    /// The options of the process, with the personality, wire and speed of this device.
    pub fn options(&self) -> &Options {
        &self.profile.options
    }

    /// The reason for which this process cannot move connections to shared memory, with the way
    /// out, in words for users: [`Options::local`] aside.
    #[doc(hidden)]
    pub fn local_path_hindrance(&self) -> Option<&'static str> {
        if self.options().spoken() == Wire::Roce {
            return Some(
                "the connections of this device speak RoCE v2: set IWARP_WIRE=auto, or wire=auto \
                 where IWARP_DEVICES names it",
            );
        }
        local::hindrance_here(self.options()).err().map(Hindrance::line)
    }

    /// The addresses it answers on: all of this host, or of its interface, or those of its ports.
    ///
    /// # Errors
    ///
    /// When asking the system fails.
    pub fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        let mut interfaces = iwarp_os::addr::interfaces()?;
        if self.profile.is_bound() {
            let is_own = |name: &str| self.profile.interfaces().any(|own| own == name);
            interfaces.retain(|interface| is_own(&interface.name));
        }
        Ok(interfaces.iter().flat_map(|i| i.addrs.iter().map(|addr| addr.ip)).collect())
    }

    /// Connections that exist, those included that only linger; 0 in a forked child.
    pub fn connections(&self) -> usize {
        self.core.alive().map_or(0, |core| core.engine.live.len())
    }

    /// Makes a protection domain; in a forked child one that is as dead as this, with the number 0.
    pub fn alloc_pd(&self) -> ProtectionDomain {
        let id = PdId(self.core.alive().map_or(0, |core| core.engine.next_pd()));
        let core = self.core.derive(|core| {
            Arc::new(PdCore {
                id,
                engine: Arc::clone(&core.engine),
                events: Arc::clone(&core.events),
                wires: Arc::clone(&core.wires),
            })
        });
        ProtectionDomain { core, id }
    }

    /// Makes a completion channel.
    ///
    /// # Errors
    ///
    /// When descriptors cannot be made; `ENODEV` in a forked child.
    pub fn create_comp_channel(&self) -> io::Result<CompletionChannel> {
        self.core.check()?;
        CompletionChannel::new()
    }

    /// Makes a completion queue that holds `depth` completions, and raises events on `channel`
    /// when asked to.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a depth of 0 or beyond [`DeviceAttributes::max_cqe`]; `OutOfMemory`; with
    /// a channel those of making a descriptor; `ENODEV` in a forked child.
    pub fn create_cq(
        &self,
        depth: usize,
        channel: Option<&CompletionChannel>,
    ) -> io::Result<CompletionQueue> {
        check_depth(depth)?;
        let core = self.core.check()?;
        let channel = channel.map(|channel| channel.core.check().cloned()).transpose()?;
        let cq = CqCore::new(&core.engine, depth, channel, Arc::clone(&core.events))?;
        Ok(CompletionQueue::new(cq))
    }

    /// Takes an asynchronous event if there is one.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    pub fn poll_async_event(&self) -> io::Result<Option<AsyncEvent>> {
        Ok(self.core.check()?.events.pop())
    }

    /// Drops the asynchronous events that `which` picks: those of an object that is gone.
    pub fn discard_async_events(&self, which: impl Fn(&AsyncEvent) -> bool) {
        if let Some(core) = self.core.alive() {
            core.events.discard(which);
        }
    }

    /// Readable while asynchronous events wait.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        self.async_fd.as_fd()
    }

    /// Its wires.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    pub(crate) fn wires(&self) -> io::Result<&Arc<Wires>> {
        Ok(&self.core.check()?.wires)
    }

    /// Which one of the named devices it is.
    pub(super) fn place(&self) -> usize {
        self.profile.place
    }

    /// The descriptor on which the program waits for its events.
    pub(super) const fn event_fd(&self) -> &Arc<EventFd> {
        &self.async_fd
    }

    /// The engine that drives it.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    pub(crate) fn engine(&self) -> io::Result<&Arc<Engine>> {
        Ok(&self.core.check()?.engine)
    }
}

/// Checks the number of completions that a queue is to hold.
///
/// # Errors
///
/// `InvalidInput` for 0 or more than [`DeviceAttributes::max_cqe`].
pub(crate) fn check_depth(depth: usize) -> io::Result<()> {
    let fits = (1..=ATTRIBUTES.max_cqe as usize).contains(&depth);
    if fits { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.async_fd()
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_1_to_max_cqe_completions() {
        let most = ATTRIBUTES.max_cqe as usize;
        assert!(check_depth(1).is_ok() && check_depth(most).is_ok());
        for wrong in [0, most + 1, usize::MAX] {
            let error = check_depth(wrong).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{wrong}");
        }
    }

    #[test]
    fn an_error_of_the_system_keeps_its_number() {
        let error = io::Error::from(OpenError::from(io::Error::from_raw_os_error(24)));
        assert_eq!(error.raw_os_error(), Some(24));
    }

    #[test]
    fn siblings_share_the_guid_and_not_the_events() {
        let device = Device::with_options(Options::default()).unwrap();
        let sibling = device.sibling().unwrap();
        assert_eq!(device.node_guid(), sibling.node_guid());
        let qp = AsyncEvent::QpFatal { qp: 7 };
        device.core.check().unwrap().events.push(qp);
        assert_eq!(sibling.poll_async_event().unwrap(), None);
        assert_eq!(device.poll_async_event().unwrap(), Some(qp));
        let absent = device.named_sibling(1).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::InvalidInput);
    }
}
