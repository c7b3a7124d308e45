// SPDX-License-Identifier: MIT OR Apache-2.0

//! Operations that are to be posted.

use iwarp_types::{Payload, SendOp, Stag, setters};

use crate::Block;
use crate::cargo::Cargo;

/// An operation that is to be posted.
pub(super) struct Work<'a> {
    pub(super) op: SendOp,
    pub(super) fence: bool,
    pub(super) cargo: Cargo<Block>,
    /// Its bytes where it has no blocks.
    pub(super) other: Payload<'a>,
}

impl<'a> Work<'a> {
    pub(super) fn on_blocks(op: SendOp, cargo: Cargo<Block>) -> Self {
        Self { op, fence: false, cargo, other: Payload::NONE }
    }

    pub(super) const fn on_bytes(op: SendOp, other: Payload<'a>) -> Self {
        Self { op, fence: false, cargo: Cargo::None, other }
    }

    /// True if it takes one of the peer's receives.
    pub(super) const fn is_message(&self) -> bool {
        !matches!(self.op, SendOp::Write { .. } | SendOp::Read { .. } | SendOp::Atomic { .. })
    }
}

/// The effects of a Send beside carrying its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SendFlags {
    /// Asks for the peer's attention (Solicited Event).
    pub solicited: bool,
    /// Gives up what the peer granted for this connection
    /// ([`Session::expose`](crate::Session::expose) at its side): from then on it cannot
    /// be used (Send with Invalidate).
    pub invalidate: Option<Stag>,
    /// Waits until all earlier Reads and atomic operations are done.
    pub fence: bool,
}

impl SendFlags {
    /// An ordinary Send.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        solicited: bool,
        into invalidate: Option<Stag>,
        fence: bool,
    }
}

#[cfg(test)]
mod tests {
    use iwarp_types::{AtomicOp, TaggedOffset};

    use super::*;

    #[test]
    fn messages_take_a_receive_of_the_peer() {
        let (stag, to) = (Stag(1), TaggedOffset(0));
        let (immediate, told) = ([0; 8], [0; 4]);
        let swap = AtomicOp::FetchAdd { add: 1, mask: 0 };
        for (op, expected) in [
            (SendOp::SEND, true),
            (SendOp::Immediate { solicited: false, data: immediate }, true),
            (SendOp::WriteImmediate { stag, to, solicited: false, data: told }, true),
            (SendOp::Write { stag, to }, false),
            (SendOp::Read { stag, to, invalidate: None }, false),
            (SendOp::Atomic { stag, to, op: swap }, false),
        ] {
            assert_eq!(Work::on_bytes(op, Payload::NONE).is_message(), expected, "{op:?}");
        }
    }
}
