// SPDX-License-Identifier: MIT OR Apache-2.0

//! A conformance tester for iWARP (MPA, DDP, RDMAP: RFC 5044, 5041, 5040, 6581, 7306), for
//! anybody's stack, card or driver. The command `iwarp conform` runs it.
//!
//! It depends on nothing of this project: its encoder and decoder (`wire`) are its own, small and
//! slow, so that a mistake of the stack that it tests is not repeated here. Its cases are data:
//! `conformance/CASES.md` says how a case is written.
#![forbid(unsafe_code)]

pub mod case;
pub mod catalog;
mod link;
pub mod order;
pub mod pcapng;
pub mod peer;
pub mod readings;
pub mod report;
pub mod requirements;
pub mod run;
mod stream;
pub mod text;
pub mod transport;
pub mod verdict;
pub mod wire;

pub use link::{Event, Record, What};
