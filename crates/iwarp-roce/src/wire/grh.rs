// SPDX-License-Identifier: MIT OR Apache-2.0

//! The 40 octets ahead of the payload in a datagram's receive (ROCE-118), in place of the global
//! route header (GRH) of InfiniBand.
//!
//! They are the IPv6 header, or 20 octets of zeros and the IPv4 header (ROCE-119). Programs tell
//! them apart by the version in the first octet, and by the checksum of a possible IPv4 header; so
//! zeros come first, and the checksum is right. A socket gives no header: this one is built anew
//! (ROCE-120).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use iwarp_types::{AddressVector, gid};
use thiserror::Error;

use super::Path;

/// Octets of it.
pub const GRH_LEN: usize = 40;

const IPV4_AT: usize = 20;
const UDP: u8 = 17;
const UDP_LEN: usize = 8;
const DONT_FRAGMENT: u8 = 0x40;

/// The reason that 40 octets give no address to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NoAnswer {
    /// Neither IPv4 nor IPv6, or no UDP in it (`EPROTONOSUPPORT`).
    #[error("no header of UDP over IP")]
    Foreign,
    /// It went to a multicast group, which is no host's own address (`EINVAL`).
    #[error("the datagram went to a multicast group")]
    Multicast,
}

/// The 40 octets for a packet that has come by `path` with so many octets behind its UDP header.
pub fn write(path: &Path, octets: usize) -> [u8; GRH_LEN] {
    let address = &path.address;
    let mut grh = [0; GRH_LEN];
    let udp_len = UDP_LEN + octets;
    match (address.source.to_canonical(), address.destination.to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = &mut grh[IPV4_AT..];
            header[0] = 0x45;
            header[1] = address.traffic_class;
            header[2..4].copy_from_slice(&((20 + udp_len) as u16).to_be_bytes());
            header[6] = DONT_FRAGMENT;
            header[8] = address.hop_limit;
            header[9] = UDP;
            header[12..16].copy_from_slice(&source.octets());
            header[16..].copy_from_slice(&destination.octets());
            let sum = checksum(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (source, destination) => {
            let class = u32::from(address.traffic_class) << 20;
            let first = 6 << 28 | class | address.flow_label & FLOW_LABEL;
            grh[..4].copy_from_slice(&first.to_be_bytes());
            grh[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
            grh[6] = UDP;
            grh[7] = address.hop_limit;
            grh[8..24].copy_from_slice(&gid(source));
            grh[24..].copy_from_slice(&gid(destination));
        }
    }
    grh
}

const FLOW_LABEL: u32 = 0xf_ffff;

/// The way back to the sender of a datagram: from the address that it went to, to the one that it
/// came from, with its traffic class, hop limit and flow label. So `ibv_init_ah_from_wc` makes it
/// (ROCE-124).
///
/// # Errors
///
/// [`NoAnswer`], for instance where a program has overwritten the octets.
pub fn answer(grh: &[u8; GRH_LEN]) -> Result<AddressVector, NoAnswer> {
    let header: &[u8; 20] = grh[IPV4_AT..].try_into().map_err(|_| NoAnswer::Foreign)?;
    let is_6 = grh[0] >> 4 == 6;
    // A header with the right checksum is one of IPv4: the octets ahead of it do not count.
    if header[0] == 0x45 && checksum(header) == 0 || !is_6 && header[0] >> 4 == 4 {
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
        let own = Ipv4Addr::new(d0, d1, d2, d3);
        if own.is_multicast() {
            return Err(NoAnswer::Multicast);
        }
        let peer = Ipv4Addr::new(s0, s1, s2, s3);
        return Ok(AddressVector {
            traffic_class: header[1],
            hop_limit: header[8],
            ..AddressVector::new(own.into(), peer.into())
        });
    }
    if !is_6 {
        return Err(NoAnswer::Foreign);
    }
    let address = |at: usize| Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|n| grh[at + n]));
    let (peer, own) = (address(8), address(24));
    if own.is_multicast() {
        return Err(NoAnswer::Multicast);
    }
    if grh[6] != UDP {
        return Err(NoAnswer::Foreign);
    }
    let first = u32::from_be_bytes([grh[0], grh[1], grh[2], grh[3]]);
    Ok(AddressVector {
        flow_label: first & FLOW_LABEL,
        traffic_class: (first >> 20) as u8,
        hop_limit: grh[7],
        ..AddressVector::new(own.into(), peer.into())
    })
}

/// The checksum of an IPv4 header; 0 for a header that contains the right one.
fn checksum(header: &[u8]) -> u16 {
    let words = header.as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(source: IpAddr, destination: IpAddr) -> Path {
        let address = AddressVector {
            traffic_class: 0x6a,
            hop_limit: 63,
            flow_label: 0x1_2345,
            ..AddressVector::new(source, destination)
        };
        Path::new(address, 0xc123)
    }

    /// Covers: ROCE-119, ROCE-120
    #[test]
    fn ipv4_stands_behind_zeros_with_its_checksum() {
        let path = path([10, 77, 0, 2].into(), [10, 77, 0, 3].into());
        let grh = write(&path, 1040);
        assert_eq!(grh[..20], [0; 20]);
        let expected =
            [0x45, 0x6a, 0x04, 0x2c, 0, 0, 0x40, 0, 63, 17, 0x22, 0xb9, 10, 77, 0, 2, 10, 77, 0, 3];
        assert_eq!(grh[20..], expected);
        let back = answer(&grh).unwrap();
        assert_eq!(
            back,
            AddressVector {
                traffic_class: 0x6a,
                hop_limit: 63,
                ..AddressVector::new([10, 77, 0, 3].into(), [10, 77, 0, 2].into())
            }
        );
    }

    /// Covers: ROCE-120, ROCE-124
    #[test]
    fn ipv6_is_its_header() {
        let of = |last| IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, last]);
        let grh = write(&path(of(2), of(3)), 280);
        assert_eq!(grh[..8], [0x66, 0xa1, 0x23, 0x45, 0x01, 0x20, 17, 63]);
        assert_eq!((&grh[8..10], grh[23], grh[39]), (&[0xfd, 0x77][..], 2, 3));
        let back = answer(&grh).unwrap();
        assert_eq!((back.source, back.destination), (of(3), of(2)));
        assert_eq!((back.traffic_class, back.hop_limit, back.flow_label), (0x6a, 63, 0x1_2345));
        // The first version of RoCE.
        let mut first = grh;
        first[6] = 0x1b;
        assert_eq!(answer(&first), Err(NoAnswer::Foreign));
    }

    /// Covers: ROCE-124
    #[test]
    fn the_checksum_decides_where_the_version_does_not() {
        let mut grh = write(&path([10, 0, 0, 1].into(), [10, 0, 0, 2].into()), 100);
        // Octets that others leave ahead of the header may look like IPv6.
        grh[0] = 0x60;
        assert_eq!(answer(&grh).unwrap().destination, IpAddr::from([10, 0, 0, 1]));
        grh[30] ^= 1;
        assert_eq!(answer(&grh), Err(NoAnswer::Foreign));
        // Without a version of 6 a wrong checksum does no harm.
        grh[0] = 0;
        assert_eq!(answer(&grh).unwrap().destination, IpAddr::from([10, 0, 0, 1]));
        // Nor does anything ahead of the header, where that is right.
        grh[30] ^= 1;
        grh[..20].fill(0xff);
        assert_eq!(answer(&grh).unwrap().destination, IpAddr::from([10, 0, 0, 1]));
        grh[20] = 0;
        assert_eq!(answer(&grh), Err(NoAnswer::Foreign));
        let group = write(&path([10, 0, 0, 1].into(), [239, 1, 2, 3].into()), 100);
        assert_eq!(answer(&group), Err(NoAnswer::Multicast));
    }

    proptest! {
        #[test]
        fn written_headers_are_answered(
            source: u128, destination: u128, four: bool, octets in 0..9000_usize,
        ) {
            let address = |bits: u128| -> IpAddr {
                if four {
                    Ipv4Addr::from_bits(bits as u32).into()
                } else {
                    Ipv6Addr::from_bits(bits).to_canonical()
                }
            };
            let path = path(address(source), address(destination));
            prop_assume!(path.address.source.is_ipv4() == path.address.destination.is_ipv4());
            match answer(&write(&path, octets)) {
                Ok(back) => {
                    prop_assert_eq!(back.source, path.address.destination);
                    prop_assert_eq!(back.destination, path.address.source);
                }
                Err(error) => {
                    prop_assert_eq!(error, NoAnswer::Multicast);
                    prop_assert!(path.address.destination.is_multicast());
                }
            }
        }

        #[test]
        fn any_octets_have_an_answer_or_none(grh: [[u8; 20]; 2]) {
            let grh: [u8; GRH_LEN] = grh.as_flattened().try_into().unwrap();
            let _ = answer(&grh);
        }
    }
}
