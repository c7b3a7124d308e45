// SPDX-License-Identifier: MIT OR Apache-2.0

//! The C interface of libibverbs and librdmacm over the [`iwarp`] crate: what the two drop-in
//! libraries `libibverbs.so.1` and `librdmacm.so.1` are made of.
//!
//! ```text
//!   abi      the structures and numbers of the C headers
//!   verbs    the functions of infiniband/verbs.h
//!   cm       the functions of rdma/rdma_cma.h and rdma_verbs.h
//!   rsocket  the functions of rdma/rsocket.h
//!   guard    the boundary: errno, panics
//!   refuse   error numbers, each with a sentence that says why
//!   heap     memory that processes share, for the program's allocator
//!   calls    names and arguments of calls, for refusals and observers
//!   trace    an observer that writes all of it to the log
//!   check    an observer that tells the program's misuse of verbs
//!   several  observers that are told together
//!   log      lines on standard error
//! ```
//!
//! The functions here are exported by the packages in `ibverbs/` and `rdmacm/`, whose `exports.txt`
//! say which symbol in which version is which function.
//!
//! # Safety
//!
//! A function that takes a reference is called from C with a pointer. The C program promises what
//! the manual pages ask: the pointer is one that this library gave it, or memory that it filled in
//! as the call asks, and an object is not used after it was destroyed. Objects are made by
//! `Box::into_raw` and freed by the call that destroys them; what a program sees of them is their
//! first field, a structure of [`abi`].
//!
//! # Exports
//!
//! `libibverbs.so.1` holds everything; `librdmacm.so.1` is a jump to `iwcm_*` symbols of the first
//! for each of its names, so that a process has one engine whichever is loaded first. `exports.txt`
//! of each is the single source for names, versions and implementations. The build script turns it
//! into trampolines with `.symver` and a version script with empty nodes. `#[no_mangle]` and a
//! script would silently lose the versions, as rustc passes a script of its own. A test compares
//! the result with a checked-in list and with Debian's libraries.
//!
//! # Objects
//!
//! Objects have the layout of the C headers (checked against the installed ones), followed by the
//! library's own. Queue pairs and completion queues are always the extended kind. Posting and
//! polling go from the program's pointer to the endpoint without a table. Waits are cancellation
//! points whose frames own nothing; every other call puts a cancellation off until it returns.
//!
//! A C object without connections is `Heritable`: the first call that uses it in a forked child
//! makes the child's own behind the program's pointer, so `daemon()` after `rdma_listen` works as
//! with a device whose state is in the kernel.
//!
//! # Personalities
//!
//! `iwarp` follows the RFCs: a completed Send or Write is in the transport's hands, and a Send that
//! finds no receive ends the connection. `roce` behaves as programs for InfiniBand expect:
//! completed means received, and a Send waits for its receive. That costs a Read of no bytes behind
//! signalled requests, at most one at a time. UD and UC queue pairs do not differ.

#![cfg(target_os = "linux")]
#![allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "functions that C calls; what it promises of its pointers is said above"
)]

pub mod abi;
pub mod calls;
mod check;
pub mod cm;
pub mod guard;
pub mod heap;
mod log;
mod refuse;
pub mod reserve;
pub mod rsocket;
mod several;
mod trace;
pub mod verbs;
