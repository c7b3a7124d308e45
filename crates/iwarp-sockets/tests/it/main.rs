// SPDX-License-Identifier: MIT OR Apache-2.0

//! The protocol from outside: octets of the original, two ends joined by a wire that delays at
//! will, and peers that do not keep to the rules.

mod captures;
mod datagrams;
mod hostile;
mod lifecycle;
mod poll_table;
mod sim;
mod support;
mod vectors;
