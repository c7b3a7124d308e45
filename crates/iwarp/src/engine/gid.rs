// SPDX-License-Identifier: MIT OR Apache-2.0

//! The addresses of a device, as programs for InfiniBand know them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use iwarp_os::{AddressWatch, addr};
use iwarp_types::gid;

/// An entry of the GID table.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Gid {
    /// Its place in the table, which it keeps.
    pub index: usize,
    /// The address.
    pub addr: IpAddr,
    /// The address as programs exchange it: an IPv6 address; an IPv4 one is mapped
    /// (`::ffff:192.0.2.1`).
    pub raw: [u8; 16],
    /// Name of the interface that has the address.
    pub interface: String,
    /// Index of that interface; the scope, where the address is link-local.
    pub interface_index: u32,
    /// Largest packet of that interface in bytes, if known.
    pub mtu: Option<u32>,
}

impl Gid {
    /// An address in the form in which it is exchanged.
    pub const fn raw_of(addr: IpAddr) -> [u8; 16] {
        gid(addr)
    }

    /// The address that a peer gave in that form; `None` for one that says nothing.
    pub fn addr_of(raw: [u8; 16]) -> Option<IpAddr> {
        let addr = Ipv6Addr::from(raw).to_canonical();
        (!addr.is_unspecified()).then_some(addr)
    }
}

/// The address that stands for a host with LIDs: its first IPv4 one.
pub(crate) fn first_v4(gids: &[Gid]) -> Option<(&Gid, Ipv4Addr)> {
    gids.iter().find_map(|gid| match gid.addr {
        IpAddr::V4(addr) => Some((gid, addr)),
        IpAddr::V6(_) => None,
    })
}

/// The addresses of a device, with their places.
///
/// It follows the host at each moment, though programs ask for it often (for each address handle):
/// it is read again when the system has told of a change, and each time if the system tells of
/// none. It is that of the network namespace in which it was asked for first.
#[derive(Debug, Default)]
pub(crate) struct GidTable {
    state: Mutex<GidEntries>,
}

#[derive(Debug, Default)]
struct GidEntries {
    /// The entries that programs were told so far. A place is never given to another address.
    places: Vec<(IpAddr, u32)>,
    /// The entries that were read last, if `watch` notices changes.
    known: Option<Arc<[Gid]>>,
    watch: Option<AddressWatch>,
}

impl GidTable {
    /// The addresses of this moment, each with its place: those of all interfaces, or of `only`.
    pub(crate) fn read(&self, only: Option<&str>) -> io::Result<Arc<[Gid]>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let GidEntries { places, known, watch } = &mut *state;
        // Before they are read: what changes meanwhile is noticed next time.
        if watch.is_none() {
            *watch = AddressWatch::new().ok();
        }
        if watch.as_ref().is_none_or(AddressWatch::take_changes) {
            *known = None;
        }
        if let Some(known) = known {
            return Ok(Arc::clone(known));
        }
        let gids = read(places, only)?;
        *known = watch.is_some().then(|| Arc::clone(&gids));
        Ok(gids)
    }
}

fn read(places: &mut Vec<(IpAddr, u32)>, only: Option<&str>) -> io::Result<Arc<[Gid]>> {
    let interfaces = addr::interfaces()?;
    let mut now: Vec<_> = addr::by_reach(&interfaces)
        .into_iter()
        .filter(|(_, interface)| only.is_none_or(|only| interface.name == only))
        .map(|(addr, interface)| (addr.ip, interface.index, interface.name.as_str(), interface.mtu))
        .collect();
    if now.is_empty() && only.is_none() {
        // Connections within the process need no interface.
        now.push((Ipv4Addr::LOCALHOST.into(), 0, "lo", None));
    }
    let mut gids: Vec<_> = now
        .into_iter()
        .map(|(addr, interface_index, interface, mtu)| Gid {
            index: place(places, (addr, interface_index)),
            addr,
            raw: Gid::raw_of(addr),
            interface: interface.to_owned(),
            interface_index,
            mtu,
        })
        .collect();
    gids.sort_by_key(|gid| gid.index);
    Ok(gids.into())
}

fn place(places: &mut Vec<(IpAddr, u32)>, address: (IpAddr, u32)) -> usize {
    let known = places.iter().position(|place| *place == address);
    known.unwrap_or_else(|| {
        places.push(address);
        places.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: ROCE-134
    #[test]
    fn raw_and_back() {
        let v4: IpAddr = "192.0.2.7".parse().unwrap();
        let raw = Gid::raw_of(v4);
        assert_eq!(raw, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7]);
        assert_eq!(Gid::addr_of(raw), Some(v4));
        let v6: IpAddr = "fe80::7".parse().unwrap();
        assert_eq!(Gid::addr_of(Gid::raw_of(v6)), Some(v6));
        assert_eq!(Gid::addr_of([0; 16]), None);
        assert_eq!(Gid::addr_of(Gid::raw_of(Ipv4Addr::UNSPECIFIED.into())), None);
    }

    #[test]
    fn places_are_kept_and_new_addresses_come_last() {
        let mut places = Vec::new();
        let addrs: Vec<(IpAddr, u32)> =
            ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|ip| (ip.parse().unwrap(), 2)).to_vec();
        assert_eq!(place(&mut places, addrs[0]), 0);
        assert_eq!(place(&mut places, addrs[1]), 1);
        // The first goes, another comes, and the first comes back.
        assert_eq!(place(&mut places, addrs[1]), 1);
        assert_eq!(place(&mut places, addrs[2]), 2);
        assert_eq!(place(&mut places, addrs[0]), 0);
    }

    /// Covers: ROCE-136
    #[test]
    fn the_table_is_in_order_and_has_loopback() {
        let table = GidTable::default();
        let gids = table.read(None).unwrap();
        assert!(gids.iter().enumerate().all(|(place, gid)| gid.index == place), "{gids:?}");
        let localhost = IpAddr::from(Ipv4Addr::LOCALHOST);
        let loopback = gids.iter().find(|gid| gid.addr == localhost).unwrap();
        assert!(gids[..loopback.index].iter().all(|gid| !gid.addr.is_loopback()));
        if let Some(source) = addr::default_source_v4()
            && !source.is_loopback()
        {
            assert_eq!(gids[0].addr, source);
        }
        assert_eq!(table.read(None).unwrap(), gids);
    }

    #[test]
    fn a_table_of_one_interface_has_places_of_its_own() {
        let gids = GidTable::default().read(Some("lo")).unwrap();
        assert!(gids.iter().enumerate().all(|(place, gid)| gid.index == place), "{gids:?}");
        assert!(gids.iter().all(|gid| gid.interface == "lo"), "{gids:?}");
        assert_eq!(GidTable::default().read(Some("no such interface")).unwrap().len(), 0);
    }

    /// Other tests may change something of this host meanwhile, but not each time.
    #[test]
    fn the_table_is_not_read_again_while_nothing_changes() {
        if AddressWatch::new().is_err() {
            return;
        }
        let table = GidTable::default();
        let same = |_| Arc::ptr_eq(&table.read(None).unwrap(), &table.read(None).unwrap());
        assert!((0..1000).any(same));
    }
}
