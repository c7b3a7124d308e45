// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues: what may still come to them, and what lies in them.
//!
//! A queue is too small when more completions may come than it has places: those that lie in it,
//! those of signalled requests that are under way, and one for each receive. A queue pair that
//! fails brings more, as unsignalled requests have completions then; these do not count.
//!
//! A wake-up is lost when a completion lies in a queue as the program asks for events: it raises
//! none, so a thread that waits for one without a poll before may wait for ever. That is told where
//! one thread alone arms and polls the queue, and has slept for a second without an end of its own.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use super::layout::{QueueHead, read};
use super::place::Place;
use super::report::{LOST_WAKE_UP, QUEUE_TOO_SMALL, Reports};
use super::sleepers;

/// Time that a thread has to sleep.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);

#[derive(Debug)]
struct Queue {
    depth: usize,
    channel: usize,
    made: Place,
    /// By number of the queue pair.
    under_way: HashMap<u32, usize>,
    /// Completions that lie in it: queue pair and post.
    waiting: VecDeque<(u32, Place)>,
    /// The thread that alone arms and polls it, as the system counts threads.
    user: Option<i32>,
    /// Set if several do.
    shared: bool,
    /// The connection manager made it.
    managers: bool,
    arm: Option<Arm>,
}

/// Events were asked for while a completion lay in the queue, and no poll came since.
#[derive(Debug)]
struct Arm {
    at: Instant,
    thread: i32,
    place: Place,
}

#[derive(Debug, Default)]
pub(super) struct Queues {
    of: HashMap<usize, Queue>,
    /// Threads that wait for an event of a channel, by the system's numbers.
    sleepers: HashMap<i32, (usize, Place)>,
}

impl Queue {
    fn used_by(&mut self, thread: i32) {
        self.shared |= *self.user.get_or_insert(thread) != thread;
    }

    fn may_come(&self) -> usize {
        self.under_way.values().sum::<usize>() + self.waiting.len()
    }
}

impl Queues {
    /// The connection manager may have made a completion queue.
    pub(super) fn made_by_manager(&mut self, address: usize) {
        if address != 0 && !self.of.contains_key(&address) {
            self.made(address);
            if let Some(queue) = self.of.get_mut(&address) {
                queue.managers = true;
            }
        }
    }

    /// A queue pair of the connection manager is about to go, and this queue if it made it.
    pub(super) fn forget_managers(&mut self, address: usize) {
        if self.of.get(&address).is_some_and(|queue| queue.managers) {
            self.forget(address);
        }
    }

    /// A completion queue was made.
    pub(super) fn made(&mut self, address: usize) {
        // SAFETY: the program's queue, which was just made.
        let QueueHead { depth, channel, .. } = unsafe { read::<QueueHead>(address) };
        let queue = Queue {
            depth: depth as usize,
            channel,
            made: Place::here(),
            under_way: HashMap::new(),
            waiting: VecDeque::new(),
            user: None,
            shared: false,
            managers: false,
            arm: None,
        };
        self.of.insert(address, queue);
    }

    pub(super) fn resized(&mut self, address: usize) {
        if let Some(queue) = self.of.get_mut(&address) {
            // SAFETY: the program's queue, which was just resized.
            queue.depth = unsafe { read::<QueueHead>(address) }.depth as usize;
        }
    }

    /// It is gone, or used in ways that are not followed.
    pub(super) fn forget(&mut self, address: usize) {
        self.of.remove(&address);
    }

    /// Requests and completions of a queue pair are gone.
    pub(super) fn forget_pair(&mut self, address: usize, pair: u32) {
        if let Some(queue) = self.of.get_mut(&address) {
            queue.under_way.remove(&pair);
            queue.waiting.retain(|(of, _)| *of != pair);
        }
    }

    /// A request that will have a completion was posted.
    pub(super) fn posted(&mut self, address: usize, pair: u32, at: &Place, reports: &mut Reports) {
        let Some(queue) = self.of.get_mut(&address) else { return };
        *queue.under_way.entry(pair).or_default() += 1;
        let (may_come, depth) = (queue.may_come(), queue.depth);
        if may_come > depth {
            let what = format!(
                "{may_come} completions may come to {address:#x} or lie there, which has {depth} \
                 places"
            );
            reports.note(&QUEUE_TOO_SMALL, what, at, &[("completion queue made", &queue.made)]);
        }
    }

    /// A request has ended, and its completion comes to the queue.
    pub(super) fn completed(&mut self, address: usize, pair: u32, signalled: bool, posted: Place) {
        let Some(queue) = self.of.get_mut(&address) else { return };
        if signalled && let Some(count) = queue.under_way.get_mut(&pair) {
            *count = count.saturating_sub(1);
        }
        queue.waiting.push_back((pair, posted));
        // It raises an event.
        queue.arm = None;
    }

    /// The program has polled completions of these queue pairs, or has found none.
    pub(super) fn polled(&mut self, address: usize, pairs: impl Iterator<Item = u32>) {
        let Some(queue) = self.of.get_mut(&address) else { return };
        queue.used_by(sleepers::own());
        queue.arm = None;
        for pair in pairs {
            if let Some(at) = queue.waiting.iter().position(|(of, _)| *of == pair) {
                queue.waiting.remove(at);
            }
        }
    }

    /// The program is about to ask for events. True if one may be lost.
    pub(super) fn arms(&mut self, address: usize, solicited: bool) -> bool {
        let Some(queue) = self.of.get_mut(&address) else { return false };
        let thread = sleepers::own();
        queue.used_by(thread);
        queue.arm = None;
        // Other completions may lie there for as long as the program likes.
        if queue.waiting.is_empty() || queue.shared || solicited {
            return false;
        }
        queue.arm = Some(Arm { at: Instant::now(), thread, place: Place::here() });
        true
    }

    /// This thread is about to wait for an event of a channel, or has it.
    pub(super) fn waits(&mut self, channel: Option<usize>) {
        let thread = sleepers::own();
        match channel {
            Some(channel) => {
                self.sleepers.insert(thread, (channel, Place::here()));
            }
            None => {
                self.sleepers.remove(&thread);
            }
        }
    }

    /// Looks for threads that sleep though a completion lies there. True if there may be some soon.
    pub(super) fn look(&mut self, reports: &mut Reports) -> bool {
        let mut more = false;
        for (address, queue) in &mut self.of {
            let Some(arm) = &queue.arm else { continue };
            if queue.shared {
                queue.arm = None;
                continue;
            }
            more = true;
            if arm.at.elapsed() < PATIENCE || !sleepers::sleeps_for_ever(arm.thread) {
                continue;
            }
            let mut others = Vec::new();
            if let Some((_, posted)) = queue.waiting.front() {
                others.push(("request of the first completion posted", posted));
            }
            if let Some((channel, place)) = self.sleepers.get(&arm.thread)
                && *channel == queue.channel
            {
                others.push(("waits for an event", place));
            }
            let what = format!(
                "events of {address:#x} asked for while {} completion(s) lay there, which raise \
                 none; the thread has not polled since, and sleeps",
                queue.waiting.len()
            );
            reports.note(&LOST_WAKE_UP, what, &arm.place, &others);
            queue.arm = None;
        }
        more
    }
}
