// SPDX-License-Identifier: MIT OR Apache-2.0

//! The private data of a connection's request and reply.
//!
//! ```text
//!   version 1 | flags 1 | credits 2 | extensions 1 | 0 2 | iomap size 1
//!     | target_sgl 16 | data_buf 16
//! ```

use bitflags::bitflags;
use thiserror::Error;

use super::entry::SGL_ENTRY_LEN;
use super::{ByteOrder, Entry, IomapSize};

/// Octets of the private data.
pub const CONN_DATA_LEN: usize = 40;

const VERSION: u8 = 1;
const BIG_ENDIAN: u8 = 1 << 0;
const IOMAP_VALID: u8 = 1 << 1;
const SGL: usize = 8;
const RING: usize = SGL + SGL_ENTRY_LEN;

bitflags! {
    /// Abilities beyond the original's, in a reserved octet, where the original sends 0 and
    /// looks at nothing (RS-WIRE-03, RS-WIRE-10).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Extensions: u8 {
        /// The sender takes messages in both forms.
        const BOTH_FORMS = 1 << 0;
        /// The sender posts more receives than it announces, so that control messages need none of
        /// those.
        const SPARE_RECEIVES = 1 << 1;
    }
}

/// Facts that an end tells its peer when they connect (`rs_conn_data`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnData {
    /// Byte order of the sender's host.
    pub order: ByteOrder,
    /// Receives that the sender has posted for the messages that need credits.
    pub credits: u16,
    /// Abilities beyond the original's.
    pub extensions: Extensions,
    /// Entries of the sender's iomap table; `None` if it says nothing about one.
    pub iomap: Option<IomapSize>,
    /// The memory for the peer's announcements; its length is the number of SGL entries.
    pub sgl: Entry,
    /// The first half of the sender's receive ring.
    pub ring: Entry,
}

/// Private data that no stream can begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConnDataError {
    /// There are fewer octets than 40.
    #[error("private data of {0} octets is too short for an rsocket, which sends 40")]
    Short(usize),
    /// The peer speaks another version.
    #[error("the peer speaks version {0} of the rsocket protocol, and this end version 1")]
    Version(u8),
}

impl ConnData {
    /// Reads private data. Octets behind the 40 are a connection manager's padding; reserved octets
    /// and unknown flags are ignored.
    pub fn read(octets: &[u8]) -> Result<Self, ConnDataError> {
        let Some(octets) = octets.first_chunk::<CONN_DATA_LEN>() else {
            return Err(ConnDataError::Short(octets.len()));
        };
        let [version, flags, c0, c1, extensions, _, _, iomap, ..] = *octets;
        if version != VERSION {
            return Err(ConnDataError::Version(version));
        }
        let entry = |at: usize| {
            let octets = core::array::from_fn(|index| octets[at + index]);
            Entry::read(&octets, ByteOrder::Big)
        };
        Ok(Self {
            order: if flags & BIG_ENDIAN != 0 { ByteOrder::Big } else { ByteOrder::Little },
            credits: u16::from_be_bytes([c0, c1]),
            extensions: Extensions::from_bits_truncate(extensions),
            iomap: (flags & IOMAP_VALID != 0).then(|| IomapSize::from_octet(iomap)),
            sgl: entry(SGL),
            ring: entry(RING),
        })
    }

    /// The octets.
    pub fn write(&self) -> [u8; CONN_DATA_LEN] {
        let mut octets = [0; CONN_DATA_LEN];
        octets[0] = VERSION;
        if self.order == ByteOrder::Big {
            octets[1] |= BIG_ENDIAN;
        }
        octets[2..4].copy_from_slice(&self.credits.to_be_bytes());
        octets[4] = self.extensions.bits();
        if let Some(size) = self.iomap {
            octets[1] |= IOMAP_VALID;
            octets[7] = size.octet();
        }
        octets[SGL..RING].copy_from_slice(&self.sgl.write(ByteOrder::Big));
        octets[RING..].copy_from_slice(&self.ring.write(ByteOrder::Big));
        octets
    }

    /// Number of entries of the sender's iomap table.
    pub fn iomap_entries(&self) -> u32 {
        self.iomap.map_or(0, IomapSize::entries)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ByteOrder, CONN_DATA_LEN, ConnData, ConnDataError, Entry, Extensions, IomapSize};

    fn any_entry() -> impl Strategy<Value = Entry> {
        (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(addr, key, length)| Entry {
            addr,
            key,
            length,
        })
    }

    proptest! {
        /// Covers: RS-WIRE-02, RS-WIRE-03, RS-WIRE-04
        #[test]
        fn private_data_comes_back(
            is_big: bool, credits: u16, bits in 0u8..4, iomap in any::<Option<u8>>(),
            sgl in any_entry(), ring in any_entry(), padding in 0usize..20,
        ) {
            let data = ConnData {
                order: if is_big { ByteOrder::Big } else { ByteOrder::Little },
                credits,
                extensions: Extensions::from_bits_truncate(bits),
                iomap: iomap.map(IomapSize::from_octet),
                sgl,
                ring,
            };
            let mut octets = data.write().to_vec();
            octets.resize(CONN_DATA_LEN + padding, 0);
            prop_assert_eq!(ConnData::read(&octets), Ok(data));
            octets[1] |= 0xfc;
            octets[4] |= 0xfc;
            octets[5] = 0xff;
            octets[6] = 0xff;
            prop_assert_eq!(ConnData::read(&octets), Ok(data), "reserved bits are ignored");
        }

        #[test]
        fn any_octets_are_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..60)) {
            match ConnData::read(&octets) {
                Ok(_) => prop_assert!(octets.len() >= CONN_DATA_LEN && octets[0] == 1),
                Err(ConnDataError::Short(len)) => {
                    prop_assert_eq!(len, octets.len());
                    prop_assert!(len < CONN_DATA_LEN);
                }
                Err(ConnDataError::Version(version)) => {
                    prop_assert_eq!(version, octets[0]);
                    prop_assert!(version != 1);
                }
            }
        }
    }

    #[test]
    fn other_versions_are_refused() {
        let mut octets = [0; CONN_DATA_LEN];
        for version in [0, 2, 255] {
            octets[0] = version;
            assert_eq!(ConnData::read(&octets), Err(ConnDataError::Version(version)));
        }
        octets[0] = 1;
        assert!(ConnData::read(&octets).is_ok());
        assert_eq!(ConnData::read(&octets[..39]), Err(ConnDataError::Short(39)));
    }
}
