// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages of the demo's client and server, in Sends and private data.

use anyhow::{Context, Result, bail};
use iwarp::{Stag, TaggedOffset};

/// Bytes of the largest message.
pub(crate) const MAX_MESSAGE: usize = 256;
/// Bytes of a message that is only sent back.
pub(crate) const PING: usize = 4;

/// Layout of the memory that the server lends: texts and a counter, then `BULK` and on.
pub(crate) const WRITTEN: usize = 0;
pub(crate) const TO_READ: usize = 1024;
pub(crate) const COUNTER: usize = 2048;
pub(crate) const BULK: usize = 4096;

/// The counter's first value.
pub(crate) const COUNTER_START: u64 = 41;

/// The place of the server's memory: its private data when it accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lent {
    pub(crate) stag: Stag,
    pub(crate) to: TaggedOffset,
    pub(crate) len: u64,
}

impl Lent {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut octets = self.stag.0.to_be_bytes().to_vec();
        octets.extend(self.to.0.to_be_bytes());
        octets.extend(self.len.to_be_bytes());
        octets
    }

    pub(crate) fn decode(octets: &[u8]) -> Result<Self> {
        let octets: &[u8; 20] =
            octets.try_into().context("the peer is not a server of the demo")?;
        Ok(Self {
            stag: Stag(u32::from_be_bytes(array(&octets[..4]))),
            to: TaggedOffset(u64::from_be_bytes(array(&octets[4..12]))),
            len: u64::from_be_bytes(array(&octets[12..])),
        })
    }
}

/// A question of the client's to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask<'a> {
    /// Reads a text; answered by another.
    Hello(&'a [u8]),
    /// Asks for bytes of the lent memory, as the server's program sees them.
    Look { offset: u64, len: u64 },
    /// Asks whether the bulk of the lent memory holds a pattern: answered by an empty message if
    /// so, else by what differs.
    Check { seed: u64 },
    /// Announces Immediate Data, which is sent back with its bytes reversed; answered by an
    /// empty message first.
    Expect,
}

impl<'a> Ask<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match *self {
            Self::Hello(text) => [b"H", text].concat(),
            Self::Look { offset, len } => {
                [&b"L"[..], &offset.to_be_bytes(), &len.to_be_bytes()].concat()
            }
            Self::Check { seed } => [&b"C"[..], &seed.to_be_bytes()].concat(),
            Self::Expect => b"E".to_vec(),
        }
    }

    pub(crate) fn decode(octets: &'a [u8]) -> Result<Self> {
        Ok(match octets {
            [b'H', text @ ..] => Self::Hello(text),
            [b'L', rest @ ..] if rest.len() == 16 => Self::Look {
                offset: u64::from_be_bytes(array(&rest[..8])),
                len: u64::from_be_bytes(array(&rest[8..])),
            },
            [b'C', rest @ ..] if rest.len() == 8 => {
                Self::Check { seed: u64::from_be_bytes(array(rest)) }
            }
            [b'E'] => Self::Expect,
            _ => bail!("got an unknown message of {} bytes", octets.len()),
        })
    }
}

fn array<const N: usize>(octets: &[u8]) -> [u8; N] {
    octets.try_into().expect("the caller counted")
}

#[cfg(test)]
mod tests {
    use iwarp::{Stag, TaggedOffset};

    use super::{Ask, Lent};

    #[test]
    fn messages_come_back_as_they_were() {
        let asks = [
            Ask::Hello(b"hello"),
            Ask::Look { offset: 1, len: u64::MAX },
            Ask::Check { seed: 3 },
            Ask::Expect,
        ];
        for ask in asks {
            assert_eq!(Ask::decode(&ask.encode()).unwrap(), ask);
        }
        let lent = Lent { stag: Stag(0x0102_0304), to: TaggedOffset(5), len: 1 << 40 };
        assert_eq!(Lent::decode(&lent.encode()).unwrap(), lent);
    }

    #[test]
    fn nonsense_is_refused() {
        for octets in [&b""[..], b"X", b"L123", b"C", b"EE"] {
            assert!(Ask::decode(octets).is_err());
        }
        assert!(Lent::decode(&[0; 19]).is_err());
    }
}
