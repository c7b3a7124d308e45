// SPDX-License-Identifier: MIT OR Apache-2.0

//! The order of the octets of numbers, which is a host's own in some places.

/// The order of a number's octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByteOrder {
    /// Least significant octet first.
    Little,
    /// Most significant octet first.
    Big,
}

impl ByteOrder {
    /// The order of this host.
    pub const HOST: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    pub(crate) const fn read_u32(self, octets: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(octets),
            Self::Big => u32::from_be_bytes(octets),
        }
    }

    pub(crate) const fn write_u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    pub(crate) const fn read_u64(self, octets: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(octets),
            Self::Big => u64::from_be_bytes(octets),
        }
    }

    pub(crate) const fn write_u64(self, value: u64) -> [u8; 8] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }
}
