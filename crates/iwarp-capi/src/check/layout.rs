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
    pub(super) wr_id: u64,
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
    pointers: [usize; 2],
    pub(super) pd: usize,
    pub(super) send_cq: usize,
    pub(super) recv_cq: usize,
    pub(super) srq: usize,
    handle: u32,
    pub(super) qp_num: u32,
    pub(super) state: u32,
    pub(super) kind: u32,
}

/// The beginning of a memory region.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionHead {
    context: usize,
    pub(super) pd: usize,
    pub(super) addr: usize,
    pub(super) length: usize,
    handle: u32,
    pub(super) key: u32,
}

/// The beginning of a completion queue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueHead {
    context: usize,
    pub(super) channel: usize,
    cq_context: usize,
    handle: u32,
    pub(super) depth: u32,
}

/// The beginning of an id of the connection manager.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct IdHead {
    pointers: [usize; 3],
    pub(super) qp: usize,
}

/// The beginning of an event of the connection manager.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CmEventHead {
    pub(super) id: usize,
    pub(super) listener: usize,
    pub(super) event: u32,
}

/// An asynchronous event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct AsyncHead {
    pub(super) element: usize,
    pub(super) event: u32,
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
