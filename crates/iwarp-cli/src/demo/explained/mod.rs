// SPDX-License-Identifier: MIT OR Apache-2.0

//! The acts of two processes by RDMA and the frames between them, told to people: `iwarp demo
//! --explain` and `--html`.
//!
//! ```text
//!   journal   what one process did, and the bytes that it sent and received, with times
//!   deeds     verbs calls and completions in the verbs' words
//!   frames    the bytes of a connection as frames, by the parsers of the protocol crate
//!   fields    the fields of a frame by their names in the RFCs
//!   story     both journals as one story
//!   terminal  the story as text         page  the same as a page
//! ```

mod deeds;
mod fields;
mod frames;
pub(crate) mod journal;
pub(crate) mod page;
pub(crate) mod story;
pub(crate) mod terminal;

pub(crate) use deeds::Deed;
pub(crate) use journal::Journal;
