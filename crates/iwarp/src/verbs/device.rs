//! The device.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use iwarp_proto::memory::PdId;

use crate::engine::Engine;
use crate::engine::options::{OptionError, Options};
use crate::verbs::channel::{ChannelCore, CompletionChannel};
use crate::verbs::cq::{CompletionQueue, CqCore};
use crate::verbs::event::{AsyncEvent, AsyncQueue};
use crate::verbs::pd::{PdCore, ProtectionDomain};

/// Limits of the device, under the names of `struct ibv_device_attr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceAttributes {
    /// Octets of the largest region.
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
    /// Octets of inline data.
    pub max_inline_data: u32,
    /// Octets of a message.
    pub max_msg_sz: u32,
}

const ATTRIBUTES: DeviceAttributes = DeviceAttributes {
    max_mr_size: 1 << 47,
    max_qp: 1 << 20,
    max_qp_wr: 1 << 16,
    max_sge: 32,
    max_sge_rd: 32,
    max_cq: 1 << 20,
    max_cqe: 1 << 22,
    max_mr: 1 << 22,
    max_mw: 1 << 22,
    max_pd: 1 << 20,
    max_qp_rd_atom: 128,
    max_qp_init_rd_atom: 128,
    max_srq: 1 << 20,
    max_srq_wr: 1 << 16,
    max_srq_sge: 32,
    max_inline_data: 512,
    max_msg_sz: 1 << 31,
};

/// The RDMA device of this process: all local addresses, IPv4 and IPv6.
#[derive(Clone, Debug)]
pub struct Device {
    core: Arc<DeviceCore>,
}

#[derive(Debug)]
pub(crate) struct DeviceCore {
    pub(crate) engine: Arc<Engine>,
    pub(crate) events: Arc<AsyncQueue>,
}

static SHARED: Mutex<Weak<DeviceCore>> = Mutex::new(Weak::new());

/// Why the device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The environment asks for something that does not exist.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The system is out of descriptors, memory or threads.
    #[error("cannot open the device: {0}")]
    System(#[from] io::Error),
}

impl Device {
    /// Opens the device, behaving as the environment says ([`Options::from_env`]). As long as
    /// somebody has it open, all callers get the same one.
    ///
    /// # Errors
    ///
    /// [`OpenError`]
    pub fn open() -> Result<Self, OpenError> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(core) = shared.upgrade() {
            return Ok(Self { core });
        }
        let device = Self::with_options(Options::from_env()?)?;
        *shared = Arc::downgrade(&device.core);
        Ok(device)
    }

    /// Opens a device of its own that behaves as `options` say.
    ///
    /// # Errors
    ///
    /// Those of making descriptors and a thread.
    pub fn with_options(options: Options) -> io::Result<Self> {
        let engine = Arc::new(Engine::new(options)?);
        Ok(Self { core: Arc::new(DeviceCore { engine, events: Arc::new(AsyncQueue::new()?) }) })
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        "iwarp0"
    }

    /// Its limits.
    pub const fn attributes(&self) -> DeviceAttributes {
        ATTRIBUTES
    }

    /// How it behaves.
    pub fn options(&self) -> &Options {
        &self.core.engine.options
    }

    /// The addresses it answers on: all of this host.
    ///
    /// # Errors
    ///
    /// Those of asking the system.
    pub fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        let interfaces = iwarp_os::addr::interfaces()?;
        Ok(interfaces.iter().flat_map(|i| i.addrs.iter().map(|addr| addr.ip)).collect())
    }

    /// Connections that exist, those included that only linger.
    pub fn connections(&self) -> usize {
        self.core.engine.live.len()
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> ProtectionDomain {
        ProtectionDomain {
            core: Arc::new(PdCore {
                id: PdId(self.core.engine.next_pd()),
                engine: Arc::clone(&self.core.engine),
                events: Arc::clone(&self.core.events),
            }),
        }
    }

    /// Makes a completion channel.
    ///
    /// # Errors
    ///
    /// Those of making descriptors.
    pub fn create_comp_channel(&self) -> io::Result<CompletionChannel> {
        Ok(CompletionChannel { core: ChannelCore::new()? })
    }

    /// Makes a completion queue that holds `depth` completions, and raises events on `channel`
    /// when asked to.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a depth of 0 or beyond [`DeviceAttributes::max_cqe`]; those of making
    /// descriptors.
    pub fn create_cq(
        &self,
        depth: usize,
        channel: Option<&CompletionChannel>,
    ) -> io::Result<CompletionQueue> {
        if depth == 0 || depth > ATTRIBUTES.max_cqe as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let channel = channel.map(|channel| Arc::clone(&channel.core));
        let events = Arc::clone(&self.core.events);
        let core = CqCore::new(&self.core.engine, depth, channel, events)?;
        Ok(CompletionQueue { core })
    }

    /// Takes an asynchronous event if there is one.
    pub fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.core.events.pop()
    }

    /// Readable while asynchronous events wait.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        self.core.events.fd()
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.core.engine
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.async_fd()
    }
}
