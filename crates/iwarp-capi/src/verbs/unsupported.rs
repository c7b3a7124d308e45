// SPDX-License-Identifier: MIT OR Apache-2.0

//! The features that this device lacks: each call fails as with a device that has not got them.

use std::ffi::{c_int, c_void};

use iwarp::Log;

use super::historical;
use crate::guard::{say, set_errno};

/// The calls that a program may make in vain.
#[derive(Clone, Copy, Debug)]
pub enum Missing {
    /// A function of this name. Many programs only try it, and say so themselves when they cannot
    /// do without: the line is at the level `info`.
    Feature(&'static str),
    /// A function as it was before 2007.
    History,
}

impl Missing {
    fn tell(self) {
        match self {
            Self::Feature(name) => say(Log::Info, format_args!("{name}: not supported")),
            Self::History => historical::tell(),
        }
        set_errno(libc::EOPNOTSUPP);
    }
}

/// For functions that return an error number.
pub fn errno(missing: Missing) -> c_int {
    missing.tell();
    libc::EOPNOTSUPP
}

/// For functions that return -1.
pub fn minus_one(missing: Missing) -> c_int {
    missing.tell();
    -1
}

/// For functions that return an object.
pub fn null(missing: Missing) -> *mut c_void {
    missing.tell();
    std::ptr::null_mut()
}

/// For functions that return nothing.
pub extern "C" fn nothing() {}
