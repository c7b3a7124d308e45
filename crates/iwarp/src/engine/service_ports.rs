// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ports of the connection manager's port spaces that have nothing to do with the system's: those
//! of datagram services, and of connections that are made by management datagrams alone.
//!
//! They are this process's alone: which process of the host gets what is asked for at a port, is
//! decided when one listens.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use iwarp_mem::OutOfMemory;
use iwarp_types::PortSpace;

use crate::engine::sync::Mutex;

/// The ports for programs that want any (Linux's default range).
const ANY: RangeInclusive<u16> = 32_768..=60_999;

/// The ports of a device that are taken.
#[derive(Debug, Default)]
pub(crate) struct ServicePorts(Mutex<HashMap<(PortSpace, u16), Vec<Holder>>>);

/// One that has a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Holder {
    address: IpAddr,
    /// All addresses of IPv6 are not those of IPv4.
    ipv6_only: bool,
    shares: bool,
}

/// A port that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct ServicePort {
    ports: Arc<ServicePorts>,
    space: PortSpace,
    port: u16,
    holder: Holder,
}

impl ServicePort {
    pub(crate) const fn number(&self) -> u16 {
        self.port
    }
}

impl Drop for ServicePort {
    fn drop(&mut self) {
        let ServicePorts(taken) = &*self.ports;
        let mut taken = taken.lock();
        let Some(holders) = taken.get_mut(&(self.space, self.port)) else { return };
        if let Some(place) = holders.iter().position(|holder| *holder == self.holder) {
            holders.swap_remove(place);
        }
        if holders.is_empty() {
            taken.remove(&(self.space, self.port));
        }
    }
}

impl Holder {
    fn excludes(&self, other: &Self) -> bool {
        let meet = self.address == other.address || self.covers(other) || other.covers(self);
        meet && !(self.shares && other.shares)
    }

    /// True if it has all addresses, and the other's is among them.
    fn covers(&self, other: &Self) -> bool {
        let same_family = self.address.is_ipv4() == other.address.is_ipv4();
        let both_families = self.address.is_ipv6() && !self.ipv6_only;
        self.address.is_unspecified() && (same_family || both_families)
    }
}

impl ServicePorts {
    /// Takes a port at an address, any where it is 0; that of `::` is one of IPv4 as well, unless
    /// `ipv6_only`. Others may have it too if all of them say so (`shares`), or at another address.
    ///
    /// # Errors
    ///
    /// `AddrInUse`.
    pub(crate) fn take(
        self: &Arc<Self>,
        space: PortSpace,
        addr: SocketAddr,
        ipv6_only: bool,
        shares: bool,
    ) -> io::Result<ServicePort> {
        // Shared ports are for those that ask for them.
        let shares = shares && addr.port() != 0;
        let holder = Holder { address: addr.ip().to_canonical(), ipv6_only, shares };
        let port = match addr.port() {
            0 => self.take_any(space, holder)?,
            port if self.try_take(space, port, holder)? => port,
            _ => return Err(io::ErrorKind::AddrInUse.into()),
        };
        Ok(ServicePort { ports: Arc::clone(self), space, port, holder })
    }

    fn take_any(&self, space: PortSpace, holder: Holder) -> io::Result<u16> {
        let (first, last) = (*ANY.start(), *ANY.end());
        let drawn = getrandom::u32()?;
        let begin = first + (drawn % ANY.len() as u32) as u16;
        for port in (begin..=last).chain(first..begin) {
            if self.try_take(space, port, holder)? {
                return Ok(port);
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    fn try_take(&self, space: PortSpace, port: u16, holder: Holder) -> io::Result<bool> {
        let Self(taken) = self;
        let mut taken = taken.lock();
        taken.try_reserve(1).map_err(|_| OutOfMemory)?;
        let holders = taken.entry((space, port)).or_default();
        if holders.iter().any(|other| other.excludes(&holder)) {
            return Ok(false);
        }
        holders.push(holder);
        Ok(true)
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_one_s_until_it_is_given_back() {
        let ports = Arc::new(ServicePorts::default());
        let take =
            |space, addr: &str, shares| ports.take(space, addr.parse().unwrap(), false, shares);
        let one = take(PortSpace::DATAGRAMS, "10.0.0.1:7174", false).unwrap();
        for other in ["10.0.0.1:7174", "0.0.0.0:7174", "[::ffff:10.0.0.1]:7174", "[::]:7174"] {
            let refused = take(PortSpace::DATAGRAMS, other, true).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{other}");
        }
        let _other_address = take(PortSpace::DATAGRAMS, "10.0.0.2:7174", false).unwrap();
        let _other_space = take(PortSpace::Ib, "10.0.0.1:7174", false).unwrap();
        drop(one);
        let _shared = take(PortSpace::DATAGRAMS, "10.0.0.1:7174", true).unwrap();
        let _sharing = take(PortSpace::DATAGRAMS, "10.0.0.1:7174", true).unwrap();
    }

    #[test]
    fn families_meet_only_in_all_addresses_of_both() {
        let one = ("10.0.0.1:7174", false);
        let all = [("0.0.0.0:7174", false), ("[::]:7174", false), ("[::]:7174", true)];
        let six = ("[2001:db8::1]:7174", false);
        let holders = [one, all[0], all[1], all[2], six];
        let excluded = |a: (&str, bool), b: (&str, bool)| match (a, b) {
            _ if a.0 == b.0 => true,
            // The dual one meets everything.
            _ if a == all[1] || b == all[1] => true,
            _ => (a == one && b == all[0]) || (a == six && b == all[2]),
        };
        for first in holders {
            for second in holders {
                let ports = Arc::new(ServicePorts::default());
                let take = |(addr, only): (&str, bool)| {
                    ports.take(PortSpace::DATAGRAMS, addr.parse().unwrap(), only, false)
                };
                let _first = take(first).unwrap();
                let expected = excluded(first, second) || excluded(second, first);
                assert_eq!(take(second).is_err(), expected, "{first:?}, {second:?}");
            }
        }
    }

    #[test]
    fn any_port_is_none_that_is_taken() {
        let ports = Arc::new(ServicePorts::default());
        let any = "0.0.0.0:0".parse().unwrap();
        let taken: Vec<_> =
            (0..100).map(|_| ports.take(PortSpace::DATAGRAMS, any, false, true).unwrap()).collect();
        let mut numbers: Vec<_> = taken.iter().map(ServicePort::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 100);
        drop(taken);
        assert!(ports.0.lock().is_empty(), "a port is left behind");
    }
}
