//! What this device does not have: each call fails as with a device that lacks the feature.

use std::ffi::{c_int, c_void};

use crate::guard::{UNSUPPORTED, set_errno};

/// For functions that return an error number.
pub extern "C" fn errno() -> c_int {
    set_errno(UNSUPPORTED);
    UNSUPPORTED.0
}

/// For functions that return -1.
pub extern "C" fn minus_one() -> c_int {
    set_errno(UNSUPPORTED);
    -1
}

/// For functions that return an object.
pub extern "C" fn null() -> *mut c_void {
    set_errno(UNSUPPORTED);
    std::ptr::null_mut()
}

/// For functions that return nothing.
pub extern "C" fn nothing() {}
