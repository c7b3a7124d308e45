// SPDX-License-Identifier: MIT OR Apache-2.0

//! Accesses to memory that were refused, in the detail that a line of the log needs.
//!
//! A core knows them in this detail only where a connection ends by one: nothing here is on the way
//! of what succeeds.

use alloc::vec::Vec;

use crate::list::{octets_of, refill};
use crate::{Access, AccessError, AtomicOp, RemoteAccess, SendOp, Sge, Stag, TaggedOffset, WcOp};

/// The end that refused an access, and the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusedBy {
    /// This end's memory.
    Memory(AccessError),
    /// This end's queue pair, which does not grant the peer such an access, even if the memory
    /// does.
    QueuePair,
    /// The peer, which says no more than the code that ended the connection.
    Peer,
}

/// An access that was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The operation.
    pub op: WcOp,
    /// Of the work request, at the end that has posted it.
    pub wr_id: Option<u64>,
    /// The right that the access needs.
    pub right: Access,
    /// The end that refused it.
    pub by: RefusedBy,
    /// The memory: a scatter/gather list, one element of which was refused, or the one piece of
    /// memory that the peer asked for, or was asked for. None for a Send at the end that sends it.
    pub memory: Vec<Sge>,
    /// Bytes of the whole request or access.
    pub octets: u64,
}

impl Refusal {
    /// An access of the peer's to this end's memory, or the piece of it that was looked at.
    #[cold]
    pub fn of_peer(op: WcOp, access: RemoteAccess, memory: Sge, by: RefusedBy) -> Self {
        Self::new(op, None, access.right(), by, &[memory])
    }

    /// A work request with that list, which this end's memory refused.
    #[cold]
    pub fn of_own(wr_id: u64, op: &SendOp, list: &[Sge], error: AccessError) -> Self {
        let right = if op.has_payload() { Access::LOCAL_READ } else { Access::LOCAL_WRITE };
        Self::new(op.completes_as(), Some(wr_id), right, RefusedBy::Memory(error), list)
    }

    /// A receive with that list, which this end's memory refused.
    #[cold]
    pub fn of_receive(wr_id: u64, list: &[Sge], error: AccessError) -> Self {
        Self::new(WcOp::Recv, Some(wr_id), Access::LOCAL_WRITE, RefusedBy::Memory(error), list)
    }

    /// A work request of so many bytes, which the peer refused.
    #[cold]
    pub fn by_peer(wr_id: u64, op: &SendOp, octets: u32) -> Self {
        let (right, memory) = match op.target() {
            Some((access, stag, to)) => {
                (access.right(), Some(Sge { addr: to.0, length: octets, lkey: stag }))
            }
            None => (Access::empty(), None),
        };
        let wr_id = Some(wr_id);
        let refusal =
            Self::new(op.completes_as(), wr_id, right, RefusedBy::Peer, memory.as_slice());
        Self { octets: octets.into(), ..refusal }
    }

    fn new(op: WcOp, wr_id: Option<u64>, right: Access, by: RefusedBy, list: &[Sge]) -> Self {
        let mut memory = Vec::new();
        // In want of memory a line says less.
        let _ = refill(&mut memory, list);
        Self { op, wr_id, right, by, memory, octets: octets_of(list) }
    }

    /// The memory is named by a work request of this end's.
    pub const fn is_local(&self) -> bool {
        !self.right.intersects(Access::REMOTE)
    }
}

impl SendOp {
    /// The peer's memory that the operation accesses, and how.
    pub const fn target(&self) -> Option<(RemoteAccess, Stag, TaggedOffset)> {
        match *self {
            Self::Write { stag, to } | Self::WriteImmediate { stag, to, .. } => {
                Some((RemoteAccess::Write, stag, to))
            }
            Self::Read { stag, to, .. } => Some((RemoteAccess::Read, stag, to)),
            Self::Atomic { stag, to, .. } => Some((RemoteAccess::Atomic, stag, to)),
            _ => None,
        }
    }
}

impl AtomicOp {
    /// The operation that a completion of this one names.
    pub const fn completes_as(&self) -> WcOp {
        match self {
            Self::FetchAdd { .. } => WcOp::FetchAdd,
            Self::CompareSwap { .. } => WcOp::CompareSwap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_its_own_memory_or_the_peers() {
        let (stag, to) = (Stag(7), TaggedOffset(100));
        let list =
            [Sge { addr: 1, length: 2, lkey: Stag(3) }, Sge { addr: 4, length: 5, lkey: stag }];
        let write = SendOp::Write { stag, to };
        let own = Refusal::of_own(9, &write, &list, AccessError::Rights);
        assert_eq!((own.memory.as_slice(), own.octets, own.is_local()), (&list[..], 7, true));
        assert_eq!(own.right, Access::LOCAL_READ);
        let read = SendOp::Read { stag, to, invalidate: None };
        assert_eq!(
            Refusal::of_own(9, &read, &list, AccessError::Rights).right,
            Access::LOCAL_WRITE
        );
        let told = Refusal::by_peer(9, &read, 7);
        assert_eq!(told.memory, [Sge { addr: 100, length: 7, lkey: stag }]);
        assert!(told.right == Access::REMOTE_READ && !told.is_local());
        let send = Refusal::by_peer(9, &SendOp::SEND, 7);
        assert!(send.memory.is_empty() && send.octets == 7);
    }
}
