// SPDX-License-Identifier: MIT OR Apache-2.0

//! The allocator behind this library: libc's, or another that the program is linked with.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::c;

/// A function that is looked up once.
struct Next {
    /// Ends with a NUL.
    name: &'static str,
    found: AtomicPtr<c_void>,
}

/// The thread that looks one up, by the address of its `errno`; 0 for none. The linker may allocate
/// for that, and then gets memory of [`Early`].
static LOOKS_UP: AtomicUsize = AtomicUsize::new(0);

fn this_thread() -> usize {
    // SAFETY: it says an address.
    unsafe { c::__errno_location() }.addr()
}

impl Next {
    const fn new(name: &'static str) -> Self {
        Self { name, found: AtomicPtr::new(null_mut()) }
    }

    /// Null where there is none, and in a call from within a look-up.
    #[inline]
    fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Acquire);
        if found.is_null() { self.look_up() } else { found }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        let here = this_thread();
        if LOOKS_UP.load(Ordering::Relaxed) == here {
            return null_mut();
        }
        while LOOKS_UP.compare_exchange(0, here, Ordering::Acquire, Ordering::Relaxed).is_err() {
            core::hint::spin_loop();
        }
        // SAFETY: the name is a string; RTLD_NEXT asks for the one behind this library's.
        let found = unsafe { c::dlsym(c::RTLD_NEXT, self.name.as_ptr().cast()) };
        self.found.store(found, Ordering::Release);
        LOOKS_UP.store(0, Ordering::Release);
        found
    }
}

/// Memory for the linker while it looks the allocator up. It is never given back.
struct Early(UnsafeCell<[u64; WORDS]>);

const WORDS: usize = 1024;

// SAFETY: each word is given out once.
unsafe impl Sync for Early {}

static EARLY: Early = Early(UnsafeCell::new([0; WORDS]));
static GIVEN: AtomicUsize = AtomicUsize::new(0);

impl Early {
    fn first(&self) -> *mut u64 {
        self.0.get().cast()
    }

    fn allocate(&self, len: usize) -> *mut c_void {
        let words = len.wrapping_add(15) / 16 * 2;
        let at = GIVEN.fetch_add(words.min(WORDS), Ordering::Relaxed);
        if words >= WORDS || at.wrapping_add(words) >= WORDS {
            return null_mut();
        }
        // One word further, the address is a multiple of 16 if that of the first is not.
        let odd = (self.first().addr() / 8) % 2;
        self.first().wrapping_add(at.wrapping_add(odd)).cast()
    }

    /// Another block, with what the one that is given had.
    fn again(&self, block: *mut c_void, len: usize) -> *mut c_void {
        let other = self.allocate(len);
        if !other.is_null() && self.holds(block.addr()) {
            let room = early_room(block);
            // SAFETY: both lie in this memory, which has so many bytes behind the block.
            unsafe { c::memmove(other, block, if len < room { len } else { room }) };
        }
        other
    }

    fn holds(&self, addr: usize) -> bool {
        addr.wrapping_sub(self.first().addr()) < WORDS * 8
    }
}

/// Defines functions that call those behind this library; what they do without, `else` says.
macro_rules! real {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?, else $otherwise:expr;)*) => {
        /// The functions.
        struct All {
            $($name: Next,)*
        }

        static ALL: All = All { $($name: Next::new(concat!(stringify!($name), "\0")),)* };

        /// Looks all of them up.
        pub(super) fn look_up_all() {
            $(ALL.$name.get();)*
            FREE.get();
        }
        $(
        /// The function of that name.
        ///
        /// # Safety
        ///
        /// The demands of libc's function hold.
        #[inline]
        pub(super) unsafe fn $name($($argument: $type),*) $(-> $result)? {
            let next = ALL.$name.get();
            if next.is_null() {
                return $otherwise;
            }
            // SAFETY: found under its name, which stands for this signature in libc's ABI.
            let next: unsafe extern "C" fn($($type),*) $(-> $result)? = unsafe { transmute(next) };
            // SAFETY: the caller's promise.
            unsafe { next($($argument),*) }
        }
        )*
    };
}

real! {
    malloc(len: usize) -> *mut c_void, else EARLY.allocate(len);
    calloc(count: usize, size: usize) -> *mut c_void,
        else EARLY.allocate(count.saturating_mul(size));
    realloc(block: *mut c_void, len: usize) -> *mut c_void, else EARLY.again(block, len);
    memalign(align: usize, len: usize) -> *mut c_void, else null_mut();
    aligned_alloc(align: usize, len: usize) -> *mut c_void, else null_mut();
    posix_memalign(to: *mut *mut c_void, align: usize, len: usize) -> c_int, else c::ENOMEM;
    valloc(len: usize) -> *mut c_void, else null_mut();
    pvalloc(len: usize) -> *mut c_void, else null_mut();
    malloc_usable_size(block: *mut c_void) -> usize, else 0;
}

static FREE: Next = Next::new("free\0");

/// True for a block that the linker was given while it looked the allocator up.
#[inline]
pub(super) fn is_early(block: *mut c_void) -> bool {
    EARLY.holds(block.addr())
}

/// The bytes at most that such a block has.
pub(super) fn early_room(block: *mut c_void) -> usize {
    (EARLY.first().addr() + WORDS * 8).wrapping_sub(block.addr())
}

/// Gives a block back to the allocator behind this library.
///
/// # Safety
///
/// It is a block of that, of [`EARLY`], or null.
#[inline]
pub(super) unsafe fn free(block: *mut c_void) {
    if is_early(block) {
        return;
    }
    let next = FREE.get();
    if !next.is_null() {
        // SAFETY: as above.
        let next: unsafe extern "C" fn(*mut c_void) = unsafe { transmute(next) };
        // SAFETY: the caller's promise.
        unsafe { next(block) };
    }
}
