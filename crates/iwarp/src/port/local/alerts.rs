// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs that wait for the event of a completion queue, woken by the process that sends.
//!
//! A program with a loop of its own sleeps on the descriptor of its completion channel. Without
//! this, a message wakes the worker, which moves it, completes it and signals that descriptor: two
//! threads are woken for each message. So a process passes the descriptor to the other one of its
//! user, and puts its number into a word of the queue in shared memory while the queue is armed. A
//! sender whose message completes there takes the word and signals the descriptor
//! (`iwarp_os::local::Marks`). The call by which the program then asks for its event moves the
//! message.
//!
//! Numbers of descriptors are used once: a word may name one that the other process does not have
//! yet, or no more, and then the worker is woken as before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use iwarp_os::EventFd;
use iwarp_os::local::{Alert, QUEUES};

use super::Channel;
use super::channel::Passing;
use crate::port::lock;

/// Descriptors that one process passes to another at a time.
const DESCRIPTORS: usize = 128;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Alerts {
    own: Mutex<Own>,
    /// Descriptors of the other process, by their numbers.
    peers: Mutex<Vec<(u32, Arc<Alert>)>>,
}

#[derive(Debug, Default)]
struct Own {
    /// Numbers of queues that are taken: a bit for each.
    queues: u128,
    /// Descriptors that were passed, and the number given out last.
    passed: Vec<(u32, Weak<EventFd>)>,
    last: u32,
}

const _: () = assert!(QUEUES == u128::BITS as usize);

/// A completion queue of this process, as the other one knows it. It has the number until this is
/// dropped, and keeps no channel that is over.
#[derive(Debug)]
pub(crate) struct KnownQueue {
    channel: Weak<Channel>,
    queue: u16,
    /// It was armed, and nothing but the other process has taken that back.
    is_armed: AtomicBool,
    /// The number of times that the other process has taken it back, and the queue was armed again
    /// before anybody looked.
    owed: AtomicU64,
}

impl KnownQueue {
    /// A queue in which messages of the other process complete; `None` where it knows too many.
    pub(crate) fn new(channel: &Arc<Channel>) -> Option<Self> {
        let mut own = lock(&channel.alerts.own);
        let queue = own.queues.trailing_ones();
        own.queues |= 1_u128.checked_shl(queue)?;
        let (channel, queue) = (Arc::downgrade(channel), u16::try_from(queue).ok()?);
        Some(Self { channel, queue, is_armed: AtomicBool::new(false), owed: AtomicU64::new(0) })
    }

    /// Its number.
    pub(crate) const fn number(&self) -> u16 {
        self.queue
    }

    /// True if that process knows it by this channel.
    pub(crate) fn is_known_by(&self, channel: &Arc<Channel>) -> bool {
        std::ptr::eq(self.channel.as_ptr(), Arc::as_ptr(channel))
    }

    /// True once the other process is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.channel.upgrade().is_none_or(|channel| channel.is_over())
    }

    /// The queue is armed: the next message of the other process that completes there, or the next
    /// solicited one, is to signal the descriptor. To be followed by a look at what has come.
    pub(crate) fn arm(&self, events: &Arc<EventFd>, solicited_only: bool) {
        if let Some(channel) = self.channel.upgrade()
            && let Some(number) = channel.descriptor(events)
        {
            let was_armed = self.is_armed.swap(true, Ordering::Relaxed);
            if !channel.marks.arm(self.queue, number, solicited_only) && was_armed {
                self.owed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// It is armed no more.
    pub(crate) fn disarm(&self) {
        if let Some(channel) = self.channel.upgrade()
            && channel.marks.disarm(self.queue)
        {
            self.is_armed.store(false, Ordering::Relaxed);
        }
    }

    /// The number of times that the other process has signalled the descriptor, or is about to,
    /// since this was asked.
    pub(crate) fn alerts(&self) -> u64 {
        let taken = self.is_taken() && self.is_armed.swap(false, Ordering::Relaxed);
        u64::from(taken) + self.owed.swap(0, Ordering::Relaxed)
    }

    /// True if [`Self::alerts`] counts some.
    pub(crate) fn is_alerted(&self) -> bool {
        self.is_taken() || self.owed.load(Ordering::Relaxed) > 0
    }

    fn is_taken(&self) -> bool {
        let is_taken = |channel: Arc<Channel>| !channel.marks.is_armed(self.queue);
        self.is_armed.load(Ordering::Relaxed) && self.channel.upgrade().is_none_or(is_taken)
    }
}

impl Drop for KnownQueue {
    fn drop(&mut self) {
        self.disarm();
        if let Some(channel) = self.channel.upgrade() {
            lock(&channel.alerts.own).queues &= !(1 << self.queue);
        }
    }
}

impl Channel {
    /// The number by which the other process knows that descriptor of this one, if it may have it.
    fn descriptor(&self, events: &Arc<EventFd>) -> Option<u32> {
        let mut own = lock(&self.alerts.own);
        let is_it = |(_, known): &&(u32, Weak<EventFd>)| known.as_ptr() == Arc::as_ptr(events);
        if let Some((number, _)) = own.passed.iter().find(is_it) {
            return Some(*number);
        }
        own.passed.retain(|(number, known)| {
            let is_there = known.strong_count() > 0;
            if !is_there {
                self.pass(Passing::Events(*number, None));
            }
            is_there
        });
        if own.passed.len() >= DESCRIPTORS || own.passed.try_reserve(1).is_err() {
            return None;
        }
        let number = own.last.checked_add(1).filter(|number| *number < u32::MAX / 2)?;
        if !self.pass(Passing::Events(number, Some(events))) {
            return None;
        }
        tracing::debug!(number, "another process may wake the program that waits for events");
        own.last = number;
        own.passed.push((number, Arc::downgrade(events)));
        Some(number)
    }

    /// The other process has passed a descriptor on which a program of it waits, or takes it back.
    pub(crate) fn set_alert(&self, number: u32, alert: Option<Alert>) {
        let mut peers = lock(&self.alerts.peers);
        peers.retain(|(known, _)| *known != number);
        if let Some(alert) = alert
            && peers.len() < DESCRIPTORS
            && peers.try_reserve(1).is_ok()
        {
            peers.push((number, Arc::new(alert)));
        }
    }

    /// Tells the other process that something is new in the slot: a message that completes in its
    /// queue of that number. True if its program was woken, and its worker was not.
    pub(crate) fn mark_completion(&self, slot: u16, queue: u16, is_solicited: bool) -> bool {
        let find = |number| {
            let peers = lock(&self.alerts.peers);
            let known = peers.iter().find(|(known, _)| *known == number);
            known.map(|(_, alert)| Arc::clone(alert))
        };
        // Fails where the bell cannot be rung, as of a process that has ended.
        self.marks.mark_completion(slot, (queue, is_solicited), find).unwrap_or(false)
    }
}
