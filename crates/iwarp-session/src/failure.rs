// SPDX-License-Identifier: MIT OR Apache-2.0

//! Failed operations, and the blocks that come back from them.

use std::error::Error;
use std::{fmt, io};

use crate::cargo::Cargo;
use crate::{Block, OperationError};

/// An operation that was not done, and the blocks it had. It reads as its [`error`](Self::error),
/// and has its [`source`](Error::source).
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The reason.
    pub error: OperationError,
    /// The block that went into the operation, the program's again. Absent where there was none,
    /// and where the operation is still under way and cannot be waited for: the block then
    /// goes back to its pool when it is done.
    pub block: Option<Block>,
    /// The blocks of an operation that took several, in their order: as [`Self::block`].
    pub blocks: Vec<Block>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// The program has the block back, or has dropped it.
impl From<Failure> for OperationError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        failure.error.into()
    }
}

impl Failure {
    pub(super) fn new(error: impl Into<OperationError>, block: Option<Block>) -> Self {
        Self::with(error, block.into())
    }

    pub(super) fn with(error: impl Into<OperationError>, cargo: Cargo<Block>) -> Self {
        let (block, blocks) = match cargo {
            Cargo::None => (None, Vec::new()),
            Cargo::One(block) => (Some(block), Vec::new()),
            Cargo::Several(blocks) => (None, blocks),
        };
        Self { error: error.into(), block, blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::domain;

    #[test]
    fn blocks_come_back_as_they_went_in() {
        let pd = domain();
        let block = |len| Block::new(&pd, len).unwrap();
        let one = Failure::with(OperationError::Timeout, Cargo::One(block(1)));
        assert_eq!((one.block.map(|block| block.len()), one.blocks.len()), (Some(1), 0));
        let several =
            Failure::with(OperationError::Timeout, Cargo::Several(vec![block(2), block(3)]));
        assert!(several.block.is_none());
        assert_eq!(several.blocks.iter().map(|block| block.len()).collect::<Vec<_>>(), [2, 3]);
    }
}
