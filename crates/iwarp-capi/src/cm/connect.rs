// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connecting, accepting, refusing, ending.

use std::ffi::{c_int, c_uint, c_void};

use iwarp::cm::{ConnectParams, ConnectionState, UDP_QKEY};
use iwarp::faults::Step;

use super::abi::{RDMA_MAX_DEPTH, rdma_cm_id, rdma_conn_param};
use super::event::{MOST_RETRIES, depth, fails_on_purpose};
use super::id::CmId;
use super::pair::{is_elsewhere, refresh_state, with_queue_pair};
use super::wait::complete;
use super::{attr, device};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{decline, given, refuse};
use crate::verbs::qp::Qp;

/// Refuses parameters that the device cannot have (`rdma_connect(3)`).
fn check(id: &CmId, param: Option<&rdma_conn_param>) -> Result<(), Errno> {
    let Some(param) = param else {
        if !id.qp.get().is_null() {
            return Ok(());
        }
        return Err(refuse!(
            EINVAL,
            "no queue pair: call rdma_create_qp, or name one in conn_param"
        ));
    };
    let (served, outstanding) = device::depths()?;
    let beyond = |depth: u8, limit: u8| depth != RDMA_MAX_DEPTH && depth > limit;
    if beyond(param.responder_resources, served) || beyond(param.initiator_depth, outstanding) {
        return Err(refuse!(
            EINVAL,
            "responder_resources is {}, and initiator_depth {}; the device has {served} and \
             {outstanding} at most",
            param.responder_resources,
            param.initiator_depth
        ));
    }
    if id.qp.get().is_null() && is_elsewhere(id, param.qp_num)? {
        return Err(refuse!(EINVAL, "the queue pair is of another device than the id"));
    }
    Ok(())
}

impl CmId {
    /// Takes the private data for the peer.
    fn take_private_data(&self, param: Option<&rdma_conn_param>) -> Vec<u8> {
        let mut octets = std::mem::take(&mut self.state().connect_data);
        if let Some(param) = param
            && !param.private_data.is_null()
        {
            let (data, len) = (param.private_data.cast::<u8>(), param.private_data_len.into());
            // SAFETY: the program says that so many bytes are there.
            octets.extend_from_slice(unsafe { std::slice::from_raw_parts(data, len) });
        }
        octets
    }
}

/// A count of retries. Programs that clear the structure and set nothing say 0 without knowing:
/// their receives and answers come in time on cards, and here, where a thread may wait for a CPU,
/// later.
fn retries(said: Option<u8>) -> u8 {
    match said {
        Some(0) if device::is_strict() => 0,
        None | Some(0) => MOST_RETRIES,
        Some(count) => count.min(MOST_RETRIES),
    }
}

/// The terms that the program offers to the peer.
fn params(id: &CmId, param: Option<&rdma_conn_param>) -> ConnectParams {
    let private_data = id.take_private_data(param);
    let mut state = id.state();
    let chosen = |depth: Option<u8>, fallback: u8| {
        u16::from(depth.filter(|depth| *depth != RDMA_MAX_DEPTH).unwrap_or(fallback))
    };
    if let Some(param) = param {
        state.qp_num = param.qp_num;
    }
    ConnectParams::new()
        .private_data(private_data)
        .rnr_retry(retries(param.map(|param| param.rnr_retry_count)))
        .retry_count(retries(param.map(|param| param.retry_count)))
        .ird(chosen(param.map(|param| param.responder_resources), state.responder_resources))
        .ord(chosen(param.map(|param| param.initiator_depth), state.initiator_depth))
}

/// `rdma_connect`; ends in `RDMA_CM_EVENT_ESTABLISHED`, `..._REJECTED`, `..._UNREACHABLE` or
/// `..._CONNECT_ERROR`. With a queue pair of the program's own `..._CONNECT_RESPONSE` comes instead
/// of the first, on both kinds of device: programs that bring one are written for InfiniBand.
pub extern "C-unwind" fn rdma_connect(
    id: *mut rdma_cm_id,
    param: Option<&rdma_conn_param>,
) -> c_int {
    let call = called!(rdma_connect(id, param));
    let begun = guard::minus_one(call.part(), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        if id.has_datagrams() {
            let octets = id.take_private_data(param);
            id.id.ask(&octets)?;
            id.show();
            return Ok(0);
        }
        check(id, param)?;
        if fails_on_purpose(id, Step::Connection) {
            return Ok(0);
        }
        let (served, outstanding) = device::depths()?;
        let mut state = id.state();
        (state.responder_resources, state.initiator_depth) = (served, outstanding);
        drop(state);
        let params = params(id, param);
        connect(id, &params)?;
        id.show();
        Ok(0)
    });
    call.returns(if begun == 0 { complete(id) } else { begun })
}

fn connect(id: &CmId, params: &ConnectParams) -> Result<(), Errno> {
    if id.qp.get().is_null() {
        let number = id.state().qp_num;
        return Ok(id.id.connect_first_with(number, params)?);
    }
    with_queue_pair(id, |queue_pair| Ok(id.id.connect(queue_pair, params)?))
}

/// `rdma_establish`: the second half of connecting a queue pair of the program's own.
pub extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    guard::minus_one(called!(rdma_establish(id)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        if !id.qp.get().is_null() {
            return Err(refuse!(EINVAL, "the id has a queue pair, which rdma_connect connects"));
        }
        if id.id.state() != ConnectionState::Responded {
            return Err(refuse!(EINVAL, "no RDMA_CM_EVENT_CONNECT_RESPONSE came before"));
        }
        if id.id.speaks_roce() {
            id.id.use_number(id.state().qp_num, &ConnectParams::default())?;
            return Ok(0);
        }
        with_queue_pair(id, |queue_pair| Ok(id.id.establish(queue_pair)?))?;
        refresh_state(id);
        Ok(0)
    })
}

/// `rdma_accept`; `RDMA_CM_EVENT_ESTABLISHED` follows.
pub extern "C-unwind" fn rdma_accept(
    id: *mut rdma_cm_id,
    param: Option<&rdma_conn_param>,
) -> c_int {
    let mut done = false;
    let call = called!(rdma_accept(id, param));
    let begun = guard::minus_one(call.part(), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        if id.has_datagrams() {
            done = true;
            return answer(id, param).map(|()| 0);
        }
        check(id, param)?;
        let (served, outstanding) = device::depths()?;
        if id.id.state() != ConnectionState::Requested {
            return Err(refuse!(
                EINVAL,
                "the id has no request to accept: it is the event's id that is accepted, once, and not \
                 the listener"
            ));
        }
        let mut state = id.state();
        state.responder_resources = state.responder_resources.min(served);
        state.initiator_depth = state.initiator_depth.min(outstanding);
        drop(state);
        let params = params(id, param);
        if id.id.speaks_roce() && id.qp.get().is_null() {
            // The program has set up a queue pair of its own.
            id.id.use_number(id.state().qp_num, &params)?;
            return Ok(0);
        }
        // Over RoCE v2 they are not known any more afterwards.
        let terms = attr::terms(id, (depth(params.ird), depth(params.ord)));
        with_queue_pair(id, |queue_pair| Ok(id.id.accept(queue_pair, &params)?))?;
        refresh_state(id);
        attr::show(id, &terms);
        Ok(0)
    });
    call.returns(if begun == 0 && !done { complete(id) } else { begun })
}

/// Tells a peer the queue pair of a datagram service: the id's own, or the one that the program
/// names. No event follows.
fn answer(id: &CmId, param: Option<&rdma_conn_param>) -> Result<(), Errno> {
    let octets = id.take_private_data(param);
    // SAFETY: the program's queue pair, or null.
    let number = match unsafe { Qp::of(id.qp.get()) } {
        Some(qp) => qp.number(),
        None => given!(param)?.qp_num,
    };
    Ok(id.id.answer_with(number, UDP_QKEY, &octets)?)
}

/// `rdma_reject`
pub extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    guard::minus_one(called!(rdma_reject(id, data, len)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        let octets = if data.is_null() || len == 0 {
            &[]
        } else {
            // SAFETY: the program says that so many bytes are there.
            unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len.into()) }
        };
        id.id.reject(octets)?;
        Ok(0)
    })
}

/// `rdma_reject_ece`: there is nothing special to say about it in MPA.
pub extern "C" fn rdma_reject_ece(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    rdma_reject(id, data, len)
}

/// `rdma_notify`: what it tells is known here already.
pub extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: c_uint) -> c_int {
    guard::minus_one(called!(rdma_notify(id, event)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        match id.id.state() {
            ConnectionState::Connected | ConnectionState::Over => Ok(0),
            _ => Err(refuse!(EINVAL, "the id is not connected")),
        }
    })
}

/// `rdma_disconnect`; `RDMA_CM_EVENT_DISCONNECTED` follows on both sides.
pub extern "C-unwind" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    let mut over = false;
    let call = called!(rdma_disconnect(id));
    let begun = guard::minus_one(call.part(), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        match id.id.state() {
            // There is nothing to end.
            _ if id.has_datagrams() => {
                return Err(refuse!(EINVAL, "the id has datagrams, and no connection to end"));
            }
            ConnectionState::Connected => id.id.disconnect(),
            // The program knows that already, and no event follows. Requests may have outlived the
            // connection, and are flushed.
            ConnectionState::Over => {
                id.id.disconnect();
                refresh_state(id);
                over = true;
            }
            _ => return Err(decline!(EINVAL, "the id is not connected")),
        }
        Ok(0)
    });
    call.returns(if begun == 0 && !over { complete(id) } else { begun })
}
