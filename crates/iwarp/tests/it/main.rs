//! The library from outside. What one test does to its process or measures of it, no other may
//! disturb: such tests are the files beside this folder, each a process of its own.

#[path = "../common/mod.rs"]
mod common;

mod blocking;
mod bulk;
mod cancel;
mod cm;
mod cm_ids;
mod descriptor;
mod ends;
mod flush;
mod heard;
mod hostile;
mod hostile_stream;
mod last_octet;
mod limits;
mod memory;
mod operations;
mod owned;
mod parking;
mod patience;
mod piggyback;
mod progress;
mod queues;
mod rendezvous;
mod rendezvous_hostile;
mod silenced;
mod startup;
#[cfg(feature = "tokio")]
mod tasks;
mod vanished;
