// SPDX-License-Identifier: MIT OR Apache-2.0

//! Posting, with a place in the send queue that was reserved or without.

use std::sync::Arc;

use iwarp_types::{AtomicOp, Payload, PostError, SendOp, Stag, TaggedOffset};

use crate::cargo::Cargo;
use crate::list::{List, Rights};
use crate::table::{Handle, Place};
use crate::work::{SendFlags, Work};
use crate::{Block, Blocks, Failure, OperationError, Outcome, Pending, RemoteGrant};

/// The poster of operations: a [`Session`](crate::Session) by reference, a
/// [`Permit`](crate::Permit), and a [`Batch`](crate::Batch) by mutable reference.
pub trait Posts: sealed::Posts {}

impl<P: sealed::Posts> Posts for P {}

pub(super) mod sealed {
    use super::{Pending, Post};

    pub trait Posts {
        fn post_by<T>(self, what: impl FnOnce(Post<'_>) -> Pending<T>) -> Pending<T>;
    }
}

/// The methods of [`Session`](crate::Session) that post operations, for another type that
/// [`Posts`].
macro_rules! operations {
    ($self:ident: $($receiver:tt)+) => {
        /// As [`Session::send`](crate::Session::send).
        pub fn send<B: Blocks>($($receiver)+, blocks: B) -> Pending<B> {
            $self.send_with(blocks, SendFlags::default())
        }

        /// As [`Session::send_with`](crate::Session::send_with).
        pub fn send_with<B: Blocks>($($receiver)+, blocks: B, flags: SendFlags) -> Pending<B> {
            $self.post_by(|post| post.send(blocks, flags))
        }

        /// As [`Session::send_inline`](crate::Session::send_inline).
        pub fn send_inline($($receiver)+, octets: &[u8]) -> Pending<()> {
            $self.post_by(|post| post.send_inline(octets))
        }

        /// As [`Session::immediate`](crate::Session::immediate).
        pub fn immediate($($receiver)+, data: [u8; 8]) -> Pending<()> {
            $self.post_by(|post| post.immediate(data))
        }

        /// As [`Session::write`](crate::Session::write).
        pub fn write<B: Blocks>(
            $($receiver)+,
            blocks: B,
            to: &RemoteGrant,
            offset: u64,
        ) -> Pending<B> {
            $self.post_by(|post| post.write(blocks, to, offset))
        }

        /// As [`Session::write_inline`](crate::Session::write_inline).
        pub fn write_inline(
            $($receiver)+,
            octets: &[u8],
            to: &RemoteGrant,
            offset: u64,
        ) -> Pending<()> {
            $self.post_by(|post| post.write_inline(octets, to, offset))
        }

        /// As [`Session::write_immediate`](crate::Session::write_immediate).
        pub fn write_immediate<B: Blocks>(
            $($receiver)+,
            blocks: B,
            to: &RemoteGrant,
            offset: u64,
            data: [u8; 4],
        ) -> Pending<B> {
            $self.post_by(|post| post.write_immediate(blocks, to, offset, data))
        }

        /// As [`Session::read`](crate::Session::read).
        pub fn read<B: Blocks>(
            $($receiver)+,
            from: &RemoteGrant,
            offset: u64,
            blocks: B,
        ) -> Pending<B> {
            $self.post_by(|post| post.read(from, offset, blocks))
        }

        /// As [`Session::fetch_add`](crate::Session::fetch_add).
        pub fn fetch_add($($receiver)+, at: &RemoteGrant, offset: u64, add: u64) -> Pending<u64> {
            $self.atomic(at, offset, post::fetch_add(add))
        }

        /// As [`Session::compare_swap`](crate::Session::compare_swap).
        pub fn compare_swap(
            $($receiver)+,
            at: &RemoteGrant,
            offset: u64,
            compare: u64,
            swap: u64,
        ) -> Pending<u64> {
            $self.atomic(at, offset, post::compare_swap(compare, swap))
        }

        /// As [`Session::atomic`](crate::Session::atomic).
        pub fn atomic($($receiver)+, at: &RemoteGrant, offset: u64, op: AtomicOp) -> Pending<u64> {
            $self.post_by(|post| post.atomic(at, offset, op))
        }
    };
}

pub(super) use operations;

/// The poster of one operation.
pub struct Post<'a> {
    pub(super) handle: &'a Arc<Handle>,
    place: Option<Place>,
    /// The list in which the operation waits for others, to be posted together.
    list: Option<(&'a Arc<List>, &'a mut Rights)>,
}

impl<'a> Post<'a> {
    pub(super) const fn with(handle: &'a Arc<Handle>, place: Option<Place>) -> Self {
        Self { handle, place, list: None }
    }

    /// In a list.
    pub(super) const fn later(
        handle: &'a Arc<Handle>,
        list: &'a Arc<List>,
        rights: &'a mut Rights,
    ) -> Self {
        Self { handle, place: None, list: Some((list, rights)) }
    }

    fn post<T: Outcome>(self, work: Result<Work<'_>, Failure>) -> Pending<T> {
        let Self { handle, place, list } = self;
        match list {
            None => Pending::new(handle, work.and_then(|work| handle.post_send(work, place))),
            Some((list, rights)) => {
                let right = work.as_ref().map(|work| rights.next(work)).unwrap_or_default();
                Pending::new(handle, list.collect(handle, work, right)).collected(list)
            }
        }
    }

    pub(super) fn send<B: Blocks>(self, blocks: B, flags: SendFlags) -> Pending<B> {
        let SendFlags { solicited, invalidate, fence } = flags;
        let op = SendOp::Send { solicited, invalidate };
        self.post(Ok(Work { fence, ..Work::on_blocks(op, blocks.into_cargo()) }))
    }

    pub(super) fn send_inline(self, octets: &[u8]) -> Pending<()> {
        self.post(Ok(Work::on_bytes(SendOp::SEND, Payload::Inline(octets))))
    }

    pub(super) fn immediate(self, data: [u8; 8]) -> Pending<()> {
        let op = SendOp::Immediate { solicited: false, data };
        self.post(Ok(Work::on_bytes(op, Payload::NONE)))
    }

    pub(super) fn write<B: Blocks>(self, blocks: B, to: &RemoteGrant, offset: u64) -> Pending<B> {
        let op = |stag, to| SendOp::Write { stag, to };
        self.post(place(to, offset, blocks.into_cargo(), op))
    }

    pub(super) fn write_inline(self, octets: &[u8], to: &RemoteGrant, offset: u64) -> Pending<()> {
        let place = to.at(offset, octets.len() as u64);
        let outside = || Failure::new(OperationError::OutsideGrant, None);
        self.post(
            place.ok_or_else(outside).map(|(stag, to)| {
                Work::on_bytes(SendOp::Write { stag, to }, Payload::Inline(octets))
            }),
        )
    }

    pub(super) fn write_immediate<B: Blocks>(
        self,
        blocks: B,
        to: &RemoteGrant,
        offset: u64,
        data: [u8; 4],
    ) -> Pending<B> {
        let op = |stag, to| SendOp::WriteImmediate { stag, to, solicited: false, data };
        self.post(place(to, offset, blocks.into_cargo(), op))
    }

    pub(super) fn read<B: Blocks>(self, from: &RemoteGrant, offset: u64, blocks: B) -> Pending<B> {
        self.read_cargo(from, offset, Ok(blocks.into_cargo()))
    }

    /// Reads into blocks that the program gets as an outcome of another kind.
    pub(super) fn read_cargo<T: Outcome>(
        self,
        from: &RemoteGrant,
        offset: u64,
        cargo: Result<Cargo<Block>, Failure>,
    ) -> Pending<T> {
        let op = |stag, to| SendOp::Read { stag, to, invalidate: None };
        self.post(cargo.and_then(|cargo| place(from, offset, cargo, op)))
    }

    pub(super) fn atomic<T: Outcome>(
        self,
        at: &RemoteGrant,
        offset: u64,
        op: AtomicOp,
    ) -> Pending<T> {
        let word = match self.handle.alive() {
            Some(core) => core.words.take_or_grow().map_err(|error| Failure::new(error, None)),
            None => Err(Failure::new(PostError::WrongState, None)),
        };
        let op = |stag, to| SendOp::Atomic { stag, to, op };
        let work = word.and_then(|word| place(at, offset, Cargo::One(word), op));
        // The word is not the program's.
        self.post(work.map_err(|Failure { error, .. }| Failure::new(error, None)))
    }
}

/// The operation with the peer's buffer that the blocks' bytes go to or come from.
fn place(
    grant: &RemoteGrant,
    offset: u64,
    cargo: Cargo<Block>,
    op: impl FnOnce(Stag, TaggedOffset) -> SendOp,
) -> Result<Work<'static>, Failure> {
    match grant.at(offset, cargo.len()) {
        Some((stag, to)) => Ok(Work::on_blocks(op(stag, to), cargo)),
        None => Err(Failure::with(OperationError::OutsideGrant, cargo)),
    }
}

/// Adds to 8 bytes.
pub(super) const fn fetch_add(add: u64) -> AtomicOp {
    AtomicOp::FetchAdd { add, mask: 0 }
}

/// Compares and replaces 8 bytes.
pub(super) const fn compare_swap(compare: u64, swap: u64) -> AtomicOp {
    AtomicOp::CompareSwap { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX }
}
