//! The list of devices: one, which is always there.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use iwarp::{Log, Options, Personality};

use crate::abi::flags::{IBV_NODE_CA, IBV_NODE_RNIC, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP};
use crate::abi::{Plain, ibv_device};
use crate::guard::{self, Errno, INVALID};

/// Where the system would keep what is known about devices.
pub(crate) const FOLDER: &str = "/sys/class/infiniband/";

/// Driver libraries look behind a device for structures of their own (`struct verbs_device`); they
/// must find nothing there.
#[repr(C)]
struct Listed {
    device: ibv_device,
    tail: [u64; 32],
}

// SAFETY: written before it is shared, and only read afterwards.
unsafe impl Send for Listed {}
// SAFETY: as above.
unsafe impl Sync for Listed {}

/// The device, as a program sees it.
///
/// # Errors
///
/// `EINVAL` where a variable `IWARP_...` makes no sense; the user is told which.
pub fn device() -> Result<*mut ibv_device, Errno> {
    static DEVICE: OnceLock<Result<Listed, Errno>> = OnceLock::new();

    guard::prepare();
    let listed = DEVICE.get_or_init(|| match Options::from_env() {
        Ok(options) => Ok(describe(options.personality)),
        Err(error) => {
            guard::say(Log::Error, format_args!("{error}"));
            Err(INVALID)
        }
    });
    listed.as_ref().map(|listed| (&raw const listed.device).cast_mut()).map_err(|error| *error)
}

fn describe(personality: Personality) -> Listed {
    let mut device = ibv_device::zeroed();
    let (name, node, transport) = match personality {
        Personality::Iwarp => ("iwarp0", IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
        Personality::Roce => ("roce0", IBV_NODE_CA, IBV_TRANSPORT_IB),
    };
    (device.node_type, device.transport_type) = (node, transport);
    write_str(&mut device.name, name);
    write_str(&mut device.dev_name, "uverbs0");
    write_str(&mut device.dev_path, "/sys/class/infiniband_verbs/uverbs0");
    write_str(&mut device.ibdev_path, &format!("{FOLDER}{name}"));
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
        let mut count = 0;
        let list = device().map(|device| {
            count = 1;
            Box::into_raw(Box::new([device, std::ptr::null_mut()]))
        });
        if let Some(num_devices) = num_devices {
            *num_devices = count;
        }
        Ok(list?.cast())
    })
}

/// `ibv_free_device_list`
pub extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if !list.is_null() {
        // SAFETY: the program gives back what `ibv_get_device_list` gave it.
        drop(unsafe { Box::from_raw(list.cast::<[*mut ibv_device; 2]>()) });
    }
}

/// `ibv_get_device_name`
pub extern "C" fn ibv_get_device_name(device: &ibv_device) -> *const c_char {
    device.name.as_ptr()
}

/// `ibv_get_device_guid`: in network order.
pub extern "C" fn ibv_get_device_guid(_: &ibv_device) -> u64 {
    guard::value(0, || u64::from_ne_bytes(super::query::guid()))
}

/// `ibv_get_device_index`
pub extern "C" fn ibv_get_device_index(_: &ibv_device) -> c_int {
    0
}
