// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads that are carried out as they are posted, from the memory of a process of this host.
//!
//! The bytes are copied without the core's lock: what another thread posts meanwhile is posted at
//! one time with the Read, and either may come first. The core is asked before and after the copy.

use std::sync::Arc;

use iwarp_types::{Payload, SendOp, SendRequest};

use super::Endpoint;
use crate::engine::mover::DirectRead;
use crate::engine::policy::table::DIRECT_READ;

impl Endpoint {
    /// True if the request was a Read that was carried out, and is reported. Where it was not, it
    /// is to be posted; its room may have bytes already.
    pub(super) fn read_at_once(self: &Arc<Self>, request: &SendRequest<'_>) -> bool {
        let SendOp::Read { stag, to, invalidate: None } = request.op else { return false };
        let Payload::Sges(room) = request.payload else { return false };
        let len: u64 = room.iter().map(|sge| u64::from(sge.length)).sum();
        if len == 0 || len > DIRECT_READ {
            return false;
        }
        let link = {
            let locked = self.core.lock();
            let may = locked.reads && locked.core.may_read_at_once();
            locked.link.clone().filter(|link| may && link.has_moved())
        };
        let Some(link) = link else { return false };
        if !link.read_at_once(&DirectRead { stag, to, room }) {
            return false;
        }
        let mut locked = self.core.lock();
        // Ended meanwhile, it is flushed like any other request; behind others, it waits for them.
        let posted = locked.core.may_read_at_once()
            && locked.post_send_as(request, |core, read| core.post_done_read(read)).is_ok();
        self.hand_on(&mut locked);
        posted
    }
}
