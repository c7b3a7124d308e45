// SPDX-License-Identifier: MIT OR Apache-2.0

//! What all objects of a context have: a number by which the kernel would know them, and a place
//! among those that the device says there can be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::Context;
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
}

/// How many there are of each kind.
#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU32; 6]);

impl Counts {
    fn of(&self, kind: Kind) -> &AtomicU32 {
        &self.0[kind as usize]
    }
}

/// Its part in the private half of an object. The public half is the program's to write to: where
/// it does not say the same any more, it is memory that was used for something else, or that the
/// program has spoilt.
#[derive(Debug)]
pub(crate) struct Object {
    context: *mut ibv_context,
    handle: u32,
    kind: Kind,
    counts: Arc<Counts>,
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
        let more = |count| (count < most).then_some(count + 1);
        let taken = context.counts.of(kind).fetch_update(Relaxed, Relaxed, more);
        taken.map_err(|_| {
            refuse!(ENOMEM, "{most} {} exist, the most there can be", kind.plural())
        })?;
        let counts = Arc::clone(&context.counts);
        Ok(Self { context: context.as_abi(), handle, kind, counts })
    }

    /// Its number.
    pub(crate) const fn handle(&self) -> u32 {
        self.handle
    }

    /// Whether the public half is still that of this object.
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
        self.counts.of(self.kind).fetch_sub(1, Relaxed);
    }
}
