// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs that belong to an id, and the objects made along with them.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;

use iwarp::cm::UDP_QKEY;

use super::abi::rdma_cm_id;
use super::id::CmId;
use crate::abi::flags::{
    IBV_QP_INIT_ATTR_PD, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_SQ_PSN, IBV_QP_STATE,
    IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, IBV_QPT_UD, IBV_SRQ_INIT_ATTR_PD,
    IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_BASIC,
};
use crate::abi::{
    ibv_cq, ibv_pd, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq_init_attr,
    ibv_srq_init_attr_ex,
};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{decline, given, refuse};
use crate::verbs::qp::Qp;
use crate::verbs::{Context, channel, cq, create_cq, create_qp, modify, qp, srq};

/// `rdma_create_qp`: completion queues and channels that the program does not give are made too.
pub extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_qp_init_attr>,
) -> c_int {
    guard::minus_one(called!(rdma_create_qp(id, pd, attr)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        create_qp(id, pd, given!(attr)?)?;
        Ok(0)
    })
}

pub(super) fn create_qp(
    id: &CmId,
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    let mut whole = ibv_qp_init_attr_ex {
        comp_mask: IBV_QP_INIT_ATTR_PD,
        pd,
        ..ibv_qp_init_attr_ex::from(&*attr)
    };
    let made = create_qp_ex(id, &mut whole);
    *attr = whole.base();
    made
}

/// `rdma_create_qp_ex`
pub extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: Option<&mut ibv_qp_init_attr_ex>,
) -> c_int {
    guard::minus_one(called!(rdma_create_qp_ex(id, attr)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        create_qp_ex(id, given!(attr)?)?;
        Ok(0)
    })
}

fn create_qp_ex(id: &CmId, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    if !id.qp.get().is_null() {
        return Err(refuse!(EINVAL, "the id has a queue pair already"));
    }
    let context = context(id)?;
    if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr.pd = id.pd.get();
    }
    // SAFETY: the program's protection domain, or ours.
    if attr.pd.is_null() || unsafe { (*attr.pd).context } != context.as_abi() {
        return Err(refuse!(EINVAL, "the protection domain is of another context than the id"));
    }
    let clash = |mine: *mut ibv_cq, given: *mut ibv_cq| {
        !mine.is_null() && !given.is_null() && mine != given
    };
    if clash(id.recv_cq.get(), attr.recv_cq) || clash(id.send_cq.get(), attr.send_cq) {
        return Err(refuse!(
            EINVAL,
            "the id has other completion queues, of rdma_create_ep or its own"
        ));
    }
    match (attr.qp_type, id.has_datagrams()) {
        (IBV_QPT_RC, false) | (IBV_QPT_UD, true) => {}
        (IBV_QPT_RC | IBV_QPT_UD, _) => {
            return Err(refuse!(
                EINVAL,
                "RDMA_PS_TCP has queue pairs of the type RC, and RDMA_PS_UDP those of the type UD"
            ));
        }
        (other, _) => {
            return Err(decline!(
                EOPNOTSUPP,
                "queue pairs of the type {other}: the connection manager connects RC and UD only"
            ));
        }
    }
    let needed = |mine: bool, given: bool, size: u32| if mine || given { 0 } else { size };
    let send = needed(!id.send_cq.get().is_null(), !attr.send_cq.is_null(), attr.cap.max_send_wr);
    let recv = needed(!id.recv_cq.get().is_null(), !attr.recv_cq.is_null(), attr.cap.max_recv_wr);
    create_cqs(id, send, recv)?;
    if attr.send_cq.is_null() {
        attr.send_cq = id.send_cq.get();
    }
    if attr.recv_cq.is_null() {
        attr.recv_cq = id.recv_cq.get();
    }
    if attr.srq.is_null() {
        attr.srq = id.srq.get();
    }
    let made = create_qp::create_managed(context, attr).inspect_err(|_| destroy_cqs(id))?;
    // SAFETY: just made.
    let made = unsafe { &*made };
    begin(id, made).inspect_err(|_| {
        qp::ibv_destroy_qp(made.as_abi().cast());
        destroy_cqs(id);
    })?;
    id.pd.set(attr.pd);
    id.qp.set(made.as_abi());
    id.show();
    Ok(())
}

/// Puts a queue pair on the port of its id, and one for datagrams in RTS.
fn begin(id: &CmId, qp: &Qp) -> Result<(), Errno> {
    let port_num = id.port_num.get();
    qp.enter_port_of_id(port_num)?;
    if !id.has_datagrams() {
        qp.show_state(IBV_QPS_INIT);
        return Ok(());
    }
    let attr = ibv_qp_attr { port_num, qkey: UDP_QKEY, ..ibv_qp_attr::default() };
    let steps = [
        (IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
        (IBV_QPS_RTR, 0),
        (IBV_QPS_RTS, IBV_QP_SQ_PSN),
    ];
    for (qp_state, mask) in steps {
        let attr = ibv_qp_attr { qp_state, ..attr };
        modify::modify(qp, &attr, IBV_QP_STATE | mask)?;
    }
    Ok(())
}

/// `rdma_destroy_qp`
pub extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    guard::value(called!(rdma_destroy_qp(id)), (), || {
        // SAFETY: the program's id.
        let Ok(id) = (unsafe { CmId::of(id) }) else { return };
        let own = id.qp.replace(null_mut());
        if !own.is_null() {
            id.show();
            qp::ibv_destroy_qp(own.cast());
        }
        destroy_cqs(id);
    });
}

/// `rdma_create_srq`
pub extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_srq_init_attr>,
) -> c_int {
    guard::minus_one(called!(rdma_create_srq(id, pd, attr)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        let attr = given!(attr)?;
        let mut whole = ibv_srq_init_attr_ex {
            srq_context: attr.srq_context,
            attr: attr.attr,
            comp_mask: IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
            srq_type: IBV_SRQT_BASIC,
            pd,
            xrcd: null_mut(),
            cq: null_mut(),
            tm_cap: [0; 2],
        };
        let made = create_srq_ex(id, &mut whole);
        attr.attr = whole.attr;
        made?;
        Ok(0)
    })
}

/// `rdma_create_srq_ex`
pub extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: Option<&mut ibv_srq_init_attr_ex>,
) -> c_int {
    guard::minus_one(called!(rdma_create_srq_ex(id, attr)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        create_srq_ex(id, given!(attr)?)?;
        Ok(0)
    })
}

fn create_srq_ex(id: &CmId, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Errno> {
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0 {
        return Err(refuse!(EINVAL, "comp_mask lacks IBV_SRQ_INIT_ATTR_TYPE"));
    }
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        attr.pd = id.pd.get();
    }
    if attr.srq_type != IBV_SRQT_BASIC {
        return Err(decline!(
            EOPNOTSUPP,
            "srq_type is {}; only IBV_SRQT_BASIC is supported",
            attr.srq_type
        ));
    }
    if attr.pd.is_null() {
        return Err(refuse!(EINVAL, "no protection domain: the id has none yet"));
    }
    let context = context(id)?;
    let made = srq::create_srq_ex(context, attr);
    if made.is_null() {
        return Err(last_error());
    }
    id.srq.set(made.cast());
    Ok(())
}

/// `rdma_destroy_srq`
pub extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    guard::value(called!(rdma_destroy_srq(id)), (), || {
        // SAFETY: the program's id.
        let Ok(id) = (unsafe { CmId::of(id) }) else { return };
        let own = id.srq.replace(null_mut());
        if !own.is_null() {
            srq::ibv_destroy_srq(own.cast());
        }
        destroy_cqs(id);
    });
}

/// Makes completion queues of these sizes, each with a channel; none for 0.
fn create_cqs(id: &CmId, send: u32, recv: u32) -> Result<(), Errno> {
    let context = context(id)?;
    let wanted =
        [(recv, &id.recv_cq_channel, &id.recv_cq), (send, &id.send_cq_channel, &id.send_cq)];
    for (size, its_channel, its_cq) in wanted.into_iter().filter(|(size, ..)| *size > 0) {
        its_channel.set(channel::ibv_create_comp_channel(context).cast());
        if !its_channel.get().is_null() {
            let size = c_int::try_from(size).unwrap_or(c_int::MAX);
            let (its, channel) = (id.as_abi().cast(), its_channel.get().cast());
            its_cq.set(create_cq::ibv_create_cq(context, size, its, channel, 0).cast());
        }
        if its_cq.get().is_null() {
            let error = last_error();
            destroy_cqs(id);
            return Err(error);
        }
    }
    Ok(())
}

/// Destroys the completion queues of an id, and then their channels. A program may have set one
/// queue or one channel for both directions.
fn destroy_cqs(id: &CmId) {
    for cq in take_both(&id.recv_cq, &id.send_cq) {
        cq::ibv_destroy_cq(cq.cast());
    }
    for channel in take_both(&id.recv_cq_channel, &id.send_cq_channel) {
        channel::ibv_destroy_comp_channel(channel.cast());
    }
}

/// Clears both places; returns what was in them, each object once.
fn take_both<T>(one: &Cell<*mut T>, other: &Cell<*mut T>) -> impl Iterator<Item = *mut T> {
    let (one, other) = (one.replace(null_mut()), other.replace(null_mut()));
    let other = if other == one { null_mut() } else { other };
    [one, other].into_iter().filter(|object| !object.is_null())
}

/// The context of an id that is on the device.
fn context(id: &CmId) -> Result<&Context, Errno> {
    let context = id.verbs.get();
    if context.is_null() {
        return Err(super::not_resolved());
    }
    // SAFETY: the shared one, which stays.
    Ok(unsafe { Context::of(context) })
}

/// The error of a call to a function of verbs that failed.
fn last_error() -> Errno {
    Errno::plain(guard::last_errno())
}
