// SPDX-License-Identifier: MIT OR Apache-2.0

//! The results of a core's events: completions, asynchronous events, calls of the observer.

use std::sync::Arc;

use iwarp_types::{Cause as _, Core, Event, WcStatus, WorkCompletion};

use super::hurt::Kept;
use super::{Endpoint, Locked, Program};
use crate::engine::ended::Ended;
use crate::engine::event::AsyncEvent;
use crate::engine::mover::StreamMover;
use crate::engine::slots::SendSlots;
use crate::engine::sync::Ordering;

/// The place that a core's events go to.
pub(crate) struct Sink<'a> {
    endpoint: &'a Endpoint,
    sends: &'a mut SendSlots,
    program: &'a mut Program,
    link: &'a Option<Arc<dyn StreamMover>>,
}

impl Sink<'_> {
    /// Takes the events that there are.
    #[inline]
    pub(super) fn events_of(self, core: &mut impl Core) {
        let Self { endpoint, sends, program, link } = self;
        endpoint.hand_on_of(core, sends, program, link);
    }
}

impl Endpoint {
    /// Calls `work`, which places bytes. A stream that others end meanwhile flushes its work
    /// requests only afterwards: what was reported flushed is not written to any more.
    pub(crate) fn receiving(&self, work: impl FnOnce()) {
        self.placing.begin();
        work();
        if self.placing.end() {
            self.hand_on(&mut self.core.lock());
        }
    }

    /// As [`Self::receiving`], for requests that were posted before and are carried out now.
    pub(crate) fn carrying_out<R>(&self, work: impl FnOnce() -> R) -> R {
        self.carrying.begin();
        let result = work();
        if self.carrying.end() {
            self.hand_on(&mut self.core.lock());
        }
        result
    }

    /// Hands the core's events on. A completion queue that is full loses no other's stream: the
    /// queue pair whose completion it was fails (RFC 5042 §6.4.6).
    #[inline]
    pub(super) fn hand_on(&self, locked: &mut Locked) {
        let Locked { core, sends, program, link, .. } = locked;
        core.hand_on(Sink { endpoint: self, sends, program, link });
    }

    #[inline]
    pub(super) fn hand_on_of(
        &self,
        core: &mut impl Core,
        sends: &mut SendSlots,
        program: &mut Program,
        link: &Option<Arc<dyn StreamMover>>,
    ) {
        // Most calls of a core leave none.
        if core.has_events() {
            self.hand_on_some(core, sends, program, link);
        }
    }

    #[inline(never)]
    fn hand_on_some(
        &self,
        core: &mut impl Core,
        sends: &mut SendSlots,
        program: &mut Program,
        link: &Option<Arc<dyn StreamMover>>,
    ) {
        if !core.is_connected() && (self.placing.withholds() | self.carrying.withholds()) {
            return;
        }
        let mut overrun = false;
        loop {
            let mut is_told = false;
            while let Some(event) = core.poll_event() {
                is_told |= tells_why(&event);
                overrun |= !self.hand_on_one(event, core, sends, program, link.as_deref());
            }
            let is_hurt = program.hurt.as_ref().is_some_and(|hurt| hurt.has_failed());
            self.report_verdict(is_told | is_hurt, program);
            if !(overrun | is_hurt) || !core.is_connected() {
                return;
            }
            if overrun {
                self.overran.store(true, Ordering::Release);
                core.fail_locally("completion queue overrun");
            } else {
                core.fail_locally("a fault on purpose (IWARP_FAULTS)");
            }
            overrun = false;
        }
    }

    /// False when a completion queue was full.
    #[inline(always)]
    fn hand_on_one<C: Core>(
        &self,
        event: Event<C::Terminated, C::Fault>,
        core: &mut C,
        sends: &mut SendSlots,
        program: &mut Program,
        link: Option<&dyn StreamMover>,
    ) -> bool {
        match event {
            Event::SilentSends(count) => {
                sends.pass_over(count);
                if let Some(observed) = &mut program.observed {
                    observed.ended_silently(count);
                }
            }
            Event::SendCompleted(completion) => {
                let slots = sends.report();
                if program.hurt.is_some() {
                    let kept = Kept::Sent(completion, slots);
                    return self.hand_on_hurt(kept, core.is_connected(), program);
                }
                if let Some(observed) = &mut program.observed {
                    observed.completed(&completion);
                }
                return program.gone || self.send_cq.push(completion, self.send_owner, slots);
            }
            Event::ReceiveCompleted(completion) => {
                if program.hurt.is_some() {
                    let kept = Kept::Received(completion);
                    return self.hand_on_hurt(kept, core.is_connected(), program);
                }
                return self.received(completion, program);
            }
            Event::FirstHeard => {
                if let Some(observer) = &program.observer {
                    observer.first_heard();
                } else if link.is_none() && !program.gone {
                    self.events.push(AsyncEvent::CommunicationEstablished { qp: self.id() });
                }
            }
            Event::HeldBack => self.report_held_back(link),
            Event::NoReceive => self.report_no_receive(link),
            Event::OtherDevice => self.report_other_device(link),
            Event::Disconnected => program.ended(Ended::Closed),
            Event::Terminated(reason) => {
                let (reason, refusal) = (reason.into(), core.take_refusal());
                self.report_terminate(link, reason, None, refusal.as_ref());
                self.judge_terminated(reason, program);
                program.ended(Ended::Terminated(reason));
            }
            Event::Fault(fault) => {
                let (reason, refusal) = (fault.reason(), core.take_refusal());
                let access = if let Some((addr, remote)) = fault.bad_address() {
                    self.report_bad_address(addr, remote, refusal.as_ref());
                    remote
                } else {
                    self.report_terminate(link, reason, Some(&fault), refusal.as_ref());
                    reason.is_refused_access()
                };
                self.judge_fault(reason, access, program);
                program.ended(Ended::Fault(reason));
            }
            Event::Lost => program.ended(Ended::Lost),
            Event::SendQueueDrained if !program.gone => {
                self.events.push(AsyncEvent::SendQueueDrained { qp: self.id() });
            }
            Event::LastReceiveReached if !program.gone => {
                self.events.push(AsyncEvent::LastReceiveReached { qp: self.id() });
            }
            Event::SendQueueDrained | Event::LastReceiveReached => {}
        }
        true
    }

    /// The program itself ends what it has posted, be it in an exit handler.
    pub(super) fn hold_back_no_more(&self) {
        let program = &mut self.core.lock().program;
        if std::mem::take(&mut program.exits) {
            for completion in std::mem::take(&mut program.held_back) {
                self.received(completion, program);
            }
        }
    }

    /// A completion that the rules may change or put off. False when its queue was full.
    #[cold]
    #[inline(never)]
    fn hand_on_hurt(&self, mut kept: Kept, connected: bool, program: &mut Program) -> bool {
        let hurt = program.hurt.as_mut();
        let late = hurt.and_then(|hurt| hurt.look_at(kept.completion_mut(), connected));
        if let (Kept::Sent(completion, _), Some(observed)) = (&kept, &mut program.observed) {
            observed.completed(completion);
        }
        if let (Some(late), Some(hurt)) = (late, &mut program.hurt) {
            hurt.put_off(self, late, kept);
            return true;
        }
        self.come(kept, program)
    }

    /// A completion comes, which may have been put off. False when its queue is full.
    pub(super) fn come(&self, kept: Kept, program: &mut Program) -> bool {
        match kept {
            Kept::Received(completion) => self.received(completion, program),
            Kept::Sent(completion, slots) => {
                program.gone || self.send_cq.push(completion, self.send_owner, slots)
            }
        }
    }

    /// False when the completion queue was full.
    fn received(&self, completion: WorkCompletion, program: &mut Program) -> bool {
        if program.exits && completion.status == WcStatus::Flushed {
            program.held_back.push(completion);
            return true;
        }
        if self.postpones.keep(&completion, &mut program.postponed) {
            return true;
        }
        self.report_receive(completion, program)
    }

    /// False when the completion queue was full.
    #[inline(always)]
    pub(super) fn report_receive(&self, completion: WorkCompletion, program: &mut Program) -> bool {
        if let Some(observed) = &mut program.observed {
            observed.received(&completion);
        }
        if self.srq.is_some() {
            self.borrowed.fetch_sub(1, Ordering::Relaxed);
        }
        if program.gone {
            if let Some(srq) = &self.srq {
                srq.returned().add(1);
            }
            return true;
        }
        self.recv_cq.push(completion, self.recv_owner, 1)
    }
}

/// True if a work request says why the queue pair ended.
#[inline]
const fn tells_why<T, F>(event: &Event<T, F>) -> bool {
    match event {
        Event::SendCompleted(completion) | Event::ReceiveCompleted(completion) => {
            !matches!(completion.status, WcStatus::Success | WcStatus::Flushed)
        }
        _ => false,
    }
}
