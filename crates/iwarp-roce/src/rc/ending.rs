// SPDX-License-Identifier: MIT OR Apache-2.0

//! The end of a queue pair, and the fate of the work requests.

use iwarp_types::{Event, QpState, Reason, WcStatus};

use super::requester::Requester;
use super::{Rc, Replies};

impl Rc {
    /// A send work request failed with `status`: reports it, and flushes everything else.
    #[cold]
    pub(super) fn fail_request(&mut self, number: u64, status: WcStatus, event: Event) {
        self.events.push_back(event);
        self.flush(Some((number, status)));
    }

    /// A request of the peer's was refused. Earlier requests are still answered, then the NAK goes
    /// out, and nothing else (ROCE-104).
    #[cold]
    pub(super) fn fail_as_responder(&mut self, reason: Reason) {
        if self.is_alive() {
            self.events.push_back(Event::Fault(reason));
            self.flush(None);
        }
    }

    /// The queue pair ends at once: nothing more is sent, not even answers owed.
    pub(super) fn end(&mut self, event: Option<Event>, oldest: Option<WcStatus>) {
        if self.is_alive()
            && let Some(event) = event
        {
            self.events.push_back(event);
        }
        self.replies = Replies::new(0);
        let failed = oldest.filter(|_| self.sq.len() > 0);
        self.flush(failed.map(|status| (self.sq.head(), status)));
    }

    /// Goes to the error state and ends all work requests, as flushed but for one.
    pub(super) fn flush(&mut self, failed: Option<(u64, WcStatus)>) {
        self.state = QpState::Err;
        self.requester = Requester::default();
        let Self { sq, events, config, .. } = self;
        sq.flush(config.qp, failed, |event| events.push_back(event));
        self.flush_receives();
    }

    pub(super) fn flush_receives(&mut self) {
        self.end_open_receive(WcStatus::Flushed);
        let Self { rq, events, config, .. } = self;
        rq.flush(config.qp, |wc| events.push_back(Event::ReceiveCompleted(wc)));
        if config.shared_receive && !core::mem::replace(&mut self.last_receive_reported, true) {
            self.events.push_back(Event::LastReceiveReached);
        }
    }

    /// Reports once, if the program waits for it (Sqd), that all started requests are done.
    #[inline]
    pub(super) fn report_drained(&mut self) {
        if self.state == QpState::Sqd && !self.drain_reported && !self.sq.has_started() {
            self.drain_reported = true;
            self.events.push_back(Event::SendQueueDrained);
        }
    }
}
