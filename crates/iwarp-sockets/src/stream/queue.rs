// SPDX-License-Identifier: MIT OR Apache-2.0

//! The send queue of the queue pair: requests posted and not taken, and which of them ask for a
//! completion.

use alloc::collections::VecDeque;

use super::CONTROL_REQUESTS;

/// The use of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// Data, iomap entries, keepalives.
    Transfer,
    /// Credits, announcements, control.
    Control,
}

#[derive(Clone, Debug)]
struct Posted {
    id: u64,
    is_control: bool,
    /// Octets of the send buffer.
    octets: usize,
}

/// Requests complete in order, so one completion speaks for all before it. They are asked for just
/// often enough that one is on its way if something waits for room: each costs, on some devices a
/// round trip (RS-FLOW-13).
#[derive(Clone, Debug)]
pub(super) struct SendQueue {
    next_id: u64,
    posted: VecDeque<Posted>,
    /// Requests of control messages among them.
    control: usize,
    /// Most transfers.
    transfers: usize,
    /// Since the last request that asks: transfers, control requests, octets.
    unasked: (usize, usize, usize),
    /// Octets of the send buffer.
    buffer: usize,
}

impl SendQueue {
    /// A part of what there is in which no completion is asked for.
    const PART: usize = 4;
    /// Control requests that may go without asking: an announcement fits beside.
    const CONTROL_UNASKED: usize = CONTROL_REQUESTS / 2;

    /// `requests` fit the queue, those of control messages included.
    pub(super) fn new(requests: usize, buffer: usize) -> Self {
        Self {
            next_id: 0,
            posted: VecDeque::new(),
            control: 0,
            transfers: requests - CONTROL_REQUESTS,
            unasked: (0, 0, 0),
            buffer,
        }
    }

    /// True if so many requests fit.
    pub(super) fn fits(&self, usage: Use, requests: usize) -> bool {
        match usage {
            // At most 4 for control, which need no credits (RS-FLOW-08).
            Use::Control => self.control + requests <= CONTROL_REQUESTS,
            Use::Transfer => self.posted.len() - self.control + requests <= self.transfers,
        }
    }

    /// Posts a request: its id, and true if it asks for a completion.
    pub(super) fn post(&mut self, usage: Use, octets: usize, must_ask: bool) -> (u64, bool) {
        let id = self.next_id;
        self.next_id += 1;
        let is_control = usage == Use::Control;
        self.posted.push_back(Posted { id, is_control, octets });
        let (transfers, control, unasked) = &mut self.unasked;
        if is_control {
            self.control += 1;
            *control += 1;
        } else {
            *transfers += 1;
        }
        *unasked += octets;
        let asks = must_ask
            || *control >= Self::CONTROL_UNASKED
            || *transfers >= self.transfers.div_ceil(Self::PART)
            || *unasked >= self.buffer.div_ceil(Self::PART);
        if asks {
            self.unasked = (0, 0, 0);
        }
        (id, asks)
    }

    /// Requests up to this one are done: octets that they free.
    pub(super) fn complete(&mut self, through: u64) -> usize {
        let mut freed = 0;
        while self.is_pending(through)
            && let Some(done) = self.posted.pop_front()
        {
            self.control -= usize::from(done.is_control);
            freed += done.octets;
        }
        freed
    }

    /// True if this request was posted and is not done.
    pub(super) fn is_pending(&self, id: u64) -> bool {
        self.posted.front().is_some_and(|first| first.id <= id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CONTROL_REQUESTS, SendQueue, Use};

    proptest! {
        /// Covers: RS-FLOW-08
        #[test]
        fn all_that_waits_has_a_completion_on_its_way(
            requests in (CONTROL_REQUESTS + 2)..40, steps in prop::collection::vec((0..3, 1usize..30), 1..200)
        ) {
            let mut queue = SendQueue::new(requests, 100);
            let (mut asked, mut octets, mut controls) = (None, 0, 0);
            for (kind, size) in steps {
                let (usage, count) = match kind {
                    0 => (Use::Transfer, 1),
                    1 => (Use::Transfer, 2),
                    _ => (Use::Control, 1 + size % 2),
                };
                let size = if usage == Use::Control { 0 } else { size };
                if !queue.fits(usage, count) || octets + size > 100 {
                    prop_assert!(asked.is_some(), "something waits for nothing");
                    octets -= queue.complete(asked.take().unwrap());
                    controls = queue.control;
                    continue;
                }
                for n in 0..count {
                    let part = if n == 0 { size } else { 0 };
                    let (id, asks) = queue.post(usage, part, false);
                    prop_assert!(queue.is_pending(id));
                    asked = if asks { Some(id) } else { asked };
                    octets += part;
                    controls += usize::from(usage == Use::Control);
                    prop_assert!(controls <= CONTROL_REQUESTS);
                    prop_assert!(queue.posted.len() <= requests);
                }
            }
        }
    }
}
