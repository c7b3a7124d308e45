// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory beside a ring, in which each side leaves bytes for the other to fetch.
//!
//! Bytes of a ring are in order and are taken once; those of an annex lie where their writer has
//! put them until it puts others there. The two sides agree on what lies where, and when it may go,
//! by what they tell each other through the ring, which also orders their accesses.

use std::io;

use rustix::io::Errno;

use super::{HEADER, Ring, Side};
use crate::part::{IoPart, IoPartMut, Place};
use crate::sync::Ordering;

/// Bytes by which an annex is made present.
const STEP: usize = 64 << 10;

impl Ring {
    /// Bytes of an annex.
    pub fn annex_len(&self) -> usize {
        self.room
    }

    /// Puts bytes into the annex of this side, `at` its beginning or further on. One thread at a
    /// time does that.
    ///
    /// # Errors
    ///
    /// `InvalidInput` beyond the end; `ENODEV` in a forked child; `EFAULT` where the bytes are not
    /// mapped; `Unsupported` before Linux 5.14 and in sandboxes, which cannot make memory present;
    /// shortages of memory.
    pub fn leave(&self, at: usize, octets: &[u8]) -> io::Result<()> {
        let place = self.annex(self.side, at, octets.len())?;
        if !self.memory.is_on_demand() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let present = self.annexed.load(Ordering::Relaxed);
        let end = at + octets.len();
        if end > present {
            let begin = self.annex_begin(self.side);
            let more = end.next_multiple_of(STEP).min(self.annex_len());
            self.memory.make_present(begin + present..begin + more)?;
            self.annexed.store(more, Ordering::Relaxed);
        }
        // SAFETY: the place is in our mapping, to which no Rust reference exists.
        whole(unsafe { IoPart::gather_into(&[IoPart::new(octets)], &[place])? }, octets.len())
    }

    /// Copies bytes out of the peer's annex. The peer may have written anything there, and be
    /// writing.
    ///
    /// # Errors
    ///
    /// `InvalidInput` beyond the end; `ENODEV` in a forked child; `EFAULT` where the room is not
    /// mapped.
    pub fn fetch(&self, at: usize, room: &mut [u8]) -> io::Result<()> {
        let place = self.annex(self.side.other(), at, room.len())?;
        let wanted = room.len();
        // SAFETY: as above.
        whole(unsafe { IoPartMut::scatter_from(&mut [IoPartMut::new(room)], &[place])? }, wanted)
    }

    fn annex_begin(&self, of: Side) -> usize {
        HEADER + 2 * self.room + of as usize * self.annex_len()
    }

    fn annex(&self, of: Side, at: usize, len: usize) -> io::Result<Place> {
        if at.checked_add(len).is_none_or(|end| end > self.annex_len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.memory.is_inherited() {
            return Err(Errno::NODEV.into());
        }
        let first = self.memory.as_ptr().wrapping_add(self.annex_begin(of) + at);
        Ok(Place { first, len })
    }
}

/// A part of what was asked for is an error: the caller's memory is there for all of it.
fn whole(copied: usize, wanted: usize) -> io::Result<()> {
    match copied == wanted {
        true => Ok(()),
        false => Err(Errno::FAULT.into()),
    }
}
