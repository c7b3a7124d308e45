// SPDX-License-Identifier: MIT OR Apache-2.0

//! Making and destroying ids, and moving them to other channels.

use std::ffi::{c_int, c_uint, c_void};

use iwarp::cm::{ConnectionState, Id, PortSpace};

use super::abi::{
    RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP, rdma_cm_id, rdma_event_channel,
};
use super::acknowledge::release_event;
use super::channel::CmChannel;
use super::id::{CmId, Handle};
use crate::abi::flags::{IBV_QPT_RC, IBV_QPT_UD};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{given, refuse};

/// Makes an id; `null` for a channel makes it synchronous.
pub(super) fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: c_uint,
    qp_type: c_uint,
) -> Result<*mut rdma_cm_id, Errno> {
    if ![RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IPOIB, RDMA_PS_IB].contains(&ps) {
        return Err(refuse!(
            EPROTONOSUPPORT,
            "the port space {ps:#x} is not known (RDMA_PS_TCP ...)"
        ));
    }
    let sync = channel.is_null();
    let channel = if sync { CmChannel::create()? } else { channel };
    // SAFETY: the program's channel, which it has not destroyed, or the one just made.
    let made = unsafe { CmChannel::of(channel) }.and_then(|channel| {
        let id = match space(ps).filter(|_| qp_type == IBV_QPT_UD) {
            Some(space) => Id::for_datagrams(&channel, space)?,
            None => Id::new(&channel)?,
        };
        Ok(id)
    });
    let id = match made {
        Ok(id) => id,
        Err(error) => {
            if sync {
                // SAFETY: just made.
                unsafe { CmChannel::destroy(channel) };
            }
            return Err(error);
        }
    };
    let made = CmId::make(id, channel, context, ps, qp_type);
    // SAFETY: just made.
    unsafe { CmId::of(made)? }.state().sync = sync;
    Ok(made)
}

/// The port space of datagram services.
fn space(ps: c_uint) -> Option<PortSpace> {
    match ps {
        RDMA_PS_UDP => Some(PortSpace::Udp),
        RDMA_PS_IPOIB => Some(PortSpace::Ipoib),
        RDMA_PS_IB => Some(PortSpace::Ib),
        _ => None,
    }
}

/// `rdma_create_id`
pub extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: Option<&mut *mut rdma_cm_id>,
    context: *mut c_void,
    ps: c_uint,
) -> c_int {
    guard::prepare();
    guard::minus_one(called!(rdma_create_id(channel, id, context, ps)), || {
        let place = given!(id)?;
        let datagram = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB;
        let qp_type = if datagram { IBV_QPT_UD } else { IBV_QPT_RC };
        *place = create(channel, context, ps, qp_type)?;
        Ok(0)
    })
}

/// `rdma_destroy_id`: waits until the program has acknowledged the id's events.
pub extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    guard::minus_one(called!(rdma_destroy_id(id)), || {
        // SAFETY: the program's id.
        let handle = unsafe { Handle::of(id)? };
        // In a forked child that has not used it, it is the parent's.
        let Some(this) = handle.own.get() else { return Ok(0) };
        this.id.close();
        release_event(this);
        this.shared.retire();
        this.shared.settle();
        let channel = this.channel.get();
        let sync = this.state().sync;
        // SAFETY: the channel was one, and its memory stays.
        unsafe { CmChannel::leave(channel, id) };
        // SAFETY: made by `CmId::make`; no event leads to it any more, and the program promises
        // not to use it any more.
        drop(unsafe { Box::from_raw(id.cast::<Handle>()) });
        if sync {
            // SAFETY: the id's own, which the program does not know.
            unsafe { CmChannel::destroy(channel) };
        }
        Ok(0)
    })
}

/// `rdma_migrate_id`: events that wait go along. Returns when those that the program has are
/// acknowledged.
pub extern "C" fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    guard::minus_one(called!(rdma_migrate_id(id, channel)), || {
        // SAFETY: the program's id.
        migrate(unsafe { CmId::of(id)? }, channel)?;
        Ok(0)
    })
}

pub(super) fn migrate(id: &CmId, channel: *mut rdma_event_channel) -> Result<(), Errno> {
    let was_sync = id.state().sync;
    let sync = channel.is_null();
    if was_sync && sync {
        return Err(refuse!(EINVAL, "the id has no channel already"));
    }
    let channel = if sync { CmChannel::create()? } else { channel };
    // SAFETY: the program's channel, which it has not destroyed, or the one just made.
    id.id.migrate(&unsafe { CmChannel::of(channel)? });
    if was_sync {
        release_event(id);
        // SAFETY: the id's own, which the program does not know.
        unsafe { CmChannel::destroy(id.channel.get()) };
    }
    id.state().sync = sync;
    // SAFETY: both were channels, and their memory stays.
    unsafe {
        CmChannel::leave(id.channel.get(), id.as_abi());
        if id.id.state() == ConnectionState::Listening {
            id.listen_at(channel);
        }
    }
    id.channel.set(channel);
    id.shared.settle();
    Ok(())
}
