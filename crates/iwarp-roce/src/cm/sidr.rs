// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests for the queue pair of a datagram service: SIDR.

use alloc::boxed::Box;

use super::listener::BacklogSlot;
use super::mad::{MAD_LEN, Mad};
use super::message::{SidrRep, SidrStatus};
use super::service::ServiceId;
use crate::wire::Path;

/// State of a SIDR request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SidrState {
    /// Sent by this end, and to be sent again so many times.
    Asked(u8),
    /// The program has been told of it.
    Received,
    /// Answered; the answer is kept for a repeated request (ROCE-170).
    Answered,
}

/// A SIDR request, of this end's or of a peer's.
#[derive(Debug)]
pub(super) struct Sidr {
    pub(super) id: u32,
    /// The id in the messages, chosen by the requester.
    pub(super) request_id: u32,
    pub(super) state: SidrState,
    /// The way to the peer's connection manager.
    pub(super) way: Path,
    pub(super) tid: u64,
    pub(super) service: ServiceId,
    /// The request, or the answer to it.
    pub(super) stored: Option<Box<[u8; MAD_LEN]>>,
    pub(super) slot: Option<BacklogSlot>,
}

/// A SIDR_REP.
pub(super) fn rep(
    tid: u64,
    request_id: u32,
    service_id: ServiceId,
    status: SidrStatus,
    (qpn, qkey): (u32, u32),
    private_data: [u8; 136],
) -> Mad {
    let message = SidrRep {
        request_id,
        status,
        info_len: 0,
        qpn,
        service_id,
        qkey,
        info: [0; 72],
        private_data,
    };
    Mad { tid, modifier: 0, message: message.into() }
}
