// SPDX-License-Identifier: MIT OR Apache-2.0

//! The greetings of the two ends of a byte stream when they connect.

use std::io;

use crate::Request;

/// Begins the private data of an end of a byte stream.
const NAME: &[u8; 12] = b"iwarp stream";

/// Of the protocol that [`stream`](super) describes.
const VERSION: u32 = 1;

/// The reason why the peer cannot be the other end of a byte stream: the source of an [`io::Error`]
/// of kind [`InvalidData`](io::ErrorKind::InvalidData).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// It is a session of another kind, or another program.
    #[error("the peer is not a byte stream")]
    NotAStream,
    /// It speaks another version of the protocol: this one.
    #[error("the peer speaks version {0} of the byte stream, not {VERSION}")]
    Version(u32),
    /// It takes no bytes.
    #[error("the peer is a byte stream that takes no bytes")]
    NoRoom,
}

impl From<HelloError> for io::Error {
    fn from(error: HelloError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// The messages that an end takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    /// Bytes of a message.
    pub(super) block_len: u32,
    /// Messages that may be sent before it says more.
    pub(super) depth: u32,
    /// Bytes that may lie in shared memory until it reads them.
    pub(super) shared: u32,
}

impl Hello {
    pub(super) fn to_octets(self) -> Vec<u8> {
        let numbers = [VERSION, self.block_len, self.depth, self.shared];
        NAME.iter().copied().chain(numbers.into_iter().flat_map(u32::to_be_bytes)).collect()
    }

    pub(super) fn parse(private_data: &[u8]) -> Result<Self, HelloError> {
        let numbers = private_data.strip_prefix(NAME).ok_or(HelloError::NotAStream)?;
        let (version, numbers) = number(numbers)?;
        if version != VERSION {
            return Err(HelloError::Version(version));
        }
        let (block_len, numbers) = number(numbers)?;
        let (depth, numbers) = number(numbers)?;
        // An end that does not say knows of none.
        let shared = number(numbers).map_or(0, |(shared, _)| shared);
        // One message for bytes, and one for the end of the stream.
        if block_len < 1 || depth < 2 {
            return Err(HelloError::NoRoom);
        }
        // More cannot be told from less: the ends count modulo 2^32.
        Ok(Self { block_len, depth: depth.min(u32::MAX / 2), shared })
    }
}

fn number(octets: &[u8]) -> Result<(u32, &[u8]), HelloError> {
    let (first, rest) = octets.split_first_chunk().ok_or(HelloError::NotAStream)?;
    Ok((u32::from_be_bytes(*first), rest))
}

impl Request {
    /// True if the peer wants a [byte stream](super), of any version: for programs that also accept
    /// other sessions at that address.
    pub fn is_byte_stream(&self) -> bool {
        !matches!(Hello::parse(self.private_data()), Err(HelloError::NotAStream))
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    #[test]
    fn a_hello_parses_at_the_other_end() {
        let hello = Hello { block_len: 4096, depth: 9, shared: 7 };
        let octets = hello.to_octets();
        assert_eq!(octets, *b"iwarp stream\0\0\0\x01\0\0\x10\0\0\0\0\x09\0\0\0\x07");
        assert_eq!(Hello::parse(&octets), Ok(hello));
        // A later version may say more, and an earlier one says less.
        assert_eq!(Hello::parse(&[&octets[..], b"more"].concat()), Ok(hello));
        let less = Hello { shared: 0, ..hello };
        assert_eq!(Hello::parse(&octets[..24]), Ok(less));
        assert_eq!(Hello::parse(&less.to_octets()), Ok(less));
    }

    #[test]
    fn malformed_hellos_are_refused() {
        let octets = Hello { block_len: 1, depth: 2, shared: 0 }.to_octets();
        for len in 0..24 {
            assert_eq!(Hello::parse(&octets[..len]), Err(HelloError::NotAStream), "{len}");
        }
        for (block_len, depth) in [(0, 2), (1, 1), (1, 0)] {
            let octets = Hello { block_len, depth, shared: 1 }.to_octets();
            assert_eq!(Hello::parse(&octets), Err(HelloError::NoRoom));
        }
        let boundless = Hello { block_len: 1, depth: u32::MAX, shared: 0 }.to_octets();
        assert!(Hello::parse(&boundless).is_ok_and(|hello| hello.depth == u32::MAX / 2));
        let mut later = octets;
        later[15] = 2;
        assert_eq!(Hello::parse(&later), Err(HelloError::Version(2)));
    }
}
