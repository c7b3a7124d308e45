// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requests of a stream to its driver.

use super::span::Spans;
use crate::wire::{IOMAP_ENTRY_LEN, MESSAGE_LEN};

/// Something that the driver does next, in the order in which it comes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Post so many receives, each with room for a message of 4 octets.
    PostReceives(u32),
    /// Post a request to the send queue.
    Post(Request),
    /// Tear the queue pair down: everything that has to arrive was taken by the transport, or is
    /// of no interest any more. It comes once, and last.
    Disconnect,
}

/// A request for the send queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its number. Numbers rise by one from 0.
    pub id: u64,
    /// The operation.
    pub operation: Operation,
    /// True if the request has to ask for a completion. That of a request without it may be kept
    /// back. A completion means that the transport has taken the octets.
    pub signaled: bool,
}

/// The operation of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// An RDMA Write, with an immediate if there is one.
    Write {
        /// The octets.
        source: Source,
        /// Their destination.
        addr: u64,
        /// Its key (STag).
        key: u32,
        /// The immediate as it is on the wire, which verbs call network order.
        immediate: Option<[u8; MESSAGE_LEN]>,
    },
    /// A Send of these octets.
    Send([u8; MESSAGE_LEN]),
}

/// The octets of a Write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// Octets in the send buffer.
    Buffer(Spans),
    /// A few, which fit the request itself.
    Inline(Inline),
    /// None.
    Empty,
}

/// An entry for the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inline {
    octets: [u8; IOMAP_ENTRY_LEN],
    len: usize,
}

impl Inline {
    pub(super) fn new<const N: usize>(entry: &[u8; N]) -> Self {
        let mut octets = [0; IOMAP_ENTRY_LEN];
        octets[..N].copy_from_slice(entry);
        Self { octets, len: N }
    }

    /// The octets.
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

/// A message as it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival<'a> {
    /// The immediate of an RDMA Write, in the order of the wire. An empty Write need not say so.
    Immediate([u8; MESSAGE_LEN]),
    /// The octets of a Send.
    Send(&'a [u8]),
}
