// SPDX-License-Identifier: MIT OR Apache-2.0

//! The profile of a device, which sets it apart from the others of its process: name, interface,
//! addresses, and the options as it has them. All else is the engine's, and so the process's.
//!
//! A device with several ports has a profile for each of them ([`ports`]); a device with one is its
//! port.

mod ports;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use iwarp_types::Time;

use super::devices::NamedDevice;
use super::gid::{Gid, GidTable};
use super::options::{Options, Personality, Wire};
use super::sync::Mutex;
use crate::report;

/// `ENODEV`: no device has an address.
const ENODEV: i32 = 19;

/// The interface that has the loopback addresses.
const LOOPBACK: &str = "lo";

/// A device, as its objects know it. A forked child may read what does not change.
#[derive(Debug)]
pub(crate) struct Profile {
    /// Its place among the devices of the process.
    pub(crate) place: usize,
    pub(crate) name: String,
    /// The process's options, as this device has them.
    pub(crate) options: Options,
    /// The interface whose addresses it has, or its first port has; `None`: all.
    interface: Option<String>,
    /// Which of the ports it is of a device with several; otherwise 0.
    number: u8,
    /// Its number among the ports of all devices, from 0 on, or its first port's.
    among_all: usize,
    /// Its ports, where it has several.
    several: Box<[Self]>,
    /// It has the loopback addresses, though its interface has not.
    has_loopback: bool,
    gids: GidTable,
    /// Addresses of datagrams that were looked up last, with the answers, and until when these
    /// hold.
    lately: Mutex<Vec<(IpAddr, bool, Time)>>,
}

/// The time for which an address counts as a device's, for its datagrams, without asking the
/// system.
const LATELY: Duration = Duration::from_millis(100);

/// Addresses that are remembered so: those of both families, and some to which strangers send.
const REMEMBERED: usize = 8;

impl Profile {
    /// `before`: the number of ports of the devices before it.
    fn new(
        place: usize,
        before: usize,
        named: &NamedDevice,
        options: &Options,
        has_loopback: bool,
    ) -> Self {
        let of_interface = |number: u8, interface: Option<&str>, has_loopback| Self {
            place,
            name: named.name.clone(),
            options: options.for_device(named),
            interface: interface.map(str::to_owned),
            number,
            among_all: before + usize::from(number.saturating_sub(1)),
            several: Box::default(),
            has_loopback,
            gids: GidTable::default(),
            lately: Mutex::default(),
        };
        let interfaces: Vec<_> = named.port_interfaces().collect();
        let first = interfaces[0];
        if interfaces.len() == 1 {
            return of_interface(0, first, has_loopback);
        }
        let numbered = (1..).zip(interfaces);
        // As programs look for it at the first port.
        let several = numbered
            .map(|(number, interface)| of_interface(number, interface, has_loopback && number == 1))
            .collect();
        Self { several, ..of_interface(0, first, false) }
    }

    /// True if it has the addresses of certain interfaces only.
    pub(crate) const fn is_bound(&self) -> bool {
        self.interface.is_some()
    }

    /// Its addresses at this moment, or those of its first port.
    ///
    /// # Errors
    ///
    /// When asking the system fails.
    pub(crate) fn gids(&self) -> io::Result<Arc<[Gid]>> {
        let first = self.several.first().unwrap_or(self);
        first.gids.read(first.interface.as_deref())
    }

    /// True if an address of this host is one of its own.
    pub(crate) fn has(&self, addr: IpAddr) -> bool {
        let addr = addr.to_canonical();
        if !self.is_bound() || self.has_loopback && addr.is_loopback() {
            return true;
        }
        if !self.several.is_empty() {
            return self.several.iter().any(|port| port.has(addr));
        }
        match self.gids() {
            Ok(gids) => gids.iter().any(|gid| gid.addr == addr),
            Err(error) => {
                let name = &self.name;
                report!(WARN, "cannot read the addresses of the device {name}: {error}");
                false
            }
        }
    }

    /// As [`Self::has`], for each datagram of a bound device: the system is asked now and then.
    #[cold]
    pub(crate) fn has_lately(&self, addr: IpAddr, now: Time) -> bool {
        let is_known = |(known, _, until): &&(IpAddr, bool, Time)| *known == addr && now < *until;
        if let Some((_, has, _)) = self.lately.lock().iter().find(is_known) {
            return *has;
        }
        let has = self.has(addr);
        let mut lately = self.lately.lock();
        lately.retain(|(known, _, until)| *known != addr && now < *until);
        if lately.len() == REMEMBERED {
            lately.remove(0);
        }
        lately.push((addr, has, now.plus(LATELY)));
        has
    }

    /// The address from which it reaches `peer`: `usual`, from which the host does, if that is its
    /// own, or else the first of the peer's family.
    ///
    /// # Errors
    ///
    /// `ENODEV` where it has none; that of `usual`, where there is no route; those of
    /// [`Self::gids`].
    pub(crate) fn source_for(&self, peer: IpAddr, usual: io::Result<IpAddr>) -> io::Result<IpAddr> {
        match usual {
            Ok(usual) if self.has(usual) => return Ok(usual),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        let is_near = iwarp_os::addr::is_link_local;
        let fits = |gid: &&Gid| {
            gid.addr.is_ipv4() == peer.to_canonical().is_ipv4()
                && is_near(gid.addr) == is_near(peer)
        };
        for port in self.ports() {
            if let Some(gid) = port.gids()?.iter().find(fits) {
                return Ok(gid.addr);
            }
        }
        Err(no_device())
    }
}

/// The error where no device has an address.
pub(crate) fn no_device() -> io::Error {
    io::Error::from_raw_os_error(ENODEV)
}

/// The devices of a process, at least one.
#[derive(Debug)]
pub(crate) struct Profiles {
    all: Vec<Arc<Profile>>,
    /// Stands for all of them where it is not known yet which one it is.
    any: Arc<Profile>,
}

impl Profiles {
    pub(crate) fn new(options: &Options) -> Self {
        let named = options.visible_devices();
        // As with Linux's connection manager, loopback is the first device's where no other has it.
        let has_loopback = |device: &NamedDevice| {
            device.port_interfaces().any(|interface| interface.is_none_or(|name| name == LOOPBACK))
        };
        let lacks_loopback = !named.iter().any(has_loopback);
        let mut ports = 0;
        let of = |(place, named)| {
            let is_at_loopback = place == 0 && lacks_loopback;
            let profile = Profile::new(place, ports, named, options, is_at_loopback);
            ports += profile.ports().len();
            Arc::new(profile)
        };
        let all: Vec<_> = named.iter().enumerate().map(of).collect();
        let any = match &*all {
            [only] if !only.is_bound() => Arc::clone(only),
            several => Arc::new(any_of(several, options)),
        };
        Self { all, any }
    }

    pub(crate) fn get(&self, place: usize) -> Option<&Arc<Profile>> {
        self.all.get(place)
    }

    /// True if there is one, which has all addresses.
    pub(crate) fn is_one_with_all(&self) -> bool {
        self.all.iter().any(|profile| Arc::ptr_eq(profile, &self.any))
    }

    /// The interfaces of the ports of all devices, the first device's first; `None`: all
    /// interfaces.
    pub(crate) fn port_interfaces(&self) -> impl Iterator<Item = Option<String>> {
        let ports = self.all.iter().flat_map(|profile| profile.ports());
        ports.map(|port| port.interface.clone())
    }

    /// Stands for all of them.
    pub(crate) const fn any(&self) -> &Arc<Profile> {
        &self.any
    }

    /// The first that has an address of this host.
    pub(crate) fn at(&self, addr: IpAddr) -> Option<&Arc<Profile>> {
        self.all.iter().find(|profile| profile.has(addr))
    }

    /// The one that has an address of this host: `own`, or any of them if that stands for all.
    pub(crate) fn at_within<'a>(
        &'a self,
        own: &'a Arc<Profile>,
        addr: IpAddr,
    ) -> Option<&'a Arc<Profile>> {
        match Arc::ptr_eq(own, &self.any) {
            true => self.at(addr),
            false => Some(own).filter(|own| own.has(addr)),
        }
    }
}

/// A device with all addresses that speaks each protocol of these.
fn any_of(several: &[Arc<Profile>], options: &Options) -> Profile {
    let first = &several[0];
    let speak = |wire| several.iter().all(|profile| profile.options.spoken() == wire);
    let own = &first.options;
    let options = if speak(own.spoken()) {
        own.clone()
    } else {
        options.clone().personality(Personality::Roce).wire(Wire::Auto)
    };
    let (place, name) = (first.place, first.name.clone());
    Profile {
        place,
        name,
        options,
        interface: None,
        number: 0,
        among_all: first.among_all,
        several: Box::default(),
        has_loopback: false,
        gids: GidTable::default(),
        lately: Mutex::default(),
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::Speed;

    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

    fn of(text: &str) -> Profiles {
        let lookup = |name| (name == "IWARP_DEVICES").then(|| text.to_owned());
        Profiles::new(&Options::for_any_program().with_lookup(lookup).unwrap())
    }

    #[test]
    fn a_device_has_the_options_of_the_process_but_for_its_own() {
        let devices = of("a,b=lo:iwarp:speed=40,c:wire=roce");
        let found = [0, 1, 2].map(|place| {
            let options = &devices.get(place).unwrap().options;
            (options.personality, options.spoken(), options.speed.gbit(), options.tell_personality)
        });
        let expected = [
            (Personality::Roce, Wire::Auto, 100, true),
            (Personality::Iwarp, Wire::Iwarp, 40, true),
            (Personality::Roce, Wire::Roce, Speed::default().gbit(), true),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_device_that_is_not_known_yet_speaks_what_any_of_them_speaks() {
        let spoken = |text| of(text).any().options.spoken();
        assert_eq!(spoken("a:iwarp,b:wire=iwarp"), Wire::Iwarp);
        assert_eq!(spoken("a:wire=roce,b:wire=roce"), Wire::Roce);
        assert_eq!(spoken("a:wire=roce,b:iwarp"), Wire::Auto);
        assert_eq!(spoken("a:iwarp,b"), Wire::Auto);
        let one = of("a:iwarp");
        assert!(Arc::ptr_eq(one.any(), one.get(0).unwrap()));
        assert!(!of("a=lo").any().is_bound());
    }

    #[test]
    fn an_address_belongs_to_the_first_device_that_has_it() {
        let place = |text, addr| of(text).at(addr).map(|profile| profile.place);
        assert_eq!(place("a,b=lo", LOCALHOST), Some(0));
        assert_eq!(place("a=lo,b", LOCALHOST), Some(0));
        assert_eq!(place("a=lo,b", ELSEWHERE), Some(1));
        assert_eq!(place("a=lo", ELSEWHERE), None);
        assert_eq!(place("a=lo,b=lo", "::ffff:127.0.0.1".parse().unwrap()), Some(0));
    }

    /// Addresses of an interface that is not there are none.
    fn elsewhere(others: &[NamedDevice]) -> Profiles {
        let bound = NamedDevice::new("a").interface("no such one".to_owned());
        let named = [&[bound][..], others].concat();
        Profiles::new(&Options::for_any_program().devices(named))
    }

    #[test]
    fn loopback_is_the_first_devices_where_no_other_has_it() {
        let place = |devices: &Profiles| devices.at(LOCALHOST).map(|profile| profile.place);
        let one = elsewhere(&[]);
        let first = one.get(0).unwrap();
        assert!(first.has(LOCALHOST) && first.has_lately(LOCALHOST, Time::default()));
        assert!(!first.has(ELSEWHERE));
        assert_eq!(place(&one), Some(0));
        assert_eq!(place(&elsewhere(&[NamedDevice::new("b")])), Some(1));
        let on_lo = NamedDevice::new("b").interface("lo".to_owned());
        assert_eq!(place(&elsewhere(&[on_lo])), Some(1));
    }

    #[test]
    fn answers_of_several_addresses_hold_for_a_while() {
        let devices = of("a=lo");
        let lo = devices.get(0).unwrap();
        let now = Time(Duration::from_secs(1));
        for addr in [LOCALHOST, ELSEWHERE, "::1".parse().unwrap()] {
            assert_eq!(lo.has_lately(addr, now), lo.has(addr));
        }
        assert_eq!(lo.lately.lock().len(), 3);
        for last in 0..20 {
            assert!(!lo.has_lately([203, 0, 113, last].into(), now));
        }
        assert_eq!(lo.lately.lock().len(), REMEMBERED);
        assert!(lo.has_lately(LOCALHOST, now.plus(LATELY)));
        assert_eq!(lo.lately.lock().len(), 1);
    }

    #[test]
    fn a_bound_device_leaves_its_interface_by_its_own_address() {
        let devices = of("a,b=lo");
        let [all, lo] = [0, 1].map(|place| devices.get(place).unwrap());
        assert_eq!(all.source_for(ELSEWHERE, Ok(ELSEWHERE)).unwrap(), ELSEWHERE);
        assert_eq!(lo.source_for(ELSEWHERE, Ok(ELSEWHERE)).unwrap(), LOCALHOST);
        assert_eq!(lo.source_for(ELSEWHERE, Ok(LOCALHOST)).unwrap(), LOCALHOST);
        let unknown = lo.source_for("fe80::1".parse().unwrap(), Ok(ELSEWHERE)).unwrap_err();
        assert_eq!(unknown.raw_os_error(), Some(ENODEV));
    }
}
