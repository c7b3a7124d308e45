// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part that all objects of a context have: a number by which the kernel would know them, and a
//! place within the limits of the device.

use std::sync::Arc;

use iwarp_os::roster;

use super::Context;
use super::counts::{Counts, Kind};
use super::listed::{Life, Listed, ShownUse};
use crate::abi::ibv_context;
use crate::guard::Errno;
use crate::refuse::refuse;

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
    pub(crate) fn in_use(&self) -> ShownUse {
        ShownUse::of(&self.listed)
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
