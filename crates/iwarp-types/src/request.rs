//! Work requests.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use thiserror::Error;

use crate::list::{octets_of, refill};
use crate::{AtomicOp, Bind, Sge, Stag, TaggedOffset};

/// The operation of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// RDMA Write of the local octets to the peer's buffer (RFC 5040 §5.1).
    Write {
        /// The peer's buffer.
        stag: Stag,
        /// The tagged offset in it.
        to: TaggedOffset,
    },
    /// Send, in its four kinds (RFC 5040 §5.3).
    Send {
        /// Raise a solicited event at the peer.
        solicited: bool,
        /// STag of the peer's to invalidate.
        invalidate: Option<Stag>,
    },
    /// Immediate Data (RFC 7306 §6).
    Immediate {
        /// Raise a solicited event at the peer.
        solicited: bool,
        /// The data.
        data: [u8; 8],
    },
    /// Send with four octets of immediate data, which only a peer of our own kind takes.
    SendImmediate {
        /// Raise a solicited event at the peer.
        solicited: bool,
        /// The data.
        data: [u8; 4],
    },
    /// RDMA Write, and Immediate Data behind it (RFC 7306 §6): one request, one completion. A
    /// peer of our own kind reports both together
    /// ([`WcOp::RecvWriteImmediate`](crate::WcOp::RecvWriteImmediate)), another one only the
    /// Immediate Data.
    WriteImmediate {
        /// The peer's buffer.
        stag: Stag,
        /// The tagged offset in it.
        to: TaggedOffset,
        /// Raise a solicited event at the peer.
        solicited: bool,
        /// The data.
        data: [u8; 4],
    },
    /// RDMA Read of the peer's buffer into the local octets (RFC 5040 §5.2).
    Read {
        /// The peer's buffer.
        stag: Stag,
        /// The tagged offset in it.
        to: TaggedOffset,
        /// Invalidate this local STag when the read is done.
        invalidate: Option<Stag>,
    },
    /// An atomic operation of RFC 7306 §5.1; the old value goes to the local 8 octets, host order.
    Atomic {
        /// The peer's buffer.
        stag: Stag,
        /// The tagged offset in it; the address there must be a multiple of 8.
        to: TaggedOffset,
        /// The operation.
        op: AtomicOp,
    },
    /// Binds a memory window.
    Bind(Bind),
    /// Invalidates a local STag.
    LocalInvalidate(Stag),
}

/// The local octets of a send work request.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Registered memory, read when the message is built and not to be changed before its
    /// completion.
    Sges(&'a [Sge]),
    /// Octets that are taken at once.
    Inline(&'a [u8]),
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// With which local octets.
    pub payload: Payload<'a>,
    /// Whether success raises a completion. Failure always does.
    pub signaled: bool,
    /// Wait until all earlier Reads and Atomics have completed.
    pub fence: bool,
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The memory that the message goes to.
    pub sges: &'a [Sge],
}

/// A posted receive, as it moves from a shared receive queue to a queue pair.
#[derive(Clone, Debug, Default)]
pub struct Receive {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The memory that the message goes to.
    pub sges: Vec<Sge>,
}

impl Receive {
    /// Octets of the buffer.
    #[inline]
    pub fn capacity(&self) -> u64 {
        octets_of(&self.sges)
    }

    /// Takes over a request, keeping this value's storage.
    ///
    /// # Errors
    ///
    /// [`PostError::OutOfMemory`]
    #[inline]
    pub fn set(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.wr_id = request.wr_id;
        refill(&mut self.sges, request.sges)
    }
}

/// A source of receives that are not posted to the queue pair itself.
pub trait ReceivePool {
    /// Moves the next receive into `into`, swapping storage; `false` when there is none.
    fn take(&self, into: &mut Receive) -> bool;
}

/// No shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct NoPool;

impl ReceivePool for NoPool {
    fn take(&self, _: &mut Receive) -> bool {
        false
    }
}

/// Why a work request was not taken. Nothing was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue holds as many requests as it was made for.
    #[error("work queue is full")]
    QueueFull,
    /// More scatter/gather elements than the queue pair was made for.
    #[error("too many scatter/gather elements")]
    TooManySges,
    /// More inline octets than the queue pair was made for.
    #[error("inline data too long")]
    InlineTooLong,
    /// The message has more than 2^31 octets.
    #[error("message too long")]
    MessageTooLong,
    /// The queue pair's state does not allow posting.
    #[error("queue pair is in the wrong state for posting")]
    WrongState,
    /// The request contradicts itself: inline octets for an operation that sends none, local
    /// octets beside Immediate Data, or an atomic whose local buffer is not 8 octets.
    #[error("invalid work request")]
    Invalid,
    /// The queue pair takes its receives from a shared receive queue.
    #[error("queue pair uses a shared receive queue")]
    SharedReceiveQueue,
    /// There is no memory for the request, or for its completion.
    #[error("out of memory")]
    OutOfMemory,
}

impl From<TryReserveError> for PostError {
    fn from(_: TryReserveError) -> Self {
        Self::OutOfMemory
    }
}
