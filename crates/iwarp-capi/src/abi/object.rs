// SPDX-License-Identifier: MIT OR Apache-2.0

//! The objects that a program is given.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32};

use super::{Op, Plain, ibv_context};

#[repr(C)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}

#[repr(C)]
pub struct ibv_td {
    pub context: *mut ibv_context,
}

#[repr(C)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: Cell<*mut ibv_pd>,
    pub addr: Cell<*mut c_void>,
    pub length: Cell<usize>,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
pub struct ibv_dm {
    pub context: *mut ibv_context,
    pub memcpy_to_dm: Op,
    pub memcpy_from_dm: Op,
    pub comp_mask: u32,
    pub handle: u32,
}

#[repr(C)]
pub struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: Cell<u32>,
    pub handle: u32,
    pub r#type: c_uint,
}

#[repr(C)]
pub struct ibv_ah {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}

#[repr(C)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: AtomicI32,
}

#[repr(C)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: AtomicI32,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub comp_events_completed: AtomicU32,
    pub async_events_completed: AtomicU32,
}

#[repr(C)]
pub struct ibv_cq_ex {
    pub base: ibv_cq,
    pub comp_mask: u32,
    pub status: Cell<c_uint>,
    pub wr_id: Cell<u64>,
    pub start_poll: Op,
    pub next_poll: Op,
    pub end_poll: Op,
    pub read_opcode: Op,
    pub read_vendor_err: Op,
    pub read_byte_len: Op,
    pub read_imm_data: Op,
    pub read_qp_num: Op,
    pub read_src_qp: Op,
    pub read_wc_flags: Op,
    pub read_slid: Op,
    pub read_sl: Op,
    pub read_dlid_path_bits: Op,
    pub read_completion_ts: Op,
    pub read_cvlan: Op,
    pub read_flow_tag: Op,
    pub read_tm_info: Op,
    pub read_completion_wallclock_ns: Op,
}

#[repr(C)]
pub struct ibv_srq {
    pub context: *mut ibv_context,
    pub srq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: AtomicU32,
}

#[repr(C)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: AtomicU32,
    pub qp_type: c_uint,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: AtomicU32,
}

#[repr(C)]
pub struct ibv_qp_ex {
    pub base: ibv_qp,
    pub comp_mask: u64,
    /// Set by the program before each `wr_...` call.
    pub wr_id: Cell<u64>,
    /// Likewise.
    pub wr_flags: Cell<c_uint>,
    pub wr_atomic_cmp_swp: Op,
    pub wr_atomic_fetch_add: Op,
    pub wr_bind_mw: Op,
    pub wr_local_inv: Op,
    pub wr_rdma_read: Op,
    pub wr_rdma_write: Op,
    pub wr_rdma_write_imm: Op,
    pub wr_send: Op,
    pub wr_send_imm: Op,
    pub wr_send_inv: Op,
    pub wr_send_tso: Op,
    pub wr_set_ud_addr: Op,
    pub wr_set_xrc_srqn: Op,
    pub wr_set_inline_data: Op,
    pub wr_set_inline_data_list: Op,
    pub wr_set_sge: Op,
    pub wr_set_sge_list: Op,
    pub wr_start: Op,
    pub wr_complete: Op,
    pub wr_abort: Op,
    pub wr_atomic_write: Op,
    pub wr_flush: Op,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_async_event {
    /// A union of pointers to the object the event is about; an `int` for a port.
    pub element: *mut c_void,
    pub event_type: c_uint,
}

// SAFETY: numbers, nullable pointers, and mutexes and conditions that zeros initialise.
unsafe impl Plain for ibv_cq_ex {}
// SAFETY: as above.
unsafe impl Plain for ibv_qp_ex {}
// SAFETY: as above.
unsafe impl Plain for ibv_srq {}
