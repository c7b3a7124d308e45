// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events that the program took and has not acknowledged: of completion queues, asynchronous ones,
//! and those of the connection manager.
//!
//! Another thread may acknowledge while one waits to destroy the object; so it is misuse only where
//! the thread that destroys has taken all of them itself.

use std::collections::HashMap;

use super::failures::thread;
use super::layout::{AsyncHead, CmEventHead, read};
use super::place::Place;
use super::report::{NOT_ACKNOWLEDGED, Reports};

/// `RDMA_CM_EVENT_CONNECT_REQUEST`, which counts for the id that listens.
const CONNECT_REQUEST: u32 = 4;

/// The kinds of events, which are acknowledged apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    Completion,
    Asynchronous,
    Connection,
}

#[derive(Debug)]
struct Taken {
    count: i64,
    /// The only thread that took any.
    thread: Option<usize>,
    last: Place,
}

#[derive(Debug, Default)]
pub(super) struct Events {
    /// By address of the object.
    of: HashMap<(Kind, usize), Taken>,
}

/// The object of an asynchronous event; `None` for those of ports and of the device.
fn object(event: usize) -> Option<usize> {
    // SAFETY: the program's event, which the library has filled.
    let AsyncHead { element, event } = unsafe { read::<AsyncHead>(event) };
    matches!(event, 0..=7 | 14..=16).then_some(element)
}

/// The id that waits for the acknowledgement of an event.
fn id(event: usize) -> usize {
    // SAFETY: the program's event, which it has not given back yet.
    let CmEventHead { id, listener, event } = unsafe { read::<CmEventHead>(event) };
    if event == CONNECT_REQUEST { listener } else { id }
}

impl Events {
    /// An object at this address is new.
    pub(super) fn made(&mut self, object: usize) {
        self.of.retain(|(_, of), _| *of != object);
    }

    /// The program took an asynchronous event, which is at this address.
    pub(super) fn taken_asynchronous(&mut self, event: usize) {
        if let Some(object) = object(event) {
            self.taken(Kind::Asynchronous, object);
        }
    }

    /// The program is about to acknowledge it.
    pub(super) fn acknowledges_asynchronous(&mut self, event: usize) {
        if let Some(object) = object(event) {
            self.acknowledged(Kind::Asynchronous, object, 1);
        }
    }

    /// The program took an event of the connection manager, which is at this address.
    pub(super) fn taken_from_manager(&mut self, event: usize) {
        // SAFETY: the program's event, which the library has just made.
        let CmEventHead { id: new, event: kind, .. } = unsafe { read::<CmEventHead>(event) };
        if kind == CONNECT_REQUEST {
            self.made(new);
        }
        self.taken(Kind::Connection, id(event));
    }

    /// The program is about to acknowledge it.
    pub(super) fn acknowledges_to_manager(&mut self, event: usize) {
        self.acknowledged(Kind::Connection, id(event), 1);
    }

    /// The program took an event of an object.
    pub(super) fn taken(&mut self, kind: Kind, object: usize) {
        let (own, last) = (Some(thread()), Place::here());
        match self.of.get_mut(&(kind, object)) {
            Some(taken) => {
                taken.count += 1;
                taken.thread = taken.thread.filter(|one| Some(*one) == own);
                taken.last = last;
            }
            None => {
                self.of.insert((kind, object), Taken { count: 1, thread: own, last });
            }
        }
    }

    /// The program acknowledged so many.
    pub(super) fn acknowledged(&mut self, kind: Kind, object: usize, count: i64) {
        if let Some(taken) = self.of.get_mut(&(kind, object)) {
            taken.count -= count;
            if taken.count <= 0 {
                self.of.remove(&(kind, object));
            }
        }
    }

    /// The program is about to destroy an object.
    pub(super) fn destroys(&self, verb: &str, object: usize, reports: &mut Reports) {
        for kind in [Kind::Completion, Kind::Asynchronous, Kind::Connection] {
            let Some(taken) = self.of.get(&(kind, object)) else { continue };
            if taken.thread != Some(thread()) {
                continue;
            }
            let what = format!(
                "{verb} of {object:#x} waits for {} event(s) that this thread took",
                taken.count
            );
            let others = [("last taken", &taken.last)];
            reports.report(&NOT_ACKNOWLEDGED, &what, &Place::here(), &others);
        }
    }
}
