// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tools under which the program may run as well. They see what the program does to its memory, and
//! learn here what the device does to it.
//!
//! ```text
//!   address    AddressSanitizer: memory that is not to be used
//!   memcheck   Valgrind: memory that holds nothing yet, or not yet for the program
//!   threads    ThreadSanitizer: accesses that nothing orders
//! ```
//!
//! Functions of the sanitizers are looked up once, in the program and its libraries.

mod address;
mod memcheck;
mod threads;

use std::ffi::{CStr, c_void};
use std::ops::Range;

use self::address::Address;
use self::memcheck::Memcheck;
use self::threads::Threads;
use super::flights::Queue;

/// The tools that are there.
#[derive(Debug)]
pub(super) struct Tools {
    address: Option<Address>,
    threads: Option<Threads>,
    memcheck: Option<Memcheck>,
}

impl Default for Tools {
    fn default() -> Self {
        let (address, threads) = (Address::find(), Threads::find());
        Self { address, threads, memcheck: Memcheck::find() }
    }
}

/// A function of the process by its name.
fn function(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: it only looks the name up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

impl Tools {
    /// True if accesses of the device are of interest.
    pub(super) fn watch(&self) -> bool {
        self.address.is_some() || self.threads.is_some() || self.memcheck.is_some()
    }

    /// The first byte that the device must not use, if there is one.
    pub(super) fn poisoned(&self, memory: &Range<usize>) -> Option<usize> {
        self.address.as_ref()?.poisoned(memory)
    }

    /// The program has posted a request with this memory.
    pub(super) fn posted(&mut self, queue: Queue, memory: &[Range<usize>], sink: bool) {
        if let Some(threads) = &mut self.threads {
            threads.posted(queue);
        }
        if let Some(memcheck) = &self.memcheck
            && !sink
        {
            memory.iter().for_each(|memory| memcheck.look_at(memory));
        }
    }

    /// The device has read or written memory of a request of that queue.
    pub(super) fn used(&mut self, pair: u32, queue: Queue, memory: &Range<usize>, write: bool) {
        if let Some(threads) = &mut self.threads {
            threads.used(pair, queue, memory, write);
        }
        if write {
            self.written(memory);
        }
    }

    /// The device has written memory of the program.
    pub(super) fn written(&self, memory: &Range<usize>) {
        if let Some(memcheck) = &self.memcheck {
            memcheck.define(memory);
        }
    }

    /// The device has this memory for itself: what is there holds nothing for the program.
    pub(super) fn hide(&self, memory: &Range<usize>) {
        if let Some(memcheck) = &self.memcheck {
            memcheck.undefine(memory);
        }
    }

    /// A request of a queue pair has ended.
    pub(super) fn ended(&mut self, pair: u32) {
        if let Some(threads) = &mut self.threads {
            threads.ended(pair);
        }
    }

    /// The program has polled a completion of a queue pair.
    pub(super) fn polled(&self, pair: u32) {
        if let Some(threads) = &self.threads {
            threads.polled(pair);
        }
    }

    /// The device has no requests of a queue pair any more.
    pub(super) fn emptied(&mut self, pair: u32) {
        if let Some(threads) = &mut self.threads {
            threads.emptied(pair);
        }
    }

    /// The program may know of all ends so far.
    pub(super) fn settle(&mut self) {
        if let Some(threads) = &mut self.threads {
            threads.settle();
        }
    }
}
