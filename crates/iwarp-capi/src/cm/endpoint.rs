// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ids for programs that do one thing after the other.

use std::ffi::c_int;
use std::ptr::null_mut;

use super::abi::{
    RAI_PASSIVE, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_REJECTED, rdma_addrinfo,
    rdma_cm_event, rdma_cm_id,
};
use super::address::{rdma_bind_addr, rdma_resolve_addr, rdma_resolve_route};
use super::create::{create, rdma_destroy_id};
use super::id::CmId;
use super::qp::{self, rdma_destroy_qp, rdma_destroy_srq};
use super::wait::{StepOutcome, wait_for_step};
use crate::abi::{ibv_pd, ibv_qp_init_attr};
use crate::calls::{Call, called};
use crate::guard::{self, Errno};
use crate::refuse::refuse;

/// Milliseconds for a step of resolving. None takes that long.
const RESOLVE_MS: c_int = 2000;

const CREATE_EP: &str = "rdma_create_ep";

/// `rdma_create_ep`: a synchronous id that is bound, or whose route is resolved and which has a
/// queue pair where the program wants one.
pub extern "C-unwind" fn rdma_create_ep(
    place: *mut *mut rdma_cm_id,
    info: Option<&rdma_addrinfo>,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    guard::prepare();
    let call = called!(rdma_create_ep(place, info, pd, attr));
    call.returns(create_endpoint(place, info, pd, attr))
}

fn create_endpoint(
    place: *mut *mut rdma_cm_id,
    info: Option<&rdma_addrinfo>,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    let made = guard::call(CREATE_EP, || {
        let info = info.filter(|_| !place.is_null());
        let info = info.ok_or_else(|| refuse!(EINVAL, "id or res is NULL"))?;
        let (ps, qp_type) = (info.ai_port_space as u32, info.ai_qp_type as u32);
        Ok(create(null_mut(), null_mut(), ps, qp_type)?.cast::<rdma_cm_id>())
    });
    let (made, info) = match (made, info) {
        (Ok(made), Some(info)) => (made, info),
        (Err(error), _) => {
            guard::set_errno(error.number());
            return -1;
        }
        (_, None) => return -1,
    };
    let result = if info.ai_flags & RAI_PASSIVE != 0 {
        passive(made, info, pd, attr)
    } else {
        active(made, info, pd, attr)
    };
    if result == 0 {
        // SAFETY: checked above; the program's place for a pointer.
        unsafe { place.write(made) };
    } else {
        let error = guard::last_errno();
        rdma_destroy_ep(made);
        guard::set_errno(error);
    }
    result
}

fn passive(
    made: *mut rdma_cm_id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    let bound = rdma_bind_addr(made, info.ai_src_addr);
    if bound != 0 {
        return bound;
    }
    guard::minus_one(Call::part_of(CREATE_EP), || {
        // SAFETY: just made.
        let id = unsafe { CmId::of(made)? };
        if !pd.is_null() {
            id.pd.set(pd);
        }
        // SAFETY: the program's attributes, or none.
        if let Some(attr) = unsafe { attr.as_ref() } {
            let attr = ibv_qp_init_attr { qp_type: info.ai_qp_type as u32, ..*attr };
            id.state().qp_init_attr = Some(attr);
        }
        Ok(0)
    })
}

fn active(
    made: *mut rdma_cm_id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    let resolved = rdma_resolve_addr(made, info.ai_src_addr, info.ai_dst_addr, RESOLVE_MS);
    if resolved != 0 {
        return resolved;
    }
    let resolved = rdma_resolve_route(made, RESOLVE_MS);
    if resolved != 0 {
        return resolved;
    }
    guard::minus_one(Call::part_of(CREATE_EP), || {
        // SAFETY: just made.
        let id = unsafe { CmId::of(made)? };
        // SAFETY: the program's attributes, or none.
        if let Some(attr) = unsafe { attr.as_mut() } {
            attr.qp_type = info.ai_qp_type as u32;
            qp::create_qp(id, pd, attr)?;
        }
        if info.ai_connect_len > 0 && !info.ai_connect.is_null() {
            // SAFETY: the program that made the list says that so many bytes are there.
            let octets = unsafe {
                std::slice::from_raw_parts(info.ai_connect.cast::<u8>(), info.ai_connect_len)
            };
            id.state().connect_data = octets.to_vec();
        }
        Ok(0)
    })
}

/// `rdma_destroy_ep`
pub extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    rdma_destroy_qp(id);
    rdma_destroy_srq(id);
    rdma_destroy_id(id);
}

/// `rdma_get_request`: waits for a connection request at a synchronous id, and makes its queue
/// pair as `rdma_create_ep` was told.
pub extern "C-unwind" fn rdma_get_request(
    listener: *mut rdma_cm_id,
    place: *mut *mut rdma_cm_id,
) -> c_int {
    let call = called!(rdma_get_request(listener, place));
    let step = if place.is_null() { StepOutcome::Asynchronous } else { wait_for_step(listener) };
    let event = match step {
        StepOutcome::Event(event) => event,
        StepOutcome::Asynchronous => {
            return guard::minus_one(call, || {
                Err(refuse!(
                    EINVAL,
                    "only an id of rdma_create_ep, or without a channel, gives requests in this way"
                ))
            });
        }
        StepOutcome::Failed => return call.returns(-1),
    };
    guard::minus_one(call, || {
        // SAFETY: the program's id.
        let listener = unsafe { CmId::of(listener)? };
        match take(listener, event) {
            Ok(new) => {
                // SAFETY: checked above; the program's place for a pointer.
                unsafe { place.write(new) };
                Ok(0)
            }
            Err(error) => {
                listener.event.set(event);
                Err(error)
            }
        }
    })
}

fn take(listener: &CmId, event: *mut rdma_cm_event) -> Result<*mut rdma_cm_id, Errno> {
    // SAFETY: just made, and not acknowledged.
    let told = unsafe { &*event };
    match told.event {
        RDMA_CM_EVENT_CONNECT_REQUEST => {}
        RDMA_CM_EVENT_REJECTED => return Err(Errno::plain(libc::ECONNREFUSED)),
        _ if told.status != 0 => return Err(Errno::plain(told.status.abs())),
        other => return Err(refuse!(EINVAL, "the event {other} is no request")),
    }
    // SAFETY: made with the event.
    let new = unsafe { CmId::of(told.id)? };
    let attr = listener.state().qp_init_attr;
    if let Some(mut attr) = attr {
        qp::create_qp(new, listener.pd.get(), &mut attr)?;
    }
    new.event.set(event);
    Ok(told.id)
}
