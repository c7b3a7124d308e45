// SPDX-License-Identifier: MIT OR Apache-2.0

//! The wing for RoCE v2 over UDP.
//!
//! ```text
//!   mux          the datagram port of a device: receives and sends for all of its queue pairs
//!   gsi          queue pair 1, for management datagrams
//!   manager      the connection manager over these
//!   management   the manager at queue pair 1 of a port
//!   counted      counters that other processes can read
//! ```

pub(crate) mod counted;
pub(crate) mod gsi;
pub(crate) mod management;
pub(crate) mod manager;
pub(crate) mod mux;
