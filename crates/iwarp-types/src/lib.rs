// SPDX-License-Identifier: MIT OR Apache-2.0

//! The vocabulary of the verbs: what programs, engine, protocols and memory have names for.
//!
//! The vocabulary knows no protocol, no socket and no clock. This crate names no other of the
//! project, and every other names this one.
//!
//! ```text
//!   number      STags, tagged offsets, protection domains, queue pairs, moments
//!   access      rights to registered memory, and why an access is refused
//!   memory      registered memory, as a protocol sees it
//!   atomic      atomic operations
//!   request     work requests
//!   operation   what is to be known of each operation, in one table
//!   completion  work completions
//!   state       states of a queue pair
//!   startup     how a connection starts, and why it may not
//!   reason      why a connection was broken off
//!   refusal     which access to memory was refused
//!   event       what a core tells the engine
//!   protocol    cores: protocols as the engine drives them
//!   list        scatter/gather lists
//!   ring        bounded queues that keep their storage
//!   receives    receive queues
//!   address     where datagrams go
//!   source      what counts as one peer
//!   datagram    packets as a datagram port takes them and hands them out
//!   delivery    the completions that a stretch of a stream brings about at the peer
//!   comm_ids    communication ids of the connection manager
//!   port_space  port spaces of the connection manager
//!   rnr_timer   times that a peer waits whose message found no receive
//!   setters     chained setters of structures that may get more fields
//!   mock        registered memory in plain vectors, for tests and simulators (a feature)
//! ```
//!
//! ```
//! use iwarp_types::{Access, Payload, SendRequest};
//!
//! let request = SendRequest::send(7, Payload::Inline(b"hello")).signaled();
//! assert!(request.signaled && request.wr_id == 7);
//! assert!(Access::REMOTE_WRITE != Access::REMOTE_READ);
//! ```
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod access;
mod address;
mod atomic;
mod comm_ids;
mod completion;
mod datagram;
mod delivery;
mod event;
pub mod list;
mod memory;
#[cfg(feature = "mock")]
pub mod mock;
mod number;
mod operation;
mod port_space;
mod protocol;
mod reason;
mod receives;
mod refusal;
mod request;
mod ring;
mod rnr_timer;
mod setters;
mod source;
mod standing;
mod startup;
mod state;

pub use access::{Access, AccessError, RemoteAccess, Usage};
pub use address::{AddressVector, Destination, gid};
pub use atomic::AtomicOp;
pub use comm_ids::CommIds;
pub use completion::{SourceQp, WcOp, WcStatus, WorkCompletion};
pub use datagram::{Numbering, OutboundTrain, Path, Trains};
pub use delivery::Delivery;
pub use event::{Cause, Event};
pub use iwarp_crc::{Digest, Polynomial};
pub use memory::{Bind, EachAnew, Invalidator, Memory, Sge, Use};
pub use number::{Accessor, PdId, QpId, Stag, TaggedOffset, Time};
pub use operation::{Ends, Extension, Extensions, Properties};
pub use port_space::PortSpace;
pub use protocol::{BoxedCore, Core, Disposition, StreamCore, Wanted};
pub use reason::{Protocol, Reason};
pub use receives::{ReceiveQueue, ended_receive};
pub use refusal::{Refusal, RefusedBy};
pub use request::{
    Limits, MAX_MESSAGE, NoPool, Payload, PostError, Receive, ReceivePool, RecvRequest, SendOp,
    SendRequest,
};
pub use ring::Ring;
pub use rnr_timer::RnrTimer;
pub use source::Source;
pub use standing::{Awaits, HeldBy, OldestSend, Standing};
pub use startup::{RtrTypes, StartupError, StartupFault};
pub use state::{QpState, QpType, TransitionError};
