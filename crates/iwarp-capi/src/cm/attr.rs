// SPDX-License-Identifier: MIT OR Apache-2.0

//! Values for queue pairs of the program's own.

use std::ffi::{c_int, c_uint};

use iwarp::cm::{ConnectParams, UDP_QKEY};
use iwarp::verbs::Gid;
use iwarp::{AddressVector, DatagramAttributes};

use super::abi::rdma_cm_id;
use super::id::CmId;
use super::{addr, device, pair};
use crate::abi::flags::*;
use crate::abi::{ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{given, refuse};
use crate::verbs::{attributes, modify};

/// `IBV_ACCESS_REMOTE_WRITE`
const REMOTE_WRITE: c_uint = 1 << 1;
/// `IBV_ACCESS_REMOTE_READ`
const REMOTE_READ: c_uint = 1 << 2;

/// `rdma_init_qp_attr`: the arguments of `ibv_modify_qp` on the way to `attr.qp_state`. The number
/// of the peer's queue pair is 0, which none has: the connection comes from the id.
pub extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: Option<&mut ibv_qp_attr>,
    mask: Option<&mut c_int>,
) -> c_int {
    guard::minus_one(called!(rdma_init_qp_attr(id, attr, mask)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        let (attr, mask) = (given!(attr)?, given!(mask)?);
        if id.verbs.get().is_null() {
            return Err(super::not_resolved());
        }
        let state = id.state();
        let depths = (state.responder_resources, state.initiator_depth);
        drop(state);
        *mask = (IBV_QP_STATE | values(id, attr, depths)?) as c_int;
        Ok(0)
    })
}

#[cold]
fn not_told(state: c_uint) -> Errno {
    refuse!(EINVAL, "qp_state is {state}; the attributes are those of INIT, RTR and RTS")
}

/// Values that a queue pair was given, and their mask.
pub(super) type Terms = Vec<(ibv_qp_attr, u32)>;

/// The values that the connection manager gives the id's own queue pair, as far as it knows them
/// now. The depths are those of Reads and Atomics that are served, and that are outstanding.
pub(super) fn terms(id: &CmId, depths: (u8, u8)) -> Terms {
    let is_known = !id.id.speaks_roce() || id.id.packet_attributes(&wish(depths)).is_some();
    if !is_known || id.qp.get().is_null() || id.has_datagrams() {
        return Terms::new();
    }
    let on_the_way_to = |qp_state| {
        let mut attr = ibv_qp_attr { qp_state, ..ibv_qp_attr::default() };
        values(id, &mut attr, depths).ok().map(|mask| (attr, mask))
    };
    [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS].into_iter().filter_map(on_the_way_to).collect()
}

/// Has `ibv_query_qp` show them.
pub(super) fn show(id: &CmId, terms: &Terms) {
    pair::if_alive(id, |qp| {
        let Ok(mut shown) = qp.attr() else { return };
        for (attr, mask) in terms {
            attributes::store(&mut shown, attr, *mask);
        }
        drop(shown);
        qp.show();
    });
}

fn wish((served, outstanding): (u8, u8)) -> ConnectParams {
    ConnectParams::new().ird(served.into()).ord(outstanding.into())
}

/// Sets what a queue pair is given on the way to `attr.qp_state`; returns the mask of that.
fn values(id: &CmId, attr: &mut ibv_qp_attr, depths: (u8, u8)) -> Result<u32, Errno> {
    let (served, outstanding) = depths;
    let timeout = id.state().ack_timeout.unwrap_or(DEFAULT_TIMEOUT);
    if let Some(known) = id.id.packet_attributes(&wish(depths)) {
        return of_packets(id, attr, &known, timeout);
    }
    let target = attr.qp_state;
    *attr = ibv_qp_attr { qp_state: target, ..ibv_qp_attr::default() };
    Ok(match target {
        // The kernel says this of datagrams at every step.
        _ if id.has_datagrams() => {
            (attr.port_num, attr.qkey) = (id.port_num.get(), UDP_QKEY);
            IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
        }
        IBV_QPS_INIT => {
            attr.port_num = id.port_num.get();
            attr.qp_access_flags = REMOTE_WRITE | REMOTE_READ;
            modify::OF_INIT
        }
        IBV_QPS_RTR => {
            attr.ah_attr = path(id);
            attr.path_mtu = device::PATH_MTU;
            attr.max_dest_rd_atomic = served;
            modify::OF_RTR
        }
        IBV_QPS_RTS => {
            attr.timeout = timeout;
            (attr.retry_cnt, attr.rnr_retry) = (7, 7);
            attr.max_rd_atomic = outstanding;
            modify::OF_RTS
        }
        other => return Err(not_told(other)),
    })
}

/// The terms on which the ends of a connection over RoCE v2 have agreed.
fn of_packets(
    id: &CmId,
    attr: &mut ibv_qp_attr,
    known: &DatagramAttributes,
    timeout: u8,
) -> Result<u32, Errno> {
    let target = attr.qp_state;
    *attr = ibv_qp_attr { qp_state: target, ..ibv_qp_attr::default() };
    Ok(match target {
        IBV_QPS_INIT => {
            attr.port_num = id.port_num.get();
            // `Access` has the header's numbers.
            attr.qp_access_flags = known.access.bits();
            modify::OF_INIT
        }
        IBV_QPS_RTR => {
            attr.ah_attr = known.address.map(|way| handle_attr(id, &way)).unwrap_or_default();
            attr.path_mtu = known.path_mtu.trailing_zeros() - 7;
            (attr.dest_qp_num, attr.rq_psn) = (known.dest_qp, known.rq_psn);
            attr.max_dest_rd_atomic = known.max_dest_rd_atomic;
            attr.min_rnr_timer = known.min_rnr_timer;
            modify::OF_RTR
        }
        IBV_QPS_RTS => {
            attr.timeout = if timeout == DEFAULT_TIMEOUT { known.timeout } else { timeout };
            (attr.retry_cnt, attr.rnr_retry) = (known.retry_count, known.rnr_retry);
            (attr.sq_psn, attr.max_rd_atomic) = (known.sq_psn, known.max_rd_atomic);
            modify::OF_RTS
        }
        other => return Err(not_told(other)),
    })
}

/// Some 4 s: 4.096 µs times 2^20.
const DEFAULT_TIMEOUT: u8 = 20;

/// An address vector as the attributes of an address handle.
pub(super) fn handle_attr(id: &CmId, way: &AddressVector) -> ibv_ah_attr {
    let grh = ibv_global_route {
        dgid: ibv_gid { raw: Gid::raw_of(way.destination) },
        flow_label: way.flow_label,
        sgid_index: id.gid_index(&Gid::raw_of(way.source)).unwrap_or(0),
        hop_limit: if way.hop_limit == 0 { HOP_LIMIT } else { way.hop_limit },
        traffic_class: way.traffic_class,
    };
    ibv_ah_attr { grh, is_global: 1, port_num: id.port_num.get(), ..ibv_ah_attr::default() }
}

/// The default hop limit of packets.
const HOP_LIMIT: u8 = 64;

/// The way to the peer, as RoCE has it.
fn path(id: &CmId) -> ibv_ah_attr {
    let gid = |addr| ibv_gid { raw: addr::gid(addr) };
    let local = id.id.local_addr().map(addr::gid);
    let grh = ibv_global_route {
        dgid: id.id.peer_addr().map(gid).unwrap_or_default(),
        flow_label: 0,
        sgid_index: local.and_then(|gid| id.gid_index(&gid)).unwrap_or(0),
        hop_limit: HOP_LIMIT,
        traffic_class: 0,
    };
    ibv_ah_attr { grh, is_global: 1, port_num: id.port_num.get(), ..ibv_ah_attr::default() }
}
