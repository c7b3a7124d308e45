// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connections that may have both ends on this host.

use iwarp_os::addr;

use crate::port::{Ends, canonical};

/// True if both ends have one address, or one of the loopback interface.
pub(crate) fn have_one_address(Ends { local, peer }: Ends) -> bool {
    local.is_some_and(|local| {
        let (local, peer) = (local.ip().to_canonical(), peer.ip().to_canonical());
        local == peer || (local.is_loopback() && peer.is_loopback())
    })
}

/// True if the peer's address is one of this host, in the network namespace of the calling thread.
/// That is only a reason to look for the peer: reaching its process proves it.
pub(crate) fn is_within_host(ends: Ends) -> bool {
    have_one_address(ends) || (ends.local.is_some() && addr::is_own(canonical(ends.peer)))
}
