// SPDX-License-Identifier: MIT OR Apache-2.0

//! Allocations that may fail.
//!
//! Large allocations are requested in a way that may fail. Small objects (`Arc`, `Box`, nodes of
//! maps) cannot be requested like that, so a call that is about to make some first requests room
//! for all of them: a process that has that much left in one piece also has it for them.
//!
//! # Out of memory
//!
//! Memory is *large or growing* if a program or a peer decides its size. It is asked for with
//! `try_reserve` or [`zeroed`].
//!
//! - A completion queue has room for all its completions from the start (pages that are not used
//!   are not touched). The queue pair's events have room for the completion of each request from
//!   the moment it is posted. So completing needs no memory. The lists of queue pair numbers and of
//!   a completion queue's owners have room for giving entries back.
//! - Work queues grow with the number of requests posted at one time. A post that finds no memory
//!   queues nothing and returns `OutOfMemory` (`ENOMEM`, and `bad_wr`).
//! - Peers cannot post, so a shortage of memory for their data, parked messages and parts of FPDUs,
//!   ends their connection with Terminate 0/0/00. A receiving thread that gets no staging takes its
//!   turn with the device's own. If there is no transmit queue, sending waits 10 ms and is retried
//!   on the worker, which has one. An incoming connection is refused with one line.
//! - Small objects (`Arc`, `Box`, map nodes, log lines: up to 4 KiB) cannot be refused in stable
//!   Rust. Each call that makes an object or a connection first asks for room for all of them in
//!   one piece ([`afford`], 32 KiB, given back at once), which guarantees nothing if other threads
//!   allocate as well. A Rust program has the allocator of its choice; if that has less than 4 KiB
//!   left, Rust ends the process.
//! - The C library ends the process if it cannot register the destructor of a thread-local, so the
//!   library first touches its thread-locals after the same request.

use std::alloc::{Layout, alloc_zeroed};

/// More than all the small objects need that one call makes: a queue pair, a connection.
const SMALL_OBJECTS: usize = 32 * 1024;

/// There is no memory for it (`ENOMEM`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("out of memory")]
pub struct OutOfMemory;

impl From<OutOfMemory> for std::io::Error {
    fn from(_: OutOfMemory) -> Self {
        std::io::ErrorKind::OutOfMemory.into()
    }
}

/// Checks that there is room for the small objects of one call. Ask before the call makes any.
/// Other threads may take the room meanwhile, so the answer helps a process that runs short, not
/// one that has nothing left.
///
/// # Errors
///
/// [`OutOfMemory`]
pub fn afford() -> Result<(), OutOfMemory> {
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(SMALL_OBJECTS).map_err(|_| OutOfMemory)?;
    // Else the compiler may see that it is never used and leave both out.
    std::hint::black_box(&mut probe);
    Ok(())
}

/// `len` bytes of zero; pages of them cost nothing until they are touched.
///
/// # Errors
///
/// [`OutOfMemory`]
pub fn zeroed(len: usize) -> Result<Vec<u8>, OutOfMemory> {
    let layout = Layout::array::<u8>(len).map_err(|_| OutOfMemory)?;
    if len == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return Err(OutOfMemory);
    }
    // SAFETY: allocated just now by the global allocator, all of it initialised.
    Ok(unsafe { Vec::from_raw_parts(memory, len, len) })
}

/// `count` of them, each made by `one`.
///
/// # Errors
///
/// [`OutOfMemory`]
pub fn filled<T>(count: usize, one: impl FnMut() -> T) -> Result<Box<[T]>, OutOfMemory> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| OutOfMemory)?;
    all.extend(std::iter::repeat_with(one).take(count));
    Ok(all.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_sizes_are_refused() {
        assert_eq!(zeroed(usize::MAX), Err(OutOfMemory));
        assert_eq!(zeroed(isize::MAX as usize), Err(OutOfMemory));
        assert_eq!(zeroed(0), Ok(Vec::new()));
        assert_eq!(zeroed(3), Ok(vec![0; 3]));
        assert_eq!(afford(), Ok(()));
    }
}
