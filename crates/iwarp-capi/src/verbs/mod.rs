// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions of `infiniband/verbs.h`.
//!
//! ```text
//!   list, context, sysfs, query      devices and what they are
//!   object, listed                   what all objects of a context have
//!   imports                          what imported contexts share
//!   pd, mr, mw, advise               registered memory
//!   dm, dmabuf                       memory that is not the program's
//!   channel, cq, cq_ex, poll         completions
//!   srq, qp, modify                  queues
//!   datagram, ah, multicast          what only queue pairs over datagrams have
//!   post, wr                         work requests, as lists and one by one
//!   event, book                      asynchronous events, and acknowledging events
//!   fork, names, rate                odds and ends
//!   historical, unsupported          what is only there to fail well
//! ```

mod advise;
pub mod ah;
mod book;
pub mod channel;
pub mod context;
pub mod cq;
mod cq_ex;
mod datagram;
pub mod dm;
pub mod dmabuf;
pub mod event;
pub mod fork;
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
mod packed;
pub mod pd;
mod poll;
mod post;
pub mod qp;
pub mod query;
pub mod rate;
pub mod srq;
pub mod sysfs;
pub mod unsupported;
mod wr;

pub(crate) use context::tell_of_heir;
pub use context::{Context, shared_context};
pub(crate) use listed::{Life, Listed};
