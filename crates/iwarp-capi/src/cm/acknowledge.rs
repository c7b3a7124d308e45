// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events as programs have them, and their acknowledgement.

use std::ffi::{c_char, c_int, c_uint};
use std::ptr::null_mut;
use std::sync::Arc;

use super::abi::*;
use super::id::CmId;
use super::owner::Shared;
use crate::calls::called;
use crate::guard;
use crate::refuse::refuse;

/// An event as the program has it.
#[repr(C)]
pub(super) struct CmEvent {
    pub(super) abi: rdma_cm_event,
    /// The id, whose destruction waits for the acknowledgement.
    pub(super) owner: Arc<Shared>,
    /// The bytes to which `abi.param` points.
    pub(super) private_data: Box<[u8]>,
}

/// Acknowledges the event of a synchronous id's last step.
pub(super) fn release_event(id: &CmId) {
    let event = id.event.replace(null_mut());
    if !event.is_null() {
        rdma_ack_cm_event(event);
    }
}

/// `rdma_ack_cm_event`: frees it.
pub extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    guard::minus_one(called!(rdma_ack_cm_event(event)), || {
        if event.is_null() {
            return Err(refuse!(EINVAL, "event is NULL"));
        }
        // SAFETY: made by `event::convert`; the program is done with it.
        let event = unsafe { Box::from_raw(event.cast::<CmEvent>()) };
        event.owner.acknowledge();
        Ok(0)
    })
}

/// `rdma_event_str`
pub extern "C" fn rdma_event_str(event: c_uint) -> *const c_char {
    let name = match event {
        RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        RDMA_CM_EVENT_ADDRINFO_RESOLVED => c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        RDMA_CM_EVENT_ADDRINFO_ERROR => c"RDMA_CM_EVENT_ADDRINFO_ERROR",
        RDMA_CM_EVENT_USER => c"RDMA_CM_EVENT_USER",
        RDMA_CM_EVENT_INTERNAL => c"RDMA_CM_EVENT_INTERNAL",
        _ => c"UNKNOWN EVENT",
    };
    name.as_ptr()
}
