// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages: one word, the kind in its top three bits (RS-MSG-01).

use thiserror::Error;

use super::ByteOrder;

/// Octets of a message.
pub const MESSAGE_LEN: usize = 4;

const KIND_SHIFT: u32 = 29;
const VALUE: u32 = (1 << KIND_SHIFT) - 1;

const DATA: u32 = 0;
const CREDITS: u32 = 4;
const IOMAP: u32 = 6;
const CONTROL: u32 = 7;

/// A message between two ends of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// So many octets were written into the ring; at most [`MAX_DATA`](Self::MAX_DATA).
    Data(u32),
    /// The count of messages up to which the peer may send. An SGL entry was perhaps written
    /// before.
    Credits(u16),
    /// The iomap entry of this index was written; at most [`MAX_DATA`](Self::MAX_DATA).
    Iomap(u32),
    /// Something ends.
    Control(Control),
}

/// Values of a control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// Both directions are over.
    Disconnect,
    /// The sender writes no more.
    Shutdown,
}

/// A word that is no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the word {0:#010x} is no message of rsockets")]
pub struct UnknownMessage(pub u32);

impl Message {
    /// The largest value that a message can have.
    pub const MAX_DATA: u32 = VALUE;

    const DISCONNECT: u32 = 0;
    const SHUTDOWN: u32 = 2;

    /// Its word. A value beyond [`MAX_DATA`](Self::MAX_DATA) loses its top bits.
    pub const fn word(self) -> u32 {
        let (kind, value) = match self {
            Self::Data(octets) => (DATA, octets),
            Self::Credits(count) => (CREDITS, count as u32),
            Self::Iomap(index) => (IOMAP, index),
            Self::Control(Control::Disconnect) => (CONTROL, Self::DISCONNECT),
            Self::Control(Control::Shutdown) => (CONTROL, Self::SHUTDOWN),
        };
        kind << KIND_SHIFT | value & VALUE
    }

    /// Reads a word. Credits may have more bits than their 16: the original adds before it wraps.
    pub const fn parse(word: u32) -> Result<Self, UnknownMessage> {
        let value = word & VALUE;
        match (word >> KIND_SHIFT, value) {
            (DATA, _) => Ok(Self::Data(value)),
            (CREDITS, _) => Ok(Self::Credits(value as u16)),
            (IOMAP, _) => Ok(Self::Iomap(value)),
            (CONTROL, Self::DISCONNECT) => Ok(Self::Control(Control::Disconnect)),
            (CONTROL, Self::SHUTDOWN) => Ok(Self::Control(Control::Shutdown)),
            _ => Err(UnknownMessage(word)),
        }
    }

    /// As the immediate of an RDMA Write, which is big-endian (RS-MSG-02).
    pub const fn to_immediate(self) -> [u8; MESSAGE_LEN] {
        self.word().to_be_bytes()
    }

    /// Reads an immediate.
    pub const fn from_immediate(octets: [u8; MESSAGE_LEN]) -> Result<Self, UnknownMessage> {
        Self::parse(u32::from_be_bytes(octets))
    }

    /// As the octets of a Send, which have the sender's byte order (RS-MSG-03).
    pub const fn to_send(self, sender: ByteOrder) -> [u8; MESSAGE_LEN] {
        sender.write_u32(self.word())
    }

    /// Reads the octets of a Send from a host with that byte order (RS-MSG-06).
    pub const fn from_send(
        octets: [u8; MESSAGE_LEN],
        sender: ByteOrder,
    ) -> Result<Self, UnknownMessage> {
        Self::parse(sender.read_u32(octets))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ByteOrder, Control, Message, UnknownMessage};

    fn any_message() -> impl Strategy<Value = Message> {
        prop_oneof![
            (0..=Message::MAX_DATA).prop_map(Message::Data),
            any::<u16>().prop_map(Message::Credits),
            (0..=Message::MAX_DATA).prop_map(Message::Iomap),
            Just(Message::Control(Control::Disconnect)),
            Just(Message::Control(Control::Shutdown)),
        ]
    }

    proptest! {
        /// Covers: RS-MSG-01, RS-MSG-02, RS-MSG-03, RS-MSG-06
        #[test]
        fn messages_come_back_in_each_form(message in any_message()) {
            prop_assert_eq!(Message::parse(message.word()), Ok(message));
            prop_assert_eq!(Message::from_immediate(message.to_immediate()), Ok(message));
            for order in [ByteOrder::Little, ByteOrder::Big] {
                prop_assert_eq!(Message::from_send(message.to_send(order), order), Ok(message));
            }
            prop_assert_eq!(message.to_send(ByteOrder::Big), message.to_immediate());
        }

        /// Covers: RS-MSG-01, RS-MSG-08
        #[test]
        fn every_word_is_a_message_or_has_none_of_the_kinds(word: u32) {
            let known = match word >> 29 {
                0 | 4 | 6 => true,
                7 => [0, 2].contains(&(word & 0x1fff_ffff)),
                _ => false,
            };
            prop_assert_eq!(Message::parse(word).is_ok(), known);
            if !known {
                prop_assert_eq!(Message::parse(word), Err(UnknownMessage(word)));
            }
        }
    }

    /// Covers: RS-FLOW-05
    #[test]
    fn credits_beyond_sixteen_bits_wrap() {
        assert_eq!(Message::parse(0x8001_0005), Ok(Message::Credits(5)));
    }

    #[test]
    fn keepalive_is_no_message() {
        assert_eq!(Message::parse(0xe000_0001), Err(UnknownMessage(0xe000_0001)));
    }
}
