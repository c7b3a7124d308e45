//! Random octets from the system, for what a peer must not be able to guess.

use std::fs::File;
use std::io::{self, Read};

use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

/// Fills `bytes`. Waits only in the first seconds of a machine's life, before its generator is
/// seeded.
///
/// # Errors
///
/// When there is no source of randomness: `getrandom` refused and no `/dev/urandom`.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::PERM) => {
                return File::open("/dev/urandom")?.read_exact(&mut bytes[filled..]);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A random number.
///
/// # Errors
///
/// As [`fill`].
pub fn u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_everything() {
        // Longer than one call is sure to fill (256). An octet left out stays zero in all rounds.
        let mut seen = [0u8; 1000];
        for _ in 0..8 {
            let mut bytes = [0u8; 1000];
            fill(&mut bytes).unwrap();
            seen.iter_mut().zip(bytes).for_each(|(seen, byte)| *seen |= byte);
        }
        assert!(seen.iter().all(|&byte| byte != 0));
    }

    #[test]
    fn numbers_differ() {
        assert_ne!(super::u64().unwrap(), super::u64().unwrap());
    }
}
