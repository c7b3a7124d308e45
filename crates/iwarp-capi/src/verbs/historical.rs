// SPDX-License-Identifier: MIT OR Apache-2.0

//! `IBVERBS_1.0`: the functions that programs linked before 2007 call. Their structures are other
//! ones, so they are shown no device; all other calls fail.

use std::ffi::{c_int, c_void};

use iwarp::Log;

use crate::calls::called;
use crate::guard::{self, Once};

/// `ibv_get_device_list@IBVERBS_1.0`: an empty list.
pub extern "C" fn ibv_get_device_list(num_devices: Option<&mut c_int>) -> *mut *mut c_void {
    guard::prepare();
    guard::object(called!(ibv_get_device_list(num_devices)), || {
        tell();
        if let Some(num_devices) = num_devices {
            *num_devices = 0;
        }
        Ok(Box::into_raw(Box::new(std::ptr::null_mut())))
    })
}

/// `ibv_free_device_list@IBVERBS_1.0`
pub extern "C" fn ibv_free_device_list(list: *mut *mut c_void) {
    if !list.is_null() {
        // SAFETY: the program gives back what `ibv_get_device_list` of this version gave it.
        drop(unsafe { Box::from_raw(list) });
    }
}

/// `ibv_get_device_guid@IBVERBS_1.0`
pub extern "C" fn ibv_get_device_guid(_: *mut c_void) -> u64 {
    0
}

/// Tells the user once.
pub(super) fn tell() {
    static ONCE: Once = Once::new();

    let line = "this program was linked to libibverbs 1.0 (before 2007): link it anew";
    ONCE.say(Log::Error, format_args!("{line}"));
}
