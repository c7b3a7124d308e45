// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bytes of a byte stream in shared memory: put there by the end that writes, and copied by the
//! end that reads to where its program wants them.
//!
//! The writer divides its annex into places, one for each message that may be on its way, and goes
//! round. A message needs a receive of the peer, which posts that again when its program has read
//! the message: so the peer's receives tell which places are free.

use std::io;
use std::ops::Range;

use iwarp::verbs::Annex;

/// Places of an annex at most.
const PLACES: u64 = 64;

/// A place begins at a multiple of so many bytes.
const ALIGNMENT: usize = 4096;

/// A message of fewer bytes goes with its bytes: it costs no more so.
pub(super) const LEAST: usize = 4096;

/// The places of an end that writes.
#[derive(Debug)]
pub(super) struct Shelf {
    /// Messages that the peer takes before its program reads.
    depth: u64,
    places: u64,
    /// Bytes of the annex that it uses at most.
    len: usize,
    /// There once the connection has moved to shared memory.
    annex: Option<Annex>,
    /// Messages that were sent, with their bytes here or not.
    sent: u64,
}

impl Shelf {
    /// For a peer that takes `depth` messages before its program reads, and as much of `len` bytes
    /// in shared memory as there are places for. `None` where that is none.
    pub(super) fn new(depth: u32, len: u32) -> Option<Self> {
        let (depth, len) = (u64::from(depth), len as usize);
        // The message that ends the stream has no place.
        let places = (depth - 1).min(PLACES);
        let shelf = Self { depth, places, len, annex: None, sent: 0 };
        (shelf.place_len(len) >= LEAST).then_some(shelf)
    }

    /// `find` says the annex, if the connection has moved.
    pub(super) fn annex(&mut self, find: impl FnOnce() -> Option<Annex>) -> Option<&Annex> {
        if self.annex.is_none() {
            self.annex = find();
        }
        self.annex.as_ref()
    }

    /// The place for the next message, if it is free; `granted`: messages that the peer has had
    /// receives for so far.
    pub(super) fn place(&self, granted: u64) -> Option<Range<usize>> {
        self.place_of(self.annex.as_ref()?.len(), granted)
    }

    fn place_of(&self, annex_len: usize, granted: u64) -> Option<Range<usize>> {
        let len = self.place_len(annex_len);
        let read = granted.saturating_sub(self.depth);
        let is_free = self.sent < read + self.places;
        let begin = (self.sent % self.places) as usize * len;
        (is_free && len >= LEAST).then_some(begin..begin + len)
    }

    fn place_len(&self, annex_len: usize) -> usize {
        (annex_len.min(self.len) / self.places as usize) & !(ALIGNMENT - 1)
    }

    /// A message was sent with its bytes in a place.
    pub(super) const fn count(&mut self) {
        self.sent += 1;
    }

    /// A message is about to be sent with its bytes.
    pub(super) const fn count_in(shelf: &mut Option<Self>) {
        if let Some(shelf) = shelf {
            shelf.count();
        }
    }
}

/// Bytes that lie in the peer's annex, as the message about them says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Left(pub(super) Range<usize>);

impl Left {
    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn to_octets(&self) -> [u8; 8] {
        // No annex has 4 GiB.
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_be_bytes();
        let mut octets = [0; 8];
        octets[..4].copy_from_slice(&number(self.0.start));
        octets[4..].copy_from_slice(&number(self.0.len()));
        octets
    }

    /// # Errors
    ///
    /// `InvalidData` for none, and for what is not within the annex.
    pub(super) fn parse([a, b, c, d, rest @ ..]: [u8; 8], annex: &Annex) -> io::Result<Self> {
        let [at, len] = [[a, b, c, d], rest].map(|octets| u32::from_be_bytes(octets) as usize);
        match at.checked_add(len) {
            Some(end) if len > 0 && end <= annex.len() => Ok(Self(at..end)),
            _ => {
                let error = "the peer tells of bytes outside of the shared memory";
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that takes four messages, and one that ends the stream.
    fn shelf() -> Shelf {
        Shelf::new(5, 1 << 20).unwrap()
    }

    fn places(shelf: &mut Shelf, granted: u64) -> Vec<usize> {
        let mut taken = Vec::new();
        while let Some(place) = shelf.place_of(2 << 20, granted) {
            assert_eq!(place.len(), 256 << 10);
            taken.push(place.start >> 18);
            shelf.count();
        }
        taken
    }

    #[test]
    fn a_place_is_free_once_its_message_was_read() {
        let mut shelf = shelf();
        assert_eq!(places(&mut shelf, 5), [0, 1, 2, 3]);
        assert_eq!(places(&mut shelf, 5), []);
        assert_eq!(places(&mut shelf, 7), [0, 1]);
        // A message with its bytes takes the turn of a place.
        shelf.count();
        assert_eq!(places(&mut shelf, 9), [3]);
        // A peer whose receives are not known takes none.
        assert_eq!(places(&mut shelf, 0), []);
    }

    #[test]
    fn there_are_no_more_places_than_are_worth_it() {
        let mut many = Shelf::new(u32::MAX / 2, 2 << 20).unwrap();
        let granted = u64::from(u32::MAX / 2);
        let place = many.place_of(2 << 20, granted).unwrap();
        assert_eq!(place, 0..32 << 10);
        many.sent = PLACES;
        assert_eq!(many.place_of(2 << 20, granted), None);
        assert_eq!(Shelf::new(2, u32::MAX).unwrap().place_of(2 << 20, 2), Some(0..2 << 20));
        // Too small an annex has none.
        assert_eq!(shelf().place_of(8192, 5), None);
        assert!([0, 16383].map(|len| Shelf::new(5, len).is_none()) == [true; 2]);
        assert!(Shelf::new(5, 16384).is_some());
    }
}
