// SPDX-License-Identifier: MIT OR Apache-2.0

//! CRC32c, a bit at a time (RFC 3385, RFC 3720 §12.1).

/// The polynomial, with its lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The four bytes that follow `bytes` on the wire.
pub fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
        }
    }
    (!crc).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    /// The examples of RFC 3720 §B.4.
    #[test]
    fn the_examples_of_the_rfc_come_out() {
        assert_eq!(crc32c(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&rising), [0x4e, 0x79, 0xdd, 0x46]);
    }
}
