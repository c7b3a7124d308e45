// SPDX-License-Identifier: MIT OR Apache-2.0

//! Regions that a forked child takes over from its parent's table.

use std::sync::Arc;

use iwarp_types::PdId;

use crate::buffer::Buffer;
use crate::region::{MemoryTable, RegionSpec, RegisterError, Scope, check_memory};
use crate::slot::{Kind, RegionControl};

impl MemoryTable {
    /// Registers, under the same STags, the regions of protection domain `pd` of `parents` in the
    /// domain `to` of this table. `parents` is the copy of the parent's table that a forked child
    /// has, where nothing changes any more. Returns how many regions stay behind: those that are
    /// invalid, that one stream alone may use, or whose memory this process lacks.
    ///
    /// # Safety
    ///
    /// As [`Self::register`], for each of them.
    ///
    /// # Errors
    ///
    /// `Exhausted`, and none is registered, where a thread of the parent was changing its table at
    /// the moment of the fork.
    pub unsafe fn inherit(
        &self,
        parents: &Self,
        pd: PdId,
        to: PdId,
    ) -> Result<usize, RegisterError> {
        let slots = parents.stags.slots_at_rest().ok_or(RegisterError::Exhausted)?;
        let mut left = 0;
        for slot in slots.into_iter().filter(|slot| slot.kind() == Kind::Region) {
            // A region that was just being changed is not found here, and stays behind.
            let Some(mut slot) = slot.try_control() else {
                left += 1;
                continue;
            };
            let region = slot.stag().and_then(|stag| slot.region(stag));
            if let Some(region) = region.filter(|region| region.pd == pd)
                && self.inherit_region(region, to).is_err()
            {
                left += 1;
            }
        }
        Ok(left)
    }

    fn inherit_region(&self, region: &RegionControl, to: PdId) -> Result<(), RegisterError> {
        let RegionControl { grant, scope, valid, _owned: owned, .. } = region;
        if !valid || *scope != Scope::Domain {
            return Err(RegisterError::UnknownStag);
        }
        let (addr, len, iova) = (grant.base, grant.len as usize, grant.origin);
        let spec = RegionSpec { pd: to, addr, len, iova, access: grant.access, scope: *scope };
        let granted = spec.grant(grant.stag)?;
        check_memory(&granted)?;
        let place = self.stags.allocate_as(Kind::Region, grant.stag)?;
        self.register_in(place, spec, granted, owned.as_ref().map(Arc::<Buffer>::clone));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use iwarp_types::{Access, AccessError, Accessor, Memory as _, QpId, TaggedOffset};

    use super::*;

    #[test]
    fn regions_keep_their_stags_and_rights() {
        let (parents, own) = (MemoryTable::new(), MemoryTable::new());
        let buffer = Arc::new(Buffer::new(64));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let register =
            |pd: u32, scope| parents.register_buffer(PdId(pd), &buffer, access, scope).unwrap();
        let (stag, other) = (register(1, Scope::Domain), register(2, Scope::Domain));
        register(1, Scope::Stream(QpId(9)));
        // SAFETY: the memory is the buffer's, which the tables keep.
        assert_eq!(unsafe { own.inherit(&parents, PdId(1), PdId(7)) }, Ok(1));
        assert_eq!(own.len(), 1);
        let peer = Accessor { pd: PdId(7), qp: QpId(3) };
        own.place_remote(peer, stag, TaggedOffset(60), b"here").unwrap();
        assert_eq!(&buffer.to_vec()[60..], b"here");
        let beyond = own.place_remote(peer, stag, TaggedOffset(61), b"here");
        assert_eq!(beyond, Err(AccessError::Bounds));
        let unknown = own.place_remote(peer, other, TaggedOffset(0), b"here");
        assert_eq!(unknown, Err(AccessError::InvalidStag));
        own.deregister(stag).unwrap();
        let gone = own.place_remote(peer, stag, TaggedOffset(60), b"here");
        assert_eq!(gone, Err(AccessError::InvalidStag));
    }

    #[test]
    fn an_stag_that_is_taken_stays_behind() {
        let (parents, own) = (MemoryTable::new(), MemoryTable::new());
        let buffer = Arc::new(Buffer::new(8));
        for _ in 0..100 {
            parents.register_buffer(PdId(1), &buffer, Access::LOCAL_WRITE, Scope::Domain).unwrap();
        }
        // SAFETY: as above.
        let inherit = || unsafe { own.inherit(&parents, PdId(1), PdId(7)) };
        assert_eq!((inherit(), own.len()), (Ok(0), 100));
        assert_eq!((inherit(), own.len()), (Ok(100), 100));
    }
}
