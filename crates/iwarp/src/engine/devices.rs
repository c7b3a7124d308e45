// SPDX-License-Identifier: MIT OR Apache-2.0

//! The names of a process's devices, and the addresses of each.

use iwarp_os::addr;

use crate::setters::setters;

/// A device, as the user has named it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NamedDevice {
    /// Its name.
    pub name: String,
    /// The interface whose addresses it has; `None`: all interfaces.
    pub interface: Option<String>,
}

impl NamedDevice {
    /// A device that has the addresses of all interfaces.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), interface: None }
    }

    setters! { into interface: Option<String>, }
}

/// Devices that a process can have.
const MOST: usize = 64;

/// Bytes of a name: what `struct ibv_device` and the kernel have room for, without the NUL.
const LONGEST: usize = 63;

/// Names with commas between, each with `=` and an interface behind it or without.
pub(crate) fn parse(text: &str) -> Option<Vec<NamedDevice>> {
    let devices: Option<Vec<_>> = text.split(',').map(|word| device(word.trim())).collect();
    let devices = devices.filter(|devices| devices.len() <= MOST)?;
    let twice = |(place, device): (usize, &NamedDevice)| {
        devices[..place].iter().any(|other| other.name == device.name)
    };
    if devices.iter().enumerate().any(twice) { None } else { Some(devices) }
}

fn device(word: &str) -> Option<NamedDevice> {
    let (name, interface) = match word.split_once('=') {
        Some((name, interface)) => (name.trim_end(), Some(interface.trim_start().to_owned())),
        None => (word, None),
    };
    // The name is a folder's below /sys/class/infiniband; programs separate it from a port by a
    // colon.
    let fits = |c: u8| c.is_ascii_alphanumeric() || b"_-.".contains(&c);
    let good = (1..=LONGEST).contains(&name.len())
        && name.bytes().all(fits)
        && name.as_bytes()[0].is_ascii_alphanumeric();
    let there = interface.as_deref().is_none_or(addr::is_interface);
    (good && there).then(|| NamedDevice { name: name.to_owned(), interface })
}

#[cfg(test)]
mod tests {
    use super::{NamedDevice, parse};

    #[test]
    fn names_and_interfaces_are_read() {
        let device = |name: &str, interface: Option<&str>| NamedDevice {
            name: name.to_owned(),
            interface: interface.map(str::to_owned),
        };
        assert_eq!(parse("mlx5_0"), Some(vec![device("mlx5_0", None)]));
        let two = vec![device("mlx5_0", None), device("rdma-1.0", Some("lo"))];
        assert_eq!(parse("mlx5_0, rdma-1.0=lo"), Some(two));
    }

    #[test]
    fn nonsense_is_refused() {
        let long = "x".repeat(64);
        let many: Vec<_> = (0..65).map(|number| format!("d{number}")).collect();
        for text in [
            "",
            ",",
            "a,",
            "a,a",
            "a/b",
            "../a",
            ".",
            "a:1",
            "a b",
            "a=",
            "a=no such",
            &long,
            &many.join(","),
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
