// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages of the connection manager. Offsets count from behind the header (IBA volume 1,
//! chapter 12, as `ibta_vol1_c12.h` of Linux has them; ROCE-146). Octets without a field here are
//! sent as 0 and not looked at.

mod cma;
mod ids;
mod lap;
mod mra;
mod private;
mod rej;
mod rep;
mod req;
mod sidr;

pub use cma::{CMA_HEADER_LEN, CmaHeader};
pub use ids::{Drep, Dreq, Rtu};
pub use lap::{APR_UNSUPPORTED, Apr, Lap};
pub use mra::Mra;
pub(super) use private::field;
pub use private::{PrivateData, TooLong};
pub use rej::{Rej, Rejected};
pub use rep::Rep;
pub use req::{PathRecord, Req, TransportType};
pub use sidr::{SidrRep, SidrReq, SidrStatus};

use super::field::Body;
use super::mad::BODY_LEN;
use core::net::IpAddr;

pub use iwarp_types::gid;

/// Octets of private data that a program may give (ROCE-174).
pub mod limits {
    /// Behind the CMA header of a REQ.
    pub const REQ: usize = 56;
    /// Of a REQ without a CMA header.
    pub const RAW_REQ: usize = 92;
    /// Of a REP.
    pub const REP: usize = 196;
    /// Of an RTU.
    pub const RTU: usize = 224;
    /// Of a REJ.
    pub const REJ: usize = 148;
    /// Of an MRA.
    pub const MRA: usize = 222;
    /// Of a DREQ.
    pub const DREQ: usize = 220;
    /// Of a DREP.
    pub const DREP: usize = 224;
    /// Behind the CMA header of a SIDR_REQ.
    pub const SIDR_REQ: usize = 180;
    /// Of a SIDR_REQ without a CMA header.
    pub const RAW_SIDR_REQ: usize = 216;
    /// Of a SIDR_REP.
    pub const SIDR_REP: usize = 136;
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident($of:ident) = $attribute:literal,)*) => {
        /// A message.
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[allow(clippy::large_enum_variant, reason = "all of them fill a datagram")]
        pub enum Message {
            $($(#[$doc])* $name($of),)*
        }

        impl Message {
            /// Reads the message of an attribute; `None` for an unknown one.
            pub(super) fn read(attribute: u16, body: &Body) -> Option<Self> {
                match attribute {
                    $($attribute => Some(Self::$name($of::read(body))),)*
                    _ => None,
                }
            }

            /// Its attribute.
            pub const fn attribute(&self) -> u16 {
                match self {
                    $(Self::$name(_) => $attribute,)*
                }
            }

            /// Its octets behind the header.
            pub(super) fn body(&self) -> Body {
                let mut body = [0; BODY_LEN];
                match self {
                    $(Self::$name(message) => message.write(&mut body),)*
                }
                body
            }
        }

        $(impl From<$of> for Message {
            fn from(message: $of) -> Self {
                Self::$name(message)
            }
        })*
    };
}

messages! {
    /// Request for a connection.
    Req(Req) = 0x10,
    /// A message has been received, its answer takes longer.
    Mra(Mra) = 0x11,
    /// Refusal.
    Rej(Rej) = 0x12,
    /// The request is accepted.
    Rep(Rep) = 0x13,
    /// Ready to use: the REP has come.
    Rtu(Rtu) = 0x14,
    /// Request to disconnect.
    Dreq(Dreq) = 0x15,
    /// Answer to a DREQ.
    Drep(Drep) = 0x16,
    /// Asks for the queue pair of a datagram service.
    SidrReq(SidrReq) = 0x17,
    /// The answer to a SIDR_REQ.
    SidrRep(SidrRep) = 0x18,
    /// Load alternate path.
    Lap(Lap) = 0x19,
    /// Answer to a LAP.
    Apr(Apr) = 0x1a,
}

/// The address of a global identifier.
pub fn gid_address(gid: [u8; 16]) -> IpAddr {
    IpAddr::from(gid).to_canonical()
}
