// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections and memory that cannot be misused: blocking, or async with the feature `tokio`.
//!
//! The [verbs](iwarp::verbs) share memory with the network and leave it to the program to keep
//! away from it. Here the types see to that:
//!
//! - A [`Block`] is memory that is the program's or an operation's, never both. An operation takes
//!   it by value, so nothing can touch it, send it twice or free it meanwhile; it comes back when
//!   the operation is done, successfully or not. While the program has it, its STag is shut, and
//!   no completion, flush or peer gets round that. A part of it ([`Block::set_range`]) or
//!   [several](Blocks) go into an operation likewise, receives among them.
//! - [`Exposed`] memory is what peers reach with Writes, Reads and atomic operations whenever they
//!   like. It is copied in and out and never borrowed. A [`Grant`] tells the peer where it is.
//! - A [`Session`] is a connected queue pair with its completion queue. Its operations are posted
//!   when they are called and return a [`Pending`], for [`wait`](Pending::wait) or `.await`.
//! - A [`Receiver`] keeps receives posted and gives the messages one by one. A [`Permit`] is a
//!   place in the send queue that was waited for, as [`BlockPool::take`] waits for a block;
//!   [`Credits`] are for messages of which the peer has to have room as well. A [`Batch`] posts
//!   several operations at once; several places, or credits, can be waited for at once for it. With
//!   the feature `tokio` a receiver is a `Stream`, and a `Sender` a `Sink`.
//! - A [`ByteStream`] is read and written like a TCP stream, for programs and libraries that know
//!   no messages.
//! - [`Session::scope`] lends memory that is only borrowed, like [`std::thread::scope`].
//!
//! ```
//! use iwarp::Device;
//! use iwarp_session::{BlockPool, Config, Listener, Session};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open()?;
//! let listener = Listener::bind(&device.alloc_pd(), "127.0.0.1:0")?;
//! let addr = listener.local_addr().ok_or("no address")?;
//!
//! type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;
//! let server = std::thread::spawn(move || -> Outcome {
//!     let request = listener.accept().wait()?;
//!     let pool = BlockPool::new(request.pd(), 4096, 4)?;
//!     // Receives must be there before the peer can send.
//!     let prepared = Config::default().prepare(request.pd())?;
//!     let mut receiver = prepared.receiver(&pool, 2)?;
//!     let session = prepared.accept(request).wait()?;
//!     while let Some(mut question) = receiver.recv().wait()? {
//!         question.block.make_ascii_uppercase();
//!         session.send(question.block).wait()?;
//!     }
//!     Ok(())
//! });
//!
//! let pd = device.alloc_pd();
//! let pool = BlockPool::new(&pd, 4096, 4)?;
//! let session = Session::connect(&pd, addr).wait()?;
//! let answer = session.recv(pool.take().wait()?);
//! session.send_inline(b"hello").wait()?;
//! assert_eq!(&*answer.wait()?.block, b"HELLO");
//! session.close().wait()?;
//! # server.join().unwrap().unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! All of these are `Send` and `Sync`. With the feature `tokio` the runtime needs I/O enabled, and
//! time for closing.
//!
//! # Cancellation
//!
//! Each type that can be waited for says under "Cancel safety" what dropping it loses. Waiting for
//! a message of a [`Receiver`], for a connection request, a block, a place in the send queue or the
//! end of the connection can be given up at any moment and begun again: nothing is lost.
//!
//! Dropping a [`Pending`], or the future around it, at any moment is safe and loses nothing but
//! the outcome, which for a receive is the message: the operation was posted and goes on, its block
//! stays with it until it is done and then goes back to its pool. There is no way to take an
//! operation back but to end the connection: with [`Session::close`], by dropping the session (both
//! in good order: Sends and Writes that were accepted still go out, the rest ends with
//! [`OperationError::Disconnected`]), or with [`Session::abort`].
//!
//! # What is refused
//!
//! Using a block while an operation has it:
//!
//! ```compile_fail,E0382
//! # use iwarp_session::{Block, Session};
//! fn change_what_is_being_sent(session: &Session, mut block: Block) {
//!     let sending = session.send(block);
//!     block[0] = 1; // moved into the operation
//!     sending.wait().unwrap();
//! }
//! ```
//!
//! Reading a block before its message has come:
//!
//! ```compile_fail,E0505
//! # use iwarp_session::{Block, Session};
//! fn look_early(session: &Session, block: Block) -> u8 {
//!     let first: &u8 = &block[0];
//!     let receiving = session.recv(block); // `first` still borrows it
//!     *first
//! }
//! ```
//!
//! Sending a block twice:
//!
//! ```compile_fail,E0382
//! # use iwarp_session::{Block, Session};
//! fn twice(session: &Session, block: Block) {
//!     let one = session.send(block);
//!     let two = session.send(block);
//! }
//! ```
//!
//! A reference to memory that a peer may change:
//!
//! ```compile_fail,E0608
//! # use iwarp_session::Exposed;
//! fn borrow(exposed: &Exposed) -> &u8 {
//!     &exposed[0]
//! }
//! ```
//!
//! One's own grant as the target of a Write, or exposed memory as a message:
//!
//! ```compile_fail,E0308
//! # use iwarp_session::{Block, Exposed, Session};
//! fn to_myself(session: &Session, block: Block, exposed: &Exposed) {
//!     let _ = session.write(block, &exposed.grant(), 0);
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use iwarp_session::{Exposed, Session};
//! fn send_exposed(session: &Session, exposed: Exposed) {
//!     let _ = session.send(exposed);
//! }
//! ```
//!
//! Posting sends before there is a connection:
//!
//! ```compile_fail,E0599
//! # use iwarp_session::{Block, Unconnected};
//! fn too_early(prepared: &Unconnected, block: Block) {
//!     let _ = prepared.send(block);
//! }
//! ```
//!
//! For borrowed memory see [`Scope`]; for values in place of bytes the module `typed`, with the
//! feature `zerocopy`.
//!
//! # Features
//!
//! None is on unless the program asks for it.
//!
//! | Feature | Brings |
//! |---|---|
//! | `tokio` | `.await` where the examples say `.wait()`; `AsyncRead` and `AsyncWrite` for byte streams |
//! | `zerocopy` | the module `typed`: memory as values in place of bytes |
//! | `serde` | `Grant` and `RemoteGrant` in the formats of serde |
//! | `metrics` | the numbers of sessions for the recorder of the crate `metrics` |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod balance;
mod batch;
mod block;
mod blocks;
mod cargo;
mod closed;
mod config;
mod credits;
mod error;
mod exposed;
mod failure;
mod feed;
#[cfg(feature = "serde")]
mod grant_serde;
mod lending;
mod line;
mod list;
mod listener;
#[cfg(feature = "metrics")]
mod meters;
mod metrics;
#[cfg(not(feature = "metrics"))]
mod no_meters;
mod operations;
mod outcome;
mod pending;
mod permit;
mod pool;
mod post;
mod readable;
#[cfg(feature = "tokio")]
mod readiness;
mod received;
mod receiver;
mod receivers;
mod scope;
#[cfg(feature = "tokio")]
mod sender;
mod setup;
pub mod stream;
mod table;
#[cfg(feature = "tokio")]
mod task;
#[cfg(test)]
mod testing;
#[cfg(feature = "zerocopy")]
pub mod typed;
mod work;

#[cfg(not(feature = "metrics"))]
use no_meters as meters;

pub use batch::Batch;
pub use block::Block;
pub use blocks::{Blocks, Room};
pub use closed::Closed;
pub use config::Config;
pub use credits::{Credit, Crediting, Credits};
pub use error::OperationError;
pub use exposed::{Exposed, GRANT_LEN, Grant, RemoteGrant};
pub use failure::Failure;
pub use iwarp::Operations;
pub use listener::{Accepting, ListenConfig, Listener, Request};
#[cfg(feature = "metrics")]
pub use meters::describe_metrics;
pub use metrics::{Metrics, StreamMetrics};
pub use operations::{Closing, Session};
pub use outcome::Outcome;
pub use pending::Pending;
pub use permit::{Permit, Reserving};
pub use pool::{BlockPool, Taking};
pub use post::Posts;
pub use received::Received;
pub use receiver::{Pools, Receiver, Receiving};
pub use scope::Scope;
#[cfg(feature = "tokio")]
pub use sender::Sender;
pub use setup::{Connecting, Unconnected};
pub use stream::ByteStream;
#[cfg(feature = "tokio")]
pub use task::ClosingFuture;
#[cfg(feature = "zerocopy")]
pub use typed::{ExposedSlice, RemoteSlice, TypedBlock};
pub use work::SendFlags;

/// The code in README.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
