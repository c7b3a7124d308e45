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
