// SPDX-License-Identifier: MIT OR Apache-2.0

//! A shared receive queue, and its receives.

use iwarp::{Access, MemoryRegion, ProtectionDomain, RecvRequest, SharedReceiveQueue};

use super::end::{Receive, SLOT};

/// Receives that are there at a time.
const SLOTS: usize = 8;

/// See the [module](self).
pub(super) struct Pool {
    pub(super) srq: SharedReceiveQueue,
    memory: MemoryRegion,
    /// Receives without a completion as yet.
    pub(super) posted: Vec<Receive>,
    free: Vec<usize>,
    serial: u64,
}

impl Pool {
    pub(super) fn new(pd: &ProtectionDomain) -> Self {
        let srq = pd.create_srq(2 * SLOTS, 1);
        let memory = pd.allocate(SLOTS * SLOT, Access::LOCAL_WRITE).expect("memory");
        Self { srq, memory, posted: Vec::new(), free: (0..SLOTS).collect(), serial: 0 }
    }

    pub(super) const fn can_receive(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn post(&mut self) -> Result<String, String> {
        let slot = self.free.pop().expect("asked before");
        self.serial += 1;
        let id = self.serial * 2 + 1;
        // Before the call, which may deliver to it.
        self.posted.push(Receive { id, slot });
        let sges = [self.memory.sge(slot * SLOT, SLOT)];
        let posted = self.srq.post(&RecvRequest::new(id, &sges));
        posted.map_err(|error| format!("a shared receive is refused: {error}"))?;
        Ok(format!("posts shared receive {id}"))
    }

    /// The receive of that number, which has completed.
    pub(super) fn take(&mut self, id: u64) -> Option<Receive> {
        let place = self.posted.iter().position(|receive| receive.id == id)?;
        let receive = self.posted.swap_remove(place);
        self.free.push(receive.slot);
        Some(receive)
    }

    /// The octets that were received into a slot.
    pub(super) fn received(&self, slot: usize, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        self.memory.buffer().expect("the library's own").read_at(slot * SLOT, &mut octets);
        octets
    }
}
