// SPDX-License-Identifier: MIT OR Apache-2.0

//! A port that is needed no more is given back, although the device stays open: the drop-in
//! libraries never close theirs, and a process that keeps its share may be the one on which all
//! others of the user depend.
//!
//! It is needed by numbers of queue pairs, and by a connection manager that listens or has not
//! forgotten every peer yet. When the last of these has ended a worker looks a little later, so
//! that a program that makes queue pairs one after the other keeps its share.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{LOOKS, Mux, Used};
use crate::engine::sync::{Mutex, Ordering};

/// The time that a port is kept which is needed no more.
const LINGER: Duration = Duration::from_millis(200);
/// The number of times that it is looked at again, later each time, where a thread had it in hand
/// just then.
const TRIES: u32 = 6;

/// Gives a port back if it is not needed, at last when the worker that was to look ends.
struct Rest {
    mux: Weak<Mux>,
    tries: u32,
}

impl Mux {
    /// A device keeps it there from now on.
    pub(super) fn kept_at(&self, place: &Arc<Mutex<Option<Used>>>) {
        {
            let mut places = self.places.lock();
            places.retain(|other| other.strong_count() > 0);
            places.push(Arc::downgrade(place));
        }
        self.rest_later();
    }

    /// Has a worker look a little later at whether the port is still needed.
    pub(crate) fn rest_later(&self) {
        self.look_later(0);
    }

    fn look_later(&self, tries: u32) {
        // One on a host of its own is in nobody's way.
        if self.flags.load(Ordering::Acquire) & LOOKS != 0 || !self.gsi.hears() {
            return;
        }
        if self.flags.fetch_or(LOOKS, Ordering::AcqRel) & LOOKS == 0 {
            let rest = Rest { mux: Weak::clone(&self.itself), tries };
            self.gsi.later(LINGER * (1 << tries), Box::new(move || drop(rest)));
        }
    }
}

impl Used {
    /// True if only devices keep it.
    fn is_unused(&self) -> bool {
        self.mux.lodgers.load(Ordering::Acquire) == 0
            && Arc::strong_count(&self.mux) == self.mux.keepers.load(Ordering::Acquire) as usize
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let Some(mux) = self.mux.upgrade() else { return };
        mux.flags.fetch_and(!LOOKS, Ordering::AcqRel);
        if mux.lodgers.load(Ordering::Acquire) > 0 || !mux.gsi.rest() {
            return;
        }
        let places = mux.places.lock().clone();
        drop(mux);
        for place in places.iter().filter_map(Weak::upgrade) {
            let mut used = place.lock();
            let ours = used.as_ref().filter(|used| Arc::as_ptr(&used.mux) == self.mux.as_ptr());
            let unused = ours.is_some_and(Used::is_unused);
            let unused = if unused { used.take() } else { None };
            drop(used);
            // Without the lock: it has the port closed.
            drop(unused);
        }
        if self.tries < TRIES
            && let Some(mux) = self.mux.upgrade()
            && mux.lodgers.load(Ordering::Acquire) == 0
        {
            mux.look_later(self.tries + 1);
        }
    }
}
