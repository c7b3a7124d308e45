// SPDX-License-Identifier: MIT OR Apache-2.0

//! Extended transport headers.

use iwarp_types::{RnrTimer, Stag, TaggedOffset};

/// RDMA extended header: the peer's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reth {
    /// First octet of the buffer.
    pub va: TaggedOffset,
    /// The peer's key for the buffer.
    pub rkey: Stag,
    /// Octets of the whole message (ROCE-038).
    pub length: u32,
}

/// Atomic extended header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicEth {
    /// The 8 octets.
    pub va: TaggedOffset,
    /// The peer's key for them.
    pub rkey: Stag,
    /// The operation on them.
    pub kind: AtomicKind,
}

/// Atomic operation of InfiniBand, which has no masks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicKind {
    /// If the value is `compare`, it becomes `swap`.
    CompareSwap {
        /// The value compared with.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Adds, modulo 2^64; nothing is compared (ROCE-101).
    FetchAdd {
        /// The summand.
        add: u64,
    },
}

/// Datagram extended header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deth {
    /// The Q_Key that the receiving queue pair must have (ROCE-116).
    pub qkey: u32,
    /// The queue pair that sent it; 24 bits.
    pub source_qp: u32,
}

/// Acknowledgement extended header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// The syndrome.
    pub syndrome: Syndrome,
    /// Request messages that the responder has completed; 24 bits (ROCE-085).
    pub msn: u32,
}

/// The meaning of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syndrome {
    /// Positive.
    Ack {
        /// Receives that the responder has beyond its MSN; `None` if it does not say.
        credits: Option<u32>,
    },
    /// Receiver not ready: send again after this time.
    RnrNak(RnrTimer),
    /// Negative.
    Nak(NakCode),
    /// A syndrome without a meaning (ROCE-066).
    Reserved(u8),
}

/// The reason that a request was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// A packet is missing before this one.
    SequenceError,
    /// The responder takes no such request.
    InvalidRequest,
    /// The responder does not grant the access.
    RemoteAccess,
    /// The responder failed to carry it out.
    RemoteOperation,
    /// Invalid request of reliable datagrams (RD).
    InvalidRdRequest,
}

const CODE: u8 = 0x1f;
const KIND_SHIFT: u8 = 5;
/// Credit code that gives no number (ROCE-069).
const NO_CREDITS: u8 = 31;

/// Receives by credit code: 0, 1, 2, 3, then each power of two and one and a half of it.
const fn credits(code: u8) -> u32 {
    match code {
        0..4 => code as u32,
        _ => (2 + (code as u32 & 1)) << (code as u32 / 2 - 1),
    }
}

impl Syndrome {
    /// A positive acknowledgement without credits (ROCE-086).
    pub const ACK: Self = Self::Ack { credits: None };

    fn from_octet(octet: u8) -> Self {
        let code = octet & CODE;
        match (octet >> KIND_SHIFT, code) {
            (0b000, NO_CREDITS) => Self::ACK,
            (0b000, _) => Self::Ack { credits: Some(credits(code)) },
            (0b001, _) => Self::RnrNak(RnrTimer::new(code)),
            (0b011, 0) => Self::Nak(NakCode::SequenceError),
            (0b011, 1) => Self::Nak(NakCode::InvalidRequest),
            (0b011, 2) => Self::Nak(NakCode::RemoteAccess),
            (0b011, 3) => Self::Nak(NakCode::RemoteOperation),
            (0b011, 4) => Self::Nak(NakCode::InvalidRdRequest),
            _ => Self::Reserved(octet),
        }
    }

    /// As an octet. Credits are rounded down to the next number that has a code.
    fn octet(self) -> u8 {
        match self {
            Self::Ack { credits: None } => NO_CREDITS,
            Self::Ack { credits: Some(receives) } => {
                let fits = |code: &u8| credits(*code) <= receives;
                (0..NO_CREDITS).rev().find(fits).unwrap_or(0)
            }
            Self::RnrNak(timer) => 0b001 << KIND_SHIFT | timer.code(),
            Self::Nak(code) => 0b011 << KIND_SHIFT | code as u8,
            Self::Reserved(octet) => octet,
        }
    }
}

/// Extended headers, each of a fixed length.
pub(super) trait Extended: Sized {
    /// The octets of one.
    type Octets: for<'a> TryFrom<&'a [u8]> + AsRef<[u8]>;

    fn read(octets: Self::Octets) -> Self;
    fn write(&self) -> Self::Octets;
}

impl Extended for Reth {
    type Octets = [u8; 16];

    fn read(octets: [u8; 16]) -> Self {
        let [va @ .., r0, r1, r2, r3, l0, l1, l2, l3] = octets;
        Self {
            va: TaggedOffset(u64::from_be_bytes(va)),
            rkey: Stag(u32::from_be_bytes([r0, r1, r2, r3])),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }

    fn write(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.va.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.rkey.0.to_be_bytes());
        out[12..].copy_from_slice(&self.length.to_be_bytes());
        out
    }
}

impl AtomicEth {
    pub(super) const LEN: usize = 28;

    /// The header of a compare and swap, or else of a fetch and add.
    pub(super) fn read(octets: [u8; Self::LEN], compares: bool) -> Self {
        let (buffer, operands) = octets.split_at(12);
        let number = |at: usize| u64::from_be_bytes(core::array::from_fn(|n| operands[at + n]));
        let va = u64::from_be_bytes(core::array::from_fn(|n| buffer[n]));
        let rkey = u32::from_be_bytes(core::array::from_fn(|n| buffer[8 + n]));
        let kind = if compares {
            AtomicKind::CompareSwap { swap: number(0), compare: number(8) }
        } else {
            AtomicKind::FetchAdd { add: number(0) }
        };
        Self { va: TaggedOffset(va), rkey: Stag(rkey), kind }
    }

    pub(super) fn write(&self) -> [u8; Self::LEN] {
        let (swap_or_add, compare) = match self.kind {
            AtomicKind::CompareSwap { compare, swap } => (swap, compare),
            AtomicKind::FetchAdd { add } => (add, 0),
        };
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&self.va.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.rkey.0.to_be_bytes());
        out[12..20].copy_from_slice(&swap_or_add.to_be_bytes());
        out[20..].copy_from_slice(&compare.to_be_bytes());
        out
    }
}

impl Extended for Deth {
    type Octets = [u8; 8];

    fn read([k0, k1, k2, k3, _, q0, q1, q2]: [u8; 8]) -> Self {
        Self {
            qkey: u32::from_be_bytes([k0, k1, k2, k3]),
            source_qp: u32::from_be_bytes([0, q0, q1, q2]),
        }
    }

    fn write(&self) -> [u8; 8] {
        let mut out = [0; 8];
        out[..4].copy_from_slice(&self.qkey.to_be_bytes());
        out[4..].copy_from_slice(&self.source_qp.to_be_bytes());
        out[4] = 0;
        out
    }
}

impl Extended for Aeth {
    type Octets = [u8; 4];

    fn read([syndrome, m0, m1, m2]: [u8; 4]) -> Self {
        Self { syndrome: Syndrome::from_octet(syndrome), msn: u32::from_be_bytes([0, m0, m1, m2]) }
    }

    fn write(&self) -> [u8; 4] {
        let mut out = self.msn.to_be_bytes();
        out[0] = self.syndrome.octet();
        out
    }
}

/// Immediate data, as they lie in the program's field (ROCE-013).
impl Extended for [u8; 4] {
    type Octets = [u8; 4];

    fn read(octets: [u8; 4]) -> Self {
        octets
    }

    fn write(&self) -> [u8; 4] {
        *self
    }
}

/// The key of an invalidate extended header.
impl Extended for Stag {
    type Octets = [u8; 4];

    fn read(octets: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(octets))
    }

    fn write(&self) -> [u8; 4] {
        self.0.to_be_bytes()
    }
}

/// The value of an atomic acknowledgement.
impl Extended for u64 {
    type Octets = [u8; 8];

    fn read(octets: [u8; 8]) -> Self {
        Self::from_be_bytes(octets)
    }

    fn write(&self) -> [u8; 8] {
        self.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    /// Covers: ROCE-060
    #[test]
    fn rnr_codes_are_those_of_the_table() {
        let micros = |code| RnrTimer::new(code).duration();
        assert_eq!(micros(0), Duration::from_micros(655_360));
        assert_eq!(micros(1), Duration::from_micros(10));
        assert_eq!(micros(14), Duration::from_micros(1280));
        assert_eq!(micros(31), Duration::from_micros(491_520));
        assert!((1..31).all(|code| micros(code) < micros(code + 1)));
    }

    #[test]
    fn credit_codes_are_those_of_the_table() {
        let expected = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
        for (code, receives) in expected.into_iter().enumerate() {
            assert_eq!(credits(code as u8), receives, "{code}");
        }
        assert_eq!(credits(30), 32_768);
    }

    /// Covers: ROCE-066, ROCE-069, ROCE-086
    #[test]
    fn every_syndrome_is_read_and_written_alike() {
        for octet in 0..=u8::MAX {
            assert_eq!(Syndrome::from_octet(octet).octet(), octet);
        }
        assert_eq!(Syndrome::Ack { credits: Some(5) }.octet(), 4);
        assert_eq!(Syndrome::Ack { credits: Some(u32::MAX) }.octet(), 30);
    }
}
