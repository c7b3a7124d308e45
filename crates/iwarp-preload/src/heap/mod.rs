// SPDX-License-Identifier: MIT OR Apache-2.0

//! `malloc` and its kin, of which the large blocks lie in memory that other processes of the host
//! may map.
//!
//! `iwarp run --shared-heap` preloads this library. The drop-in library, once it is loaded, says
//! where it keeps such memory and how to get a block of it ([`functions::iwarp_heap_set`]): it is
//! what gives them to other processes. Before that, and for small blocks, every call goes on to
//! the allocator of the program, which may be another than libc's. A block is of the one kind or
//! the other by its address alone.
//!
//! The library needs nothing but libc, as it is in every process that the program starts.

mod c;
mod functions;
mod real;
