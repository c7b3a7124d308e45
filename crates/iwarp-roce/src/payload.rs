// SPDX-License-Identifier: MIT OR Apache-2.0

//! Payloads of posted requests, and octets in and out of scatter/gather lists.

use alloc::vec::Vec;

use iwarp_types::list::{refill, sub_list};
use iwarp_types::{AccessError, Accessor, Digest, Memory, Payload, PostError, Sge};

/// The payload of a posted send work request, with storage that the next one in its place uses
/// again.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    is_inline: bool,
    sges: Vec<Sge>,
    inline: Vec<u8>,
}

impl Stored {
    /// Takes over a request's payload.
    pub(crate) fn set(&mut self, payload: Payload<'_>) -> Result<(), PostError> {
        match payload {
            Payload::Sges(sges) => {
                self.is_inline = false;
                refill(&mut self.sges, sges)
            }
            Payload::Inline(octets) => {
                self.is_inline = true;
                self.sges.clear();
                refill(&mut self.inline, octets)
            }
            _ => Err(PostError::Invalid),
        }
    }

    /// The scatter/gather list; empty where the payload is inline.
    pub(crate) fn sges(&self) -> &[Sge] {
        &self.sges
    }

    /// Copies octets of the payload, from `offset` on, and feeds them to the digest.
    #[inline]
    pub(crate) fn gather<M: Memory + ?Sized>(
        &self,
        offset: u64,
        out: &mut [u8],
        digest: &mut Digest,
        pieces: &mut Vec<Sge>,
        who: Accessor,
        memory: &M,
    ) -> Result<(), AccessError> {
        if self.is_inline {
            out.copy_from_slice(&self.inline[offset as usize..][..out.len()]);
            digest.update(out);
            return Ok(());
        }
        if let [sge] = self.sges[..] {
            return memory.gather_local(who, part(sge, offset, out.len()), out, Some(digest));
        }
        sub_list(&self.sges, offset, out.len(), pieces);
        let mut rest = out;
        for piece in pieces.iter() {
            let (now, later) = rest.split_at_mut(piece.length as usize);
            memory.gather_local(who, *piece, now, Some(digest))?;
            rest = later;
        }
        Ok(())
    }
}

/// Places `data` in a scatter/gather list, `offset` octets behind its start; it does not reach
/// beyond the list.
#[inline]
pub(crate) fn place<M: Memory + ?Sized>(
    list: &[Sge],
    offset: u64,
    data: &[u8],
    pieces: &mut Vec<Sge>,
    who: Accessor,
    memory: &M,
) -> Result<(), AccessError> {
    if data.is_empty() {
        return Ok(());
    }
    if let [sge] = *list {
        return memory.place_local(who, part(sge, offset, data.len()), data);
    }
    sub_list(list, offset, data.len(), pieces);
    let mut rest = data;
    for piece in pieces.iter() {
        let (now, later) = rest.split_at(piece.length as usize);
        memory.place_local(who, *piece, now)?;
        rest = later;
    }
    Ok(())
}

/// The part of an element that begins at `offset`.
const fn part(sge: Sge, offset: u64, len: usize) -> Sge {
    Sge { addr: sge.addr.wrapping_add(offset), length: len as u32, lkey: sge.lkey }
}
