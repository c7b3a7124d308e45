// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of a file that several processes map.

use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::{NonNull, null_mut};

use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Maps as many bytes of the file as a `T` has. Any bytes must make a `T`, which is reached by
/// atomic operations only. The caller unmaps it.
///
/// # Errors
///
/// As for `open(2)` and `mmap(2)`; `InvalidData` where the file is too short.
pub(crate) fn map<T>(path: &Path) -> io::Result<NonNull<T>> {
    let octets = size_of::<T>();
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = File::from(open(path, flags, Mode::empty())?);
    if usize::try_from(fstat(&file)?.st_size).is_ok_and(|size| size < octets) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping where the system likes it.
    let words = unsafe { mmap(null_mut(), octets, rights, MapFlags::SHARED, &file, 0)? };
    NonNull::new(words.cast()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
