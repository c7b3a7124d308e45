// SPDX-License-Identifier: MIT OR Apache-2.0

//! The structures of `abi` are those of the C headers: a C program tells sizes and offsets.
//!
//! Structures that have grown since are longer here than in the header of an older rdma-core; what
//! both have is at the same place.

use std::collections::HashMap;
use std::mem::{offset_of, size_of};
use std::time::Duration;

use iwarp_capi::abi::*;

use crate::support;

/// The things to compare: structure, whether it may be longer here, its fields under our name
/// and under C's.
struct Layout {
    name: &'static str,
    size: usize,
    grown: bool,
    fields: Vec<(&'static str, usize)>,
}

macro_rules! layouts {
    ($($grown:ident $name:ident { $($field:ident $(= $c:literal)?),* $(,)? })*) => {
        vec![$(Layout {
            name: stringify!($name),
            size: size_of::<$name>(),
            grown: layouts!(@ $grown),
            fields: vec![$((layouts!(@c $field $($c)?), offset_of!($name, $field))),*],
        }),*]
    };
    (@ same) => { false };
    (@ grown) => { true };
    (@c $field:ident) => { stringify!($field).trim_start_matches("r#") };
    (@c $field:ident $c:literal) => { $c };
}

#[rustfmt::skip]
fn layouts() -> Vec<Layout> {
    layouts! {
        same ibv_device { _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        same ibv_context_ops {
            _compat_query_device, _compat_query_port, alloc_mw, bind_mw, dealloc_mw, poll_cq,
            req_notify_cq, post_srq_recv, post_send, post_recv, _compat_async_event,
        }
        same ibv_context {
            device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat,
        }
        same ibv_device_attr {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id,
            vendor_part_id, hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd,
            max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom,
            max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd, max_mw,
            max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach,
            max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr,
            max_srq_sge, max_pkeys, local_ca_ack_delay, phys_port_cnt,
        }
        same ibv_device_attr_ex {
            orig_attr, comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock,
            device_cap_flags_ex, tso_caps, rss_caps, max_wq_type_rq, packet_pacing_caps,
            raw_packet_caps, tm_caps, cq_mod_caps, max_dm_size, pci_atomic_caps, xrc_odp_caps,
            phys_port_cnt_ex,
        }
        same ibv_values_ex { comp_mask, raw_clock }
        grown ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr,
            qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout,
            init_type_reply, active_width, active_speed, phys_state, link_layer, flags,
            port_cap_flags2,
        }
        same ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        same ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        same ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        same ibv_qp_cap {
            max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data,
        }
        same ibv_qp_init_attr {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all,
        }
        same ibv_qp_init_attr_ex {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd,
            create_flags, max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags,
        }
        same ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
            qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index,
            en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
            port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit,
        }
        same ibv_srq_attr { max_wr, max_sge, srq_limit }
        same ibv_srq_init_attr { srq_context, attr }
        same ibv_srq_init_attr_ex {
            srq_context, attr, comp_mask, srq_type, pd, xrcd, cq, tm_cap,
        }
        same ibv_cq_init_attr_ex {
            cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain,
        }
        same ibv_modify_cq_attr {
            attr_mask, cq_count = "moderate.cq_count", cq_period = "moderate.cq_period",
        }
        same ibv_td_init_attr { comp_mask }
        same ibv_parent_domain_init_attr { pd, td, comp_mask, alloc, free, pd_context }
        same ibv_pd { context, handle }
        same ibv_td { context }
        same ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        same ibv_dm { context, memcpy_to_dm, memcpy_from_dm, comp_mask, handle }
        same ibv_alloc_dm_attr { length, log_align_req, comp_mask }
        same ibv_mw { context, pd, rkey, handle, r#type }
        same ibv_ah { context, pd, handle }
        same ibv_comp_channel { context, fd, refcnt }
        same ibv_cq {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed,
            async_events_completed,
        }
        same ibv_cq_ex {
            comp_mask, status, wr_id, start_poll, next_poll, end_poll, read_opcode,
            read_vendor_err, read_byte_len, read_imm_data, read_qp_num, read_src_qp,
            read_wc_flags, read_slid, read_sl, read_dlid_path_bits, read_completion_ts,
            read_cvlan, read_flow_tag, read_tm_info, read_completion_wallclock_ns,
        }
        same ibv_srq {
            context, srq_context, pd, handle, mutex, cond, events_completed,
        }
        same ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex,
            cond, events_completed,
        }
        grown ibv_qp_ex {
            base = "qp_base", comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add,
            wr_bind_mw, wr_local_inv, wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send,
            wr_send_imm, wr_send_inv, wr_send_tso, wr_set_ud_addr, wr_set_xrc_srqn,
            wr_set_inline_data, wr_set_inline_data_list, wr_set_sge, wr_set_sge_list, wr_start,
            wr_complete, wr_abort, wr_atomic_write,
        }
        same ibv_async_event { element, event_type }
        same ibv_sge { addr, length, lkey }
        same ibv_data_buf { addr, length }
        same ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        same ibv_mw_bind { wr_id, send_flags, bind_info }
        same ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr,
            remote_srqn = "qp_type.xrc.remote_srqn", bind_mw,
        }
        same ibv_recv_wr { wr_id, next, sg_list, num_sge }
        same ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags,
            pkey_index, slid, sl, dlid_path_bits,
        }
    }
}

/// The layout that C says: `structure` has its size, `structure.field` its offset.
fn of_c(layouts: &[Layout]) -> HashMap<String, usize> {
    let mut code = String::from(
        "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{\n",
    );
    for Layout { name, fields, .. } in layouts {
        code += &format!("printf(\"{name} %zu\\n\", sizeof(struct {name}));\n");
        for (field, _) in fields {
            code +=
                &format!("printf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {field}));\n");
        }
    }
    for field in head_fields() {
        let field = field.0;
        code += &format!(
            "printf(\"head.{field} %zu\\n\", offsetof(struct verbs_context, context) - \
             offsetof(struct verbs_context, {field}));\n"
        );
    }
    code += "return 0;\n}\n";
    let program = support::compile("layout", &code, &[]);
    let output = support::run_program(&program, &[], &[], Duration::from_secs(20));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| {
            let (name, number) = line.split_once(' ').unwrap();
            (name.to_owned(), number.parse().unwrap())
        })
        .collect()
}

/// The newer part of a context counts from its end. All fields that rdma-core 44 has.
#[rustfmt::skip]
fn head_fields() -> Vec<(&'static str, usize)> {
    macro_rules! fields {
        ($($field:ident),* $(,)?) => {
            vec![$((
                stringify!($field),
                size_of::<verbs_context_head>() - offset_of!(verbs_context_head, $field),
            )),*]
        };
    }
    fields! {
        query_port, advise_mr, alloc_null_mr, read_counters, attach_counters_point_flow,
        create_counters, destroy_counters, reg_dm_mr, alloc_dm, free_dm, modify_flow_action_esp,
        destroy_flow_action, create_flow_action_esp, modify_qp_rate_limit, alloc_parent_domain,
        dealloc_td, alloc_td, modify_cq, post_srq_ops, destroy_rwq_ind_table,
        create_rwq_ind_table, destroy_wq, modify_wq, create_wq, query_rt_values, create_cq_ex,
        query_device_ex, ibv_destroy_flow, ibv_create_flow, open_qp, create_qp_ex, get_srq_num,
        create_srq_ex, open_xrcd, close_xrcd, sz,
    }
}

#[test]
fn structures_are_those_of_the_header() {
    let layouts = layouts();
    let c = of_c(&layouts);
    for Layout { name, size, grown, fields } in &layouts {
        let theirs = c[*name];
        assert!(theirs == *size || *grown && theirs < *size, "{name}: {theirs}, here {size}");
        for (field, offset) in fields {
            assert_eq!(c[&format!("{name}.{field}")], *offset, "{name}.{field}");
        }
    }
    for (field, from_end) in head_fields() {
        assert_eq!(c[&format!("head.{field}")], from_end, "{field}");
    }
}

#[test]
fn the_newest_parts_are_where_rdma_core_64_has_them() {
    assert_eq!(size_of::<verbs_context>(), 696);
    assert_eq!(offset_of!(verbs_context_head, query_port), 48);
    assert_eq!(offset_of!(verbs_context_head, create_cq_ex), 248);
    assert_eq!(offset_of!(verbs_context_head, private), 256);
    assert_eq!(offset_of!(verbs_context_head, query_device_ex), 264);
    assert_eq!(offset_of!(verbs_context_head, create_qp_ex), 312);
    assert_eq!(offset_of!(verbs_context_head, sz), 360);
    assert_eq!(size_of::<ibv_qp_ex>(), 360);
    assert_eq!(size_of::<ibv_port_attr>(), 56);
}
