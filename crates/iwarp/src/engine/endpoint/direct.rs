// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests that are carried out as they are posted, in the memory of a process of this host.
//!
//! Bytes of a Read are copied without the core's lock: what another thread posts meanwhile is
//! posted at one time with the Read, and either may come first. The core is asked before and after
//! the copy; a Read that does not fit in any more is carried out again in its turn.
//!
//! A Write must not be carried out twice: the peer's program may have found it and gone on. So its
//! last bytes, and an Atomic, are carried out under the lock, when nothing can come between them
//! and the report. The bytes before them are copied without it, and again if need be.

use std::ops::DerefMut;
use std::ptr;
use std::sync::Arc;

use iwarp_types::{Payload, SendOp, SendRequest};

use super::{Endpoint, Locked, WireCore};
use crate::engine::mover::{AtOnce, DirectAtomic, DirectRead, DirectWrite, StreamMover};
use crate::engine::policy::table::{DIRECT_MOST, DIRECT_STEP, DIRECT_TAIL};
use crate::engine::sync::Ordering;
use crate::port::local::maps_arenas;

impl Locked {
    /// The stream, if it may carry out this request before it is posted.
    #[inline]
    fn link_that_may(&mut self, request: &SendRequest<'_>) -> Option<Arc<dyn StreamMover>> {
        let needs_reads = !matches!(request.op, SendOp::Write { .. });
        let may =
            (self.reads || !needs_reads) && self.sends.has_room() && self.core.may_be_done(request);
        self.link.clone().filter(|_| may)
    }

    /// Posts a request that was carried out.
    fn post_done(&mut self, request: &SendRequest<'_>) -> bool {
        self.post_send_as(request, |core, request| core.post_done(request)).is_ok()
    }
}

impl Endpoint {
    /// True if the request was carried out, and is reported. Where it was not, it is to be posted;
    /// room of a Read, or the place of a Write but for its last byte, may have bytes already, also
    /// if the post is refused because others have filled the queue meanwhile.
    pub(super) fn do_at_once(self: &Arc<Self>, request: &SendRequest<'_>) -> bool {
        if !self.accesses_directly.load(Ordering::Relaxed) {
            return false;
        }
        match request.op {
            SendOp::Read { invalidate: None, .. } => self.read_at_once(request),
            SendOp::Write { .. } if maps_arenas() => self.write_at_once(request),
            SendOp::Atomic { .. } if maps_arenas() => self.update_at_once(request),
            _ => false,
        }
    }

    fn read_at_once(self: &Arc<Self>, request: &SendRequest<'_>) -> bool {
        let SendOp::Read { stag, to, .. } = request.op else { return false };
        let Payload::Sges(room) = request.payload else { return false };
        let len = request.payload.len();
        if len == 0 || len > DIRECT_MOST {
            return false;
        }
        let link = self.core.lock().link_that_may(request);
        let Some(link) = link else { return false };
        if !link.read_at_once(&DirectRead { stag, to, room }) {
            return false;
        }
        let mut locked = self.core.lock();
        // Ended meanwhile, it is flushed like any other request; behind others, it waits for them.
        let may = locked.link_that_may(request).is_some_and(|now| Arc::ptr_eq(&now, &link));
        let posted = may && locked.post_done(request);
        self.hand_on(&mut locked);
        drop(locked);
        if posted {
            link.was_done_at_once(len, 0);
        }
        posted
    }

    fn write_at_once(self: &Arc<Self>, request: &SendRequest<'_>) -> bool {
        let SendOp::Write { stag, to } = request.op else { return false };
        let (payload, len) = (request.payload, request.payload.len());
        if len == 0 || len > DIRECT_MOST {
            return false;
        }
        let part = |range| DirectWrite { stag, to, payload, range };
        let (mut done, mut by) = (0, None);
        while len - done > DIRECT_TAIL {
            if by.is_none() {
                by = self.core.lock().link_that_may(request);
            }
            let Some(link) = &by else { return false };
            let end = (done + DIRECT_STEP).min(len - DIRECT_TAIL / 2);
            if link.write_at_once(&part(done..end)) != AtOnce::Done {
                return false;
            }
            done = end;
        }
        let mut locked = self.core.lock();
        let Some(link) = locked.link_that_may(request) else { return false };
        if by.is_some_and(|by| !Arc::ptr_eq(&by, &link)) {
            return false;
        }
        let outcome = link.write_at_once(&part(done..len));
        let is_done = self.end_at_once(&mut locked, request, outcome);
        drop(locked);
        if is_done {
            link.was_done_at_once(0, len);
        }
        is_done
    }

    fn update_at_once(self: &Arc<Self>, request: &SendRequest<'_>) -> bool {
        let SendOp::Atomic { stag, to, op } = request.op else { return false };
        let Payload::Sges(room) = request.payload else { return false };
        let mut locked = self.core.lock();
        let Some(link) = locked.link_that_may(request) else { return false };
        let outcome = link.update_at_once(&DirectAtomic { stag, to, op, room });
        let is_done = self.end_at_once(&mut locked, request, outcome);
        drop(locked);
        if is_done {
            link.was_done_at_once(8, 8);
        }
        is_done
    }

    /// Reports a request that was carried out since the core was asked. One that the peer may have
    /// or not is not repeated: it ends the queue pair.
    fn end_at_once(&self, locked: &mut Locked, request: &SendRequest<'_>, outcome: AtOnce) -> bool {
        match outcome {
            AtOnce::Done => {
                let posted = locked.post_done(request);
                debug_assert!(posted, "the core has taken what it said it would");
            }
            AtOnce::No => return false,
            AtOnce::Lost => locked.core.fail_locally("stopped while it stored at the peer"),
        }
        self.hand_on(locked);
        outcome == AtOnce::Done
    }

    /// Calls `f` with the core locked, if it has this stream still and is of that wing.
    pub(crate) fn with_core_of<C: WireCore>(&self, link: &dyn StreamMover, f: impl FnOnce(&mut C)) {
        if let Some(mut locked) = self.lock_of(link)
            && let Some(core) = locked.core.of()
        {
            f(core);
        }
    }

    /// As [`Self::with_core_of`], and hands on what follows.
    pub(crate) fn tell_core_of<C: WireCore, R>(
        &self,
        link: &dyn StreamMover,
        f: impl FnOnce(&mut C) -> R,
    ) -> Option<R> {
        let mut locked = self.lock_of(link)?;
        let result = locked.core.of().map(f);
        self.hand_on(&mut locked);
        result
    }

    /// The core locked, if it has this stream still.
    fn lock_of(&self, link: &dyn StreamMover) -> Option<impl DerefMut<Target = Locked>> {
        let locked = self.core.lock();
        let is_its = |now: &Arc<dyn StreamMover>| ptr::addr_eq(Arc::as_ptr(now), link);
        locked.link.as_ref().is_some_and(is_its).then_some(locked)
    }

    /// The stream can carry out requests at once from now on, or cannot.
    pub(crate) fn access_directly(&self, may: bool) {
        self.accesses_directly.store(may, Ordering::Relaxed);
    }
}
