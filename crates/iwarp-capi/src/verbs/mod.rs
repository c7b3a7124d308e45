// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions of `infiniband/verbs.h`.
//!
//! ```text
//!   list, open, sysfs, query               devices and what they are
//!   context, shared                        open devices, and those of the connection manager's ids
//!   object, counts, listed                 what all objects of a context have
//!   imports                                what imported contexts share
//!   pd, mr, register, mw, advise           registered memory
//!   dm, dmabuf, mapping                    memory that is not the program's
//!   channel, cq, create_cq, cq_ex, poll    completions
//!   srq, qp, create_qp, qp_type            queues
//!   modify, attributes                     states of queue pairs
//!   datagram, ah, handles, multicast       what only queue pairs over datagrams have
//!   post, wr, builder, bind                work requests, as lists and one by one
//!   event, book                            asynchronous events, and acknowledging events
//!   fork, names, rate                      odds and ends
//!   historical, unsupported                what is only there to fail well
//! ```

mod advise;
pub mod ah;
pub(crate) mod attributes;
mod bind;
mod book;
mod builder;
pub mod channel;
mod context;
mod counts;
pub mod cq;
mod cq_ex;
pub mod create_cq;
pub mod create_qp;
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
mod mapping;
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
mod qp_type;
pub mod query;
pub mod rate;
pub mod register;
pub(crate) mod shared;
pub mod srq;
pub mod sysfs;
pub mod unsupported;
mod wr;

pub use context::Context;
pub(crate) use context::tell_of_heir;
pub(crate) use listed::{Life, Listed};
