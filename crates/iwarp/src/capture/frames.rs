// SPDX-License-Identifier: MIT OR Apache-2.0

//! The units of MPA in one direction of a stream. Each gets a packet of its own, whichever calls
//! have moved it: readers of packets that are cut find all headers at the beginning of one.

use iwarp_proto::mpa::wire::{
    CRC_FIELD, FRAME_HEADER, Frame, FrameKind, LENGTH_FIELD, trailer_len,
};
use iwarp_types::Digest;

use super::packet::MOST;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Frames {
    kind: Kind,
    /// Bytes of the unit that have not come, once its length is known.
    left: usize,
    /// The beginning of a unit whose length is not known yet.
    head: [u8; FRAME_HEADER],
    have: usize,
    /// Bytes to come that belong to no unit.
    aside: usize,
    puts_crcs: bool,
    has_markers: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Startup,
    Fpdus,
    /// Markers stand between the units, or they are not MPA's.
    Other,
}

/// A piece of a stream that goes into one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) len: usize,
    /// It ends a start-up frame, which asks for markers.
    pub(super) asks_for_markers: bool,
    /// It belongs to no unit.
    pub(super) is_aside: bool,
}

impl Frames {
    pub(super) const fn new() -> Self {
        Self {
            kind: Kind::Startup,
            left: 0,
            head: [0; FRAME_HEADER],
            have: 0,
            aside: 0,
            puts_crcs: false,
            has_markers: false,
        }
    }

    /// Of a stream that is seen from its middle on: where its units begin is not known.
    pub(super) const fn of_the_rest() -> Self {
        Self { kind: Kind::Other, ..Self::new() }
    }

    /// The next `len` bytes belong to no unit.
    pub(super) fn set_aside(&mut self, len: usize) {
        self.aside = len;
    }

    /// True if no unit has begun and is not whole.
    pub(super) const fn is_between_units(&self) -> bool {
        self.left == 0 && self.have == 0 && self.aside == 0
    }

    /// Markers stand in the stream, once start-up is over.
    pub(super) fn put_markers(&mut self) {
        self.has_markers = true;
        if self.kind == Kind::Fpdus {
            self.kind = Kind::Other;
        }
    }

    /// CRCs are not in the stream from its next unit on, and are put in.
    pub(super) fn put_crcs(&mut self) {
        self.puts_crcs |= self.is_between_units();
    }

    /// True as long as the start-up frame is not whole.
    pub(super) fn is_in_startup(&self) -> bool {
        self.kind == Kind::Startup
    }

    /// The next piece of `len` bytes, of which `peek` copies some from a place on.
    pub(super) fn next(&mut self, len: usize, mut peek: impl FnMut(usize, &mut [u8])) -> Piece {
        let mut piece = Piece { len: 0, asks_for_markers: false, is_aside: false };
        if self.aside > 0 {
            piece.len = self.aside.min(len);
            piece.is_aside = true;
            self.aside -= piece.len;
            return piece;
        }
        if self.left == 0 && self.kind != Kind::Other {
            let header = if self.kind == Kind::Startup { FRAME_HEADER } else { LENGTH_FIELD };
            let more = (header - self.have).min(len);
            peek(0, &mut self.head[self.have..self.have + more]);
            self.have += more;
            piece.len = more;
            if self.have < header {
                return piece;
            }
            self.have = 0;
            self.left = self.rest_of_unit();
        }
        let room = MOST - piece.len;
        if self.kind == Kind::Other {
            piece.len = len.min(room);
            return piece;
        }
        let more = self.left.min(len - piece.len).min(room);
        piece.len += more;
        self.left -= more;
        if self.left == 0 && self.kind == Kind::Startup {
            piece.asks_for_markers = Frame::asks_for_markers(&self.head);
            self.kind = if self.has_markers { Kind::Other } else { Kind::Fpdus };
        }
        piece
    }

    /// Bytes of the unit behind the header that was read.
    fn rest_of_unit(&mut self) -> usize {
        let head = &self.head;
        match self.kind {
            Kind::Startup if is_startup(head) => Frame::missing(head),
            Kind::Startup | Kind::Other => {
                self.kind = Kind::Other;
                0
            }
            Kind::Fpdus => {
                let len = usize::from(u16::from_be_bytes([head[0], head[1]]));
                len + trailer_len(len)
            }
        }
    }

    /// Puts the CRC into a unit that is whole, where it has none.
    pub(super) fn complete(&self, unit: &mut [u8]) {
        if self.puts_crcs {
            put_crc(unit);
        }
    }
}

/// Puts the CRC into an FPDU.
pub(super) fn put_crc(fpdu: &mut [u8]) {
    if let Some((covered, crc)) = fpdu.split_last_chunk_mut::<CRC_FIELD>() {
        let mut digest = Digest::crc32c();
        digest.update(covered);
        *crc = digest.wire();
    }
}

/// True for the header of a start-up frame (RFC 5044 §7.1.1).
fn is_startup(header: &[u8; FRAME_HEADER]) -> bool {
    let parses = |kind| Frame::parse(kind, u8::MAX, header).is_ok();
    parses(FrameKind::Request) || parses(FrameKind::Reply)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn startup(flags: u8, private: &[u8]) -> Vec<u8> {
        let mut frame = b"MPA ID Req Frame".to_vec();
        frame.extend([flags, 2]);
        frame.extend((private.len() as u16).to_be_bytes());
        frame.extend(private);
        frame
    }

    fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
        let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
        fpdu.extend(ulpdu);
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        let mut digest = Digest::crc32c();
        digest.update(&fpdu);
        fpdu.extend(digest.wire());
        fpdu
    }

    /// The pieces of a stream that comes in such calls, those of a unit together.
    fn units(frames: &mut Frames, stream: &[u8], calls: &[usize]) -> Vec<Vec<u8>> {
        let (mut at, mut all, mut unit) = (0, Vec::new(), Vec::new());
        let mut calls = calls.iter().copied().chain(std::iter::repeat(usize::MAX));
        while at < stream.len() {
            let call = calls.next().expect("endless").clamp(1, stream.len() - at);
            let mut done = 0;
            while done < call {
                let from = &stream[at + done..at + call];
                let piece = frames.next(from.len(), |place, to| {
                    to.copy_from_slice(&from[place..place + to.len()]);
                });
                assert!((1..=MOST).contains(&piece.len));
                unit.extend(&from[..piece.len]);
                done += piece.len;
                if frames.is_between_units() {
                    frames.complete(&mut unit);
                    all.push(std::mem::take(&mut unit));
                }
            }
            at += call;
        }
        all.extend((!unit.is_empty()).then_some(unit));
        all
    }

    #[test]
    fn a_packet_has_one_unit() {
        let all = [startup(0x40, b"hello"), fpdu(&[1; 18]), fpdu(&[2; 65_000]), fpdu(&[3; 5])];
        assert_eq!(units(&mut Frames::new(), &all.concat(), &[]), all);
        assert_eq!(units(&mut Frames::new(), &all.concat(), &[3, 20, 1, 1, 40_000]), all);
    }

    #[test]
    fn markers_are_noticed() {
        let mut frames = Frames::new();
        let frame = startup(0x80, b"");
        let piece = frames.next(20, |at, to| to.copy_from_slice(&frame[at..at + to.len()]));
        assert!(piece.asks_for_markers);
        frames.put_markers();
        assert_eq!(units(&mut frames, &[0; 100_000], &[]).len(), 2);
        // Asked for by the other end before this one has begun.
        let mut frames = Frames::new();
        frames.put_markers();
        let stream = [startup(0, b"x"), vec![0; 100_000]].concat();
        assert_eq!(units(&mut frames, &stream, &[]).len(), 3);
    }

    proptest! {
        /// Each unit is found whole, and where CRCs are put in they are right.
        #[test]
        fn each_unit_is_found_whole(
            lens in proptest::collection::vec(0_usize..3000, 1..8),
            calls in proptest::collection::vec(1_usize..2000, 0..40),
            puts in any::<bool>(),
        ) {
            let begin = startup(0x40, b"private");
            let all: Vec<Vec<u8>> = lens.iter().map(|len| fpdu(&vec![7; *len])).collect();
            let mut frames = Frames::new();
            let found = units(&mut frames, &begin, &[]);
            prop_assert_eq!(found.concat(), begin);
            let mut stream = all.concat();
            if puts {
                frames.put_crcs();
                let mut at = 0;
                for unit in &all {
                    at += unit.len();
                    stream[at - CRC_FIELD..at].fill(0);
                }
            }
            let found = units(&mut frames, &stream, &calls);
            prop_assert_eq!(found, all);
        }

        #[test]
        fn anything_may_come(stream in proptest::collection::vec(any::<u8>(), 1..2000)) {
            prop_assert_eq!(units(&mut Frames::new(), &stream, &[]).concat(), stream);
        }
    }
}
