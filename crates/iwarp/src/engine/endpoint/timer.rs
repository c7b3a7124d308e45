// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time at which the core wants to be called.

use std::sync::{Arc, Weak};

use super::Endpoint;
use crate::engine::sync::Ordering;

impl Endpoint {
    /// Sets the timer that the core asks for: only while operations wait to learn what the peer
    /// can do, at the start of a connection, and while a full park holds it up.
    pub(crate) fn watch_time(self: &Arc<Self>) {
        if !self.wants_timer.load(Ordering::Relaxed) {
            return;
        }
        self.wants_timer.store(false, Ordering::Relaxed);
        let later = {
            let mut core = self.core.lock();
            let Some(at) = core.core.poll_timeout() else { return };
            if at <= self.now() {
                None
            } else if core.timer.is_some_and(|earlier| earlier <= at) {
                // That call asks again.
                return;
            } else {
                core.timer = Some(at);
                Some(at)
            }
        };
        let Some(at) = later else { return self.tell_time() };
        let weak: Weak<Self> = Arc::downgrade(self);
        self.engine.worker.at(
            at,
            Box::new(move || {
                if let Some(endpoint) = weak.upgrade() {
                    endpoint.core.lock().timer = None;
                    endpoint.tell_time();
                }
            }),
        );
    }

    /// Packets that have come to the port by now count first: a thread that got no CPU for a while
    /// finds both an answer and its deadline.
    fn tell_time(self: &Arc<Self>) {
        let now = self.now();
        let mux = {
            let locked = self.core.lock();
            let is_due = locked.core.poll_timeout().is_some_and(|at| at <= now);
            if is_due { locked.mux.clone() } else { None }
        };
        if let Some(mux) = mux {
            mux.catch_up();
        }
        self.with(|core| core.handle_timeout(now));
        self.carry_on();
        self.watch_time();
    }
}
