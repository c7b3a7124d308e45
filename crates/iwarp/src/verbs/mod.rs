// SPDX-License-Identifier: MIT OR Apache-2.0

//! The verbs: what a program does with an RDMA device.
//!
//! Handles are owned, `Send + Sync`, and keep alive what they need: dropping them in any order is
//! fine. Dropping a [`QueuePair`] ends its connection in good order, in the background.

mod channel;
mod cq;
mod create;
mod datagram;
mod device;
mod inherit;
mod mr;
pub(crate) mod pd;
mod ports;
mod qp;
mod srq;

pub use crate::connect::DatagramAttributes;
pub use crate::engine::channel::Look;
pub use crate::engine::ended::Ended;
pub use crate::engine::event::AsyncEvent;
pub use crate::engine::gid::Gid;
#[doc(hidden)]
pub use crate::port::Annex;
pub use channel::CompletionChannel;
pub use cq::CompletionQueue;
pub(crate) use device::check_depth;
pub use device::{Device, DeviceAttributes, OpenError};
pub use mr::{MemoryRegion, MemoryWindow};
pub use pd::ProtectionDomain;
pub use qp::{Capabilities, ModifyError, QueuePair, QueuePairAttributes};
pub use srq::SharedReceiveQueue;

pub use iwarp_mem::{OutOfMemory, Prefetch, PrefetchError, RegisterError, WindowType, afford};
