// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues that are looked at one completion at a time (`struct ibv_cq_ex`).

use std::ffi::{c_int, c_uint};

use iwarp::{WcStatus, WorkCompletion};

use super::cq::Cq;
use super::poll;
use super::qp::show_failed;
use crate::abi::{Op, ibv_cq_ex, ibv_wc};
use crate::calls::{outcome, told};
use crate::guard::{self, Errno};
use crate::refuse::refuse;

/// The functions with which a program looks at a completion: those it asked for.
pub(crate) fn fill(abi: &mut ibv_cq_ex, wc_flags: u64) {
    abi.start_poll = start_poll as Op;
    abi.next_poll = next_poll as Op;
    abi.end_poll = end_poll as Op;
    abi.read_opcode = read_opcode as Op;
    abi.read_vendor_err = read_vendor_err as Op;
    abi.read_wc_flags = read_wc_flags as Op;
    let asked = |flag: u64, function: Op| {
        if wc_flags & flag != 0 { function } else { std::ptr::null() }
    };
    abi.read_byte_len = asked(1, read_byte_len as Op);
    abi.read_imm_data = asked(1 << 1, read_imm_data as Op);
    abi.read_qp_num = asked(1 << 2, read_qp_num as Op);
    abi.read_src_qp = asked(1 << 3, read_src_qp as Op);
    abi.read_slid = asked(1 << 4, read_zero_u32 as Op);
    abi.read_sl = asked(1 << 5, read_sl as Op);
    abi.read_dlid_path_bits = asked(1 << 6, read_zero_u8 as Op);
}

impl Cq {
    fn look_at_next(&self) -> Result<(), Errno> {
        let mut next = None;
        self.queue().poll_each(1, |completion| next = Some(completion));
        let completion = next.ok_or_else(|| Errno::plain(libc::ENOENT))?;
        self.abi.wr_id.set(completion.wr_id);
        self.abi.status.set(completion.status as c_uint);
        if completion.status != WcStatus::Success {
            show_failed(self, completion.qp.0);
        }
        // SAFETY: the program looks at one completion at a time, between start and end.
        unsafe { *self.current.get() = Some(completion) };
        Ok(())
    }

    fn current(&self) -> Option<WorkCompletion> {
        // SAFETY: as above.
        unsafe { *self.current.get() }
    }

    fn field<T: Default>(&self, field: impl FnOnce(&ibv_wc) -> T) -> T {
        self.current().map_or_else(T::default, |completion| field(&poll::convert(&completion)))
    }
}

/// Unlike elsewhere, `errno` is not touched: an empty queue is the usual end.
fn look(verb: &'static str, cq: &Cq) -> c_int {
    let looked = guard::on_data_path(verb, || cq.look_at_next());
    looked.map_or_else(|error| error.number(), |()| 0)
}

extern "C" fn start_poll(cq: &Cq, attr: *const u32) -> c_int {
    // SAFETY: the program passes a structure that begins with its mask, or null.
    if let Some(comp_mask) = unsafe { attr.as_ref() }
        && *comp_mask != 0
    {
        let unknown = || Err(refuse!(EINVAL, "comp_mask {comp_mask:#x} is not known"));
        let refused = guard::on_data_path("ibv_start_poll", unknown);
        return refused.map_or_else(|error| error.number(), |()| 0);
    }
    let looked = look("ibv_start_poll", cq);
    told!(ibv_start_poll(cq, attr), outcome(looked));
    looked
}

extern "C" fn next_poll(cq: &Cq) -> c_int {
    let looked = look("ibv_next_poll", cq);
    told!(ibv_next_poll(cq), outcome(looked));
    looked
}

extern "C" fn end_poll(_: &Cq) {}

extern "C" fn read_opcode(cq: &Cq) -> c_uint {
    cq.field(|wc| wc.opcode)
}

extern "C" fn read_vendor_err(cq: &Cq) -> u32 {
    cq.field(|wc| wc.vendor_err)
}

extern "C" fn read_wc_flags(cq: &Cq) -> c_uint {
    cq.field(|wc| wc.wc_flags)
}

extern "C" fn read_byte_len(cq: &Cq) -> u32 {
    cq.field(|wc| wc.byte_len)
}

extern "C" fn read_imm_data(cq: &Cq) -> u32 {
    cq.field(|wc| wc.imm_data)
}

extern "C" fn read_qp_num(cq: &Cq) -> u32 {
    cq.field(|wc| wc.qp_num)
}

extern "C" fn read_src_qp(cq: &Cq) -> u32 {
    cq.field(|wc| wc.src_qp)
}

extern "C" fn read_sl(cq: &Cq) -> u8 {
    cq.field(|wc| wc.sl)
}

/// Ethernet has no LIDs.
extern "C" fn read_zero_u32(_: &Cq) -> u32 {
    0
}

extern "C" fn read_zero_u8(_: &Cq) -> u8 {
    0
}
