// SPDX-License-Identifier: MIT OR Apache-2.0

//! The edges of the system from outside.

mod beside;
mod datagram;
mod guard;
mod hosts;
mod local;
mod poll;
mod socket;
mod watch;
