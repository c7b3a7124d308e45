// SPDX-License-Identifier: MIT OR Apache-2.0

//! The portable way: tables, which take 16 octets at a step. For few octets it is the fastest,
//! because it has no preparations.

use super::Polynomial;

/// The remainders of an octet that has 0, 1, .. 15 octets behind it.
type Tables = [[u32; 256]; 16];

// The generators, bits reflected.
static CASTAGNOLI: Tables = tables(0x82f6_3b78);
static ETHERNET: Tables = tables(0xedb8_8320);

/// The register after `data`.
pub(super) fn run(polynomial: Polynomial, mut register: u32, data: &[u8]) -> u32 {
    let tables = match polynomial {
        Polynomial::Castagnoli => &CASTAGNOLI,
        Polynomial::Ethernet => &ETHERNET,
    };
    let (blocks, rest) = data.as_chunks::<16>();
    for block in blocks {
        register = step(tables, register, block);
    }
    let (blocks, rest) = rest.as_chunks::<8>();
    for block in blocks {
        register = step(tables, register, block);
    }
    let (blocks, rest) = rest.as_chunks::<4>();
    for block in blocks {
        register = step(tables, register, block);
    }
    for octet in rest {
        let [low, ..] = register.to_le_bytes();
        register = register >> 8 ^ tables[0][usize::from(low ^ octet)];
    }
    register
}

/// The register after 4 to 16 octets. The sum is of one term for each octet, so that the processor
/// looks them all up at once.
#[inline(always)]
fn step<const N: usize>(tables: &Tables, register: u32, block: &[u8; N]) -> u32 {
    let first = u32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    let first = (first ^ register).to_le_bytes();
    let mut sum = 0;
    for at in 4..N {
        sum ^= tables[N - 1 - at][usize::from(block[at])];
    }
    for at in 0..4 {
        sum ^= tables[N - 1 - at][usize::from(first[at])];
    }
    sum
}

const fn tables(generator: u32) -> Tables {
    let mut tables = [[0; 256]; 16];
    let mut octet = 0;
    while octet < 256 {
        let mut register = octet as u32;
        let mut bit = 0;
        while bit < 8 {
            register = register >> 1 ^ generator & (register & 1).wrapping_neg();
            bit += 1;
        }
        tables[0][octet] = register;
        octet += 1;
    }
    let mut behind = 1;
    while behind < 16 {
        let mut octet = 0;
        while octet < 256 {
            let register = tables[behind - 1][octet];
            tables[behind][octet] = register >> 8 ^ tables[0][(register & 0xff) as usize];
            octet += 1;
        }
        behind += 1;
    }
    tables
}
