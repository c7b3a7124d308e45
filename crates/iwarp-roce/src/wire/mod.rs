// SPDX-License-Identifier: MIT OR Apache-2.0

//! The meaning of the octets of a RoCE v2 packet, from the base transport header (BTH) on.
//!
//! ```text
//!   UDP | BTH 12 | extended headers | payload | pad 0..3 | ICRC 4
//! ```

mod bth;
mod burst;
mod counters;
mod extended;
pub mod grh;
pub mod icrc;
mod mtu;
mod opcode;
mod packet;
mod psn;
mod receive;
mod source_port;

pub use bth::{BTH_LEN, Bth, GSI_QP, MULTICAST_QP, Pkey};
pub use burst::Burst;
pub use counters::Counters;
pub use extended::{Aeth, AtomicEth, AtomicKind, Deth, NakCode, Reth, Syndrome};
pub use iwarp_types::{Numbering, Path, RnrTimer};
pub use mtu::Mtu;
pub use opcode::{Opcode, Operation, Position, Tail, Transport};
pub use packet::{Header, Malformed, Message, Packet, SendTail, padding};
pub use psn::Psn;
pub use receive::{Received, receive};
pub use source_port::source_port;

/// UDP port of RoCE v2 (ROCE-001).
pub const PORT: u16 = Path::PORT;
/// Octets of the invariant CRC behind each packet.
pub const ICRC_LEN: usize = 4;
