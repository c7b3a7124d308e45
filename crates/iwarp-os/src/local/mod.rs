// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two processes of one host that share memory: bytes pass through rings that both map, without a
//! system call while both are awake.
//!
//! ```text
//!   memory          a sealed memfd that two processes map
//!   huge            huge pages for long pieces of shared memory
//!   ring            one connection: a ring of bytes for each direction
//!     flow            the counts of one direction, which both ends keep
//!     ranges          memory of one end that the other may read where it lies
//!   marks           which connections of two processes have something new
//!     words           the words of one direction, and who sleeps
//!     armed           the completion queues of which a program waits for an event
//!   bell            wakes the other process
//!   alert           wakes its program, which waits for an event
//!   status          a page by which readers know that a process lives, and what it took back
//!   peer            copies out of another process's own memory
//!   heap            memory of this process that others of its user map
//! ```
//!
//! # The other process
//!
//! It may be another user's and hostile. It can write anything into the shared pages at any time,
//! and pass any descriptor. So each shared word is read once for each decision, and what it says is
//! held against a count of this process's own; bytes are copied out before anything judges them.
//! Memory and descriptors are checked as they come ([`SharedMemory::map`], [`Marks::join`]). A peer
//! that breaks the rules harms its own connections: a call that notices fails with `InvalidData`.
//!
//! A process whose memory is read ([`PeerMemory`]) is one of this user's, which could read this
//! process's memory as well. Its page is taken for what it says.
//!
//! # Forked children
//!
//! A child has no mapping of shared memory (`MADV_DONTFORK`), so it may do nothing with a [`Ring`]
//! or [`Marks`] that it inherits but drop them. As elsewhere in this crate, the handles above
//! check.

mod alert;
mod bell;
pub(crate) mod heap;
mod huge;
mod marks;
mod memory;
mod peer;
mod ring;
mod status;

pub use alert::Alert;
pub use heap::{ARENAS, ArenaPlace, Blocks, Heap, HeapBuffers, MappedArena};
pub use marks::{Marks, MarksFds, QUEUES, SLOTS};
pub use memory::SharedMemory;
pub use peer::{MAX_PARTS, PeerMemory, ReadError, RemotePart};
pub use ring::{Found, MAX_ROOM, Ring, ShownRange, Side};
pub use status::{Life, StatusPage};

use std::io;

/// The error of a peer that writes nonsense into shared memory.
#[cold]
fn damage(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
