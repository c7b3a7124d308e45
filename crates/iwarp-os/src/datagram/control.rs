// SPDX-License-Identifier: MIT OR Apache-2.0

//! Control messages, in the kernel's layout: a C library may have padding of its own in there, but
//! the calls are made without one. The kernel copies them, so they need no alignment.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};

const LENGTH: usize = size_of::<usize>();
const HEAD: usize = LENGTH + 2 * size_of::<c_int>();

const fn aligned(octets: usize) -> usize {
    octets.next_multiple_of(LENGTH)
}

/// Bytes that a control message takes with so much in it.
pub(super) const fn space(octets: usize) -> usize {
    HEAD + aligned(octets)
}

/// Bytes of an address as the system has it, IPv6's.
pub(super) const NAME: usize = size_of::<libc::sockaddr_in6>();
const NAME_V4: usize = size_of::<libc::sockaddr_in>();

/// Writes an address as the system has it; says how many bytes it has.
pub(super) fn put_name(to: &mut [u8; NAME], addr: SocketAddr) -> usize {
    to.fill(0);
    to[2..4].copy_from_slice(&addr.port().to_be_bytes());
    let (family, len) = match addr {
        SocketAddr::V4(addr) => {
            to[4..8].copy_from_slice(&addr.ip().octets());
            (libc::AF_INET, NAME_V4)
        }
        SocketAddr::V6(addr) => {
            to[8..24].copy_from_slice(&addr.ip().octets());
            to[24..28].copy_from_slice(&addr.scope_id().to_ne_bytes());
            (libc::AF_INET6, NAME)
        }
    };
    to[..2].copy_from_slice(&(family as libc::sa_family_t).to_ne_bytes());
    len
}

/// Reads one.
pub(super) fn name(from: &[u8; NAME], len: usize) -> Option<SocketAddr> {
    let family = c_int::from(libc::sa_family_t::from_ne_bytes(*from.first_chunk()?));
    let port = u16::from_be_bytes(field(from, 2)?);
    match family {
        libc::AF_INET if len >= NAME_V4 => Some((field::<4>(from, 4)?, port).into()),
        libc::AF_INET6 if len >= NAME => {
            let scope = u32::from_ne_bytes(field(from, 24)?);
            let ip = field::<16>(from, 8)?.into();
            Some(std::net::SocketAddrV6::new(ip, port, 0, scope).into())
        }
        _ => None,
    }
}

/// Some bytes of others.
pub(super) fn field<const N: usize>(octets: &[u8], at: usize) -> Option<[u8; N]> {
    octets.get(at..)?.first_chunk().copied()
}

/// Control messages that are being written.
pub(super) struct Writer<'a> {
    octets: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    pub(super) const fn new(octets: &'a mut [u8]) -> Self {
        Self { octets, len: 0 }
    }

    /// Bytes that were written.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn put(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let to = &mut self.octets[self.len..][..space(data.len())];
        to[..LENGTH].copy_from_slice(&(HEAD + data.len()).to_ne_bytes());
        to[LENGTH..][..4].copy_from_slice(&level.to_ne_bytes());
        to[LENGTH + 4..][..4].copy_from_slice(&kind.to_ne_bytes());
        to[HEAD..][..data.len()].copy_from_slice(data);
        self.len += to.len();
    }

    pub(super) fn put_int(&mut self, level: c_int, kind: c_int, value: c_int) {
        self.put(level, kind, &value.to_ne_bytes());
    }

    /// The address that a message goes from, and the interface; 0: by the routes.
    pub(super) fn put_source(&mut self, source: IpAddr, interface: u32) {
        match source {
            IpAddr::V4(source) => {
                let mut info = [0; size_of::<libc::in_pktinfo>()];
                info[..4].copy_from_slice(&interface.to_ne_bytes());
                info[4..8].copy_from_slice(&source.octets());
                self.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            IpAddr::V6(source) => {
                let mut info = [0; size_of::<libc::in6_pktinfo>()];
                info[..16].copy_from_slice(&source.octets());
                info[16..].copy_from_slice(&interface.to_ne_bytes());
                self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }
}

/// A control message that came.
pub(super) struct Message<'a> {
    pub(super) level: c_int,
    pub(super) kind: c_int,
    pub(super) data: &'a [u8],
}

impl Message<'_> {
    /// A number, which the system writes as one byte or as an `int`.
    pub(super) fn number(&self) -> Option<u32> {
        match self.data {
            [octet] => Some(u32::from(*octet)),
            data => u32::try_from(c_int::from_ne_bytes(field(data, 0)?)).ok(),
        }
    }
}

/// The control messages in these bytes.
pub(super) fn messages(mut octets: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = usize::from_ne_bytes(field(octets, 0)?);
        let level = c_int::from_ne_bytes(field(octets, LENGTH)?);
        let kind = c_int::from_ne_bytes(field(octets, LENGTH + 4)?);
        let data = octets.get(HEAD..len)?;
        octets = octets.get(aligned(len)..).unwrap_or_default();
        Some(Message { level, kind, data })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let mut octets = [0xee; 128];
        let mut writer = Writer::new(&mut octets);
        writer.put_int(1, 2, 77);
        writer.put(3, 4, &[9]);
        writer.put(5, 6, b"0123456789");
        let len = writer.len();
        let read: Vec<_> = messages(&octets[..len]).map(|m| (m.level, m.kind, m.data)).collect();
        let seventy_seven = 77_i32.to_ne_bytes();
        assert_eq!(
            read,
            [(1, 2, &seventy_seven[..]), (3, 4, &[9][..]), (5, 6, &b"0123456789"[..])]
        );
        let numbers: Vec<_> = messages(&octets[..len]).map(|m| m.number()).collect();
        assert_eq!(numbers[..2], [Some(77), Some(9)]);
        // Cut off anywhere, only whole messages are read.
        for cut in 0..len {
            assert!(messages(&octets[..cut]).count() <= 3);
        }
        // A length that is too short or too long for anything.
        octets[..LENGTH].copy_from_slice(&1_usize.to_ne_bytes());
        assert_eq!(messages(&octets).count(), 0);
        octets[..LENGTH].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert_eq!(messages(&octets).count(), 0);
    }

    #[test]
    fn addresses_are_read_as_they_were_written() {
        let mut octets = [0; NAME];
        for addr in ["192.0.2.7:4791", "[2001:db8::7]:4791", "[fe80::1%3]:5"] {
            let addr = addr.parse().unwrap();
            let len = put_name(&mut octets, addr);
            assert_eq!(name(&octets, len), Some(addr));
            assert_eq!(name(&octets, len - 1), None);
        }
    }
}
