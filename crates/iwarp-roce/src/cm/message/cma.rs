// SPDX-License-Identifier: MIT OR Apache-2.0

//! The header of `rdma_cm` at the start of the private data of a REQ (ROCE-150) and a SIDR_REQ
//! (ROCE-171).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Octets of the header.
pub const CMA_HEADER_LEN: usize = 36;

const VERSION: u8 = 0;

/// IP addresses of both ends, and the port of the end that asks. The other port is in the service
/// id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmaHeader {
    /// Port of the end that asks.
    pub source_port: u16,
    /// Address of the end that asks.
    pub source: IpAddr,
    /// Address of the end that is asked, of that family too.
    pub destination: IpAddr,
}

impl CmaHeader {
    /// Reads one; `None` if the octets are no such header.
    pub fn read(octets: &[u8]) -> Option<Self> {
        let octets: &[u8; CMA_HEADER_LEN] = octets.get(..CMA_HEADER_LEN)?.try_into().ok()?;
        let address = |at: usize| -> [u8; 16] { core::array::from_fn(|index| octets[at + index]) };
        let family: fn([u8; 16]) -> Option<IpAddr> = match (octets[0], octets[1] >> 4) {
            (VERSION, 4) => |octets| {
                let [.., a, b, c, d] = octets;
                Some(Ipv4Addr::new(a, b, c, d).into())
            },
            (VERSION, 6) => |octets| Some(Ipv6Addr::from(octets).into()),
            _ => return None,
        };
        Some(Self {
            source_port: u16::from_be_bytes([octets[2], octets[3]]),
            source: family(address(4))?,
            destination: family(address(20))?,
        })
    }

    /// Writes it; the lower nibble of the second octet and the octets before an IPv4 address are 0.
    pub fn write(&self) -> [u8; CMA_HEADER_LEN] {
        let mut octets = [0; CMA_HEADER_LEN];
        octets[0] = VERSION;
        octets[1] = if self.source.is_ipv4() { 4 << 4 } else { 6 << 4 };
        octets[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        for (at, address) in [(4, self.source), (20, self.destination)] {
            match address {
                IpAddr::V4(address) => {
                    octets[at + 12..at + 16].copy_from_slice(&address.octets());
                }
                IpAddr::V6(address) => octets[at..at + 16].copy_from_slice(&address.octets()),
            }
        }
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::CmaHeader;

    /// Covers: ROCE-150
    #[test]
    fn both_families_come_back() {
        for (source, destination) in [("10.77.0.2", "10.77.0.3"), ("fd77::2", "fd77::3")] {
            let header = CmaHeader {
                source_port: 58_618,
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
            };
            let mut octets = header.write();
            assert_eq!(CmaHeader::read(&octets), Some(header));
            octets[0] = 1;
            assert_eq!(CmaHeader::read(&octets), None, "another version");
            octets[0] = 0;
            octets[1] = 0x50;
            assert_eq!(CmaHeader::read(&octets), None, "another family");
        }
        assert_eq!(CmaHeader::read(&[0; 35]), None);
    }
}
