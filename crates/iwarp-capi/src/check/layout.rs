// SPDX-License-Identifier: MIT OR Apache-2.0

//! Structures of the header, as far as the checker reads them.

/// The beginning of a send request.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) wr_id: u64,
    pub(super) next: usize,
    sg_list: usize,
    num_sge: u32,
    opcode: u32,
    pub(super) send_flags: u32,
    imm_data: u32,
    remote_addr: u64,
    rkey: u32,
}

/// A completion.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    wr_id: u64,
    pub(super) status: u32,
    pub(super) opcode: u32,
    vendor_err: u32,
    pub(super) byte_len: u32,
    pub(super) imm_data: u32,
    pub(super) qp_num: u32,
    rest: [u32; 4],
}

/// The beginning of a queue pair.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct PairHead {
    pointers: [usize; 6],
    handle: u32,
    pub(super) qp_num: u32,
    pub(super) state: u32,
    pub(super) kind: u32,
}

/// A structure of the program's.
///
/// # Safety
///
/// The address is that of one.
pub(super) unsafe fn read<T: Copy>(address: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::with_exposed_provenance::<T>(address).read_unaligned() }
}
