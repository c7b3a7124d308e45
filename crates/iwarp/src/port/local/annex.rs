// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory beside the ring of a connection, in which each end leaves bytes for the other.
//!
//! A message of bytes is copied four times on its way: into registered memory, into the ring, out
//! of it, and to where the program wants it. Byte streams put the bytes here in place of that, tell
//! of them by a short message, and their peers copy them to where they belong.

use std::io;
use std::sync::Arc;

use iwarp_os::local::Ring;

use crate::port::traffic::Account;

/// The annexes of both ends of a connection. They stay, with what the peer has left in its own, for
/// as long as this object, also when the connection is over or the peer has died.
#[derive(Clone, Debug)]
pub struct Annex {
    ring: Arc<Ring>,
    /// Bytes of a packet of TCP, by which traffic is counted.
    packet: usize,
    account: Account,
}

impl Annex {
    pub(super) fn new(ring: &Arc<Ring>, packet: usize, account: &Account) -> Self {
        Self { ring: Arc::clone(ring), packet: packet.max(1), account: account.clone() }
    }

    /// Bytes of an annex.
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.ring.annex_len()
    }

    /// Puts bytes into this end's annex, where the peer looks for them once it is told.
    ///
    /// # Errors
    ///
    /// `InvalidInput` beyond the end; `ENODEV` in a forked child; `Unsupported` where the system
    /// cannot make memory present; shortages of memory.
    pub fn leave(&self, at: usize, octets: &[u8]) -> io::Result<()> {
        self.ring.leave(at, octets)
    }

    /// The peer was told of so many bytes.
    pub fn has_left(&self, octets: usize) {
        self.account.sent(octets, || octets.div_ceil(self.packet));
    }

    /// Copies bytes out of the peer's annex, which holds any bytes the peer likes.
    ///
    /// # Errors
    ///
    /// `InvalidInput` beyond the end; `ENODEV` in a forked child.
    pub fn fetch(&self, at: usize, room: &mut [u8]) -> io::Result<()> {
        self.ring.fetch(at, room)?;
        self.account.received(room.len(), || room.len().div_ceil(self.packet));
        Ok(())
    }
}
