// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part that all objects of a context have: a number by which the kernel would know them, and a
//! place within the limits of the device.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use iwarp_os::environment;
use iwarp_os::ledger::Entry;
use iwarp_os::roster::{self, Row};

use super::Context;
use super::listed::{Life, Listed, Use};
use crate::abi::ibv_context;
use crate::guard::Errno;
use crate::refuse::refuse;

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
    const fn plural(self) -> &'static str {
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
    const fn shown(self) -> Option<usize> {
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
    fn listed(&self) -> Listed {
        if self.shown.is_some() { Listed::new() } else { Listed::default() }
    }

    fn row(&self, domain: u32, object: roster::Object) -> Row {
        Row { device: self.device, context: self.context.number(), domain, object }
    }

    fn of(&self, kind: Kind) -> &AtomicU32 {
        &self.own[kind as usize]
    }

    /// Takes a place for one more; false if there are `most` already.
    fn take(&self, kind: Kind, most: u32) -> bool {
        let more = |count| (count < most).then_some(count + 1);
        let taken = self.of(kind).fetch_update(Relaxed, Relaxed, more).is_ok();
        if let (true, Some(entry), Some(place)) = (taken, &self.shown, kind.shown()) {
            entry.add(place, 1);
        }
        taken
    }

    fn give_back(&self, kind: Kind) {
        self.of(kind).fetch_sub(1, Relaxed);
        if let (Some(entry), Some(place)) = (&self.shown, kind.shown()) {
            entry.subtract(place);
        }
    }
}

/// The place of contexts among the counts that other processes see, which are in the order of
/// `netlink::OBJECTS` of the preloaded library.
const SHOWN_CONTEXTS: usize = 5;

/// That part, in the private half of an object. The program may write to the public half: where it
/// differs, the memory was used for something else, or the program has spoilt it.
#[derive(Debug)]
pub(crate) struct Object {
    context: *mut ibv_context,
    handle: u32,
    kind: Kind,
    counts: Arc<Counts>,
    listed: Listed,
}

impl Object {
    /// For an object that is about to be made.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where the context has as many as there can be.
    pub(crate) fn new(context: &Context, kind: Kind) -> Result<Self, Errno> {
        Self::with_handle(context, kind, context.next_handle())
    }

    /// For an object whose number something else decides.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub(crate) fn with_handle(context: &Context, kind: Kind, handle: u32) -> Result<Self, Errno> {
        let limits = context.device().attributes();
        let most = match kind {
            Kind::Cq => limits.max_cq,
            Kind::Mr => limits.max_mr,
            Kind::Mw => limits.max_mw,
            Kind::Pd => limits.max_pd,
            Kind::Qp => limits.max_qp,
            Kind::Srq => limits.max_srq,
        };
        if !context.counts.take(kind, most) {
            return Err(refuse!(ENOMEM, "{most} {} exist, the most there can be", kind.plural()));
        }
        let counts = Arc::clone(&context.counts);
        let listed = kind.shown().map(|_| counts.listed()).unwrap_or_default();
        Ok(Self { context: context.as_abi(), handle, kind, counts, listed })
    }

    /// Has other processes see it as it is now: an object of the protection domain of this number.
    pub(crate) fn show(&self, domain: u32, object: impl FnOnce() -> roster::Object) {
        self.listed.show(|| self.counts.row(domain, object()));
    }

    /// The number by which they know it; 0 where it is not listed.
    pub(crate) fn shown_number(&self) -> u32 {
        self.listed.number()
    }

    /// A life for it.
    pub(crate) fn life(&self) -> Life {
        Life::of(&self.listed)
    }

    /// A use by what does not hold its life.
    pub(crate) fn in_use(&self) -> Use {
        Use::of(&self.listed)
    }

    /// Its number.
    pub(crate) const fn handle(&self) -> u32 {
        self.handle
    }

    /// Checks that the public half is still that of this object.
    ///
    /// # Errors
    ///
    /// `ENOENT`, as the kernel says of a number that it does not know.
    pub(crate) fn check(&self, context: *mut ibv_context, handle: u32) -> Result<(), Errno> {
        if (self.context, self.handle) == (context, handle) {
            return Ok(());
        }
        Err(refuse!(
            ENOENT,
            "the program has destroyed this object, or has written over it: its handle is {handle}, \
             and was {}",
            self.handle
        ))
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.counts.give_back(self.kind);
    }
}
