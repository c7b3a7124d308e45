//! The list of devices: one, which is always there, or those that the user has named.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use iwarp::{Log, NamedDevice, Options, Personality};

use crate::abi::flags::{IBV_NODE_CA, IBV_NODE_RNIC, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP};
use crate::abi::{Plain, ibv_device};
use crate::guard::{self, Errno, INVALID};

/// Where the system would keep what is known about devices.
pub(crate) const FOLDER: &str = "/sys/class/infiniband/";

/// A device, as a program sees it.
///
/// Driver libraries look behind a device for structures of their own (`struct verbs_device`); they
/// must find nothing there.
#[repr(C)]
pub(crate) struct Listed {
    device: ibv_device,
    tail: [u64; 32],
}

// SAFETY: written before it is shared, and only read afterwards.
unsafe impl Send for Listed {}
// SAFETY: as above.
unsafe impl Sync for Listed {}

impl Listed {
    /// The pointer that programs know it by.
    pub(crate) fn as_abi(&self) -> *mut ibv_device {
        (&raw const self.device).cast_mut()
    }
}

/// The devices of this process.
///
/// # Errors
///
/// `EINVAL` where a variable `IWARP_...` makes no sense; the user is told which.
pub(crate) fn devices() -> Result<&'static [Listed], Errno> {
    static DEVICES: OnceLock<Result<Vec<Listed>, Errno>> = OnceLock::new();

    guard::prepare();
    let listed = DEVICES.get_or_init(|| match Options::for_any_program().with_env() {
        Ok(options) => {
            let devices = options.devices();
            let devices = devices.iter().enumerate();
            let listed = devices.map(|(place, named)| describe(options.personality, place, named));
            Ok(listed.collect())
        }
        Err(error) => {
            guard::say(Log::Error, format_args!("{error}"));
            Err(INVALID)
        }
    });
    listed.as_deref().map_err(|error| *error)
}

/// Where a device stands among them; that of the first one for a pointer to none.
pub(crate) fn place(device: *const ibv_device) -> usize {
    let devices = devices().unwrap_or_default();
    devices.iter().position(|listed| std::ptr::eq(listed.as_abi(), device)).unwrap_or(0)
}

/// Where the device of this name stands.
pub(crate) fn place_of_name(name: &str) -> Option<usize> {
    let same = |listed: &Listed| {
        // SAFETY: `write_str` has ended it with a NUL.
        unsafe { CStr::from_ptr(listed.device.name.as_ptr()) }.to_bytes() == name.as_bytes()
    };
    devices().ok()?.iter().position(same)
}

fn describe(personality: Personality, place: usize, named: &NamedDevice) -> Listed {
    let mut device = ibv_device::zeroed();
    let (node, transport) = match personality {
        Personality::Iwarp => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
        Personality::Roce => (IBV_NODE_CA, IBV_TRANSPORT_IB),
    };
    (device.node_type, device.transport_type) = (node, transport);
    write_str(&mut device.name, &named.name);
    write_str(&mut device.dev_name, &format!("uverbs{place}"));
    write_str(&mut device.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{place}"));
    write_str(&mut device.ibdev_path, &format!("{FOLDER}{}", named.name));
    Listed { device, tail: [0; 32] }
}

/// Writes as much of `text` as fits, and a NUL.
pub(crate) fn write_str(into: &mut [c_char], text: &str) {
    let Some((end, room)) = into.split_last_mut() else { return };
    *end = 0;
    room.fill(0);
    for (to, from) in room.iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
}

/// `ibv_get_device_list`
pub extern "C" fn ibv_get_device_list(num_devices: Option<&mut c_int>) -> *mut *mut ibv_device {
    guard::object(|| {
        let devices = devices();
        if let Some(num_devices) = num_devices {
            let count = devices.map_or(0, <[_]>::len);
            *num_devices = c_int::try_from(count).unwrap_or(c_int::MAX);
        }
        Ok(Listing::of(devices?.iter().map(Listed::as_abi)))
    })
}

/// `ibv_free_device_list`
pub extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the program gives back what `ibv_get_device_list` gave it.
    unsafe { Listing::free(list) }
}

/// A list that a program gets, with a null at its end.
pub(crate) struct Listing;

impl Listing {
    pub(crate) fn of<T>(pointers: impl Iterator<Item = *mut T>) -> *mut *mut T {
        let all: Box<[*mut T]> = pointers.chain([std::ptr::null_mut()]).collect();
        Box::into_raw(all).cast()
    }

    /// # Safety
    ///
    /// `list` is null or from [`Self::of`], as that made it.
    pub(crate) unsafe fn free<T>(list: *mut *mut T) {
        if list.is_null() {
            return;
        }
        let mut length = 1;
        // SAFETY: the list ends with a null.
        while !unsafe { list.add(length - 1).read() }.is_null() {
            length += 1;
        }
        // SAFETY: of this length, and nobody uses it any more.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, length)) });
    }
}

/// `ibv_get_device_name`
pub extern "C" fn ibv_get_device_name(device: &ibv_device) -> *const c_char {
    device.name.as_ptr()
}

/// `ibv_get_device_guid`: in network order.
pub extern "C" fn ibv_get_device_guid(device: &ibv_device) -> u64 {
    guard::value(0, || u64::from_ne_bytes(super::query::guid(place(device))))
}

/// `ibv_get_device_index`
pub extern "C" fn ibv_get_device_index(device: &ibv_device) -> c_int {
    guard::value(0, || c_int::try_from(place(device)).unwrap_or(0))
}
