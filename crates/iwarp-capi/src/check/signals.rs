// SPDX-License-Identifier: MIT OR Apache-2.0

//! Send queues whose requests ask for no completion.
//!
//! A card frees the place of a request only with the completion of it or of one behind it. More
//! requests without one in a row than the queue has places never fit, however long one waits.

use std::collections::HashMap;

use super::failures::thread;
use super::layout::{Request, read};
use super::place::Place;
use super::report::{NEVER_SIGNALLED, Reports};

/// `IBV_SEND_SIGNALED`
const SIGNALLED: u32 = 2;

/// The attributes of a queue pair that is made, of either kind, and what they become.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Attributes {
    pointers: [usize; 4],
    max_send_wr: u32,
    caps: [u32; 4],
    kind: u32,
    all_signalled: u32,
}

#[derive(Debug)]
struct Queue {
    places: u32,
    /// Requests in a row without a completion, up to the last.
    silent: u32,
    /// The thread that posts.
    thread: Option<usize>,
    made: Place,
}

#[derive(Debug, Default)]
pub(super) struct Signals {
    /// By address of the queue pair; those alone whose requests choose.
    of: HashMap<usize, Queue>,
}

impl Signals {
    /// A queue pair was made with the attributes at this address.
    pub(super) fn made(&mut self, pair: usize, attributes: usize) {
        // SAFETY: the program's attributes, which it has just given.
        let attributes = unsafe { read::<Attributes>(attributes) };
        self.of.remove(&pair);
        if attributes.all_signalled == 0 && attributes.max_send_wr > 0 {
            let places = attributes.max_send_wr;
            self.of.insert(pair, Queue { places, silent: 0, thread: None, made: Place::here() });
        }
    }

    /// The queue pair is gone, or it is used in ways that are not followed.
    pub(super) fn forget(&mut self, pair: usize) {
        self.of.remove(&pair);
    }

    /// The queue pair's state was changed: its queue may be empty.
    pub(super) fn changed(&mut self, pair: usize) {
        if let Some(queue) = self.of.get_mut(&pair) {
            queue.silent = 0;
        }
    }

    /// The program posted the requests `list`: from the first address to before the second, or to
    /// the last. It got `ENOMEM` for more if the queue is `full`.
    pub(super) fn posted(
        &mut self,
        pair: usize,
        list: (usize, usize),
        full: bool,
        reports: &mut Reports,
    ) {
        let Some(queue) = self.of.get_mut(&pair) else { return };
        // Calls of several threads may be told in another order than they took effect in.
        if *queue.thread.get_or_insert_with(thread) != thread() {
            return self.forget(pair);
        }
        let (mut at, end) = list;
        while at != 0 && at != end {
            // SAFETY: the program's list, which it has just posted.
            let request = unsafe { read::<Request>(at) };
            let signalled = request.send_flags & SIGNALLED != 0;
            queue.silent = if signalled { 0 } else { queue.silent.saturating_add(1) };
            at = request.next;
        }
        let silent = queue.silent.saturating_add(full.into());
        if silent > queue.places {
            let what = format!(
                "ibv_post_send of {silent} requests in a row that ask for no completion, and the \
                 queue has {} places",
                queue.places
            );
            let others = [("queue pair made", &queue.made)];
            reports.report(&NEVER_SIGNALLED, &what, &Place::here(), &others);
        }
    }
}
