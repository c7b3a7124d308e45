// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages that were received.

use iwarp_types::{Stag, WorkCompletion};

use crate::cargo::Cargo;
use crate::outcome::sealed;
use crate::{Block, Room};

/// A message that was received, into one [`Block`] or into several (`Received<[Block; N]>`,
/// `Received<Vec<Block>>`).
#[derive(Debug)]
#[non_exhaustive]
pub struct Received<B = Block> {
    /// Its bytes: the block has the message's length. Several have it together: each is the part of
    /// the message that came there.
    pub block: B,
    /// The data of Immediate Data, which brings no bytes.
    pub immediate: Option<[u8; 8]>,
    /// The grant that the peer has given up with it (Send with Invalidate).
    pub invalidated: Option<Stag>,
    /// True if the peer asked for attention (Solicited Event).
    pub solicited: bool,
}

impl<B: Room> sealed::Outcome for Received<B> {
    fn new(completion: &WorkCompletion, mut cargo: Cargo<Block>) -> Option<Self> {
        let len = if completion.immediate.is_some() { 0 } else { completion.byte_len as usize };
        cargo.fill(len);
        let block = B::new(completion, cargo)?;
        let WorkCompletion { immediate, invalidated, solicited, .. } = *completion;
        Some(Self { block, immediate, invalidated, solicited })
    }
}

#[cfg(test)]
mod tests {
    use iwarp_types::{QpId, WcOp, WcStatus};

    use super::*;
    use crate::testing::domain;

    fn completion(byte_len: u32) -> WorkCompletion {
        let mut completion = WorkCompletion::new(1, QpId(1), WcOp::Recv, WcStatus::Success);
        completion.byte_len = byte_len;
        completion
    }

    /// The length of a Write that tells of itself is that of what it wrote elsewhere.
    #[test]
    fn immediate_data_bring_no_bytes() {
        let mut told = completion(4096);
        told.immediate = Some([7; 8]);
        let block = Block::new(&domain(), 16).unwrap();
        let received: Received = sealed::Outcome::new(&told, Cargo::One(block)).unwrap();
        assert_eq!((received.block.len(), received.immediate), (0, Some([7; 8])));
        assert_eq!(<usize as sealed::Outcome>::new(&told, Cargo::None), Some(0));
        assert_eq!(<usize as sealed::Outcome>::new(&completion(4096), Cargo::None), Some(4096));
    }

    #[test]
    fn a_receive_of_another_number_of_blocks_is_no_outcome() {
        let pd = domain();
        let blocks = || Cargo::Several((0..2).map(|_| Block::new(&pd, 4).unwrap()).collect());
        let made = |received: Option<Received<[Block; 2]>>| {
            received.map(|received| received.block.map(|block| block.len()))
        };
        assert_eq!(made(sealed::Outcome::new(&completion(6), blocks())), Some([4, 2]));
        let three: Option<Received<[Block; 3]>> = sealed::Outcome::new(&completion(6), blocks());
        let one: Option<Received> = sealed::Outcome::new(&completion(6), blocks());
        assert!(three.is_none() && one.is_none());
    }
}
