// SPDX-License-Identifier: MIT OR Apache-2.0

//! Addresses of ids: binding, resolving, listening.

use std::ffi::c_int;
use std::net::SocketAddr;

use iwarp::faults::Step;

use super::abi::{rdma_addr, rdma_cm_id};
use super::event::fails_on_purpose;
use super::id::CmId;
use super::wait::complete;
use super::{addr, ports};
use crate::calls::called;
use crate::guard::{self, Errno};

/// `rdma_bind_addr`
pub extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *const libc::sockaddr) -> c_int {
    guard::minus_one(called!(rdma_bind_addr(id, addr)), || {
        // SAFETY: the program's id and address.
        let (id, addr) = unsafe { (CmId::of(id)?, addr::read(addr)?) };
        ports::share();
        id.id.bind(addr).map_err(Errno::from).map_err(|error| match error {
            // The kernel's error for a port that is in use at one address, where all are wanted.
            error if error.number() == libc::EADDRINUSE && addr.ip().is_unspecified() => {
                error.with_number(libc::EADDRNOTAVAIL)
            }
            error => error,
        })?;
        // To the kernel loopback is any address: no device yet. libfabric relies on that to tell
        // its users real addresses.
        if !addr.ip().is_unspecified() && !addr.ip().is_loopback() {
            id.enter_device()?;
        }
        id.show_addresses();
        Ok(0)
    })
}

/// `rdma_resolve_addr`; ends in `RDMA_CM_EVENT_ADDR_RESOLVED` or `RDMA_CM_EVENT_ADDR_ERROR`.
pub extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src: *const libc::sockaddr,
    dst: *const libc::sockaddr,
    timeout_ms: c_int,
) -> c_int {
    let call = called!(rdma_resolve_addr(id, src, dst, timeout_ms));
    let begun = guard::minus_one(call.part(), || {
        // SAFETY: the program's id and addresses.
        let (id, dst) = unsafe { (CmId::of(id)?, addr::read(dst)?) };
        // SAFETY: likewise.
        let src = if src.is_null() { None } else { Some(unsafe { addr::read(src)? }) };
        if !fails_on_purpose(id, Step::Address) {
            resolve_addr(id, src, dst)?;
        }
        Ok(0)
    });
    call.returns(if begun == 0 { complete(id) } else { begun })
}

fn resolve_addr(id: &CmId, src: Option<SocketAddr>, dst: SocketAddr) -> Result<(), Errno> {
    // SAFETY: as in `show_addresses`; no event has made another thread look at it yet.
    unsafe { &mut *id.route.get() }.addr.dst = addr::storage(dst);
    // An unspecified source leaves the choice to us, but may say the port.
    let src = src.filter(|src| !src.ip().is_unspecified() || src.port() != 0);
    Ok(id.id.resolve_addr(src, dst)?)
}

/// `rdma_resolve_route`; ends in `RDMA_CM_EVENT_ROUTE_RESOLVED`.
pub extern "C-unwind" fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int {
    let call = called!(rdma_resolve_route(id, timeout_ms));
    let begun = guard::minus_one(call.part(), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        if !fails_on_purpose(id, Step::Route) {
            id.id.resolve_route()?;
        }
        Ok(0)
    });
    call.returns(if begun == 0 { complete(id) } else { begun })
}

/// `rdma_listen`
pub extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    guard::minus_one(called!(rdma_listen(id, backlog)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        ports::share();
        id.id.listen(u32::try_from(backlog).unwrap_or(0))?;
        // SAFETY: the channel stays until its ids are gone.
        unsafe { id.listen_at(id.channel.get()) };
        id.show_addresses();
        Ok(0)
    })
}

/// `rdma_get_src_port`: in network order.
pub extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    port_of(id, |addr| &addr.src)
}

/// `rdma_get_dst_port`: in network order.
pub extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    port_of(id, |addr| &addr.dst)
}

fn port_of(id: *mut rdma_cm_id, which: fn(&rdma_addr) -> &libc::sockaddr_storage) -> u16 {
    // A forked child that only asks for the address takes the id over, as by any other call: a peer
    // that learns the address may connect at once. The address is told even if the child cannot
    // have the id.
    // SAFETY: the program's id.
    let _ = unsafe { CmId::of(id) };
    // SAFETY: the program's id, and as in `show_addresses`.
    port(which(unsafe { &(*(*id).route.get()).addr }))
}

fn port(storage: &libc::sockaddr_storage) -> u16 {
    // SAFETY: a `sockaddr_storage` is large enough for any address.
    unsafe { addr::read((&raw const *storage).cast()) }.map_or(0, |addr| addr.port().to_be())
}
