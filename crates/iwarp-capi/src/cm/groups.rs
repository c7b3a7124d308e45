// SPDX-License-Identifier: MIT OR Apache-2.0

//! The multicast groups of an id.

use std::ffi::c_void;
use std::net::IpAddr;

use iwarp::verbs::Gid;

use crate::abi::{ibv_gid, ibv_qp};
use crate::guard::Errno;
use crate::verbs::multicast::ibv_attach_mcast;
use crate::verbs::qp::Qp;

/// A group that an id has joined, or is about to.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) group: IpAddr,
    /// The program's context, which events carry.
    pub(super) context: *mut c_void,
    /// The id receives nothing from the group.
    pub(super) sends_only: bool,
    /// The id's queue pair is attached to the group.
    pub(super) attached: bool,
}

// SAFETY: the context is the program's, which all its threads may use; nothing here looks at it.
unsafe impl Send for Joined {}

/// Attaches an id's queue pair, or null, to a group that is joined now; returns the group's
/// context, and the outcome. `None` where the program has left it already.
pub(super) fn joined(
    groups: &mut [Joined],
    qp: *mut ibv_qp,
    group: IpAddr,
) -> Option<(*mut c_void, Result<(), Errno>)> {
    let joined = groups.iter_mut().find(|joined| joined.group == group)?;
    let context = joined.context;
    if joined.sends_only {
        return Some((context, Ok(())));
    }
    // SAFETY: the id's own queue pair, or null.
    let Some(qp) = (unsafe { Qp::of(qp) }) else { return Some((context, Ok(()))) };
    let gid = ibv_gid { raw: Gid::raw_of(group) };
    let failed = ibv_attach_mcast(qp, &raw const gid, 0);
    joined.attached = failed == 0;
    Some((context, if failed == 0 { Ok(()) } else { Err(Errno::plain(failed)) }))
}
