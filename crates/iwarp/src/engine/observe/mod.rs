// SPDX-License-Identifier: MIT OR Apache-2.0

//! Observers of a process's RDMA: calls, requests, accesses to registered memory, completions and
//! events, each told as it happens.
//!
//! A device without an observer pays one look at a null pointer for each request and completion,
//! and one for each piece of memory. The books of a queue pair ([`Counters`]) are kept where
//! requests are observed, and every display of numbers takes these.
//!
//! ```text
//!   counters   operations and bytes of a queue pair, by kind
//!   remarks    requests and completions as comments of a capture
//!   requests   the requests of a queue pair that are under way, in the order of its queues
//!   times      of requests from post to completion, while somebody watches
//! ```

mod counters;
mod remarks;
mod requests;
mod times;

use std::fmt::Debug;
use std::sync::Arc;

pub use iwarp_mem::{AccessObserver, Span, Store};
use iwarp_types::{RecvRequest, SendRequest, WorkCompletion};

pub use self::counters::{Counters, Operations};
pub(crate) use self::remarks::Remarks;
pub(crate) use self::requests::Observed;
pub use crate::engine::census::WaitingCall;
use crate::engine::event::AsyncEvent;

/// Observer of all that the devices of a process do. Each method does nothing by default.
///
/// The methods are called by the threads that do the work, most of them with the queue pair
/// locked: an observer takes a note, blocks on nothing and calls nothing of the library.
pub trait Observer: AccessObserver {
    /// A function of the C API has returned.
    fn called(&self, _call: &Call<'_>) {}

    /// A queue pair has taken a send work request.
    fn posted_send(&self, _qp: u32, _request: &SendRequest<'_>) {}

    /// A queue pair has taken a receive work request.
    fn posted_receive(&self, _qp: u32, _request: &RecvRequest<'_>) {}

    /// A shared receive queue has taken a receive work request.
    fn posted_shared_receive(&self, _srq: u64, _request: &RecvRequest<'_>) {}

    /// A work request has ended with a completion. It goes to the completion queue, unless that is
    /// full or the program has destroyed the queue pair.
    fn completed(&self, _completion: &WorkCompletion) {}

    /// A send work request has ended well, and has no completion: it was not signalled. Told at
    /// the latest before the next completion of its queue.
    fn completed_silently(&self, _qp: u32, _wr_id: u64) {}

    /// An asynchronous event was raised.
    fn event(&self, _event: &AsyncEvent) {}
}

/// A call of the C API that has returned.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// Name of the function.
    pub verb: &'a str,
    /// Names and values of its arguments.
    pub arguments: &'a [(&'a str, Value)],
    /// Value that it returned, or the error number with which it was refused.
    pub result: Result<Value, i32>,
}

impl<'a> Call<'a> {
    /// A call of `verb` and its result.
    pub const fn new(
        verb: &'a str,
        arguments: &'a [(&'a str, Value)],
        result: Result<Value, i32>,
    ) -> Self {
        Self { verb, arguments, result }
    }
}

/// An argument or a result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Value {
    /// A number.
    Number(i64),
    /// An address of the process; 0 for a null pointer.
    Pointer(usize),
    /// The function returns nothing.
    Nothing,
}

/// The observer that the options of a device name. Two are equal if they are one object.
#[derive(Clone, Debug)]
pub struct SomeObserver(pub(crate) Arc<dyn Observer>);

impl SomeObserver {
    /// The observer, for a table of registered memory.
    pub(crate) fn of_accesses(&self) -> Arc<dyn AccessObserver> {
        Arc::clone(&self.0) as Arc<dyn AccessObserver>
    }
}

impl PartialEq for SomeObserver {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SomeObserver {}

impl<O: Observer + 'static> From<Arc<O>> for SomeObserver {
    fn from(observer: Arc<O>) -> Self {
        Self(observer)
    }
}

impl std::ops::Deref for SomeObserver {
    type Target = dyn Observer;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}
