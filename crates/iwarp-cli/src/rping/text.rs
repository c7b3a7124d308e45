// SPDX-License-Identifier: MIT OR Apache-2.0

//! The bytes that rping moves: a line that says which round it is, then letters that begin one
//! further each time, then a zero.

/// Bytes of the smallest message: the longest head and a zero.
pub(crate) const MIN: usize = 23;
/// Bytes of the largest.
pub(crate) const MAX: usize = 65536;

const FIRST: u8 = b'A';
const LAST: u8 = b'z';

/// The text of round `round`, `size` bytes with its zero.
pub(crate) fn make(round: u64, size: usize) -> Vec<u8> {
    let letters = u64::from(LAST - FIRST) + 1;
    let mut text = format!("rdma-ping-{round}: ").into_bytes();
    text.truncate(size - 1);
    let first = round % letters;
    let rest = (size - 1 - text.len()) as u64;
    // Below `letters`, so a byte.
    text.extend((0..rest).map(|i| FIRST + ((first + i) % letters) as u8));
    text.push(0);
    text
}

/// The part of a text that is shown: up to its zero.
pub(crate) fn show(octets: &[u8]) -> String {
    let end = octets.iter().position(|&octet| octet == 0).unwrap_or(octets.len());
    String::from_utf8_lossy(&octets[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{MIN, make, show};

    /// The texts are those that librdmacm's rping sends.
    #[test]
    fn texts_are_those_of_rping() {
        assert_eq!(make(0, 23), b"rdma-ping-0: ABCDEFGHI\0");
        assert_eq!(make(2, 23), b"rdma-ping-2: CDEFGHIJK\0");
        let text = show(&make(1, 100));
        assert!(text.starts_with("rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abc"));
        assert!(text.ends_with("wxyzABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]"));
        assert_eq!(text.len(), 99);
    }

    #[test]
    fn letters_begin_anew_after_the_last() {
        assert!(show(&make(57, 64)).starts_with("rdma-ping-57: zABC"));
        assert!(show(&make(58, 64)).starts_with("rdma-ping-58: ABC"));
    }

    #[test]
    fn a_head_that_does_not_fit_is_cut() {
        let text = make(u64::MAX, MIN);
        assert_eq!(text.len(), MIN);
        assert_eq!(text[MIN - 1], 0);
    }
}
