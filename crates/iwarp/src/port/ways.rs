// SPDX-License-Identifier: MIT OR Apache-2.0

//! The interfaces by which datagrams leave that have the address of a device which is bound to one.
//!
//! The routes choose by the destination: of two interfaces in one subnet they take one for all. A
//! card sends by its own port, and so do these packets, as far as the routes have a way there at
//! all. Packets to addresses of this host never leave it.
//!
//! (TCP has no counterpart. A connection is bound to an interface as a whole (`SO_BINDTODEVICE`),
//! and takes no packets that come by another: with two interfaces in one subnet the peer's do,
//! unless it binds its end as well, and the connection does not come about.)

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use iwarp_os::{Interface, addr, route};

use super::lock;
use crate::hash::OwnKeys;

/// The time for which the system is not asked again.
const LATELY: Duration = Duration::from_secs(1);

/// Ways that are remembered.
const WAYS: usize = 4096;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Ways {
    /// Names of the interfaces that devices are bound to.
    bound: Vec<String>,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// Interfaces of the host at that time.
    there: (Vec<Interface>, Option<Instant>),
    /// By source and destination, with the time of the look-up.
    ways: OwnKeys<(IpAddr, IpAddr), (u32, Instant)>,
}

impl Ways {
    pub(super) fn new(bound: Vec<String>) -> Self {
        let known = Known { there: (Vec::new(), None), ways: OwnKeys::default() };
        Self { bound, known: Mutex::new(known) }
    }

    /// The index of the interface that a packet has to go by; 0: as the routes have it.
    pub(super) fn interface(&self, source: IpAddr, destination: IpAddr) -> u32 {
        let (now, way) = (Instant::now(), (source, destination));
        let mut known = lock(&self.known);
        let before = known.ways.get(&way).copied();
        if let Some((index, since)) = before
            && now.duration_since(since) < LATELY
        {
            return index;
        }
        let index = self.look_up(&mut known, way, now);
        if before.is_none_or(|(before, _)| before != index) {
            tracing::debug!(%source, %destination, interface = index, "the way of packets");
        }
        if known.ways.len() >= WAYS {
            known.ways.clear();
        }
        known.ways.insert(way, (index, now));
        index
    }

    fn look_up(&self, known: &mut Known, way: (IpAddr, IpAddr), now: Instant) -> u32 {
        let (there, since) = &mut known.there;
        if since.is_none_or(|since| now.duration_since(since) >= LATELY) {
            *there = addr::interfaces().unwrap_or_default();
            *since = Some(now);
        }
        let (source, destination) = (way.0.to_canonical(), way.1.to_canonical());
        let Some(index) = own_interface(&self.bound, there, source, destination) else { return 0 };
        match route::leads_by(index, source, destination) {
            Ok(true) => index,
            Ok(false) => 0,
            Err(error) => {
                tracing::debug!(%error, "cannot ask for routes: packets leave as these have it");
                0
            }
        }
    }
}

/// The interface of the source, if a device is bound to it and the destination is another host.
fn own_interface(
    bound: &[String],
    there: &[Interface],
    source: IpAddr,
    destination: IpAddr,
) -> Option<u32> {
    let has = |one: &Interface, ip| one.addrs.iter().any(|own| own.ip == ip);
    if destination.is_loopback() || there.iter().any(|one| has(one, destination)) {
        return None;
    }
    let is_own = |one: &&Interface| !one.loopback && bound.contains(&one.name) && has(one, source);
    there.iter().find(is_own).map(|one| one.index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::traffic::tests::interface;

    #[test]
    fn only_packets_of_bound_interfaces_to_other_hosts_have_ways_of_their_own() {
        let there = [
            interface("lo", 1, &["127.0.0.1"]),
            interface("eth0", 2, &["192.0.2.1"]),
            interface("eth1", 3, &["192.0.2.2"]),
        ];
        let bound = ["eth1".to_owned(), "lo".to_owned()];
        let found = |source: &str, destination: &str| {
            let [source, destination] = [source, destination].map(|ip| ip.parse().unwrap());
            own_interface(&bound, &there, source, destination)
        };
        assert_eq!(found("192.0.2.2", "192.0.2.9"), Some(3));
        assert_eq!(found("192.0.2.1", "192.0.2.9"), None);
        assert_eq!(found("127.0.0.1", "192.0.2.9"), None);
        for own in ["127.0.0.9", "192.0.2.1", "192.0.2.2"] {
            assert_eq!(found("192.0.2.2", own), None);
        }
    }
}
