// SPDX-License-Identifier: MIT OR Apache-2.0

//! The one place that knows that there are several wires.
//!
//! ```text
//!   core      the cores of queue pairs, and the choice that one may have
//!   numbers   the numbers of queue pairs, by which peers find them
//!   connect   the connections of ids: by which wire they are asked for and come in
//!   wing      a wire of the program's own, as the program writes it
//!   foreign   the library's side of that
//! ```

mod connect;
mod core;
mod foreign;
mod numbers;
pub mod wing;

pub(crate) use self::connect::{Wires, joined};
pub(crate) use self::core::Begun;
pub(crate) use self::foreign::attach;
pub(crate) use super::roce::prospect::set_named_attributes as set_attributes;
pub(crate) use super::roce::service::Offer;
/// Q_Key of the queue pairs of datagram services of `RDMA_PS_UDP`, and of multicast groups.
pub use iwarp_roce::cm::UDP_QKEY;
