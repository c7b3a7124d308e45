// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that a program takes away while it is registered: the access fails, and nothing else.
#![cfg(all(target_os = "linux", not(any(miri, plain_copies))))]

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use iwarp_mem::{MemoryTable, RegionSpec, RegisterError};
use iwarp_types::{
    Access, AccessError, Accessor, AtomicOp, Digest, Memory, PdId, QpId, Sge, Stag, TaggedOffset,
};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

const WHO: Accessor = Accessor { pd: PdId(1), qp: QpId(1) };
const PAGE: usize = 4096;
const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// An address at which the system maps nothing by itself, as it begins from above: what is unmapped
/// there stays so, regardless of other tests.
fn free_place() -> *mut c_void {
    static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
    std::ptr::with_exposed_provenance_mut(NEXT.fetch_add(256 << 20, Ordering::Relaxed))
}

/// Pages of the test's own.
struct Map {
    start: *mut u8,
    pages: usize,
}

impl Map {
    fn new(pages: usize, protection: ProtFlags) -> Self {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: a new mapping where none is.
        let start = unsafe { mmap_anonymous(free_place(), pages * PAGE, protection, flags) };
        Self { start: start.unwrap().cast(), pages }
    }

    fn of(file: impl AsFd, pages: usize) -> Self {
        let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
        // SAFETY: likewise.
        let start =
            unsafe { mmap(free_place(), pages * PAGE, READ_WRITE, flags, file, 0).unwrap() };
        Self { start: start.cast(), pages }
    }

    fn page(&self, number: usize) -> *mut u8 {
        self.start.wrapping_add(number * PAGE)
    }

    fn protect(&self, first: usize, count: usize, flags: MprotectFlags) {
        // SAFETY: the test's own pages, which it reaches by pointers only.
        unsafe { mprotect(self.page(first).cast(), count * PAGE, flags) }.unwrap();
    }

    fn octet(&self, at: usize) -> u8 {
        assert!(at < self.pages * PAGE);
        // SAFETY: within the mapping; asked only where it is readable.
        unsafe { self.start.wrapping_add(at).read_volatile() }
    }

    fn fill(&self, first: usize, count: usize, value: u8) {
        // SAFETY: within the mapping; asked only where it is writable.
        unsafe { self.page(first).write_bytes(value, count * PAGE) };
    }

    fn register(&self, table: &MemoryTable, access: Access) -> Result<Stag, RegisterError> {
        let spec = RegionSpec::new(WHO.pd, self.start, self.pages * PAGE, access);
        // SAFETY: nothing but the test uses the pages.
        unsafe { table.register(spec) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the test's own; parts may be gone.
        let _ = unsafe { munmap(self.start.cast(), self.pages * PAGE) };
    }
}

fn octets(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + 1) as u8 | 1).collect()
}

/// Accesses memory at one place, in each of the protocol's ways.
fn each_way(
    table: &MemoryTable,
    stag: Stag,
    addr: u64,
    n: usize,
) -> Vec<(bool, Result<(), AccessError>)> {
    let (to, data) = (TaggedOffset(addr), octets(n));
    let element = Sge { addr, length: n as u32, lkey: stag };
    let mut dst = vec![0; n];
    let mut crc = Digest::crc32c();
    vec![
        (true, table.place_remote(WHO, stag, to, &data)),
        (true, table.place_local(WHO, element, &data)),
        (false, table.gather_remote(WHO, stag, to, &mut dst, None)),
        (false, table.gather_remote(WHO, stag, to, &mut dst, Some(&mut crc))),
        (false, table.gather_local(WHO, element, &mut dst, None)),
        (false, table.gather_local(WHO, element, &mut dst, Some(&mut crc))),
        (false, table.find_remote(WHO, stag, to, n as u64)),
        (false, table.find_local(WHO, element)),
        (true, table.guard_local(WHO, element, true).unwrap().find()),
    ]
}

/// Lengths at which the routines change their way.
fn lengths() -> impl Iterator<Item = usize> {
    let edges = [255, 256, 257, 300, 511, 512, 513, 700, 1024, 1500, 2047, 2048, 4095, 4096];
    let longer = [4097, 6000, 8192, 12_000];
    (1..=200).chain(edges).chain(longer)
}

/// Octets before the fault may have been stored, in part; the last byte never is, nor anything
/// outside; and the address is the first that is gone.
#[test]
fn a_fault_at_any_octet_is_an_error_and_touches_nothing_outside() {
    let table = MemoryTable::new();
    // Three pages that stay, three that go, three that stay.
    let map = Map::new(9, READ_WRITE);
    let stag = map.register(&table, all()).unwrap();
    let gone = map.page(3)..map.page(6);
    map.protect(3, 3, MprotectFlags::empty());
    for n in lengths() {
        // All cuts of short ones, and some of long ones.
        let cuts = (0..n).filter(|cut| n <= 80 || cut % 37 == 0 || *cut < 3 || cut + 3 > n);
        for cut in cuts {
            // So many bytes lie before the gone pages; or all within; or the end behind them.
            let start = gone.start.wrapping_sub(cut);
            map.fill(0, 3, 0);
            map.fill(6, 3, 0);
            for (_, result) in each_way(&table, stag, start.addr() as u64, n) {
                let Err(AccessError::BadAddress(addr)) = result else {
                    panic!("{n}, {cut}: {result:?}")
                };
                assert!(
                    (gone.start.addr()..gone.start.addr() + n).contains(&(addr as usize)),
                    "{n}, {cut}: {addr:#x}"
                );
            }
            let outside = 3 * PAGE - cut;
            assert!(
                (outside.saturating_sub(64)..outside).all(|at| map.octet(at) == 0),
                "{n}, {cut}"
            );
            for (i, sent) in octets(n).into_iter().enumerate().take(cut) {
                let octet = map.octet(outside + i);
                assert!(octet == 0 || octet == sent, "{n}, {cut}: {i}");
            }
        }
        // Ends behind the gone pages: the last byte waits for all.
        let behind = n.min(100);
        let start = gone.end.wrapping_sub(n);
        let end = start.wrapping_add(n + behind).addr() - map.start.addr();
        for (write, result) in each_way(&table, stag, start.addr() as u64, n + behind) {
            assert!(matches!(result, Err(AccessError::BadAddress(_))), "{n}: {result:?}");
            assert!(
                !write || map.octet(end - 1) == 0,
                "{n}: the last octet is there before others"
            );
        }
        assert!((end..end + 64).all(|at| map.octet(at) == 0), "{n}");
    }
    // Memory that is still there goes on.
    for (_, result) in each_way(&table, stag, map.start.addr() as u64, 3 * PAGE) {
        assert_eq!(result, Ok(()));
    }
}

/// The way in which memory goes away.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Unmap,
    Protect,
    MakeReadOnly,
    MapNothingOver,
    TruncateFile,
    TruncateMemfd,
}

const WAYS: [Way; 6] = [
    Way::Unmap,
    Way::Protect,
    Way::MakeReadOnly,
    Way::MapNothingOver,
    Way::TruncateFile,
    Way::TruncateMemfd,
];

impl Way {
    fn map(self) -> (Map, Option<OwnedFd>) {
        let file: OwnedFd = match self {
            Self::TruncateFile => {
                let path = std::env::temp_dir().join(format!("iwarp-gone-{}", std::process::id()));
                let file =
                    File::options().read(true).write(true).create(true).truncate(true).open(&path);
                let file = file.unwrap();
                std::fs::remove_file(path).unwrap();
                file.into()
            }
            Self::TruncateMemfd => memfd_create("gone", MemfdFlags::CLOEXEC).unwrap(),
            _ => return (Map::new(4, READ_WRITE), None),
        };
        ftruncate(&file, 4 * PAGE as u64).unwrap();
        (Map::of(&file, 4), Some(file))
    }

    /// Takes the last two pages away.
    fn take(self, map: &Map, file: Option<&OwnedFd>) {
        let (start, len) = (map.page(2).cast(), 2 * PAGE);
        // SAFETY: the test's own pages.
        unsafe {
            match self {
                Self::Unmap => munmap(start, len).unwrap(),
                Self::Protect => map.protect(2, 2, MprotectFlags::empty()),
                Self::MakeReadOnly => map.protect(2, 2, MprotectFlags::READ),
                Self::MapNothingOver => {
                    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
                    mmap_anonymous(start, len, ProtFlags::empty(), flags).unwrap();
                }
                Self::TruncateFile | Self::TruncateMemfd => {
                    ftruncate(file.unwrap(), 2 * PAGE as u64).unwrap();
                }
            }
        }
    }
}

#[test]
fn memory_that_goes_away_in_any_way_fails_accesses_and_nothing_else() {
    for way in WAYS {
        let table = MemoryTable::new();
        let (map, file) = way.map();
        let stag = map.register(&table, all()).unwrap();
        way.take(&map, file.as_ref());
        for n in [1, 8, 64, 1000, PAGE, 2 * PAGE] {
            for (write, result) in each_way(&table, stag, map.page(2).addr() as u64, n) {
                let expected = if way == Way::MakeReadOnly && !write {
                    Ok(())
                } else {
                    Err(AccessError::BadAddress(map.page(2).addr() as u64))
                };
                if n == 1 || expected.is_ok() {
                    assert_eq!(result, expected, "{way:?}, {n}");
                } else {
                    assert!(matches!(result, Err(AccessError::BadAddress(_))), "{way:?}, {n}");
                }
            }
        }
        let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
        let to = TaggedOffset(map.page(2).addr() as u64 + 8);
        let bad = AccessError::BadAddress(to.0);
        assert_eq!(table.atomic(WHO, stag, to, add), Err(bad), "{way:?}");
        let to = TaggedOffset(map.page(1).addr() as u64 + 8);
        let before = u64::from_ne_bytes(std::array::from_fn(|i| map.octet(PAGE + 8 + i)));
        assert_eq!(table.atomic(WHO, stag, to, add), Ok(before), "{way:?}");
        table.deregister(stag).unwrap();
    }
}

/// The memory for which `ibv_reg_mr` answers with EFAULT.
#[test]
fn memory_that_may_not_be_accessed_so_is_not_registered() {
    let table = MemoryTable::new();
    let read = Access::REMOTE_READ;
    let none = Map::new(3, ProtFlags::empty());
    assert_eq!(none.register(&table, read), Err(RegisterError::NotMapped));
    assert_eq!(none.register(&table, all()), Err(RegisterError::NotMapped));
    let fixed = Map::new(3, ProtFlags::READ);
    assert_eq!(fixed.register(&table, all()), Err(RegisterError::NotWritable));
    let stag = fixed.register(&table, read).unwrap();
    // Rights that are added later are looked at as well.
    let change = iwarp_mem::RegionChange { access: Some(all()), ..Default::default() };
    // SAFETY: nothing but the test uses the pages.
    assert_eq!(unsafe { table.reregister(stag, change) }, Err(RegisterError::NotWritable));
    // One page of many, where each is tried and where there are too many.
    for pages in [40, 4000] {
        for odd in [0, 1, pages / 2 + 1, pages - 1] {
            let map = Map::new(pages, READ_WRITE);
            map.protect(odd, 1, MprotectFlags::READ);
            assert_eq!(map.register(&table, all()), Err(RegisterError::NotWritable), "{odd}");
            table.deregister(map.register(&table, read).unwrap()).unwrap();
            map.protect(odd, 1, MprotectFlags::empty());
            assert_eq!(map.register(&table, read), Err(RegisterError::NotMapped), "{odd}");
            // SAFETY: the test's own page.
            unsafe { munmap(map.page(odd).cast(), PAGE) }.unwrap();
            assert_eq!(map.register(&table, all()), Err(RegisterError::NotMapped), "{odd}");
        }
    }
    // A mapping longer than its file.
    let file = memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, PAGE as u64).unwrap();
    assert_eq!(Map::of(&file, 2).register(&table, read), Err(RegisterError::NotMapped));
    // No bytes need no memory.
    let spec = RegionSpec::new(WHO.pd, none.start, 0, all());
    // SAFETY: there is nothing that could be accessed.
    assert!(unsafe { table.register(spec) }.is_ok());
}

/// A try changes nothing, and does not touch what a large region will perhaps never use.
#[test]
fn registration_leaves_memory_as_it_was() {
    let table = MemoryTable::new();
    let map = Map::new(16 * 1024, READ_WRITE);
    let stag = map.register(&table, all()).unwrap();
    let mut resident = vec![0_u8; 16 * 1024];
    // SAFETY: writes one byte for each page.
    let told = unsafe { libc::mincore(map.start.cast(), 16 * 1024 * PAGE, resident.as_mut_ptr()) };
    assert_eq!(told, 0);
    let touched = resident.iter().filter(|&&page| page & 1 == 1).count();
    // Two, or as many as two huge pages have.
    assert!(touched <= 1024, "{touched} pages");
    assert!((0..4096).all(|page| map.octet(page * PAGE) == 0));
    table.deregister(stag).unwrap();
}
