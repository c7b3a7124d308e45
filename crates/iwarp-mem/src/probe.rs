// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks whether a program's memory exists and grants the access to be registered.
//!
//! Each of up to 64 pages is tried, without any system call. Of a larger region the first and the
//! last page are tried, and the rest is looked up in `/proc/self/maps` (by `PROCMAP_QUERY` where
//! available), as touching pages would commit memory that the program has only reserved. If the
//! file cannot be read, 64 places are tried. (Considered: `procfs`. A registration allocates
//! nothing here, and stops reading at the end of the range.)

use std::ffi::CStr;
use std::os::fd::AsRawFd;

use rustix::fs::{Mode, OFlags, open};

use crate::fault;
use crate::reach::chosen::{probe_read, probe_write};
use crate::region::RegisterError;

/// Up to this number, all pages are tried; of larger ranges the ends are tried, and the rest is
/// looked up.
const ALL: usize = 64;

/// Checks that all of a range can be read, and written if `write`.
///
/// Small ranges are tried page by page, which takes no system call, so that processes that may make
/// none can still register memory. In large ranges the rest is not touched, as programs may have
/// reserved much more than they will use.
pub(crate) fn check(addr: *mut u8, len: usize, write: bool) -> Result<(), RegisterError> {
    if len == 0 {
        return Ok(());
    }
    if addr.is_null() {
        return Err(RegisterError::NotMapped);
    }
    let Some(_admitted) = fault::protect() else {
        // A try might end the process: the program's word has to do.
        return Ok(());
    };
    let page = rustix::param::page_size();
    let first = addr.addr() / page;
    let pages = (addr.addr() + len - 1) / page - first + 1;
    // The first byte of each page that belongs to the range.
    let octet = |number: usize| match number {
        0 => addr,
        _ => addr.wrapping_add((first + number) * page - addr.addr()),
    };
    let attempt = |number| try_octet(octet(number), write);
    // From below: that is how a stack grows.
    attempt(0)?;
    attempt(pages - 1)?;
    if pages <= ALL {
        return (1..pages - 1).try_for_each(attempt);
    }
    match mappings::cover(addr.addr(), addr.addr() + len, write) {
        Some(covered) => covered,
        None => (1..ALL).try_for_each(|part| attempt(pages / ALL * part)),
    }
}

/// True if all of the range is mapped, and no file's.
pub(crate) fn is_without_file(addr: *const u8, len: usize) -> bool {
    mappings::are_without_file(addr.addr(), addr.addr() + len)
}

fn try_octet(octet: *mut u8, write: bool) -> Result<(), RegisterError> {
    // A page that can be written can be read.
    if write && probe_write(octet).is_ok() {
        return Ok(());
    }
    probe_read(octet).map_err(|_| RegisterError::NotMapped)?;
    if write { Err(RegisterError::NotWritable) } else { Ok(()) }
}

/// The process's mappings, as the kernel tells them.
mod mappings {
    use super::*;

    const MAPS: &CStr = c"/proc/self/maps";

    /// Checks that mappings of the right kind cover the range; `None` where the kernel does not
    /// tell.
    pub(super) fn cover(
        start: usize,
        end: usize,
        write: bool,
    ) -> Option<Result<(), RegisterError>> {
        let maps = open(MAPS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let wanted = if write { Wanted::Write } else { Wanted::Read };
        let covered = || Covered { upto: start, end, wanted };
        by_query(&maps, covered()).or_else(|| by_text(&maps, covered()))
    }

    /// True if mappings without a file cover the range, as far as the kernel tells.
    pub(super) fn are_without_file(start: usize, end: usize) -> bool {
        let Ok(maps) = open(MAPS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
            return false;
        };
        let covered = || Covered { upto: start, end, wanted: Wanted::NoFile };
        let told = by_query(&maps, covered()).or_else(|| by_text(&maps, covered()));
        told.is_some_and(|covered| covered.is_ok())
    }

    /// `struct procmap_query` (Linux 6.11).
    #[repr(C)]
    #[derive(Default)]
    struct Query {
        size: u64,
        flags: u64,
        addr: u64,
        start: u64,
        end: u64,
        access: u64,
        page_size: u64,
        offset: u64,
        inode: u64,
        device: [u32; 2],
        name_size: u32,
        build_id_size: u32,
        name: u64,
        build_id: u64,
    }

    const READABLE: u64 = 1;
    const WRITABLE: u64 = 2;
    const THIS_OR_NEXT: u64 = 0x10;
    /// `_IOWR('f', 17, struct procmap_query)`.
    const PROCMAP_QUERY: u64 =
        3 << 30 | (size_of::<Query>() as u64) << 16 | (b'f' as u64) << 8 | 17;

    fn by_query(maps: &impl AsRawFd, mut covered: Covered) -> Option<Result<(), RegisterError>> {
        loop {
            let mut query = Query {
                size: size_of::<Query>() as u64,
                flags: THIS_OR_NEXT,
                addr: covered.upto as u64,
                ..Query::default()
            };
            // SAFETY: reads and writes the structure, which says how long it is.
            let done = unsafe {
                libc::syscall(libc::SYS_ioctl, maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query)
            };
            if done != 0 {
                let none_behind = std::io::Error::last_os_error().raw_os_error();
                return (none_behind == Some(libc::ENOENT))
                    .then_some(Err(RegisterError::NotMapped));
            }
            let mapping = Mapping {
                start: query.start as usize,
                end: query.end as usize,
                read: query.access & READABLE != 0,
                write: query.access & WRITABLE != 0,
                file: query.inode != 0,
            };
            if let Some(end) = covered.add(mapping) {
                return Some(end);
            }
        }
    }

    fn by_text(
        maps: &impl std::os::fd::AsFd,
        mut covered: Covered,
    ) -> Option<Result<(), RegisterError>> {
        let mut text = [0; 4096];
        let mut have = 0;
        loop {
            let n = rustix::io::read(maps, &mut text[have..]).ok()?;
            if n == 0 {
                return Some(Err(RegisterError::NotMapped));
            }
            have += n;
            let mut used = 0;
            while let Some(len) = text[used..have].iter().position(|&c| c == b'\n') {
                let line = str::from_utf8(&text[used..used + len]).unwrap_or("");
                used += len + 1;
                if let Some(end) = parse(line).and_then(|mapping| covered.add(mapping)) {
                    return Some(end);
                }
            }
            if used == 0 && have == text.len() {
                // A name without end says nothing more of its mapping.
                used = have;
            }
            text.copy_within(used..have, 0);
            have -= used;
        }
    }

    /// Range, rights, offset, device, inode, name.
    fn parse(line: &str) -> Option<Mapping> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let rights = words.next()?.as_bytes();
        Some(Mapping {
            start: number(start)?,
            end: number(end)?,
            read: rights.first() == Some(&b'r'),
            write: rights.get(1) == Some(&b'w'),
            file: words.nth(2)? != "0",
        })
    }

    /// One mapping, as it was told.
    struct Mapping {
        start: usize,
        end: usize,
        read: bool,
        write: bool,
        file: bool,
    }

    /// The demand on mappings.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Wanted {
        Read,
        Write,
        /// For reading.
        NoFile,
    }

    /// The part of the range that the mappings cover which were told, in ascending order.
    struct Covered {
        upto: usize,
        end: usize,
        wanted: Wanted,
    }

    impl Covered {
        /// The result, once it is known.
        fn add(&mut self, mapping: Mapping) -> Option<Result<(), RegisterError>> {
            let Mapping { start, end: to, read, write, file } = mapping;
            if to <= self.upto {
                return None;
            }
            if start > self.upto || !read || (self.wanted == Wanted::NoFile && file) {
                return Some(Err(RegisterError::NotMapped));
            }
            if self.wanted == Wanted::Write && !write {
                return Some(Err(RegisterError::NotWritable));
            }
            self.upto = to;
            (to >= self.end).then_some(Ok(()))
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn memory_of_files_is_told_from_other() {
            let own = vec![1_u8; 2 << 20];
            assert!(is_without_file(own.as_ptr(), own.len()));
            assert!(!is_without_file(c"in the program's file".as_ptr().cast(), 1 << 20));
            let unmapped = std::ptr::without_provenance(4096);
            assert!(!is_without_file(unmapped, 1 << 20));
            assert!(is_without_file(own.as_ptr(), 1));
        }

        #[test]
        fn both_ways_to_ask_say_the_same() {
            let maps = || open(MAPS, OFlags::RDONLY, Mode::empty()).unwrap();
            let text = std::fs::read_to_string("/proc/self/maps").unwrap();
            let mut ranges = vec![(1, 2), (4096, usize::MAX - 4096)];
            for line in text.lines().filter(|line| !line.contains("[v")) {
                let Mapping { start: from, end: to, .. } = parse(line).unwrap();
                ranges.extend([(from, to), (from + 1, to - 1), (from, to + 1), (from - 1, to)]);
            }
            let mut known = 0;
            for (start, end) in ranges {
                for wanted in [Wanted::Read, Wanted::Write, Wanted::NoFile] {
                    let covered = || Covered { upto: start, end, wanted };
                    // Tests beside this one map memory and give it back, also between the two.
                    let agree = (0..100).any(|_| {
                        let told = by_text(&maps(), covered());
                        assert!(told.is_some());
                        // Not before Linux 6.11.
                        let Some(answer) = by_query(&maps(), covered()) else {
                            return true;
                        };
                        known += usize::from(answer.is_ok());
                        Some(answer) == told
                    });
                    assert!(agree, "{start:#x}..{end:#x} {wanted:?}");
                }
            }
            assert!(
                known > 5
                    || by_query(&maps(), Covered { upto: 1, end: 2, wanted: Wanted::Read })
                        .is_none()
            );
        }
    }
}
