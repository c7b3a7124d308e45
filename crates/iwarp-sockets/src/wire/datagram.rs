// SPDX-License-Identifier: MIT OR Apache-2.0

//! Headers of datagrams: over the UDP socket, by which ends find each other's queue pairs, and over
//! UD, in front of each datagram.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use thiserror::Error;

/// Octets of the longest header over UDP.
pub const MAX_UDP_HEADER_LEN: usize = UDP_V6_LEN;
/// Octets of the longest header over UD.
pub const MAX_UD_HEADER_LEN: usize = UD_V6_LEN;
/// Bits of a queue pair's number.
pub const QPN_MASK: u32 = 0xff_ffff;

const TAG: u32 = 0x5555_5555;
const V4: u8 = 4;
const V6: u8 = 6;
const UDP_V4_LEN: usize = 16;
const UDP_V6_LEN: usize = 28;
const UD_V4_LEN: usize = 8;
const UD_V6_LEN: usize = 24;

/// Octets that are no header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DatagramError {
    /// The datagram is shorter than the header that it begins.
    #[error("{0} octets are too short for the header of a datagram rsocket")]
    Short(usize),
    /// A datagram of somebody who has no rsocket.
    #[error("the datagram does not begin as those of rsockets do")]
    Foreign,
    /// Neither IPv4 nor IPv6.
    #[error("the header of a datagram names IP version {0}")]
    Version(u8),
    /// The length does not belong to the version.
    #[error("the header of a datagram says it has {0} octets, which its version has not")]
    Length(u8),
    /// An operation that is not known.
    #[error("the header of a datagram has the unknown operation {0}")]
    Op(u8),
}

/// The purpose of a datagram over UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UdpOp {
    /// Data follow.
    Data,
    /// It says a queue pair's number only.
    Control,
}

/// The header over UDP (RS-DG-02).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpHeader {
    /// The purpose.
    pub op: UdpOp,
    /// The sender's queue pair; 24 bits.
    pub qpn: u32,
    /// The address of the sender's queue pair, as the sender says it.
    pub addr: IpAddr,
}

impl UdpHeader {
    const DATA: u8 = 0;
    const CONTROL: u8 = 7;

    /// The header, and the data behind it.
    pub fn read(octets: &[u8]) -> Result<(Self, &[u8]), DatagramError> {
        let short = DatagramError::Short(octets.len());
        let (head, rest) = octets.split_first_chunk::<12>().ok_or(short)?;
        let [t0, t1, t2, t3, version, op, length, _, q0, q1, q2, q3] = *head;
        if u32::from_be_bytes([t0, t1, t2, t3]) != TAG {
            return Err(DatagramError::Foreign);
        }
        let op = match op {
            Self::DATA => UdpOp::Data,
            Self::CONTROL => UdpOp::Control,
            other => return Err(DatagramError::Op(other)),
        };
        let (addr, data) = address(version, length, [UDP_V4_LEN, UDP_V6_LEN], rest, short)?;
        Ok((Self { op, qpn: u32::from_be_bytes([q0, q1, q2, q3]) & QPN_MASK, addr }, data))
    }

    /// Writes it; the number of octets.
    pub fn write(&self, out: &mut [u8; MAX_UDP_HEADER_LEN]) -> usize {
        let len = self.len();
        out[..4].copy_from_slice(&TAG.to_be_bytes());
        out[4] = version(self.addr);
        out[5] = match self.op {
            UdpOp::Data => Self::DATA,
            UdpOp::Control => Self::CONTROL,
        };
        out[6] = len as u8;
        out[7] = 0;
        out[8..12].copy_from_slice(&(self.qpn & QPN_MASK).to_be_bytes());
        put_address(self.addr, &mut out[12..len]);
        len
    }

    /// Octets of the header.
    #[allow(clippy::len_without_is_empty, reason = "no header is empty")]
    pub fn len(&self) -> usize {
        if self.addr.is_ipv4() { UDP_V4_LEN } else { UDP_V6_LEN }
    }
}

/// The header over UD (RS-DG-04): the address of the sending socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdHeader {
    /// The sender's address and UDP port.
    pub source: SocketAddr,
}

impl UdHeader {
    /// The header, and the data behind it.
    pub fn read(octets: &[u8]) -> Result<(Self, &[u8]), DatagramError> {
        let short = DatagramError::Short(octets.len());
        let (head, rest) = octets.split_first_chunk::<4>().ok_or(short)?;
        let [version, length, p0, p1] = *head;
        let port = u16::from_be_bytes([p0, p1]);
        let (flow, rest) = match version {
            V6 => {
                let (flow, rest) = rest.split_first_chunk().ok_or(short)?;
                (u32::from_be_bytes(*flow), rest)
            }
            _ => (0, rest),
        };
        let (addr, data) = address(version, length, [UD_V4_LEN, UD_V6_LEN], rest, short)?;
        let source = match addr {
            IpAddr::V4(addr) => SocketAddrV4::new(addr, port).into(),
            IpAddr::V6(addr) => SocketAddrV6::new(addr, port, flow, 0).into(),
        };
        Ok((Self { source }, data))
    }

    /// Writes it; the number of octets.
    pub fn write(&self, out: &mut [u8; MAX_UD_HEADER_LEN]) -> usize {
        let len = self.len();
        out[0] = version(self.source.ip());
        out[1] = len as u8;
        out[2..4].copy_from_slice(&self.source.port().to_be_bytes());
        let at = match self.source {
            SocketAddr::V4(_) => 4,
            SocketAddr::V6(source) => {
                out[4..8].copy_from_slice(&source.flowinfo().to_be_bytes());
                8
            }
        };
        put_address(self.source.ip(), &mut out[at..len]);
        len
    }

    /// Octets of the header.
    #[allow(clippy::len_without_is_empty, reason = "no header is empty")]
    pub fn len(&self) -> usize {
        if self.source.is_ipv4() { UD_V4_LEN } else { UD_V6_LEN }
    }
}

fn version(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { V4 } else { V6 }
}

/// The address at the start of the octets, and the rest, if version and length of the header fit.
fn address(
    version: u8,
    length: u8,
    [v4_len, v6_len]: [usize; 2],
    octets: &[u8],
    short: DatagramError,
) -> Result<(IpAddr, &[u8]), DatagramError> {
    let expected = match version {
        V4 => v4_len,
        V6 => v6_len,
        other => return Err(DatagramError::Version(other)),
    };
    if usize::from(length) != expected {
        return Err(DatagramError::Length(length));
    }
    if version == V4 {
        let (addr, data) = octets.split_first_chunk::<4>().ok_or(short)?;
        Ok((Ipv4Addr::from(*addr).into(), data))
    } else {
        let (addr, data) = octets.split_first_chunk::<16>().ok_or(short)?;
        Ok((Ipv6Addr::from(*addr).into(), data))
    }
}

fn put_address(addr: IpAddr, out: &mut [u8]) {
    match addr {
        IpAddr::V4(addr) => out.copy_from_slice(&addr.octets()),
        IpAddr::V6(addr) => out.copy_from_slice(&addr.octets()),
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn any_addr() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(IpAddr::from),
        ]
    }

    proptest! {
        /// Covers: RS-DG-02
        #[test]
        fn headers_over_udp_come_back(
            is_data: bool, qpn in 0..=QPN_MASK, addr in any_addr(), data: Vec<u8>
        ) {
            let op = if is_data { UdpOp::Data } else { UdpOp::Control };
            let header = UdpHeader { op, qpn, addr };
            let mut out = [0xee; MAX_UDP_HEADER_LEN];
            let len = header.write(&mut out);
            prop_assert_eq!(usize::from(out[6]), len);
            let octets: Vec<u8> = out[..len].iter().chain(&data).copied().collect();
            prop_assert_eq!(UdpHeader::read(&octets), Ok((header, &data[..])));
            prop_assert_eq!(UdpHeader::read(&octets[..len - 1]), Err(DatagramError::Short(len - 1)));
        }

        /// Covers: RS-DG-04
        #[test]
        fn headers_over_ud_come_back(
            addr in any_addr(), port: u16, flow: u32, data: Vec<u8>
        ) {
            let mut source = SocketAddr::new(addr, port);
            if let SocketAddr::V6(source) = &mut source {
                source.set_flowinfo(flow);
            }
            let header = UdHeader { source };
            let mut out = [0xee; MAX_UD_HEADER_LEN];
            let len = header.write(&mut out);
            prop_assert_eq!(usize::from(out[1]), len);
            let octets: Vec<u8> = out[..len].iter().chain(&data).copied().collect();
            prop_assert_eq!(UdHeader::read(&octets), Ok((header, &data[..])));
            prop_assert_eq!(UdHeader::read(&octets[..len - 1]), Err(DatagramError::Short(len - 1)));
        }

        /// Covers: RS-DG-09
        #[test]
        fn any_octets_are_read_or_refused(mut octets: Vec<u8>, tagged: bool) {
            if tagged {
                octets.splice(..0, [0x55; 4]);
            }
            let _ = UdHeader::read(&octets);
            if let Ok((header, data)) = UdpHeader::read(&octets) {
                prop_assert!(tagged);
                prop_assert!(header.qpn <= QPN_MASK);
                prop_assert_eq!(header.len() + data.len(), octets.len());
            }
        }
    }

    /// Covers: RS-DG-09
    #[test]
    fn each_wrong_field_has_its_error() {
        let mut out = [0; MAX_UDP_HEADER_LEN];
        let addr = IpAddr::from([10, 9, 0, 1]);
        let len = UdpHeader { op: UdpOp::Data, qpn: 1, addr }.write(&mut out);
        let with = |at: usize, octet: u8| {
            let mut octets = out;
            octets[at] = octet;
            UdpHeader::read(&octets[..len]).map(|(header, _)| header.qpn)
        };
        assert_eq!(with(0, 0), Err(DatagramError::Foreign));
        assert_eq!(with(4, 5), Err(DatagramError::Version(5)));
        assert_eq!(with(4, 6), Err(DatagramError::Length(16)));
        assert_eq!(with(5, 1), Err(DatagramError::Op(1)));
        assert_eq!(with(6, 28), Err(DatagramError::Length(28)));
        assert_eq!(with(8, 0xff), Ok(1), "the number has 24 bits");
        assert_eq!(UdHeader::read(&[4, 9, 0, 0, 1, 2, 3, 4]), Err(DatagramError::Length(9)));
        assert_eq!(UdHeader::read(&[0, 8, 0, 0, 1, 2, 3, 4]), Err(DatagramError::Version(0)));
    }
}
