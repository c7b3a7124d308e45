// SPDX-License-Identifier: MIT OR Apache-2.0

//! The list of devices: one, which is always there, or those that the user has named.

use std::ffi::{CStr, c_char, c_int};

use iwarp::{Log, NamedDevice, OptionError, Options, Personality};
use once_cell::race::OnceBox;

use crate::abi::flags::{IBV_NODE_CA, IBV_NODE_RNIC, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP};
use crate::abi::{Plain, ibv_device};
use crate::calls::called;
use crate::guard::{self, Errno, Once};
use crate::refuse::decline;

/// The folder in which the system would keep what is known about devices.
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
    static DEVICES: List = List::new();

    guard::prepare();
    DEVICES.get(|| Options::for_any_program().with_env())
}

/// The devices, listed by the thread that is the first to be done with it. No thread waits for
/// another, as a forked child may find its parent in the midst of it; the child must have the
/// parent's pointers.
struct List(OnceBox<Result<Vec<Listed>, OptionError>>);

impl List {
    const fn new() -> Self {
        Self(OnceBox::new())
    }

    fn get(
        &'static self,
        options: impl FnOnce() -> Result<Options, OptionError>,
    ) -> Result<&'static [Listed], Errno> {
        let listed = self.0.get_or_init(|| Box::new(options().map(|options| list(&options))));
        listed.as_deref().map_err(|error| {
            static COMPLAINED: Once = Once::new();

            COMPLAINED.say(Log::Error, format_args!("{error}"));
            decline!(EINVAL, "{error}")
        })
    }
}

fn list(options: &Options) -> Vec<Listed> {
    let devices = options.visible_devices();
    let numbered = devices.iter().enumerate();
    let describe = |(place, named)| describe(options.for_device(named).personality, place, named);
    numbered.map(describe).collect()
}

/// The place of a device among them; 0 for a pointer to no device.
pub(crate) fn place(device: *const ibv_device) -> usize {
    let devices = devices().unwrap_or_default();
    devices.iter().position(|listed| std::ptr::eq(listed.as_abi(), device)).unwrap_or(0)
}

/// The place of the device of this name.
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
        Personality::Roce => (IBV_NODE_CA, IBV_TRANSPORT_IB),
        _ => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
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
    guard::prepare();
    guard::object(called!(ibv_get_device_list(num_devices)), || {
        let devices = devices();
        if let Some(num_devices) = num_devices {
            let count = devices.as_ref().map_or(0, |devices| devices.len());
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
        // SAFETY: of this length, and the program uses it no longer.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, length)) });
    }
}

/// `ibv_get_device_name`
pub extern "C" fn ibv_get_device_name(device: &ibv_device) -> *const c_char {
    device.name.as_ptr()
}

/// `ibv_get_device_index`
pub extern "C" fn ibv_get_device_index(device: &ibv_device) -> c_int {
    guard::value(called!(ibv_get_device_index(device)), 0, || {
        c_int::try_from(place(device)).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// The program forks while another thread of it asks for the devices for the first time.
    #[test]
    fn a_child_does_not_wait_for_a_thread_that_it_has_not() {
        static DEVICES: List = List::new();
        let (began, begun) = channel();
        let (forked, go_on) = channel();
        let asking = thread::spawn(move || {
            DEVICES.get(|| {
                began.send(()).unwrap();
                go_on.recv().unwrap();
                Ok(Options::for_any_program())
            })
        });
        begun.recv().unwrap();
        // SAFETY: the child keeps to what a child of a program with threads may do, memory of the C
        // library's included, and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above. The signal ends a child that waits for ever.
            unsafe { libc::alarm(10) };
            let count = DEVICES.get(|| Ok(Options::for_any_program())).map_or(0, <[_]>::len);
            // SAFETY: as above.
            unsafe { libc::_exit(count as c_int) };
        }
        forked.send(()).unwrap();
        let mut status = 0;
        // SAFETY: writes to `status`.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(
            libc::WIFEXITED(status),
            "the child was ended by signal {}",
            libc::WTERMSIG(status)
        );
        assert_eq!(libc::WEXITSTATUS(status), 1);
        let devices = asking.join().unwrap().unwrap();
        let again = DEVICES.get(|| panic!("they are known")).unwrap();
        assert!(std::ptr::eq(devices, again));
    }
}
