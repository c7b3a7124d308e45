// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device as ids use it.

use std::ffi::{c_int, c_uint};
use std::sync::{Mutex, PoisonError};

use iwarp::Device;
use iwarp_os::PerProcess;

use crate::abi::{ibv_context, ibv_pd};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::verbs::list::{self, Listing};
use crate::verbs::shared::shared_context;
use crate::verbs::{Context, pd};

/// `IBV_MTU_1024`: the largest that fits into an Ethernet frame.
pub(super) const PATH_MTU: c_uint = 3;
/// The default partition, in network order.
pub(super) const PKEY: u16 = 0xffff;

/// The context of the ids that are on a device.
pub(crate) fn context(place: usize) -> Result<&'static Context, Errno> {
    // SAFETY: a shared context is never closed.
    Ok(unsafe { Context::of(shared_context(place)?) })
}

/// The first device, for what all devices of the process have alike.
pub(crate) fn device() -> Result<&'static Device, Errno> {
    Ok(context(0)?.device())
}

/// True if the user asks for the limits of a card where this device could do without.
pub(super) fn is_strict() -> bool {
    device().is_ok_and(|device| device.options().strict)
}

/// The numbers of Reads and Atomics that a queue pair serves and has outstanding.
pub(super) fn depths() -> Result<(u8, u8), Errno> {
    let attributes = device()?.attributes();
    let limit = |depth: u16| u8::try_from(depth).unwrap_or(u8::MAX);
    Ok((limit(attributes.max_qp_rd_atom), limit(attributes.max_qp_init_rd_atom)))
}

/// The context's protection domain for programs that name none; it stays.
pub(super) fn default_pd(context: &Context) -> Result<*mut ibv_pd, Errno> {
    static DEFAULT: PerProcess<Mutex<Vec<Default>>> = PerProcess::new();

    #[derive(Clone)]
    struct Default {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
    }
    // SAFETY: both may be used by all threads.
    unsafe impl Send for Default {}

    // A forked child's ids have the parent's, whose contexts are the child's as well.
    let mut all = DEFAULT.get_or_copy().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.iter().find(|known| known.context == context.as_abi()) {
        return Ok(known.pd);
    }
    let made = pd::ibv_alloc_pd(context);
    if made.is_null() {
        return Err(Errno::plain(libc::ENOMEM));
    }
    all.push(Default { context: context.as_abi(), pd: made.cast() });
    Ok(made.cast())
}

/// `rdma_get_devices`
pub extern "C" fn rdma_get_devices(num_devices: Option<&mut c_int>) -> *mut *mut ibv_context {
    guard::object(called!(rdma_get_devices(num_devices)), || {
        let contexts: Result<Vec<_>, Errno> =
            list::devices().and_then(|devices| (0..devices.len()).map(shared_context).collect());
        if let Some(num_devices) = num_devices {
            let count = contexts.as_ref().map_or(0, Vec::len);
            *num_devices = c_int::try_from(count).unwrap_or(c_int::MAX);
        }
        Ok(Listing::of(contexts?.into_iter()))
    })
}

/// `rdma_free_devices`
pub extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: the program gives back what `rdma_get_devices` gave it.
    unsafe { Listing::free(list) }
}
