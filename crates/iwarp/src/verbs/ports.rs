// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ports of a device, and the port of a queue pair.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use iwarp_types::QpState;

use super::{Device, QueuePair};
use crate::connect::Peer;
use crate::engine::gid::{Gid, first_v4};

impl Device {
    /// As [`Self::gid_table`], that of a port: they have numbers from 1 to
    /// [`phys_port_cnt`](crate::verbs::DeviceAttributes::phys_port_cnt).
    ///
    /// # Errors
    ///
    /// `InvalidInput` where there is no such port; those of [`Self::gids`].
    pub fn port_gid_table(&self, port: u8) -> io::Result<Arc<[Gid]>> {
        self.wires()?.profile.checked_port(port)?.gids()
    }

    /// The number of the port that has an address of this host: the first of several. `None` where
    /// none of this device has it, and in a forked child.
    pub fn port_of(&self, addr: IpAddr) -> Option<u8> {
        self.wires().ok()?.profile.port_at(addr)
    }

    /// Stands for the host among those of its IPv4 /16 network, for programs that know no GIDs:
    /// the lower half of its first IPv4 address in the GID table; 0 without one.
    ///
    /// # Errors
    ///
    /// As [`Self::gids`].
    pub fn lid(&self) -> io::Result<u16> {
        Ok(lid_of(&self.gid_table()?))
    }

    /// As [`Self::lid`], that of a port.
    ///
    /// # Errors
    ///
    /// As [`Self::port_gid_table`].
    pub fn port_lid(&self, port: u8) -> io::Result<u16> {
        Ok(lid_of(&self.port_gid_table(port)?))
    }
}

/// The LID of the host by a GID table; 0 without an IPv4 address.
fn lid_of(gids: &[Gid]) -> u16 {
    first_v4(gids).map_or(0, |(_, addr)| addr.to_bits() as u16)
}

impl QueuePair {
    /// Puts it on a port of its device (`IBV_QP_PORT`), in Reset or Init: it reaches peers from the
    /// addresses of that port only, and they find it at no others. Until then and after Reset, it
    /// has the addresses of all ports.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where there is no such port, and for another port than its own in another
    /// state; `ENODEV` in a forked child.
    pub fn set_port(&self, port: u8) -> io::Result<()> {
        let endpoint = &self.inner()?.endpoint;
        endpoint.profile.checked_port(port)?;
        let has_choice = endpoint.profile.ports().len() > 1;
        if has_choice && port != endpoint.port() {
            if !matches!(self.state(), QpState::Reset | QpState::Init) {
                let why = "a queue pair is told its port in RESET or INIT";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            endpoint.set_port(port);
        }
        Ok(())
    }
}

impl Peer {
    /// The queue pair `qpn` of the host with that LID, for programs that exchange no more: the
    /// lower half of an IPv4 address in this host's own /16 network (see [`Device::lid`]).
    ///
    /// # Errors
    ///
    /// `AddrNotAvailable` on a host without IPv4; those of asking for the addresses.
    pub fn from_lid(device: &Device, lid: u16, qpn: u32, psn: u32) -> io::Result<Self> {
        Self::from_lid_at(&device.gid_table()?, lid, qpn, psn)
    }

    /// As [`Self::from_lid`], by the GID table of a port.
    ///
    /// # Errors
    ///
    /// As there.
    #[doc(hidden)]
    pub fn from_lid_at(gids: &[Gid], lid: u16, qpn: u32, psn: u32) -> io::Result<Self> {
        let (gid, own) = first_v4(gids).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let [a, b, ..] = own.octets();
        let [c, d] = lid.to_be_bytes();
        Ok(Self::new(gid, Ipv4Addr::new(a, b, c, d).into(), qpn, psn))
    }
}
