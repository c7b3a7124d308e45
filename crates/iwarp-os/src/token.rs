// SPDX-License-Identifier: MIT OR Apache-2.0

//! A descriptor that stands for something of this process's, under any number.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};

/// These mark an empty file in memory as a token: there is no other use for one that cannot be
/// written to.
const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// A token's number: one for all its duplicates, and at any time of no other token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TokenId(u64, u64);

/// Makes a token.
///
/// # Errors
///
/// As for `memfd_create(2)`, which sandboxes may refuse.
pub fn create() -> io::Result<OwnedFd> {
    let fd = memfd_create(c"iwarp", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fcntl_add_seals(&fd, SEALS)?;
    Ok(fd)
}

/// The number of the token behind a descriptor; `None` where that is no token of any process.
///
/// # Errors
///
/// `EBADF`; those of `fstat(2)`.
pub fn id(fd: impl AsFd) -> io::Result<Option<TokenId>> {
    let status = fstat(&fd)?;
    let sealed = fcntl_get_seals(&fd).is_ok_and(|seals| seals.contains(SEALS));
    let is_one = sealed && status.st_size == 0;
    Ok(is_one.then_some(TokenId(status.st_dev, status.st_ino)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_have_the_number_of_the_token() {
        let (one, other) = (create().unwrap(), create().unwrap());
        let number = id(&one).unwrap().unwrap();
        assert_eq!(id(one.try_clone().unwrap()).unwrap(), Some(number));
        assert_ne!(id(&other).unwrap(), Some(number));
        assert_eq!(id(memfd_create(c"a", MemfdFlags::CLOEXEC).unwrap()).unwrap(), None);
        assert_eq!(id(io::stdin()).unwrap(), None);
        assert_eq!(id(std::fs::File::open("/dev/zero").unwrap()).unwrap(), None);
    }
}
