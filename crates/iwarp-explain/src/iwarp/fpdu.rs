// SPDX-License-Identifier: MIT OR Apache-2.0

//! FPDUs out of a stream (RFC 5044), also where its begin is not known.

use iwarp_proto::ddp::wire::UNTAGGED_LEN;
use iwarp_proto::mpa::marker::{self, Layout, MARKER};
use iwarp_proto::mpa::wire::{CRC_FIELD, LENGTH_FIELD, MARKER_INTERVAL};
use iwarp_proto::rdmap::rx::is_plausible;
use iwarp_proto::rdmap::wire::Opcode;
use iwarp_types::Digest;

use super::buffer::Buffer;

/// The framing of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Framing {
    /// CRCs are in use; `None` where that is not known.
    pub(super) crc: Option<bool>,
    pub(super) markers: bool,
    /// The place in the stream at which Full Operation began, as far as markers need it.
    pub(super) origin: i64,
}

/// The judgement on a CRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Crc {
    Good,
    Bad,
    /// CRCs are not in use.
    Unused,
    /// Bytes are unknown.
    Unverified,
}

/// An FPDU.
#[derive(Clone, Debug)]
pub(super) struct Fpdu {
    /// The bytes of the ULPDU that are known, from its front, without markers.
    pub(super) ulpdu: Vec<u8>,
    /// The bytes that it has.
    pub(super) length: usize,
    pub(super) crc: Crc,
    /// A marker that does not point to the FPDU: its value, and the right one.
    pub(super) marker: Option<(usize, usize)>,
    /// The bytes of the whole FPDU.
    pub(super) total: usize,
}

/// The outcome of a look at the front of a stream.
#[derive(Debug)]
pub(super) enum Look {
    /// The FPDU is not whole yet. It needs so many bytes, as far as that is known.
    Short(usize),
    Whole(Fpdu),
    /// The length field is unknown.
    Hidden,
}

/// Looks at the FPDU that begins `at` bytes into the buffer.
pub(super) fn look(buffer: &Buffer, at: usize, framing: Framing) -> Look {
    let bytes = buffer.bytes().get(at..).unwrap_or_default();
    let position = (buffer.place() + at as i64 - framing.origin).max(0) as u64;
    let leading = Layout::leading(position, framing.markers);
    let head = leading + LENGTH_FIELD;
    let Some([high, low]) = bytes.get(leading..head).and_then(|field| field.first_chunk()) else {
        return Look::Short(head);
    };
    if buffer.known(at, head) < head {
        return Look::Hidden;
    }
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let layout = Layout::new(position, framing.markers, length);
    let total = layout.total();
    let Some(bytes) = bytes.get(..total) else { return Look::Short(total) };
    let known = buffer.known(at, total);
    let (mut ulpdu, mut marker) = (Vec::with_capacity(length), None);
    let mut from = head;
    for n in 0..layout.inner_markers() {
        let to = layout.inner_marker_at(n);
        take(&mut ulpdu, bytes, from, to.min(known), length);
        if to + MARKER <= known && marker.is_none() {
            let right = to - layout.length_at();
            marker = wrong(bytes, to, right);
        }
        from = to + MARKER;
    }
    take(&mut ulpdu, bytes, from, known, length);
    if leading > 0 && marker.is_none() {
        marker = wrong(bytes, 0, 0);
    }
    let crc = match framing.crc {
        Some(false) => Crc::Unused,
        _ if known < total => Crc::Unverified,
        asked => match (crc_is_good(bytes), asked) {
            (true, _) => Crc::Good,
            (false, Some(_)) => Crc::Bad,
            (false, None) => Crc::Unused,
        },
    };
    Look::Whole(Fpdu { ulpdu, length, crc, marker, total })
}

/// Adds bytes up to `to`, but no more than the ULPDU has: pad and CRC follow it.
fn take(ulpdu: &mut Vec<u8>, bytes: &[u8], from: usize, to: usize, length: usize) {
    let to = to.min(from + length.saturating_sub(ulpdu.len()));
    ulpdu.extend_from_slice(bytes.get(from..to).unwrap_or_default());
}

fn wrong(bytes: &[u8], at: usize, right: usize) -> Option<(usize, usize)> {
    let found = marker::decode(*bytes.get(at..)?.first_chunk()?);
    // A pointer has 16 bits.
    (found != right & 0xfffc).then_some((found, right))
}

fn crc_is_good(fpdu: &[u8]) -> bool {
    let Some((covered, field)) = fpdu.split_last_chunk::<CRC_FIELD>() else { return false };
    let mut crc = Digest::crc32c();
    crc.update(covered);
    crc.wire() == *field
}

/// True if bytes look like the head of a ULPDU, of the RFCs or of our own.
pub(super) fn plausible(ulpdu: &[u8]) -> bool {
    is_plausible(ulpdu, Opcode::LAST_OF_OURS)
}

/// Finds the first place behind `from`, at the begin of a packet, at which FPDUs begin.
pub(super) fn resume(buffer: &Buffer, from: usize, framing: Framing) -> Option<usize> {
    let boundaries = buffer.boundaries();
    let ends = |at: usize| at == buffer.len() || boundaries.contains(&at);
    let fits = |at: usize| match look(buffer, at, framing) {
        Look::Whole(fpdu) if plausible(&fpdu.ulpdu) => match fpdu.crc {
            Crc::Good => true,
            Crc::Bad => false,
            _ => ends(at + fpdu.total) || goes_on(buffer, at + fpdu.total, framing),
        },
        _ => false,
    };
    boundaries.iter().copied().filter(|at| *at >= from).find(|at| fits(*at))
}

fn goes_on(buffer: &Buffer, at: usize, framing: Framing) -> bool {
    let known = buffer.known(at, LENGTH_FIELD + UNTAGGED_LEN);
    match look(buffer, at, framing) {
        Look::Whole(fpdu) => plausible(&fpdu.ulpdu),
        Look::Short(_) if framing.markers => false,
        Look::Short(_) => buffer.bytes().get(at + LENGTH_FIELD..at + known).is_some_and(plausible),
        Look::Hidden => false,
    }
}

/// Finds the framing and the first FPDU of a stream whose start was not seen.
pub(super) fn guess(buffer: &Buffer) -> Option<(usize, Framing)> {
    let unmarked = Framing { crc: None, markers: false, origin: buffer.place() };
    let boundaries = buffer.boundaries();
    for at in boundaries.iter().copied() {
        // The length field stands in front of the header, and perhaps a marker in front of it.
        let bytes = buffer.bytes().get(at..).unwrap_or_default();
        let fits = |skip: usize| bytes.get(skip + LENGTH_FIELD..).is_some_and(plausible);
        if fits(0)
            && let Look::Whole(fpdu) = look(buffer, at, unmarked)
            && fpdu.crc == Crc::Good
        {
            return Some((at, Framing { crc: Some(true), ..unmarked }));
        }
        if (fits(0) || fits(MARKER))
            && let Some(found) = guess_marked(buffer, at)
        {
            return Some((at, found));
        }
    }
    boundaries.into_iter().find(|at| chain(buffer, *at, unmarked)).map(|at| (at, unmarked))
}

/// Markers stand at places that the begin of the stream decides, so each of them is tried.
fn guess_marked(buffer: &Buffer, at: usize) -> Option<Framing> {
    let place = buffer.place() + at as i64;
    for phase in (0..MARKER_INTERVAL as i64).step_by(4) {
        let framing = Framing { crc: None, markers: true, origin: place - phase };
        if let Look::Whole(fpdu) = look(buffer, at, framing)
            && fpdu.crc == Crc::Good
            && fpdu.marker.is_none()
            && plausible(&fpdu.ulpdu)
        {
            return Some(Framing { crc: Some(true), ..framing });
        }
    }
    None
}

/// True if FPDUs that look right follow one another up to the begin of a packet.
fn chain(buffer: &Buffer, mut at: usize, framing: Framing) -> bool {
    const ENOUGH: usize = 3;
    let boundaries = buffer.boundaries();
    let mut found = 0;
    while found < ENOUGH {
        match look(buffer, at, framing) {
            Look::Whole(fpdu) if plausible(&fpdu.ulpdu) => {
                found += 1;
                at += fpdu.total;
                let ends = at == buffer.len() || boundaries.contains(&at);
                if ends && found > 1 {
                    return true;
                }
                if ends && fpdu.crc == Crc::Unverified {
                    return true;
                }
            }
            _ => return false,
        }
    }
    true
}
