// SPDX-License-Identifier: MIT OR Apache-2.0

//! The wing for iWARP over TCP.
//!
//! ```text
//!   startup      MPA start-up on a stream's socket, and the connections that a listener takes
//!   rendezvous   queue pairs that meet without the connection manager
//!   link         the stream of a queue pair: reads, writes, ends
//! ```

pub(crate) mod link;
pub(crate) mod rendezvous;
pub(crate) mod startup;
