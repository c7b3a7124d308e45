// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hosts of a network in memory, and the owners of their addresses and ports.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Queue, Sharing};

/// The first port of those that are chosen for others.
const FIRST_ANY: u16 = 49_152;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Switch {
    hosts: Mutex<HashMap<IpAddr, Ports>>,
}

/// The ports of a host.
#[derive(Debug)]
struct Ports {
    entries: Vec<Entry>,
    serial: u64,
    next_any: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self { entries: Vec::new(), serial: 0, next_any: FIRST_ANY }
    }
}

#[derive(Debug)]
struct Entry {
    serial: u64,
    /// The reservation that it belongs to, which may be itself.
    owner: u64,
    addr: SocketAddr,
    sharing: Sharing,
    queue: Option<Arc<Queue>>,
}

/// True if two sockets at these addresses, on one port, are in each other's way.
fn collide(one: IpAddr, other: IpAddr) -> bool {
    one == other || one.is_unspecified() || other.is_unspecified()
}

impl Ports {
    fn is_free(&self, addr: SocketAddr, sharing: Sharing) -> bool {
        !self.entries.iter().any(|entry| {
            entry.addr.port() == addr.port()
                && collide(entry.addr.ip(), addr.ip())
                && (sharing, entry.sharing) != (Sharing::Shared, Sharing::Shared)
        })
    }

    /// A port that is free at every address.
    fn any(&mut self) -> io::Result<u16> {
        for _ in FIRST_ANY..=u16::MAX {
            let port = self.next_any;
            self.next_any = port.checked_add(1).unwrap_or(FIRST_ANY);
            if !self.entries.iter().any(|entry| entry.addr.port() == port) {
                return Ok(port);
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    fn add(&mut self, addr: SocketAddr, sharing: Sharing, owner: Option<u64>) -> u64 {
        self.serial += 1;
        let serial = self.serial;
        let owner = owner.unwrap_or(serial);
        self.entries.push(Entry { serial, owner, addr, sharing, queue: None });
        serial
    }
}

impl Switch {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Ports>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, host: IpAddr) {
        self.lock().entry(host).or_default();
    }

    pub(super) fn has(&self, host: IpAddr) -> bool {
        self.lock().contains_key(&host)
    }

    pub(super) fn any_port(&self, host: IpAddr) -> io::Result<u16> {
        self.lock().entry(host).or_default().any()
    }

    /// Takes an address of `host`; port 0: any.
    pub(super) fn claim(
        self: &Arc<Self>,
        host: IpAddr,
        mut addr: SocketAddr,
        sharing: Sharing,
    ) -> io::Result<Claim> {
        let mut hosts = self.lock();
        let ports = hosts.entry(host).or_default();
        if addr.port() == 0 {
            addr.set_port(ports.any()?);
        }
        if !ports.is_free(addr, sharing) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let serial = ports.add(addr, sharing, None);
        Ok(Claim { switch: Arc::clone(self), host, addr, serial, owner: serial })
    }

    /// The listener at that address of a host: there rather than everywhere.
    pub(super) fn listener(&self, host: IpAddr, to: SocketAddr) -> Option<Arc<Queue>> {
        let hosts = self.lock();
        let entries = &hosts.get(&host)?.entries;
        let at = |addr: SocketAddr| {
            let here = entries.iter().filter(|entry| entry.addr == addr && entry.queue.is_some());
            // The one before may be on its way out.
            let newest = here.max_by_key(|entry| entry.serial)?;
            newest.queue.as_ref().map(Arc::clone)
        };
        let everywhere = |ip: IpAddr| at(SocketAddr::new(ip, to.port()));
        at(to)
            .or_else(|| everywhere(Ipv6Addr::UNSPECIFIED.into()))
            .or_else(|| everywhere(Ipv4Addr::UNSPECIFIED.into()))
    }
}

/// An address and port that are taken until this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    switch: Arc<Switch>,
    host: IpAddr,
    addr: SocketAddr,
    serial: u64,
    owner: u64,
}

impl Claim {
    pub(super) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Claims one address with this port.
    pub(super) fn beside(&self, ip: IpAddr) -> Self {
        let addr = SocketAddr::new(ip, self.addr.port());
        let mut hosts = self.switch.lock();
        let serial =
            hosts.entry(self.host).or_default().add(addr, Sharing::Exclusive, Some(self.owner));
        let (switch, host, owner) = (Arc::clone(&self.switch), self.host, self.owner);
        Self { switch, host, addr, serial, owner }
    }

    /// Connections go to `queue` from now on.
    pub(super) fn listen(&self, queue: &Arc<Queue>) -> io::Result<()> {
        let mut hosts = self.switch.lock();
        let ports = hosts.entry(self.host).or_default();
        let taken = ports.entries.iter().any(|other| {
            other.queue.is_some()
                && other.owner != self.owner
                && other.addr.port() == self.addr.port()
                && collide(other.addr.ip(), self.addr.ip())
        });
        if taken {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let mut entries = ports.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.serial == self.serial) {
            entry.queue = Some(Arc::clone(queue));
        }
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut hosts = self.switch.lock();
        let Some(ports) = hosts.get_mut(&self.host) else { return };
        let Some(place) = ports.entries.iter().position(|entry| entry.serial == self.serial) else {
            return;
        };
        let gone = ports.entries.swap_remove(place);
        drop(hosts);
        // With the connections that were never accepted, which have claims of their own.
        drop(gone);
    }
}
