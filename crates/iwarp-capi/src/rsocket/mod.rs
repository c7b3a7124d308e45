// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions of `rdma/rsocket.h`.
//!
//! ```text
//!   table     the sockets of the process, by their numbers
//!   waiting   calls that wait: a thread sleeps, and may be cancelled
//!   stream    making, binding, connecting, accepting, ending
//!   message   sending and receiving
//!   name      addresses
//!   option    options
//!   iomap     memory that the peer writes to
//!   poll      waiting for several
//! ```
//!
//! The sockets themselves are `iwarp-rsocket`. Their numbers are real descriptors, so the functions
//! of `poll` are the system's own, with a look at the sockets in front.

pub mod iomap;
pub mod message;
pub mod name;
pub mod option;
pub mod poll;
pub mod stream;
mod table;
mod waiting;
