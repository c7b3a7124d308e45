//! The verbs: what a program does with an RDMA device.
//!
//! Handles are owned, `Send + Sync`, and keep alive what they need: dropping them in any order is
//! fine. Dropping a [`QueuePair`] ends its connection in good order, in the background.

pub(crate) mod channel;
pub(crate) mod cq;
mod device;
pub(crate) mod event;
mod gid;
mod mr;
mod patience;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod srq;

pub use channel::{CompletionChannel, Look};
pub use cq::CompletionQueue;
pub(crate) use device::MAX_READS;
pub use device::{Device, DeviceAttributes, OpenError};
pub use event::AsyncEvent;
pub use gid::Gid;
pub use mr::{MemoryRegion, MemoryWindow};
pub use pd::ProtectionDomain;
pub use qp::{Capabilities, ModifyError, QueuePair, QueuePairAttributes};
pub use srq::SharedReceiveQueue;

pub use iwarp_mem::{OutOfMemory, RegisterError, WindowType, afford};
