// SPDX-License-Identifier: MIT OR Apache-2.0

//! A word that a process shares with its forked children.

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use crate::fork::ForkGeneration;

/// Decides which process goes on with something that it and its forked children all have, such as a
/// listening socket: the youngest generation that has claimed it.
#[derive(Debug)]
pub struct FamilyClaim {
    word: NonNull<AtomicU64>,
}

// SAFETY: a reference to an atomic, in memory that is unmapped when this is dropped.
unsafe impl Send for FamilyClaim {}
// SAFETY: as above.
unsafe impl Sync for FamilyClaim {}

const LEN: usize = size_of::<AtomicU64>();

impl FamilyClaim {
    /// One that no process has claimed.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub fn new() -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing.
        let page =
            unsafe { rustix::mm::mmap_anonymous(null_mut(), LEN, access, MapFlags::SHARED)? };
        let word = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { word })
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: mapped until this is dropped, zeroed, and used as nothing else.
        unsafe { self.word.as_ref() }
    }

    /// It is this process's, and no longer its ancestors'.
    pub fn claim(&self) {
        self.word().fetch_max(ForkGeneration::new().number(), Ordering::Relaxed);
    }

    /// True once a forked child of this process has claimed it.
    pub fn is_a_childs(&self) -> bool {
        self.word().load(Ordering::Relaxed) > ForkGeneration::new().number()
    }
}

impl Drop for FamilyClaim {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing refers to it any more. Other processes keep theirs.
        let _ = unsafe { rustix::mm::munmap(self.word.as_ptr().cast(), LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::in_child_process;

    #[test]
    fn the_youngest_generation_has_it() {
        let claim = FamilyClaim::new().unwrap();
        claim.claim();
        assert!(!claim.is_a_childs());
        let code = in_child_process(|| {
            let before = claim.is_a_childs();
            claim.claim();
            i32::from(!before && !claim.is_a_childs())
        });
        assert_eq!(code, 1);
        assert!(claim.is_a_childs());
        // A brother has it as well.
        assert_eq!(in_child_process(|| i32::from(claim.is_a_childs())), 0);
    }
}
