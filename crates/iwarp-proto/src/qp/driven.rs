// SPDX-License-Identifier: MIT OR Apache-2.0

//! The queue pair as the engine sees it: a core among others.

use core::time::Duration;

use iwarp_types::{
    Access, Cause, Core, Disposition, Event, PostError, QpState, Reason, RecvRequest, Refusal,
    SendRequest, Standing, Time, TransitionError, Wanted,
};

use super::{Fault, Qp};
use crate::rdmap::wire::TerminateCode;

impl Cause for Fault {
    fn reason(&self) -> Reason {
        self.code().reason()
    }

    fn bad_address(&self) -> Option<(u64, bool)> {
        match *self {
            Self::BadAddress { addr, remote } => Some((addr, remote)),
            _ => None,
        }
    }
}

/// Every method is the queue pair's own of that name.
impl Core for Qp {
    type Terminated = TerminateCode;
    type Fault = Fault;

    fn state(&self) -> QpState {
        self.state()
    }

    fn modify(&mut self, to: QpState) -> Result<(), TransitionError> {
        self.modify(to)
    }

    #[inline]
    fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.post_send(request)
    }

    #[inline]
    fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.post_recv(request)
    }

    fn outstanding(&self) -> (usize, usize) {
        self.outstanding()
    }

    #[inline]
    fn is_connected(&self) -> bool {
        self.is_connected()
    }

    fn disconnect(&mut self) {
        self.disconnect();
    }

    fn abort(&mut self) {
        self.abort();
    }

    fn unreachable(&mut self) {
        self.unreachable();
    }

    fn lost(&mut self) {
        self.lost();
    }

    fn timed_out(&mut self) {
        self.timed_out();
    }

    fn fail_locally(&mut self, what: &'static str) {
        self.fail_locally(what);
    }

    #[inline]
    fn disposition(&self) -> Disposition {
        self.disposition()
    }

    #[inline]
    fn wanted(&mut self) -> Wanted {
        self.wanted()
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event<TerminateCode, Fault>> {
        self.poll_event()
    }

    #[inline]
    fn has_events(&self) -> bool {
        self.has_events()
    }

    fn take_refusal(&mut self) -> Option<Refusal> {
        self.take_refusal()
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.poll_timeout()
    }

    #[inline]
    fn may_want_time(&self) -> bool {
        self.may_want_time()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.handle_timeout(now);
    }

    #[inline]
    fn arrivals(&self) -> u64 {
        self.arrivals()
    }

    fn is_outlived(&self) -> bool {
        self.is_outlived()
    }

    #[inline]
    fn has_parked(&self) -> bool {
        self.has_parked()
    }

    #[inline]
    fn is_stalled(&self) -> bool {
        self.is_stalled()
    }

    fn standing(&mut self) -> Standing {
        self.standing()
    }

    fn set_rnr_timer(&mut self, timer: Duration) {
        self.set_rnr_timer(timer);
    }

    fn set_rnr_retry(&mut self, count: u8) {
        self.set_rnr_retry(count);
    }

    fn set_peer_rnr_retry(&mut self, count: u8) {
        self.set_peer_rnr_retry(count);
    }

    fn set_remote_access(&mut self, access: Access) {
        self.set_remote_access(access);
    }

    fn read_depths(&self) -> (usize, usize) {
        self.read_depths()
    }
}
