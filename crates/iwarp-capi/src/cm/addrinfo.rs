// SPDX-License-Identifier: MIT OR Apache-2.0

//! `rdma_getaddrinfo`.
//!
//! Lists are made with the C library's allocator, as programs put pieces of their own into them.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use super::abi::{
    RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP,
    rdma_addrinfo,
};
use crate::abi::flags::{IBV_QPT_RC, IBV_QPT_UD};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::refuse;

/// Connected, like `IBV_QPT_RC`, to look names up.
const IBV_QPT_UC: c_int = 3;
const IBV_QPT_XRC_SEND: c_int = 9;
const IBV_QPT_XRC_RECV: c_int = 10;
/// The family of InfiniBand's own addresses.
const AF_IB: c_int = 27;

/// `rdma_getaddrinfo`: 0, -1 with `errno` set, or an error of `getaddrinfo(3)`.
pub extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
    place: Option<&mut *mut rdma_addrinfo>,
) -> c_int {
    guard::minus_one(called!(rdma_getaddrinfo(node, service, hints, place)), || {
        let place = place.ok_or_else(|| refuse!(EINVAL, "res is NULL"))?;
        if node.is_null() && service.is_null() && hints.is_none() {
            return Err(refuse!(EINVAL, "neither a node, nor a service, nor hints"));
        }
        let info = allocate()?;
        // SAFETY: just allocated and zeroed; no other thread knows it.
        let filled = unsafe { fill(&mut *info, node, service, hints) };
        match filled {
            Ok(0) => *place = info,
            _ => rdma_freeaddrinfo(info),
        }
        filled
    })
}

/// `rdma_freeaddrinfo`
pub extern "C" fn rdma_freeaddrinfo(list: *mut rdma_addrinfo) {
    let mut next = list;
    // SAFETY: a list of `rdma_getaddrinfo`, to which the program added only what it allocated.
    while let Some(info) = unsafe { next.as_ref() } {
        let pieces: [*mut c_void; 6] = [
            info.ai_connect,
            info.ai_route,
            info.ai_src_canonname.cast(),
            info.ai_dst_canonname.cast(),
            info.ai_src_addr.cast(),
            info.ai_dst_addr.cast(),
        ];
        let this = next;
        next = info.ai_next;
        for piece in pieces.into_iter().chain([this.cast()]) {
            // SAFETY: as above.
            unsafe { libc::free(piece) };
        }
    }
}

fn allocate() -> Result<*mut rdma_addrinfo, Errno> {
    // SAFETY: allocates memory of zeros, which are a value of this type.
    let info = unsafe { libc::calloc(1, size_of::<rdma_addrinfo>()) };
    if info.is_null() {
        return Err(refuse!(ENOMEM, "out of memory"));
    }
    Ok(info.cast())
}

/// Fills in an entry that is zero.
///
/// # Safety
///
/// The names are null or C strings; addresses of `hints` have their length.
unsafe fn fill(
    info: &mut rdma_addrinfo,
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<c_int, Errno> {
    // SAFETY: from the caller.
    unsafe {
        if !node.is_null() || !service.is_null() {
            let failed = look_up(info, node, service, hints)?;
            if failed != 0 {
                return Ok(failed);
            }
        } else if let Some(hints) = hints {
            info.ai_flags = hints.ai_flags;
            info.ai_family = hints.ai_family;
            info.ai_qp_type = hints.ai_qp_type;
            info.ai_port_space = hints.ai_port_space;
            if hints.ai_dst_len > 0 {
                info.ai_dst_addr = duplicate(hints.ai_dst_addr, hints.ai_dst_len)?;
                info.ai_dst_len = hints.ai_dst_len;
            }
        }
        if let Some(hints) = hints
            && info.ai_src_len == 0
            && hints.ai_src_len > 0
        {
            info.ai_src_addr = duplicate(hints.ai_src_addr, hints.ai_src_len)?;
            info.ai_src_len = hints.ai_src_len;
        }
    }
    Ok(0)
}

/// # Safety
///
/// As [`fill`].
unsafe fn look_up(
    info: &mut rdma_addrinfo,
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<c_int, Errno> {
    let question = hints.map(question);
    let question = question.as_ref().map_or(std::ptr::null(), |it| &raw const *it);
    let mut answer = null_mut();
    // SAFETY: the caller's strings; `answer` is a list of the C library's when it returns 0.
    let failed = unsafe { libc::getaddrinfo(node, service, question, &mut answer) };
    if failed != 0 {
        return Ok(failed);
    }
    // SAFETY: a list has a first entry.
    let first = unsafe { &*answer };
    // SAFETY: the entry is whole.
    let taken = unsafe { take(info, first, hints) };
    // SAFETY: nothing of it is used any more.
    unsafe { libc::freeaddrinfo(answer) };
    taken.map(|()| 0)
}

/// The question to the C library.
fn question(hints: &rdma_addrinfo) -> libc::addrinfo {
    // SAFETY: numbers and nullable pointers.
    let mut question: libc::addrinfo = unsafe { std::mem::zeroed() };
    if hints.ai_flags & RAI_PASSIVE != 0 {
        question.ai_flags |= libc::AI_PASSIVE;
    }
    if hints.ai_flags & RAI_NUMERICHOST != 0 {
        question.ai_flags |= libc::AI_NUMERICHOST;
    }
    if hints.ai_family != AF_IB {
        question.ai_family = hints.ai_family;
    }
    const RC: c_int = IBV_QPT_RC as c_int;
    const UD: c_int = IBV_QPT_UD as c_int;
    question.ai_socktype = match hints.ai_qp_type {
        RC | IBV_QPT_UC | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => libc::SOCK_STREAM,
        UD => libc::SOCK_DGRAM,
        _ => 0,
    };
    question.ai_protocol = match (hints.ai_port_space as u32, question.ai_socktype) {
        (RDMA_PS_TCP, _) | (RDMA_PS_IB, libc::SOCK_STREAM) => libc::IPPROTO_TCP,
        (RDMA_PS_UDP | RDMA_PS_IPOIB, _) | (RDMA_PS_IB, libc::SOCK_DGRAM) => libc::IPPROTO_UDP,
        _ => 0,
    };
    question
}

/// Takes over what the C library found.
///
/// # Safety
///
/// `found` is an entry of a list of `getaddrinfo`.
unsafe fn take(
    info: &mut rdma_addrinfo,
    found: &libc::addrinfo,
    hints: Option<&rdma_addrinfo>,
) -> Result<(), Errno> {
    info.ai_family = found.ai_family;
    info.ai_qp_type = match (hints.map_or(0, |hints| hints.ai_qp_type), found.ai_socktype) {
        (0, libc::SOCK_STREAM) => IBV_QPT_RC as c_int,
        (0, libc::SOCK_DGRAM) => IBV_QPT_UD as c_int,
        (wanted, _) => wanted,
    };
    info.ai_port_space = match (hints.map_or(0, |hints| hints.ai_port_space), found.ai_protocol) {
        (0, libc::IPPROTO_TCP) => RDMA_PS_TCP as c_int,
        (0, libc::IPPROTO_UDP) => RDMA_PS_UDP as c_int,
        (wanted, _) => wanted,
    };
    // SAFETY: the entry's own address and name.
    unsafe {
        let addr = duplicate(found.ai_addr, found.ai_addrlen)?;
        let name = if found.ai_canonname.is_null() {
            null_mut()
        } else {
            libc::strdup(found.ai_canonname)
        };
        if found.ai_flags & libc::AI_PASSIVE != 0 {
            info.ai_flags = RAI_PASSIVE;
            (info.ai_src_addr, info.ai_src_len) = (addr, found.ai_addrlen);
            info.ai_src_canonname = name;
        } else {
            (info.ai_dst_addr, info.ai_dst_len) = (addr, found.ai_addrlen);
            info.ai_dst_canonname = name;
        }
    }
    Ok(())
}

/// # Safety
///
/// `len` bytes are at `addr`.
unsafe fn duplicate(
    addr: *const libc::sockaddr,
    len: libc::socklen_t,
) -> Result<*mut libc::sockaddr, Errno> {
    // SAFETY: allocates.
    let copy = unsafe { libc::malloc(len as usize) };
    if copy.is_null() {
        return Err(refuse!(ENOMEM, "out of memory"));
    }
    // SAFETY: `len` bytes each; new memory overlaps nothing.
    unsafe { std::ptr::copy_nonoverlapping(addr.cast::<u8>(), copy.cast(), len as usize) };
    Ok(copy.cast())
}
