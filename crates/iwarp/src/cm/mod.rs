// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connection manager: makes and ends connections (RFC 5044 §7, RFC 6581).
//!
//! It has two layers. [`Id`], [`EventChannel`] and [`Event`] are those of `librdmacm`: every step
//! is asynchronous and ends in an event. [`connect`] and [`Listener`] block, and suit most
//! programs.

mod addresses;
mod blocking;
mod channel;
mod datagrams;
mod id;
mod incoming;
mod meanwhile;
mod outgoing;
mod packets;
mod service;
mod watch;

pub use addresses::Addresses;
pub use blocking::{Connection, Incoming, Listener, connect};
pub use channel::{Event, EventChannel, EventKind};
#[doc(hidden)]
pub use id::PacketAttributes;
pub use id::{ConnectionState, Id, PortSpace};

use crate::startup::closed;
pub use crate::startup::{ConnectError, ConnectParams};
/// Q_Key of the queue pairs of datagram services of `RDMA_PS_UDP`, and of multicast groups.
pub use iwarp_roce::cm::UDP_QKEY;
pub use iwarp_types::{StartupError, StartupFault};
