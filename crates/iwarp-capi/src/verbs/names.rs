// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers as words.

use std::ffi::{CStr, c_char, c_int, c_uint};

fn pick(names: &[&'static CStr], number: c_uint, unknown: &'static CStr) -> *const c_char {
    names.get(number as usize).copied().unwrap_or(unknown).as_ptr()
}

/// `ibv_node_type_str`
pub extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    const NAMES: [&CStr; 8] = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    pick(&NAMES, node_type.cast_unsigned(), NAMES[0])
}

/// `ibv_port_state_str`
pub extern "C" fn ibv_port_state_str(state: c_uint) -> *const c_char {
    const NAMES: [&CStr; 6] =
        [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];
    pick(&NAMES, state, c"unknown")
}

/// `ibv_event_type_str`
pub extern "C" fn ibv_event_type_str(event: c_uint) -> *const c_char {
    const NAMES: [&CStr; 21] = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migration succeeded",
        c"path migration failed",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
        c"device speed change",
    ];
    pick(&NAMES, event, c"unknown")
}

/// `ibv_wc_status_str`
pub extern "C" fn ibv_wc_status_str(status: c_uint) -> *const c_char {
    const NAMES: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous",
    ];
    pick(&NAMES, status, c"unknown")
}

/// `ibv_wr_opcode_str`
pub extern "C" fn ibv_wr_opcode_str(opcode: c_uint) -> *const c_char {
    const NAMES: [&CStr; 16] = [
        c"RDMA_WRITE",
        c"RDMA_WRITE_WITH_IMM",
        c"SEND",
        c"SEND_WITH_IMM",
        c"RDMA_READ",
        c"ATOMIC_CMP_AND_SWP",
        c"ATOMIC_FETCH_AND_ADD",
        c"LOCAL_INV",
        c"BIND_MW",
        c"SEND_WITH_INV",
        c"TSO",
        c"DRIVER1",
        c"unknown",
        c"unknown",
        c"FLUSH",
        c"ATOMIC_WRITE",
    ];
    pick(&NAMES, opcode, c"unknown")
}
