// SPDX-License-Identifier: MIT OR Apache-2.0

//! The places of descriptors in the process's table.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit};

use crate::fork::ForkGeneration;
use crate::local::SharedMemory;

/// The number of descriptors that `select()` can name (`FD_SETSIZE`).
const SELECT_RANGE: u64 = 1024;

/// The user of a descriptor, which decides its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdPlace {
    /// Ours alone: moved out of the way of programs that use `select()`.
    Internal,
    /// Handed to the program, which may give it to `select()`: the lowest free number.
    Program,
}

impl FdPlace {
    pub(crate) fn put(self, fd: OwnedFd) -> OurFd {
        match self {
            FdPlace::Internal => OurFd::internal(high_fd(fd)),
            FdPlace::Program => OurFd { fd: ManuallyDrop::new(fd), process: ForkGeneration::new() },
        }
    }
}

/// A descriptor that a forked child closes at once if it is internal, and never afterwards: the
/// number may be the child's own file by then.
#[derive(Debug)]
pub(crate) struct OurFd {
    fd: ManuallyDrop<OwnedFd>,
    process: ForkGeneration,
}

impl OurFd {
    /// Records it as ours, under the number that it has.
    pub(crate) fn internal(fd: OwnedFd) -> Self {
        // Before it is recorded: a child that finds out now closes what is recorded.
        let process = ForkGeneration::new();
        record(fd.as_raw_fd());
        Self { fd: ManuallyDrop::new(fd), process }
    }

    /// This descriptor as one of this process, a forked child, which closes it.
    pub(crate) fn take_over(&self) -> Self {
        debug_assert!(self.process.forked(), "it is this process's");
        // SAFETY: open here, as the caller has found, and what was inherited is never closed but by
        // this.
        let fd = unsafe { OwnedFd::from_raw_fd(self.fd.as_raw_fd()) };
        Self { fd: ManuallyDrop::new(fd), process: ForkGeneration::new() }
    }

    /// From now on forked children have it open as well.
    pub(crate) fn bequeath(&self) {
        forget(self.fd.as_raw_fd());
    }

    /// From now on forked children close it again.
    pub(crate) fn disinherit(&self) {
        record(self.fd.as_raw_fd());
    }

    /// Gives it away; a child will have it open.
    pub(crate) fn into_owned(mut self) -> OwnedFd {
        forget(self.fd.as_raw_fd());
        // SAFETY: taken once, as `self` is not dropped.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        std::mem::forget(self);
        fd
    }
}

impl Drop for OurFd {
    fn drop(&mut self) {
        if self.process.forked() {
            return;
        }
        forget(self.fd.as_raw_fd());
        // Not by dropping it: a daemon may have closed every descriptor it does not know, and then
        // `OwnedFd` ends the process, and rustix panics.
        // SAFETY: closed once, here.
        unsafe { libc::syscall(libc::SYS_close, self.fd.as_raw_fd()) };
    }
}

/// Lends the descriptor of a type that has it in `fd`.
macro_rules! as_fd {
    ($($type:ty)*) => {$(
        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.fd.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.fd.as_raw_fd()
            }
        }
    )*};
}

pub(crate) use as_fd;

as_fd!(OurFd);

/// A descriptor on its way to or from another process: internal, so a forked child closes its copy
/// at once, and holds no memory by it that two others share.
#[derive(Debug)]
pub struct PassedFd {
    fd: OurFd,
}

impl From<OwnedFd> for PassedFd {
    fn from(fd: OwnedFd) -> Self {
        Self { fd: FdPlace::Internal.put(fd) }
    }
}

as_fd!(PassedFd);

/// Descriptors that are recorded: as many as the system lets a process have by default
/// (`fs.nr_open`). Pages that no descriptor needs are never touched.
const RECORDED: usize = 1 << 20;

/// A bit for every internal descriptor.
static INTERNAL: [AtomicU64; RECORDED / 64] = [const { AtomicU64::new(0) }; RECORDED / 64];
/// Words of it that may hold a bit.
static USED: AtomicU64 = AtomicU64::new(0);

fn slot(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(fd).ok()?;
    let word = INTERNAL.get(number / 64)?;
    USED.fetch_max(number as u64 / 64 + 1, Ordering::Relaxed);
    Some((word, 1 << (number % 64)))
}

fn record(fd: RawFd) {
    if let Some((word, bit)) = slot(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

fn forget(fd: RawFd) {
    if let Some((word, bit)) = slot(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// True if a descriptor is recorded as ours alone.
pub(crate) fn is_internal(fd: RawFd) -> bool {
    slot(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Closes this process's copies of internal descriptors that it has inherited.
///
/// Memory and descriptors of a child are copies of two moments: a number may be recorded that is
/// not open here.
pub(crate) fn close_inherited() {
    let used = USED.load(Ordering::Relaxed) as usize;
    for (index, word) in INTERNAL.iter().enumerate().take(used) {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            close_if_ours((index * 64) as RawFd + bits.trailing_zeros() as RawFd);
            bits &= bits - 1;
        }
    }
}

/// A program that has closed our descriptors (`closefrom`) may have files under their numbers.
fn close_if_ours(number: RawFd) {
    let mut about = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the C library writes `about` or fails.
    if unsafe { libc::fstat(number, about.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: written by the call.
    let mode = unsafe { about.assume_init() }.st_mode;
    let is_ours = match mode & libc::S_IFMT {
        // Epoll sets and eventfds are of no type.
        libc::S_IFSOCK | 0 => true,
        // Memory that is shared with another process has seals.
        libc::S_IFREG => SharedMemory::is_under(number),
        _ => false,
    };
    if is_ours {
        // SAFETY: recorded as ours by the parent, and `OurFd` does not close what was inherited. By
        // system call: libraries that are preloaded replace `close`.
        unsafe { libc::syscall(libc::SYS_close, number) };
    }
}

/// Moves a descriptor above those that `select()` can name, so that a program which uses it keeps
/// the low numbers. Under a limit too low for that, into the upper half of what the limit allows;
/// where there is no room either, or it is there already, the descriptor stays as it is.
///
/// Status flags (`O_NONBLOCK`) stay, close-on-exec is set. Membership in an epoll set does not
/// move along: move first, then add.
pub fn high_fd(fd: OwnedFd) -> OwnedFd {
    /// There was room above the range when the limit was looked at.
    static ROOMY: AtomicBool = AtomicBool::new(false);

    let usual = SELECT_RANGE as i32;
    let mut fd = fd;
    if ROOMY.load(Ordering::Relaxed) {
        match above(fd, usual) {
            Ok(moved) => return moved,
            Err(kept) => fd = kept,
        }
    }
    let floor = floor_for(limit());
    ROOMY.store(floor == usual, Ordering::Relaxed);
    above(fd, floor).unwrap_or_else(|kept| kept)
}

fn above(fd: OwnedFd, floor: RawFd) -> Result<OwnedFd, OwnedFd> {
    use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

    if fd.as_raw_fd() >= floor && fcntl_setfd(&fd, FdFlags::CLOEXEC).is_ok() {
        return Ok(fd);
    }
    fcntl_dupfd_cloexec(&fd, floor).map_err(|_| fd)
}

/// The number of descriptors that this process may have: its soft limit.
pub fn limit() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Calls `what` with the soft limit of descriptors raised to the hard one. The limit also applies
/// to descriptors of this user that are on their way between processes.
pub(crate) fn at_hard_limit<R>(what: impl FnOnce() -> R) -> R {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let raised = rustix::process::setrlimit(Resource::Nofile, raised).is_ok();
    let result = what();
    if raised {
        let _ = rustix::process::setrlimit(Resource::Nofile, before);
    }
    result
}

/// The lowest number for our descriptors under a soft limit.
fn floor_for(limit: u64) -> i32 {
    if limit < 2 * SELECT_RANGE { (limit / 2) as i32 } else { SELECT_RANGE as i32 }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    fn the_floor_follows_the_limit() {
        assert_eq!(floor_for(u64::MAX), 1024);
        assert_eq!(floor_for(1 << 20), 1024);
        assert_eq!(floor_for(2048), 1024);
        assert_eq!(floor_for(1024), 512);
        assert_eq!(floor_for(64), 32);
    }

    #[test]
    fn a_moved_descriptor_is_high_and_keeps_its_flags() {
        let fd = eventfd(7, EventfdFlags::NONBLOCK).unwrap();
        let low = fd.as_raw_fd();
        let moved = high_fd(fd);
        assert!(moved.as_raw_fd() >= floor_for(limit()), "{} from {low}", moved.as_raw_fd());
        let status = rustix::fs::fcntl_getfl(&moved).unwrap();
        assert!(status.contains(rustix::fs::OFlags::NONBLOCK));
        let flags = rustix::io::fcntl_getfd(&moved).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        let mut value = [0; 8];
        assert_eq!(rustix::io::read(&moved, &mut value), Ok(8));
        assert_eq!(u64::from_ne_bytes(value), 7);
    }

    #[test]
    fn a_descriptor_that_is_high_stays() {
        let moved = high_fd(eventfd(7, EventfdFlags::NONBLOCK).unwrap());
        let number = moved.as_raw_fd();
        rustix::io::fcntl_setfd(&moved, rustix::io::FdFlags::empty()).unwrap();
        let kept = high_fd(moved);
        assert_eq!(kept.as_raw_fd(), number);
        let flags = rustix::io::fcntl_getfd(&kept).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn without_room_above_the_descriptor_stays() {
        // In a child, as the limit is the whole process's. It makes system calls only.
        let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let raw = fd.as_raw_fd();
        let code = crate::fork::in_child_process(|| {
            let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: reads `limit`, which outlives the call.
            if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
                return 2;
            }
            let kept = high_fd(fd).as_raw_fd() == raw;
            if kept { 0 } else { 1 }
        });
        assert_eq!(code, 0);
    }
}
