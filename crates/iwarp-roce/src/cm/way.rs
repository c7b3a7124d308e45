// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ways of packets: to a peer's connection manager, and of a connection's data.

use iwarp_types::AddressVector;

use crate::wire::{GSI_QP, PORT, Path};

/// The way back to the sender of a management datagram.
///
/// Peers send from any port and take answers at the well-known one. A datagram that came to another
/// port is one of our own kind, which sends from the port that it reads.
pub(super) fn back(path: &Path) -> Path {
    let AddressVector { source, destination, .. } = path.address;
    let address = AddressVector::new(destination.to_canonical(), source.to_canonical());
    if path.destination_port == PORT {
        return Path::new(address, source_port(0, GSI_QP, GSI_QP));
    }
    Path { address, source_port: path.destination_port, destination_port: path.source_port }
}

/// True if a datagram that came by `path` is from the end that `way` leads to.
pub(super) fn is_from(path: &Path, way: &Path) -> bool {
    path.address.source.to_canonical() == way.address.destination.to_canonical()
        && path.address.destination.to_canonical() == way.address.source.to_canonical()
}

/// The UDP source port of a connection's packets, as cards choose it (ROCE-140): by the flow label,
/// or by the queue pairs. A sender that uses a socket puts the socket's port in its place.
pub(super) fn source_port(flow_label: u32, own: u32, peer: u32) -> u16 {
    let label = if flow_label != 0 {
        flow_label & 0xf_ffff
    } else {
        let product = u64::from(own) * u64::from(peer);
        let folded = product ^ product >> 20;
        (folded ^ folded >> 40) as u32 & 0xf_ffff
    };
    (label & 0x3fff ^ label >> 14) as u16 | 0xc000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_are_in_the_upper_quarter_and_constant() {
        assert_eq!(source_port(1, 0, 0), 0xc001);
        assert_eq!(source_port(0xf_ffff, 7, 8), 0xffc0);
        assert_eq!(source_port(0, 0x11, 0x12), source_port(0, 0x12, 0x11));
        let ports = (0..64).map(|qp| source_port(0, 0x1000 + qp, 0x2000));
        assert!(ports.clone().all(|port| port >= 0xc000));
        assert!(ports.collect::<std::collections::BTreeSet<_>>().len() > 32);
    }

    #[test]
    fn answers_go_to_the_well_known_port_unless_both_ends_are_of_our_kind() {
        let address = AddressVector::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let way = back(&Path::new(address, 1234));
        assert_eq!((way.destination_port, way.source_port), (PORT, 0xc001));
        assert_eq!(way.address.destination, address.source);
        assert!(is_from(&Path::new(address, 9), &way));
        assert!(!is_from(&way, &way));
        let own = back(&Path { address, source_port: 7000, destination_port: 7001 });
        assert_eq!((own.destination_port, own.source_port), (7000, 7001));
    }
}
