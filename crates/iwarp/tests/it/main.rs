// SPDX-License-Identifier: MIT OR Apache-2.0

//! The library from outside, in one process. A test that measures its process (descriptors, threads,
//! what is logged) runs once more in another (`process::passed_apart`). Tests that change theirs, or
//! that need the CPUs for themselves, are the files beside this folder.
//!
//! The others are `alloc` and `starved` (the allocator), `fork`, `floods` (both CPUs, the limit of
//! descriptors), and, in `iwarp-mem`, `footprint` (resident memory), `handlers` (signals) and `loom`,
//! which is another build.

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod auto;
mod backlog;
mod batches;
mod blocking;
mod bulk;
mod byte_stream;
mod byte_stream_peers;
#[cfg(feature = "tokio")]
mod byte_stream_tasks;
mod cancel;
#[cfg(feature = "tokio")]
mod cancel_safety;
mod cm;
mod cm_datagrams;
mod cm_ids;
mod cm_packets;
mod credits;
mod datagrams;
mod descriptor;
#[cfg(feature = "tokio")]
mod driving;
mod drops;
mod ends;
mod families;
mod fates;
mod flush;
mod gather;
mod given_back;
#[cfg(feature = "serde")]
mod grants;
mod heard;
mod hostile;
mod hostile_stream;
#[path = "../../../iwarp-os/tests/it/hosts.rs"]
mod hosts;
mod last_octet;
mod leaks;
mod limits;
mod memory;
mod metrics;
mod operations;
mod owned;
mod parking;
mod patience;
mod permitted;
mod piggyback;
mod places;
mod ports;
mod progress;
mod queues;
mod rc;
mod rc_late;
mod reasons;
mod receivers;
mod rendezvous;
mod rendezvous_hostile;
mod roce_floods;
mod scatter;
#[cfg(feature = "tokio")]
mod sender;
mod served;
mod share;
mod share_hostile;
mod share_hosts;
mod silenced;
mod startup;
#[cfg(feature = "tokio")]
mod tasks;
mod toy_core;
mod toy_port;
mod toy_ring;
#[cfg(feature = "zerocopy")]
mod typed;
mod ud;
mod ud_processes;
mod vanished;
