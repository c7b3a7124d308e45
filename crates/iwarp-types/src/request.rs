// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use thiserror::Error;

use crate::list::{octets_of, refill};
use crate::{AtomicOp, Bind, Destination, Sge, Stag, TaggedOffset};

/// The operation of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SendOp {
    /// RDMA Write of the local bytes to the peer's buffer (RFC 5040 §5.1).
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
    /// Send with four bytes of immediate data, which only a peer of our own kind takes.
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
    /// RDMA Read of the peer's buffer into the local bytes (RFC 5040 §5.2).
    Read {
        /// The peer's buffer.
        stag: Stag,
        /// The tagged offset in it.
        to: TaggedOffset,
        /// Invalidate this local STag when the read is done.
        invalidate: Option<Stag>,
    },
    /// An atomic operation of RFC 7306 §5.1; the old value goes to the local 8 bytes, host order.
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

impl SendOp {
    /// A Send that raises no solicited event and invalidates nothing.
    pub const SEND: Self = Self::Send { solicited: false, invalidate: None };
}

/// The local bytes of a send work request. A scatter/gather list becomes one by `into()`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Payload<'a> {
    /// Registered memory, read when the message is built and not to be changed before its
    /// completion.
    Sges(&'a [Sge]),
    /// Bytes that are taken at once.
    Inline(&'a [u8]),
}

impl Payload<'_> {
    /// No local bytes.
    pub const NONE: Self = Self::Sges(&[]);

    /// Bytes, together.
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Self::Sges(sges) => octets_of(sges),
            Self::Inline(octets) => octets.len() as u64,
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> From<&'a [Sge]> for Payload<'a> {
    #[inline]
    fn from(sges: &'a [Sge]) -> Self {
        Self::Sges(sges)
    }
}

impl<'a, const N: usize> From<&'a [Sge; N]> for Payload<'a> {
    #[inline]
    fn from(sges: &'a [Sge; N]) -> Self {
        Self::Sges(sges)
    }
}

impl<'a> From<&'a Vec<Sge>> for Payload<'a> {
    #[inline]
    fn from(sges: &'a Vec<Sge>) -> Self {
        Self::Sges(sges)
    }
}

/// A send work request.
///
/// A constructor names the operation, and further properties are chained. A request is unsignaled
/// and unfenced unless it says otherwise.
///
/// ```
/// use iwarp_types::{Payload, SendRequest, Sge, Stag, TaggedOffset};
///
/// let local = [Sge { addr: 0, length: 4096, lkey: Stag(0x100) }];
/// let (stag, to) = (Stag(0x200), TaggedOffset(0));
///
/// let write = SendRequest::write(7, &local, stag, to).signaled();
/// assert!(write.signaled && !write.fence);
///
/// let done = SendRequest::send(8, Payload::Inline(b"done")).solicited().fenced();
/// assert!(done.fence && !done.signaled);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SendRequest<'a> {
    /// The program's number for the request, which comes back in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// The local bytes.
    pub payload: Payload<'a>,
    /// Set if success raises a completion. Failure always does.
    pub signaled: bool,
    /// Wait until all earlier Reads and Atomics have completed.
    pub fence: bool,
    /// Its destination, where the queue pair is of the type UD.
    pub destination: Option<&'a Destination>,
    /// It is not the program's: it counts nowhere, and observers are not told of it.
    #[doc(hidden)]
    pub internal: bool,
}

impl<'a> SendRequest<'a> {
    /// A request for `op` on the local bytes `payload`.
    #[inline]
    pub fn new(wr_id: u64, op: SendOp, payload: impl Into<Payload<'a>>) -> Self {
        Self {
            wr_id,
            op,
            payload: payload.into(),
            signaled: false,
            fence: false,
            destination: None,
            internal: false,
        }
    }

    /// A Send of `payload` (RFC 5040 §5.3).
    #[inline]
    pub fn send(wr_id: u64, payload: impl Into<Payload<'a>>) -> Self {
        Self::new(wr_id, SendOp::SEND, payload)
    }

    /// An RDMA Write of `payload` to the peer's buffer `stag`, from tagged offset `to` on
    /// (RFC 5040 §5.1).
    #[inline]
    pub fn write(
        wr_id: u64,
        payload: impl Into<Payload<'a>>,
        stag: Stag,
        to: TaggedOffset,
    ) -> Self {
        Self::new(wr_id, SendOp::Write { stag, to }, payload)
    }

    /// An RDMA Read of the peer's buffer `stag`, from tagged offset `to` on, into `sges`
    /// (RFC 5040 §5.2).
    #[inline]
    pub fn read(wr_id: u64, sges: &'a [Sge], stag: Stag, to: TaggedOffset) -> Self {
        Self::new(wr_id, SendOp::Read { stag, to, invalidate: None }, sges)
    }

    /// The atomic operation `op` on the 8 bytes at `to` of the peer's buffer `stag`, whose old
    /// value goes to the 8 bytes of `sges` (RFC 7306 §5.1).
    #[inline]
    pub fn atomic(wr_id: u64, sges: &'a [Sge], stag: Stag, to: TaggedOffset, op: AtomicOp) -> Self {
        Self::new(wr_id, SendOp::Atomic { stag, to, op }, sges)
    }

    /// A request to bind a memory window.
    #[inline]
    pub const fn bind(wr_id: u64, bind: Bind) -> Self {
        Self::local(wr_id, SendOp::Bind(bind))
    }

    /// A request to invalidate a local STag.
    #[inline]
    pub const fn local_invalidate(wr_id: u64, stag: Stag) -> Self {
        Self::local(wr_id, SendOp::LocalInvalidate(stag))
    }

    const fn local(wr_id: u64, op: SendOp) -> Self {
        Self {
            wr_id,
            op,
            payload: Payload::NONE,
            signaled: false,
            fence: false,
            destination: None,
            internal: false,
        }
    }

    /// The request is for `destination`.
    #[inline]
    #[must_use]
    pub const fn to(mut self, destination: &'a Destination) -> Self {
        self.destination = Some(destination);
        self
    }

    /// Success raises a completion, too.
    #[inline]
    #[must_use]
    pub const fn signaled(mut self) -> Self {
        self.signaled = true;
        self
    }

    /// The request is a layer's between the program and the queue pair: see [`Self::internal`].
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub const fn internal(mut self) -> Self {
        self.internal = true;
        self
    }

    /// The request waits until all earlier Reads and Atomics have completed.
    #[inline]
    #[must_use]
    pub const fn fenced(mut self) -> Self {
        self.fence = true;
        self
    }

    /// The message raises a solicited event at the peer, if it is one that takes a receive there:
    /// a Send of any kind, Immediate Data, or a Write with immediate data. Other operations stay
    /// as they are.
    #[inline]
    #[must_use]
    pub const fn solicited(mut self) -> Self {
        match &mut self.op {
            SendOp::Send { solicited, .. }
            | SendOp::Immediate { solicited, .. }
            | SendOp::SendImmediate { solicited, .. }
            | SendOp::WriteImmediate { solicited, .. } => *solicited = true,
            SendOp::Write { .. }
            | SendOp::Read { .. }
            | SendOp::Atomic { .. }
            | SendOp::Bind(_)
            | SendOp::LocalInvalidate(_) => {}
        }
        self
    }
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RecvRequest<'a> {
    /// The program's number for the request, which comes back in the completion.
    pub wr_id: u64,
    /// The memory that the message goes to.
    pub sges: &'a [Sge],
}

impl<'a> RecvRequest<'a> {
    /// A receive into the memory `sges`.
    #[inline]
    pub const fn new(wr_id: u64, sges: &'a [Sge]) -> Self {
        Self { wr_id, sges }
    }
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
    /// Bytes of the buffer.
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

/// The limits for which a queue pair was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Elements of a send work request.
    pub max_send_sge: usize,
    /// Inline bytes of a send work request.
    pub max_inline: usize,
}

/// Longest message in bytes, as devices have it: `ibv_port_attr.max_msg_sz`.
pub const MAX_MESSAGE: u64 = 1 << 31;

impl SendRequest<'_> {
    /// Checks the local bytes against the operation and the queue pair's limits, and returns how
    /// many there are. An Atomic of another length than 8 is found when it is started
    /// ([`SendOp::may_have`]): its completion says so, as with cards.
    ///
    /// # Errors
    ///
    /// [`PostError::Invalid`], [`PostError::InlineTooLong`], [`PostError::TooManySges`] or
    /// [`PostError::MessageTooLong`]
    #[inline]
    pub fn check(&self, limits: &Limits) -> Result<u32, PostError> {
        let length = match self.payload {
            Payload::Inline(octets) => {
                if !self.op.has_payload() && !octets.is_empty() {
                    return Err(PostError::Invalid);
                }
                if octets.len() > limits.max_inline {
                    return Err(PostError::InlineTooLong);
                }
                octets.len() as u64
            }
            Payload::Sges(sges) => {
                if sges.len() > limits.max_send_sge {
                    return Err(PostError::TooManySges);
                }
                octets_of(sges)
            }
        };
        if length > MAX_MESSAGE {
            return Err(PostError::MessageTooLong);
        }
        if matches!(self.op, SendOp::Immediate { .. }) && length > 0 {
            return Err(PostError::Invalid);
        }
        Ok(length as u32)
    }
}

/// The reason why a work request was not taken. It is not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue holds as many requests as it was made for.
    #[error("work queue is full")]
    QueueFull,
    /// More scatter/gather elements than the queue pair was made for.
    #[error("too many scatter/gather elements")]
    TooManySges,
    /// More inline bytes than the queue pair was made for.
    #[error("inline data too long")]
    InlineTooLong,
    /// The message has more than 2^31 bytes.
    #[error("message too long")]
    MessageTooLong,
    /// The queue pair's state does not allow posting.
    #[error("queue pair is in the wrong state for posting")]
    WrongState,
    /// The request contradicts itself: inline bytes for an operation that sends none, or local
    /// bytes beside Immediate Data; or it is to leave from an address that is not its device's.
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
