// SPDX-License-Identifier: MIT OR Apache-2.0

//! Has this process been forked since?
//!
//! A forked child has a copy of all memory and none of the threads. Connections, locks and
//! registered memory in it belong to the parent, so handles keep them as
//! [`ProcessOwned`](crate::ProcessOwned), which asks first ([`ForkGeneration`]); what a child must
//! have anew is [`PerProcess`], and the child's copies of our descriptors are closed at once: they
//! would keep the parent's connections open.
//!
//! A page that the kernel wipes in a child (`MADV_WIPEONFORK`) holds the number of the process.
//! Inherited handles answer with errors, or with a neutral value where no error is possible, and
//! dropping them frees nothing. Code below the handles does not check. The child closes its copies
//! of all internal descriptors at once (in the fork handler, or at the first call), so it shuts
//! down none of the parent's connections, and the peer sees the parent's FIN. It keeps the ports
//! that ids have bound (`Reservation::bequeath`). A device, a domain with its regions, a channel or
//! an id without a connection can be made anew in the place of the inherited one. Of the parent's
//! objects the child reads what does not change, and tries locks only. Statics are [`PerProcess`],
//! or set once by the first thread, for which no other waits (`once_cell::race` in the C
//! libraries). The engine starts its worker with `pthread_create`, because std's threads begin with
//! a lock.

use std::num::NonZeroU64;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::clock::yield_now;
use crate::fd;
use crate::local::heap;

/// The process in which something was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForkGeneration(NonZeroU64);

impl ForkGeneration {
    /// This process.
    #[inline]
    pub fn new() -> Self {
        // Numbers begin at 1.
        Self(NonZeroU64::new(generation()).unwrap_or(NonZeroU64::MIN))
    }

    /// Higher in a child than in its parent; equal in siblings.
    pub(crate) fn number(self) -> u64 {
        self.0.get()
    }

    /// True if this is a child, of any depth, of that process. Two loads.
    #[inline]
    pub fn forked(self) -> bool {
        self.0.get() != generation()
    }
}

impl Default for ForkGeneration {
    fn default() -> Self {
        Self::new()
    }
}

/// A static that every process has of its own: a forked child begins with a new one, regardless of
/// the state of the parent's, and never looks at that again.
#[derive(Debug)]
pub struct PerProcess<T> {
    slot: AtomicPtr<Slot<T>>,
}

#[derive(Debug)]
struct Slot<T> {
    process: ForkGeneration,
    value: T,
    /// The parent's: kept in sight of leak checkers.
    _before: AtomicPtr<Slot<T>>,
}

impl<T> PerProcess<T> {
    /// Made when it is first asked for.
    pub const fn new() -> Self {
        Self { slot: AtomicPtr::new(null_mut()) }
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    /// This process's. It is never freed.
    pub fn get(&'static self) -> &'static T {
        self.get_or_make(|_| T::default())
    }
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// This process's, which `make` makes the first time, in a child perhaps of its parent's. That
    /// may be in any state: a lock in it is only tried. Several threads may make one, and one is
    /// kept.
    pub fn get_or_make(&'static self, make: impl Fn(Option<&T>) -> T) -> &'static T {
        let process = ForkGeneration::new();
        let mut found = self.slot.load(Ordering::Acquire);
        loop {
            // SAFETY: slots are initialised before they are stored, and never freed.
            if let Some(slot) = unsafe { found.as_ref() }
                && slot.process == process
            {
                return &slot.value;
            }
            // SAFETY: as above.
            let value = make(unsafe { found.as_ref() }.map(|parents| &parents.value));
            let before = AtomicPtr::new(found);
            let slot = Slot { process, value, _before: before };
            let made = Box::into_raw(Box::new(slot));
            match self.slot.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: as above.
                Ok(_) => return unsafe { &(*made).value },
                Err(other) => {
                    // SAFETY: another thread was first, so none has seen this one.
                    drop(unsafe { Box::from_raw(made) });
                    found = other;
                }
            }
        }
    }
}

impl<T: Clone + Default + Send + 'static> PerProcess<Mutex<T>> {
    /// This process's, which in a child begins as a copy of its parent's, unless a thread of the
    /// parent was about to change that.
    pub fn get_or_copy(&'static self) -> &'static Mutex<T> {
        self.get_or_make(|parents| {
            let parents = parents.and_then(|parents| parents.try_lock().ok());
            Mutex::new(parents.map(|parents| parents.clone()).unwrap_or_default())
        })
    }
}

/// The page that the kernel clears in a child.
#[derive(Debug)]
struct Mark {
    /// Number of the process; 0 in a child that has none yet.
    number: AtomicU64,
    /// A thread is about to give it one.
    claimed: AtomicBool,
}

impl Mark {
    const fn new() -> Self {
        Self { number: AtomicU64::new(0), claimed: AtomicBool::new(false) }
    }
}

/// In a page that is wiped in a child (`MADV_WIPEONFORK`), which works for every way to fork. If
/// the kernel lacks that (before 4.14, gVisor) it is [`UNWIPED`].
static MARK: AtomicPtr<Mark> = AtomicPtr::new(null_mut());
/// Cleared by the C library's fork handlers. They do not see a `clone` that goes around them.
static UNWIPED: Mark = Mark::new();
/// The highest number that this process or the ones it descends from have had. A child may get the
/// number that its parent is about to get: then it has nothing of the parent's under that number.
static LAST: AtomicU64 = AtomicU64::new(0);

#[inline]
fn generation() -> u64 {
    #[cfg(feature = "pretend")]
    if let Some(number) = pretended::number() {
        return number;
    }
    // SAFETY: the mark is never unmapped.
    if let Some(mark) = unsafe { MARK.load(Ordering::Acquire).as_ref() } {
        let number = mark.number.load(Ordering::Acquire);
        if number != 0 {
            return number;
        }
    }
    number_this_process()
}

#[cold]
fn number_this_process() -> u64 {
    let mark = mark();
    if !mark.claimed.swap(true, Ordering::AcqRel) {
        let number = LAST.load(Ordering::Relaxed) + 1;
        LAST.store(number, Ordering::Relaxed);
        // No open descriptor and no arena belongs to this process: no thread has its number yet.
        heap::inherit::make_private();
        fd::close_inherited();
        mark.number.store(number, Ordering::Release);
        return number;
    }
    loop {
        match mark.number.load(Ordering::Acquire) {
            0 => yield_now(),
            number => return number,
        }
    }
}

#[cold]
fn mark() -> &'static Mark {
    // SAFETY: once stored, it is never unmapped.
    if let Some(mark) = unsafe { MARK.load(Ordering::Acquire).as_ref() } {
        return mark;
    }
    let wiped = wiped_page();
    let made = wiped.map_or((&raw const UNWIPED).cast_mut(), NonNull::as_ptr);
    match MARK.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: in a child, the handlers close descriptors, map and copy memory and store
            // numbers, which is safe in a child of any process. Without them, for lack of memory, a
            // child finds out when it asks.
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        }
        Err(_) => {
            if let Some(page) = wiped {
                // SAFETY: no other thread has seen this mapping.
                let _ = unsafe { rustix::mm::munmap(page.as_ptr().cast(), page_len()) };
            }
        }
    }
    // SAFETY: as above; it is stored by now.
    unsafe { &*MARK.load(Ordering::Acquire) }
}

/// The program's allocator calls the handlers itself.
static BY_ALLOCATOR: AtomicBool = AtomicBool::new(false);

/// The handlers of a fork: before it, in the parent and in the child. For an allocator of the
/// program that calls the first behind those of all libraries, and the others in front of them, so
/// that the program's handlers find memory as it was.
pub fn handlers() -> [extern "C" fn(); 3] {
    extern "C" fn last_before() {
        heap::inherit::before_fork(true);
    }
    extern "C" fn first_in_child() {
        if !MARK.load(Ordering::Acquire).is_null() {
            in_child();
        }
    }
    BY_ALLOCATOR.store(true, Ordering::Relaxed);
    [last_before, in_parent, first_in_child]
}

extern "C" fn before() {
    if !BY_ALLOCATOR.load(Ordering::Relaxed) {
        heap::inherit::before_fork(false);
    }
}

extern "C" fn in_parent() {
    heap::inherit::in_parent();
}

extern "C" fn in_child() {
    if std::ptr::eq(MARK.load(Ordering::Acquire), &raw const UNWIPED) {
        UNWIPED.number.store(0, Ordering::Relaxed);
        UNWIPED.claimed.store(false, Ordering::Relaxed);
    }
    generation();
}

fn page_len() -> usize {
    rustix::param::page_size()
}

/// A page of zeros, which a mark without a number consists of.
fn wiped_page() -> Option<NonNull<Mark>> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing.
    // Private, as the advice asks for it.
    let page = unsafe {
        rustix::mm::mmap_anonymous(null_mut(), page_len(), access, MapFlags::PRIVATE).ok()?
    };
    // SAFETY: the mapping is ours alone, and this advice changes it in children only.
    if unsafe { rustix::mm::madvise(page, page_len(), Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: as above.
        let _ = unsafe { rustix::mm::munmap(page, page_len()) };
        return None;
    }
    NonNull::new(page.cast())
}

/// A thread that takes itself for one of a forked child: how a simulator sees what the library does
/// there.
#[cfg(feature = "pretend")]
mod pretended {
    use std::cell::Cell;

    thread_local! {
        static CHILD: Cell<bool> = const { Cell::new(false) };
    }

    /// No process has it.
    const NUMBER: u64 = u64::MAX;

    pub(super) fn number() -> Option<u64> {
        CHILD.get().then_some(NUMBER)
    }

    /// Makes all that this thread inherits dead until the result is dropped. It makes nothing
    /// meanwhile.
    pub fn pretend_child() -> Pretence {
        CHILD.set(true);
        Pretence(())
    }

    /// See [`pretend_child`].
    #[derive(Debug)]
    pub struct Pretence(());

    impl Drop for Pretence {
        fn drop(&mut self) {
            CHILD.set(false);
        }
    }
}

#[cfg(feature = "pretend")]
pub use pretended::{Pretence, pretend_child};

/// Taken by tests that fork, shared by those that a child may disturb.
#[cfg(test)]
static CHILDREN: std::sync::RwLock<()> = std::sync::RwLock::new(());

/// Keeps tests beside the caller's from forking until it is dropped: a child holds all sockets of
/// the process until it ends.
#[cfg(test)]
pub(crate) fn without_children() -> std::sync::RwLockReadGuard<'static, ()> {
    CHILDREN.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs `f` in a forked child, which then exits with its result; returns that.
///
/// The child has one thread, even if the parent has more: `f` must neither allocate nor lock.
#[cfg(test)]
pub(crate) fn in_child_process(f: impl FnOnce() -> i32) -> i32 {
    let _alone = CHILDREN.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    in_grandchild(f)
}

/// As [`in_child_process`], for use inside of its `f`.
#[cfg(test)]
pub(crate) fn in_grandchild(f: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls `f`, which keeps to system calls, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe { libc::_exit(f()) };
    }
    wait_for(child)
}

#[cfg(test)]
fn wait_for(child: libc::pid_t) -> i32 {
    assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: writes to `status`, which outlives the call.
    while unsafe { libc::waitpid(child, &mut status, 0) } != child {}
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, RawFd};

    use super::*;
    use crate::fd::FdPlace;
    use crate::poll::{EventFd, EventFdKind};

    #[test]
    fn a_child_and_its_child_notice() {
        let here = ForkGeneration::new();
        assert!(!here.forked());
        let code = in_child_process(|| {
            let child = ForkGeneration::new();
            let noticed = here.forked() && !child.forked();
            let grandchild = in_grandchild(|| i32::from(here.forked() && child.forked()));
            i32::from(noticed) + 2 * grandchild
        });
        assert_eq!(code, 3);
        assert!(!here.forked());
    }

    /// A program may call `clone` itself, or a library fork without handlers.
    #[test]
    fn a_child_made_around_the_c_library_notices() {
        let here = ForkGeneration::new();
        let wiped = !std::ptr::eq(MARK.load(Ordering::Acquire), &raw const UNWIPED);
        let internal = EventFd::new(EventFdKind::Counter, FdPlace::Internal).unwrap();
        let number = internal.as_raw_fd();
        // SAFETY: no stack, no flags: a fork. The child makes system calls and leaves.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            let before = is_open(number);
            let code = i32::from(here.forked()) + 2 * i32::from(before && !is_open(number));
            // SAFETY: leaves without running anything.
            unsafe { libc::_exit(code) };
        }
        let code = wait_for(child as libc::pid_t);
        assert!(code == 3 || !wiped && code == 0, "{code}");
    }

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: asks about a number.
        unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
    }

    #[test]
    fn a_child_has_none_of_our_descriptors_and_may_reuse_their_numbers() {
        let internal = EventFd::new(EventFdKind::Counter, FdPlace::Internal).unwrap();
        let program = EventFd::new(EventFdKind::Counter, FdPlace::Program).unwrap();
        let number = internal.as_raw_fd();
        let code = in_child_process(|| {
            let closed = !is_open(number);
            let kept = is_open(program.as_raw_fd());
            // SAFETY: a new descriptor under the number that was closed.
            let reused = unsafe { libc::dup2(program.as_raw_fd(), number) } == number;
            // The child lets go of what it inherited: that is not its own file.
            drop(internal);
            i32::from(closed) + 2 * i32::from(kept) + 4 * i32::from(reused && is_open(number))
        });
        assert_eq!(code, 7);
    }

    #[test]
    fn a_child_has_statics_of_its_own() {
        static MINE: PerProcess<std::sync::Mutex<u32>> = PerProcess::new();
        // Held across the fork.
        let held = MINE.get().lock().unwrap();
        let code = in_child_process(|| {
            let mut own = MINE.get().lock().unwrap();
            *own += 1;
            *own as i32
        });
        assert_eq!((code, *held), (1, 0));
    }
}
