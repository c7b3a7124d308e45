// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures of iWARP and RoCE v2, explained in words: the connections in a pcap or pcapng file,
//! their terms, operations and times, and the first thing that went wrong in each. The frames may
//! be of any stack or card.
//!
//! ```text
//!   file      packets out of a file        link, ip    the headers below
//!   order     packets in order of time     capture     each packet to its connection
//!   doubles   packets captured twice
//!   tcp       streams put together again   iwarp       MPA, DDP and RDMAP in them
//!   roce      packets of RoCE v2           statistics  times and sizes, counted
//!   findings  faults and troubles          verdict     the one line that counts
//!   report    the facts, for programs      text        the facts, for people
//!   spans     the facts, for a picture     words       numbers in words
//! ```
//!
//! ```
//! use iwarp_explain::{Settings, explain, text};
//!
//! // The head of a pcap file without packets.
//! let mut head = vec![0xa1, 0xb2, 0xc3, 0xd4, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0];
//! head.extend([0, 4, 0, 0, 0, 0, 0, 101]);
//! let report = explain(&head[..], &Settings::default())?;
//! assert!(text::text(&report).starts_with("0 packets"));
//! assert!(report.connections.is_empty());
//!
//! let error = explain(&b"GET / HTTP/1.1"[..], &Settings::default()).unwrap_err();
//! assert!(error.to_string().contains("not a capture"));
//! # Ok::<(), iwarp_explain::FileError>(())
//! ```
#![forbid(unsafe_code)]

mod capture;
mod doubles;
mod file;
mod findings;
mod ip;
mod iwarp;
mod link;
mod order;
mod report;
mod roce;
mod spans;
mod statistics;
mod tcp;
pub mod text;
mod verdict;
mod words;

use std::io::Read;
use std::time::Duration;

pub use file::FileError;
pub use findings::{Finding, Severity};
pub use report::{
    Connection, End, Fact, Frame, Operation, Other, Report, Span, SpanKind, Times, Value,
};
pub use verdict::{Outcome, Verdict};

/// The choices of a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Keep one line for each frame.
    pub frames: bool,
    /// A pause of this length is a stall if an end waited for the other in it.
    pub stall: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { frames: false, stall: Duration::from_millis(100) }
    }
}

/// Reads a capture to its end and explains the connections in it.
///
/// # Errors
///
/// [`FileError`] if it is no capture, or cannot be read from the start. A file that is damaged
/// later is explained up to there, and [`Report::damage`] says so.
pub fn explain(input: impl Read, settings: &Settings) -> Result<Report, FileError> {
    let mut capture = capture::Capture::new(*settings);
    let mut order = order::Order::default();
    let mut each = |packet: &file::Captured<'_>| capture.packet(packet);
    let damage = file::read(input, &mut |packet| order.add(&packet, &mut each))?;
    order.end(&mut each);
    Ok(capture.finish(damage))
}
