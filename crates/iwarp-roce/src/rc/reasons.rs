// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reasons for which a reliable connected queue pair ends.

use iwarp_types::{Protocol, Reason};

use crate::wire::NakCode;

const fn roce(code: u32, name: &'static str) -> Reason {
    Reason::new(Protocol::Roce, code, name)
}

/// A NAK's syndrome begins with 011; its low five bits are the code.
const NAK: u32 = 0x60;

/// The peer's request is not allowed, or malformed.
pub const INVALID_REQUEST: Reason = roce(NAK | 1, "invalid request").for_an_invalid_request();
/// The peer lacks the right, or there is no such memory (ROCE-092).
pub const REMOTE_ACCESS: Reason = roce(NAK | 2, "remote access error").for_a_refused_access();
const REMOTE_OPERATION: Reason = roce(NAK | 3, "remote operational error");

/// A syndrome without a meaning (ROCE-066).
pub(super) const UNKNOWN_NAK: Reason = roce(0x100, "unknown kind of acknowledgement");
/// RNR NAKs beyond the limit (ROCE-059).
pub(super) const NO_RECEIVE: Reason =
    roce(0x101, "no receive was posted in time").for_want_of_a_receive();
/// An answer that does not fit its request.
pub const BAD_RESPONSE: Reason = roce(0x102, "answer does not fit its request");
/// The memory of an own work request was refused.
pub const LOCAL_MEMORY: Reason = roce(0x103, "memory of a work request was refused");

/// Both ends' path MTUs in the reason's name, as a reason has no other field for them.
macro_rules! differing {
    (@peer $own:literal, $peers:expr, [$($of:literal)+], $before:literal, $else:expr) => {
        match $peers {
            $($of => concat!(
                $before, ": the path MTU is ", $own, " here, and the peer sends packets of ", $of,
                "; give both ends the same path_mtu"
            ),)+
            _ => $else,
        }
    };
    ($own:expr, $peers:expr, [$($of:literal)+] $all:tt, $before:literal, $else:expr) => {
        match $own {
            $($of => differing!(@peer $of, $peers, $all, $before, $else),)+
            _ => $else,
        }
    };
}

/// [`INVALID_REQUEST`] for a packet of so many octets, which does not fit this end's path MTU.
pub(super) const fn request_of_mtu(own: usize, peers: usize) -> Reason {
    const ELSE: &str = "invalid request: the length of a packet does not fit the path MTU here";
    let name = differing!(own, peers, [256 512 1024 2048 4096] [256 512 1024 2048 4096],
        "invalid request", ELSE);
    roce(INVALID_REQUEST.code(), name).for_an_invalid_request()
}

/// [`BAD_RESPONSE`], likewise.
pub(super) const fn response_of_mtu(own: usize, peers: usize) -> Reason {
    const ELSE: &str =
        "answer does not fit its request: the length of a packet does not fit the path MTU here";
    let name = differing!(own, peers, [256 512 1024 2048 4096] [256 512 1024 2048 4096],
        "answer does not fit its request", ELSE);
    roce(BAD_RESPONSE.code(), name)
}

/// The reason that a NAK gives.
pub(super) const fn of_nak(code: NakCode) -> Reason {
    match code {
        NakCode::RemoteAccess => REMOTE_ACCESS,
        NakCode::RemoteOperation => REMOTE_OPERATION,
        NakCode::InvalidRequest => INVALID_REQUEST,
        NakCode::SequenceError | NakCode::InvalidRdRequest => UNKNOWN_NAK,
    }
}

/// An error of this side's.
pub(super) const fn local(what: &'static str) -> Reason {
    roce(0x104, what)
}
