// SPDX-License-Identifier: MIT OR Apache-2.0

//! Multicast groups of ids for datagrams.

use std::ffi::{c_int, c_void};

use iwarp::verbs::Gid;

use super::abi::{
    RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, RDMA_MC_JOIN_FLAG_FULLMEMBER,
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, rdma_cm_id, rdma_cm_join_mc_attr_ex,
};
use super::addr;
use super::groups::Joined;
use super::id::CmId;
use super::wait::complete;
use crate::abi::ibv_gid;
use crate::calls::{Call, called};
use crate::guard::{self, Errno};
use crate::refuse::{decline, given, refuse};
use crate::verbs::multicast::ibv_detach_mcast;
use crate::verbs::qp::Qp;

/// `rdma_join_multicast`; ends in `RDMA_CM_EVENT_MULTICAST_JOIN` or `..._MULTICAST_ERROR`.
pub extern "C-unwind" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *const libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    let call = called!(rdma_join_multicast(id, addr, context));
    call.returns(join(id, addr, false, context))
}

/// `rdma_join_multicast_ex`
pub extern "C-unwind" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: Option<&rdma_cm_join_mc_attr_ex>,
    context: *mut c_void,
) -> c_int {
    const BOTH: u32 = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

    let call = called!(rdma_join_multicast_ex(id, attr, context));
    let checked = guard::call(call.verb(), || {
        let attr = given!(attr)?;
        if attr.comp_mask & BOTH != BOTH || attr.comp_mask & !BOTH != 0 {
            return Err(if attr.comp_mask & !BOTH != 0 {
                decline!(EOPNOTSUPP, "comp_mask {:#x} has unknown bits", attr.comp_mask)
            } else {
                refuse!(
                    EINVAL,
                    "comp_mask {:#x}: it needs the address and the flags",
                    attr.comp_mask
                )
            });
        }
        match attr.join_flags {
            RDMA_MC_JOIN_FLAG_FULLMEMBER => Ok((attr.addr, false)),
            RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => Ok((attr.addr, true)),
            other => {
                Err(refuse!(EINVAL, "join_flags is {other}: a full member, or one that sends only"))
            }
        }
    });
    match checked {
        Ok((addr, sends_only)) => call.returns(join(id, addr, sends_only, context)),
        Err(error) => {
            guard::set_errno(error.number());
            call.returns(-1)
        }
    }
}

fn join(
    id: *mut rdma_cm_id,
    addr: *const libc::sockaddr,
    sends_only: bool,
    context: *mut c_void,
) -> c_int {
    let begun = guard::minus_one(Call::part_of("rdma_join_multicast"), || {
        // SAFETY: the program's id and address.
        let (id, group) = unsafe { (CmId::of(id)?, addr::read(addr)?.ip().to_canonical()) };
        if !id.has_datagrams() || !group.is_multicast() {
            return Err(refuse!(
                EINVAL,
                "{group} is no group, or the id is not one of RDMA_PS_UDP, which has datagrams"
            ));
        }
        let mut state = id.state();
        if state.groups.iter().any(|joined| joined.group == group) {
            return Err(refuse!(EADDRINUSE, "the id has joined {group} already"));
        }
        state.groups.push(Joined { group, context, sends_only, attached: false });
        drop(state);
        id.id.join(group).map_err(|error| {
            id.state().groups.retain(|joined| joined.group != group);
            Errno::from(error)
        })?;
        Ok(0)
    });
    if begun == 0 { complete(id) } else { begun }
}

/// `rdma_leave_multicast`
pub extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *const libc::sockaddr) -> c_int {
    guard::minus_one(called!(rdma_leave_multicast(id, addr)), || {
        // SAFETY: the program's id and address.
        let (id, group) = unsafe { (CmId::of(id)?, addr::read(addr)?.ip().to_canonical()) };
        let left = {
            let mut state = id.state();
            let place = state.groups.iter().position(|joined| joined.group == group);
            // librdmacm's error.
            state.groups.swap_remove(
                place.ok_or_else(|| refuse!(EADDRNOTAVAIL, "the id has not joined {group}"))?,
            )
        };
        // SAFETY: the id's own queue pair, or null.
        if let Some(qp) = unsafe { Qp::of(id.qp.get()) }.filter(|_| left.attached) {
            let gid = ibv_gid { raw: Gid::raw_of(group) };
            let failed = ibv_detach_mcast(qp, &raw const gid, 0);
            if failed != 0 {
                return Err(Errno::plain(failed));
            }
        }
        Ok(0)
    })
}
