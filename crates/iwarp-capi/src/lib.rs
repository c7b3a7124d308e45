// SPDX-License-Identifier: MIT OR Apache-2.0

//! The C interface of libibverbs and librdmacm over the [`iwarp`] crate: what the two drop-in
//! libraries `libibverbs.so.1` and `librdmacm.so.1` are made of.
//!
//! ```text
//!   abi      the structures and numbers of the C headers
//!   verbs    the functions of infiniband/verbs.h
//!   cm       the functions of rdma/rdma_cma.h, rdma_verbs.h and rsocket.h
//!   guard    the boundary: errno, panics
//!   refuse   error numbers, each with a sentence that says why
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

#![cfg(target_os = "linux")]
#![allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "functions that C calls; what it promises of its pointers is said above"
)]

pub mod abi;
pub mod cm;
pub mod guard;
mod log;
mod refuse;
pub mod reserve;
pub mod verbs;
