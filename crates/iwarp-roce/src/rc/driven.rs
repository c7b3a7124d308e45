// SPDX-License-Identifier: MIT OR Apache-2.0

//! The queue pair as its owner sees it: a core among others.

use core::time::Duration;

use iwarp_types::{
    Access, Core, Disposition, Event, Memory, PostError, QpState, Reason, ReceivePool, RecvRequest,
    Refusal, SendOp, SendRequest, Standing, Time, TransitionError, Wanted, WcStatus,
};

use super::requester::Requester;
use super::responder::Responder;
use super::{Rc, Replies, reasons};
use crate::config::Attributes;
use crate::core::DatagramCore;
use crate::wire::{Burst, Counters, Packet, Path};

impl Core for Rc {
    type Terminated = Reason;
    type Fault = Reason;

    fn state(&self) -> QpState {
        self.state
    }

    fn modify(&mut self, to: QpState) -> Result<(), TransitionError> {
        if !self.state.may_become(to) {
            return Err(TransitionError { from: self.state, to });
        }
        match to {
            QpState::Reset => *self = Self::new(self.config),
            QpState::Err => self.disconnect(),
            _ => {
                match (self.state, to) {
                    (_, QpState::Rtr) => {
                        self.responder = Responder::new(&self.attributes);
                        self.replies = Replies::new(depth(self.attributes.max_dest_rd_atomic));
                    }
                    (QpState::Rtr, _) => {
                        self.requester = Requester::new(&self.attributes, self.sq.head());
                    }
                    _ => {}
                }
                self.state = to;
                self.drain_reported = false;
                self.report_drained();
            }
        }
        Ok(())
    }

    fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        if !self.state.takes_sends() {
            return Err(PostError::WrongState);
        }
        let is_read = matches!(request.op, SendOp::Read { .. } | SendOp::Atomic { .. });
        if is_read && self.attributes.max_rd_atomic == 0 && self.state != QpState::Err {
            return Err(PostError::Invalid);
        }
        self.reserve_events()?;
        self.sq.post(&self.config.limits, request)?;
        if self.state == QpState::Err {
            self.flush(None);
        }
        Ok(())
    }

    fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        if self.config.shared_receive {
            return Err(PostError::SharedReceiveQueue);
        }
        if !self.state.takes_receives() {
            return Err(PostError::WrongState);
        }
        self.reserve_events()?;
        self.rq.post(request)?;
        if self.state == QpState::Err {
            self.flush_receives();
        }
        Ok(())
    }

    fn outstanding(&self) -> (usize, usize) {
        (self.sq.len(), self.rq.len())
    }

    fn is_connected(&self) -> bool {
        self.is_alive()
    }

    fn disconnect(&mut self) {
        // An acknowledgement still goes out, so that the peer learns which requests were executed.
        if self.is_alive() && self.responder.msn > 0 {
            self.replies.acknowledge_at_last(self.responder.last);
        }
        self.flush(None);
    }

    fn abort(&mut self) {
        self.end(None, None);
    }

    fn unreachable(&mut self) {
        self.end(None, Some(WcStatus::RetryExceeded));
    }

    fn lost(&mut self) {
        self.end(Some(Event::Lost), None);
    }

    fn timed_out(&mut self) {
        self.end(Some(Event::Lost), Some(WcStatus::RetryExceeded));
    }

    fn fail_locally(&mut self, what: &'static str) {
        self.end(Some(Event::Fault(reasons::local(what))), None);
    }

    fn disposition(&self) -> Disposition {
        match self.state {
            QpState::Err if !self.replies.is_owing() => Disposition::Finish,
            _ => Disposition::Open,
        }
    }

    #[inline]
    fn wanted(&mut self) -> Wanted {
        if self.replies.is_owing() || self.may_request() { Wanted::Much } else { Wanted::Nothing }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    #[inline]
    fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }

    fn standing(&mut self) -> Standing {
        Rc::standing(self)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.requester.timer.next()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.tick(now);
    }

    fn arrivals(&self) -> u64 {
        self.arrivals
    }

    fn set_remote_access(&mut self, access: Access) {
        self.remote_access = Some(access);
    }

    fn read_depths(&self) -> (usize, usize) {
        (self.attributes.max_rd_atomic.into(), self.attributes.max_dest_rd_atomic.into())
    }
}

/// Reads and Atomics of the peer's that are remembered (ROCE-081). Cards and rxe round their depths
/// up to a power of two at either end, so a peer may have as many under way.
fn depth(asked: u8) -> usize {
    match asked {
        0 => 0,
        _ => usize::from(asked).next_power_of_two(),
    }
}

impl DatagramCore for Rc {
    fn set_attributes(&mut self, attributes: &Attributes) {
        self.attributes = *attributes;
    }

    #[inline]
    fn receive<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        path: &Path,
        now: Time,
        memory: &M,
        receives: &dyn ReceivePool,
    ) {
        self.take_packet(packet, path, now, memory, receives);
    }

    fn congested(&mut self, path: &Path, now: Time) {
        if self.is_alive() && self.is_from_peer(path) {
            self.requester.slow_down(now);
        }
    }

    #[inline]
    fn transmit<M: Memory + ?Sized>(&mut self, burst: &mut Burst, now: Time, memory: &M) {
        self.requester.timer.resume(now);
        self.build(burst, now, memory);
    }

    fn sent_late(&mut self, by: Duration) {
        self.requester.timer.postpone(by);
    }

    fn take_counters(&mut self) -> Counters {
        core::mem::take(&mut self.counters)
    }
}
