// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions of `infiniband/verbs.h`.
//!
//! ```text
//!   list, open, sysfs, query         devices and what they are
//!   context, shared                  open devices, and those that ids of the connection manager have
//!   object, counts, listed           what all objects of a context have
//!   imports                          what imported contexts share
//!   pd, mr, mw, advise               registered memory
//!   dm, dmabuf                       memory that is not the program's
//!   channel, cq, cq_ex, poll         completions
//!   srq, qp, modify                  queues
//!   datagram, ah, handles, multicast what only queue pairs over datagrams have
//!   post, wr                         work requests, as lists and one by one
//!   event, book                      asynchronous events, and acknowledging events
//!   fork, names, rate                odds and ends
//!   historical, unsupported          what is only there to fail well
//! ```

mod advise;
pub mod ah;
mod book;
pub mod channel;
mod context;
mod counts;
pub mod cq;
mod cq_ex;
mod datagram;
pub mod dm;
pub mod dmabuf;
pub mod event;
pub mod fork;
mod handles;
pub mod historical;
mod imports;
pub mod list;
mod listed;
pub mod modify;
pub mod mr;
pub mod multicast;
mod mw;
pub mod names;
mod object;
pub mod open;
mod packed;
pub mod pd;
mod poll;
mod post;
pub mod qp;
pub mod query;
pub mod rate;
pub(crate) mod shared;
pub mod srq;
pub mod sysfs;
pub mod unsupported;
mod wr;

pub use context::Context;
pub(crate) use context::tell_of_heir;
pub(crate) use listed::{Life, Listed};
