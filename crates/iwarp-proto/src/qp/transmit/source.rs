// SPDX-License-Identifier: MIT OR Apache-2.0

//! The source of the payload of consecutive segments.

use iwarp_types::{AccessError, Accessor, Digest, Memory, Sge, Stag, Usage, Use};

use crate::qp::outbound::{Body, Scratch};

/// Copies one piece after another of what was decided to be sent, in one use of its buffer; of a
/// list, in one of each.
pub(super) enum Gather<'a, M: Memory> {
    Octets(&'a [u8]),
    Memory {
        memory: &'a M,
        who: Accessor,
        usage: Usage,
        /// The buffer at hand, and where in it the next octet is.
        stag: Stag,
        at: u64,
        left: usize,
        open: Option<M::Use<'a>>,
        /// The list behind it.
        list: &'a [Sge],
    },
}

impl<'a, M: Memory> Gather<'a, M> {
    #[inline]
    pub(super) fn new(memory: &'a M, who: Accessor, body: Body, scratch: &'a Scratch) -> Self {
        let (usage, stag, at, left, list) = match body {
            Body::Octets => return Self::Octets(&scratch.octets),
            Body::Remote(stag, to) => (Usage::RemoteRead, stag, to.0, usize::MAX, &[][..]),
            Body::Local => (Usage::LocalRead, Stag(0), 0, 0, &scratch.sges[..]),
        };
        Self::Memory { memory, who, usage, stag, at, left, open: None, list }
    }

    /// Copies the next octets to `dst` and feeds them to `crc`.
    #[inline]
    pub(super) fn copy(
        &mut self,
        dst: &mut [u8],
        crc: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        if let Self::Memory { at, left, open: Some(source), .. } = self
            && *left >= dst.len()
        {
            source.gather(*at, dst, crc)?;
            *at = at.wrapping_add(dst.len() as u64);
            *left -= dst.len();
            return Ok(());
        }
        self.copy_anew(dst, crc)
    }

    /// Copies from a buffer of which a use has to be begun first.
    #[inline(never)]
    fn copy_anew(
        &mut self,
        mut dst: &mut [u8],
        mut crc: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        let (memory, who, usage, stag, at, left, open, list) = match self {
            Self::Octets(octets) => {
                let now;
                (now, *octets) = octets.split_at(dst.len());
                dst.copy_from_slice(now);
                if let Some(crc) = crc {
                    crc.update(dst);
                }
                return Ok(());
            }
            Self::Memory { memory, who, usage, stag, at, left, open, list } => {
                (*memory, *who, *usage, stag, at, left, open, list)
            }
        };
        while !dst.is_empty() {
            if *left == 0 {
                let Some((next, rest)) = list.split_first() else { break };
                open.take_if(|_| next.lkey != *stag);
                (*stag, *at, *left, *list) = (next.lkey, next.addr, next.length as usize, rest);
                continue;
            }
            let source = match open {
                Some(source) => source,
                None => open.insert(memory.begin_use(who, *stag, usage)?),
            };
            let (now, rest) = dst.split_at_mut(dst.len().min(*left));
            let n = now.len();
            source.gather(*at, now, crc.as_deref_mut())?;
            *at = at.wrapping_add(n as u64);
            *left -= n;
            dst = rest;
        }
        Ok(())
    }
}
