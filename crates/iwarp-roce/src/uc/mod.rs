// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs of the type UC: messages of any length to one peer, which never answers (ROCE-107).
//!
//! A message arrives whole or not at all, but a Write may leave a part of its octets. The first
//! packet of a message begins it at any PSN (ROCE-110); a missing packet spoils the rest
//! (ROCE-109).

mod inbound;
mod outbound;

use iwarp_types::{Memory, ReceivePool, SendOp, SendRequest, Time, WcStatus};

use crate::config::{Attributes, Config};
use crate::core::DatagramCore;
use crate::wire::{Burst, Packet, Path};
use crate::work::{Drops, Work, work_core};
use inbound::Inbound;

/// A queue pair of the type UC. See the [module](self).
#[derive(Debug)]
pub struct Uc {
    work: Work,
    inbound: Inbound,
}

impl Uc {
    /// A queue pair in [`QpState::Reset`](iwarp_types::QpState::Reset).
    pub fn new(config: Config) -> Self {
        Self { work: Work::new(config), inbound: Inbound::default() }
    }

    /// The settings with which it was made.
    pub const fn config(&self) -> &Config {
        &self.work.config
    }

    /// The attributes with which it is set up.
    pub const fn attributes(&self) -> &Attributes {
        &self.work.attributes
    }

    /// The numbers of packets that it has dropped, since it was in Reset.
    pub const fn drops(&self) -> &Drops {
        &self.work.drops
    }

    /// Forgets the peer's message.
    fn reset(&mut self) {
        self.inbound = Inbound::default();
    }

    /// The status of a request that is not to be sent: UC has no operation that needs an answer
    /// (ROCE-113).
    const fn judge(&self, request: &SendRequest<'_>) -> Option<WcStatus> {
        match request.op {
            SendOp::Send { invalidate: None, .. }
            | SendOp::SendImmediate { .. }
            | SendOp::Write { .. }
            | SendOp::WriteImmediate { .. }
            | SendOp::Bind(_)
            | SendOp::LocalInvalidate(_) => None,
            _ => Some(WcStatus::LocalQpOperation),
        }
    }
}

work_core!(Uc, judge, reset);

impl DatagramCore for Uc {
    fn set_attributes(&mut self, attributes: &Attributes) {
        self.work.attributes = *attributes;
    }

    fn receive<M: Memory + ?Sized>(
        &mut self,
        packet: &Packet<'_>,
        path: &Path,
        _: Time,
        memory: &M,
        receives: &dyn ReceivePool,
    ) {
        if self.admits(packet, path) {
            self.take(packet, memory, receives);
        }
    }

    fn transmit<M: Memory + ?Sized>(&mut self, burst: &mut Burst, _: Time, memory: &M) {
        let attributes = self.work.attributes;
        self.work.transmit(burst, |turn, burst| outbound::send(turn, burst, &attributes, memory));
    }
}

#[cfg(test)]
mod tests;
