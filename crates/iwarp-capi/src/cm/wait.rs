// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waiting for events.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr::null_mut;

use iwarp::faults::{self, Kind};
use iwarp_os::cancel::wait_cancellable;

use super::abi::{RDMA_CM_EVENT_REJECTED, rdma_cm_event, rdma_cm_id, rdma_event_channel};
use super::acknowledge::release_event;
use super::channel::CmChannel;
use super::event;
use super::id::CmId;
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::refuse;

/// `rdma_get_cm_event`: waits unless the program has made the channel's descriptor non-blocking.
pub extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    if event.is_null() {
        return guard::minus_one(called!(rdma_get_cm_event(channel, event)), || {
            Err(refuse!(EINVAL, "event is NULL"))
        });
    }
    let call = called!(rdma_get_cm_event(channel, event));
    let taken = wait(channel);
    if taken.is_null() {
        return call.returns(-1);
    }
    // SAFETY: the program's place for a pointer.
    unsafe { event.write(taken) };
    call.returns(0)
}

/// The function that waits for events; others wait within it.
const WAIT: &str = "rdma_get_cm_event";

/// The next event of a channel; null, with `errno` set, when there is none to be had. A
/// cancellation point: nothing here waits for its `Drop`.
pub(super) fn wait(channel: *mut rdma_event_channel) -> *mut rdma_cm_event {
    let mut serial = None;
    loop {
        let fd = match guard::call(WAIT, || next(channel, &mut serial)) {
            Ok(Next::Event(event)) => return event,
            Ok(Next::Wait(fd)) => fd,
            Err(error) => {
                guard::set_errno(error.number());
                return null_mut();
            }
        };
        if let Err(error) = wait_cancellable(fd, None) {
            guard::set_errno(Errno::from(error).number());
            return null_mut();
        }
    }
}

enum Next {
    Event(*mut rdma_cm_event),
    /// No event, and the descriptor to wait on.
    Wait(RawFd),
}

/// No descriptor: `poll` never reports it.
const NEVER: RawFd = -1;

fn next(channel: *mut rdma_event_channel, serial: &mut Option<u64>) -> Result<Next, Errno> {
    // SAFETY: the program's channel, which may be gone meanwhile.
    let found = unsafe { CmChannel::with_serial(channel) };
    let gone = channel;
    let channel = match (found, *serial) {
        (Ok((channel, number)), None) => {
            *serial = Some(number);
            channel
        }
        (Ok((channel, number)), Some(before)) if before == number => channel,
        // SAFETY: as above.
        (Err(error), None) if !unsafe { CmChannel::went_meanwhile(gone) } => return Err(error),
        // Destroyed during the wait: a thread that sits in the kernel's stays there.
        _ => return Ok(Next::Wait(NEVER)),
    };
    while let Some(event) = channel.try_next() {
        if let Some(event) = event::convert(event) {
            faults::of_event(Kind::CmEvent);
            return Ok(Next::Event(event));
        }
    }
    let fd = channel.as_fd().as_raw_fd();
    // SAFETY: asks about a descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    if flags & libc::O_NONBLOCK != 0 {
        return Err(Errno::plain(libc::EAGAIN));
    }
    Ok(Next::Wait(fd))
}

/// The second half of a step of a synchronous id: waits for its event and says how it went. A
/// cancellation point: nothing here waits for its `Drop`.
pub(super) fn complete(id: *mut rdma_cm_id) -> c_int {
    let event = match wait_for_step(id) {
        StepOutcome::Event(event) => event,
        StepOutcome::Asynchronous => return 0,
        StepOutcome::Failed => return -1,
    };
    // SAFETY: the program's id, and an event that was just made.
    let (event_place, event_kind, status) =
        unsafe { (&(*id).event, (*event).event, (*event).status) };
    event_place.set(event);
    if status == 0 {
        return 0;
    }
    let refused = event_kind == RDMA_CM_EVENT_REJECTED;
    guard::set_errno(if refused { libc::ECONNREFUSED } else { status.abs() });
    -1
}

/// The outcome of [`wait_for_step`].
pub(super) enum StepOutcome {
    Event(*mut rdma_cm_event),
    /// The program takes the events of this id from its channel.
    Asynchronous,
    /// `errno` says why.
    Failed,
}

/// Acknowledges the event of a synchronous id's last step, and waits for the next. A cancellation
/// point: nothing here waits for its `Drop`.
pub(super) fn wait_for_step(id: *mut rdma_cm_id) -> StepOutcome {
    let channel = guard::call(WAIT, || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        if !id.state().sync {
            return Ok(null_mut());
        }
        release_event(id);
        Ok(id.channel.get())
    });
    let event = match channel {
        Ok(channel) if channel.is_null() => return StepOutcome::Asynchronous,
        Ok(channel) => wait(channel),
        Err(error) => {
            guard::set_errno(error.number());
            null_mut()
        }
    };
    if event.is_null() { StepOutcome::Failed } else { StepOutcome::Event(event) }
}
