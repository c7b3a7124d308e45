//! The device as ids use it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, Ordering};

use iwarp::{Device, Personality};
use iwarp_os::PerProcess;

use super::id::CmId;
use crate::abi::{ibv_context, ibv_pd};
use crate::guard::{self, Errno};
use crate::verbs::{Context, pd, shared_context};

/// Number of the device's only port.
pub(super) const PORT: u8 = 1;
/// The default partition, in network order.
pub(super) const PKEY: u16 = 0xffff;

/// The context that all ids share.
pub(super) fn context() -> Result<&'static Context, Errno> {
    // SAFETY: the shared context is never closed.
    Ok(unsafe { Context::of(shared_context()?) })
}

/// The device behind it.
pub(super) fn device() -> Result<&'static Device, Errno> {
    Ok(context()?.device())
}

/// Where an address of this host is in the device's table.
pub(super) fn gid_index(gid: &[u8; 16]) -> Option<u8> {
    let gids = device().ok()?.gids().ok()?;
    u8::try_from(gids.iter().find(|entry| entry.raw == *gid)?.index).ok()
}

/// Whether the device looks like InfiniBand, and events come as they do there.
pub(super) fn is_infiniband() -> bool {
    device().is_ok_and(|device| device.options().personality == Personality::Roce)
}

/// How many Reads and Atomics a queue pair serves and has outstanding.
pub(super) fn depths() -> Result<(u8, u8), Errno> {
    let attributes = device()?.attributes();
    let limit = |depth: u16| u8::try_from(depth).unwrap_or(u8::MAX);
    Ok((limit(attributes.max_qp_rd_atom), limit(attributes.max_qp_init_rd_atom)))
}

/// The id is on the device from now on.
pub(super) fn enter(id: &CmId) -> Result<(), Errno> {
    let context = context()?;
    id.verbs.set(context.as_abi());
    id.port_num.set(PORT);
    if id.pd.get().is_null() {
        id.pd.set(default_pd(context)?);
    }
    Ok(())
}

/// Whoever names no protection domain uses this one, which stays.
fn default_pd(context: &Context) -> Result<*mut ibv_pd, Errno> {
    static DEFAULT: PerProcess<AtomicPtr<ibv_pd>> = PerProcess::new();

    let slot = DEFAULT.get();
    let found = slot.load(Ordering::Acquire);
    if !found.is_null() {
        return Ok(found);
    }
    let made = pd::ibv_alloc_pd(context);
    if made.is_null() {
        return Err(Errno(libc::ENOMEM));
    }
    match slot.compare_exchange(found, made.cast(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(made.cast()),
        Err(other) => {
            pd::ibv_dealloc_pd(made);
            Ok(other)
        }
    }
}

/// `rdma_get_devices`
pub extern "C" fn rdma_get_devices(num_devices: Option<&mut c_int>) -> *mut *mut ibv_context {
    guard::object(|| {
        let context = shared_context();
        if let Some(num_devices) = num_devices {
            *num_devices = context.is_ok().into();
        }
        Ok(Box::into_raw(Box::new([context?, std::ptr::null_mut()])).cast())
    })
}

/// `rdma_free_devices`
pub extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    if !list.is_null() {
        // SAFETY: the program gives back what `rdma_get_devices` gave it.
        drop(unsafe { Box::from_raw(list.cast::<[*mut ibv_context; 2]>()) });
    }
}
