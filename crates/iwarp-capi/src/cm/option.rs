// SPDX-License-Identifier: MIT OR Apache-2.0

//! Options of ids; extended connection establishment, and user events.

use std::ffi::{c_int, c_uint, c_void};

use super::abi::{
    RDMA_CM_EVENT_USER, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY,
    RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS, ibv_ece, rdma_cm_id,
};
use super::id::CmId;
use crate::calls::called;
use crate::guard;
use crate::refuse::{decline, given, refuse};

/// The largest exponent of a timeout.
const MAX_TIMEOUT: u8 = 31;

/// `rdma_set_option`
pub extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    guard::minus_one(called!(rdma_set_option(id, level, name, value, len)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        // The kernel's error for options that it does not know.
        if level != RDMA_OPTION_ID {
            return Err(decline!(ENOSYS, "the level {level} is not known"));
        }
        let octet = || match len {
            // SAFETY: `len` bytes are there, says the program.
            1 if !value.is_null() => Ok(unsafe { value.cast::<u8>().read() }),
            _ => Err(refuse!(EINVAL, "the value of option {name} has one byte, not {len}")),
        };
        let switch = || match len {
            // SAFETY: as above.
            4 if !value.is_null() => Ok(unsafe { value.cast::<c_int>().read_unaligned() } != 0),
            _ => Err(refuse!(EINVAL, "the value of option {name} has four bytes, not {len}")),
        };
        let bound = id.id.local_addr().is_some();
        match name {
            RDMA_OPTION_ID_TOS => id.id.set_traffic_class(octet()?),
            RDMA_OPTION_ID_REUSEADDR if !bound => id.id.set_share_address(switch()?),
            RDMA_OPTION_ID_AFONLY if !bound => id.id.set_ipv6_only(switch()?),
            RDMA_OPTION_ID_REUSEADDR | RDMA_OPTION_ID_AFONLY => {
                switch()?;
                return Err(refuse!(EINVAL, "option {name} has to be set before rdma_bind_addr"));
            }
            RDMA_OPTION_ID_ACK_TIMEOUT => {
                let timeout = octet()?;
                if timeout > MAX_TIMEOUT {
                    return Err(refuse!(
                        EINVAL,
                        "the timeout is {timeout}, of {MAX_TIMEOUT} at most"
                    ));
                }
                id.state().ack_timeout = Some(timeout);
            }
            _ => return Err(decline!(ENOSYS, "the option {name} is not known")),
        }
        Ok(0)
    })
}

/// `rdma_write_cm_event`: an event of the program's own.
pub extern "C" fn rdma_write_cm_event(
    id: *mut rdma_cm_id,
    event: c_uint,
    status: c_int,
    argument: u64,
) -> c_int {
    guard::minus_one(called!(rdma_write_cm_event(id, event, status, argument)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        if event != RDMA_CM_EVENT_USER {
            return Err(refuse!(
                EINVAL,
                "the event is {event}; only RDMA_CM_EVENT_USER can be written"
            ));
        }
        id.id.notify(status, argument);
        Ok(0)
    })
}

/// `rdma_set_local_ece`: kept, and not sent to the peer, as no device of this kind has a use for
/// it.
pub extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: Option<&ibv_ece>) -> c_int {
    guard::minus_one(called!(rdma_set_local_ece(id, ece)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        let ece = given!(ece)?;
        if !id.qp.get().is_null() || ece.vendor_id == 0 || ece.comp_mask != 0 {
            return Err(refuse!(
                EINVAL,
                "only an id without a queue pair has options of its own, with a vendor and no comp_mask"
            ));
        }
        id.state().local_ece = *ece;
        Ok(0)
    })
}

/// `rdma_get_remote_ece`: the peer has said nothing.
pub extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: Option<&mut ibv_ece>) -> c_int {
    guard::minus_one(called!(rdma_get_remote_ece(id, ece)), || {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        let ece = given!(ece)?;
        if !id.qp.get().is_null() {
            return Err(refuse!(
                EINVAL,
                "the id has a queue pair, whose options are not the program's"
            ));
        }
        *ece = id.state().remote_ece;
        Ok(0)
    })
}
