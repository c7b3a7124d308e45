// SPDX-License-Identifier: MIT OR Apache-2.0

//! The meaning of the octets: private data, messages, entries in a peer's memory, headers of
//! datagrams.
//!
//! Every decoder is total: octets give a value or an error with a name, and nothing here panics.

mod conn_data;
mod datagram;
mod entry;
mod iomap_size;
mod message;
mod order;

pub use conn_data::{CONN_DATA_LEN, ConnData, ConnDataError, Extensions};
pub use datagram::{
    DatagramError, MAX_UD_HEADER_LEN, MAX_UDP_HEADER_LEN, QPN_MASK, UdHeader, UdpHeader, UdpOp,
};
pub use entry::{Entry, IOMAP_ENTRY_LEN, IomapEntry, SGL_ENTRY_LEN, Unspannable};
pub use iomap_size::IomapSize;
pub use message::{Control, MESSAGE_LEN, Message, UnknownMessage};
pub use order::ByteOrder;

/// Entries of an SGL, by which an end announces the halves of its receive ring in turn.
pub const SGL_ENTRIES: u32 = 2;
/// Octets in front of the iomap table in the memory behind `target_sgl`.
pub const IOMAP_OFFSET: u64 = SGL_ENTRIES as u64 * SGL_ENTRY_LEN as u64;
