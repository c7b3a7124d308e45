// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every load and store of registered memory: each says whether the memory was there.
//!
//! A program may unmap, protect or truncate what it has registered. An access to it then raises
//! SIGSEGV or SIGBUS, out of which the handler of [`crate::fault`] makes the [`Fault`] that the
//! access returns. An access that does not fault costs nothing more: nothing is asked beforehand.
//!
//! - `x86_64`: instructions of our own, whose addresses the handler knows; `processor`: which of
//!   them there are.
//! - `kernel`: on other processors, system calls that return `EFAULT` (Linux).
//! - `plain`: on other systems and under tools that follow accesses (Miri, ThreadSanitizer). There
//!   such memory still ends the process.
//!
//! `--cfg kernel_copies` and `--cfg plain_copies` choose one where another would be chosen.

use iwarp_types::AccessError;

#[cfg(all(target_os = "linux", not(miri), any(test, not(target_arch = "x86_64"), kernel_copies)))]
#[cfg_attr(not(any(not(target_arch = "x86_64"), kernel_copies)), allow(dead_code))]
pub(crate) mod kernel;
#[cfg(any(
    test,
    miri,
    plain_copies,
    kernel_copies,
    not(all(target_os = "linux", target_arch = "x86_64"))
))]
#[cfg_attr(not(any(miri, plain_copies, not(target_os = "linux"))), allow(dead_code))]
pub(crate) mod plain;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
#[cfg_attr(any(plain_copies, kernel_copies), allow(dead_code))]
pub(crate) mod processor;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
#[cfg_attr(any(plain_copies, kernel_copies), allow(dead_code))]
pub(crate) mod x86_64;

#[cfg(all(
    target_os = "linux",
    not(any(miri, plain_copies)),
    any(not(target_arch = "x86_64"), kernel_copies)
))]
pub(crate) use kernel as chosen;
#[cfg(any(miri, plain_copies, not(target_os = "linux")))]
pub(crate) use plain as chosen;
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    not(any(miri, plain_copies, kernel_copies))
))]
pub(crate) use x86_64 as chosen;

#[cfg(all(test, target_os = "linux", not(any(miri, plain_copies))))]
mod tests;

pub(crate) use chosen::{load, store};

/// Registered memory was not there, or may not be accessed so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    /// The address that could not be accessed; 1 where the processor does not tell.
    pub(crate) addr: usize,
}

impl From<Fault> for AccessError {
    #[cold]
    fn from(fault: Fault) -> Self {
        Self::BadAddress(fault.addr as u64)
    }
}

impl Fault {
    /// From what the handler left: 0 is no fault.
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    pub(crate) const fn check(addr: usize) -> Result<(), Self> {
        if addr == 0 { Ok(()) } else { Err(Self { addr }) }
    }
}
