// SPDX-License-Identifier: MIT OR Apache-2.0

//! A forked child has dead objects: what it calls does nothing to the parent's connections.

use iwarp::flaw::Flaw;
use iwarp::{Payload, QpState, RecvRequest, SendRequest};
use iwarp_os::fork::pretend_child;

use super::run::Run;

impl Run<'_> {
    /// The thread takes itself for a forked child's for one call on an inherited object. If the
    /// call is refused it leaves nothing behind, as what follows shows.
    pub(super) fn pretend(&mut self, number: usize, which: usize) -> Result<(), String> {
        let call = self.choices.below(7);
        self.stage.note(|| format!("{number}.{which} in a forked child: call {call}"));
        let couple = &self.couples[number];
        let end = &couple.ends[which];
        let host = &self.hosts[end.host];
        let (Some(qp), [send, _]) = (&end.qp, end.queues) else { return Ok(()) };
        let queue = &host.queues[send].cq;
        let waiting = queue.waiting();
        let child = (self.flaw != Flaw::ForkUnchecked).then(pretend_child);
        let is_refused = match call {
            0 => {
                let payload = Payload::Inline(b"child");
                qp.post_send(&SendRequest::send(0, payload).signaled()).is_err()
            }
            1 => qp.post_recv(&RecvRequest::new(1, &[])).is_err(),
            2 => queue.poll(&mut Vec::new(), 64) == 0,
            3 => qp.modify(QpState::Err).is_err(),
            4 => host.channel.try_next().is_none(),
            5 => host.device.connections() == 0,
            _ => {
                couple.ids[which].iter().for_each(iwarp::cm::Id::disconnect);
                queue.request_notify(false);
                true
            }
        };
        drop(child);
        if !is_refused || queue.waiting() != waiting {
            return Err(format!("a forked child can reach the parent's objects: call {call}"));
        }
        Ok(())
    }
}
