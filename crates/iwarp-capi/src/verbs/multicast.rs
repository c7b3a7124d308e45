// SPDX-License-Identifier: MIT OR Apache-2.0

//! Multicast groups.

use std::ffi::c_int;
use std::net::IpAddr;

use iwarp::QpType;
use iwarp::verbs::Gid;

use super::qp::Qp;
use crate::abi::ibv_gid;
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::refuse;

/// The group that a GID names (`::ffff:a.b.c.d` or `ff..`); `EINVAL` where it names none.
fn group_of(gid: Option<&[u8; 16]>) -> Result<IpAddr, Errno> {
    let group = gid.and_then(|raw| Gid::addr_of(*raw));
    group
        .filter(IpAddr::is_multicast)
        .ok_or_else(|| refuse!(EINVAL, "the GID is not that of a group"))
}

/// Only datagram queue pairs are attached to groups.
fn check_type(qp: &Qp) -> Result<(), Errno> {
    if qp.kind == QpType::Ud {
        return Ok(());
    }
    Err(refuse!(EINVAL, "only queue pairs of the type UD can be attached to groups"))
}

fn attach(qp: &Qp, group: IpAddr) -> Result<(), Errno> {
    let mut groups = qp.groups()?;
    if groups.contains(&group) {
        return Ok(());
    }
    groups.try_reserve(1).map_err(|_| refuse!(ENOMEM, "out of memory"))?;
    qp.queue_pair.attach_multicast(group)?;
    groups.push(group);
    Ok(())
}

fn detach(qp: &Qp, group: IpAddr) -> Result<(), Errno> {
    let mut groups = qp.groups()?;
    let place = groups.iter().position(|attached| *attached == group);
    let place =
        place.ok_or_else(|| refuse!(EINVAL, "the queue pair is not attached to {group}"))?;
    qp.queue_pair.detach_multicast(group)?;
    groups.swap_remove(place);
    Ok(())
}

/// `ibv_attach_mcast`: to attach once more changes nothing. Ethernet has no LIDs.
pub extern "C" fn ibv_attach_mcast(qp: &Qp, gid: *const ibv_gid, lid: u16) -> c_int {
    guard::errno(called!(ibv_attach_mcast(qp, gid, lid)), || {
        check_type(qp)?;
        // SAFETY: the program passes a GID, which may be less aligned than ours, or null.
        attach(qp, group_of(unsafe { gid.cast::<[u8; 16]>().as_ref() })?)
    })
}

/// `ibv_detach_mcast`
pub extern "C" fn ibv_detach_mcast(qp: &Qp, gid: *const ibv_gid, lid: u16) -> c_int {
    guard::errno(called!(ibv_detach_mcast(qp, gid, lid)), || {
        check_type(qp)?;
        // SAFETY: likewise.
        detach(qp, group_of(unsafe { gid.cast::<[u8; 16]>().as_ref() })?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: ROCE-127
    #[test]
    fn groups_are_mapped_addresses_and_those_of_ipv6() {
        let raw = |addr: &str| Gid::raw_of(addr.parse().unwrap());
        for group in ["224.1.2.3", "ff12::5"] {
            let addr: IpAddr = group.parse().unwrap();
            assert_eq!(group_of(Some(&raw(group))), Ok(addr));
        }
        for other in ["192.0.2.1", "2001:db8::1", "::"] {
            assert_eq!(group_of(Some(&raw(other))), Err(Errno::plain(libc::EINVAL)), "{other}");
        }
        assert_eq!(group_of(None), Err(Errno::plain(libc::EINVAL)));
    }
}
