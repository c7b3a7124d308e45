// SPDX-License-Identifier: MIT OR Apache-2.0

//! Asynchronous events.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use iwarp::AsyncEvent;
use iwarp::faults::{self, Kind};
use iwarp_os::cancel::wait_cancellable;

use super::Context;
use super::book::Key;
use super::channel::is_nonblocking;
use super::cq::Cq;
use super::qp::Qp;
use super::srq::Srq;
use crate::abi::flags::*;
use crate::abi::{ibv_async_event, ibv_context};
use crate::calls::called;
use crate::guard::{self, Errno, set_errno};

/// The object or the port that an event is about.
enum About {
    Object(Key),
    Port(u8),
}

fn describe(event: AsyncEvent) -> Option<(About, c_uint)> {
    let (key, event_type) = match event {
        AsyncEvent::CqError { cq } => (Key::Cq(cq), IBV_EVENT_CQ_ERR),
        AsyncEvent::QpFatal { qp } => (Key::Qp(qp), IBV_EVENT_QP_FATAL),
        AsyncEvent::QpRequestError { qp } => (Key::Qp(qp), IBV_EVENT_QP_REQ_ERR),
        AsyncEvent::CommunicationEstablished { qp } => (Key::Qp(qp), IBV_EVENT_COMM_EST),
        AsyncEvent::QpAccessError { qp } => (Key::Qp(qp), IBV_EVENT_QP_ACCESS_ERR),
        AsyncEvent::SendQueueDrained { qp } => (Key::Qp(qp), IBV_EVENT_SQ_DRAINED),
        AsyncEvent::LastReceiveReached { qp } => (Key::Qp(qp), IBV_EVENT_QP_LAST_WQE_REACHED),
        AsyncEvent::SrqLimitReached { srq } => (Key::Srq(srq), IBV_EVENT_SRQ_LIMIT_REACHED),
        AsyncEvent::PortError { port } => return Some((About::Port(port), IBV_EVENT_PORT_ERR)),
        AsyncEvent::PortActive { port } => return Some((About::Port(port), IBV_EVENT_PORT_ACTIVE)),
        // A kind that is newer than this function.
        _ => return None,
    };
    Some((About::Object(key), event_type))
}

/// The union of an event about a port: an `int` in the place of a pointer.
fn port_as_element(port: u8) -> usize {
    let mut element = [0; size_of::<usize>()];
    element[..size_of::<c_int>()].copy_from_slice(&c_int::from(port).to_ne_bytes());
    usize::from_ne_bytes(element)
}

impl Context {
    /// An event about an object that still exists.
    fn next_event(&self) -> Result<Option<(usize, c_uint)>, Errno> {
        loop {
            let Some(event) = self.device().poll_async_event()? else { return Ok(None) };
            let Some((about, event_type)) = describe(event) else { continue };
            let element = match about {
                About::Object(key) => self.book.hand_out(key),
                About::Port(port) => Some(port_as_element(port)),
            };
            if let Some(object) = element {
                faults::of_event(Kind::AsyncEvent);
                return Ok(Some((object, event_type)));
            }
        }
    }
}

/// `ibv_get_async_event`: waits for an event, unless the program has made the descriptor
/// non-blocking. A cancellation point: this frame owns nothing while it waits.
pub extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: &mut ibv_async_event,
) -> c_int {
    // SAFETY: the program has it from `ibv_open_device`.
    let (open, fd) = unsafe { (Context::of(context), (*context).async_fd) };
    let call = called!(ibv_get_async_event(context, event));
    loop {
        match guard::call(call.verb(), || open.next_event()) {
            Ok(Some((object, event_type))) => {
                let element: *mut c_void = std::ptr::with_exposed_provenance_mut(object);
                *event = ibv_async_event { element, event_type };
                return call.returns(0);
            }
            Ok(None) if is_nonblocking(fd) => {
                set_errno(libc::EAGAIN);
                return call.returns(-1);
            }
            Ok(None) => {}
            Err(error) => {
                set_errno(error.number());
                return call.returns(-1);
            }
        }
        if let Err(error) = wait_cancellable(fd, None) {
            set_errno(Errno::from(error).number());
            return call.returns(-1);
        }
    }
}

/// `ibv_ack_async_event`
pub extern "C" fn ibv_ack_async_event(event: &ibv_async_event) {
    guard::value(called!(ibv_ack_async_event(event)), (), || {
        // The objects stay until their events are acknowledged.
        let (context, key, completed) = match event.event_type {
            IBV_EVENT_CQ_ERR => {
                // SAFETY: as said; the program passes what it was given.
                let cq = unsafe { &*event.element.cast::<Cq>() };
                let key = Key::Cq(cq.queue().number());
                (cq.context(), key, &cq.abi.base.async_events_completed)
            }
            IBV_EVENT_SRQ_LIMIT_REACHED => {
                // SAFETY: likewise.
                let srq = unsafe { &*event.element.cast::<Srq>() };
                (srq.context(), Key::Srq(srq.queue().number()), &srq.abi.events_completed)
            }
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                // SAFETY: likewise.
                let qp = unsafe { &*event.element.cast::<Qp>() };
                (qp.context(), Key::Qp(qp.number()), &qp.abi.base.events_completed)
            }
            _ => return,
        };
        completed.fetch_add(1, Relaxed);
        // With this acknowledgement the object, and then the context, may go.
        Arc::clone(&context.book).acknowledge(key, 1);
    });
}
