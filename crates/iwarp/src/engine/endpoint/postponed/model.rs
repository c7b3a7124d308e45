// SPDX-License-Identifier: MIT OR Apache-2.0

//! A thread that writes a question and one that receives its answer, and another message, in all
//! interleavings.

use iwarp_types::{QpId, WcOp, WcStatus, WorkCompletion};
use loom::sync::Arc;
use loom::thread;

use super::{Postponed, Postpones};
use crate::engine::sync::{AtomicBool, Mutex, Ordering, explore};
use crate::engine::token::Token;
use crate::engine::writing::Writing;

const NEWS: u64 = 1;
const ANSWER: u64 = 2;

/// The part of it that the endpoint's lock keeps.
#[derive(Default)]
struct Core {
    posted: bool,
    question_completed: bool,
    waiting: Postponed,
    reported: Vec<u64>,
}

impl Core {
    fn report(&mut self, completion: &WorkCompletion) {
        let is_early = completion.wr_id == ANSWER && !self.question_completed;
        assert!(!is_early, "the answer is reported before its question has completed");
        self.reported.push(completion.wr_id);
    }
}

struct World {
    core: Mutex<Core>,
    postpones: Postpones,
    writing: Writing,
    transmitter: Token<()>,
    /// The stream has the question, which the peer answers at once.
    is_answered: AtomicBool,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            core: Mutex::new(Core::default()),
            postpones: Postpones::new(),
            writing: Writing::new(),
            transmitter: Token::new(()),
            is_answered: AtomicBool::new(false),
        })
    }

    /// As `Endpoint::hand_on_postponed`.
    fn hand_on(&self) {
        if self.postpones.any() {
            self.report();
        }
    }

    fn report(&self) {
        let mut core = self.core.lock();
        let waiting = self.postpones.take(&mut core.waiting);
        waiting.iter().for_each(|completion| core.report(completion));
    }

    /// As `Link::transmit_some`.
    fn transmit(&self) {
        self.hand_on();
        if std::mem::take(&mut self.core.lock().posted) {
            self.writing.during(|| {
                self.is_answered.store(true, Ordering::Release);
                self.core.lock().question_completed = true;
            });
            self.hand_on();
        }
    }

    fn post(&self) {
        self.core.lock().posted = true;
        self.transmitter.request(|()| self.transmit());
    }

    /// As `Link::take_apart`.
    fn receive(&self, wr_id: u64) {
        let completion = WorkCompletion::new(wr_id, QpId(1), WcOp::Recv, WcStatus::Success);
        {
            let mut core = self.core.lock();
            core.waiting.more = self.writing.is_on();
            if !self.postpones.keep(&completion, &mut core.waiting) {
                core.report(&completion);
            }
            core.waiting.more = false;
        }
        let leave = || self.transmitter.request(|()| self.transmit());
        self.postpones.hand_on(&self.writing, leave, || self.report());
    }
}

/// Receives are reported in order, those that wait too, and an answer behind its question.
#[test]
fn receives_that_wait_are_reported_behind_the_send() {
    explore(5, || {
        let world = World::new();
        let receiver = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.receive(NEWS);
                let is_answered = world.is_answered.load(Ordering::Acquire);
                if is_answered {
                    world.receive(ANSWER);
                }
                is_answered
            })
        };
        world.post();
        let is_answered = receiver.join().unwrap();
        let expected: &[u64] = if is_answered { &[NEWS, ANSWER] } else { &[NEWS] };
        assert_eq!(world.core.lock().reported, expected, "a receive waits for ever");
    });
}
