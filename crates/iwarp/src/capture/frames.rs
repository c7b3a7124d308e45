// SPDX-License-Identifier: MIT OR Apache-2.0

//! The units of MPA in one direction of a stream. Each gets a packet of its own, whichever calls
//! have moved it: readers of packets that are cut find all headers at the beginning of one.

use iwarp_proto::mpa::marker::Layout;
use iwarp_proto::mpa::wire::{CRC_FIELD, FRAME_HEADER, Frame, FrameKind, LENGTH_FIELD};
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
    /// Bytes to come of units whose begin was not seen.
    rest: usize,
    /// The place in Full Operation at which the next unit begins, as markers count.
    position: u64,
    puts_crcs: bool,
    has_markers: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Startup,
    Fpdus,
    /// FPDUs, of which the connection has not said yet where one begins.
    Unseen,
    /// They are not MPA's, or may not be.
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
    /// It belongs to units whose begin was not seen.
    pub(super) is_rest: bool,
}

impl Frames {
    pub(super) const fn new() -> Self {
        Self {
            kind: Kind::Startup,
            left: 0,
            head: [0; FRAME_HEADER],
            have: 0,
            aside: 0,
            rest: 0,
            position: 0,
            puts_crcs: false,
            has_markers: false,
        }
    }

    /// Of a stream that is seen from its middle on, and whose start-up is not known.
    pub(super) const fn of_the_rest() -> Self {
        Self { kind: Kind::Other, ..Self::new() }
    }

    /// Part of the stream may not have been seen, so units have no begin until [`Self::resume`].
    /// False where no unit has come before.
    pub(super) const fn lose(&mut self) -> bool {
        if matches!(self.kind, Kind::Fpdus) {
            let Self { puts_crcs, has_markers, .. } = *self;
            *self = Self { kind: Kind::Unseen, puts_crcs, has_markers, ..Self::new() };
        }
        matches!(self.kind, Kind::Unseen | Kind::Other)
    }

    /// The next unit begins behind `rest` bytes, at this place of Full Operation. False where that
    /// is known already.
    pub(super) const fn resume(&mut self, position: u64, rest: usize, has_markers: bool) -> bool {
        if matches!(self.kind, Kind::Fpdus) {
            return false;
        }
        let puts_crcs = self.puts_crcs;
        *self = Self { kind: Kind::Fpdus, rest, position, puts_crcs, has_markers, ..Self::new() };
        true
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
    }

    /// True if that is so.
    pub(super) const fn has_markers(&self) -> bool {
        self.has_markers
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
        let mut piece = Piece { len: 0, asks_for_markers: false, is_aside: false, is_rest: false };
        if self.aside > 0 {
            piece.len = self.aside.min(len);
            piece.is_aside = true;
            self.aside -= piece.len;
            return piece;
        }
        if self.kind == Kind::Unseen || self.rest > 0 {
            piece.len = if self.kind == Kind::Unseen { len } else { self.rest.min(len) };
            piece.is_rest = true;
            self.rest = self.rest.saturating_sub(piece.len);
            return piece;
        }
        if self.left == 0 && self.kind != Kind::Other {
            let header = match self.kind {
                Kind::Startup => FRAME_HEADER,
                _ => self.length_at() + LENGTH_FIELD,
            };
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
            self.kind = Kind::Fpdus;
        }
        piece
    }

    /// Bytes before the length of the next unit.
    const fn length_at(&self) -> usize {
        Layout::leading(self.position, self.has_markers)
    }

    /// Bytes of the unit behind the header that was read.
    fn rest_of_unit(&mut self) -> usize {
        let head = &self.head;
        match self.kind {
            Kind::Startup if is_startup(head) => Frame::missing(head),
            Kind::Startup | Kind::Unseen | Kind::Other => {
                self.kind = Kind::Other;
                0
            }
            Kind::Fpdus => {
                let at = self.length_at();
                let len = usize::from(u16::from_be_bytes([head[at], head[at + 1]]));
                let total = Layout::new(self.position, self.has_markers, len).total();
                self.position += total as u64;
                total - at - LENGTH_FIELD
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
        *crc = crc_of(covered);
    }
}

fn crc_of(covered: &[u8]) -> [u8; CRC_FIELD] {
    let mut digest = Digest::crc32c();
    digest.update(covered);
    digest.wire()
}

/// True for the header of a start-up frame (RFC 5044 §7.1.1).
fn is_startup(header: &[u8; FRAME_HEADER]) -> bool {
    let parses = |kind| Frame::parse(kind, u8::MAX, header).is_ok();
    parses(FrameKind::Request) || parses(FrameKind::Reply)
}

#[cfg(test)]
mod tests {
    use iwarp_proto::framing::{Frame as _, MAX_FRAME};
    use iwarp_proto::mpa::tx::Framer;
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

    /// FPDUs of such lengths with markers, from the begin of Full Operation on.
    fn marked(lens: &[usize]) -> Vec<Vec<u8>> {
        let mut framer = Framer::new(true, true);
        let mut room = vec![0; MAX_FRAME];
        let mut fpdu = |len: &usize| {
            let fill = |at: usize, dst: &mut [u8], crc: Option<&mut Digest>| {
                dst.fill(at as u8);
                crc.into_iter().for_each(|crc| crc.update(dst));
                Ok::<_, ()>(())
            };
            let total = framer.write(&mut room, &[0x41; 18], *len, fill).expect("it is there");
            room[..total].to_vec()
        };
        lens.iter().map(&mut fpdu).collect()
    }

    #[test]
    fn units_with_markers_are_found() {
        let mut frames = Frames::new();
        let frame = startup(0x80, b"");
        let piece = frames.next(20, |at, to| to.copy_from_slice(&frame[at..at + to.len()]));
        assert!(piece.asks_for_markers);
        frames.put_markers();
        let all = marked(&[0, 2000, 7, 471, 488, 60_000, 1]);
        assert_eq!(units(&mut frames, &all.concat(), &[1, 1, 1, 1, 1, 1, 700, 3]), all);
        // Asked for by the other end before this one has begun.
        let mut frames = Frames::new();
        frames.put_markers();
        let whole = [vec![startup(0, b"x")], all].concat();
        assert_eq!(units(&mut frames, &whole.concat(), &[]), whole);
    }

    /// By the word of the connection, however calls cut the stream.
    #[test]
    fn units_are_found_again_in_the_middle_of_a_stream() {
        let unmarked = [4000, 3000, 18].map(|len| fpdu(&vec![2; len]));
        for (markers, all) in [(false, unmarked.to_vec()), (true, marked(&[4000, 900, 30]))] {
            let (first, later) = all.split_first().expect("three");
            let mut frames = Frames::new();
            if markers {
                frames.put_markers();
            }
            assert!(!frames.lose(), "start-up is still to come");
            units(&mut frames, &startup(0x40, b"private"), &[]);
            assert!(frames.lose());
            let unseen = frames.next(1000, |_, _| unreachable!("it is left out"));
            assert!(unseen.is_rest && unseen.len == 1000);
            assert!(frames.resume(first.len() as u64, 300, markers));
            assert!(!frames.resume(0, 0, markers), "it is known");
            for (call, rest) in [(200, 200), (300, 100)] {
                let piece = frames.next(call, |_, _| unreachable!("it is left out"));
                assert!(piece.is_rest && piece.len == rest);
            }
            assert_eq!(units(&mut frames, &later.concat(), &[3, 20, 1, 700]), later);
        }
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
            prop_assert_eq!(units(&mut Frames::new(), &stream, &[]).concat(), &stream[..]);
            for has_markers in [false, true] {
                let mut fpdus = Frames { kind: Kind::Fpdus, has_markers, ..Frames::new() };
                prop_assert_eq!(units(&mut fpdus, &stream, &[7, 100]).concat(), &stream[..]);
            }
        }
    }
}
