// SPDX-License-Identifier: MIT OR Apache-2.0

//! The protocol of rsockets as pure state machines: no queue pair, no socket, no clock.
//!
//! ```text
//!   wire      the meaning of the octets: private data, messages, entries, headers of datagrams
//!   stream    a connected rsocket: credits, the ring, the end, readiness
//!   datagram  a datagram rsocket: the way of each datagram, and its header
//! ```
//!
//! `RS-WIRE-01` and the like in comments are requirements, listed in
//! `conformance/requirements.csv`. The *original* is the implementation that peers have, and whose
//! captured octets the tests use.
//!
//! A message says:
//!
//! ```
//! use iwarp_sockets::wire::{ByteOrder, Message};
//!
//! // As the immediate of an RDMA Write, and as a Send from a little-endian host.
//! assert_eq!(Message::Data(5).to_immediate(), [0, 0, 0, 5]);
//! assert_eq!(Message::from_send([16, 0, 0, 128], ByteOrder::Little)?, Message::Credits(16));
//! assert!(Message::from_immediate([0x20, 0, 0, 0]).is_err());
//! # Ok::<(), iwarp_sockets::wire::UnknownMessage>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod datagram;
pub mod stream;
pub mod wire;
