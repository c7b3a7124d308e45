// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reasons why operations fail.

use std::io;

use iwarp::verbs::Ended;
use iwarp_mem::RegisterError;
use iwarp_types::{PostError, WcStatus};

/// The reason why an operation was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// The connection ended before it was done, or was not up. It is not known whether the peer saw
    /// anything of it.
    #[error("the connection ended")]
    Disconnected,
    /// The connection ended, and not in good order: why.
    #[error(transparent)]
    Ended(Ended),
    /// The time given has passed. No data are lost: waiting may be begun again.
    #[error("waited too long")]
    Timeout,
    /// As many operations of this kind are under way as the session was made for.
    #[error("too many operations are under way (wait for some, or reserve places before)")]
    QueueFull,
    /// More inline bytes than the session was made for.
    #[error("inline data too long (see max_inline of the session's configuration)")]
    InlineTooLong,
    /// More blocks in one operation than the session was made for, or a pool has.
    #[error("too many blocks in one operation (see max_blocks of the session's configuration)")]
    TooManyBlocks,
    /// It was collected in a [`Batch`](crate::Batch) and not posted: the batch was
    /// dropped, or another of its operations was refused.
    #[error("its batch was not posted")]
    NotPosted,
    /// It reaches beyond what the peer granted.
    #[error("not within what the peer granted")]
    OutsideGrant,
    /// The block belongs to another protection domain.
    #[error("the block belongs to another protection domain")]
    OtherDomain,
    /// It failed, and with it the connection.
    #[error("the operation failed: {0}")]
    Failed(WcStatus),
    /// It was refused.
    #[error(transparent)]
    Refused(PostError),
    /// The memory could not be registered.
    #[error(transparent)]
    Memory(#[from] RegisterError),
    /// It cannot be waited for.
    #[error("cannot wait: {0}")]
    Wait(io::Error),
}

impl From<PostError> for OperationError {
    fn from(error: PostError) -> Self {
        match error {
            PostError::QueueFull => Self::QueueFull,
            PostError::InlineTooLong => Self::InlineTooLong,
            PostError::TooManySges => Self::TooManyBlocks,
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

/// With the kind that fits, and the error inside. One that came from the system stays what it is.
impl From<OperationError> for io::Error {
    fn from(error: OperationError) -> Self {
        use OperationError as E;
        let kind = match &error {
            E::Wait(_) => {
                let E::Wait(inner) = error else { unreachable!("just seen") };
                return inner;
            }
            E::Disconnected | E::Ended(Ended::Closed) => io::ErrorKind::NotConnected,
            E::Ended(Ended::Lost) => io::ErrorKind::ConnectionReset,
            E::Ended(_) | E::Failed(_) => io::ErrorKind::ConnectionAborted,
            E::Timeout => io::ErrorKind::TimedOut,
            E::QueueFull => io::ErrorKind::WouldBlock,
            E::InlineTooLong | E::TooManyBlocks | E::OutsideGrant | E::OtherDomain => {
                io::ErrorKind::InvalidInput
            }
            E::NotPosted | E::Refused(_) | E::Memory(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(error: impl Into<OperationError>) -> io::ErrorKind {
        io::Error::from(error.into()).kind()
    }

    #[test]
    fn refusals_of_a_full_queue_can_be_tried_again() {
        assert_eq!(kind(PostError::QueueFull), io::ErrorKind::WouldBlock);
        assert_eq!(kind(PostError::WrongState), io::ErrorKind::NotConnected);
        assert_eq!(kind(PostError::TooManySges), io::ErrorKind::InvalidInput);
        assert_eq!(kind(PostError::InlineTooLong), io::ErrorKind::InvalidInput);
        assert_eq!(kind(PostError::Invalid), io::ErrorKind::Other);
    }

    /// Flushed requests tell nothing of the cause: the end of the connection does.
    #[test]
    fn a_flushed_request_is_no_failure_of_its_own() {
        assert_eq!(kind(WcStatus::Flushed), io::ErrorKind::NotConnected);
        for status in [WcStatus::LocalLength, WcStatus::RemoteAccess, WcStatus::RetryExceeded] {
            let error = OperationError::from(status);
            assert!(matches!(error, OperationError::Failed(why) if why == status), "{error:?}");
            assert_eq!(kind(error), io::ErrorKind::ConnectionAborted);
        }
    }

    #[test]
    fn the_end_of_a_connection_decides_on_the_kind() {
        assert_eq!(kind(OperationError::Ended(Ended::Closed)), io::ErrorKind::NotConnected);
        assert_eq!(kind(OperationError::Ended(Ended::Lost)), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn an_error_of_the_system_stays_itself() {
        let error = io::Error::from(OperationError::Wait(io::Error::from_raw_os_error(4)));
        assert_eq!(error.raw_os_error(), Some(4));
    }
}
