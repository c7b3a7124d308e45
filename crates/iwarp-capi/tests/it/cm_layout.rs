// SPDX-License-Identifier: MIT OR Apache-2.0

//! The structures of `cm::abi` are those of `rdma/rdma_cma.h`.

use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::time::Duration;

use iwarp_capi::abi::flags::IBV_QPT_UD;
use iwarp_capi::cm::abi::*;

use crate::support;

macro_rules! layouts {
    ($($name:ident { $($field:ident $(= $c:literal)?),* $(,)? })*) => {
        [$((
            stringify!($name),
            [size_of::<$name>(), align_of::<$name>()],
            vec![$((layouts!(@ $field $($c)?), offset_of!($name, $field))),*],
        )),*]
    };
    (@ $field:ident) => { stringify!($field) };
    (@ $field:ident $c:literal) => { $c };
}

#[test]
fn structures_are_those_of_the_header() {
    let layouts = layouts! {
        rdma_ib_addr { sgid, dgid, pkey }
        rdma_addr { src = "src_addr", dst = "dst_addr", ibaddr = "addr.ibaddr" }
        rdma_route { addr, path_rec, num_paths }
        rdma_event_channel { fd }
        rdma_cm_id {
            verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq,
            recv_cq_channel, recv_cq, srq, pd, qp_type,
        }
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num,
        }
        rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
        rdma_cm_event { id, listen_id, event, status, param }
        rdma_addrinfo {
            ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len, ai_src_addr,
            ai_dst_addr, ai_src_canonname, ai_dst_canonname, ai_route_len, ai_route,
            ai_connect_len, ai_connect, ai_next,
        }
        ibv_sa_path_rec {
            dgid, sgid, dlid, slid, raw_traffic, flow_label, hop_limit, traffic_class, reversible,
            numb_path, pkey, sl, mtu_selector, mtu, rate_selector, rate,
            packet_life_time_selector, packet_life_time, preference,
        }
        ibv_ece { vendor_id, options, comp_mask }
    };
    let (mut checks, mut count) = (String::new(), 0);
    let mut check = |expression: String, value: usize| {
        writeln!(checks, "_Static_assert({expression} == {value}, \"{expression}\");").unwrap();
        count += 1;
    };
    for (name, [size, align], fields) in layouts {
        check(format!("sizeof(struct {name})"), size);
        check(format!("_Alignof(struct {name})"), align);
        for (field, offset) in fields {
            check(format!("offsetof(struct {name}, {field})"), offset);
        }
    }
    for (name, value) in [
        ("RDMA_CM_EVENT_ADDR_RESOLVED", RDMA_CM_EVENT_ADDR_RESOLVED as usize),
        ("RDMA_CM_EVENT_CONNECT_REQUEST", RDMA_CM_EVENT_CONNECT_REQUEST as usize),
        ("RDMA_CM_EVENT_REJECTED", RDMA_CM_EVENT_REJECTED as usize),
        ("RDMA_CM_EVENT_TIMEWAIT_EXIT", RDMA_CM_EVENT_TIMEWAIT_EXIT as usize),
        ("RDMA_PS_IPOIB", RDMA_PS_IPOIB as usize),
        ("RDMA_PS_TCP", RDMA_PS_TCP as usize),
        ("RDMA_PS_UDP", RDMA_PS_UDP as usize),
        ("RDMA_PS_IB", RDMA_PS_IB as usize),
        ("IBV_QPT_UD", IBV_QPT_UD as usize),
        ("RDMA_MAX_RESP_RES", RDMA_MAX_DEPTH.into()),
        ("RDMA_MAX_INIT_DEPTH", RDMA_MAX_DEPTH.into()),
        ("RAI_PASSIVE", RAI_PASSIVE as usize),
        ("RAI_FAMILY", RAI_FAMILY as usize),
        ("RDMA_OPTION_ID_TOS", RDMA_OPTION_ID_TOS as usize),
        ("RDMA_OPTION_ID_ACK_TIMEOUT", RDMA_OPTION_ID_ACK_TIMEOUT as usize),
    ] {
        check(name.to_owned(), value);
    }
    assert!(count > 100);
    let source = format!(
        "#include <stddef.h>\n#include <rdma/rdma_cma.h>\n#include <infiniband/sa.h>\n{checks}\
         int main(void) {{ return 0; }}\n"
    );
    let program = support::compile("cm_layout", &source, &[]);
    assert!(support::run_program(&program, &[], &[], Duration::from_secs(10)).status.success());
}
