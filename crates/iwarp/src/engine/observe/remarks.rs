// SPDX-License-Identifier: MIT OR Apache-2.0

//! The observer behind the comments of a capture: the work requests that packets carry, and the
//! completions that they lead to.

use iwarp_mem::AccessObserver;
use iwarp_types::{RecvRequest, SendRequest, WorkCompletion};

use super::{Call, Observer, SomeObserver};
use crate::capture::remark;
use crate::engine::event::AsyncEvent;

/// Tells the capture, and the observer that there is besides.
#[derive(Debug)]
pub(crate) struct Remarks(pub(crate) Option<SomeObserver>);

/// The other observer hears of them from the memory itself.
impl AccessObserver for Remarks {}

impl Observer for Remarks {
    fn called(&self, call: &Call<'_>) {
        if let Some(other) = &self.0 {
            other.called(call);
        }
    }

    fn posted_send(&self, qp: u32, request: &SendRequest<'_>) {
        let SendRequest { wr_id, op, payload, .. } = request;
        let op = op.completes_as();
        remark(format_args!("qp {qp}: posted {op:?}, wr_id {wr_id:#x}, {} bytes", payload.len()));
        if let Some(other) = &self.0 {
            other.posted_send(qp, request);
        }
    }

    fn posted_receive(&self, qp: u32, request: &RecvRequest<'_>) {
        remark(format_args!("qp {qp}: posted a receive, wr_id {:#x}", request.wr_id));
        if let Some(other) = &self.0 {
            other.posted_receive(qp, request);
        }
    }

    fn posted_shared_receive(&self, srq: u64, request: &RecvRequest<'_>) {
        remark(format_args!("srq {srq}: posted a receive, wr_id {:#x}", request.wr_id));
        if let Some(other) = &self.0 {
            other.posted_shared_receive(srq, request);
        }
    }

    fn completed(&self, completion: &WorkCompletion) {
        let WorkCompletion { wr_id, qp, op, status, byte_len, .. } = completion;
        let qp = qp.0;
        remark(format_args!("qp {qp}: {op:?}, wr_id {wr_id:#x}, {byte_len} bytes: {status}"));
        if let Some(other) = &self.0 {
            other.completed(completion);
        }
    }

    fn completed_silently(&self, qp: u32, wr_id: u64) {
        if let Some(other) = &self.0 {
            other.completed_silently(qp, wr_id);
        }
    }

    fn event(&self, event: &AsyncEvent) {
        remark(format_args!("asynchronous event {event:?}"));
        if let Some(other) = &self.0 {
            other.event(event);
        }
    }
}
