// SPDX-License-Identifier: MIT OR Apache-2.0

//! Whole packets, from the BTH to the pad.

use iwarp_types::Stag;
use thiserror::Error;

use super::ICRC_LEN;
use super::bth::{BTH_LEN, Bth};
use super::extended::{Aeth, AtomicEth, AtomicKind, Deth, Extended, Reth};
use super::opcode::{CNP, Opcode, Operation, Position, Tail, Transport};

/// The field that the last packet of a Send carries besides its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendTail {
    /// None, as in all packets but the last.
    Plain,
    /// Immediate data, as they lie in the program's field (ROCE-013).
    Immediate([u8; 4]),
    /// A key of the receiver's to invalidate.
    Invalidate(Stag),
}

/// The message of a packet, with its extended headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Part of a Send.
    Send {
        /// The part.
        position: Position,
        /// The field of the last part.
        tail: SendTail,
    },
    /// The first part of an RDMA Write.
    WriteBegin {
        /// True if it is the whole Write.
        only: bool,
        /// The buffer, and the length of the whole Write.
        reth: Reth,
        /// Immediate data, if it is the whole Write.
        immediate: Option<[u8; 4]>,
    },
    /// A later part of an RDMA Write.
    WriteMore {
        /// True if it is the last one.
        last: bool,
        /// Immediate data, if it is the last one.
        immediate: Option<[u8; 4]>,
    },
    /// RDMA Read Request.
    ReadRequest(Reth),
    /// Part of the answer to a Read.
    ReadResponse {
        /// The part.
        position: Position,
        /// In all parts but those in the middle.
        aeth: Option<Aeth>,
    },
    /// Acknowledgement.
    Acknowledge(Aeth),
    /// The answer to an atomic operation.
    AtomicAcknowledge {
        /// An acknowledgement.
        aeth: Aeth,
        /// The value that stood there before.
        original: u64,
    },
    /// Atomic operation.
    Atomic(AtomicEth),
}

impl Message {
    /// The operation that the opcode names.
    pub const fn operation(&self) -> Operation {
        const fn tail(immediate: Option<[u8; 4]>) -> Tail {
            if immediate.is_some() { Tail::Immediate } else { Tail::Plain }
        }
        match *self {
            Self::Send { position, tail } => {
                let tail = match tail {
                    SendTail::Plain => Tail::Plain,
                    SendTail::Immediate(_) => Tail::Immediate,
                    SendTail::Invalidate(_) => Tail::Invalidate,
                };
                Operation::Send(position, tail)
            }
            Self::WriteBegin { only, immediate, .. } => {
                Operation::Write(Position::of(true, only), tail(immediate))
            }
            Self::WriteMore { last, immediate } => {
                Operation::Write(Position::of(false, last), tail(immediate))
            }
            Self::ReadRequest(_) => Operation::ReadRequest,
            Self::ReadResponse { position, .. } => Operation::ReadResponse(position),
            Self::Acknowledge(_) => Operation::Acknowledge,
            Self::AtomicAcknowledge { .. } => Operation::AtomicAcknowledge,
            Self::Atomic(AtomicEth { kind: AtomicKind::CompareSwap { .. }, .. }) => {
                Operation::CompareSwap
            }
            Self::Atomic(AtomicEth { kind: AtomicKind::FetchAdd { .. }, .. }) => {
                Operation::FetchAdd
            }
        }
    }

    /// True if it is a responder's answer rather than a request.
    pub const fn is_response(&self) -> bool {
        matches!(
            self,
            Self::ReadResponse { .. } | Self::Acknowledge(_) | Self::AtomicAcknowledge { .. }
        )
    }
}

/// The headers of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Base transport header.
    pub bth: Bth,
    /// Type of the queue pair.
    pub transport: Transport,
    /// Datagram extended header: only UD has it (ROCE-114).
    pub deth: Option<Deth>,
    /// The message of the packet.
    pub message: Message,
}

/// A packet, received or built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Its headers.
    pub header: Header,
    /// Its payload, without the pad (ROCE-008).
    pub payload: &'a [u8],
}

/// The reason that octets are no packet. No answer is sent (ROCE-019).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Malformed {
    /// Shorter than its headers and its pad (ROCE-003).
    #[error("packet is too short")]
    Short,
    /// Another version of the transport (ROCE-002).
    #[error("unknown transport version")]
    Version,
    /// Unknown opcode (ROCE-004).
    #[error("unknown opcode {0:#04x}")]
    Opcode(u8),
    /// A congestion notification, which affects the sender's rate and nothing else (ROCE-143).
    #[error("congestion notification for queue pair {0}")]
    Congestion(u32),
}

/// Octets of a congestion notification up to its ICRC: a BTH and zeros (ROCE-142).
pub(super) const CNP_LEN: usize = BTH_LEN + 16;

/// Octets of pad behind so many octets of payload (ROCE-006).
pub const fn padding(payload: usize) -> usize {
    payload.wrapping_neg() & 3
}

/// The most octets that headers have: those of an atomic operation.
const MAX_HEADER: usize = BTH_LEN + AtomicEth::LEN;

/// Octets, filled from the front.
struct Writer<'a> {
    octets: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, octets: impl AsRef<[u8]>) {
        let octets = octets.as_ref();
        self.octets[self.len..][..octets.len()].copy_from_slice(octets);
        self.len += octets.len();
    }
}

impl Header {
    /// The most octets that [`Self::write`] returns.
    pub const MAX_LEN: usize = MAX_HEADER;

    /// Writes the headers of a packet with so many octets of payload to the front of `out`, and
    /// returns their number of octets. Payload and [`padding`] of zeros belong behind them.
    ///
    /// # Panics
    ///
    /// If the type of queue pair has no such operation, or `out` is shorter than [`Self::MAX_LEN`]:
    /// mistakes of the caller.
    pub fn write(&self, payload: usize, out: &mut [u8]) -> usize {
        let opcode = Opcode { transport: self.transport, operation: self.message.operation() };
        let opcode = opcode.octet().expect("an operation of this type of queue pair");
        let mut bth = [0; BTH_LEN];
        self.bth.write(opcode, padding(payload) as u8, &mut bth);
        let mut writer = Writer { octets: &mut out[..MAX_HEADER], len: 0 };
        writer.put(bth);
        if let Some(deth) = self.deth {
            writer.put(deth.write());
        }
        self.message.write(&mut writer);
        writer.len
    }
}

impl Message {
    fn write(&self, writer: &mut Writer<'_>) {
        match *self {
            Self::Send { tail: SendTail::Plain, .. }
            | Self::WriteMore { immediate: None, .. }
            | Self::ReadResponse { aeth: None, .. } => {}
            Self::Send { tail: SendTail::Immediate(data), .. }
            | Self::WriteMore { immediate: Some(data), .. } => writer.put(data),
            Self::Send { tail: SendTail::Invalidate(rkey), .. } => writer.put(rkey.write()),
            Self::WriteBegin { reth, immediate, .. } => {
                writer.put(reth.write());
                if let Some(data) = immediate {
                    writer.put(data);
                }
            }
            Self::ReadRequest(reth) => writer.put(reth.write()),
            Self::Acknowledge(aeth) | Self::ReadResponse { aeth: Some(aeth), .. } => {
                writer.put(aeth.write());
            }
            Self::AtomicAcknowledge { aeth, original } => {
                writer.put(aeth.write());
                writer.put(original.write());
            }
            Self::Atomic(eth) => writer.put(eth.write()),
        }
    }

    fn read(operation: Operation, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match operation {
            Operation::Send(position, tail) => {
                let tail = match tail {
                    Tail::Plain => SendTail::Plain,
                    Tail::Immediate => SendTail::Immediate(reader.take()?),
                    Tail::Invalidate => SendTail::Invalidate(reader.take()?),
                };
                Self::Send { position, tail }
            }
            Operation::Write(position, tail) => {
                let reth = position.begins().then(|| reader.take()).transpose()?;
                let carries = matches!(tail, Tail::Immediate);
                let immediate = carries.then(|| reader.take()).transpose()?;
                match reth {
                    Some(reth) => Self::WriteBegin { only: position.ends(), reth, immediate },
                    None => Self::WriteMore { last: position.ends(), immediate },
                }
            }
            Operation::ReadRequest => Self::ReadRequest(reader.take()?),
            Operation::ReadResponse(position) => {
                let has = !matches!(position, Position::Middle);
                let aeth = has.then(|| reader.take()).transpose()?;
                Self::ReadResponse { position, aeth }
            }
            Operation::Acknowledge => Self::Acknowledge(reader.take()?),
            Operation::AtomicAcknowledge => {
                Self::AtomicAcknowledge { aeth: reader.take()?, original: reader.take()? }
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                let compares = matches!(operation, Operation::CompareSwap);
                Self::Atomic(AtomicEth::read(reader.array()?, compares))
            }
        })
    }
}

/// Octets, read from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (octets, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*octets)
    }

    fn take<T: Extended>(&mut self) -> Result<T, Malformed> {
        let (octets, rest) =
            self.0.split_at_checked(size_of::<T::Octets>()).ok_or(Malformed::Short)?;
        self.0 = rest;
        T::Octets::try_from(octets).map(T::read).map_err(|_| Malformed::Short)
    }
}

impl<'a> Packet<'a> {
    /// Reads the octets between the UDP header and the ICRC.
    ///
    /// # Errors
    ///
    /// [`Malformed`]; such octets are dropped without an answer.
    // As of `receive`.
    #[inline(always)]
    pub fn parse(octets: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(octets);
        let (bth, octet, pad) = Bth::read(&reader.array()?).ok_or(Malformed::Version)?;
        if octet == CNP {
            return Err(Malformed::Congestion(bth.dest_qp));
        }
        let opcode = Opcode::from_octet(octet).ok_or(Malformed::Opcode(octet))?;
        let has_deth = matches!(opcode.transport, Transport::Ud);
        let deth = has_deth.then(|| reader.take()).transpose()?;
        let message = Message::read(opcode.operation, &mut reader)?;
        let payload = reader.0.len().checked_sub(pad).ok_or(Malformed::Short)?;
        let header = Header { bth, transport: opcode.transport, deth, message };
        Ok(Self { header, payload: &reader.0[..payload] })
    }

    /// Octets that it has on the wire, pad and ICRC included.
    pub fn octets(&self) -> usize {
        let payload = self.payload.len();
        let headers = self.header.write(payload, &mut [0; Header::MAX_LEN]);
        headers + payload + padding(payload) + ICRC_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Pkey, Psn};

    /// Every octet of the headers counts, but the reserved ones: a packet read and written again is
    /// unchanged.
    ///
    /// Covers: ROCE-002, ROCE-009, ROCE-013
    #[test]
    fn headers_are_written_as_they_are_read() {
        let octets: [u8; 44] = core::array::from_fn(|at| at as u8 * 5 + 3);
        for opcode in (0..=u8::MAX).filter(|octet| Opcode::from_octet(*octet).is_some()) {
            let mut packet = octets;
            packet[0] = opcode;
            packet[1] &= 0xf0;
            let parsed = Packet::parse(&packet).unwrap();
            let mut again = [0; 64];
            let len = parsed.header.write(parsed.payload.len(), &mut again);
            let pad = padding(parsed.payload.len());
            let again = Packet::parse(&again[..len + parsed.payload.len() + pad]).unwrap();
            assert_eq!(again.payload.len(), parsed.payload.len());
            assert_eq!(again.header, parsed.header, "{opcode:#x}");
        }
    }

    /// Covers: ROCE-003, ROCE-004, ROCE-008
    #[test]
    fn short_and_strange_packets_are_told_apart() {
        let header = Header {
            bth: Bth { pkey: Pkey(0x8001), ..Bth::new(0x12_3456, Psn::new(7)) },
            transport: Transport::Ud,
            deth: Some(Deth { qkey: 9, source_qp: 0x65_4321 }),
            message: Message::Send { position: Position::Only, tail: SendTail::Plain },
        };
        let mut octets = [0; 64];
        let len = header.write(3, &mut octets);
        assert_eq!(len, BTH_LEN + 8);
        let packet = Packet::parse(&octets[..len + 4]).unwrap();
        assert_eq!(packet.header, header);
        assert_eq!(packet.payload.len(), 3);
        for short in 0..=len {
            // The pad of one octet is missing in the longest of them.
            assert_eq!(Packet::parse(&octets[..short]), Err(Malformed::Short));
        }
        octets[0] = 0x6f;
        assert_eq!(Packet::parse(&octets), Err(Malformed::Opcode(0x6f)));
        octets[0] = CNP;
        assert_eq!(Packet::parse(&octets), Err(Malformed::Congestion(0x12_3456)));
        octets[1] |= 1;
        assert_eq!(Packet::parse(&octets), Err(Malformed::Version));
    }
}
