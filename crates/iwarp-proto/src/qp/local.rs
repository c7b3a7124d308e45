// SPDX-License-Identifier: MIT OR Apache-2.0

//! The way past TCP that the ends of a connection within one host agree on.
//!
//! The queue pair only passes the words on, in frames of this library's own
//! ([`hello`](crate::rdmap::hello)). Its owner decides whether there is such a way, makes it, and
//! moves the stream there.

use iwarp_types::SendRequest;

use super::Qp;
use crate::rdmap::hello::{Capabilities, Offer, OfferHalf, PeerKind};

/// The answer to the question whether the peer would move the stream past TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerIsLocal {
    /// It has not said yet what it can do.
    Unknown,
    /// It would.
    Willing,
    /// It runs this library, and would not.
    Unwilling,
    /// It does not say that it runs this library.
    Foreign,
}

/// The first request that waits to be sent, which its owner may carry out in place of that.
#[derive(Clone, Copy, Debug)]
pub struct WaitingRequest<'a> {
    /// Of the queue pair's requests.
    pub number: u64,
    /// The number of the oldest one that has not completed.
    pub oldest: u64,
    /// As it was posted.
    pub request: SendRequest<'a>,
    /// The end of what was sent, as a position of the stream, that may need something of the peer's
    /// program, such as a receive. Behind that the request may wait until all before it have
    /// completed. `None` where one of them needs such a thing.
    pub others_end: Option<u64>,
}

/// The parts of the peer's offer that have come.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Heard {
    name: Option<u64>,
    secret: Option<u64>,
}

impl Heard {
    pub(crate) const fn hear(&mut self, half: OfferHalf) {
        match half {
            OfferHalf::Name(name) => self.name = Some(name),
            OfferHalf::Secret(secret) => self.secret = Some(secret),
        }
    }
}

/// The parts of this end's offer that are not sent yet.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Unsaid([Option<OfferHalf>; 2]);

impl Unsaid {
    #[inline]
    pub(crate) const fn is_due(&self) -> bool {
        self.0[1].is_some()
    }

    pub(crate) fn take(&mut self) -> Option<OfferHalf> {
        self.0.iter_mut().find_map(Option::take)
    }
}

impl Qp {
    /// The peer's word on whether it would move the stream past TCP.
    pub const fn peer_is_local(&self) -> PeerIsLocal {
        match self.peer {
            PeerKind::Unknown => PeerIsLocal::Unknown,
            PeerKind::Known(has) if has.contains(Capabilities::LOCAL) => PeerIsLocal::Willing,
            // No other library has these.
            PeerKind::Known(has) if has.contains(Capabilities::OURS) => PeerIsLocal::Unwilling,
            PeerKind::Known(_) | PeerKind::Foreign => PeerIsLocal::Foreign,
        }
    }

    /// Sends `offer` with the next octets.
    pub fn offer(&mut self, offer: Offer) {
        self.outbound.offer = Unsaid(offer.halves().map(Some));
    }

    /// Says with the next octets that the stream stays with TCP, for the reason of this number.
    pub const fn decline(&mut self, reason: u64) {
        self.outbound.decline = Some(reason);
    }

    /// The reason for which the peer keeps the stream with TCP, if it has said one.
    pub const fn heard_decline(&self) -> Option<u64> {
        self.inbound.decline
    }

    /// The peer's offer, once all of it has come.
    pub const fn heard_offer(&self) -> Option<Offer> {
        match self.inbound.offer {
            Heard { name: Some(name), secret: Some(secret) } => Some(Offer { name, secret }),
            _ => None,
        }
    }
}
