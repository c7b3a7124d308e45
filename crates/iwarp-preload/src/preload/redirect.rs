// SPDX-License-Identifier: MIT OR Apache-2.0

//! From the path that a program names to the path that is opened.

use core::cell::UnsafeCell;
use core::ffi::c_char;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::SHOWN;
use super::c;

/// Of a path, with its NUL.
const MAX: usize = c::PATH_MAX;

/// The path of the tree. A copy: programs that change their title overwrite the environment.
struct Tree {
    path: UnsafeCell<[u8; MAX]>,
    /// Its length, or one of the numbers below.
    length: AtomicUsize,
}

/// No thread has looked at the environment yet.
const UNKNOWN: usize = usize::MAX;
/// A thread is looking at it.
const BUSY: usize = usize::MAX - 1;
/// There is no tree.
const NONE: usize = 0;

// SAFETY: the thread that made UNKNOWN into BUSY writes the path; it is read once a length is
// there.
unsafe impl Sync for Tree {}

static TREE: Tree = Tree { path: UnsafeCell::new([0; MAX]), length: AtomicUsize::new(UNKNOWN) };

/// Reads the environment before the program runs, while nothing else does.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        tree();
    }
    at_load
};

/// The path of the tree, without a NUL.
pub(crate) fn tree() -> Option<(*const u8, usize)> {
    let mut length = TREE.length.load(Ordering::Acquire);
    if length == UNKNOWN {
        length = look_up();
    }
    let known = length != NONE && length != BUSY;
    known.then(|| (TREE.path.get().cast_const().cast(), length))
}

#[cold]
fn look_up() -> usize {
    let turn = (Ordering::Acquire, Ordering::Acquire);
    if let Err(length) = TREE.length.compare_exchange(UNKNOWN, BUSY, turn.0, turn.1) {
        return length;
    }
    // SAFETY: this is the one thread that has made it busy.
    let length = unsafe { copy_variable(TREE.path.get().cast()) }.unwrap_or(NONE);
    TREE.length.store(length, Ordering::Release);
    length
}

/// Copies the value of the variable and returns its length.
///
/// # Safety
///
/// The `MAX` bytes at `to` are the caller's alone.
unsafe fn copy_variable(to: *mut u8) -> Option<usize> {
    // SAFETY: it has no requirements.
    if unsafe { c::getauxval(c::AT_SECURE) } != 0 {
        return None;
    }
    // SAFETY: the name ends with a NUL; before `main` nothing changes the environment.
    let value = unsafe { c::getenv(c"IWARP_SYSFS".as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; `getenv` gives null or a string, which nothing changes before
    // `main`.
    let length = unsafe { append(to, 0, MAX, value.cast()) }?;
    // SAFETY: just written, a NUL at least.
    (unsafe { to.read() } == b'/').then_some(length)
}

/// Writes a string behind the first `at` bytes of `to`, with its NUL. Returns where that is, or
/// `None` where it does not fit into `room`.
///
/// # Safety
///
/// `to` has `room` bytes; `from` is a string elsewhere.
pub(crate) unsafe fn append(
    to: *mut u8,
    mut at: usize,
    room: usize,
    mut from: *const u8,
) -> Option<usize> {
    while at < room {
        // SAFETY: within the string and the room.
        let octet = unsafe { from.read() };
        // SAFETY: as above.
        unsafe { to.add(at).write(octet) };
        if octet == 0 {
            return Some(at);
        }
        at = at.wrapping_add(1);
        from = from.wrapping_add(1);
    }
    None
}

/// Gives `call` the path that stands for `named`: one in the tree, or `named` itself. The second
/// argument says whether it is the former.
///
/// # Safety
///
/// `named` is null or a string, as its caller promised libc.
#[inline]
pub(crate) unsafe fn redirect<T>(
    named: *const c_char,
    call: impl Fn(*const c_char, bool) -> T,
) -> T {
    // SAFETY: the caller's promise.
    match unsafe { is_shown(named.cast()) }.then(tree).flatten() {
        // SAFETY: as above.
        Some(tree) => unsafe { in_tree(tree, named, call) },
        None => call(named, false),
    }
}

/// True if a path is below one of those that are shown.
///
/// # Safety
///
/// It is null or a string.
pub(crate) unsafe fn is_shown(path: *const u8) -> bool {
    if path.is_null() {
        return false;
    }
    for shown in &SHOWN {
        let mut rest = path;
        let mut same = true;
        for octet in shown.as_bytes() {
            // SAFETY: not beyond the string's NUL, which differs from all bytes here.
            if unsafe { rest.read() } != *octet {
                same = false;
                break;
            }
            rest = rest.wrapping_add(1);
        }
        // SAFETY: all before were equal to no NUL.
        if same && matches!(unsafe { rest.read() }, 0 | b'/') {
            return true;
        }
    }
    false
}

/// Calls with the path in the tree. Not part of its caller, whose stack stays small: other calls
/// come from anywhere.
///
/// # Safety
///
/// As [`redirect`]; `tree` is that of [`tree`].
#[inline(never)]
unsafe fn in_tree<T>(
    tree: (*const u8, usize),
    path: *const c_char,
    call: impl Fn(*const c_char, bool) -> T,
) -> T {
    // A name that is too long for libc is too long here.
    let mut buffer = core::mem::MaybeUninit::<[u8; 2 * MAX]>::uninit();
    let start = buffer.as_mut_ptr().cast::<u8>();
    // SAFETY: the tree's path ends with a NUL behind its length; the other is a string.
    let joined = unsafe {
        append(start, 0, MAX, tree.0).and_then(|at| append(start, at, 2 * MAX, path.cast()))
    };
    match joined {
        Some(_) => call(start.cast(), true),
        None => call(path, false),
    }
}
