// SPDX-License-Identifier: MIT OR Apache-2.0

//! Digests that are fed while octets are copied: CRC32c, as iSCSI has it and MPA puts it on the
//! wire (RFC 5044 §4.4), and the CRC-32 of Ethernet, which is RoCE's ICRC.
//!
//! ```text
//!   table   the portable way
//!   fold    carry-less multiplication, for packets of RoCE v2 on x86-64
//! ```
//!
//! All else is the crate `crc-fast`'s.
//!
//! ```
//! use iwarp_crc::Digest;
//!
//! let mut crc = Digest::crc32c();
//! crc.update(b"1234");
//! crc.update(b"56789");
//! assert_eq!(crc.wire(), 0xe306_9283_u32.to_le_bytes());
//! ```
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(test, feature = "std"))]
extern crate std;

#[cfg(all(feature = "std", target_arch = "x86_64", not(miri)))]
mod fold;
mod table;

/// The polynomial of a CRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Polynomial {
    /// The one of Castagnoli: CRC32c.
    Castagnoli,
    /// The one of IEEE 802.3: CRC-32.
    Ethernet,
}

/// A running CRC of 32 bits.
///
/// Octets may be fed in pieces of any size. [`Self::register`] and [`Self::set_register`] let a
/// routine that copies and sums in one pass carry the sum on.
#[derive(Clone, Copy, Debug)]
pub struct Digest {
    register: u32,
    polynomial: Polynomial,
}

impl Digest {
    /// The CRC32c of nothing.
    pub const fn crc32c() -> Self {
        Self::from_register(Polynomial::Castagnoli, u32::MAX)
    }

    /// The CRC-32 of nothing.
    pub const fn crc32() -> Self {
        Self::from_register(Polynomial::Ethernet, u32::MAX)
    }

    /// Goes on from a register.
    pub const fn from_register(polynomial: Polynomial, register: u32) -> Self {
        Self { register, polynomial }
    }

    /// Feeds `data`.
    #[inline]
    pub fn update(&mut self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.register = run(self.polynomial, self.register, data);
    }

    /// Its polynomial.
    pub const fn polynomial(self) -> Polynomial {
        self.polynomial
    }

    /// The shift register in reflected form: all ones at first, not yet inverted.
    pub const fn register(self) -> u32 {
        self.register
    }

    /// Goes on from this value of the register.
    pub const fn set_register(&mut self, register: u32) {
        self.register = register;
    }

    /// The finished CRC in the octet order of the wire, least significant octet first.
    pub const fn wire(self) -> [u8; 4] {
        (!self.register).to_le_bytes()
    }
}

/// Fewer octets are faster by a table: the vector routine takes 25 ns and more to prepare itself,
/// and up to 40 for what is left behind its blocks of 256.
#[cfg(feature = "std")]
const SHORT: usize = 192;

/// So many are a table's in any case.
#[cfg(all(feature = "std", target_arch = "x86_64", not(miri)))]
const FEW: usize = fold::LENGTHS.start;
#[cfg(all(feature = "std", any(not(target_arch = "x86_64"), miri)))]
const FEW: usize = SHORT;

/// The choice is made where the caller is compiled, which knows the polynomial and the start.
#[cfg(feature = "std")]
#[inline]
fn run(polynomial: Polynomial, register: u32, data: &[u8]) -> u32 {
    match polynomial {
        // From the start there is a way that moves no parameters about.
        Polynomial::Castagnoli if register == u32::MAX => !crc_fast::crc32_iscsi(data),
        _ => carry_on(polynomial, register, data),
    }
}

/// Headers are mostly few octets, and so is what stands behind a payload: they are told apart
/// before anything is prepared for more.
#[cfg(feature = "std")]
#[inline(never)]
fn carry_on(polynomial: Polynomial, register: u32, data: &[u8]) -> u32 {
    if polynomial == Polynomial::Ethernet && data.len() < FEW {
        return table::run(polynomial, register, data);
    }
    carry_on_long(polynomial, register, data)
}

#[cfg(feature = "std")]
#[inline(never)]
fn carry_on_long(polynomial: Polynomial, register: u32, data: &[u8]) -> u32 {
    let algorithm = match polynomial {
        // An instruction does it.
        Polynomial::Castagnoli => crc_fast::CrcAlgorithm::Crc32Iscsi,
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        Polynomial::Ethernet if fold::LENGTHS.contains(&data.len()) && fold::available() => {
            // SAFETY: the instructions are there.
            return unsafe { fold::run(register, data) };
        }
        Polynomial::Ethernet if data.len() < SHORT => {
            return table::run(polynomial, register, data);
        }
        Polynomial::Ethernet => crc_fast::CrcAlgorithm::Crc32IsoHdlc,
    };
    let mut digest = crc_fast::Digest::new_with_init_state(algorithm, u64::from(register));
    digest.update(data);
    digest.get_state() as u32
}

#[cfg(not(feature = "std"))]
use table::run;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::{Digest, Polynomial, run, table};

    /// The definition.
    fn by_bits(polynomial: Polynomial, register: u32, data: &[u8]) -> u32 {
        let generator = match polynomial {
            Polynomial::Castagnoli => 0x82f6_3b78,
            Polynomial::Ethernet => 0xedb8_8320,
        };
        data.iter().fold(register, |register, octet| {
            (0..8).fold(register ^ u32::from(*octet), |register, _| {
                register >> 1 ^ generator & (register & 1).wrapping_neg()
            })
        })
    }

    fn wire(data: &[u8]) -> [u8; 4] {
        let mut crc = Digest::crc32c();
        crc.update(data);
        crc.wire()
    }

    /// The examples of RFC 3720 B.4.
    ///
    /// Covers: MPA-5044-4.4-01, MPA-5044-4.4-11
    #[test]
    fn crc_is_that_of_iscsi() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(wire(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(wire(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(wire(&up), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(wire(&down), [0x5c, 0xdb, 0x3f, 0x11]);
        let mut read_pdu = [0; 48];
        read_pdu[0] = 0x01;
        read_pdu[1] = 0xc0;
        read_pdu[16] = 0x14;
        read_pdu[22] = 0x04;
        read_pdu[27] = 0x14;
        read_pdu[31] = 0x18;
        read_pdu[32] = 0x28;
        read_pdu[40] = 0x02;
        assert_eq!(wire(&read_pdu), [0x56, 0x3a, 0x96, 0xd9]);
    }

    /// The check value that catalogues of CRCs give, and the residue of a sum that follows its
    /// data.
    #[test]
    fn crc_32_is_that_of_ethernet() {
        let mut crc = Digest::crc32();
        crc.update(b"123456789");
        assert_eq!(crc.wire(), 0xcbf4_3926_u32.to_le_bytes());
        crc.update(&crc.wire());
        assert_eq!(crc.register(), 0xdebb_20e3);
    }

    #[test]
    fn an_empty_update_leaves_the_register_as_it_was() {
        let mut crc = Digest::from_register(Polynomial::Castagnoli, 0x1234_5678);
        crc.update(&[]);
        assert_eq!(crc.register(), 0x1234_5678);
        assert_eq!(Digest::crc32c().register(), u32::MAX);
    }

    proptest! {
        #[test]
        fn pieces_give_the_crc_of_the_whole(
            data in prop::collection::vec(any::<u8>(), 0..3000),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(data.len() + 1)).collect();
            cuts.push(data.len());
            cuts.sort_unstable();
            let mut crc = Digest::crc32c();
            let mut from = 0;
            for to in cuts {
                crc.update(&data[from..to]);
                crc = Digest::from_register(crc.polynomial(), crc.register());
                from = to;
            }
            prop_assert_eq!(crc.wire(), wire(&data));
        }

        #[test]
        fn the_table_agrees_with_the_vector_routine(
            register: u32,
            data in prop::collection::vec(any::<u8>(), 0..3000),
        ) {
            for polynomial in [Polynomial::Castagnoli, Polynomial::Ethernet] {
                for data in [&data[..], &data[..data.len() / 20]] {
                    let chosen = run(polynomial, register, data);
                    prop_assert_eq!(chosen, table::run(polynomial, register, data));
                    prop_assert_eq!(chosen, by_bits(polynomial, register, data));
                }
            }
        }
    }
}
