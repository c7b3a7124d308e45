// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work completions.

use core::fmt;
use core::num::NonZeroU32;

use crate::{QpId, Stag};

/// The operation that a work completion is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
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

/// The ways in which a work request ended. Numbers and names are those of `ibv_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
#[non_exhaustive]
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

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::LocalLength => {
                "local length error (the message or answer is longer than the memory given for it)"
            }
            Self::LocalQpOperation => "local queue pair operation error",
            Self::LocalProtection => {
                "local protection error (check address, length, key and rights of the local memory)"
            }
            Self::Flushed => "flushed, as the connection has ended",
            Self::WindowBind => "memory window bind error",
            Self::BadResponse => "the peer's answer made no sense",
            Self::LocalAccess => "local access error (check the rights of the receive's memory)",
            Self::RemoteInvalidRequest => {
                "remote invalid request error (check that the message fits the peer's receive, and \
                 that the peer allows the operation)"
            }
            Self::RemoteAccess => {
                "remote access error (check key, address, length and rights of what the peer granted)"
            }
            Self::RemoteOperation => "remote operation error (the peer could not carry it out)",
            Self::RetryExceeded => "retries exceeded (the peer does not answer)",
            Self::RnrRetryExceeded => {
                "receiver-not-ready retries exceeded (the peer posts no receives)"
            }
            Self::General => "general error",
        })
    }
}

/// A work completion. More may be known of one some day (of a datagram who sent it): a core makes
/// it by [`Self::new`] and adds what it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WorkCompletion {
    /// Of the work request.
    pub wr_id: u64,
    /// The queue pair.
    pub qp: QpId,
    /// Its outcome.
    pub status: WcStatus,
    /// The operation that it was.
    pub op: WcOp,
    /// Bytes received or read; of a received Write with immediate data those it wrote.
    pub byte_len: u32,
    /// Received immediate data: 8 bytes of [`WcOp::RecvImmediate`]; of the other operations the
    /// first four count.
    pub immediate: Option<[u8; 8]>,
    /// The local STag that a Send with Invalidate made invalid.
    pub invalidated: Option<Stag>,
    /// Received with Solicited Event.
    pub solicited: bool,
    /// The queue pair that sent a received datagram, whose first 40 bytes are a GRH then.
    pub source_qp: Option<SourceQp>,
}

/// The queue pair that sent a datagram, and over which IP that came; in one number, as completions
/// are many.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceQp(NonZeroU32);

impl SourceQp {
    /// Numbers of queue pairs have 24 bits.
    const OVER_IPV4: u32 = 1 << 31;

    /// By its number, which is not 0.
    pub const fn new(number: u32, over_ipv4: bool) -> Option<Self> {
        let number = number & 0x00ff_ffff;
        let Some(_) = NonZeroU32::new(number) else { return None };
        match NonZeroU32::new(if over_ipv4 { number | Self::OVER_IPV4 } else { number }) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0.get() & !Self::OVER_IPV4
    }

    /// True if the datagram came over IPv4, not IPv6.
    pub const fn is_over_ipv4(self) -> bool {
        self.0.get() & Self::OVER_IPV4 != 0
    }
}

impl From<SourceQp> for u32 {
    fn from(source: SourceQp) -> Self {
        source.get()
    }
}

impl fmt::Debug for SourceQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = if self.is_over_ipv4() { "IPv4" } else { "IPv6" };
        write!(f, "{:#08x} over {ip}", self.get())
    }
}

impl WorkCompletion {
    /// The completion of a request that moved nothing: a failure, or a one-way request.
    #[inline]
    pub const fn new(wr_id: u64, qp: QpId, op: WcOp, status: WcStatus) -> Self {
        Self {
            wr_id,
            qp,
            status,
            op,
            byte_len: 0,
            immediate: None,
            invalidated: None,
            solicited: false,
            source_qp: None,
        }
    }

    /// Bytes of payload that the operation moved, if it ended well: none of a receive that only
    /// carried immediate data, or those of a Write.
    #[doc(hidden)]
    pub const fn payload_len(&self) -> u32 {
        match self.op {
            WcOp::RecvImmediate | WcOp::RecvWriteImmediate => 0,
            _ => self.byte_len,
        }
    }

    /// The four bytes that came with a Send or Write; of Immediate Data that came alone, its
    /// first four.
    pub fn immediate_word(&self) -> Option<[u8; 4]> {
        self.immediate.and_then(|data| data.first_chunk().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::{SourceQp, WorkCompletion};

    #[test]
    fn a_source_has_24_bits_and_a_family() {
        assert_eq!(SourceQp::new(0, true), None);
        for over_ipv4 in [true, false] {
            let source = SourceQp::new(0xff_fffe, over_ipv4).unwrap();
            assert_eq!((source.get(), source.is_over_ipv4()), (0xff_fffe, over_ipv4));
        }
    }

    /// Queues of them are long.
    #[test]
    fn completions_are_small() {
        assert_eq!(size_of::<WorkCompletion>(), 40);
    }
}
