// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that peers may reach, and what they are told about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use iwarp::verbs::{MemoryRegion, ProtectionDomain};
use iwarp_mem::{Buffer, RegisterError, Scope};
use iwarp_types::{Access, Stag, TaggedOffset};

/// Memory that peers may read, write or do atomic operations on, at any moment and without this
/// side noticing. So it is copied in and out, or reached by atomics, and never borrowed.
///
/// Dropping it revokes every grant; when that returns, no peer touches the bytes any more.
#[derive(Debug)]
pub struct Exposed {
    region: MemoryRegion,
    buffer: Arc<Buffer>,
}

impl Exposed {
    /// Allocates `len` bytes, zeroed, for every peer of the domain. `access` says what peers may
    /// do: [`Access::REMOTE_READ`], [`Access::REMOTE_WRITE`], [`Access::REMOTE_ATOMIC`].
    ///
    /// [`Session::expose`](crate::Session::expose) lets one peer only.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] when no STag can be had.
    pub fn new(pd: &ProtectionDomain, len: usize, access: Access) -> Result<Self, RegisterError> {
        Self::scoped(pd, len, access, Scope::Domain)
    }

    pub(super) fn scoped(
        pd: &ProtectionDomain,
        len: usize,
        access: Access,
        scope: Scope,
    ) -> Result<Self, RegisterError> {
        // Data transfer only: a window could outlive what is known of it here.
        let access = (access & Access::REMOTE) | Access::LOCAL_WRITE;
        let buffer = Arc::new(Buffer::try_new(len)?);
        let region = pd.register_for(scope, Arc::clone(&buffer), access)?;
        Ok(Self { region, buffer })
    }

    /// The grant to tell a peer that is to reach all of it.
    pub fn grant(&self) -> Grant {
        self.grant_of(0, self.len())
    }

    /// The grant to tell a peer that is to reach a part. The peer is trusted with the rest: its
    /// rights are those of the whole.
    ///
    /// # Panics
    ///
    /// If the part is not within.
    pub fn grant_of(&self, offset: usize, len: usize) -> Grant {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len());
        assert!(fits, "{len} bytes at {offset} of {}", self.len());
        Grant(MemoryRange { stag: self.region.rkey(), to: offset as u64, len: len as u64 })
    }

    /// True if a received [`invalidated`](crate::Received::invalidated) STag is this one,
    /// that is, if the peer has given up its grant.
    pub fn is(&self, stag: Stag) -> bool {
        self.region.rkey() == stag
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Copies `dst.len()` bytes from `offset` on. A store by a peer meanwhile may be among them in
    /// part.
    ///
    /// # Panics
    ///
    /// If they are not all within.
    pub fn read_at(&self, offset: usize, dst: &mut [u8]) {
        self.buffer.read_at(offset, dst);
    }

    /// Stores `src` from `offset` on.
    ///
    /// # Panics
    ///
    /// If it does not fit.
    pub fn write_at(&self, offset: usize, src: &[u8]) {
        self.buffer.write_at(offset, src);
    }

    /// A copy of all of it.
    pub fn to_vec(&self) -> Vec<u8> {
        self.buffer.to_vec()
    }

    /// The byte at `offset`: to poll for the last byte of what a peer writes. A load with
    /// `Acquire` that sees it sees the rest of the message in later reads.
    ///
    /// # Panics
    ///
    /// If it is not within.
    pub fn atomic_u8(&self, offset: usize) -> &AtomicU8 {
        self.buffer.atomic_u8(offset)
    }

    /// The 4 bytes at `offset`.
    ///
    /// # Panics
    ///
    /// If they are not within, or `offset` is not a multiple of 4.
    pub fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
        self.buffer.atomic_u32(offset)
    }

    /// The 8 bytes at `offset`: atomic with respect to the peers' FetchAdd and CompareSwap.
    ///
    /// # Panics
    ///
    /// If they are not within, or `offset` is not a multiple of 8.
    pub fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        self.buffer.atomic_u64(offset)
    }
}

/// The bytes of a grant on the wire.
pub const GRANT_LEN: usize = 20;

/// Registered memory that a peer may reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MemoryRange {
    stag: Stag,
    to: u64,
    len: u64,
}

impl MemoryRange {
    fn to_octets(self) -> [u8; GRANT_LEN] {
        let mut octets = [0; GRANT_LEN];
        octets[..4].copy_from_slice(&self.stag.0.to_be_bytes());
        octets[4..12].copy_from_slice(&self.to.to_be_bytes());
        octets[12..].copy_from_slice(&self.len.to_be_bytes());
        octets
    }
}

/// The memory that this side lets a peer reach: to be sent to it. The peer makes a [`RemoteGrant`]
/// of the bytes; a grant of one's own cannot be used as a target by mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant(MemoryRange);

impl Grant {
    /// STag, tagged offset and length, in network order.
    pub fn to_octets(&self) -> [u8; GRANT_LEN] {
        self.0.to_octets()
    }

    /// The STag.
    pub const fn stag(&self) -> Stag {
        self.0.stag
    }
}

/// The memory that a peer lets this side reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteGrant(MemoryRange);

impl RemoteGrant {
    /// Of a peer that says it in its own way.
    pub const fn new(stag: Stag, to: TaggedOffset, len: u64) -> Self {
        Self(MemoryRange { stag, to: to.0, len })
    }

    /// As [`Grant::to_octets`], for a third party to which the peer grants it too.
    pub fn to_octets(&self) -> [u8; GRANT_LEN] {
        self.0.to_octets()
    }

    /// From what [`Grant::to_octets`] made.
    pub fn from_octets(octets: &[u8; GRANT_LEN]) -> Self {
        let [a, b, c, d, rest @ ..] = *octets;
        let number = |from: &[u8]| from.iter().fold(0, |n, &octet| n << 8 | u64::from(octet));
        let (to, len) = rest.split_at(8);
        let stag = Stag(u32::from_be_bytes([a, b, c, d]));
        Self(MemoryRange { stag, to: number(to), len: number(len) })
    }

    /// The STag.
    pub const fn stag(&self) -> Stag {
        self.0.stag
    }

    /// Bytes.
    pub const fn len(&self) -> u64 {
        self.0.len
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The `len` bytes at `offset` of it as a grant of their own; `None` if they are not within.
    ///
    /// ```
    /// # use iwarp_session::RemoteGrant;
    /// # use iwarp::{Stag, TaggedOffset};
    /// let table = RemoteGrant::new(Stag(7), TaggedOffset(0), 4096);
    /// let row = table.part(1024, 64).unwrap();
    /// assert_eq!((row.stag(), row.len()), (Stag(7), 64));
    /// assert!(row.part(60, 8).is_none());
    /// ```
    #[must_use]
    pub fn part(&self, offset: u64, len: u64) -> Option<Self> {
        let (stag, to) = self.at(offset, len)?;
        Some(Self::new(stag, to, len))
    }

    /// STag and tagged offset of `len` bytes at `offset`, if they are within the grant.
    pub(super) fn at(&self, offset: u64, len: u64) -> Option<(Stag, TaggedOffset)> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.0.len);
        let to = self.0.to.checked_add(offset)?;
        // The sum of offset and length must not even reach 2^64 (RFC 5041 §5.1).
        (fits && to.checked_add(len).is_some()).then_some((self.0.stag, TaggedOffset(to)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_ends_with_its_last_byte() {
        let grant = RemoteGrant::new(Stag(7), TaggedOffset(1000), 64);
        assert_eq!(grant.at(0, 64), Some((Stag(7), TaggedOffset(1000))));
        assert_eq!(grant.at(64, 0), Some((Stag(7), TaggedOffset(1064))));
        for (offset, len) in [(0, 65), (64, 1), (65, 0), (1, u64::MAX), (u64::MAX, 1)] {
            assert_eq!(grant.at(offset, len), None, "{len} at {offset}");
        }
    }

    /// RFC 5041 §5.1.
    #[test]
    fn tagged_offset_and_length_stay_below_2_to_64() {
        let last = RemoteGrant::new(Stag(7), TaggedOffset(u64::MAX - 8), 8);
        assert_eq!(last.at(0, 8), Some((Stag(7), TaggedOffset(u64::MAX - 8))));
        let beyond = RemoteGrant::new(Stag(7), TaggedOffset(u64::MAX - 7), 16);
        assert!(beyond.at(0, 7).is_some());
        assert_eq!((beyond.at(0, 8), beyond.at(8, 0)), (None, None));
    }

    #[test]
    fn a_grant_is_in_network_order() {
        let grant = RemoteGrant::new(Stag(0x0102_0304), TaggedOffset(0x0a), 0x0b00);
        let octets = grant.to_octets();
        assert_eq!(octets, [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 11, 0]);
        assert_eq!(RemoteGrant::from_octets(&octets), grant);
    }
}
