// SPDX-License-Identifier: MIT OR Apache-2.0

//! The names under which processes listen for others of their host.

use std::io;

/// The name under which the process listens that calls itself so.
pub(super) fn socket_name(name: u64) -> String {
    format!("iwarp-local/{name:016x}")
}

pub(super) fn random() -> io::Result<u64> {
    let mut octets = [0; 8];
    getrandom::fill(&mut octets)?;
    Ok(u64::from_ne_bytes(octets))
}
