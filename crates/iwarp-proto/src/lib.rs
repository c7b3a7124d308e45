// SPDX-License-Identifier: MIT OR Apache-2.0

//! The iWARP protocol suite as pure state machines: MPA (RFC 5044, 6581), DDP (RFC 5041),
//! RDMAP (RFC 5040, 7306) and the queue pair of the verbs above them.
//!
//! Octets and time go in, decisions come out: nothing here reads a clock, a socket or memory it
//! was not handed. The modules are the layers, and each layer has the same files: `wire` (what
//! the octets mean), `tx` (making them), `rx` (checking them), `error` (what can be wrong).
//!
//! ```text
//!   qp      send queue, receive queue, read queues, state, Terminate
//!   rdmap   messages: Send, Write, Read, atomics, immediate data, Terminate
//!   ddp     segments: tagged and untagged buffers
//!   mpa     FPDUs: length, markers, padding, CRC32c; start-up frames
//! ```
//!
//! A layer names only the one below it. MPA is one framing of DDP segments among others
//! ([`framing`], [`record`]). The verbs' vocabulary is that of [`iwarp_types`];
//! registered memory is asked for through [`iwarp_types::Memory`].
//!
//! An FPDU, there and back:
//!
//! ```
//! use std::convert::Infallible;
//!
//! use iwarp_proto::framing::{Deframe, Frame};
//! use iwarp_proto::mpa::{rx::Deframer, tx::Framer};
//!
//! let mut stream = [0; 64];
//! let framed = Framer::new(true, false).write(&mut stream, b"hello", 0, |_, _, _| {
//!     Ok::<(), Infallible>(())
//! })?;
//! assert_eq!(framed, 2 + 5 + 1 + 4, "length, ULPDU, pad, CRC");
//!
//! let mut deframer = Deframer::new(true, false);
//! assert_eq!(deframer.next(&mut stream[..framed - 1])?, None, "not yet whole");
//! let fpdu = deframer.next(&mut stream[..framed])?.expect("whole");
//! assert_eq!(&stream[fpdu.start..][..fpdu.len], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod ddp;
pub mod framing;
pub mod mpa;
pub mod qp;
pub mod rdmap;
pub mod record;
pub mod types;
