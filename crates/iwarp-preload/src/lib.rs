// SPDX-License-Identifier: MIT OR Apache-2.0

//! Three libraries for the programs that `iwarp run` starts, as the bytes of their files.
//!
//! [`AUDIT`] gives programs the drop-in libraries in the place of copies that they bring along;
//! [`PRELOAD`] shows them the devices in /sys and /dev; [`HEAP`] has large blocks of `malloc` lie
//! in memory that other processes may map. Each says at its head how it does that.

/// `libiwarp-audit.so`, for `LD_AUDIT`.
pub static AUDIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libiwarp-audit.so"));

/// `libiwarp-preload.so`, for `LD_PRELOAD`.
pub static PRELOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libiwarp-preload.so"));

/// `libiwarp-heap.so`, for `LD_PRELOAD`.
pub static HEAP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libiwarp-heap.so"));

/// The answers of RDMA's netlink, which `preload` gives; here for tests and the fuzzer.
#[doc(hidden)]
#[path = "preload/netlink/mod.rs"]
pub mod netlink;

// The build script compiles them. Here they are only looked at, as their functions would replace
// those of the program.
#[cfg(any(test, clippy))]
mod audit;
#[cfg(clippy)]
mod heap;
#[cfg(clippy)]
mod preload;

#[cfg(test)]
mod tests {
    /// A second libc in the namespace of the audit library would take of the thread-local storage
    /// that programs have, and half a millisecond at each start.
    #[test]
    fn the_audit_library_needs_no_other() {
        assert!(super::AUDIT.len() < 32 << 10, "{}", super::AUDIT.len());
        let names = |library: &[u8], name: &[u8]| library.windows(name.len()).any(|w| w == name);
        assert!(!names(super::AUDIT, b"libc.so"));
        for library in [super::PRELOAD, super::HEAP] {
            assert!(names(library, b"libc.so.6") && !names(library, b"libgcc_s"));
        }
    }
}
