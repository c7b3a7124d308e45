// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings of a stream, which the driver knows before it connects.

use core::time::Duration;

use super::CONTROL_REQUESTS;
use super::form::Wire;
use crate::wire::{
    ByteOrder, ConnData, Entry, Extensions, IOMAP_ENTRY_LEN, IomapSize, SGL_ENTRIES, SGL_ENTRY_LEN,
};

/// Memory that the driver has registered for the peer's Writes, and for nothing else (RS-SEC-02).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Address of the first octet, as the peer names it.
    pub addr: u64,
    /// Its key (STag).
    pub key: u32,
}

/// The settings of a stream.
#[derive(Clone, Debug)]
pub struct Config {
    /// The wire of the connection.
    pub wire: Wire,
    /// True if the queue pair can send an RDMA Write with an immediate.
    pub immediates: bool,
    /// Byte order of this host; that of the peer is in its private data.
    pub order: ByteOrder,
    /// Receives to announce; at least 1.
    pub receive_queue: u16,
    /// Requests that the send queue holds; at least [`MIN_SEND_QUEUE`](Self::MIN_SEND_QUEUE).
    pub send_queue: usize,
    /// Octets of the send buffer; at least 1.
    pub send_buffer: usize,
    /// [`table_len`](Self::table_len) octets of zeros for the peer's announcements.
    pub sgl: Memory,
    /// [`ring_len`](Self::ring_len) octets for the peer's data.
    pub ring: Memory,
    /// Octets of a half of the ring; at least 1.
    pub half: u32,
    /// Regions that the peer may map.
    pub iomap: IomapSize,
    /// Time without traffic after which a keepalive goes out.
    pub keepalive: Option<Duration>,
}

impl Config {
    /// Fewest requests of a send queue: those of control messages, and a message with its Write.
    pub const MIN_SEND_QUEUE: usize = CONTROL_REQUESTS + 2;
    /// Receives beyond those announced. While this end does not look, a peer sends at most that
    /// many messages that need no credit: its share of credits twice, two halves, the second half,
    /// two ends (RS-FLOW-09).
    pub const SPARE_RECEIVES: u32 = 8;

    /// The private data of this end.
    pub fn conn_data(&self) -> ConnData {
        ConnData {
            order: self.order,
            credits: self.receive_queue,
            extensions: Extensions::BOTH_FORMS | Extensions::SPARE_RECEIVES,
            iomap: Some(self.iomap),
            sgl: Entry { addr: self.sgl.addr, key: self.sgl.key, length: SGL_ENTRIES },
            ring: self.half_entry(0),
        }
    }

    /// Receives to post before the connection is made.
    pub fn receives(&self) -> u32 {
        u32::from(self.receive_queue) + Self::SPARE_RECEIVES
    }

    /// Octets of the receive ring.
    pub fn ring_len(&self) -> usize {
        2 * self.half as usize
    }

    /// Octets of the memory for the peer's announcements.
    pub fn table_len(&self) -> usize {
        SGL_ENTRIES as usize * SGL_ENTRY_LEN + self.iomap.entries() as usize * IOMAP_ENTRY_LEN
    }

    /// A half of the ring, for the peer.
    pub(super) fn half_entry(&self, index: u32) -> Entry {
        let addr = self.ring.addr.wrapping_add(u64::from(index) * u64::from(self.half));
        Entry { addr, key: self.ring.key, length: self.half }
    }
}
