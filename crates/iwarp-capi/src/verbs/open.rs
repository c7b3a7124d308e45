// SPDX-License-Identifier: MIT OR Apache-2.0

//! Opening the device, and the functions that a program finds in what it gets.

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use super::context::{Functions, Held, engine};
use super::imports::Imports;
use super::{
    Context, advise, bind, cq, create_cq, create_qp, dm, list, mw, pd, poll, post, query, register,
    srq,
};
use crate::abi::{Op, Plain, ibv_context, ibv_context_ops, ibv_device, verbs_context_head};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::refuse;

/// Opens a device of the list.
///
/// # Errors
///
/// As for `ibv_open_device`.
pub(super) fn open(device: *mut ibv_device) -> Result<Held, Errno> {
    let own = engine()?.named_sibling(list::place(device))?;
    let (imports, token) = Imports::new(list::place(device))?;
    let cmd_fd = match token {
        Some(token) => token,
        None => own.async_fd().try_clone_to_owned()?,
    };
    Ok(Context::make(device, own, imports, cmd_fd, functions()))
}

/// `ibv_open_device`
pub extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    guard::prepare();
    guard::object(called!(ibv_open_device(device)), || Ok(open(device)?.hand_out().cast()))
}

/// `ibv_import_device`: another context with the objects of one, by a duplicate of its `cmd_fd`,
/// which it owns from then on. Contexts of other processes cannot be had: their objects are there
/// and nowhere else.
pub extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    guard::prepare();
    guard::object(called!(ibv_import_device(cmd_fd)), || {
        if cmd_fd < 0 {
            return Err(refuse!(EBADF, "cmd_fd is {cmd_fd}"));
        }
        // SAFETY: the program passes a descriptor that stays open during the call; one that is not
        // open makes a system call fail.
        let imports = Imports::of(unsafe { BorrowedFd::borrow_raw(cmd_fd) })?;
        let device = list::devices()?.get(imports.place());
        let device = device.ok_or_else(|| refuse!(EINVAL, "its device is not there"))?.as_abi();
        let own = engine()?.named_sibling(imports.place())?;
        // SAFETY: the program gives it away where this succeeds, and nothing fails from here on.
        let cmd_fd = unsafe { OwnedFd::from_raw_fd(cmd_fd) };
        Ok(Context::make(device, own, imports, cmd_fd, functions()).hand_out().cast())
    })
}

/// `ibv_close_device`. Imports that are left point to the context: they work on, and the last to be
/// destroyed frees it. The program is not told of them, here or with rdma-core.
pub extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    guard::minus_one(called!(ibv_close_device(context)), || {
        // SAFETY: the program has it from `ibv_open_device`.
        drop(unsafe { Held::take_back(context)? });
        Ok(0)
    })
}

fn functions() -> Functions {
    Functions { ops: ops(), head: head() }
}

/// The functions that inline functions of the header call.
fn ops() -> ibv_context_ops {
    ibv_context_ops {
        alloc_mw: mw::alloc_mw as Op,
        bind_mw: bind::bind_mw as Op,
        dealloc_mw: mw::dealloc_mw as Op,
        poll_cq: poll::poll_cq as Op,
        req_notify_cq: poll::req_notify_cq as Op,
        post_srq_recv: post::post_srq_recv as Op,
        post_send: post::post_send as Op,
        post_recv: post::post_recv as Op,
        _compat_query_port: query::ibv_query_port as Op,
        ..ibv_context_ops::zeroed()
    }
}

/// The functions that newer inline functions call; one that is null is not supported.
fn head() -> verbs_context_head {
    verbs_context_head {
        reg_mr_ex: register::ibv_reg_mr_ex as Op,
        query_port: query::query_port as Op,
        advise_mr: advise::advise_mr as Op,
        reg_dm_mr: dm::reg_dm_mr as Op,
        alloc_dm: dm::alloc_dm as Op,
        free_dm: dm::free_dm as Op,
        alloc_parent_domain: pd::alloc_parent_domain as Op,
        alloc_td: pd::alloc_td as Op,
        dealloc_td: pd::dealloc_td as Op,
        modify_cq: cq::modify_cq as Op,
        query_rt_values: query::query_rt_values as Op,
        create_cq_ex: create_cq::create_cq_ex as Op,
        query_device_ex: query::query_device_ex as Op,
        create_qp_ex: create_qp::create_qp_ex as Op,
        get_srq_num: std::ptr::null(),
        create_srq_ex: srq::create_srq_ex as Op,
        sz: size_of::<verbs_context_head>() + size_of::<ibv_context>(),
        ..verbs_context_head::zeroed()
    }
}
