// SPDX-License-Identifier: MIT OR Apache-2.0

//! Opcodes.

/// Type of the queue pair that a packet is for: the top three bits of the opcode (ROCE-005).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// Reliable connected.
    Rc,
    /// Unreliable connected.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// A packet's place in its message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// The place of a packet, by whether it begins and ends its message.
    pub const fn of(begins: bool, ends: bool) -> Self {
        match (begins, ends) {
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
            (true, true) => Self::Only,
        }
    }

    /// True if it begins its message.
    pub const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// True if it ends its message.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// The fields that the last packet of a message carries besides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tail {
    /// No field.
    Plain,
    /// Immediate data.
    Immediate,
    /// An R_Key to invalidate.
    Invalidate,
}

/// The operation of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Part of a Send.
    Send(Position, Tail),
    /// Part of an RDMA Write.
    Write(Position, Tail),
    /// RDMA Read Request.
    ReadRequest,
    /// Part of the answer to a Read.
    ReadResponse(Position),
    /// Acknowledgement, positive or negative.
    Acknowledge,
    /// The answer to an atomic operation.
    AtomicAcknowledge,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
}

/// A packet's opcode. The only values are those of the table, which [`Self::from_octet`] knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Opcode {
    /// The type of queue pair.
    pub transport: Transport,
    /// The operation of the packet.
    pub operation: Operation,
}

/// Congestion notification packet: the whole opcode.
pub(crate) const CNP: u8 = 0x81;

const OPERATION_BITS: u8 = 5;

/// The operations by the low five bits of the opcode.
const TABLE: [Option<Operation>; 1 << OPERATION_BITS] = {
    use Operation::{
        Acknowledge, AtomicAcknowledge, CompareSwap, FetchAdd, ReadRequest, ReadResponse, Send,
        Write,
    };
    use Position::{First, Last, Middle, Only};
    use Tail::{Immediate, Invalidate, Plain};
    let mut table = [None; 1 << OPERATION_BITS];
    table[0x00] = Some(Send(First, Plain));
    table[0x01] = Some(Send(Middle, Plain));
    table[0x02] = Some(Send(Last, Plain));
    table[0x03] = Some(Send(Last, Immediate));
    table[0x04] = Some(Send(Only, Plain));
    table[0x05] = Some(Send(Only, Immediate));
    table[0x06] = Some(Write(First, Plain));
    table[0x07] = Some(Write(Middle, Plain));
    table[0x08] = Some(Write(Last, Plain));
    table[0x09] = Some(Write(Last, Immediate));
    table[0x0a] = Some(Write(Only, Plain));
    table[0x0b] = Some(Write(Only, Immediate));
    table[0x0c] = Some(ReadRequest);
    table[0x0d] = Some(ReadResponse(First));
    table[0x0e] = Some(ReadResponse(Middle));
    table[0x0f] = Some(ReadResponse(Last));
    table[0x10] = Some(ReadResponse(Only));
    table[0x11] = Some(Acknowledge);
    table[0x12] = Some(AtomicAcknowledge);
    table[0x13] = Some(CompareSwap);
    table[0x14] = Some(FetchAdd);
    table[0x16] = Some(Send(Last, Invalidate));
    table[0x17] = Some(Send(Only, Invalidate));
    table
};

impl Transport {
    const fn bits(self) -> u8 {
        match self {
            Self::Rc => 0b000,
            Self::Uc => 0b001,
            Self::Ud => 0b011,
        }
    }

    /// True if queue pairs of this type have the operation. UC has no answers and no operation that
    /// needs one (ROCE-113), UD has only Sends of one packet (ROCE-114).
    pub const fn has(self, operation: Operation) -> bool {
        match self {
            Self::Rc => true,
            Self::Uc => matches!(
                operation,
                Operation::Send(_, Tail::Plain | Tail::Immediate) | Operation::Write(..)
            ),
            Self::Ud => {
                matches!(operation, Operation::Send(Position::Only, Tail::Plain | Tail::Immediate))
            }
        }
    }
}

impl Opcode {
    /// The opcode of a number; `None` for unknown ones (ROCE-004, ROCE-018).
    pub fn from_octet(octet: u8) -> Option<Self> {
        let transport = match octet >> OPERATION_BITS {
            0b000 => Transport::Rc,
            0b001 => Transport::Uc,
            0b011 => Transport::Ud,
            _ => return None,
        };
        let operation = TABLE[usize::from(octet & ((1 << OPERATION_BITS) - 1))]?;
        transport.has(operation).then_some(Self { transport, operation })
    }

    /// The number of the opcode; `None` where the type of queue pair has no such operation.
    pub fn octet(self) -> Option<u8> {
        if !self.transport.has(self.operation) {
            return None;
        }
        Some(self.transport.bits() << OPERATION_BITS | self.operation.bits()?)
    }
}

impl Operation {
    const fn bits(self) -> Option<u8> {
        use Position::{First, Last, Middle, Only};
        use Tail::{Immediate, Invalidate, Plain};
        Some(match self {
            Self::Send(First, Plain) => 0x00,
            Self::Send(Middle, Plain) => 0x01,
            Self::Send(Last, Plain) => 0x02,
            Self::Send(Last, Immediate) => 0x03,
            Self::Send(Only, Plain) => 0x04,
            Self::Send(Only, Immediate) => 0x05,
            Self::Write(First, Plain) => 0x06,
            Self::Write(Middle, Plain) => 0x07,
            Self::Write(Last, Plain) => 0x08,
            Self::Write(Last, Immediate) => 0x09,
            Self::Write(Only, Plain) => 0x0a,
            Self::Write(Only, Immediate) => 0x0b,
            Self::ReadRequest => 0x0c,
            Self::ReadResponse(First) => 0x0d,
            Self::ReadResponse(Middle) => 0x0e,
            Self::ReadResponse(Last) => 0x0f,
            Self::ReadResponse(Only) => 0x10,
            Self::Acknowledge => 0x11,
            Self::AtomicAcknowledge => 0x12,
            Self::CompareSwap => 0x13,
            Self::FetchAdd => 0x14,
            Self::Send(Last, Invalidate) => 0x16,
            Self::Send(Only, Invalidate) => 0x17,
            Self::Send(First | Middle, _) | Self::Write(_, _) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::{Opcode, Operation, Position, Tail, Transport};
    use crate::wire::{Malformed, Packet};

    /// Covers: ROCE-113
    #[test]
    fn numbers_and_opcodes_are_one_to_one() {
        let known: Vec<u8> =
            (0..=u8::MAX).filter(|octet| Opcode::from_octet(*octet).is_some()).collect();
        let rc = (0x00..=0x14).chain([0x16, 0x17]);
        let expected: Vec<u8> = rc.chain(0x20..=0x2b).chain([0x64, 0x65]).collect();
        assert_eq!(known, expected);
        for octet in known {
            assert_eq!(Opcode::from_octet(octet).unwrap().octet(), Some(octet));
        }
    }

    /// RD, XRC, Flush and Atomic Write, and operations that no transport has, make no packet, so no
    /// answer is sent.
    ///
    /// Covers: ROCE-018
    #[test]
    fn operations_that_are_left_out_have_no_opcode() {
        let reliable_datagram = 0x40..0x60;
        let extended = 0xa0..0xc0;
        for octet in reliable_datagram.chain(extended).chain([0x1c, 0x1d]) {
            assert_eq!(Opcode::from_octet(octet), None);
            let mut packet = [0; 64];
            packet[0] = octet;
            assert_eq!(Packet::parse(&packet), Err(Malformed::Opcode(octet)));
        }
    }

    #[test]
    fn operations_that_a_type_lacks_have_no_number() {
        let operation = Operation::Send(Position::First, Tail::Plain);
        assert_eq!(Opcode { transport: Transport::Ud, operation }.octet(), None);
        let operation = Operation::Write(Position::Only, Tail::Invalidate);
        assert_eq!(Opcode { transport: Transport::Rc, operation }.octet(), None);
        let operation = Operation::ReadRequest;
        assert_eq!(Opcode { transport: Transport::Uc, operation }.octet(), None);
    }
}
