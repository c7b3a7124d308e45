//! The verbs: what a program does with an RDMA device.
//!
//! Handles are owned, `Send + Sync`, and keep alive what they need: dropping them in any order is
//! fine. Dropping a [`QueuePair`] ends its connection in good order, in the background.

pub(crate) mod channel;
pub(crate) mod cq;
mod device;
pub(crate) mod event;
mod mr;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod srq;

pub use channel::CompletionChannel;
pub use cq::CompletionQueue;
pub use device::{Device, DeviceAttributes, OpenError};
pub use event::AsyncEvent;
pub use mr::{MemoryRegion, MemoryWindow};
pub use pd::ProtectionDomain;
pub use qp::{QueuePair, QueuePairAttributes};
pub use srq::SharedReceiveQueue;

pub use iwarp_mem::{RegisterError, WindowType};
