// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMA's part of netlink: the answers that Linux gives to `rdma` of iproute2 and to its like.
//!
//! Pure: octets of requests come in, octets of datagrams go out, and `Facts` says what there is to
//! tell. The code neither allocates nor panics, as the preloaded library has neither.
//!
//!   numbers   the constants of `linux/netlink.h` and `rdma/rdma_netlink.h`
//!   read      requests and their attributes
//!   write     datagrams, messages and attributes
//!   device    the text in which `iwarp run` describes the devices
//!   row       an object in words
//!   list      objects one by one
//!   answer    the answer to a request

mod answer;
mod device;
mod list;
pub mod numbers;
mod read;
mod row;
mod write;

#[cfg(test)]
mod tests;

pub use answer::{Facts, Listed, OBJECTS, answer};
pub use device::{Device, Devices, Ports};
pub use read::{Message, attribute};
pub use row::{Id, Object, Pair, Row, WORDS as ROW_WORDS, check};
pub use write::DATAGRAM;
