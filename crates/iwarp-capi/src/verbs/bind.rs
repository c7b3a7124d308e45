// SPDX-License-Identifier: MIT OR Apache-2.0

//! Binding memory windows by a call of their own.

use std::ffi::{c_int, c_uint};

use iwarp::{Payload, SendRequest, Stag};

use super::mw::Mw;
use super::post::{Flags, refused};
use super::qp::Qp;
use crate::abi::flags::*;
use crate::abi::{ibv_mw_bind, ibv_mw_bind_info};
use crate::calls::called;
use crate::guard::{self, Errno};

/// `ibv_bind_mw`: for windows of type 1, which get a new key each time.
pub(crate) extern "C" fn bind_mw(qp: &Qp, mw: &Mw, bind: &ibv_mw_bind) -> c_int {
    guard::errno(called!(ibv_bind_mw(qp, mw, bind)), || {
        let new_stag = mw.next_key()?;
        post_bind(qp, mw, bind.wr_id, bind.send_flags, new_stag, &bind.bind_info)
    })
}

fn post_bind(
    qp: &Qp,
    mw: &Mw,
    wr_id: u64,
    flags: c_uint,
    new_stag: Stag,
    info: &ibv_mw_bind_info,
) -> Result<(), Errno> {
    let flags = Flags(flags);
    let mut request = SendRequest::new(wr_id, mw.bind_op(new_stag, info)?, Payload::NONE);
    request.signaled = qp.signal_all || flags.has(IBV_SEND_SIGNALED);
    request.fence = flags.has(IBV_SEND_FENCE);
    qp.queue_pair.post_send(&request).map_err(|error| refused(qp, error, &request))?;
    mw.bound_as(new_stag);
    Ok(())
}
