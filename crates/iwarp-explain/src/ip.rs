// SPDX-License-Identifier: MIT OR Apache-2.0

//! IP headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// An IP packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    /// Of IPv4: the identification, and whether routers may fragment the packet.
    pub(crate) identification: Option<(u16, bool)>,
    /// It has IPv4 options, or extension headers.
    pub(crate) options: bool,
    /// It is a fragment of a packet.
    pub(crate) fragment: bool,
    /// The network has marked it: it met congestion (RFC 3168).
    pub(crate) congested: bool,
    /// The bytes behind the header that were kept.
    pub(crate) payload: &'a [u8],
    /// The bytes behind the header that it had.
    pub(crate) length: usize,
}

/// Reads an IP packet of `total` bytes, of which `data` were kept.
pub(crate) fn parse(data: &[u8], total: usize) -> Option<Packet<'_>> {
    match data.first()? >> 4 {
        4 => parse_4(data, total),
        6 => parse_6(data, total),
        _ => None,
    }
}

fn parse_4(data: &[u8], total: usize) -> Option<Packet<'_>> {
    let header: &[u8; 20] = data.first_chunk()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let claimed = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // Captures of packets that the card will cut may have 0 here.
    let whole = if claimed == 0 { total } else { claimed };
    if header_len < 20 || whole < header_len {
        return None;
    }
    let flags = u16::from_be_bytes([header[6], header[7]]);
    let payload = data.get(header_len..data.len().min(whole))?;
    Some(Packet {
        source: Ipv4Addr::new(header[12], header[13], header[14], header[15]).into(),
        destination: Ipv4Addr::new(header[16], header[17], header[18], header[19]).into(),
        protocol: header[9],
        identification: Some((u16::from_be_bytes([header[4], header[5]]), flags & 0x4000 == 0)),
        options: header_len > 20,
        // More fragments, or an offset.
        fragment: flags & 0x3fff != 0,
        congested: header[1] & 0b11 == 0b11,
        payload,
        length: whole - header_len,
    })
}

fn parse_6(data: &[u8], total: usize) -> Option<Packet<'_>> {
    const HEADER: usize = 40;
    const SKIPPED: [u8; 3] = [0, 43, 60];
    const FRAGMENT: u8 = 44;
    let header: &[u8; HEADER] = data.first_chunk()?;
    let claimed = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let whole = if claimed == 0 { total } else { HEADER + claimed };
    let address = |at: usize| {
        let octets: [u8; 16] = std::array::from_fn(|n| header[at + n]);
        IpAddr::from(Ipv6Addr::from(octets))
    };
    let (mut protocol, mut at, mut fragment) = (header[6], HEADER, false);
    while SKIPPED.contains(&protocol) || protocol == FRAGMENT {
        let extension: &[u8; 8] = data.get(at..)?.first_chunk()?;
        if protocol == FRAGMENT {
            fragment |= u16::from_be_bytes([extension[2], extension[3]]) & 0xfff9 != 0;
            at += 8;
        } else {
            at += 8 * (usize::from(extension[1]) + 1);
        }
        protocol = extension[0];
    }
    if whole < at {
        return None;
    }
    Some(Packet {
        source: address(8),
        destination: address(24),
        protocol,
        identification: None,
        options: at > HEADER,
        fragment,
        congested: header[1] >> 4 & 0b11 == 0b11,
        payload: data.get(at..data.len().min(whole))?,
        length: whole - at,
    })
}
