// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered memory, which a program lets the network read and write.
//!
//! [`MemoryTable`] is the RNIC's part of RFC 5041 §8.3: it ties bytes of memory to STags, checks
//! every access against them and does the copying. It implements [`iwarp_types::Memory`].
//!
//! ```text
//!   region    registered bytes:  translation, rights, protection domain, stream
//!   window    a part of a region under an STag of its own, bound and revoked quickly
//!   table     STag -> slot; indices and keys that cannot be guessed
//!   buckets   how the table finds a slot by its index
//!   slot      one STag's grant behind its gate
//!   gate      uses in flight, and the revocation that waits for them
//!   guard     one use: the bytes of one copy or one system call
//!   reach     loads and stores that survive memory that is gone
//!   fault     the signal handler that makes them do so
//!   probe     what registration finds out about memory
//!   prefetch  has the memory of a region there before it is accessed
//!   place     stores received bytes, the last of them last
//!   gather    loads bytes to send, with their CRC in the same pass
//!   copy      plain copies, for transports that no system call serves
//!   atomic    FetchAdd and CompareSwap on the program's memory
//!   buffer    owned memory that a safe program can register
//!   source    where the memory of buffers comes from, if not from the allocator
//!   lend      owned memory that is the program's or the network's, never both
//!   readers   other processes that have the addresses of registered memory
//!   borrow    borrowed memory, registered for the time of one call
//!   observe   who is told of each access
//!   room      memory that may not be there
//!   describe  what a key stands for, in the words of a log
//! ```
//!
//! # Memory that others write
//!
//! The program, its other threads, its other processes and its peers may change registered bytes at
//! any moment. So nothing here makes a Rust reference to them: bytes are reached by raw pointers
//! only, each is loaded once where its value decides anything (the CRC of sent bytes is the CRC of
//! the copied bytes), and the program is responsible for races with its own accesses.
//!
//! # Revocation
//!
//! When [`MemoryTable::deregister`] or an invalidation returns, no byte of the memory is touched
//! any more, not even by a use that began before on another thread (RFC 5041 §8.3.1). A use lasts
//! for one copy, the copies of some consecutive segments or one system call, so revocation takes
//! microseconds and never depends on a peer.
//!
//! A process of this host that was given an address to read from ([`Readers`]) may still do so. It
//! is told before that what it reads then does not count. One that writes to memory that it maps is
//! waited for, and if it does not stop, the memory is taken out of its reach.
//!
//! # Memory that disappears
//!
//! Registration pins nothing. A program may unmap, protect or truncate memory while it is
//! registered. That is a mistake of the program, but it ends no process: the access fails with
//! [`AccessError::BadAddress`](iwarp_types::AccessError::BadAddress), and system calls on guards
//! with `EFAULT`. To this end the first region of a program's own memory installs a handler of
//! SIGSEGV and SIGBUS (on Linux; [`Buffer`]s need none). The handler passes all other faults to the
//! program's own handler, and reinstalls itself if the program has installed one later: each thread
//! looks before it accesses regions. Meanwhile it has the two signals unblocked, and afterwards as
//! they were ([`admit_faults`]).
//!
//! For a region registered [`ON_DEMAND`](iwarp_types::Access::ON_DEMAND) it is no mistake: its
//! memory may be mapped later, unmapped, and mapped again.
//!
//! Memory that was unmapped and mapped anew at the same address is other memory, which the table
//! cannot distinguish from the registered memory: finding out would take a system call for each
//! access, and even that would not hold for the next moment. So the network reads and writes the
//! new memory, with the rights of the registration, as through any pointer that was kept too long.
//! It never reaches anything but the program's own memory at the addresses that the program
//! registered.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use iwarp_mem::{Buffer, MemoryTable, Scope};
//! use iwarp_types::{Access, AccessError, Accessor, Memory, PdId, QpId, TaggedOffset};
//!
//! let (table, buffer) = (MemoryTable::new(), Arc::new(Buffer::new(4096)));
//! let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::ZERO_BASED;
//! let stag = table.register_buffer(PdId(1), &buffer, access, Scope::Domain)?;
//!
//! // What an RDMA Write does, and one that goes too far.
//! let peer = Accessor { pd: PdId(1), qp: QpId(2) };
//! table.place_remote(peer, stag, TaggedOffset(4091), b"hello")?;
//! assert_eq!(&buffer.to_vec()[4091..], b"hello");
//! let beyond = table.place_remote(peer, stag, TaggedOffset(4092), b"hello");
//! assert_eq!(beyond, Err(AccessError::Bounds));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(not(any(target_pointer_width = "32", target_pointer_width = "64")))]
compile_error!("addresses of 32 or 64 bits are assumed");

mod atomic;
mod borrow;
mod buckets;
mod buffer;
mod copy;
mod copy_crc;
mod describe;
#[cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64", not(any(miri, kernel_copies)))),
    path = "fault/none.rs"
)]
mod fault;
mod gate;
mod gather;
mod guard;
mod inherit;
mod lend;
mod memory;
mod observe;
mod place;
mod prefetch;
#[cfg(all(target_os = "linux", not(miri)))]
mod probe;
mod random;
mod reach;
mod readers;
mod region;
mod room;
mod slot;
mod source;
mod sync;
mod table;
mod uses;
mod window;

pub use borrow::Borrowed;
pub use buffer::Buffer;
pub use copy::{copy_in, copy_out, place_at, update_at};
pub use describe::{Described, Key};
pub use fault::{
    Admitted, Staying, admit as admit_faults, hold_stores, keep as keep_fault_handler,
    stay_admitted as stay_admitted_to_faults,
};
pub use guard::Guard;
pub use lend::{LentRegion, OwnedRegion};
pub use observe::{AccessObserver, Span, Store};
pub use prefetch::{Prefetch, PrefetchError};
pub use readers::Readers;
pub use region::{MemoryTable, RegionChange, RegionSpec, RegisterError, Scope};
pub use room::{OutOfMemory, afford, filled, zeroed};
pub use source::{BufferSource, set_buffer_source};
pub use uses::OpenUse;
pub use window::WindowType;
