// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory behind `target_sgl`.

use iwarp_sockets::stream::Table;
use iwarp_sockets::wire::{IOMAP_ENTRY_LEN, IOMAP_OFFSET, SGL_ENTRY_LEN};

/// Octets that a peer has written.
pub(crate) struct Octets(pub(crate) Vec<u8>);

impl Table for Octets {
    fn take_sgl_entry(&mut self, index: u32) -> [u8; SGL_ENTRY_LEN] {
        let entry = self.0[index as usize * SGL_ENTRY_LEN..].first_chunk_mut().unwrap();
        std::mem::replace(entry, [0; SGL_ENTRY_LEN])
    }

    fn iomap_entry(&mut self, index: u32) -> [u8; IOMAP_ENTRY_LEN] {
        let table = &self.0[IOMAP_OFFSET as usize..];
        *table[index as usize * IOMAP_ENTRY_LEN..].first_chunk().unwrap()
    }
}
