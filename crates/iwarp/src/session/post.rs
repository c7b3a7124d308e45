// SPDX-License-Identifier: MIT OR Apache-2.0

//! Posting, with a place in the send queue that was reserved or without.

use std::sync::Arc;

use iwarp_types::{AtomicOp, Payload, PostError, SendOp, Stag, TaggedOffset};

use crate::session::table::Handle;
use crate::session::{
    Block, Failure, OperationError, Outcome, Pending, Permit, RemoteGrant, SendFlags,
};

/// What posts one operation.
pub(super) struct Post<'a> {
    pub(super) handle: &'a Arc<Handle>,
    pub(super) permit: Option<Permit>,
}

impl Post<'_> {
    fn post<T: Outcome>(
        self,
        op: SendOp,
        fence: bool,
        block: Option<Block>,
        other: Payload<'_>,
    ) -> Pending<T> {
        let Self { handle, permit } = self;
        Pending::new(handle, handle.post_send(op, fence, block, other, permit))
    }

    fn refuse<T: Outcome>(self, failure: Failure) -> Pending<T> {
        Pending::new(self.handle, Err(failure))
    }

    pub(super) fn send(self, block: Block, flags: SendFlags) -> Pending<Block> {
        let SendFlags { solicited, invalidate, fence } = flags;
        let op = SendOp::Send { solicited, invalidate };
        self.post(op, fence, Some(block), Payload::Sges(&[]))
    }

    pub(super) fn send_inline(self, octets: &[u8]) -> Pending<()> {
        self.post(SendOp::SEND, false, None, Payload::Inline(octets))
    }

    pub(super) fn immediate(self, data: [u8; 8]) -> Pending<()> {
        let op = SendOp::Immediate { solicited: false, data };
        self.post(op, false, None, Payload::Sges(&[]))
    }

    pub(super) fn write(self, block: Block, to: &RemoteGrant, offset: u64) -> Pending<Block> {
        match place(to, offset, block) {
            Ok((block, stag, to)) => {
                self.post(SendOp::Write { stag, to }, false, Some(block), Payload::Sges(&[]))
            }
            Err(failure) => self.refuse(failure),
        }
    }

    pub(super) fn write_inline(self, octets: &[u8], to: &RemoteGrant, offset: u64) -> Pending<()> {
        match to.at(offset, octets.len() as u64) {
            Some((stag, to)) => {
                self.post(SendOp::Write { stag, to }, false, None, Payload::Inline(octets))
            }
            None => self.refuse(Failure::new(OperationError::OutsideGrant, None)),
        }
    }

    pub(super) fn write_immediate(
        self,
        block: Block,
        to: &RemoteGrant,
        offset: u64,
        data: [u8; 4],
    ) -> Pending<Block> {
        match place(to, offset, block) {
            Ok((block, stag, to)) => {
                let op = SendOp::WriteImmediate { stag, to, solicited: false, data };
                self.post(op, false, Some(block), Payload::Sges(&[]))
            }
            Err(failure) => self.refuse(failure),
        }
    }

    pub(super) fn read(self, from: &RemoteGrant, offset: u64, block: Block) -> Pending<Block> {
        match place(from, offset, block) {
            Ok((block, stag, to)) => {
                let op = SendOp::Read { stag, to, invalidate: None };
                self.post(op, false, Some(block), Payload::Sges(&[]))
            }
            Err(failure) => self.refuse(failure),
        }
    }

    pub(super) fn atomic(self, at: &RemoteGrant, offset: u64, op: AtomicOp) -> Pending<u64> {
        let core = self.handle.alive().ok_or(PostError::WrongState);
        let core = core.map_err(|error| Failure::new(error, None));
        let word = core
            .and_then(|core| core.words.take_or_grow().map_err(|error| Failure::new(error, None)));
        match word.and_then(|word| place(at, offset, word)) {
            Ok((word, stag, to)) => {
                let op = SendOp::Atomic { stag, to, op };
                self.post(op, false, Some(word), Payload::Sges(&[]))
            }
            Err(Failure { error, .. }) => self.refuse(Failure::new(error, None)),
        }
    }
}

/// The peer's buffer that the block's bytes go to or come from.
fn place(
    grant: &RemoteGrant,
    offset: u64,
    block: Block,
) -> Result<(Block, Stag, TaggedOffset), Failure> {
    match grant.at(offset, block.len() as u64) {
        Some((stag, to)) => Ok((block, stag, to)),
        None => Err(Failure::new(OperationError::OutsideGrant, Some(block))),
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
