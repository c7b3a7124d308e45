// SPDX-License-Identifier: MIT OR Apache-2.0

//! The wing for iWARP over TCP.
//!
//! ```text
//!   core         the core of a queue pair, as its device's options want it
//!   startup      MPA start-up on a stream's socket, and the connections that a listener takes
//!   connect      connections of the connection manager's ids
//!   rendezvous   queue pairs that meet without the connection manager
//!   link         the stream of a queue pair: reads, writes, ends
//! ```

pub(crate) mod connect;
pub(crate) mod core;
pub(crate) mod link;
pub(crate) mod rendezvous;
pub(crate) mod startup;
