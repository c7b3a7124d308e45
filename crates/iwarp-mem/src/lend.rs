// SPDX-License-Identifier: MIT OR Apache-2.0

//! Owned memory that is the program's or the network's, and never both.
//!
//! A region of the verbs is shared with the network for as long as it is
//! registered. Here the STag's gate decides: while the program has the bytes, the gate is closed
//! and not even a peer that knows the STag can reach them, so references to them are sound; while
//! they are lent, the program has no way to them.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;

use iwarp_types::{Access, PdId, Stag};

use crate::buffer::Buffer;
use crate::region::{MemoryTable, RegisterError, Scope};

/// Registered bytes in the hands of the program: no work request and no peer can touch them.
///
/// They have local rights only, so no peer can ever name them, and their addresses in local work
/// requests count from 0. Dropping this deregisters them.
///
/// ```compile_fail,E0505
/// # use iwarp_mem::OwnedRegion;
/// fn look_while_it_is_lent(owned: OwnedRegion) -> u8 {
///     let bytes = &owned[..];
///     let lent = owned.lend();
///     octets[0]
/// }
/// ```
pub struct OwnedRegion {
    table: Arc<MemoryTable>,
    /// Only this region uses it: the table keeps it alive, no more.
    buffer: Arc<Buffer>,
    stag: Stag,
}

impl OwnedRegion {
    /// Allocates `len` bytes, zeroed, and registers them.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] when no STag can be had.
    pub fn new(table: &Arc<MemoryTable>, pd: PdId, len: usize) -> Result<Self, RegisterError> {
        // Lent bytes have Rust references, for which no other process may map them.
        let buffer = Arc::new(Buffer::try_own(len)?);
        let stag = table.register_buffer(pd, &buffer, Access::LOCAL_WRITE, Scope::Domain)?;
        let owned = Self { table: Arc::clone(table), buffer, stag };
        owned.close();
        Ok(owned)
    }

    /// Lets work requests of the protection domain use the bytes, until they are taken back.
    ///
    /// # Errors
    ///
    /// `UnknownStag` when other code has deregistered the STag behind the owner's back.
    pub fn lend(self) -> Result<LentRegion, (Self, RegisterError)> {
        let opened = self.table.region_slot(self.stag).and_then(|slot| {
            let mut slot = slot.control();
            let region = slot.region(self.stag).ok_or(RegisterError::UnknownStag)?;
            region.valid = true;
            let grant = region.grant;
            slot.grant(grant, &self.table.readers);
            Ok(())
        });
        match opened {
            Ok(()) => Ok(LentRegion(self)),
            Err(error) => Err((self, error)),
        }
    }

    /// Closes the gate and waits for those inside. An STag that is not in the table any more has
    /// its gate closed already, and no other region can have this buffer.
    fn close(&self) {
        if let Ok(slot) = self.table.region_slot(self.stag) {
            let mut slot = slot.control();
            if let Some(region) = slot.region(self.stag) {
                region.valid = false;
                slot.revoke(&self.table.readers);
            }
        }
    }
}

impl Deref for OwnedRegion {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer's bytes are initialised and live as long as it does. Its only other
        // users are uses of the STag, whose gate is closed: `new` and `take_back` closed it (which
        // also orders what those users did before this), and only `lend`, which takes the value,
        // opens it. Windows cannot be bound to the region, as it lacks the right for that.
        unsafe { slice::from_raw_parts(self.buffer.as_mut_ptr(), self.buffer.len()) }
    }
}

impl DerefMut for OwnedRegion {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.buffer.as_mut_ptr(), self.buffer.len()) }
    }
}

impl fmt::Debug for OwnedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedRegion").field("len", &self.buffer.len()).finish_non_exhaustive()
    }
}

impl Drop for OwnedRegion {
    fn drop(&mut self) {
        // Waits for uses in flight. Fails only if the STag was deregistered before.
        let _ = self.table.deregister(self.stag);
    }
}

/// Registered bytes in the hands of the network. Dropping this deregisters them, which fails the
/// work requests that still name them.
#[derive(Debug)]
pub struct LentRegion(OwnedRegion);

impl LentRegion {
    /// The STag for local work requests.
    pub fn stag(&self) -> Stag {
        self.0.stag
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.buffer.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends all use and gives the bytes back to the program. Uses in flight are waited for, which
    /// takes microseconds; a work request that still names the bytes fails.
    ///
    /// The caller must not hold a [`Guard`](crate::Guard) of this STag: it would wait for itself.
    pub fn take_back(self) -> OwnedRegion {
        self.0.close();
        self.0
    }
}
