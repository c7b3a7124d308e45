// SPDX-License-Identifier: MIT OR Apache-2.0

//! The wing for RoCE v2 over UDP.
//!
//! ```text
//!   mux          the datagram port of a device: receives and sends for all of its queue pairs
//!   outbox       a burst on its way to a port that may be full
//!   packets      the core of a queue pair behind its lock: packets come and go
//!   attributes   the attributes of a queue pair over packets, between verbs and protocol
//!   connect      connections of the connection manager's ids
//!   sidr         questions for the queue pairs of datagram services
//!   service      peers that ask for either
//!   ends         addresses of an id and its peer
//!   prospect     a queue pair that may come to speak RoCE v2
//!   fate         the line of the log about a connection that begins
//!   gsi          queue pair 1, for management datagrams
//!   manager      the connection manager over these
//!   management   the manager at queue pair 1 of a port
//!   counted      counters that other processes can read
//! ```

mod attributes;
pub(crate) mod connect;
pub(crate) mod counted;
mod ends;
mod fate;
pub(crate) mod gsi;
pub(crate) mod management;
pub(crate) mod manager;
pub(crate) mod mux;
pub(crate) mod outbox;
mod packets;
pub(crate) mod prospect;
pub(crate) mod service;
pub(crate) mod sidr;
