//! How operations fail.

use std::io;

use iwarp_mem::RegisterError;
use iwarp_types::{PostError, WcStatus};
use thiserror::Error;

use crate::session::Block;

/// Why an operation was not done.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OperationError {
    /// The connection ended before it was done, or was not up. Whether the peer saw anything of
    /// it is not known.
    #[error("the connection ended")]
    Disconnected,
    /// As many operations of this kind are under way as the session was made for.
    #[error("too many operations are under way")]
    QueueFull,
    /// More inline bytes than the session was made for.
    #[error("inline data too long")]
    InlineTooLong,
    /// It reaches beyond what the peer granted.
    #[error("not within what the peer granted")]
    OutsideGrant,
    /// The block belongs to another protection domain.
    #[error("the block belongs to another protection domain")]
    OtherDomain,
    /// It failed, and with it the connection.
    #[error("the operation failed: {0:?}")]
    Failed(WcStatus),
    /// It was refused.
    #[error(transparent)]
    Refused(PostError),
    /// The memory could not be registered.
    #[error(transparent)]
    Memory(#[from] RegisterError),
    /// It cannot be waited for.
    #[error("cannot wait: {0}")]
    Wait(#[source] io::Error),
}

impl From<PostError> for OperationError {
    fn from(error: PostError) -> Self {
        match error {
            PostError::QueueFull => Self::QueueFull,
            PostError::InlineTooLong => Self::InlineTooLong,
            PostError::WrongState => Self::Disconnected,
            other => Self::Refused(other),
        }
    }
}

impl From<WcStatus> for OperationError {
    fn from(status: WcStatus) -> Self {
        match status {
            WcStatus::Flushed => Self::Disconnected,
            other => Self::Failed(other),
        }
    }
}

/// An operation that was not done, and the block it had.
#[derive(Debug, Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct Failure {
    /// Why.
    pub error: OperationError,
    /// The block that went into the operation, the program's again. Absent where there was none,
    /// and where the operation is still under way and cannot be waited for: the block then
    /// goes back to its pool when it is done.
    pub block: Option<Block>,
}

impl Failure {
    pub(super) fn new(error: impl Into<OperationError>, block: Option<Block>) -> Self {
        Self { error: error.into(), block }
    }
}
