// SPDX-License-Identifier: MIT OR Apache-2.0

//! The facts that the answers over netlink tell: the devices as the tree describes them, the
//! counters that it shows in /sys, and the objects that live processes have.

use super::counters::value_of;
use super::files::read_beside;
use super::netlink::{Device, Devices, Facts, Listed, OBJECTS, Object};
use super::{ledger, roster};

/// Bytes that the description may have: that of as many devices as a process can have.
pub(super) const TEXT: usize = 24 << 10;

/// Bytes of the path of a counter below the tree's folders.
const PATH: usize = 256;

/// The facts of a tree.
pub(super) struct Shown<'a>(Devices<'a>);

impl<'a> Shown<'a> {
    /// Reads the description. Without one there are no devices.
    pub(super) fn read(room: &'a mut [u8; TEXT]) -> Self {
        // SAFETY: a string, and so many bytes.
        let length = unsafe { read_beside(c"/devices".as_ptr().cast(), room.as_mut_ptr(), TEXT) };
        Self(Devices::new(room.get(..length.unwrap_or(0)).unwrap_or_default()))
    }
}

impl Facts for Shown<'_> {
    fn device(&self, index: u32) -> Option<Device<'_>> {
        self.0.device(index)
    }

    fn counter(&self, device: &Device<'_>, port: u32, place: usize) -> Option<(&[u8], u64)> {
        let name = self.0.counter(place)?;
        // A device has eight ports at most.
        let digit = [b'0'.wrapping_add(port.try_into().ok()?)];
        let parts: [&[u8]; 6] = [b"/", device.name, b"/ports/", &digit, b"/hw_counters/", name];
        let mut path = [0; PATH];
        let length = parts.iter().fold(0_usize, |sum, part| sum.wrapping_add(part.len()));
        // The last byte stays zero.
        if length >= PATH {
            return None;
        }
        path.iter_mut().zip(parts.into_iter().flatten()).for_each(|(to, octet)| *to = *octet);
        // SAFETY: a string.
        Some((name, unsafe { value_of(path.as_ptr()) }.unwrap_or(0)))
    }

    fn objects(&self, device: &Device<'_>) -> [u64; OBJECTS.len()] {
        let mut counts = ledger::sums(device.index.into());
        // Of ids, no process counts any.
        let ids = OBJECTS.iter().zip(&mut counts).find(|(name, _)| **name == b"cm_id");
        if let Some((_, count)) = ids {
            self.each(device, &mut |listed| {
                let is_one = matches!(listed.row.object, Object::Id(_));
                *count = count.wrapping_add(is_one.into());
                true
            });
        }
        counts
    }

    fn each(&self, device: &Device<'_>, visit: &mut dyn FnMut(&Listed) -> bool) {
        let is_its = |listed: &Listed| u32::from(listed.row.device) == device.index;
        roster::each(&mut |listed| !is_its(listed) || visit(listed));
    }
}
