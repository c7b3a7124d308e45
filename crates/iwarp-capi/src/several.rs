// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several observers as one: each is told, in their order.

use std::sync::Arc;

use iwarp::observe::{AccessObserver, Call, Observer, SomeObserver, Span};
use iwarp::{AsyncEvent, RecvRequest, SendRequest, WorkCompletion};

/// One observer of all that are there.
pub(crate) fn all<const N: usize>(observers: [Option<SomeObserver>; N]) -> Option<SomeObserver> {
    let mut there: Vec<SomeObserver> = observers.into_iter().flatten().collect();
    if there.len() > 1 {
        return Some(Arc::new(Several(there)).into());
    }
    there.pop()
}

#[derive(Debug)]
struct Several(Vec<SomeObserver>);

impl AccessObserver for Several {
    fn gathered(&self, qp: u32, span: Span) {
        self.0.iter().for_each(|observer| observer.gathered(qp, span));
    }

    fn placed(&self, qp: u32, span: Span) {
        self.0.iter().for_each(|observer| observer.placed(qp, span));
    }
}

impl Observer for Several {
    fn called(&self, call: &Call<'_>) {
        self.0.iter().for_each(|observer| observer.called(call));
    }

    fn posted_send(&self, qp: u32, request: &SendRequest<'_>) {
        self.0.iter().for_each(|observer| observer.posted_send(qp, request));
    }

    fn posted_receive(&self, qp: u32, request: &RecvRequest<'_>) {
        self.0.iter().for_each(|observer| observer.posted_receive(qp, request));
    }

    fn posted_shared_receive(&self, srq: u64, request: &RecvRequest<'_>) {
        self.0.iter().for_each(|observer| observer.posted_shared_receive(srq, request));
    }

    fn completed(&self, completion: &WorkCompletion) {
        self.0.iter().for_each(|observer| observer.completed(completion));
    }

    fn completed_silently(&self, qp: u32, wr_id: u64) {
        self.0.iter().for_each(|observer| observer.completed_silently(qp, wr_id));
    }

    fn event(&self, event: &AsyncEvent) {
        self.0.iter().for_each(|observer| observer.event(event));
    }
}
