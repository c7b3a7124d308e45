//! Has this process been forked since?
//!
//! A forked child has a copy of all memory and none of the threads. Connections, locks and
//! registered memory in it belong to the parent, so every entry point asks first.

use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A mark that a forked child does not have.
///
/// The mark is a word in a page that the kernel clears in a child (`MADV_WIPEONFORK`), which works
/// for every way to fork. Where the kernel lacks it (before 4.14, gVisor) the C library's fork
/// handlers count forks instead; they do not see a `clone` that goes around the C library.
#[derive(Debug)]
pub struct ForkGeneration {
    mark: Mark,
    /// What the word holds in the process that made this.
    expected: u64,
}

#[derive(Debug)]
enum Mark {
    /// Start and length of a mapping of ours.
    Page(NonNull<AtomicU64>, usize),
    /// The count of the fork handler.
    Counter,
}

/// Forks this process descends from, counted only once the handler is installed.
static FORKS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the page is read and written through an atomic only, and unmapped by the owner's drop.
unsafe impl Send for ForkGeneration {}
// SAFETY: as above.
unsafe impl Sync for ForkGeneration {}

impl ForkGeneration {
    /// Marks this process.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub fn new() -> io::Result<Self> {
        match Self::on_page() {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(error),
            Err(_) => Self::counting(),
            page => page,
        }
    }

    /// Whether this is a child, of any depth, of the process that made the mark. One load.
    #[inline]
    pub fn forked(&self) -> bool {
        let word = match &self.mark {
            // SAFETY: the mapping lives as long as `self`, and holds an aligned, initialised word:
            // the mark, or zero after a fork.
            Mark::Page(word, _) => unsafe { word.as_ref() },
            Mark::Counter => &FORKS,
        };
        word.load(Ordering::Relaxed) != self.expected
    }

    fn on_page() -> io::Result<Self> {
        const MARK: u64 = 1;

        let len = rustix::param::page_size();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing.
        // Private, as the advice asks for it.
        let page = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE)?
        };
        let word = NonNull::new(page.cast::<AtomicU64>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // From here on dropping unmaps.
        let made = ForkGeneration { mark: Mark::Page(word, len), expected: MARK };
        // SAFETY: the mapping is ours alone, and this advice changes it in children only.
        unsafe { rustix::mm::madvise(page, len, Advice::LinuxWipeOnFork)? };
        // SAFETY: the page is mapped, writable, zero and aligned.
        unsafe { word.as_ref() }.store(MARK, Ordering::Relaxed);
        Ok(made)
    }

    fn counting() -> io::Result<Self> {
        static INSTALLED: OnceLock<i32> = OnceLock::new();

        extern "C" fn in_child() {
            FORKS.fetch_add(1, Ordering::Relaxed);
        }

        let error = *INSTALLED.get_or_init(|| {
            // SAFETY: the handler does nothing but count, which is safe in a child of any process.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) }
        });
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(ForkGeneration { mark: Mark::Counter, expected: FORKS.load(Ordering::Relaxed) })
    }
}

impl Drop for ForkGeneration {
    fn drop(&mut self) {
        if let Mark::Page(word, len) = self.mark {
            // SAFETY: the mapping was made by `on_page`, and nobody holds a reference into it now.
            // In a child it is the child's copy.
            let _ = unsafe { rustix::mm::munmap(word.as_ptr().cast(), len) };
        }
    }
}

/// Runs `f` in a forked child, which then exits with its result; returns that.
///
/// The child has one thread, whatever the parent had: `f` must neither allocate nor lock.
#[cfg(test)]
pub(crate) fn in_child(f: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls `f`, which keeps to system calls, and leaves by `_exit`.
    unsafe {
        match libc::fork() {
            -1 => panic!("fork: {}", io::Error::last_os_error()),
            0 => libc::_exit(f()),
            child => {
                let mut status = 0;
                while libc::waitpid(child, &mut status, 0) != child {}
                if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mark: &ForkGeneration) {
        assert!(!mark.forked());
        let code = in_child(|| {
            let child = mark.forked();
            let grandchild = in_child(|| i32::from(mark.forked()));
            i32::from(child) + 2 * grandchild
        });
        assert_eq!(code, 3);
        assert!(!mark.forked());
    }

    #[test]
    fn a_child_and_its_child_notice() {
        check(&ForkGeneration::new().unwrap());
    }

    #[test]
    fn the_page_is_wiped() {
        // Not on a kernel without the advice, which says so.
        match ForkGeneration::on_page() {
            Ok(mark) => check(&mark),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::InvalidInput),
        }
    }

    #[test]
    fn the_counter_works_too() {
        check(&ForkGeneration::counting().unwrap());
    }

    #[test]
    fn a_child_can_mark_itself() {
        for make in [ForkGeneration::on_page, ForkGeneration::counting] {
            let Ok(parent) = make() else { continue };
            let code = in_child(|| match make() {
                Ok(own) => i32::from(parent.forked() && !own.forked()),
                Err(_) => 2,
            });
            assert_eq!(code, 1);
        }
    }
}
