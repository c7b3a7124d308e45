// SPDX-License-Identifier: MIT OR Apache-2.0

//! The number of objects that a context has, kind by kind, and what other processes see of it.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use iwarp_os::environment;
use iwarp_os::ledger::Entry;
use iwarp_os::roster::{self, Row};

use super::listed::Listed;

/// The kinds of objects that are counted, under the names of `struct ibv_device_attr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Cq,
    Mr,
    Mw,
    Pd,
    Qp,
    Srq,
}

impl Kind {
    pub(super) const fn plural(self) -> &'static str {
        match self {
            Self::Cq => "completion queues",
            Self::Mr => "memory regions",
            Self::Mw => "memory windows",
            Self::Pd => "protection domains",
            Self::Qp => "queue pairs",
            Self::Srq => "shared receive queues",
        }
    }

    /// The place among the counts that other processes see.
    pub(super) const fn shown(self) -> Option<usize> {
        match self {
            Self::Pd => Some(0),
            Self::Cq => Some(1),
            Self::Qp => Some(2),
            Self::Mr => Some(4),
            Self::Srq => Some(6),
            Self::Mw => None,
        }
    }
}

/// The number of objects of each kind.
#[derive(Debug)]
pub(crate) struct Counts {
    own: [AtomicU32; 6],
    /// The entry where other processes see them (`rdma resource`), if `iwarp run` shows them a
    /// device.
    shown: Option<Entry>,
    /// The place of the device in the list.
    device: u16,
    /// The context as they see it.
    context: Listed,
}

impl Counts {
    /// Counts for a context of the device at `place` of the list.
    pub(crate) fn new(place: usize) -> Self {
        let file = |tree| Path::new(&tree).join("counted/processes");
        let tree = environment::variable("IWARP_SYSFS");
        let shown = tree.and_then(|tree| Entry::claim(&file(tree), place as u64).ok());
        let mut counts = Self {
            own: Default::default(),
            shown,
            device: place as u16,
            context: Listed::default(),
        };
        if let Some(entry) = &counts.shown {
            entry.add(SHOWN_CONTEXTS, 1);
            counts.context = counts.listed();
            counts.context.show(|| counts.row(0, roster::Object::Context));
        }
        counts
    }

    /// A place in the list for an object that is counted.
    pub(super) fn listed(&self) -> Listed {
        if self.shown.is_some() { Listed::new() } else { Listed::default() }
    }

    pub(super) fn row(&self, domain: u32, object: roster::Object) -> Row {
        Row { device: self.device, context: self.context.number(), domain, object }
    }

    fn of(&self, kind: Kind) -> &AtomicU32 {
        &self.own[kind as usize]
    }

    /// Takes a place for one more; false if there are `most` already.
    pub(super) fn take(&self, kind: Kind, most: u32) -> bool {
        let more = |count| (count < most).then_some(count + 1);
        let taken = self.of(kind).fetch_update(Relaxed, Relaxed, more).is_ok();
        if let (true, Some(entry), Some(place)) = (taken, &self.shown, kind.shown()) {
            entry.add(place, 1);
        }
        taken
    }

    pub(super) fn give_back(&self, kind: Kind) {
        self.of(kind).fetch_sub(1, Relaxed);
        if let (Some(entry), Some(place)) = (&self.shown, kind.shown()) {
            entry.subtract(place);
        }
    }
}

/// The place of contexts among the counts that other processes see, which are in the order of
/// `netlink::OBJECTS` of the preloaded library.
const SHOWN_CONTEXTS: usize = 5;
