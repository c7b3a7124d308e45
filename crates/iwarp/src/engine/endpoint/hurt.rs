// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults on purpose in the completions of a queue pair.
//!
//! A request still ends once: its own completion is changed or put off, never made up. After an
//! error status the queue pair fails, as a card's does, and what completes behind it is flushed.
//! Behind a completion that is late those of its queue wait as well, so that their order stays.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_types::{Time, WcOp, WcStatus, WorkCompletion};

use super::Endpoint;
use crate::engine::sync::Ordering;
use crate::faults;

/// See the [module](self). The endpoint's lock keeps it.
#[derive(Debug)]
pub(super) struct Hurt {
    endpoint: Weak<Endpoint>,
    failed: bool,
    /// Completions of the send and of the receive queue that are late, oldest first.
    late: [VecDeque<(Time, Kept)>; 2],
}

/// A completion that is put off.
#[derive(Debug)]
pub(super) enum Kept {
    /// Of a send request, with the slots that it frees.
    Sent(WorkCompletion, u32),
    Received(WorkCompletion),
}

impl Kept {
    pub(super) const fn completion_mut(&mut self) -> &mut WorkCompletion {
        match self {
            Self::Sent(completion, _) | Self::Received(completion) => completion,
        }
    }
}

impl Hurt {
    pub(super) fn new(endpoint: &Arc<Endpoint>) -> Box<Self> {
        Box::new(Self {
            endpoint: Arc::downgrade(endpoint),
            failed: false,
            late: Default::default(),
        })
    }

    /// True from an error status on.
    pub(super) const fn has_failed(&self) -> bool {
        self.failed
    }

    /// Asks the rules, and changes the completion as they say; returns how much later it comes.
    pub(super) fn look_at(
        &mut self,
        completion: &mut WorkCompletion,
        connected: bool,
    ) -> Option<Duration> {
        let (qp, op) = (completion.qp, completion.op);
        let fail = |completion: &mut WorkCompletion, status| {
            *completion = WorkCompletion::new(completion.wr_id, qp, op, status);
        };
        let mut late = Duration::ZERO;
        if completion.status == WcStatus::Success {
            if self.failed {
                fail(completion, WcStatus::Flushed);
            } else if connected {
                match faults::of_completion(qp.0, completion) {
                    Some(faults::Hurt::Status(status)) => {
                        fail(completion, status);
                        self.failed = true;
                    }
                    Some(faults::Hurt::Late(time)) => late = time,
                    None => {}
                }
            }
        }
        let waits = !self.late[lane(op)].is_empty();
        (waits || !late.is_zero()).then_some(late)
    }

    /// Has a completion come later than now, behind those of its queue that do.
    pub(super) fn put_off(&mut self, endpoint: &Endpoint, late: Duration, kept: Kept) {
        let (Kept::Sent(completion, _) | Kept::Received(completion)) = &kept;
        let lane = &mut self.late[lane(completion.op)];
        let at = endpoint.now().plus(late);
        let at = lane.back().map_or(at, |(last, _)| at.max(*last));
        lane.push_back((at, kept));
        let weak = Weak::clone(&self.endpoint);
        endpoint.engine.worker.at(
            at,
            Box::new(move || {
                if let Some(endpoint) = weak.upgrade() {
                    endpoint.bring_late();
                }
            }),
        );
    }

    /// The oldest completion that is due.
    fn due(&mut self, now: Time) -> Option<Kept> {
        let lane = self.late.iter_mut().find(|lane| lane.front().is_some_and(|(at, _)| *at <= now));
        lane?.pop_front().map(|(_, kept)| kept)
    }

    /// The queue pair is as new.
    pub(super) fn reset(&mut self) {
        self.failed = false;
        self.late.iter_mut().for_each(VecDeque::clear);
    }
}

/// The queue that a request was posted to.
const fn lane(op: WcOp) -> usize {
    matches!(op, WcOp::Recv | WcOp::RecvImmediate | WcOp::RecvWriteImmediate) as usize
}

impl Endpoint {
    /// Hands on the completions that are due.
    fn bring_late(&self) {
        let now = self.now();
        let program = &mut self.core.lock().program;
        while let Some(kept) = program.hurt.as_mut().and_then(|hurt| hurt.due(now)) {
            if !self.come(kept, program) {
                self.overran.store(true, Ordering::Release);
            }
        }
    }
}
