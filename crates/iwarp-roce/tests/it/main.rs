// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets in the eyes of others: recorded ones, and ours as other programs read them. The
//! connection manager, from outside.

mod captures;
mod cm;
mod fields;
mod frame;
mod oracles;
mod vectors;
