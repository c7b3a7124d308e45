//! FetchAdd and CompareSwap on the program's memory.

use iwarp_proto::memory::AtomicOp;

/// Performs `op` on `*word`, atomically toward every other one and toward the program's own atomic
/// instructions, and returns the value before (RFC 7306 §5).
///
/// # Safety
///
/// `word` is aligned to 8 octets and valid for reads and writes. Other threads may access it
/// meanwhile, atomically.
#[cfg(target_has_atomic = "64")]
pub(crate) unsafe fn atomic(word: *mut u64, op: AtomicOp) -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};

    // SAFETY: this function's contract.
    let word = unsafe { AtomicU64::from_ptr(word) };
    if let AtomicOp::FetchAdd { add, mask: 0 | 0x8000_0000_0000_0000 } = op {
        return word.fetch_add(add, Ordering::SeqCst);
    }
    let mut old = word.load(Ordering::SeqCst);
    loop {
        let new = op.apply(old);
        match word.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return old,
            Err(now) => old = now,
        }
    }
}

/// As above, where the processor has no such instructions: atomic among the operations of the
/// network only, which is what RFC 7306 §5 demands.
///
/// # Safety
///
/// As above.
#[cfg(not(target_has_atomic = "64"))]
pub(crate) unsafe fn atomic(word: *mut u64, op: AtomicOp) -> u64 {
    use std::sync::{Mutex, PoisonError};

    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: this function's contract.
    unsafe {
        let old = word.read_volatile();
        word.write_volatile(op.apply(old));
        old
    }
}
