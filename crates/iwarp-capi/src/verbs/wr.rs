// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests that a program builds one by one (`struct ibv_qp_ex`): begin, one call for each
//! operation and its bytes, complete.

use std::ffi::{c_int, c_uint, c_void};

use iwarp::{Payload, PostError, QpType, SendOp, SendRequest, Sge, Stag, TaggedOffset, faults};

use super::builder::{List, Octets, Pending};
use super::mw::Mw;
use super::packed;
use super::post::{self, Flags};
use super::qp::Qp;
use crate::abi::flags::*;
use crate::abi::{Op, ibv_ah, ibv_data_buf, ibv_mw_bind_info, ibv_qp_ex, ibv_sge};
use crate::calls::told;
use crate::guard::{self, Errno, SUCCESS, set_errno};
use crate::refuse::refuse;

/// The operations that a queue pair of a type can be made for.
pub(crate) const fn supported(qp_type: c_uint) -> u64 {
    const DATAGRAM: u64 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    const UNRELIABLE: u64 = DATAGRAM
        | IBV_QP_EX_WITH_RDMA_WRITE
        | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        | IBV_QP_EX_WITH_LOCAL_INV
        | IBV_QP_EX_WITH_BIND_MW;

    match qp_type {
        IBV_QPT_UD => DATAGRAM,
        IBV_QPT_UC => UNRELIABLE,
        _ => RELIABLE,
    }
}

const RELIABLE: u64 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_SEND_WITH_INV;

#[cold]
fn out_of_memory() -> Errno {
    refuse!(ENOMEM, "out of memory")
}

#[cold]
fn nothing_begun() -> Errno {
    refuse!(EINVAL, "an element, bytes or an address before any operation (ibv_wr_send ...)")
}

impl Qp {
    #[cold]
    fn too_many_sges(&self, asked: usize) -> Errno {
        refuse!(
            EINVAL,
            "{asked} scatter/gather elements, of {} (max_send_sge) that queue pair {} may have",
            self.init.cap.max_send_sge,
            self.number()
        )
    }

    fn add(&self, op: SendOp, window: Option<(*const Mw, Stag)>) {
        let Some(list) = self.builder.list() else { return };
        let flags = Flags(self.abi.wr_flags.get());
        if list.requests.try_reserve(1).is_err() {
            list.error = Some(out_of_memory());
            return;
        }
        if self.kind == QpType::Ud {
            if list.destinations.try_reserve(1).is_err() {
                list.error = Some(out_of_memory());
                return;
            }
            list.destinations.push(None);
        }
        list.requests.push(Pending {
            wr_id: self.abi.wr_id.get(),
            op,
            octets: Octets::Sges(list.sges.len()..list.sges.len()),
            signaled: self.signal_all || flags.has(IBV_SEND_SIGNALED),
            fence: flags.has(IBV_SEND_FENCE),
            window,
        });
    }

    fn begin(&self, op: SendOp) {
        assemble(|| self.add(op, None));
    }

    fn solicited(&self) -> bool {
        self.abi.wr_flags.get() & IBV_SEND_SOLICITED != 0
    }

    /// Gives the request that was begun last its elements.
    fn set_sges(&self, sges: impl Iterator<Item = Sge>) {
        let Some(list) = self.builder.list() else { return };
        let start = list.sges.len();
        if list.sges.try_reserve(sges.size_hint().0).is_err() {
            list.error = Some(out_of_memory());
            return;
        }
        list.sges.extend(sges);
        let range = start..list.sges.len();
        match list.requests.last_mut() {
            Some(request) if range.len() <= self.init.cap.max_send_sge as usize => {
                request.octets = Octets::Sges(range);
            }
            Some(_) => list.error = Some(self.too_many_sges(range.len())),
            None => list.error = Some(nothing_begun()),
        }
    }

    /// Gives the request that was begun last its bytes.
    fn set_inline(&self, bufs: impl Iterator<Item = ibv_data_buf>) {
        let Some(list) = self.builder.list() else { return };
        let start = list.inline.len();
        for buf in bufs {
            let most = self.init.cap.max_inline_data as usize;
            let room = most.saturating_sub(list.inline.len() - start);
            if buf.length > room {
                let before = (list.inline.len() - start) as u64;
                let length = before.saturating_add(buf.length as u64);
                list.error = Some(post::inline_too_long(length, most as u32));
                return;
            }
            if buf.addr.is_null() && buf.length > 0 {
                list.error = Some(refuse!(EINVAL, "inline data at the address 0"));
                return;
            }
            if list.inline.try_reserve(buf.length).is_err() {
                list.error = Some(out_of_memory());
                return;
            }
            // SAFETY: the program passes so many bytes of its own; the room was just made.
            unsafe {
                let end = list.inline.as_mut_ptr().add(list.inline.len());
                buf.addr.cast::<u8>().copy_to_nonoverlapping(end, buf.length);
                list.inline.set_len(list.inline.len() + buf.length);
            }
        }
        let range = start..list.inline.len();
        match list.requests.last_mut() {
            Some(request) => request.octets = Octets::Inline(range),
            None => list.error = Some(nothing_begun()),
        }
    }

    /// Sets the destination of the request that was begun last. If the handle does not exist, the
    /// queue pair decides what becomes of the request.
    fn set_destination(&self, ah: *mut ibv_ah, qp: u32, qkey: u32) {
        let Some(list) = self.builder.list() else { return };
        match list.destinations.last_mut() {
            Some(to) => {
                let known = self.context().handles.known();
                *to = known.and_then(|known| known.destination(self.domain, ah, qp, qkey));
            }
            None => list.error = Some(nothing_begun()),
        }
    }

    fn complete(&self) -> Result<(), Errno> {
        const BATCH: usize = 16;
        let Some(list) = self.builder.list() else {
            return Err(refuse!(ENODEV, "no ibv_wr_start before it, or it was the parent's"));
        };
        let List { requests, destinations, sges, inline, error } = list;
        if let Some(error) = error.take() {
            return Err(error);
        }
        let as_request = |at: usize, pending: &Pending| {
            let payload = match &pending.octets {
                Octets::Sges(range) => Payload::Sges(&sges[range.clone()]),
                Octets::Inline(range) => Payload::Inline(&inline[range.clone()]),
            };
            let mut request = SendRequest::new(pending.wr_id, pending.op, payload);
            (request.signaled, request.fence) = (pending.signaled, pending.fence);
            request.destination = destinations.get(at).and_then(Option::as_ref);
            request
        };
        let all = requests.iter().enumerate().map(|(at, pending)| as_request(at, pending));
        let about = all.map(|request| (request.op.completes_as(), request.payload.len()));
        if let Some(number) = faults::of_posts("ibv_wr_complete", self.number(), about) {
            return Err(Errno::plain(number));
        }
        if requests.len() > 1 && requests.len() > self.queue_pair.room().0 {
            // All or nothing.
            return Err(post::refused(self, PostError::QueueFull, &as_request(0, &requests[0])));
        }
        for (chunk, pending) in requests.chunks(BATCH).enumerate() {
            let first = chunk * BATCH;
            let posted = match pending {
                [one] => {
                    let request = as_request(first, one);
                    let posted = self.queue_pair.post_send(&request);
                    posted.map_err(|error| post::refused(self, error, &request))
                }
                some => {
                    let mut batch = [as_request(first, &some[0]); BATCH];
                    for (at, (to, from)) in batch.iter_mut().zip(some).enumerate() {
                        *to = as_request(first + at, from);
                    }
                    post::post_sends(self, &batch[..some.len()]).map_err(|(_, error)| error)
                }
            };
            posted?;
        }
        for (mw, stag) in requests.iter().filter_map(|pending| pending.window) {
            // SAFETY: the program keeps the window at least until the request has completed.
            unsafe { &*mw }.bound_as(stag);
        }
        Ok(())
    }
}

/// The functions that a program calls, those it asked for among the operations.
pub(crate) fn fill(abi: &mut ibv_qp_ex, kind: QpType, send_ops: u64) {
    let asked = |flag: u64, function: Op| {
        if send_ops & flag != 0 { function } else { unsupported as Op }
    };
    abi.wr_rdma_write = asked(IBV_QP_EX_WITH_RDMA_WRITE, wr_rdma_write as Op);
    abi.wr_rdma_write_imm = asked(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, wr_rdma_write_imm as Op);
    abi.wr_send = asked(IBV_QP_EX_WITH_SEND, wr_send as Op);
    abi.wr_send_imm = asked(IBV_QP_EX_WITH_SEND_WITH_IMM, wr_send_imm as Op);
    abi.wr_rdma_read = asked(IBV_QP_EX_WITH_RDMA_READ, wr_rdma_read as Op);
    abi.wr_atomic_cmp_swp = asked(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, wr_atomic_cmp_swp as Op);
    abi.wr_atomic_fetch_add = asked(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, wr_atomic_fetch_add as Op);
    abi.wr_local_inv = asked(IBV_QP_EX_WITH_LOCAL_INV, wr_local_inv as Op);
    abi.wr_bind_mw = asked(IBV_QP_EX_WITH_BIND_MW, wr_bind_mw as Op);
    abi.wr_send_inv = asked(IBV_QP_EX_WITH_SEND_WITH_INV, wr_send_inv as Op);
    // Never null: programs do not look before they call.
    abi.wr_send_tso = unsupported as Op;
    let is_ud = kind == QpType::Ud;
    abi.wr_set_ud_addr = if is_ud { wr_set_ud_addr as Op } else { unsupported as Op };
    abi.wr_set_xrc_srqn = unsupported as Op;
    abi.wr_atomic_write = unsupported as Op;
    abi.wr_flush = unsupported as Op;
    abi.wr_set_inline_data = wr_set_inline_data as Op;
    abi.wr_set_inline_data_list = wr_set_inline_data_list as Op;
    abi.wr_set_sge = wr_set_sge as Op;
    abi.wr_set_sge_list = wr_set_sge_list as Op;
    abi.wr_start = wr_start as Op;
    abi.wr_complete = wr_complete as Op;
    abi.wr_abort = wr_abort as Op;
}

/// Does a step of the list that a program assembles. After a panic it is as if nothing was said.
fn assemble(step: impl FnOnce()) {
    let _ = guard::on_data_path("ibv_wr_start", || {
        step();
        Ok(())
    });
}

extern "C" fn wr_start(qp: &Qp) {
    assemble(|| qp.builder.start());
}

extern "C" fn wr_complete(qp: &Qp) -> c_int {
    let result = guard::on_data_path("ibv_wr_complete", || qp.complete());
    told!(ibv_wr_complete(qp), result.as_ref().map(|()| SUCCESS).map_err(Errno::number));
    qp.builder.end();
    match result {
        Ok(()) => 0,
        Err(error) => {
            set_errno(error.number());
            error.number()
        }
    }
}

extern "C" fn wr_abort(qp: &Qp) {
    qp.builder.end();
}

/// Any operation that the queue pair was not made for. `wr_complete` reports it.
extern "C" fn unsupported(qp: &Qp) {
    let error = refuse!(
        EOPNOTSUPP,
        "an operation that queue pair {} was not made for (send_ops_flags)",
        qp.number()
    );
    qp.builder.refuse(error);
}

extern "C" fn wr_rdma_write(qp: &Qp, rkey: u32, remote_addr: u64) {
    let op = SendOp::Write { stag: Stag(rkey), to: TaggedOffset(remote_addr) };
    qp.begin(op);
}

extern "C" fn wr_rdma_write_imm(qp: &Qp, rkey: u32, remote_addr: u64, imm_data: u32) {
    let (stag, to) = (Stag(rkey), TaggedOffset(remote_addr));
    let (solicited, data) = (qp.solicited(), imm_data.to_ne_bytes());
    qp.begin(SendOp::WriteImmediate { stag, to, solicited, data });
}

extern "C" fn wr_send(qp: &Qp) {
    let op = SendOp::Send { solicited: qp.solicited(), invalidate: None };
    qp.begin(op);
}

extern "C" fn wr_send_imm(qp: &Qp, imm_data: u32) {
    let op = SendOp::SendImmediate { solicited: qp.solicited(), data: imm_data.to_ne_bytes() };
    qp.begin(op);
}

extern "C" fn wr_send_inv(qp: &Qp, invalidate_rkey: u32) {
    let invalidate = Some(Stag(invalidate_rkey));
    let op = SendOp::Send { solicited: qp.solicited(), invalidate };
    qp.begin(op);
}

extern "C" fn wr_rdma_read(qp: &Qp, rkey: u32, remote_addr: u64) {
    let (stag, to) = (Stag(rkey), TaggedOffset(remote_addr));
    qp.begin(SendOp::Read { stag, to, invalidate: None });
}

extern "C" fn wr_atomic_cmp_swp(qp: &Qp, rkey: u32, remote_addr: u64, compare: u64, swap: u64) {
    qp.begin(post::compare_swap(rkey, remote_addr, compare, swap));
}

extern "C" fn wr_atomic_fetch_add(qp: &Qp, rkey: u32, remote_addr: u64, add: u64) {
    qp.begin(post::fetch_add(rkey, remote_addr, add));
}

extern "C" fn wr_local_inv(qp: &Qp, invalidate_rkey: u32) {
    qp.begin(SendOp::LocalInvalidate(Stag(invalidate_rkey)));
}

extern "C" fn wr_bind_mw(qp: &Qp, mw: &Mw, rkey: u32, info: &ibv_mw_bind_info) {
    let key = mw.key(rkey);
    assemble(|| match mw.bind_op(key, info) {
        Ok(op) => qp.add(op, Some((mw, key))),
        Err(error) => qp.builder.refuse(error),
    });
}

extern "C" fn wr_set_ud_addr(qp: &Qp, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) {
    assemble(|| qp.set_destination(ah, remote_qpn, remote_qkey));
}

extern "C" fn wr_set_sge(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    let sge = Sge { addr, length, lkey: Stag(lkey) };
    assemble(|| qp.set_sges(std::iter::once(sge)));
}

extern "C" fn wr_set_sge_list(qp: &Qp, num_sge: usize, list: *const ibv_sge) {
    assemble(|| {
        if num_sge > qp.init.cap.max_send_sge as usize {
            qp.builder.refuse(qp.too_many_sges(num_sge));
            return;
        }
        if list.is_null() && num_sge > 0 {
            qp.builder.refuse(refuse!(EINVAL, "sg_list is NULL, and num_sge is {num_sge}"));
            return;
        }
        // SAFETY: the program passes so many.
        qp.set_sges(unsafe { packed::sges(list, num_sge) });
    });
}

extern "C" fn wr_set_inline_data(qp: &Qp, addr: *mut c_void, length: usize) {
    assemble(|| qp.set_inline(std::iter::once(ibv_data_buf { addr, length })));
}

extern "C" fn wr_set_inline_data_list(qp: &Qp, num_buf: usize, list: *const ibv_data_buf) {
    assemble(|| {
        if list.is_null() && num_buf > 0 {
            qp.builder.refuse(refuse!(EINVAL, "buf_list is NULL, and num_buf is {num_buf}"));
            return;
        }
        // SAFETY: the program passes so many.
        qp.set_inline(unsafe { packed::each(list, num_buf) });
    });
}
