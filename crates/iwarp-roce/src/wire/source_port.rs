// SPDX-License-Identifier: MIT OR Apache-2.0

//! The UDP source port of a queue pair's packets, where it may be chosen for each packet, as
//! adapters do. Routers choose among equal ways by it, so it is constant for a queue pair
//! (ROCE-140), and differs between queue pairs. A socket has one port for all its packets: its
//! owner gives that one instead.

/// Ports that RoCE v2 uses by convention: this one and all above (ROCE-140).
const FIRST: u16 = 0xc000;
const LOW_BITS: u32 = 14;
const LOW: u32 = (1 << LOW_BITS) - 1;
const FLOW_LABEL: u32 = 0xf_ffff;

/// The source port of a queue pair: by the flow label of its address vector or, if that is 0, by
/// its own number and the peer's, as adapters choose it. For a queue pair of datagrams `peer_qp` is
/// 0.
pub const fn source_port(flow_label: u32, own_qp: u32, peer_qp: u32) -> u16 {
    let label = match flow_label & FLOW_LABEL {
        0 => label_of(own_qp, peer_qp),
        label => label,
    };
    FIRST | ((label & LOW) ^ (label >> LOW_BITS)) as u16
}

/// A flow label that both ends of a connection find alike.
const fn label_of(own_qp: u32, peer_qp: u32) -> u32 {
    let peer_qp = if peer_qp == 0 { own_qp } else { peer_qp };
    let product = own_qp as u64 * peer_qp as u64;
    let product = product ^ product >> 20;
    let product = product ^ product >> 40;
    product as u32 & FLOW_LABEL
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::source_port;

    #[test]
    fn the_source_port_follows_the_label_or_the_queue_pairs() {
        assert_eq!(source_port(1, 17, 18), 0xc001);
        // The upper six bits are folded into the lower ones.
        assert_eq!(source_port(0xf_ffff, 17, 18), 0xc000 | 0x3fff ^ 0x3f);
        assert_eq!(source_port(0, 17, 18), source_port(0, 18, 17));
        assert_eq!(source_port(0, 0x11, 0x12), 0xc000 | 0x132);
        assert_eq!(source_port(0, 0x12_3456, 0x65_4321), 0xf787);
        assert_ne!(source_port(0, 17, 0), source_port(0, 18, 0));
        // Bits beyond the label do not count.
        assert_eq!(source_port(0x10_0000, 17, 18), source_port(0, 17, 18));
    }

    #[test]
    fn queue_pairs_of_two_hosts_spread_over_the_ports() {
        let ports: BTreeSet<u16> =
            (0..1000).map(|qp| source_port(0, 0x1000 + qp, 0x2000 + 7 * qp)).collect();
        assert!(ports.len() > 900, "{}", ports.len());
        assert!(ports.iter().all(|port| *port >= 0xc000));
    }
}
