// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packets of UDP.

use std::net::SocketAddr;
use std::sync::MutexGuard;
use std::time::SystemTime;

use iwarp_types::{AddressVector, Path};

use super::file::{Medium, Output};
use super::packet::Way;
use super::pcapng::About;
use super::{is_on, lock, output};

/// A packet that has gone or come.
#[derive(Debug)]
pub(crate) struct Datagram<'a> {
    pub(crate) path: Path,
    /// All behind the UDP header.
    pub(crate) octets: &'a [u8],
    /// Number of the packet in what one call moves of a train, which systems that cut trains give
    /// IPv4's packets as identification.
    pub(crate) number: usize,
}

/// Datagrams while a call moves them: those that come meanwhile are added behind.
#[derive(Debug)]
pub(crate) struct DatagramWatch {
    output: &'static Output,
    _turn: MutexGuard<'static, ()>,
}

/// The datagrams of the process, if a capture is on.
#[inline]
pub(crate) fn watch_datagrams() -> Option<DatagramWatch> {
    if is_on() { watch_captured() } else { None }
}

#[cold]
fn watch_captured() -> Option<DatagramWatch> {
    let output = output()?;
    Some(DatagramWatch { output, _turn: lock(&output.datagrams) })
}

impl DatagramWatch {
    /// A call has moved these.
    pub(crate) fn moved<'a>(&self, sent: bool, all: impl Iterator<Item = Datagram<'a>>) {
        all.for_each(|datagram| self.add(sent, &datagram));
    }

    fn add(&self, sent: bool, datagram: &Datagram<'_>) {
        let Datagram { path, octets, number } = datagram;
        let AddressVector { source, destination, .. } = path.address;
        let from = SocketAddr::new(source, path.source_port);
        let to = SocketAddr::new(destination, path.destination_port);
        let mut way = Way::new(from, to);
        way.traffic_class = path.address.traffic_class;
        way.flow_label = path.address.flow_label;
        way.identification = *number as u16;
        if path.address.hop_limit > 1 {
            way.hop_limit = path.address.hop_limit;
        }
        let headers = way.udp_headers();
        let len = headers + octets.len();
        let about = About { interface: 0, at: SystemTime::now(), sent, len, comments: &[] };
        self.output.add(Medium::Datagrams, about, |to| {
            way.put_udp(to, octets.len());
            let kept = self.output.snap().saturating_sub(headers).min(octets.len());
            to.extend(&octets[..kept]);
        });
    }
}
