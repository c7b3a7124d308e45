// SPDX-License-Identifier: MIT OR Apache-2.0

//! Regions of memory that is known by a descriptor: DMA-BUFs, as `/dev/udmabuf` and drivers export
//! them.
//!
//! There is no device to map them for, so they are mapped into the process, which a driver may
//! refuse: one of a GPU's memory often does.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;

use iwarp::Access;

use super::mapping::Mapping;
use super::mr::{self, Backing, Mr};
use super::pd::Pd;
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{decline, refuse};

/// The number of the file system that DMA-BUFs are on (`DMA_BUF_MAGIC`).
const FILE_SYSTEM: u32 = 0x444d_4142;

/// The bytes of a DMA-BUF.
///
/// # Errors
///
/// `EBADF`; `EINVAL` where it is no DMA-BUF.
fn size(fd: c_int) -> Result<u64, Errno> {
    let mut about = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: writes to `about`.
    if unsafe { libc::fstatfs(fd, about.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: it succeeded.
    // The field's type differs between processors and C libraries; the number has 32 bits.
    if unsafe { about.assume_init() }.f_type as u32 != FILE_SYSTEM {
        return Err(refuse!(EINVAL, "the descriptor {fd} is that of no DMA-BUF"));
    }
    // SAFETY: a DMA-BUF has no position that this could move, but tells its size.
    let size = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
    u64::try_from(size).map_err(|_| refuse!(EINVAL, "the DMA-BUF {fd} does not tell its size"))
}

/// Registers a part of a DMA-BUF.
pub(super) fn register(
    pd: &Pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: u32,
) -> Result<*mut Mr, Errno> {
    let size = size(fd)?;
    register_file(pd, offset, length, iova, fd, size, mr::access(access)?)
}

/// Registers a part of a file of `size` bytes.
fn register_file(
    pd: &Pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    size: u64,
    access: Access,
) -> Result<*mut Mr, Errno> {
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = u64::try_from(page).unwrap_or(4096);
    let before = offset % page;
    let end = offset.saturating_add(length as u64);
    // The kernel wants a program to see pages where the device sees them.
    if length == 0 || end > size || iova % page != before || access.contains(Access::ON_DEMAND) {
        return Err(refuse!(
            EINVAL,
            "{length} bytes at {offset} of {size}, known as {iova:#x}: they have to be within, at the \
             same place of a page of {page}, and not IBV_ACCESS_ON_DEMAND"
        ));
    }
    // At most `size`, which is mapped.
    let mapped = length.saturating_add(before as usize);
    let write = access.contains(Access::LOCAL_WRITE);
    let mapping = Mapping::new(fd, offset - before, mapped, write).map_err(refused)?;
    let addr = mapping.start.wrapping_add(before as usize);
    // SAFETY: it stays mapped for as long as it is registered, and the program knows no address of
    // it.
    let region = unsafe { pd.domain().register_raw_at(addr, length, iova, access)? };
    Mr::make(pd, std::ptr::null_mut(), region, Some(Backing::File(mapping)))
}

/// The error for a file that cannot be mapped.
fn refused(error: io::Error) -> Errno {
    match error.raw_os_error() {
        // Its exporter does not let itself be mapped.
        Some(libc::ENODEV | libc::ENOTTY | libc::ENXIO | libc::EINVAL) => {
            decline!(
                EOPNOTSUPP,
                "the descriptor's memory cannot be mapped into the process: {error}"
            )
        }
        _ => error.into(),
    }
}

/// `ibv_reg_dmabuf_mr`
pub extern "C" fn ibv_reg_dmabuf_mr(
    pd: &Pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut Mr {
    guard::object(called!(ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access)), || {
        register(pd, offset, length, iova, fd, access.cast_unsigned())
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};

    use super::*;
    use crate::verbs::mr::ibv_dereg_mr;
    use crate::verbs::open::{ibv_close_device, ibv_open_device};
    use crate::verbs::pd::{ibv_alloc_pd, ibv_dealloc_pd};
    use crate::verbs::{Context, list};

    /// Not every kernel has DMA-BUFs: a file in memory stands for one.
    #[test]
    fn the_part_of_a_file_that_is_asked_for_is_registered() {
        let device = list::devices().unwrap()[0].as_abi();
        let context = ibv_open_device(device);
        // SAFETY: just opened.
        let pd = ibv_alloc_pd(unsafe { Context::of(context) });
        // SAFETY: just made.
        let domain = unsafe { &*pd };
        let page = 4096;
        // SAFETY: a new descriptor, whose owner is the file from then on.
        let file = unsafe {
            let fd = libc::memfd_create(c"pages".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            File::from_raw_fd(fd)
        };
        file.set_len(4 * page).unwrap();
        let fd = file.as_raw_fd();
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let register =
            |offset, length, iova| register_file(domain, offset, length, iova, fd, 4 * page, all);
        for (offset, length, iova) in [
            (0, 0, 0),
            (0, 4 * 4096 + 1, 0),
            (u64::MAX, 2, u64::MAX),
            (100, 8, 0),
            (4 * 4096, 1, 0),
        ] {
            assert_eq!(
                register(offset, length, iova).err(),
                Some(Errno::plain(libc::EINVAL)),
                "{offset} {length}"
            );
        }
        let mr = register(4096 + 100, 4096, 100).unwrap();
        assert_eq!(ibv_dereg_mr(mr), 0);
        // A file that cannot be mapped, as a GPU's may be.
        let (read, _write) = std::io::pipe().unwrap();
        let refused = register_file(domain, 0, 8, 0, read.as_raw_fd(), 8, Access::LOCAL_READ);
        assert_eq!(refused.err(), Some(Errno::plain(libc::EOPNOTSUPP)));
        // A file that is no DMA-BUF.
        assert_eq!(size(fd).err(), Some(Errno::plain(libc::EINVAL)));
        assert_eq!(size(-1).err(), Some(Errno::plain(libc::EBADF)));
        assert_eq!(ibv_dealloc_pd(pd), 0);
        assert_eq!(ibv_close_device(context), 0);
    }
}
