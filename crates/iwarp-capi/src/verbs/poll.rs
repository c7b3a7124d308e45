// SPDX-License-Identifier: MIT OR Apache-2.0

//! Polling completion queues: the functions that the inline functions of the header call.

use std::ffi::{c_int, c_uint};

use iwarp::{SourceQp, WcOp, WcStatus, WorkCompletion};

use super::cq::Cq;
use super::qp::show_failed;
use crate::abi::flags::*;
use crate::abi::ibv_wc;
use crate::calls::{Shown as _, called, told};
use crate::guard::{self, Errno};
use crate::refuse::refuse;

/// `ibv_poll_cq`: the number of completions that were taken, or -1.
pub(crate) extern "C" fn poll_cq(cq: &Cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    let Ok(max) = usize::try_from(num_entries) else { return -1 };
    let taken = guard::on_data_path("ibv_poll_cq", || {
        let (mut to, mut failed) = (wc, None);
        let taken = cq.queue().poll_each(max, |completion| {
            if completion.status != WcStatus::Success {
                failed = Some(completion.qp);
            }
            // SAFETY: the program has room for `num_entries`, and gets no more than so many.
            unsafe {
                to.write_unaligned(convert(&completion));
                to = to.add(1);
            }
        });
        if let Some(qp) = failed {
            show_failed(cq, qp.0);
        }
        Ok(taken)
    });
    told!(
        ibv_poll_cq(cq, num_entries, wc),
        taken.as_ref().map(usize::value).map_err(Errno::number)
    );
    taken.map_or(-1, |taken| taken as c_int)
}

/// `ibv_req_notify_cq`: refused where there is no channel.
pub(crate) extern "C" fn req_notify_cq(cq: &Cq, solicited_only: c_int) -> c_int {
    guard::errno(called!(ibv_req_notify_cq(cq, solicited_only)), || {
        cq.check()?;
        cq.channel().ok_or_else(|| {
            refuse!(EINVAL, "the completion queue was made without a channel to raise events on")
        })?;
        cq.queue().request_notify(solicited_only != 0);
        Ok(())
    })
}

/// A completion as C knows it.
#[inline]
pub(crate) fn convert(completion: &WorkCompletion) -> ibv_wc {
    let mut wc = ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status as c_uint,
        opcode: opcode(completion.op),
        byte_len: completion.byte_len,
        qp_num: completion.qp.0,
        ..ibv_wc::default()
    };
    if completion.status != WcStatus::Success {
        return wc;
    }
    // On a connection the sender is not told.
    wc.src_qp = completion.source_qp.map_or(0, SourceQp::get);
    wc.wc_flags = if completion.source_qp.is_some() { IBV_WC_GRH } else { 0 };
    wc.sl = kind_of_packet(completion);
    if let Some(immediate) = completion.immediate_word() {
        wc.wc_flags |= IBV_WC_WITH_IMM;
        // As the sender's program had it in its memory.
        wc.imm_data = u32::from_ne_bytes(immediate);
    } else if let Some(stag) = completion.invalidated {
        wc.wc_flags |= IBV_WC_WITH_INV;
        wc.imm_data = stag.0;
    }
    wc
}

/// The value that a RoCE card tells in place of the service level: a datagram came by UDP, and over
/// which IP (RoCE v2 annex, A17.4.5.1). UCX up to 1.13 finds the address by it.
pub(crate) fn kind_of_packet(completion: &WorkCompletion) -> u8 {
    const BY_UDP: u8 = 1 << 3;

    match completion.source_qp.map(SourceQp::is_over_ipv4) {
        None => 0,
        Some(false) => BY_UDP | 1,
        Some(true) => BY_UDP | 2,
    }
}

fn opcode(op: WcOp) -> c_uint {
    match op {
        WcOp::Write => IBV_WC_RDMA_WRITE,
        WcOp::Read => IBV_WC_RDMA_READ,
        WcOp::FetchAdd => IBV_WC_FETCH_ADD,
        WcOp::CompareSwap => IBV_WC_COMP_SWAP,
        WcOp::Bind => IBV_WC_BIND_MW,
        WcOp::LocalInvalidate => IBV_WC_LOCAL_INV,
        WcOp::Recv => IBV_WC_RECV,
        // A peer that is not of our kind sends a Write with immediate data as Immediate Data alone.
        WcOp::RecvImmediate | WcOp::RecvWriteImmediate => IBV_WC_RECV_RDMA_WITH_IMM,
        // Sends, and Immediate Data alone, which this interface cannot ask for.
        _ => IBV_WC_SEND,
    }
}
