// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs by their numbers, which are all that requests and completions name.

use std::collections::HashMap;

use super::layout::{PairHead, read};

#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    address: usize,
    pub(super) pd: usize,
    pub(super) send_cq: usize,
    pub(super) recv_cq: usize,
    pub(super) srq: usize,
}

#[derive(Debug, Default)]
pub(super) struct Pairs {
    of: HashMap<u32, Pair>,
}

impl Pairs {
    /// There is a queue pair at this address. Returns its number.
    ///
    /// # Safety
    ///
    /// It is the program's, and lives.
    pub(super) unsafe fn learn(&mut self, address: usize) -> u32 {
        // SAFETY: the caller's promise.
        let head = unsafe { read::<PairHead>(address) };
        let PairHead { pd, send_cq, recv_cq, srq, .. } = head;
        self.of.insert(head.qp_num, Pair { address, pd, send_cq, recv_cq, srq });
        head.qp_num
    }

    pub(super) fn with_number(&self, number: u32) -> Option<Pair> {
        self.of.get(&number).copied()
    }

    /// The number of the queue pair that is, or was, at this address.
    pub(super) fn at(&self, address: usize) -> Option<u32> {
        self.of.iter().find(|(_, pair)| pair.address == address).map(|(number, _)| *number)
    }

    pub(super) fn forget(&mut self, number: u32) -> Option<Pair> {
        self.of.remove(&number)
    }
}
