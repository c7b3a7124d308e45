// SPDX-License-Identifier: MIT OR Apache-2.0

//! The base transport header.

use super::Psn;

/// Octets of a base transport header.
pub const BTH_LEN: usize = 12;
/// The general services interface: the queue pair of the connection manager's messages (ROCE-144).
pub const GSI_QP: u32 = 1;
/// Destination of a packet to a multicast group (ROCE-128).
pub const MULTICAST_QP: u32 = 0xff_ffff;

const SOLICITED: u8 = 0x80;
const MIGRATED: u8 = 0x40;
const PAD_SHIFT: u8 = 4;
const PAD: u8 = 0b11;
const VERSION: u8 = 0x0f;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQ: u8 = 0x80;

/// Partition key: a number of 15 bits, and a bit that is set for full members.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pkey(pub u16);

impl Pkey {
    /// The default key, of a full member (ROCE-011).
    pub const DEFAULT: Self = Self(0xffff);

    const FULL: u16 = 0x8000;

    /// True if holders of the two keys may talk: one partition, and not both limited members
    /// (ROCE-011).
    pub const fn admits(self, other: Self) -> bool {
        (self.0 | Self::FULL) == (other.0 | Self::FULL) && (self.0 | other.0) & Self::FULL != 0
    }
}

impl Default for Pkey {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Base transport header, but for the opcode and the pad, which [`Header`](super::Header) knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// Solicited event: wakes a program that waits for those alone (ROCE-015).
    pub solicited: bool,
    /// Path migration state: true is Migrated, the normal one (ROCE-010). No receiver is known to
    /// look at it.
    pub migrated: bool,
    /// The sender's partition key.
    pub pkey: Pkey,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// The queue pair that the packet is for; 24 bits.
    pub dest_qp: u32,
    /// The sender asks for an acknowledgement.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// The header of a packet to a queue pair.
    pub const fn new(dest_qp: u32, psn: Psn) -> Self {
        Self {
            solicited: false,
            migrated: true,
            pkey: Pkey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn,
        }
    }

    /// With a request for an acknowledgement where `ask` is set.
    #[must_use]
    pub const fn asking(mut self, ask: bool) -> Self {
        self.ack_req = ask;
        self
    }

    /// As a solicited event where `solicited` is set.
    #[must_use]
    pub const fn soliciting(mut self, solicited: bool) -> Self {
        self.solicited = solicited;
        self
    }

    pub(super) fn write(&self, opcode: u8, pad: u8, out: &mut [u8; BTH_LEN]) {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        out[0] = opcode;
        out[1] = flag(self.solicited, SOLICITED)
            | flag(self.migrated, MIGRATED)
            | (pad & PAD) << PAD_SHIFT;
        out[2..4].copy_from_slice(&self.pkey.0.to_be_bytes());
        out[4..8].copy_from_slice(&self.dest_qp.to_be_bytes());
        out[4] = flag(self.fecn, FECN) | flag(self.becn, BECN);
        out[8..12].copy_from_slice(&self.psn.number().to_be_bytes());
        out[8] = flag(self.ack_req, ACK_REQ);
    }

    /// The header, its opcode and its pad; `None` if the transport version is not 0 (ROCE-002).
    pub(super) fn read(octets: &[u8; BTH_LEN]) -> Option<(Self, u8, usize)> {
        let [opcode, flags, p0, p1, congestion, q0, q1, q2, ask, s0, s1, s2] = *octets;
        if flags & VERSION != 0 {
            return None;
        }
        let bth = Self {
            solicited: flags & SOLICITED != 0,
            migrated: flags & MIGRATED != 0,
            pkey: Pkey(u16::from_be_bytes([p0, p1])),
            fecn: congestion & FECN != 0,
            becn: congestion & BECN != 0,
            dest_qp: u32::from_be_bytes([0, q0, q1, q2]),
            ack_req: ask & ACK_REQ != 0,
            psn: Psn::new(u32::from_be_bytes([0, s0, s1, s2])),
        };
        Some((bth, opcode, usize::from(flags >> PAD_SHIFT & PAD)))
    }
}

#[cfg(test)]
mod tests {
    use super::{BTH_LEN, Bth, Pkey};
    use crate::wire::Psn;

    /// Covers: ROCE-002, ROCE-010
    #[test]
    fn fields_are_where_they_belong() {
        let mut octets = [0; BTH_LEN];
        let bth = Bth::new(0x12_3456, Psn::new(0x65_4321));
        bth.write(0x64, 3, &mut octets);
        assert_eq!(octets, [0x64, 0x70, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0, 0x65, 0x43, 0x21]);
        Bth { becn: true, migrated: false, ..bth.asking(true).soliciting(true) }.write(
            0x04,
            0,
            &mut octets,
        );
        assert_eq!(octets[..5], [0x04, 0x80, 0xff, 0xff, 0x40]);
        assert_eq!(octets[8], 0x80);
    }

    /// Covers: ROCE-011
    #[test]
    fn partitions_admit_full_members() {
        let (full, limited) = (Pkey(0xffff), Pkey(0x7fff));
        assert!(full.admits(full) && full.admits(limited) && limited.admits(full));
        assert!(!limited.admits(limited));
        assert!(!full.admits(Pkey(0x9234)) && !full.admits(Pkey(0x1234)));
    }
}
