// SPDX-License-Identifier: MIT OR Apache-2.0

//! An audit library (rtld-audit(7)) that gives programs the drop-in libraries where they bring
//! copies of their own along.
//!
//! Python wheels and others bundle `libibverbs-1a2b3c4d.so.1.14.48.0` and find it by a path that
//! goes before `LD_LIBRARY_PATH`, or open it by its whole path. `iwarp run` names this library in
//! `LD_AUDIT`, and the directory of the drop-in libraries in `IWARP_LIBRARIES`. The dynamic linker
//! then asks here, in every process, before it opens a library, and is told the path of ours where
//! [the name](name::Library) says that it is one of the two. Everything else is as it was.
//!
//! It is asked about nothing else (`la_objopen` is absent, so no call of the program goes through
//! here), and it needs no other library, so that there is no second libc in the process.

mod name;

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_uint};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use name::Library;

/// Of a path.
const MAX: usize = 4096;

/// The path of a library as the dynamic linker is told it.
struct LibraryPath {
    path: UnsafeCell<[u8; MAX]>,
    /// Null until it is known.
    known: AtomicPtr<c_char>,
    /// True if it was an answer, so that it may be loaded.
    answered: AtomicBool,
}

// SAFETY: the path is written once, before `known` says that it is there, and then only read.
unsafe impl Sync for LibraryPath {}

impl LibraryPath {
    const fn new() -> Self {
        Self {
            path: UnsafeCell::new([0; MAX]),
            known: AtomicPtr::new(ptr::null_mut()),
            answered: AtomicBool::new(false),
        }
    }

    /// Notes `directory/name`, unless that is too long.
    ///
    /// # Safety
    ///
    /// `directory` is a string; this is called once, before the first question.
    unsafe fn set(&self, directory: *const u8, name: &[u8]) {
        let path = self.path.get().cast::<u8>();
        // SAFETY: the caller's promise.
        let length = unsafe { length(directory) };
        // The rest stays zero.
        if length.wrapping_add(name.len()) >= MAX {
            return;
        }
        for place in 0..length {
            // SAFETY: within the string, and within the path by the check above.
            unsafe { path.add(place).write(directory.add(place).read()) };
        }
        let mut end = length;
        for octet in name {
            // SAFETY: as above.
            unsafe { path.add(end).write(*octet) };
            end = end.wrapping_add(1);
        }
        self.known.store(path.cast(), Ordering::Release);
    }
}

static VERBS: LibraryPath = LibraryPath::new();
static CM: LibraryPath = LibraryPath::new();

/// Reads the environment, which the dynamic linker of glibc hands to functions that it calls at
/// load, so that no libc is needed for it.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = {
    unsafe extern "C" fn at_load(
        _argc: c_int,
        _argv: *const *const c_char,
        environment: *const *const c_char,
    ) {
        // SAFETY: glibc passes a list of strings with a null at its end, or null.
        if let Some(directory) = unsafe { variable(environment, b"IWARP_LIBRARIES=/") } {
            // SAFETY: a part of such a string; glibc asks for nothing before the library is loaded.
            unsafe {
                VERBS.set(directory, b"/libibverbs.so.1");
                CM.set(directory, b"/librdmacm.so.1");
            }
        }
    }
    at_load
};

/// The value that follows `start` in the environment; the last byte of `start` is part of it.
///
/// # Safety
///
/// `environment` is null, or a list of strings with a null at its end.
unsafe fn variable(mut environment: *const *const c_char, start: &[u8]) -> Option<*const u8> {
    if environment.is_null() {
        return None;
    }
    loop {
        // SAFETY: not beyond the null, as the loop ends there.
        let entry = unsafe { environment.read() }.cast::<u8>();
        if entry.is_null() {
            return None;
        }
        let mut same = 0;
        for octet in start {
            // SAFETY: all before were equal and not NUL, so the string goes on.
            if unsafe { entry.add(same).read() } != *octet {
                break;
            }
            same = same.wrapping_add(1);
        }
        if same == start.len() {
            return Some(entry.wrapping_add(same.wrapping_sub(1)));
        }
        environment = environment.wrapping_add(1);
    }
}

/// Bytes of a string without its NUL: `strlen` without libc.
///
/// # Safety
///
/// `text` is a string.
unsafe fn length(text: *const u8) -> usize {
    let mut length: usize = 0;
    // SAFETY: not beyond its NUL. Volatile, or the compiler would make a call of strlen(3) of it.
    while unsafe { text.add(length).read_volatile() } != 0 {
        length = length.wrapping_add(1);
    }
    length
}

/// The version of the interface: whichever the dynamic linker has, as no more is used than the
/// first one had.
#[unsafe(no_mangle)]
extern "C" fn la_version(version: c_uint) -> c_uint {
    version
}

/// The name as it was asked for (`LA_SER_ORIG`); other numbers: a place where it was looked for.
const AS_ASKED: c_uint = 1;

/// The path that is opened in the place of `name`.
///
/// The dynamic linker must remember the library under each name that was asked for, to know it
/// again when others need that name, or versions of its symbols. When the answer comes at once it
/// remembers the name of a library that it loads now, but not another name of one that it has. So
/// further names are left to the search, and the answer is to each place where it looks: then it
/// takes the file for the one of that name. (It would do so for the first one too, but calls the
/// library by the path of that place from then on, which confuses debuggers.)
///
/// # Safety
///
/// `name` is a string of the dynamic linker's.
#[unsafe(no_mangle)]
unsafe extern "C" fn la_objsearch(
    name: *const c_char,
    _cookie: *mut usize,
    flag: c_uint,
) -> *mut c_char {
    // SAFETY: the caller's promise.
    let text = unsafe { core::slice::from_raw_parts(name.cast::<u8>(), length(name.cast())) };
    let path = match Library::of(text) {
        Some(Library::Verbs) => &VERBS,
        Some(Library::Cm) => &CM,
        None => return name.cast_mut(),
    };
    let known = path.known.load(Ordering::Acquire);
    let further =
        path.answered.swap(true, Ordering::Relaxed) && flag == AS_ASKED && !has_slash(text);
    if further || known.is_null() { name.cast_mut() } else { known }
}

fn has_slash(mut text: &[u8]) -> bool {
    while let [first, rest @ ..] = text {
        if *first == b'/' {
            return true;
        }
        text = rest;
    }
    false
}
