// SPDX-License-Identifier: MIT OR Apache-2.0

//! RoCE v2 as pure state machines: queue pairs of the types RC, UC and UD over datagrams, and the
//! connection manager's messages.
//!
//! ```text
//!   wire      the meaning of the octets: BTH, extended headers, ICRC, GRH
//!   cm        connection management: messages and the state of every connection
//!   config    the settings of a queue pair, those set later included
//!   core      the contract of a queue pair over datagrams
//!   payload   payloads of posted requests, and octets in and out of lists
//!   work      states and work queues of UC and UD
//!   rc        queue pairs of the type RC
//!   probe     the search for a sign that a peer speaks RoCE v2
//!   uc        queue pairs of the type UC
//!   ud        queue pairs of the type UD
//!   qp        a queue pair of any type
//! ```
//!
//! `ROCE-001` and the like in comments are requirements, listed in `conformance/requirements.csv`.
//!
//! An acknowledgement says:
//!
//! ```
//! use iwarp_roce::wire::{Malformed, Message, Packet};
//!
//! // BTH (RC acknowledge, P_Key, queue pair 0x12, PSN 7), then AETH.
//! let octets = [0x11, 0, 0xff, 0xff, 0, 0, 0, 0x12, 0, 0, 0, 7, 0x1f, 0, 0, 3];
//! let packet = Packet::parse(&octets)?;
//! assert!(matches!(packet.header.message, Message::Acknowledge(_)));
//! assert_eq!(packet.header.bth.dest_qp, 0x12);
//! assert_eq!(Packet::parse(&octets[..15]), Err(Malformed::Short));
//! # Ok::<(), Malformed>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cm;
mod config;
mod core;
mod payload;
pub mod probe;
mod qp;
mod rc;
#[cfg(test)]
mod testing;
pub mod uc;
pub mod ud;
pub mod wire;
mod work;

pub use self::config::{Attributes, Config};
pub use self::core::DatagramCore;
pub use qp::Qp;
pub use rc::{Rc, reasons};
pub use uc::Uc;
pub use ud::Ud;
pub use work::Drops;
