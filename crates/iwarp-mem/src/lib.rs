//! Registered memory: what a program lets the network read and write.
//!
//! [`MemoryTable`] is the RNIC's part of RFC 5041 §8.3: it ties octets of memory to STags, checks
//! every access against them and does the copying. It implements [`iwarp_proto::memory::Memory`].
//!
//! ```text
//!   region    registered octets: translation, rights, protection domain, stream
//!   window    a part of a region under an STag of its own, bound and revoked quickly
//!   table     STag -> slot; indices and keys that cannot be guessed
//!   slot      one STag's grant behind its gate
//!   gate      uses in flight, and the revocation that waits for them
//!   guard     one use: the octets of one copy or one system call
//!   place     stores received octets, the last of them last
//!   gather    loads octets to send, with their CRC in the same pass
//!   atomic    FetchAdd and CompareSwap on the program's memory
//!   buffer    owned memory that a safe program can register
//!   lend      owned memory that is the program's or the network's, never both
//!   borrow    borrowed memory, registered for the time of one call
//! ```
//!
//! # Memory that others write
//!
//! The program, its other threads, its other processes and its peers may change registered octets
//! at any moment. So nothing here makes a Rust reference to them: octets are reached by raw
//! pointers only, each is loaded once where its value decides anything (the CRC of what is sent is
//! the CRC of what was copied), and a race with the program's own accesses is the program's.
//!
//! # Revocation
//!
//! When [`MemoryTable::deregister`] or an invalidation returns, no octet of the memory is touched
//! any more, also not by a use that began before on another thread (RFC 5041 §8.3.1). A use lasts
//! for one copy, those of some consecutive segments or one system call, so that takes microseconds
//! and never depends on a peer.
//!
//! # Memory that disappears
//!
//! Registration pins nothing. A program that unmaps memory before it deregisters it breaks the
//! contract of [`MemoryTable::register`]; a copy then faults like any access of the program's own
//! would (system calls on guards report `EFAULT` instead). No signal handler is installed: that
//! belongs to the program. Registration does refuse ranges that are not mapped at that moment.

#[cfg(not(any(target_pointer_width = "32", target_pointer_width = "64")))]
compile_error!("addresses of 32 or 64 bits are assumed");

mod atomic;
mod borrow;
mod buffer;
mod copy_crc;
mod gate;
mod gather;
mod guard;
mod lend;
mod memory;
mod place;
mod random;
mod region;
mod slot;
mod sync;
mod table;
mod uses;
mod window;

pub use borrow::Borrowed;
pub use buffer::Buffer;
pub use guard::Guard;
pub use lend::{LentRegion, OwnedRegion};
pub use region::{MemoryTable, RegionChange, RegionSpec, RegisterError, Scope};
pub use uses::OpenUse;
pub use window::WindowType;
