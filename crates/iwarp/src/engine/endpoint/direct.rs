// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads that are carried out as they are posted, from the memory of a process of this host.
//!
//! The bytes are copied without the core's lock: what another thread posts meanwhile is posted at
//! one time with the Read, and either may come first. The core is asked before and after the copy.

use std::ptr;
use std::sync::Arc;

use iwarp_types::{Payload, SendOp, SendRequest};

use super::{Endpoint, WireCore};
use crate::engine::mover::{DirectRead, StreamMover};
use crate::engine::policy::table::DIRECT_READ;
use crate::engine::sync::Ordering;

impl Endpoint {
    /// True if the request was a Read that was carried out, and is reported. Where it was not, it
    /// is to be posted; its room may have bytes already, also if that is refused because others
    /// have filled the queue meanwhile.
    pub(super) fn read_at_once(self: &Arc<Self>, request: &SendRequest<'_>) -> bool {
        if !self.reads_directly.load(Ordering::Relaxed) {
            return false;
        }
        let SendOp::Read { stag, to, invalidate: None } = request.op else { return false };
        let Payload::Sges(room) = request.payload else { return false };
        let len: u64 = room.iter().map(|sge| u64::from(sge.length)).sum();
        if len == 0 || len > DIRECT_READ {
            return false;
        }
        let link = {
            let mut locked = self.core.lock();
            let may = locked.reads && locked.sends.has_room();
            let may = may && locked.core.may_read_at_once(request);
            locked.link.clone().filter(|_| may)
        };
        let Some(link) = link else { return false };
        if !link.read_at_once(&DirectRead { stag, to, room }) {
            return false;
        }
        let mut locked = self.core.lock();
        // Ended meanwhile, it is flushed like any other request; behind others, it waits for them.
        let is_of_link = locked.link.as_ref().is_some_and(|now| Arc::ptr_eq(now, &link));
        let posted = is_of_link
            && locked.core.may_read_at_once(request)
            && locked.post_send_as(request, |core, read| core.post_done_read(read)).is_ok();
        self.hand_on(&mut locked);
        drop(locked);
        if posted {
            link.has_read_at_once(len);
        }
        posted
    }

    /// Calls `f` with the core locked, if it has this stream still and is of that wing.
    pub(crate) fn with_core_of<C: WireCore>(&self, link: &dyn StreamMover, f: impl FnOnce(&mut C)) {
        let mut locked = self.core.lock();
        let is_its = |now: &Arc<dyn StreamMover>| ptr::addr_eq(Arc::as_ptr(now), link);
        if locked.link.as_ref().is_some_and(is_its)
            && let Some(core) = locked.core.of()
        {
            f(core);
        }
    }

    /// The stream can carry out Reads at once from now on, or cannot.
    pub(crate) fn read_directly(&self, may: bool) {
        self.reads_directly.store(may, Ordering::Relaxed);
    }
}
