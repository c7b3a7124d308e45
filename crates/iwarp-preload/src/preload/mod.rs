// SPDX-License-Identifier: MIT OR Apache-2.0

//! Functions of libc that, with LD_PRELOAD, find RDMA devices in /sys and /dev.
//!
//! `iwarp run` makes a tree of the files that Linux would have for the devices, names it in
//! `IWARP_SYSFS`, and preloads this library. It passes every call on to libc; only a path below one
//! of [`SHOWN`] is first prefixed with the tree, and a counter's file is filled when it is opened,
//! by any path. The files below /sys cannot be written, as other runs see them too. A netlink
//! socket for RDMA is answered by this library, out of that tree (`rdma`). Without that variable,
//! and in programs that run with privileges of others, it changes nothing of this. A port that the
//! drop-in libraries listen at it lets the program have, too ([`ports`]). Results, and `errno` with
//! them, are libc's.
//!
//! The library is in every process, so it needs nothing but libc, and what it adds to a call is a
//! look at the first few bytes of the path, or at whether the program has such a socket at all.

mod c;
mod counters;
mod elsewhere;
mod facts;
mod files;
mod functions;
mod glob;
mod ledger;
#[cfg(not(clippy))]
mod netlink;
mod ports;
mod redirect;
mod roster;
mod sockets;
mod written;

// The crate has it, too.
#[cfg(clippy)]
use crate::netlink;

/// The paths that are shown out of the tree.
pub(crate) const SHOWN: [&str; 2] = ["/sys/class/infiniband", "/dev/infiniband"];
