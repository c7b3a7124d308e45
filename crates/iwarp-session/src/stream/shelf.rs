// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bytes of a byte stream in shared memory: put there by the end that writes, and copied by the
//! end that reads to where its program wants them.
//!
//! The writer divides its annex into places, one for each message about bytes there, and goes
//! round. Such a message needs a receive of the peer like any other, and the peer posts that again
//! when its program has read the message: so the peer's receives tell which places are free.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use iwarp::verbs::Annex;

/// Places of an annex at most.
const PLACES: usize = 64;

/// A place begins at a multiple of so many bytes.
const ALIGNMENT: usize = 4096;

/// A message of fewer bytes goes with its bytes: it costs no more so.
pub(super) const MIN_PLACED: usize = 4096;

/// The places of an end that writes.
#[derive(Debug)]
pub(super) struct Shelf {
    /// Messages that the peer takes before its program reads.
    depth: u64,
    /// Bytes of the annex that it uses at most.
    len: usize,
    /// Bytes that a message with its bytes may have.
    message_len: usize,
    /// There once the connection has moved to shared memory.
    annex: Option<Annex>,
    /// Messages that were sent, of either kind.
    sent: u64,
    /// The numbers of the messages whose places are not known to be free, in their order.
    taken: VecDeque<u64>,
    /// The place for the next message.
    next: usize,
}

impl Shelf {
    /// For a peer that takes `depth` messages before its program reads, each with up to
    /// `message_len` bytes, and `len` bytes in shared memory. `None` where that is no more than it
    /// takes in messages.
    pub(super) fn new(depth: u32, message_len: usize, len: u32) -> Option<Self> {
        let shelf = Self {
            depth: depth.into(),
            len: len as usize,
            message_len,
            annex: None,
            sent: 0,
            taken: VecDeque::new(),
            next: 0,
        };
        shelf.place_len(usize::MAX).map(|_| shelf)
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
    pub(super) fn place(&mut self, granted: u64) -> Option<Range<usize>> {
        self.place_of(self.annex.as_ref()?.len(), granted)
    }

    fn place_of(&mut self, annex_len: usize, granted: u64) -> Option<Range<usize>> {
        let len = self.place_len(annex_len)?;
        let read = granted.saturating_sub(self.depth);
        while self.taken.front().is_some_and(|number| *number < read) {
            self.taken.pop_front();
        }
        if self.taken.is_empty() {
            // Streams that pass little use no more memory than they need.
            self.next = 0;
        }
        let begin = self.next * len;
        (self.taken.len() < self.places()).then_some(begin..begin + len)
    }

    /// A message about bytes in that place was sent.
    pub(super) fn sent_placed(&mut self) {
        self.taken.push_back(self.sent);
        self.next = (self.next + 1) % self.places();
        self.sent += 1;
    }

    /// So many messages were sent with their bytes, or fewer: then places are free later.
    pub(super) const fn sent_whole(&mut self, messages: usize) {
        self.sent += messages as u64;
    }

    fn places(&self) -> usize {
        // The message that ends the stream has none.
        usize::try_from(self.depth - 1).map_or(PLACES, |places| places.min(PLACES))
    }

    /// Bytes of a place: as many as a message may have with it, or more.
    fn place_len(&self, annex_len: usize) -> Option<usize> {
        let len = (annex_len.min(self.len) / self.places()) & !(ALIGNMENT - 1);
        (len >= MIN_PLACED.max(self.message_len)).then_some(len)
    }
}

/// Bytes that lie in the annex of the end which has written them, as the message about them says
/// it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Placed(pub(super) Range<usize>);

impl Placed {
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

    /// The bytes that the octets mean; `None` for no bytes, and for what is not within the annex.
    pub(super) fn parse([a, b, c, d, rest @ ..]: [u8; 8], annex_len: usize) -> Option<Self> {
        let [at, len] = [[a, b, c, d], rest].map(|octets| u32::from_be_bytes(octets) as usize);
        let end = at.checked_add(len).filter(|end| len > 0 && *end <= annex_len)?;
        Some(Self(at..end))
    }
}

/// The peer says what cannot be.
pub(super) fn broken() -> io::Error {
    let error = "the peer tells of bytes that are not in the shared memory";
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNEX: usize = 2 << 20;

    /// A peer that takes four messages of up to 1000 bytes, and one that ends the stream.
    fn shelf() -> Shelf {
        Shelf::new(5, 1000, 1 << 20).unwrap()
    }

    fn places(shelf: &mut Shelf, granted: u64) -> Vec<usize> {
        let mut taken = Vec::new();
        while let Some(place) = shelf.place_of(ANNEX, granted) {
            assert_eq!(place.len(), 256 << 10);
            taken.push(place.start >> 18);
            shelf.sent_placed();
        }
        taken
    }

    #[test]
    fn a_place_is_free_once_its_message_was_read() {
        let mut shelf = shelf();
        assert_eq!(places(&mut shelf, 5), [0, 1, 2, 3]);
        assert_eq!(places(&mut shelf, 5), [0; 0]);
        assert_eq!(places(&mut shelf, 7), [0, 1]);
        // A message with its bytes has none, and is read in its turn.
        shelf.sent_whole(1);
        assert_eq!(places(&mut shelf, 9), [2, 3]);
        assert_eq!(places(&mut shelf, 10), [0]);
        assert_eq!(places(&mut shelf, 12), [1]);
        // A peer whose receives are not known frees none.
        assert_eq!(places(&mut shelf, 0), [0; 0]);
    }

    #[test]
    fn a_stream_of_which_all_was_read_begins_at_the_beginning() {
        let mut shelf = shelf();
        for round in 0..10 {
            assert_eq!(shelf.place_of(ANNEX, 5 + 2 * round).unwrap().start, 0);
            shelf.sent_placed();
            shelf.sent_whole(1);
        }
    }

    #[test]
    fn there_are_no_more_places_than_are_worth_it() {
        let granted = u64::from(u32::MAX / 2);
        let mut many = Shelf::new(u32::MAX / 2, 1, 2 << 20).unwrap();
        assert_eq!(many.place_of(ANNEX, granted), Some(0..32 << 10));
        (0..PLACES).for_each(|_| many.sent_placed());
        assert_eq!(many.place_of(ANNEX, granted), None);
        // One that was read frees one, and those behind it none.
        many.sent_whole(100);
        assert_eq!(many.place_of(ANNEX, granted + 1), Some(0..32 << 10));
        let mut one = Shelf::new(2, 1, u32::MAX).unwrap();
        assert_eq!(one.place_of(ANNEX, 2), Some(0..ANNEX));
    }

    /// Otherwise less would be on its way than without it.
    #[test]
    fn a_place_takes_as_much_as_a_message() {
        assert!([0, 16383].map(|len| Shelf::new(5, 1, len).is_none()) == [true; 2]);
        assert!(Shelf::new(5, 1, 16384).is_some());
        assert!(Shelf::new(5, 8192, 32767).is_none());
        assert!(Shelf::new(5, 8192, 32768).is_some());
        // Too small an annex has none.
        assert_eq!(shelf().place_of(8192, 5), None);
    }

    #[test]
    fn bytes_that_are_told_of_are_within_the_annex() {
        for range in [0..1, 4095..ANNEX, 0..ANNEX] {
            let told = Placed(range.clone()).to_octets();
            assert_eq!(Placed::parse(told, ANNEX), Some(Placed(range)));
        }
        for outside in [0..0, 7..7, ANNEX..ANNEX + 1, 1..ANNEX + 1] {
            assert_eq!(Placed::parse(Placed(outside).to_octets(), ANNEX), None);
        }
        assert_eq!(Placed::parse([0xff; 8], ANNEX), None);
    }
}
