// SPDX-License-Identifier: MIT OR Apache-2.0

//! The line of the log that tells that a queue pair may send packets.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use iwarp_roce::Attributes;
use iwarp_roce::wire::PORT;

use crate::engine::fate::{Fate, ROCE, is_read, shown};
use crate::port::canonical;
use crate::report;

/// A queue pair may send packets to its peer.
pub(super) fn of_packets(qp: u32, attributes: &Attributes) -> Option<Arc<Fate>> {
    if !is_read() {
        return None;
    }
    let at = |ip: IpAddr| canonical(SocketAddr::new(ip, PORT));
    let address = &attributes.path.address;
    let (local, peer) = (Some(at(address.source)), at(address.destination));
    report!(
        fate INFO,
        qp,
        peer_qp = attributes.dest_qp,
        local = shown(local),
        %peer,
        wire = ROCE,
        path_mtu = attributes.mtu.octets(),
        sq_psn = attributes.sq_psn.number(),
        rq_psn = attributes.rq_psn.number(),
        ord = attributes.max_rd_atomic,
        ird = attributes.max_dest_rd_atomic,
        "connected"
    );
    Some(Fate::new(qp, Some(attributes.dest_qp), (local, peer), ROCE, false))
}
