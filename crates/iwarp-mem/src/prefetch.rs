// SPDX-License-Identifier: MIT OR Apache-2.0

//! Has the memory of regions there before it is accessed, as `ibv_advise_mr` asks.
//!
//! Registration pins nothing, so this serves every region; only one that was registered
//! [`Access::ON_DEMAND`] promises that the memory may be missing.

use iwarp_types::{Access, AccessError, Accessor, PdId, QpId, Sge};

use crate::region::MemoryTable;
use crate::slot::Kind;

/// The accesses that memory is to be there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Prefetch {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
    /// None: no memory is brought.
    NoFault,
}

/// The reason why memory was not brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrefetchError {
    /// No such STag (`ENOENT`).
    #[error("no such STag")]
    UnknownStag,
    /// The STag is a window's (`EINVAL`).
    #[error("not a region")]
    NotARegion,
    /// The region is of another protection domain, or does not let itself be written (`EPERM`).
    #[error("not permitted")]
    NotPermitted,
    /// The range exceeds the region, or nothing is mapped there that can be used so (`EFAULT`).
    #[error("not there")]
    NotThere,
}

/// Bytes that are brought at a time: a thread that revokes the STag waits for no more.
const AT_ONCE: u32 = 1 << 18;

impl MemoryTable {
    /// Checks an element of a program's advice, without bringing anything.
    ///
    /// # Errors
    ///
    /// [`PrefetchError`]
    pub fn check_advice(&self, pd: PdId, sge: Sge, what: Prefetch) -> Result<(), PrefetchError> {
        let slot = self.stags.lookup(sge.lkey).ok_or(PrefetchError::UnknownStag)?;
        if slot.kind() != Kind::Region {
            return Err(PrefetchError::NotARegion);
        }
        let in_use = slot.enter(sge.lkey).ok_or(PrefetchError::UnknownStag)?;
        let grant = in_use.grant();
        if grant.pd.is_some_and(|of| of != pd) {
            return Err(PrefetchError::NotPermitted);
        }
        if what == Prefetch::Write && !grant.access.contains(Access::LOCAL_WRITE) {
            return Err(PrefetchError::NotPermitted);
        }
        grant.offset(sge.addr, sge.length.into()).map_err(|_| PrefetchError::NotThere)?;
        Ok(())
    }

    /// Brings the memory of an element: afterwards it is there, unless the program or the system
    /// takes it away again.
    ///
    /// # Errors
    ///
    /// [`PrefetchError`]; what lies before the first page that is missing was brought.
    pub fn prefetch(&self, pd: PdId, sge: Sge, what: Prefetch) -> Result<(), PrefetchError> {
        self.check_advice(pd, sge, what)?;
        if what == Prefetch::NoFault {
            return Ok(());
        }
        let who = Accessor { pd, qp: QpId(0) };
        let mut rest = sge;
        while rest.length > 0 {
            let now = Sge { length: rest.length.min(AT_ONCE), ..rest };
            let guard = self.guard_local(who, now, what == Prefetch::Write);
            guard.and_then(|guard| guard.find()).map_err(|error| match error {
                AccessError::InvalidStag => PrefetchError::UnknownStag,
                AccessError::NotAssociated | AccessError::Rights => PrefetchError::NotPermitted,
                _ => PrefetchError::NotThere,
            })?;
            rest.addr = rest.addr.wrapping_add(now.length.into());
            rest.length -= now.length;
        }
        Ok(())
    }
}
