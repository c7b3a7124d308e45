// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requests that programs post, and the calls that post and then await an answer or deliver
//! what waits.

use std::sync::Arc;

use iwarp_types::{PostError, QpState, QpType, RecvRequest, SendOp, SendRequest};

use super::core::EndpointCore;
use super::{Endpoint, Locked};
use crate::engine::mover::StreamMover;
use crate::engine::policy::habits::{Advice, Post};
use crate::engine::policy::table::{FEW, PAUSE};
use crate::engine::poll_set::By;
use crate::port::local::maps_arenas;
use crate::report;

/// The result of posting a list of requests: up to the one that was refused.
pub(crate) type Posted = Result<(), (usize, PostError)>;

impl Locked {
    fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.post_send_as(request, |core, request| core.post_send(request))
    }

    /// As [`Self::post_send`]; the core takes the request by `take`.
    #[inline]
    pub(super) fn post_send_as(
        &mut self,
        request: &SendRequest<'_>,
        take: impl FnOnce(&mut dyn EndpointCore, &SendRequest<'_>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        if !self.sends.has_room() {
            return Err(self.full());
        }
        let is_read = matches!(request.op, SendOp::Read { .. } | SendOp::Atomic { .. });
        if is_read && !self.may_read() {
            return Err(self.refused(PostError::Invalid));
        }
        match take(&mut *self.core, request) {
            Ok(()) => {}
            Err(PostError::QueueFull) => return Err(self.full()),
            Err(error) => return Err(self.refused(error)),
        }
        if self.sends.take(request.signaled) {
            report_unsignaled();
        }
        if self.program.observed.is_some() {
            self.observe(request);
        }
        Ok(())
    }

    /// The request was taken, and is counted or told. Apart, so that others pay one look.
    #[inline(never)]
    fn observe(&mut self, request: &SendRequest<'_>) {
        let Some(observed) = &mut self.program.observed else { return };
        let core = &self.core;
        observed.posted(request, || (!core.has_events()).then(|| core.outstanding().0));
        if observed.is_over() {
            self.program.observed = None;
        }
    }

    #[cold]
    fn full(&mut self) -> PostError {
        if self.sends.refuse() {
            report_unsignaled();
        }
        self.refused(PostError::QueueFull)
    }

    #[cold]
    fn refused(&mut self, error: PostError) -> PostError {
        if let Some(observed) = &mut self.program.observed {
            observed.is_refused();
        }
        error
    }

    /// True if a Read or Atomic can ever be under way, as far as is known. In the error state it is
    /// flushed like any other request.
    fn may_read(&self) -> bool {
        self.reads && self.core.may_read() || self.core.state() == QpState::Err
    }

    fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // With a shared queue it has none of its own, and says so itself.
        if !self.receives.has_room() && !self.shares {
            return Err(PostError::QueueFull);
        }
        self.core.post_recv(request)?;
        self.receives.take();
        if let Some(observed) = &mut self.program.observed {
            observed.posted_receive(request);
        }
        Ok(())
    }
}

/// Other devices learn only from polled completions that slots are free again.
#[cold]
fn report_unsignaled() {
    report!(
        burst 1,
        WARN,
        "more requests were posted than the send queue holds (max_send_wr), and none of them \
         signaled: an RDMA card refuses the next (ENOMEM), as only a polled completion frees their \
         places. Signal one request in as many, and poll it; IWARP_STRICT=on refuses here, too"
    );
}

impl Endpoint {
    /// Posts requests in order until one is refused; sends what can be sent at once.
    #[inline]
    pub(crate) fn post_send(self: &Arc<Self>, requests: &[SendRequest<'_>]) -> Posted {
        if self.qp_type == QpType::Ud && self.profile.is_bound() {
            return self.post_from_home(requests);
        }
        self.post_sends(requests)
    }

    /// As [`Self::post_send`], for datagrams of a port that has the addresses of one interface:
    /// they leave from no other.
    #[cold]
    fn post_from_home(self: &Arc<Self>, requests: &[SendRequest<'_>]) -> Posted {
        let now = self.now();
        let is_astray = |request: &SendRequest<'_>| {
            let source = request.destination.map(|to| to.address.source);
            source.is_some_and(|source| !self.home().has_lately(source, now))
        };
        match requests.iter().position(is_astray) {
            None => self.post_sends(requests),
            Some(number) => {
                self.post_sends(&requests[..number])?;
                Err((number, PostError::Invalid))
            }
        }
    }

    fn post_sends(self: &Arc<Self>, requests: &[SendRequest<'_>]) -> Posted {
        let done = match requests {
            [SendRequest { op: SendOp::Read { .. }, .. }, ..] => self.do_some_at_once(requests),
            [SendRequest { op: SendOp::Write { .. } | SendOp::Atomic { .. }, .. }, ..]
                if maps_arenas() =>
            {
                self.do_some_at_once(requests)
            }
            _ => 0,
        };
        if done > 0 && done == requests.len() {
            return Ok(());
        }
        let posted = self.post_to_core(&requests[done..]);
        posted.map_err(|(number, error)| (done + number, error))
    }

    /// Carries out requests in front as long as that is possible, and says how many. Each leaves
    /// the next one as it was found itself.
    #[inline(never)]
    fn do_some_at_once(self: &Arc<Self>, requests: &[SendRequest<'_>]) -> usize {
        requests.iter().take_while(|request| self.do_at_once(request)).count()
    }

    #[inline(always)]
    fn post_to_core(self: &Arc<Self>, requests: &[SendRequest<'_>]) -> Posted {
        let (result, posted) = self.post(requests, Locked::post_send, |locked| {
            let Some(link) = locked.link.clone() else { return Err(locked.mux.clone()) };
            self.leave(requests);
            Ok((link, locked.habits.posted(&Seen { endpoint: self, requests })))
        });
        match posted {
            Ok((link, _)) if link.gathers() => {}
            Ok((link, advice)) => {
                if let Advice::Hold(now) = advice {
                    self.send_cq.group().note_hold(now);
                    self.recv_cq.group().handover.lease_in_full(now);
                    link.hold();
                    return result;
                }
                link.transmit();
                if advice == Advice::SendAndAwait {
                    self.await_answer(&*link);
                }
            }
            Err(Some(mux)) => mux.transmit(self),
            Err(None) => {}
        }
        result
    }

    /// Posts in order until one is refused, and says which; adds the result of `also`, which is
    /// called before others have the lock.
    fn post<R, T>(
        &self,
        requests: &[R],
        post: impl Fn(&mut Locked, &R) -> Result<(), PostError>,
        also: impl FnOnce(&mut Locked) -> T,
    ) -> (Posted, T) {
        let mut core = self.core.lock();
        let mut numbered = requests.iter().enumerate();
        let result = numbered.try_for_each(|(number, request)| {
            post(&mut core, request).map_err(|error| (number, error))
        });
        self.hand_on(&mut core);
        let also = also(&mut core);
        (result, also)
    }

    /// The program spins on memory until the peer answers: receives in its stead. The worker stays
    /// away meanwhile, and until the program has had time to post again.
    fn await_answer(&self, link: &dyn StreamMover) {
        let start = self.nanos();
        let groups = self.groups();
        groups.iter().for_each(|group| group.handover.lease_in_full(start));
        let arrivals = || self.core.lock().core.arrivals();
        let before = arrivals();
        let mut tries = 0;
        let came = loop {
            groups[0].drive(By::Post);
            if arrivals() != before {
                break true;
            }
            if link.is_closed() || self.nanos() - start > PAUSE {
                break false;
            }
            tries += 1;
            if tries > FEW {
                self.engine.clock.yield_now();
            }
        };
        self.core.lock().habits.awaited(came);
        if !came {
            groups.iter().for_each(|group| group.leave_to_worker());
        }
    }

    pub(crate) fn post_recv(self: &Arc<Self>, requests: &[RecvRequest<'_>]) -> Posted {
        let (result, waiting) = self.post(requests, Locked::post_recv, |core| {
            let waiting = core.core.has_parked() || core.core.is_stalled();
            if waiting { core.link.clone() } else { None }
        });
        if let Some(link) = waiting {
            link.deliver();
        }
        result
    }

    /// There may be receives in the shared receive queue, for which messages wait here.
    pub(super) fn deliver_parked(self: &Arc<Self>) {
        if let Some(link) = self.link()
            && self.has_parked()
        {
            link.deliver();
        }
    }

    /// True if messages wait for receives.
    pub(crate) fn has_parked(&self) -> bool {
        self.parks && self.with(|core| core.has_parked() || core.is_stalled())
    }

    /// Has the shared receive queue call when it has receives, if messages wait for some. False
    /// when it has some already.
    pub(crate) fn await_receives(self: &Arc<Self>) -> bool {
        match &self.srq {
            Some(srq) if self.has_parked() => srq.await_receives(self),
            _ => true,
        }
    }
}

/// A program that posts, as its habits are seen by.
struct Seen<'a> {
    endpoint: &'a Endpoint,
    requests: &'a [SendRequest<'a>],
}

impl Post for Seen<'_> {
    fn now(&self) -> u64 {
        self.endpoint.nanos()
    }

    fn octets(&self) -> usize {
        self.requests.iter().map(|request| request.payload.len() as usize).sum()
    }

    fn is_asleep(&self) -> bool {
        self.endpoint.is_asleep()
    }

    fn polls(&self) -> u32 {
        self.endpoint.send_cq.group().polls.all()
    }

    fn polls_in_vain(&self) -> u32 {
        self.endpoint.polls_in_vain()
    }
}
