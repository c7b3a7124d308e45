// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every implementation, whichever would be chosen.

use std::ptr::null_mut;

use super::*;

const PAGE: usize = 4096;

type Copy = unsafe fn(*mut u8, *const u8, usize) -> Result<(), Fault>;
type Update = unsafe fn(*mut u64, u64) -> Result<u64, Fault>;

struct Routines {
    name: &'static str,
    load: Copy,
    store: Copy,
    store_u8: unsafe fn(*mut u8, u8) -> Result<(), Fault>,
    store_u16: unsafe fn(*mut u16, u16) -> Result<(), Fault>,
    store_u32: unsafe fn(*mut u32, u32) -> Result<(), Fault>,
    store_u64: unsafe fn(*mut u64, u64) -> Result<(), Fault>,
    add: Update,
    probe_read: fn(*const u8) -> Result<(), Fault>,
    probe_write: fn(*mut u8) -> Result<(), Fault>,
}

macro_rules! routines {
    ($module:ident) => {{
        unsafe fn add(word: *mut u64, add: u64) -> Result<u64, Fault> {
            // SAFETY: the caller's.
            unsafe { $module::update(word, |old| old.wrapping_add(add)) }
        }
        Routines {
            name: stringify!($module),
            load: $module::load,
            store: $module::store,
            store_u8: $module::store_u8,
            store_u16: $module::store_u16,
            store_u32: $module::store_u32,
            store_u64: $module::store_u64,
            add,
            probe_read: $module::probe_read,
            probe_write: $module::probe_write,
        }
    }};
}

/// The routines that survive faults, where the system lets them.
fn all() -> Vec<Routines> {
    let mut all = Vec::new();
    #[cfg(all(target_arch = "x86_64", not(kernel_copies)))]
    {
        let _admitted = crate::fault::protect().expect("a system that lets us");
        all.push(routines!(x86_64));
        all.push(Routines { load: x86_64::narrow, store: x86_64::narrow, ..routines!(x86_64) });
    }
    let mut octet = 0;
    // SAFETY: one byte of the stack.
    let allowed = unsafe {
        let part = libc::iovec { iov_base: (&raw mut octet as *mut u8).cast(), iov_len: 1 };
        libc::process_vm_readv(libc::getpid(), &part, 1, &part, 1, 0) == 1
    };
    if allowed {
        all.push(routines!(kernel));
    }
    all
}

/// Pages of which the middle one can be taken away.
struct Pages(*mut u8);

impl Pages {
    fn new() -> Self {
        // SAFETY: a new mapping.
        let start = unsafe {
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(null_mut(), 9 * PAGE, access, kind, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self(start.cast())
    }

    /// The first byte of those in the middle.
    fn middle(&self) -> *mut u8 {
        self.0.wrapping_add(4 * PAGE)
    }

    fn protect(&self, access: i32) {
        // SAFETY: the test's own pages.
        unsafe { libc::mprotect(self.middle().cast(), PAGE, access) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::munmap(self.0.cast(), 9 * PAGE) };
    }
}

fn lengths() -> impl Iterator<Item = usize> {
    (0..300).chain([511, 512, 513, 1000, 2000, 4095, 4096, 4097, 9000])
}

#[test]
fn octets_are_copied_and_no_others() {
    let source: Vec<u8> = (0..10_000_usize).map(|i| (i * 31 + i / 251) as u8 | 1).collect();
    for routines in all() {
        for n in lengths() {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (7, 31), (33, 8)] {
                for copy in [routines.load, routines.store] {
                    let mut sink = vec![0; n + 128];
                    // SAFETY: both are long enough.
                    unsafe { copy(sink.as_mut_ptr().add(to), source.as_ptr().add(from), n) }
                        .unwrap();
                    let what = format!("{} {n} {from} {to}", routines.name);
                    assert_eq!(sink[to..to + n], source[from..from + n], "{what}");
                    let outside = sink[..to].iter().chain(&sink[to + n..]);
                    assert!(outside.into_iter().all(|&octet| octet == 0), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_fault_tells_the_missing_page() {
    let pages = Pages::new();
    let mut own = vec![1; 3 * PAGE];
    for routines in all() {
        let name = routines.name;
        for n in lengths().filter(|&n| n > 0) {
            // Begins in front of what is gone, or within it.
            for before in [0, n / 4, n / 2, n - 1] {
                let at = pages.middle().wrapping_sub(before);
                let told = pages.middle().addr()..pages.middle().addr() + PAGE;
                pages.protect(libc::PROT_NONE);
                // SAFETY: what is not there is looked for.
                let (loaded, stored) = unsafe {
                    (
                        (routines.load)(own.as_mut_ptr(), at, n),
                        (routines.store)(at, own.as_ptr(), n),
                    )
                };
                pages.protect(libc::PROT_READ);
                // SAFETY: as above.
                let (readable, written) = unsafe {
                    (
                        (routines.load)(own.as_mut_ptr(), at, n),
                        (routines.store)(at, own.as_ptr(), n),
                    )
                };
                for result in [loaded, stored, written] {
                    let addr = result.expect_err(name).addr;
                    assert!(told.contains(&addr), "{name} {n} {before}: {addr:#x}");
                }
                assert_eq!(readable, Ok(()), "{name} {n} {before}");
            }
        }
    }
}

#[test]
fn single_stores_and_atomics_are_done_or_told() {
    let pages = Pages::new();
    let at = pages.middle().wrapping_add(64);
    let fault = Err(Fault { addr: at.addr() });
    for routines in all() {
        let each = || {
            // SAFETY: aligned; what is not there is looked for.
            unsafe {
                [
                    (routines.store_u8)(at, 1),
                    (routines.store_u16)(at.cast(), 0x0202),
                    (routines.store_u32)(at.cast(), 0x0303_0303),
                    (routines.store_u64)(at.cast(), 0x0404_0404_0404_0404),
                    (routines.add)(at.cast(), 5).map(drop),
                    (routines.probe_write)(at),
                ]
            }
        };
        for access in [libc::PROT_NONE, libc::PROT_READ] {
            pages.protect(access);
            assert_eq!(each(), [fault; 6], "{}", routines.name);
            let readable = (routines.probe_read)(at);
            assert_eq!(readable.is_ok(), access == libc::PROT_READ, "{}", routines.name);
        }
        pages.protect(libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(each(), [Ok(()); 6], "{}", routines.name);
        assert_eq!((routines.probe_read)(at), Ok(()));
        // SAFETY: the test's own.
        let value = unsafe { at.cast::<u64>().read() };
        assert_eq!(value, 0x0404_0404_0404_0409, "{}", routines.name);
    }
}
