// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lending the blocks of an operation, all of them or none.

use iwarp::verbs::ProtectionDomain;

use crate::block::Lent;
use crate::cargo::Cargo;
use crate::{Block, Failure, OperationError};

impl Cargo<Block> {
    /// Hands all of them to an operation of that domain, or none.
    pub(super) fn lend(self, pd: &ProtectionDomain) -> Result<Cargo<Lent>, Failure> {
        if !self.as_slice().iter().all(|block| block.is_of(pd)) {
            return Err(Failure::with(OperationError::OtherDomain, self));
        }
        match self {
            Self::None => Ok(Cargo::None),
            Self::One(block) => match block.lend() {
                Ok(lent) => Ok(Cargo::One(lent)),
                Err((block, error)) => Err(Failure::new(error, Some(block))),
            },
            Self::Several(blocks) => {
                let mut lent = Vec::with_capacity(blocks.len());
                let mut blocks = blocks.into_iter();
                while let Some(block) = blocks.next() {
                    match block.lend() {
                        Ok(block) => lent.push(block),
                        Err((block, error)) => {
                            let before = lent.into_iter().map(Lent::take_back);
                            let all = before.chain([block]).chain(blocks).collect();
                            return Err(Failure::with(error, Self::Several(all)));
                        }
                    }
                }
                Ok(Cargo::Several(lent))
            }
        }
    }
}

impl Cargo<Lent> {
    /// Ends all use of the bytes: afterwards they are the program's again.
    pub(super) fn take_back(self) -> Cargo<Block> {
        self.map(Lent::take_back)
    }
}
