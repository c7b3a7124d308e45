// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices, contexts and their function pointers; the attributes of a device.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::{Op, Plain};

#[repr(C)]
pub struct ibv_device {
    pub _ops: [Op; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

/// Functions of a context that programs call through inline functions. A field whose name begins
/// with `_compat` is never called that way.
#[repr(C)]
pub struct ibv_context_ops {
    pub _compat_query_device: Op,
    pub _compat_query_port: Op,
    pub _compat_alloc_pd: Op,
    pub _compat_dealloc_pd: Op,
    pub _compat_reg_mr: Op,
    pub _compat_rereg_mr: Op,
    pub _compat_dereg_mr: Op,
    pub alloc_mw: Op,
    pub bind_mw: Op,
    pub dealloc_mw: Op,
    pub _compat_create_cq: Op,
    pub poll_cq: Op,
    pub req_notify_cq: Op,
    pub _compat_cq_event: Op,
    pub _compat_resize_cq: Op,
    pub _compat_destroy_cq: Op,
    pub _compat_create_srq: Op,
    pub _compat_modify_srq: Op,
    pub _compat_query_srq: Op,
    pub _compat_destroy_srq: Op,
    pub post_srq_recv: Op,
    pub _compat_create_qp: Op,
    pub _compat_query_qp: Op,
    pub _compat_modify_qp: Op,
    pub _compat_destroy_qp: Op,
    pub post_send: Op,
    pub post_recv: Op,
    pub _compat_create_ah: Op,
    pub _compat_destroy_ah: Op,
    pub _compat_attach_mcast: Op,
    pub _compat_detach_mcast: Op,
    pub _compat_async_event: Op,
}

#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub abi_compat: *mut c_void,
}

/// The part that lies in memory directly before an [`ibv_context`] whose `abi_compat` is all ones:
/// the rest of `struct verbs_context`. It grows at its beginning; `sz` tells how long it is, the
/// context included.
#[repr(C)]
pub struct verbs_context_head {
    pub free_buf: Op,
    pub alloc_buf: Op,
    pub dm_export_dmabuf_fd: Op,
    pub reg_mr_ex: Op,
    pub dealloc_dmah: Op,
    pub alloc_dmah: Op,
    pub query_port: Op,
    pub advise_mr: Op,
    pub alloc_null_mr: Op,
    pub read_counters: Op,
    pub attach_counters_point_flow: Op,
    pub create_counters: Op,
    pub destroy_counters: Op,
    pub reg_dm_mr: Op,
    pub alloc_dm: Op,
    pub free_dm: Op,
    pub modify_flow_action_esp: Op,
    pub destroy_flow_action: Op,
    pub create_flow_action_esp: Op,
    pub modify_qp_rate_limit: Op,
    pub alloc_parent_domain: Op,
    pub dealloc_td: Op,
    pub alloc_td: Op,
    pub modify_cq: Op,
    pub post_srq_ops: Op,
    pub destroy_rwq_ind_table: Op,
    pub create_rwq_ind_table: Op,
    pub destroy_wq: Op,
    pub modify_wq: Op,
    pub create_wq: Op,
    pub query_rt_values: Op,
    pub create_cq_ex: Op,
    pub private: *mut c_void,
    pub query_device_ex: Op,
    pub ibv_destroy_flow: Op,
    pub _placeholder_2: Op,
    pub ibv_create_flow: Op,
    pub _placeholder_1: Op,
    pub open_qp: Op,
    pub create_qp_ex: Op,
    pub get_srq_num: Op,
    pub create_srq_ex: Op,
    pub open_xrcd: Op,
    pub close_xrcd: Op,
    pub _placeholder_3: u64,
    pub sz: usize,
}

/// `struct verbs_context`.
#[repr(C)]
pub struct verbs_context {
    pub head: verbs_context_head,
    pub context: ibv_context,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_device_attr {
    pub fw_ver: [c_char; 64],
    /// Bytes in network order.
    pub node_guid: [u8; 8],
    /// Bytes in network order.
    pub sys_image_guid: [u8; 8],
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_uint,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_odp_caps {
    pub general_caps: u64,
    pub rc_odp_caps: u32,
    pub uc_odp_caps: u32,
    pub ud_odp_caps: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_rss_caps {
    pub supported_qpts: u32,
    pub max_rwq_indirection_tables: u32,
    pub max_rwq_indirection_table_size: u32,
    pub rx_hash_fields_mask: u64,
    pub rx_hash_function: u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_device_attr_ex {
    pub orig_attr: ibv_device_attr,
    pub comp_mask: u32,
    pub odp_caps: ibv_odp_caps,
    pub completion_timestamp_mask: u64,
    pub hca_core_clock: u64,
    pub device_cap_flags_ex: u64,
    /// `max_tso`, `supported_qpts`.
    pub tso_caps: [u32; 2],
    pub rss_caps: ibv_rss_caps,
    pub max_wq_type_rq: u32,
    /// `qp_rate_limit_min`, `qp_rate_limit_max`, `supported_qpts`.
    pub packet_pacing_caps: [u32; 3],
    pub raw_packet_caps: u32,
    /// `max_rndv_hdr_size`, `max_num_tags`, `flags`, `max_ops`, `max_sge`.
    pub tm_caps: [u32; 5],
    /// `max_cq_count`, `max_cq_period`.
    pub cq_mod_caps: [u16; 2],
    pub max_dm_size: u64,
    /// `fetch_add`, `swap`, `compare_swap`.
    pub pci_atomic_caps: [u16; 3],
    pub xrc_odp_caps: u32,
    pub phys_port_cnt_ex: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_values_ex {
    pub comp_mask: u32,
    pub raw_clock: libc::timespec,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_port_attr {
    pub state: c_uint,
    pub max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
    pub active_speed_ex: u32,
}

/// A GID: sixteen bytes in network order, which C may also see as two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, align(8))]
pub struct ibv_gid {
    pub raw: [u8; 16],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct ibv_gid_entry {
    pub gid: ibv_gid,
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}

// SAFETY: numbers, arrays of numbers and nullable pointers.
unsafe impl Plain for ibv_device {}
// SAFETY: as above.
unsafe impl Plain for ibv_context_ops {}
// SAFETY: as above; a mutex of zeros is unlocked.
unsafe impl Plain for verbs_context {}
// SAFETY: as above.
unsafe impl Plain for verbs_context_head {}
// SAFETY: as above.
unsafe impl Plain for ibv_context {}
// SAFETY: as above.
unsafe impl Plain for ibv_device_attr {}
// SAFETY: as above.
unsafe impl Plain for ibv_device_attr_ex {}
// SAFETY: as above.
unsafe impl Plain for ibv_port_attr {}
