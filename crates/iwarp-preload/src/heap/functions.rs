// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions that give blocks out and take them back.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::{c, real};

/// Bytes of a block from which on it is shared: each takes whole pages and, when it is given out
/// and taken back, the time of a system call.
const LEAST: usize = 32 << 10;
/// The least for blocks that begin on a page, as those for transfers do.
const LEAST_OF_PAGES: usize = 4096;

/// The memory that is shared, as in the drop-in library. All of it stays as long as the process.
#[repr(C)]
struct Shared {
    /// A block of so many bytes, of that alignment, zeros if they are to be; null for none.
    allocate: unsafe extern "C" fn(len: usize, align: usize, zeroed: bool) -> *mut c_void,
    free: unsafe extern "C" fn(block: *mut c_void),
    /// The bytes that a block has room for.
    room: unsafe extern "C" fn(block: *mut c_void) -> usize,
    /// Before a fork, in the parent and in the child.
    fork: [extern "C" fn(); 3],
    /// Its blocks are at these addresses, and nothing else is.
    first: usize,
    len: usize,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(null_mut());
static FIRST: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);

/// Has large blocks come from there from now on.
///
/// # Safety
///
/// It stays as it is, and its functions keep to what is said of them.
#[unsafe(no_mangle)]
unsafe extern "C" fn iwarp_heap_set(shared: *mut Shared) {
    // SAFETY: the caller's promise.
    let (first, len) = unsafe { ((*shared).first, (*shared).len) };
    FIRST.store(first, Ordering::Relaxed);
    SHARED.store(shared, Ordering::Release);
    // The last: with it, the others are there.
    LEN.store(len, Ordering::Release);
}

/// At load, before the constructors of all other libraries (`-z initfirst`).
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        // Before there are threads. The loader's lock is not to be waited for later.
        real::look_up_all();
        // Behind the handlers of other libraries before a fork, and in front of them behind it.
        // SAFETY: the handlers stay, as the library does.
        unsafe {
            c::__register_atfork(Some(before_fork), Some(in_parent), Some(in_child), null_mut());
        }
    }
    at_load
};

/// The heap, once it was set.
fn heap() -> Option<&'static Shared> {
    // SAFETY: null, or what was set, which stays as it is.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

fn fork_handler(number: usize) {
    if let Some(handler) = heap().and_then(|heap| heap.fork.get(number)) {
        handler();
    }
}

extern "C" fn before_fork() {
    fork_handler(0);
}

extern "C" fn in_parent() {
    fork_handler(1);
}

extern "C" fn in_child() {
    fork_handler(2);
}

/// True for a block that is shared.
#[inline]
fn is_shared(block: *mut c_void) -> bool {
    // In this order: before it is set, the length is 0.
    let len = LEN.load(Ordering::Acquire);
    block.addr().wrapping_sub(FIRST.load(Ordering::Relaxed)) < len
}

/// A block that is shared if it is large enough for that, of zeros if it is to be; null for one of
/// the other kind. An alignment that is no power of two is libc's to judge; 0 is any.
#[inline]
fn shared(len: usize, align: usize, zeroed: bool) -> *mut c_void {
    let least = if align >= LEAST_OF_PAGES { LEAST_OF_PAGES } else { LEAST };
    let suits = len >= least && (align == 0 || align.is_power_of_two());
    if suits { large(len, align, zeroed) } else { null_mut() }
}

#[cold]
fn large(len: usize, align: usize, zeroed: bool) -> *mut c_void {
    let Some(heap) = heap() else { return null_mut() };
    // SAFETY: as promised.
    keep_errno(|| unsafe { (heap.allocate)(len, align, zeroed) })
}

/// A call that succeeds leaves `errno` alone.
fn keep_errno<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: it gives the address of this thread's own.
    let errno = unsafe { c::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let result = call();
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}

/// Bytes of a page of the system.
fn page() -> usize {
    // SAFETY: asks for a number.
    unsafe { c::getauxval(c::AT_PAGESZ) as usize }
}

fn no_memory() -> *mut c_void {
    // SAFETY: it gives the address of this thread's own.
    unsafe { *c::__errno_location() = c::ENOMEM };
    null_mut()
}

#[cold]
fn free_shared(block: *mut c_void) {
    if let Some(heap) = heap() {
        // SAFETY: as promised.
        keep_errno(|| unsafe { (heap.free)(block) });
    }
}

/// The bytes of a block that is not the allocator's behind this library.
#[cold]
fn room(block: *mut c_void) -> usize {
    if real::is_early(block) {
        return real::early_room(block);
    }
    // SAFETY: as promised.
    heap().map_or(0, |heap| unsafe { (heap.room)(block) })
}

/// Defines functions of libc.
macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => { $(
        /// The function of libc; its name alone makes it visible.
        ///
        /// # Safety
        ///
        /// The demands of libc's function hold.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? $body
    )* };
}

functions! {
    fn malloc(len: usize) -> *mut c_void {
        let block = shared(len, 0, false);
        // SAFETY: as this function.
        if block.is_null() { unsafe { real::malloc(len) } } else { block }
    }

    fn calloc(count: usize, size: usize) -> *mut c_void {
        let block = shared(count.saturating_mul(size), 0, true);
        // SAFETY: as this function.
        if block.is_null() { unsafe { real::calloc(count, size) } } else { block }
    }

    fn free(block: *mut c_void) {
        if is_shared(block) {
            return free_shared(block);
        }
        // SAFETY: as this function.
        unsafe { real::free(block) }
    }

    fn free_sized(block: *mut c_void, _len: usize) {
        // SAFETY: as this function.
        unsafe { free(block) }
    }

    fn free_aligned_sized(block: *mut c_void, _align: usize, _len: usize) {
        // SAFETY: as this function.
        unsafe { free(block) }
    }

    fn realloc(block: *mut c_void, len: usize) -> *mut c_void {
        // SAFETY: as this function.
        unsafe {
            if block.is_null() {
                return malloc(len);
            }
            if !is_shared(block) && !real::is_early(block) {
                return real::realloc(block, len);
            }
        }
        let room = room(block);
        if len == 0 {
            // SAFETY: as this function.
            unsafe { free(block) };
            return null_mut();
        }
        if len <= room && len >= room / 2 {
            return block;
        }
        // SAFETY: as this function; the blocks are two, and have as much.
        unsafe {
            let other = malloc(len);
            if !other.is_null() {
                c::memcpy(other, block, if len < room { len } else { room });
                free(block);
            }
            other
        }
    }

    fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
        match count.checked_mul(size) {
            // SAFETY: as this function.
            Some(len) => unsafe { realloc(block, len) },
            None => no_memory(),
        }
    }

    fn malloc_usable_size(block: *mut c_void) -> usize {
        // SAFETY: as this function.
        let is_own = is_shared(block) || real::is_early(block);
        // SAFETY: as this function.
        if is_own { room(block) } else { unsafe { real::malloc_usable_size(block) } }
    }

    fn posix_memalign(to: *mut *mut c_void, align: usize, len: usize) -> c_int {
        if align >= size_of::<usize>() {
            let block = shared(len, align, false);
            if !block.is_null() {
                // SAFETY: as this function.
                unsafe { to.write(block) };
                return 0;
            }
        }
        // SAFETY: as this function.
        unsafe { real::posix_memalign(to, align, len) }
    }

    fn aligned_alloc(align: usize, len: usize) -> *mut c_void {
        let block = shared(len, align, false);
        // SAFETY: as this function.
        if block.is_null() { unsafe { real::aligned_alloc(align, len) } } else { block }
    }

    fn memalign(align: usize, len: usize) -> *mut c_void {
        let block = shared(len, align, false);
        // SAFETY: as this function.
        if block.is_null() { unsafe { real::memalign(align, len) } } else { block }
    }

    fn valloc(len: usize) -> *mut c_void {
        let block = shared(len, page(), false);
        // SAFETY: as this function.
        if block.is_null() { unsafe { real::valloc(len) } } else { block }
    }

    fn pvalloc(len: usize) -> *mut c_void {
        let page = page();
        let block = shared(len.saturating_add(page - 1) & !(page - 1), page, false);
        // SAFETY: as this function.
        if block.is_null() { unsafe { real::pvalloc(len) } } else { block }
    }
}
