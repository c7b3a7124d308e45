// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sending half: gathers what the queue pair decides to send and frames it.
//!
//! With CRC on, payload is copied into staging while its CRC is computed, in one pass. Its owner
//! may change the source of a Read Response at any moment, and that must not turn into a CRC error
//! at the peer. Where the framing does not need to see a long payload (MPA: with CRC off and no
//! markers), it is sent from its place in registered memory. Payloads below 2 KiB, so those of an
//! Ethernet MTU, are copied even then.

mod delivery;
mod short;
mod source;

use alloc::collections::{TryReserveError, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use iwarp_types::{AccessError, Accessor, Digest, Invalidator, Memory, Sge, Stag, TaggedOffset};

use crate::ddp::tx::{Headers, Run, Segment};
use crate::ddp::wire::{Header, TAGGED_LEN, UNTAGGED_LEN};
use crate::framing::{Frame, LEAST_MAX_ULPDU, MAX_FRAME};
use crate::qp::outbound::{Body, Next, Scratch, Segments};
use crate::qp::transmit::source::Gather;
use crate::qp::{Disposition, Qp, Shared};

/// Payloads below this are copied even where they could be sent from where they lie: an element
/// of its own in the system call costs more than the copy.
const GATHER_MIN: usize = 2048;

/// Octets of segments that are decided on and copied at once, at most: a thread that revokes their
/// source waits no longer than for a system call.
const RUN_MAX: usize = 64 * 1024;

/// Runs that can wait in a [`Transmit`]: more than the long frames of a staging buffer have.
const PIECES: usize = 512;
/// Runs of one frame at most: its header and trailer, and as many elements as devices allow.
const PIECES_OF_FRAME: usize = 40;

/// Registered octets that a stream sends from where they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A local element.
    Local(Sge),
    /// Part of a tagged buffer that the peer reads.
    Remote {
        /// The buffer.
        stag: Stag,
        /// The tagged offset in it.
        to: TaggedOffset,
        /// Octets.
        len: u32,
    },
}

impl Source {
    /// Octets.
    pub const fn len(&self) -> usize {
        match self {
            Self::Local(sge) => sge.length as usize,
            Self::Remote { len, .. } => *len as usize,
        }
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Without the first `octets`.
    const fn skip(self, octets: u32) -> Self {
        match self {
            Self::Local(sge) => Self::Local(Sge {
                addr: sge.addr.wrapping_add(octets as u64),
                length: sge.length - octets,
                lkey: sge.lkey,
            }),
            Self::Remote { stag, to, len } => {
                Self::Remote { stag, to: to.advanced(octets as u64), len: len - octets }
            }
        }
    }
}

/// A run of octets of the stream that has been built and not yet taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Octets of [`Transmit::octets`].
    Staged(Range<usize>),
    /// Registered octets. Their access must be checked again for each system call; where it was
    /// lost, the stream cannot be kept ([`Transmitter::lost`]).
    Memory(Source),
}

impl Piece {
    /// Octets.
    pub fn octets(&self) -> usize {
        match self {
            Self::Staged(range) => range.len(),
            Self::Memory(source) => source.len(),
        }
    }
}

/// Octets of the stream that were built and wait to be taken: a staging buffer and, where the
/// framing lets payload go out from its place, references to registered memory between its parts.
#[derive(Debug)]
pub struct Transmit {
    staging: Vec<u8>,
    end: usize,
    pieces: VecDeque<Piece>,
    len: usize,
}

impl Transmit {
    /// Room for any frame there can be, unless its framing says more ([`Frame::max_ulpdu`]).
    pub const MIN_CAPACITY: usize = MAX_FRAME;

    /// A queue whose staging buffer has `capacity` octets, at least [`Self::MIN_CAPACITY`].
    pub fn new(capacity: usize) -> Self {
        let staging = vec![0; capacity.max(Self::MIN_CAPACITY)];
        Self::with_staging(staging).expect("memory for a short list")
    }

    /// A queue with this staging buffer, of at least [`Self::MIN_CAPACITY`] octets. It needs no
    /// memory beside it later.
    ///
    /// # Errors
    ///
    /// When there is no memory for the list of runs.
    ///
    /// # Panics
    ///
    /// If the buffer is too short.
    pub fn with_staging(staging: Vec<u8>) -> Result<Self, TryReserveError> {
        assert!(staging.len() >= Self::MIN_CAPACITY, "room for any frame");
        let mut pieces = VecDeque::new();
        pieces.try_reserve_exact(PIECES)?;
        Ok(Self { staging, end: 0, pieces, len: 0 })
    }

    /// True if a frame of so many octets can be built.
    #[inline]
    fn takes(&self, frame: usize) -> bool {
        self.room() >= frame && self.pieces.len() <= PIECES - PIECES_OF_FRAME
    }

    /// True if everything was taken.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Octets that wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The runs in order.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter()
    }

    /// All octets that wait, where they are one staged run, as they mostly are.
    #[inline]
    pub fn sole(&self) -> Option<&[u8]> {
        match self.pieces.front() {
            Some(Piece::Staged(range)) if self.pieces.len() == 1 => self.staging.get(range.clone()),
            _ => None,
        }
    }

    /// Staged octets.
    pub fn octets(&self, range: Range<usize>) -> &[u8] {
        &self.staging[range]
    }

    #[inline]
    fn room(&self) -> usize {
        self.staging.len() - self.end
    }

    #[inline]
    fn spare(&mut self) -> &mut [u8] {
        &mut self.staging[self.end..]
    }

    /// The first `len` octets of the spare room are now part of the stream.
    #[inline]
    fn stage(&mut self, len: usize) {
        let range = self.end..self.end + len;
        self.end = range.end;
        self.len += len;
        match self.pieces.back_mut() {
            Some(Piece::Staged(last)) if last.end == range.start => last.end = range.end,
            _ => self.pieces.push_back(Piece::Staged(range)),
        }
    }

    fn refer(&mut self, source: Source) {
        self.len += source.len();
        self.pieces.push_back(Piece::Memory(source));
    }

    /// True if [`Self::build`] may be called: there is room for [`Self::MIN_CAPACITY`].
    pub fn has_room(&self) -> bool {
        self.takes(Self::MIN_CAPACITY)
    }

    /// Adds the octets that `build` puts at the front of the spare room, and returns how many these
    /// are, as it says itself. For a core without a [`Transmitter`].
    pub fn build(&mut self, build: impl FnOnce(&mut [u8]) -> usize) -> usize {
        let built = build(self.spare()).min(self.room());
        if built > 0 {
            self.stage(built);
        }
        built
    }

    /// The stream has taken the first `n` octets: drops them.
    pub fn drop_front(&mut self, mut n: usize) {
        if n == self.len {
            return self.clear();
        }
        self.len -= n;
        while n > 0 {
            let Some(front) = self.pieces.front_mut() else { break };
            let len = front.octets();
            if n < len {
                match front {
                    Piece::Staged(range) => range.start += n,
                    Piece::Memory(source) => *source = source.skip(n as u32),
                }
                return;
            }
            n -= len;
            self.pieces.pop_front();
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.end = 0;
        self.len = 0;
    }
}

/// The work that [`Transmitter::taken`] leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// There is something to send.
    pub more: bool,
    /// Requests complete when the peer has taken in what was sent.
    pub awaited: bool,
    /// The fate of the stream once all that was built is taken.
    pub disposition: Disposition,
    /// See [`Qp::is_connected`].
    pub connected: bool,
}

/// Builds the frames of one direction of a stream.
#[derive(Debug)]
pub struct Transmitter<F> {
    framer: F,
    who: Accessor,
    mulpdu: usize,
    /// Octets of the frame that carries so much, where nothing is interleaved.
    frame: usize,
    /// Segments that are decided on and copied at once, and octets of all of them.
    run: (u32, usize),
    taken: u64,
    /// The position at which the frame that was made last ended, until the queue pair knows it.
    framed: Option<u64>,
    scratch: Scratch,
    /// See [`Self::short_max`].
    short: Option<u32>,
}

impl<F: Frame> Transmitter<F> {
    /// The sending half of a stream of frames that `framer` makes, for the queue pair `who`. See
    /// [`Self::set_mulpdu`].
    pub fn new(framer: F, who: Accessor, mulpdu: usize) -> Self {
        let mut new = Self {
            framer,
            who,
            mulpdu: LEAST_MAX_ULPDU,
            frame: 0,
            run: (1, 0),
            taken: 0,
            framed: None,
            scratch: Scratch::default(),
            short: None,
        };
        new.set_mulpdu(mulpdu);
        new
    }

    /// Octets of the stream that were taken.
    #[cfg(test)]
    pub(crate) const fn position(&self) -> u64 {
        self.taken
    }

    /// Octets of the largest ULPDU from now on, within the limits of the framing
    /// (RFC 5041 §3(1), (2)); what is built stays as it is.
    pub fn set_mulpdu(&mut self, mulpdu: usize) {
        self.mulpdu = mulpdu.min(self.framer.max_ulpdu()).max(LEAST_MAX_ULPDU);
        self.frame = self.framer.frame_len(self.mulpdu);
        let each_alone = self.framer.interleaves() || self.gathers(self.mulpdu - TAGGED_LEN);
        let most = if each_alone { 1 } else { (RUN_MAX / self.mulpdu).max(1) };
        self.run = (most as u32, most * self.frame);
        self.short = self.short_max();
    }

    /// True if so many payload octets are sent from where they lie.
    #[inline]
    fn gathers(&self, payload_len: usize) -> bool {
        self.framer.sends_in_place() && payload_len >= GATHER_MIN
    }

    /// Octets of the next frame of full length.
    #[inline]
    fn full(&self) -> usize {
        if self.framer.interleaves() { self.framer.frame_len(self.mulpdu) } else { self.frame }
    }

    /// The number of segments that may be decided on at once if their frames are to fit into `free`
    /// octets, which one does.
    #[inline]
    fn most(&self, free: usize) -> u32 {
        let (most, octets) = self.run;
        if free >= octets { most } else { ((free / self.frame) as u32).clamp(1, most) }
    }

    /// True if another frame may be built.
    #[inline]
    fn may_build(&self, out: &Transmit, budget: usize) -> bool {
        out.len() < budget && out.takes(self.full())
    }

    /// The framing.
    pub const fn framer(&self) -> &F {
        &self.framer
    }

    /// Changes the framing of what is built from now on.
    pub fn change_framer(&mut self, change: impl FnOnce(&mut F)) {
        change(&mut self.framer);
        self.set_mulpdu(self.mulpdu);
    }

    /// Builds frames until `out` is full, `budget` octets wait in it, or there is nothing to
    /// send. False in the last case.
    pub fn transmit<S: Shared, M: Memory>(
        &mut self,
        qp: &S,
        memory: &M,
        out: &mut Transmit,
        budget: usize,
    ) -> bool {
        debug_assert!(out.staging.len() >= self.full(), "staging has room for any frame");
        while self.may_build(out, budget) {
            let framed = self.framed.take();
            // Decided and looked at where it lies: it is large.
            let mut next = Next::Idle;
            let is_next = qp.with(|qp| {
                if let Some(position) = framed {
                    qp.framed(position);
                }
                self.next_long(qp, memory, out, budget, &mut next)
            });
            if !is_next {
                continue;
            }
            match &next {
                Next::Idle => return false,
                Next::Segments(segments) => match self.frame(segments, memory, out) {
                    Ok(()) => {
                        self.framed = Some(self.framer.position());
                        if segments.last {
                            return false;
                        }
                    }
                    Err((framed, error)) => qp.with(|qp| qp.gather_failed(framed, error)),
                },
                &Next::Atomic { stag, to, op } => {
                    let result = memory.atomic(self.who, stag, to, op);
                    qp.with(|qp| qp.atomic_done(result));
                }
                &Next::Bind(bind) => {
                    let result = memory.bind_window(self.who, bind);
                    qp.with(|qp| qp.local_done(result));
                }
                &Next::Invalidate(stag) => {
                    let result = memory.invalidate(self.who, stag, Invalidator::Local);
                    qp.with(|qp| qp.local_done(result));
                }
            }
        }
        // The peer may answer as soon as the stream has it.
        if let Some(position) = self.framed.take() {
            qp.with(|qp| qp.framed(position));
        }
        true
    }

    /// The stream took `n` octets: completes what ends among them. Returns what is to be done next.
    pub fn taken<S: Shared>(&mut self, qp: &S, out: &mut Transmit, n: usize) -> Taken {
        out.drop_front(n);
        self.taken += n as u64;
        let (framed, position) = (self.framed.take(), self.taken);
        qp.with(|qp: &mut Qp| qp.taken(framed, position))
    }

    /// The registered octets of the piece `number` of `out` cannot be read any more. Its header is
    /// part of the stream already, and perhaps taken, so the framing is lost: the stream is reset.
    pub fn lost<S: Shared>(&self, qp: &S, out: &Transmit, number: usize, error: AccessError) {
        let position =
            self.taken + out.pieces().take(number).map(Piece::octets).sum::<usize>() as u64;
        let remote = matches!(out.pieces().nth(number), Some(Piece::Memory(Source::Remote { .. })));
        qp.with(|qp: &mut Qp| qp.source_lost(position, remote, error));
    }

    /// Frames `segments`. If the source is refused, the error has the payload octets framed before.
    #[inline]
    fn frame<M: Memory>(
        &mut self,
        segments: &Segments,
        memory: &M,
        out: &mut Transmit,
    ) -> Result<(), (u32, AccessError)> {
        let (run, body) = (&segments.run, segments.body);
        if run.is_single() && !self.framer.interleaves() {
            return self.frame_one(run, body, memory, out).map_err(|error| (0, error));
        }
        self.frame_run(run, body, memory, out)
    }

    /// Frames one segment.
    #[inline]
    fn frame_one<M: Memory>(
        &mut self,
        run: &Run,
        body: Body,
        memory: &M,
        out: &mut Transmit,
    ) -> Result<(), AccessError> {
        if body != Body::Octets && self.gathers(run.len as usize) {
            return self.frame_in_place(run, body, memory, out);
        }
        let Self { framer, scratch, who, .. } = self;
        let Segment { header, len, .. } = run.segment(0);
        frame_copied(framer, &header, (*who, body, len), scratch, memory, out)
    }

    /// Frames a run of segments, each copied.
    #[inline(never)]
    fn frame_run<M: Memory>(
        &mut self,
        run: &Run,
        body: Body,
        memory: &M,
        out: &mut Transmit,
    ) -> Result<(), (u32, AccessError)> {
        let Self { framer, scratch, .. } = self;
        let mut source = Gather::new(memory, self.who, body, scratch);
        let spare = out.spare();
        let (mut at, mut done) = (0, 0);
        let mut headers = Headers::of(run);
        let result = loop {
            let (header, len) = headers.segment(done);
            let fill = |_, dst: &mut [u8], crc: Option<&mut Digest>| source.copy(dst, crc);
            match framer.write(&mut spare[at..], header, len as usize, fill) {
                Ok(octets) => at += octets,
                Err(error) => break Err((done, error)),
            }
            done += len;
            if done == run.len {
                break Ok(());
            }
        };
        if at > 0 {
            out.stage(at);
        }
        result
    }

    /// Sends the payload from where it lies. It is looked for before anything is framed: then this
    /// message can still end with a Terminate in its place.
    #[inline(never)]
    fn frame_in_place<M: Memory>(
        &mut self,
        run: &Run,
        body: Body,
        memory: &M,
        out: &mut Transmit,
    ) -> Result<(), AccessError> {
        let Segment { header, len, .. } = run.segment(0);
        debug_assert_eq!(len, run.len, "long ones are decided on one by one");
        match body {
            Body::Remote(stag, to) => {
                memory.find_remote(self.who, stag, to, u64::from(len))?;
            }
            _ => {
                for sge in &self.scratch.sges {
                    memory.find_local(self.who, *sge)?;
                }
            }
        }
        let mut octets = [0; UNTAGGED_LEN];
        let octets = {
            let header_len = header.emit(&mut octets);
            &octets[..header_len]
        };
        let head = self.framer.write_head(out.spare(), octets, len as usize);
        out.stage(head);
        match body {
            Body::Remote(stag, to) => out.refer(Source::Remote { stag, to, len }),
            _ => {
                for sge in &self.scratch.sges {
                    out.refer(Source::Local(*sge));
                }
            }
        }
        let trailer = self.framer.trailer_len(octets.len() + len as usize);
        if trailer > 0 {
            out.spare()[..trailer].fill(0);
            out.stage(trailer);
        }
        Ok(())
    }
}

/// Frames a segment whose payload, `len` octets of `body`, is copied.
#[inline(always)]
fn frame_copied<F: Frame, M: Memory>(
    framer: &mut F,
    header: &Header,
    (who, body, len): (Accessor, Body, u32),
    scratch: &Scratch,
    memory: &M,
    out: &mut Transmit,
) -> Result<(), AccessError> {
    let fill = |_, dst: &mut [u8], crc: Option<&mut Digest>| match body {
        Body::Octets => {
            dst.copy_from_slice(&scratch.octets);
            if let Some(crc) = crc {
                crc.update(dst);
            }
            Ok(())
        }
        Body::Local => match &scratch.sges[..] {
            [sge] => memory.gather_local(who, *sge, dst, crc),
            _ => Gather::new(memory, who, body, scratch).copy(dst, crc),
        },
        Body::Remote(stag, to) => memory.gather_remote(who, stag, to, dst, crc),
    };
    let mut octets = [0; UNTAGGED_LEN];
    let header_len = header.emit(&mut octets);
    let framed = framer.write_contiguous(out.spare(), &octets[..header_len], len as usize, fill)?;
    out.stage(framed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Sge, Source, Stag, TaggedOffset};

    #[test]
    fn skip_drops_the_front_octets() {
        let sge = Sge { addr: 1000, length: 100, lkey: Stag(7) };
        let left = Sge { addr: 1030, length: 70, lkey: Stag(7) };
        assert_eq!(Source::Local(sge).skip(30), Source::Local(left));
        let (stag, to, len) = (Stag(8), TaggedOffset(5000), 100);
        let left = Source::Remote { stag, to: TaggedOffset(5030), len: 70 };
        assert_eq!(Source::Remote { stag, to, len }.skip(30), left);
        assert_eq!((left.len(), left.is_empty(), left.skip(70).is_empty()), (70, false, true));
    }
}
