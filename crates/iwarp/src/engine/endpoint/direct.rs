// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests that are carried out in the memory of a process of this host: as they are posted, or in
//! place of being sent.
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
use crate::engine::policy::table::{DIRECT_FEW, DIRECT_MOST, DIRECT_STEP, DIRECT_TAIL};
use crate::engine::sync::Ordering;
use crate::port::local::maps_arenas;

/// The turn of a request that is carried out.
#[derive(Clone, Copy)]
enum Turn<'a> {
    /// It is about to be posted.
    Now,
    /// It was posted under this number, and waits to be sent by this stream.
    Waiting(u64, &'a dyn StreamMover),
}

impl Locked {
    /// The stream, if it may carry out this request in its turn.
    #[inline]
    fn link_that_may(
        &mut self,
        request: &SendRequest<'_>,
        turn: Turn<'_>,
    ) -> Option<&Arc<dyn StreamMover>> {
        let link = self.link.as_ref()?;
        let may = match turn {
            Turn::Now => {
                if let Some(observed) = &mut self.program.observed {
                    observed.begins();
                }
                let needs_reads = !matches!(request.op, SendOp::Write { .. });
                (self.reads || !needs_reads)
                    && self.sends.has_room()
                    && self.core.may_be_done(request)
            }
            Turn::Waiting(number, its) => {
                ptr::addr_eq(Arc::as_ptr(link), its) && self.core.may_be_done_next(number)
            }
        };
        may.then_some(link)
    }

    /// Counts a request that was carried out, which read and wrote so many bytes.
    #[inline]
    fn count_done(&self, read: u64, written: u64) {
        if let Some(link) = &self.link {
            link.was_done_at_once(read, written);
        }
    }

    /// Takes a request for carried out.
    fn was_done(&mut self, request: &SendRequest<'_>, turn: Turn<'_>) -> bool {
        match turn {
            Turn::Now => {
                self.post_send_as(request, |core, request| core.post_done(request)).is_ok()
            }
            Turn::Waiting(number, _) => {
                self.core.was_done(number);
                true
            }
        }
    }
}

impl Endpoint {
    /// True if the request was carried out, and is reported. Where it was not, it is to be posted;
    /// room of a Read, or the place of a Write but for its last byte, may have bytes already, also
    /// if the post is refused because others have filled the queue meanwhile.
    #[inline]
    pub(super) fn do_at_once(&self, request: &SendRequest<'_>) -> bool {
        self.accesses_directly.load(Ordering::Relaxed) && self.carry_out(request, Turn::Now)
    }

    /// As [`Self::do_at_once`], for a request that was posted and is the next that `link` sends.
    pub(crate) fn do_waiting(
        &self,
        link: &dyn StreamMover,
        number: u64,
        request: &SendRequest<'_>,
    ) -> bool {
        self.carry_out(request, Turn::Waiting(number, link))
    }

    fn carry_out(&self, request: &SendRequest<'_>, turn: Turn<'_>) -> bool {
        match request.op {
            SendOp::Read { invalidate: None, .. } => self.read_at_once(request, turn),
            SendOp::Write { .. } if maps_arenas() => self.write_at_once(request, turn),
            SendOp::Atomic { .. } if maps_arenas() => self.update_at_once(request, turn),
            _ => false,
        }
    }

    fn read_at_once(&self, request: &SendRequest<'_>, turn: Turn<'_>) -> bool {
        let SendOp::Read { stag, to, .. } = request.op else { return false };
        let Payload::Sges(room) = request.payload else { return false };
        let len = request.payload.len();
        if len == 0 || len > DIRECT_MOST {
            return false;
        }
        let (link, is_alone) = {
            let mut locked = self.core.lock();
            let is_alone = matches!(turn, Turn::Now) && locked.sends.has_fewer_than(DIRECT_FEW);
            (locked.link_that_may(request, turn).cloned(), is_alone)
        };
        let Some(link) = link else { return false };
        if !link.read_at_once(&DirectRead { stag, to, room, is_alone }) {
            return false;
        }
        let mut locked = self.core.lock();
        // Ended meanwhile, it is flushed like any other request; behind others, it waits for them.
        let may = locked.link_that_may(request, turn).is_some_and(|now| Arc::ptr_eq(now, &link));
        let is_done = may && locked.was_done(request, turn);
        if is_done {
            locked.count_done(len, 0);
        }
        self.hand_on(&mut locked);
        is_done
    }

    fn write_at_once(&self, request: &SendRequest<'_>, turn: Turn<'_>) -> bool {
        let SendOp::Write { stag, to } = request.op else { return false };
        let (payload, len) = (request.payload, request.payload.len());
        if len == 0 || len > DIRECT_MOST {
            return false;
        }
        let part = |range| DirectWrite { stag, to, payload, range };
        let (mut done, mut by) = (0, None);
        while len - done > DIRECT_TAIL {
            let link = self.core.lock().link_that_may(request, turn).cloned();
            let Some(link) = link else { return false };
            let end = (done + DIRECT_STEP).min(len - DIRECT_TAIL / 2);
            if link.write_at_once(&part(done..end)) != AtOnce::Done {
                return false;
            }
            (done, by) = (end, Some(link));
        }
        let mut locked = self.core.lock();
        let Some(link) = locked.link_that_may(request, turn) else { return false };
        if by.is_some_and(|by| !Arc::ptr_eq(&by, link)) {
            return false;
        }
        let outcome = link.write_at_once(&part(done..len));
        self.end_at_once(&mut locked, request, turn, outcome, [0, len])
    }

    fn update_at_once(&self, request: &SendRequest<'_>, turn: Turn<'_>) -> bool {
        let SendOp::Atomic { stag, to, op } = request.op else { return false };
        let Payload::Sges(room) = request.payload else { return false };
        let mut locked = self.core.lock();
        let Some(link) = locked.link_that_may(request, turn) else { return false };
        let outcome = link.update_at_once(&DirectAtomic { stag, to, op, room });
        self.end_at_once(&mut locked, request, turn, outcome, [8, 8])
    }

    /// Reports a request that was carried out since the core was asked, and has read and written so
    /// many bytes. One that the peer may have or not is not repeated: it ends the queue pair.
    fn end_at_once(
        &self,
        locked: &mut Locked,
        request: &SendRequest<'_>,
        turn: Turn<'_>,
        outcome: AtOnce,
        [read, written]: [u64; 2],
    ) -> bool {
        match outcome {
            AtOnce::Done => {
                let done = locked.was_done(request, turn);
                debug_assert!(done, "the core has taken what it said it would");
                locked.count_done(read, written);
            }
            AtOnce::No => return false,
            AtOnce::Lost => locked.core.fail_locally("stopped while it stored at the peer"),
        }
        self.hand_on(locked);
        outcome == AtOnce::Done
    }

    /// Calls `f` with the core locked, if it has this stream still and is of that wing.
    pub(crate) fn with_core_of<C: WireCore, R>(
        &self,
        link: &dyn StreamMover,
        f: impl FnOnce(&mut C) -> R,
    ) -> Option<R> {
        self.lock_of(link)?.core.of().map(f)
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

    /// Requests were left to the transmitter that might be carried out, in place of being sent.
    #[inline]
    pub(crate) fn leaves_to_do(&self) -> bool {
        self.leaves_to_do.load(Ordering::Relaxed)
    }

    /// None is left. To be called with the core locked.
    pub(crate) fn leaves_nothing_to_do(&self) {
        self.leaves_to_do.store(false, Ordering::Relaxed);
    }

    /// Leaves these to the transmitter, with the core locked, as they are posted.
    #[inline]
    pub(super) fn leave(&self, requests: &[SendRequest<'_>]) {
        if self.accesses_directly.load(Ordering::Relaxed)
            && requests.iter().any(|request| request.op.is_one_sided())
        {
            self.leaves_to_do.store(true, Ordering::Relaxed);
        }
    }

    /// The stream can carry out requests at once from now on, or cannot.
    pub(crate) fn access_directly(&self, may: bool) {
        self.accesses_directly.store(may, Ordering::Relaxed);
    }
}
