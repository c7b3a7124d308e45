// SPDX-License-Identifier: MIT OR Apache-2.0

//! The devices of a process, as the user has named them.

use iwarp_os::addr;
use iwarp_types::setters;

use super::kinds::{Personality, Wire};
use super::speed::Speed;

/// A device, as the user has named it. The options of the process count for all that it leaves
/// open.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NamedDevice {
    /// Its name.
    pub name: String,
    /// The interface whose addresses it has, or its first port has; `None`: all interfaces, by one
    /// port.
    pub interface: Option<String>,
    /// The interfaces of its further ports, the second first, where the first port has one. A
    /// device has eight ports at most.
    pub more_interfaces: Vec<String>,
    /// Its kind, where it differs from [`Options::personality`](crate::Options::personality).
    pub personality: Option<Personality>,
    /// The protocol of its reliable connected queue pairs, where it differs from
    /// [`Options::wire`](crate::Options::wire).
    pub wire: Option<Wire>,
    /// The speed that programs see, where it differs from
    /// [`Options::speed`](crate::Options::speed).
    pub speed: Option<Speed>,
}

impl NamedDevice {
    /// A device that has the addresses of all interfaces.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            interface: None,
            more_interfaces: Vec::new(),
            personality: None,
            wire: None,
            speed: None,
        }
    }

    /// The interface of each of its ports, the first port first; `None`: all interfaces.
    #[doc(hidden)]
    pub fn port_interfaces(&self) -> impl Iterator<Item = Option<&str>> {
        let more = self.interface.iter().flat_map(|_| &self.more_interfaces);
        [self.interface.as_deref()]
            .into_iter()
            .chain(more.map(|name| Some(name.as_str())))
            .take(MOST_PORTS)
    }

    setters! {
        into interface: Option<String>,
        into more_interfaces: Vec<String>,
        into personality: Option<Personality>,
        into wire: Option<Wire>,
        into speed: Option<Speed>,
    }
}

/// Devices that a process can have.
const MOST: usize = 64;

/// Ports that a device can have: objects that are shown to other processes have three bits and one
/// for the number.
const MOST_PORTS: usize = 8;

/// Bytes of a name: what `struct ibv_device` and the kernel have room for, without the NUL.
const LONGEST: usize = 63;

/// Devices with commas between. Each is a name, or `NAME=INTERFACE`, and may have words behind it,
/// each after a colon: `mlx5_0=eth0:roce:speed=100`. A device with several ports has the interface
/// of each, with a plus between: `mlx4_0=eth0+eth1`.
pub(crate) fn parse(text: &str) -> Option<Vec<NamedDevice>> {
    let devices: Option<Vec<_>> = text.split(',').map(|word| device(word.trim())).collect();
    let devices = devices.filter(|devices| devices.len() <= MOST)?;
    let twice = |(place, device): (usize, &NamedDevice)| {
        devices[..place].iter().any(|other| other.name == device.name)
    };
    if devices.iter().enumerate().any(twice) { None } else { Some(devices) }
}

fn device(text: &str) -> Option<NamedDevice> {
    // Words never hold a colon; a second address of an interface, as eth0:1, is no interface.
    let mut parts = text.split(':').map(str::trim);
    let head = parts.next()?;
    let (name, interfaces) = match head.split_once('=') {
        Some((name, interfaces)) => (name.trim_end(), ports(interfaces.trim_start())?),
        None => (head, Vec::new()),
    };
    // The name is a folder's below /sys/class/infiniband; programs separate it from a port by a
    // colon.
    let fits = |c: u8| c.is_ascii_alphanumeric() || b"_-.".contains(&c);
    let good = (1..=LONGEST).contains(&name.len())
        && name.bytes().all(fits)
        && name.as_bytes()[0].is_ascii_alphanumeric();
    let mut interfaces = interfaces.into_iter();
    let first = interfaces.next();
    let device =
        || NamedDevice::new(name).interface(first).more_interfaces(Vec::from_iter(interfaces));
    let named = good.then(device)?;
    // A device like an RNIC speaks iWARP always.
    let makes_sense = |device: &NamedDevice| {
        (device.personality, device.wire) != (Some(Personality::Iwarp), Some(Wire::Roce))
    };
    parts.try_fold(named, with_word).filter(makes_sense)
}

/// The interfaces of ports, if all are there and none stands twice.
fn ports(text: &str) -> Option<Vec<String>> {
    // Linux lets a name have a plus.
    if addr::is_interface(text) {
        return Some(vec![text.to_owned()]);
    }
    let names: Vec<_> = text.split('+').map(|name| name.trim().to_owned()).collect();
    let twice = |(place, name): (usize, &String)| names[..place].contains(name);
    let good = names.len() <= MOST_PORTS
        && names.iter().all(|name| addr::is_interface(name))
        && !names.iter().enumerate().any(twice);
    good.then_some(names)
}

/// The device with one more word; `None` for one that makes no sense, or says something again.
fn with_word(device: NamedDevice, word: &str) -> Option<NamedDevice> {
    match word.split_once('=') {
        None if device.personality.is_none() => {
            Some(device.personality(Personality::of_name(word)?))
        }
        Some(("wire", wire)) if device.wire.is_none() => Some(device.wire(Wire::of_name(wire)?)),
        Some(("speed", gbit)) if device.speed.is_none() => {
            Some(device.speed(Speed::of_gbit(gbit.parse().ok()?)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{NamedDevice, Personality, Speed, Wire, parse};

    #[test]
    fn names_and_interfaces_are_read() {
        let device = |name: &str, interface: Option<&str>| {
            NamedDevice::new(name).interface(interface.map(str::to_owned))
        };
        assert_eq!(parse("mlx5_0"), Some(vec![device("mlx5_0", None)]));
        let two = vec![device("mlx5_0", None), device("rdma-1.0", Some("lo"))];
        assert_eq!(parse("mlx5_0, rdma-1.0=lo"), Some(two));
    }

    #[test]
    fn a_device_has_a_port_for_each_interface() {
        let ports = |device: &NamedDevice| -> Vec<Option<String>> {
            device.port_interfaces().map(|name| name.map(str::to_owned)).collect()
        };
        assert_eq!(ports(&NamedDevice::new("a")), [None]);
        assert_eq!(ports(&parse("a=lo").unwrap()[0]), [Some("lo".to_owned())]);
        let more = ["eth0", "eth1"].map(str::to_owned).to_vec();
        let two = NamedDevice::new("a").more_interfaces(more.clone());
        assert_eq!(ports(&two), [None], "the first has all addresses");
        let three = ports(&two.interface("lo".to_owned()));
        assert_eq!(three, ["lo", "eth0", "eth1"].map(|name| Some(name.to_owned())));
        let there: Vec<_> = iwarp_os::addr::interfaces().unwrap();
        let names: Vec<_> = there.iter().map(|interface| &*interface.name).take(8).collect();
        let all = parse(&format!("a = {}:iwarp", names.join(" + "))).unwrap();
        assert_eq!(all[0].personality, Some(Personality::Iwarp));
        assert_eq!(ports(&all[0]).len(), names.len());
    }

    #[test]
    fn words_set_a_device_apart() {
        let fast = Speed::of_gbit(100).unwrap();
        let on_lo = |name: &str| NamedDevice::new(name).interface("lo".to_owned());
        let devices = vec![
            on_lo("mlx5_0").personality(Personality::Roce).wire(Wire::Roce).speed(fast),
            on_lo("siw0").personality(Personality::Iwarp),
            NamedDevice::new("any").wire(Wire::Auto),
            NamedDevice::new("plain"),
        ];
        let text = "mlx5_0=lo:speed=100:roce:wire=roce, siw0=lo:iwarp,any : wire=auto,plain";
        assert_eq!(parse(text), Some(devices));
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
            "a,a:iwarp",
            "a/b",
            "../a",
            ".",
            "a:1",
            "a b",
            "a=",
            "a=no such",
            "a=lo+",
            "a=+lo",
            "a=lo+lo",
            "a=lo+no such",
            "a=+",
            "a+b",
            "a:iwarp+lo",
            "a:",
            "a:infiniband",
            "a:ROCE",
            "a:roce:iwarp",
            "a:roce:roce",
            "a:iwarp:wire=roce",
            "a:personality=roce",
            "a:wire",
            "a:wire=",
            "a:wire=tcp",
            "a:wire=auto:wire=auto",
            "a:speed=56",
            "a:speed=fast",
            "a:speed=10:speed=10",
            "a:lo=roce",
            "a=lo:eth0",
            ":roce",
            &long,
            &many.join(","),
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
