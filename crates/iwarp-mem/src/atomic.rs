// SPDX-License-Identifier: MIT OR Apache-2.0

//! FetchAdd and CompareSwap on the program's memory.

use iwarp_types::AtomicOp;

use crate::reach::Fault;
use crate::reach::chosen::update;

/// Performs `op` on `*word`, atomically toward every other one and toward the program's own atomic
/// instructions, and returns the value before (RFC 7306 §5).
///
/// # Safety
///
/// `word` is aligned to 8 bytes; it is readable and writable, or faults when it is not. Other
/// threads may access it meanwhile, atomically.
///
/// # Errors
///
/// [`Fault`] where it is not there; nothing was done then.
pub(crate) unsafe fn atomic(word: *mut u64, op: AtomicOp) -> Result<u64, Fault> {
    // SAFETY: this function's contract.
    unsafe { update(word, |old| op.apply(old)) }
}
