// SPDX-License-Identifier: MIT OR Apache-2.0

//! The files that programs read below `/sys/class/infiniband` for a device, answered from memory:
//! there is no such folder.

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;

use iwarp::Device;
use iwarp::faults;
use iwarp::verbs::Gid;
use iwarp_os::guid::in_groups;

use super::context::engine;
use super::{list, query};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{decline, refuse};

/// `ibv_get_sysfs_path`
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// `ibv_read_sysfs_file`: returns the number of bytes read, without the newline at their end.
pub extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    guard::minus_one(called!(ibv_read_sysfs_file(dir, file, buf, size)), || {
        // SAFETY: the program passes two strings.
        let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
        let path = Path::new(dir.to_str().map_err(|_| not_utf8())?);
        let path = path.join(file.to_str().map_err(|_| not_utf8())?.trim_start_matches('/'));
        let own = path.strip_prefix(list::FOLDER).ok().and_then(|path| {
            // Below the folder of the device.
            let mut parts = path.components();
            let name = parts.next()?.as_os_str().to_str()?;
            Some((list::place_of_name(name), parts.as_path().to_string_lossy().into_owned()))
        });
        let text = match own {
            Some((place, file)) => {
                let text = place.and_then(|place| answer(place, &file));
                text.ok_or_else(|| decline!(ENOENT, "no such file: {file}"))?
            }
            None => std::fs::read_to_string(&path)?,
        };
        // SAFETY: the program says how much room it has.
        unsafe { write_text(text.trim_end_matches('\n'), buf, size) }
    })
}

/// `ibv_read_ibdev_sysfs_file`: not supported, as the arguments behind its format are not known
/// here.
pub extern "C" fn ibv_read_ibdev_sysfs_file(
    buf: *mut c_char,
    size: usize,
    device: *const u8,
    format: *const c_char,
) -> c_int {
    guard::minus_one(called!(ibv_read_ibdev_sysfs_file(buf, size, device, format)), || {
        Err(decline!(EOPNOTSUPP, "not supported"))
    })
}

#[cold]
fn not_utf8() -> Errno {
    refuse!(EINVAL, "the name is not UTF-8")
}

/// # Safety
///
/// `buf` has room for `size` bytes.
unsafe fn write_text(text: &str, buf: *mut c_char, size: usize) -> Result<c_int, Errno> {
    let Some(room) = size.checked_sub(1) else { return Err(refuse!(EINVAL, "size is 0")) };
    let length = text.len().min(room);
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buf, length);
        buf.add(length).write(0);
    }
    c_int::try_from(length).map_err(|_| refuse!(EINVAL, "the text has {length} bytes"))
}

fn answer(place: usize, file: &str) -> Option<String> {
    let text = match file {
        "board_id" | "hca_type" | "node_desc" => "iwarp".to_owned(),
        "fw_ver" => env!("CARGO_PKG_VERSION").to_owned(),
        "hw_rev" => "1".to_owned(),
        "node_guid" => in_groups(&query::guid(place)),
        "sys_image_guid" => in_groups(&query::guid(0)),
        _ => return port(&engine().ok()?.named_sibling(place).ok()?, file),
    };
    Some(text)
}

/// The facts about a port.
fn port(device: &Device, file: &str) -> Option<String> {
    let (name, file) = file.strip_prefix("ports/")?.split_once('/')?;
    let number = name.parse().ok().filter(|number: &u8| number.to_string() == name)?;
    if !(1..=device.attributes().phys_port_cnt).contains(&number) {
        return None;
    }
    let text = match file {
        "state" if faults::is_pulled() => "1: DOWN",
        "state" => "4: ACTIVE",
        "phys_state" if faults::is_pulled() => "3: Disabled",
        "phys_state" => "5: LinkUp",
        "link_layer" => "Ethernet",
        "pkeys/0" => "0xffff",
        _ => return gid(device, &device.port_gid_table(number).ok()?, file),
    };
    Some(text.to_owned())
}

/// The facts about an entry of the GID table.
fn gid(device: &Device, gids: &[Gid], file: &str) -> Option<String> {
    let (kind, index) = file.rsplit_once('/')?;
    let index: usize = index.parse().ok()?;
    let gid = query::at_place(gids, index)?;
    match kind {
        "gids" => Some(in_groups(&gid.raw)),
        "gid_attrs/ndevs" => Some(gid.interface.clone()),
        "gid_attrs/types" => Some(device.personality().gid_type().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dir: &CStr, file: &CStr, size: usize) -> (c_int, String) {
        let mut buf = [0x55 as c_char; 64];
        let n = ibv_read_sysfs_file(dir.as_ptr(), file.as_ptr(), buf.as_mut_ptr(), size);
        if n < 0 {
            return (n, String::new());
        }
        // SAFETY: terminated by the call.
        let text = unsafe { CStr::from_ptr(buf.as_ptr()) };
        (n, text.to_str().unwrap().to_owned())
    }

    #[test]
    fn our_own_device_is_answered_from_memory() {
        let dir = c"/sys/class/infiniband/roce0";
        assert_eq!(read(dir, c"board_id", 64), (5, "iwarp".to_owned()));
        assert_eq!(read(dir, c"board_id", 4), (3, "iwa".to_owned()));
        assert_eq!(read(dir, c"/ports/1/state", 64), (9, "4: ACTIVE".to_owned()));
        for none in [c"ports/1/nonsense", c"ports/2/state", c"ports/0/state", c"ports/x/state"] {
            assert_eq!(read(dir, none, 64).0, -1, "{none:?}");
        }
        assert_eq!(read(dir, c"node_guid", 64).0, 19);
        assert_eq!(read(dir, c"ports/1/gids/0", 64).0, 39);
        assert_eq!(read(dir, c"ports/1/link_layer", 64), (8, "Ethernet".to_owned()));
        assert_eq!(read(dir, c"ports/1/gid_attrs/types/0", 64), (7, "RoCE v2".to_owned()));
        assert!(read(dir, c"ports/1/gid_attrs/ndevs/0", 64).0 > 0);
        assert_eq!(read(c"/sys/class/infiniband/other0", c"board_id", 64).0, -1);
    }

    #[test]
    fn other_files_are_read() {
        let (n, text) = read(c"/proc/sys/kernel", c"ostype", 64);
        assert_eq!((n, text.as_str()), (5, "Linux"));
        assert_eq!(read(c"/nowhere", c"x", 64).0, -1);
    }
}
