// SPDX-License-Identifier: MIT OR Apache-2.0

//! The edges of the system from outside.

mod beside;
mod datagram;
mod guard;
mod hosts;
mod local;
mod peer;
mod peer_life;
mod peer_memory;
mod peer_rights;
mod peer_times;
mod poll;
mod route;
mod socket;
mod watch;
