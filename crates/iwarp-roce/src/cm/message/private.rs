// SPDX-License-Identifier: MIT OR Apache-2.0

//! Private data of programs.

use core::fmt;
use core::ops::Deref;

use thiserror::Error;

/// Private data: 224 octets at most, fewer in most messages. A peer's data fill the whole field of
/// their message, as no message gives their length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    len: u8,
    octets: [u8; Self::MOST],
}

/// More private data than the message can carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{len} octets of private data, where {limit} fit")]
pub struct TooLong {
    /// Octets that the program gave.
    pub len: usize,
    /// Octets that the message can carry.
    pub limit: usize,
}

impl PrivateData {
    const MOST: usize = super::limits::RTU;

    /// No private data.
    pub const EMPTY: Self = Self { len: 0, octets: [0; Self::MOST] };

    /// All of a field of a message.
    pub(crate) fn of(field: &[u8]) -> Self {
        let mut data = Self::EMPTY;
        for (to, from) in data.octets.iter_mut().zip(field) {
            *to = *from;
            data.len += 1;
        }
        data
    }
}

/// The field of a message with a program's octets in it, filled up with zeros.
pub(crate) fn field<const N: usize>(octets: &[u8], limit: usize) -> Result<[u8; N], TooLong> {
    let limit = limit.min(N);
    if octets.len() > limit {
        return Err(TooLong { len: octets.len(), limit });
    }
    let mut field = [0; N];
    field[..octets.len()].copy_from_slice(octets);
    Ok(field)
}

impl Default for PrivateData {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Deref for PrivateData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} octets of private data", self.len)
    }
}
