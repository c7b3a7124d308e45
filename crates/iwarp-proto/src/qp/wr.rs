//! Work requests and work completions.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use thiserror::Error;

use crate::memory::{Bind, QpId, Sge};
use crate::qp::hello::Capabilities;
use crate::qp::list::{octets_of, refill};
use crate::types::{Stag, TaggedOffset};

/// What a send work request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// RDMA Write of the local octets to the peer's buffer (RFC 5040 §5.1).
    Write {
        /// The peer's buffer.
        stag: Stag,
        /// Where in it.
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
    /// peer of our own kind reports both together ([`WcOp::RecvWriteImmediate`]), another one
    /// only the Immediate Data.
    WriteImmediate {
        /// The peer's buffer.
        stag: Stag,
        /// Where in it.
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
        /// Where in it.
        to: TaggedOffset,
        /// Invalidate this local STag when the read is done.
        invalidate: Option<Stag>,
    },
    /// FetchAdd of RFC 7306 §5.1.1; the old value goes to the local 8 octets, host order.
    FetchAdd {
        /// The peer's buffer.
        stag: Stag,
        /// Where in it; the address there must be a multiple of 8.
        to: TaggedOffset,
        /// What to add.
        add: u64,
        /// Field boundaries; 0 for one field of 64 bits.
        mask: u64,
    },
    /// CompareSwap of RFC 7306 §5.1.2; the old value goes to the local 8 octets, host order.
    CompareSwap {
        /// The peer's buffer.
        stag: Stag,
        /// Where in it; the address there must be a multiple of 8.
        to: TaggedOffset,
        /// What to compare with.
        compare: u64,
        /// Which bits to compare.
        compare_mask: u64,
        /// The new bits.
        swap: u64,
        /// Which bits to replace.
        swap_mask: u64,
    },
    /// Binds a memory window.
    Bind(Bind),
    /// Invalidates a local STag.
    LocalInvalidate(Stag),
}

impl SendOp {
    /// What a completion of this operation says it was.
    pub const fn completes_as(&self) -> WcOp {
        match self {
            Self::Write { .. } | Self::WriteImmediate { .. } => WcOp::Write,
            Self::Send { .. } | Self::SendImmediate { .. } => WcOp::Send,
            Self::Immediate { .. } => WcOp::Immediate,
            Self::Read { .. } => WcOp::Read,
            Self::FetchAdd { .. } => WcOp::FetchAdd,
            Self::CompareSwap { .. } => WcOp::CompareSwap,
            Self::Bind(_) => WcOp::Bind,
            Self::LocalInvalidate(_) => WcOp::LocalInvalidate,
        }
    }

    /// Whether the peer must know more than RFC 5040.
    pub const fn is_extension(&self) -> bool {
        self.needs().is_some()
    }

    /// What the peer must know beyond RFC 5040.
    pub const fn needs(&self) -> Option<Capabilities> {
        match self {
            Self::FetchAdd { .. } | Self::CompareSwap { .. } => Some(Capabilities::ATOMICS),
            Self::Immediate { .. } | Self::WriteImmediate { .. } => Some(Capabilities::IMMEDIATE),
            Self::SendImmediate { .. } => Some(Capabilities::SEND_IMMEDIATE),
            Self::Write { .. }
            | Self::Send { .. }
            | Self::Read { .. }
            | Self::Bind(_)
            | Self::LocalInvalidate(_) => None,
        }
    }

    /// Whether the operation reads local memory (rather than writing or not touching it).
    pub(crate) const fn has_payload(&self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::WriteImmediate { .. }
                | Self::Send { .. }
                | Self::SendImmediate { .. }
        )
    }

    /// Whether the operation is done when its octets were sent.
    pub(crate) const fn is_one_way(&self) -> bool {
        self.has_payload() || matches!(self, Self::Immediate { .. })
    }

    pub(crate) const fn is_atomic(&self) -> bool {
        matches!(self, Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }
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
    /// What to do.
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
    /// Where the message goes.
    pub sges: &'a [Sge],
}

/// A posted receive, as it moves from a shared receive queue to a queue pair.
#[derive(Clone, Debug, Default)]
pub struct Receive {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where the message goes.
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

/// Where receives come from that are not posted to the queue pair itself.
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

/// What a work completion is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WcOp {
    /// A Send.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// A FetchAdd.
    FetchAdd,
    /// A CompareSwap.
    CompareSwap,
    /// Immediate Data.
    Immediate,
    /// A memory window bind.
    Bind,
    /// A local invalidate.
    LocalInvalidate,
    /// A received Send.
    Recv,
    /// Received Immediate Data.
    RecvImmediate,
    /// A Write of the peer's that carried immediate data. The receive's buffer is untouched.
    RecvWriteImmediate,
}

/// How a work request ended. Numbers and names are those of `ibv_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum WcStatus {
    /// It did what it should.
    #[default]
    Success = 0,
    /// The message did not fit the receive.
    LocalLength = 1,
    /// The queue pair cannot do this.
    LocalQpOperation = 2,
    /// A local element was refused.
    LocalProtection = 4,
    /// Flushed because the queue pair is in the error state.
    Flushed = 5,
    /// A memory window could not be bound.
    WindowBind = 6,
    /// The peer's response made no sense.
    BadResponse = 7,
    /// A local access fault while receiving.
    LocalAccess = 8,
    /// The peer says the request is invalid.
    RemoteInvalidRequest = 9,
    /// The peer refused access to its memory.
    RemoteAccess = 10,
    /// The peer failed to carry the request out.
    RemoteOperation = 11,
    /// The peer does not answer.
    RetryExceeded = 12,
    /// The peer had no receive for too long.
    RnrRetryExceeded = 13,
    /// Something else.
    General = 21,
}

/// A work completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkCompletion {
    /// Of the work request.
    pub wr_id: u64,
    /// The queue pair.
    pub qp: QpId,
    /// How it ended.
    pub status: WcStatus,
    /// What it was.
    pub op: WcOp,
    /// Octets received or read; of a received Write with immediate data those it wrote.
    pub byte_len: u32,
    /// Received immediate data: 8 octets of [`WcOp::RecvImmediate`]; of the other operations the
    /// first four count.
    pub immediate: Option<[u8; 8]>,
    /// The local STag that a Send with Invalidate made invalid.
    pub invalidated: Option<Stag>,
    /// Received with Solicited Event.
    pub solicited: bool,
}

impl WorkCompletion {
    /// The four octets that came with a Send or Write; of Immediate Data that came alone, its
    /// first four.
    pub fn immediate_word(&self) -> Option<[u8; 4]> {
        self.immediate.and_then(|data| data.first_chunk().copied())
    }
}
