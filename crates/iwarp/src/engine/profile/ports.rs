// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ports of a device, which programs know by numbers from 1 on.

use std::fmt;
use std::io;
use std::net::IpAddr;

use super::Profile;

impl Profile {
    /// Its ports: itself, where it has one.
    pub(crate) fn ports(&self) -> &[Self] {
        if self.several.is_empty() { std::slice::from_ref(self) } else { &self.several }
    }

    /// The port of this number.
    pub(crate) fn port(&self, number: u8) -> Option<&Self> {
        self.ports().get(usize::from(number).checked_sub(1)?)
    }

    /// As [`Self::port`], for a number that is checked, or 0: any of its ports.
    #[inline]
    pub(crate) fn port_or_any(&self, number: u8) -> &Self {
        if self.several.is_empty() {
            return self;
        }
        self.port(number).unwrap_or(self)
    }

    /// As [`Self::port`].
    ///
    /// # Errors
    ///
    /// `InvalidInput` where there is none; the text says how many there are.
    pub(crate) fn checked_port(&self, number: u8) -> io::Result<&Self> {
        self.port(number).ok_or_else(|| {
            let (name, ports) = (&self.name, Ports(self.ports().len()));
            let why = format!("{number} is no port of the device {name}, which has {ports}");
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })
    }

    /// The number of the first port that has an address of this host.
    pub(crate) fn port_at(&self, addr: IpAddr) -> Option<u8> {
        let place = self.ports().iter().position(|port| port.has(addr))?;
        u8::try_from(place + 1).ok()
    }

    /// The number among the ports of all devices of that with the number `port`, or with an address
    /// of this host where that is 0, as long as it is on none.
    pub(crate) fn port_among_all(&self, port: u8, local: Option<IpAddr>) -> usize {
        let number = match port {
            0 if !self.several.is_empty() => local.and_then(|local| self.port_at(local)),
            number => Some(number),
        };
        self.port_or_any(number.unwrap_or(0)).among_all
    }

    /// The interfaces of its ports; none: all interfaces.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.ports().iter().filter_map(|port| port.interface.as_deref())
    }

    /// The indices of those that are there at this moment; `None`: all interfaces.
    ///
    /// # Errors
    ///
    /// When asking the system fails.
    pub(crate) fn interface_indices(&self) -> io::Result<Option<Vec<u32>>> {
        if !self.is_bound() {
            return Ok(None);
        }
        let there = iwarp_os::addr::interfaces()?;
        let is_own = |name: &str| self.interfaces().any(|own| own == name);
        let own = there.iter().filter(|interface| is_own(&interface.name));
        Ok(Some(own.map(|interface| interface.index).collect()))
    }
}

/// The number of a device's ports, for people.
struct Ports(usize);

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("one port"),
            several => write!(f, "{several} ports"),
        }
    }
}

/// Names the device, and the port of one with several.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.number > 0 {
            write!(f, "port {} of ", self.number)?;
        }
        write!(f, "the device {}", self.name)
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use super::*;
    use crate::NamedDevice;
    use crate::engine::options::Options;
    use crate::engine::profile::Profiles;

    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// A device with ports on these interfaces, as its process has it.
    fn on(interfaces: &[&str]) -> (Profiles, Arc<Profile>) {
        let mut interfaces = interfaces.iter().map(|name| (*name).to_owned());
        let named = NamedDevice::new("mlx4_0").interface(interfaces.next());
        let named = named.more_interfaces(Vec::from_iter(interfaces));
        let all = Profiles::new(&Options::for_any_program().devices(vec![named]));
        let first = Arc::clone(all.get(0).unwrap());
        (all, first)
    }

    #[test]
    fn a_device_with_one_port_is_its_port() {
        for interfaces in [&[][..], &["lo"]] {
            let (_, device) = on(interfaces);
            let port = device.port(1).unwrap();
            assert!(std::ptr::eq(port, &*device) && std::ptr::eq(device.port_or_any(1), port));
            assert!(device.port(0).is_none() && device.port(2).is_none());
            assert_eq!(device.port_at(LOCALHOST), Some(1));
            assert_eq!(port.to_string(), "the device mlx4_0");
        }
    }

    #[test]
    fn each_port_has_the_addresses_of_its_interface() {
        let (all, device) = on(&["no such one", "lo"]);
        let [one, two] = [1, 2].map(|number| device.port(number).unwrap());
        assert_eq!(one.gids().unwrap().len(), 0);
        assert!(two.gids().unwrap().iter().any(|gid| gid.addr == LOCALHOST));
        // Loopback is the first port's only where no interface is lo.
        assert!(device.has(LOCALHOST) && two.has(LOCALHOST) && !one.has(LOCALHOST));
        assert_eq!((device.port_at(LOCALHOST), device.port_or_any(2).number), (Some(2), 2));
        assert!(std::ptr::eq(device.port_or_any(0), &*device) && device.is_bound());
        assert_eq!(device.interfaces().collect::<Vec<_>>(), ["no such one", "lo"]);
        assert_eq!(all.at(LOCALHOST).map(|found| found.place), Some(0));
        assert_eq!(two.to_string(), "port 2 of the device mlx4_0");
    }

    #[test]
    fn loopback_is_the_first_ports_where_no_interface_has_it() {
        let (_, device) = on(&["no such one", "nor this"]);
        assert_eq!(device.port_at(LOCALHOST), Some(1));
        assert!(device.has(LOCALHOST));
    }

    #[test]
    fn ports_are_numbered_among_those_of_all_devices() {
        let named = |name: &str, more: &[&str]| {
            let device = NamedDevice::new(name).interface("no such one".to_owned());
            device.more_interfaces(more.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        let devices = vec![named("a", &["nor this"]), named("b", &[]), named("c", &["lo", "none"])];
        let all = Profiles::new(&Options::for_any_program().devices(devices));
        let number = |place, port, local| all.get(place).unwrap().port_among_all(port, local);
        assert_eq!([1, 2].map(|port| number(0, port, None)), [0, 1]);
        assert_eq!((number(1, 1, None), number(1, 0, Some(LOCALHOST))), (2, 2));
        assert_eq!([1, 2, 3].map(|port| number(2, port, Some(LOCALHOST))), [3, 4, 5]);
        // One that is on no port yet counts on that of its address.
        assert_eq!((number(2, 0, Some(LOCALHOST)), number(2, 0, None)), (4, 3));
        assert_eq!(all.port_interfaces().count(), 6);
    }

    #[test]
    fn a_device_leaves_by_any_of_its_ports() {
        let (_, device) = on(&["no such one", "lo"]);
        let elsewhere = IpAddr::from([203, 0, 113, 9]);
        assert_eq!(device.source_for(elsewhere, Ok(elsewhere)).unwrap(), LOCALHOST);
        let [one, two] = [1, 2].map(|number| device.port(number).unwrap());
        assert_eq!(two.source_for(elsewhere, Ok(elsewhere)).unwrap(), LOCALHOST);
        assert!(one.source_for(elsewhere, Ok(elsewhere)).is_err());
    }

    #[test]
    fn interfaces_have_indices_while_they_are_there() {
        let (_, all) = on(&[]);
        assert_eq!(all.interface_indices().unwrap(), None);
        let (_, device) = on(&["no such one", "lo"]);
        let [one, two] = [1, 2].map(|number| device.port(number).unwrap());
        assert_eq!(one.interface_indices().unwrap(), Some(vec![]));
        let lo = two.interface_indices().unwrap();
        assert_eq!(lo.as_ref().map(Vec::len), Some(1));
        assert_eq!(device.interface_indices().unwrap(), lo);
    }

    #[test]
    fn a_port_that_is_not_there_is_refused_with_their_number() {
        let why = |device: &Profile, number| device.checked_port(number).unwrap_err().to_string();
        let ends = "is no port of the device mlx4_0, which has";
        let (_, one) = on(&["lo"]);
        assert_eq!(why(&one, 2), format!("2 {ends} one port"));
        let (_, two) = on(&["lo", "no such one"]);
        assert_eq!(why(&two, 0), format!("0 {ends} 2 ports"));
        assert_eq!(why(&two, 3), format!("3 {ends} 2 ports"));
        assert!(two.checked_port(2).is_ok());
    }

    #[test]
    fn ports_beyond_the_eighth_do_not_exist() {
        let names: Vec<_> = (0..300).map(|number| format!("no such {number}")).collect();
        let (_, device) = on(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(device.ports().len(), 8);
    }
}
