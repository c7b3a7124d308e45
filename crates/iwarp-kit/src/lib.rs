// SPDX-License-Identifier: MIT OR Apache-2.0

//! The parts that the commands of `iwarp` share. Programs have no use for them.
//!
//! ```text
//!   lines   output whose reader may go away        host_port  the address of a server
//!   output  files that are written at the end      size       sizes as people write them
//!   page    HTML                                   child      the other end as a process
//!   ending  the end of a connection, in words      pattern    bytes that are checked
//! ```
#![forbid(unsafe_code)]

pub mod child;
pub mod ending;
pub mod host_port;
pub mod lines;
pub mod output;
pub mod page;
pub mod pattern;
pub mod size;
