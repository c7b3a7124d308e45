// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lists of addresses that an id resolves.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use super::abi::{RAI_SA, rdma_addrinfo, rdma_cm_id};
use super::addrinfo::rdma_getaddrinfo;
use super::event::ADDRINFO_RESOLVED;
use super::id::{CmId, Resolution};
use super::wait::complete;
use crate::calls::called;
use crate::guard;
use crate::refuse::{decline, refuse};

/// `rdma_resolve_addrinfo`; ends in `RDMA_CM_EVENT_ADDRINFO_RESOLVED`, after which
/// `rdma_query_addrinfo` gives the list.
pub extern "C-unwind" fn rdma_resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> c_int {
    let call = called!(rdma_resolve_addrinfo(id, node, service, hints));
    let begun = guard::minus_one(call.part(), || {
        // SAFETY: the program's id.
        let this = unsafe { CmId::of(id)? };
        // InfiniBand's subnet administrator is not there to be asked.
        if hints.is_some_and(|hints| hints.ai_flags & RAI_SA != 0) {
            return Err(decline!(EOPNOTSUPP, "RAI_SA: there is no subnet administrator to ask"));
        }
        if matches!(this.state().addrinfo, Resolution::Done(_)) {
            return Err(refuse!(
                EBUSY,
                "the id has a list that rdma_query_addrinfo has not taken yet"
            ));
        }
        let mut list = null_mut();
        let failed = rdma_getaddrinfo(node, service, hints, Some(&mut list));
        if failed == 0 {
            this.state().addrinfo = Resolution::Done(list);
            this.id.notify(0, ADDRINFO_RESOLVED);
        }
        Ok(failed)
    });
    call.returns(if begun == 0 { complete(id) } else { begun })
}

/// `rdma_query_addrinfo`
pub extern "C" fn rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    place: Option<&mut *mut rdma_addrinfo>,
) -> c_int {
    guard::minus_one(called!(rdma_query_addrinfo(id, place)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        let place = place.ok_or_else(|| refuse!(EINVAL, "res is NULL"))?;
        match std::mem::replace(&mut id.state().addrinfo, Resolution::None) {
            Resolution::Done(list) => {
                *place = list;
                Ok(0)
            }
            Resolution::None => {
                Err(refuse!(ENOENT, "no rdma_resolve_addrinfo came before, or its list is taken"))
            }
        }
    })
}
