// SPDX-License-Identifier: MIT OR Apache-2.0

//! Borrowed memory, registered for the time of one call.

use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use iwarp_types::{Access, PdId, Stag};

use crate::region::{MemoryTable, RegionSpec, RegisterError};

impl MemoryTable {
    /// Calls `f` with a registrar of borrowed memory. Everything it registers is deregistered
    /// when this returns or unwinds, so the bytes may be on the caller's stack.
    ///
    /// Works like [`std::thread::scope`]: `'scope` is the time of the call, `'env` what outlives
    /// it. Memory of the closure's own dies too early:
    ///
    /// ```compile_fail,E0597
    /// # use iwarp_mem::MemoryTable;
    /// # use iwarp_types::PdId;
    /// MemoryTable::new().borrow_for(PdId(1), |memory| {
    ///     let bytes = [0; 16];
    ///     memory.shared(&octets).unwrap();
    /// });
    /// ```
    ///
    /// So does the registrar, if one tries to keep it:
    ///
    /// ```compile_fail
    /// # use iwarp_mem::MemoryTable;
    /// # use iwarp_types::PdId;
    /// let mut kept = None;
    /// MemoryTable::new().borrow_for(PdId(1), |memory| kept = Some(memory));
    /// ```
    ///
    /// And lent memory cannot be touched meanwhile:
    ///
    /// ```compile_fail,E0502
    /// # use iwarp_mem::MemoryTable;
    /// # use iwarp_types::PdId;
    /// let mut bytes = [0; 16];
    /// MemoryTable::new().borrow_for(PdId(1), |memory| {
    ///     memory.exclusive(&mut bytes).unwrap();
    ///     println!("{}", octets[0]);
    /// });
    /// ```
    pub fn borrow_for<'env, R>(
        &self,
        pd: PdId,
        f: impl for<'scope> FnOnce(&'scope Borrowed<'scope, 'env>) -> R,
    ) -> R {
        let stags = Stags { table: self, stags: Mutex::new(Vec::new()) };
        let borrowed = Borrowed { stags: &stags, pd, scope: PhantomData, env: PhantomData };
        f(&borrowed)
        // `stags` is dropped here, also when `f` panics; safe code cannot leak it.
    }
}

/// Registers borrowed memory until the end of [`MemoryTable::borrow_for`].
#[derive(Debug)]
pub struct Borrowed<'scope, 'env: 'scope> {
    stags: &'scope Stags<'scope>,
    pd: PdId,
    /// Invariant: `'scope` must not shrink to the body of the closure.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Borrowed<'scope, '_> {
    /// Registers bytes that work requests may read. They are addressed from 0.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] when no STag can be had.
    pub fn shared(&self, octets: &'scope [u8]) -> Result<Stag, RegisterError> {
        let access = Access::LOCAL_READ | Access::ZERO_BASED;
        let spec = RegionSpec::new(self.pd, octets.as_ptr().cast_mut(), octets.len(), access);
        // SAFETY: the bytes are borrowed until after `Stags` has deregistered them, so they stay
        // mapped; without a right to write nothing changes them, so shared references to them may
        // be used meanwhile.
        unsafe { self.stags.register(spec) }
    }

    /// Registers bytes that work requests may read and write. They are addressed from 0.
    ///
    /// # Errors
    ///
    /// As [`Self::shared`].
    pub fn exclusive(&self, octets: &'scope mut [u8]) -> Result<Stag, RegisterError> {
        let access = Access::LOCAL_WRITE | Access::ZERO_BASED;
        let spec = RegionSpec::new(self.pd, octets.as_mut_ptr(), octets.len(), access);
        // SAFETY: as above; they are borrowed exclusively, so no other reference is used.
        unsafe { self.stags.register(spec) }
    }
}

/// The STags of one call.
#[derive(Debug)]
struct Stags<'a> {
    table: &'a MemoryTable,
    stags: Mutex<Vec<Stag>>,
}

impl Stags<'_> {
    /// # Safety
    ///
    /// As [`MemoryTable::register_borrowed`], until `self` is dropped.
    unsafe fn register(&self, spec: RegionSpec) -> Result<Stag, RegisterError> {
        let mut stags = self.stags.lock().unwrap_or_else(PoisonError::into_inner);
        // Room first: nothing may fail between registering and remembering.
        stags.reserve(1);
        // SAFETY: passed on to the caller.
        let stag = unsafe { self.table.register_borrowed(spec) }?;
        stags.push(stag);
        Ok(stag)
    }
}

impl Drop for Stags<'_> {
    fn drop(&mut self) {
        let stags = self.stags.get_mut().unwrap_or_else(PoisonError::into_inner);
        for stag in stags.drain(..) {
            // An STag that is not known any more was deregistered by other code.
            if self.table.deregister(stag) == Err(RegisterError::WindowsBound) {
                // Cannot be: the regions lack the right. But their memory is about to go.
                std::process::abort();
            }
        }
    }
}
