// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bytes in words.

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As above, of at most `most` bytes; says how many are left out.
pub fn hex_of(bytes: &[u8], most: usize) -> String {
    match bytes.get(..most) {
        Some(front) if bytes.len() > most => {
            format!("{}... ({} bytes)", hex(front), bytes.len())
        }
        _ => hex(bytes),
    }
}

/// The bytes that hexadecimal digits say.
pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    if !digits.is_ascii() || digits.len() % 2 == 1 {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}
