// SPDX-License-Identifier: MIT OR Apache-2.0

//! The seam to the protocol below DDP (the LLP): it frames DDP segments and finds them again.
//!
//! A queue pair's halves work with any framing. [`Transmitter`](crate::qp::Transmitter) has a
//! [`Frame`], [`Receiver`](crate::qp::Receiver) a [`Deframe`], chosen by the wing that makes these
//! halves. Both are type parameters: a segment costs no virtual call. [`crate::mpa`] is the
//! framing of TCP; [`crate::record`] is one for transports that need less.
//!
//! RFC 5041 §3 lists the duties of an LLP. The framing keeps the boundaries of segments (4) and
//! tells their lengths (7). Its transport delivers all octets in order and once, or says that the
//! stream is lost (3, 11). A digest as strong as CRC32c (6) may come from either.
//!
//! # A wing without MPA
//!
//! It makes both halves with its framing and begins with terms of its own
//! ([`Terms::new`](crate::qp::Terms::new)). A [`StreamCore`](iwarp_types::StreamCore) may do so
//! outside this project; it is handed `&dyn Memory`, which is a [`Memory`](iwarp_types::Memory),
//! too.
//! Three things it has to know:
//!
//! - Staging buffers need room for the longest frame: [`Frame::max_ulpdu`].
//! - One use of a buffer lasts for one frame, so the bound of 64 KiB on it ([`iwarp_types::Use`])
//!   holds only where no frame is longer. MPA's cannot be.
//! - A ULPDU too short for a DDP header is reported with the code that MPA has for a wrong length
//!   (layer 2, type 0, code 3), as the RFCs give none and the queue pair knows no framing.

use iwarp_types::Digest;
use thiserror::Error;

/// Octets that the longest ULPDU of any framing has at least: each message without payload fits
/// into them.
pub const LEAST_MAX_ULPDU: usize = 128;

/// A frame of so many octets has room in every [`Transmit`](crate::qp::Transmit), however small.
pub const MAX_FRAME: usize = 65_780;

/// The sending half: makes one frame of each ULPDU.
///
/// It counts the octets of the stream, from the first frame on. A frame is made whole or not at
/// all.
pub trait Frame {
    /// Octets of the longest ULPDU, at least [`LEAST_MAX_ULPDU`]. Its frame has to fit into the
    /// stream's [`Transmit`](crate::qp::Transmit), so where it is longer than [`MAX_FRAME`], the
    /// wing makes that large enough. The copies of one frame are made in one use of their
    /// source, for which a thread that revokes it waits.
    fn max_ulpdu(&self) -> usize;

    /// Octets of the stream that are framed.
    fn position(&self) -> u64;

    /// True if octets of the framing's own stand within ULPDUs. If not, the length of a frame
    /// depends on that of its ULPDU only.
    fn interleaves(&self) -> bool;

    /// True if a payload may be sent from where it lies, unseen by the framing.
    fn sends_in_place(&self) -> bool;

    /// Octets of the frame that would carry `ulpdu_len` octets at the present position.
    fn frame_len(&self, ulpdu_len: usize) -> usize;

    /// Of a frame that begins with these octets: how many stand in front of its ULPDU, and how many
    /// it has. `None` where these are too few, or the framing does not say.
    fn measure(&self, _frame: &[u8]) -> Option<(usize, usize)> {
        None
    }

    /// Octets behind a ULPDU, where nothing is interleaved.
    fn trailer_len(&self, ulpdu_len: usize) -> usize;

    /// Writes one frame to the front of `out` and returns its length.
    ///
    /// The ULPDU is `header` followed by `payload_len` octets, which `fill` supplies:
    /// `fill(offset, dst, digest)` writes payload octets `offset..offset + dst.len()` to `dst` and
    /// feeds them to `digest` if there is one, so that memory is copied and summed in one pass. It
    /// is called in ascending order, once for each run of octets.
    ///
    /// # Errors
    ///
    /// Any error of `fill`. The position has not moved then and `out` holds nothing of use.
    ///
    /// # Panics
    ///
    /// When `out` is shorter than the frame, or the ULPDU longer than [`Self::max_ulpdu`].
    fn write<E>(
        &mut self,
        out: &mut [u8],
        header: &[u8],
        payload_len: usize,
        fill: impl FnMut(usize, &mut [u8], Option<&mut Digest>) -> Result<(), E>,
    ) -> Result<usize, E>;

    /// As [`Self::write`], where nothing is interleaved: `fill` is called once at most.
    ///
    /// # Errors
    ///
    /// As [`Self::write`].
    ///
    /// # Panics
    ///
    /// As [`Self::write`].
    fn write_contiguous<E>(
        &mut self,
        out: &mut [u8],
        header: &[u8],
        payload_len: usize,
        fill: impl FnOnce(usize, &mut [u8], Option<&mut Digest>) -> Result<(), E>,
    ) -> Result<usize, E>;

    /// Writes what stands in front of a payload that is sent from where it lies, `header`
    /// included, and returns how many octets that is. The caller sends the `payload_len` octets
    /// next, then [`Self::trailer_len`] zero octets. The position moves by the whole frame, so the
    /// caller is bound to send all of it.
    ///
    /// # Panics
    ///
    /// Unless [`Self::sends_in_place`]; and as [`Self::write`] does.
    fn write_head(&mut self, out: &mut [u8], header: &[u8], payload_len: usize) -> usize;
}

/// The receiving half: finds frames in the stream and takes their ULPDUs out.
///
/// It holds no octets: the caller keeps them until a frame is whole. Its `input` begins at a frame
/// boundary, behind what earlier calls consumed.
pub trait Deframe {
    /// A fault of the stream.
    type Error: Copy;

    /// The stream ended within a frame.
    const CLOSED: Self::Error;

    /// Octets in front of a ULPDU, where nothing is interleaved.
    const HEAD: usize;

    /// The fault as the peer's Terminate and the log have it.
    fn fault(error: Self::Error) -> &'static FramingFault;

    /// Takes the frame at the head of `input`. `None`: it is not whole yet, and `input` is as it
    /// was. No part of a frame is handed over before all of it is there and found good. A ULPDU of
    /// any length is handed over, be it empty; what it has to contain is for DDP.
    ///
    /// # Errors
    ///
    /// The fault of the frame, which every further call returns again.
    fn next(&mut self, input: &mut [u8]) -> Result<Option<Framed>, Self::Error>;

    /// Octets that the whole frame at the head of `input` takes, as far as known. More than
    /// `input.len()` exactly when [`Self::next`] would return `None`.
    fn wanted(&self, input: &[u8]) -> usize;

    /// Octets of the ULPDU at the head of `input`, once they are known.
    ///
    /// # Errors
    ///
    /// When there can be no such ULPDU, or the error that ended the stream.
    fn peek_len(&self, input: &[u8]) -> Result<Option<usize>, Self::Error>;

    /// The length of the ULPDU at the head of `input` and its first octet, if both are there and
    /// the former fits one octet. Says nothing of use where octets are interleaved.
    fn peek_short(&self, input: &[u8]) -> Option<(u8, u8)>;

    /// Of a frame that begins with these octets: how many stand in front of its ULPDU, and how many
    /// it has. `None` where these are too few, or the framing does not say.
    fn measure(&self, _frame: &[u8]) -> Option<(usize, usize)> {
        None
    }

    /// Octets behind a ULPDU, where nothing is interleaved.
    fn trailer_len(&self, ulpdu_len: usize) -> usize;

    /// True if octets of the framing's own stand within ULPDUs.
    fn interleaves(&self) -> bool;

    /// True if octets of a frame may be taken as they come: nothing is interleaved, and nothing
    /// that comes behind the payload says whether it is good.
    fn can_stream(&self) -> bool;

    /// The caller took `octets` of the stream itself, as it may where [`Self::can_stream`]. By the
    /// next call of [`Self::next`] or [`Self::peek_len`] it has taken whole frames.
    fn advance(&mut self, octets: usize);
}

/// A frame found by [`Deframe::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framed {
    /// The place in the input at which the ULPDU begins.
    pub start: usize,
    /// Octets of the ULPDU, which are contiguous now: what was interleaved has been taken out.
    pub len: usize,
    /// Octets of the input that the whole frame took.
    pub consumed: usize,
}

/// A fault of a framing. The queue pair reports it by a Terminate of layer 2 (RFC 5040 §4.8), to
/// which the framing gives error type and code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("{text}")]
pub struct FramingFault {
    /// Error type, 4 bits: 0 is MPA's (RFC 5044 §8), 1 that of [records](crate::record). Each other
    /// framing takes the next.
    pub etype: u8,
    /// Error code.
    pub code: u8,
    /// The fault in words.
    pub text: &'static str,
}
