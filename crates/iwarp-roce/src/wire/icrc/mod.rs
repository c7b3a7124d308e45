// SPDX-License-Identifier: MIT OR Apache-2.0

//! The invariant CRC (ICRC): a CRC-32 over the fields that no router changes (ROCE-021).
//!
//! It covers the identification of an IPv4 packet and the flag that forbids fragments (ROCE-022),
//! which a program that receives through a socket does not see. So [`verify`] finds the
//! identification that makes the ICRC right, and [`IdMemory`] judges whether it is credible.
//!
//! The sockets of this library are never connected and forbid fragmentation, so Linux numbers their
//! packets 0, or 0, 1, 2 and so on within a train. Arriving packets show no identification, and
//! [`verify`] solves the ICRC for it.

mod algebra;
mod memory;
mod solved;
mod start;

use core::net::IpAddr;

use iwarp_types::{Digest, Time, gid};
use thiserror::Error;

use super::{BTH_LEN, ICRC_LEN, Path};

pub use memory::IdMemory;
pub(super) use start::LastStart;

const UDP_LEN: usize = 8;
const IPV4_LEN: usize = 20;
const UDP: u8 = 17;
/// The octets in place of the local route header of InfiniBand (ROCE-021).
const NO_LRH: [u8; 8] = [0xff; 8];
/// The most octets behind the UDP header of an IPv4 packet.
pub(super) const MAX_LEN: usize = 65_535 - IPV4_LEN - UDP_LEN;
/// The fewest: a base transport header and an ICRC.
pub(super) const MIN_LEN: usize = BTH_LEN + ICRC_LEN;

/// The part of an IPv4 header that the ICRC covers and a socket does not tell. IPv6 has no such
/// fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Identification {
    /// Identification.
    pub number: u16,
    /// Set if routers may fragment the packet: the flag DF is clear.
    pub may_fragment: bool,
}

impl Identification {
    /// The identification of a packet that is not to be fragmented.
    pub const fn new(number: u16) -> Self {
        Self { number, may_fragment: false }
    }
}

/// The ICRC is wrong: the packet is to be dropped without an answer (ROCE-031).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("wrong ICRC")]
pub struct BadIcrc;

/// The ICRC of a packet whose octets from the BTH to the pad are `octets`.
///
/// # Panics
///
/// If there are fewer octets than a BTH has.
pub fn of(path: &Path, id: Identification, octets: &[u8]) -> [u8; ICRC_LEN] {
    behind(start(path, id, octets.len() + ICRC_LEN), octets)
}

/// The ICRC of a packet whose digest up to the UDP header is `digest`.
fn behind(mut digest: Digest, octets: &[u8]) -> [u8; ICRC_LEN] {
    headers(&mut digest, &octets[..BTH_LEN]);
    digest.update(&octets[BTH_LEN..]);
    digest.wire()
}

/// Verifies the ICRC of a datagram that has come by `path` (ROCE-029), and returns the octets
/// before it.
///
/// For an IPv4 packet the identification 0 costs nothing; any other is found by some arithmetic, in
/// a time that does not depend on the packet's length. [`IdMemory`] decides how many of the ICRC's
/// 32 bits then still guard the packet.
///
/// # Errors
///
/// [`BadIcrc`] if no credible identification makes it right.
pub fn verify<'a>(
    path: &Path,
    datagram: &'a [u8],
    now: Time,
    ids: &mut IdMemory,
) -> Result<&'a [u8], BadIcrc> {
    if datagram.len() < MIN_LEN || datagram.len() > MAX_LEN {
        return Err(BadIcrc);
    }
    let (octets, icrc) = datagram.split_last_chunk().ok_or(BadIcrc)?;
    let expected = behind(ids.start.of(path, datagram.len()), octets);
    let difference = u32::from_le_bytes(expected) ^ u32::from_le_bytes(*icrc);
    let good = match addresses(path) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => solve(difference, octets.len(), ids)
            .is_some_and(|id| ids.admit((source.into(), destination.into()), id, now)),
        _ => difference == 0,
    };
    if good { Ok(octets) } else { Err(BadIcrc) }
}

/// The identification of an IPv4 packet with so many octets from the BTH to the pad, whose ICRC
/// differs by `difference` from that with the identification 0. `None` if no identification
/// explains it.
fn solve(difference: u32, octets: usize, ids: &mut IdMemory) -> Option<Identification> {
    match difference {
        0 => Some(Identification::default()),
        _ => ids.solved.or(difference, octets, || solve_anew(difference, octets)),
    }
}

/// As [`solve`], by arithmetic.
fn solve_anew(difference: u32, octets: usize) -> Option<Identification> {
    // The octets from the identification on. Run backwards over them, the difference of the
    // registers is that of the first four octets.
    let behind = IPV4_LEN - ID_AT + UDP_LEN + octets;
    let [n0, n1, flags, fragment] = algebra::back(difference, behind).to_le_bytes();
    let number = u16::from_be_bytes([n0, n1]);
    match (flags, fragment) {
        (0, 0) => Some(Identification::new(number)),
        (DONT_FRAGMENT, 0) => Some(Identification { number, may_fragment: true }),
        _ => None,
    }
}

const ID_AT: usize = 4;
const DONT_FRAGMENT: u8 = 0x40;

/// An IPv4 address that is written as one of IPv6 goes out as IPv4.
fn addresses(path: &Path) -> (IpAddr, IpAddr) {
    (path.address.source.to_canonical(), path.address.destination.to_canonical())
}

/// The digest of the masked IP and UDP headers (ROCE-022, ROCE-023, ROCE-024) of a packet with so
/// many octets behind its UDP header, ICRC included.
pub(super) fn start(path: &Path, id: Identification, octets: usize) -> Digest {
    let mut digest = Digest::crc32();
    let udp_len = (UDP_LEN + octets) as u16;
    let mut udp = [0xff; UDP_LEN];
    udp[..2].copy_from_slice(&path.source_port.to_be_bytes());
    udp[2..4].copy_from_slice(&path.destination_port.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    match addresses(path) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut all = [0xff; NO_LRH.len() + IPV4_LEN + UDP_LEN];
            let ip = &mut all[NO_LRH.len()..];
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&(IPV4_LEN as u16 + udp_len).to_be_bytes());
            ip[ID_AT..6].copy_from_slice(&id.number.to_be_bytes());
            ip[6..8].copy_from_slice(&[if id.may_fragment { 0 } else { DONT_FRAGMENT }, 0]);
            ip[9] = UDP;
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&destination.octets());
            ip[IPV4_LEN..].copy_from_slice(&udp);
            digest.update(&all);
        }
        (source, destination) => {
            let mut all = [0xff; NO_LRH.len() + 40 + UDP_LEN];
            let ip = &mut all[NO_LRH.len()..];
            ip[0] = 0x6f;
            ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
            ip[6] = UDP;
            ip[8..24].copy_from_slice(&gid(source));
            ip[24..40].copy_from_slice(&gid(destination));
            ip[40..].copy_from_slice(&udp);
            digest.update(&all);
        }
    }
    digest
}

/// The digest that [`start`] makes of another identification below [`NUMBERS`], from the one it
/// made of 0.
pub(super) fn renumbered(start: Digest, path: &Path, number: usize) -> Digest {
    let difference = match addresses(path) {
        (IpAddr::V4(_), IpAddr::V4(_)) => CHANGES[number],
        _ => 0,
    };
    Digest::from_register(start.polynomial(), start.register() ^ difference)
}

/// The number of identifications that [`renumbered`] knows.
pub(super) const NUMBERS: usize = 64;

/// The change that each identification makes in the register at the end of the UDP header: it has
/// one octet that is not 0, and so many octets behind it.
static CHANGES: [u32; NUMBERS] = algebra::changes(IPV4_LEN - ID_AT - 2 + UDP_LEN);

/// Feeds the headers of a packet to a digest, with the congestion octet of the BTH masked
/// (ROCE-024).
pub(super) fn headers(digest: &mut Digest, octets: &[u8]) {
    let (bth, extended) = octets.split_at(BTH_LEN);
    let mut masked = [0; BTH_LEN];
    masked.copy_from_slice(bth);
    masked[4] = 0xff;
    digest.update(&masked);
    digest.update(extended);
}

#[cfg(test)]
mod tests;
