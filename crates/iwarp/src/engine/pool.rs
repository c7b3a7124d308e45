// SPDX-License-Identifier: MIT OR Apache-2.0

//! Buffers that connections hold only while they need them.
//!
//! If there is no memory for another one, receiving threads take turns at one that was made with
//! the device.

use std::cell::Cell;

use iwarp_mem::{OutOfMemory, zeroed};

use crate::engine::kept;
use crate::engine::sync::Mutex;

/// Bytes of staging that a receiving thread lends.
pub(crate) const RECEIVE_STAGING: usize = 512 * 1024;
/// Buffers that are kept for later.
const KEPT: usize = 32;

/// Blocks for partial message units, and staging.
#[derive(Debug)]
pub(crate) struct Pool {
    blocks: Mutex<Vec<Vec<u8>>>,
    /// For threads that cannot have staging of their own.
    staging: Mutex<Vec<u8>>,
}

impl Pool {
    /// Bytes of a block: any part of a message unit there can be, so that it never grows.
    pub(crate) const BLOCK: usize = 66 * 1024;

    /// With a block in it: one is needed only when a read ends within a message unit, which may
    /// happen for the first time long after traffic began.
    pub(crate) fn new() -> Result<Self, OutOfMemory> {
        let mut blocks = Vec::with_capacity(KEPT);
        let mut block = Vec::new();
        block.try_reserve_exact(Self::BLOCK).map_err(|_| OutOfMemory)?;
        blocks.push(block);
        Ok(Self { blocks: Mutex::new(blocks), staging: Mutex::new(zeroed(RECEIVE_STAGING)?) })
    }

    /// A block, with less room or none where there is no memory for it.
    pub(crate) fn block(&self) -> Vec<u8> {
        let kept = self.blocks.lock().pop();
        kept.unwrap_or_else(|| {
            let mut block = Vec::new();
            let _ = block.try_reserve_exact(Self::BLOCK);
            block
        })
    }

    pub(crate) fn give_block(&self, mut block: Vec<u8>) {
        block.clear();
        let mut kept = self.blocks.lock();
        if kept.len() < KEPT && (1..=Self::BLOCK).contains(&block.capacity()) {
            kept.push(block);
        }
    }

    /// Lends the thread's staging buffer, or the one that all threads share. Not to be nested.
    pub(crate) fn with_staging<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut staging = mine(|mine| staging_of(mine.take())).unwrap_or_default();
        if staging.is_empty() {
            return f(&mut self.staging.lock());
        }
        let result = f(&mut staging);
        mine(|mine| mine.set(staging));
        result
    }
}

thread_local! {
    static HAS_MINE: Cell<bool> = const { Cell::new(false) };
    static MINE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `f` with the staging that the thread keeps, if it can keep any.
#[inline]
fn mine<R>(f: impl FnOnce(&Cell<Vec<u8>>) -> R) -> Option<R> {
    kept::with(&HAS_MINE, &MINE, f)
}

/// Makes what the calling thread keeps, for one that serves connections now and then: else it
/// would allocate in the midst of traffic.
pub(crate) fn prepare_thread() {
    mine(|mine| mine.set(staging_of(Vec::new())));
}

/// A thread's staging, made if it has none yet; empty where it cannot be had.
#[inline]
fn staging_of(kept: Vec<u8>) -> Vec<u8> {
    // Fresh pages of zero: none is touched before it is used.
    if kept.is_empty() { zeroed(RECEIVE_STAGING).unwrap_or_default() } else { kept }
}
