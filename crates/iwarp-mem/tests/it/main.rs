// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered memory from outside. Tests that measure their process or take its signals have a file
//! beside this folder.

#[cfg(unix)]
mod common;

mod demand;
mod describe;
mod gone;
mod last_octet;
mod lend;
mod races;
mod regions;
mod stags;
mod uses;
mod waiting;
mod windows;
