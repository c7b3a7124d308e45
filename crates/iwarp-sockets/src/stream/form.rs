// SPDX-License-Identifier: MIT OR Apache-2.0

//! The form of messages, which nothing on the wire says.

use crate::wire::Extensions;

/// The wire of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    /// iWARP.
    Iwarp,
    /// InfiniBand or RoCE.
    InfiniBand,
}

/// The form in which an end sends its messages. It takes both (RS-MSG-05).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Immediate data of an RDMA Write, which is empty if there is nothing to write (RS-MSG-02).
    Immediate,
    /// A Send behind the Write (RS-MSG-03).
    Send,
}

impl Form {
    /// The form by wire and peer (RS-MSG-04). A stranger gets what the original uses over this
    /// wire. Ends that take both spare themselves the second request, if this end's queue pair can
    /// send immediates.
    pub(super) fn choose(wire: Wire, peer: Extensions, immediates: bool) -> Self {
        match wire {
            Wire::InfiniBand => Self::Immediate,
            Wire::Iwarp if immediates && peer.contains(Extensions::BOTH_FORMS) => Self::Immediate,
            Wire::Iwarp => Self::Send,
        }
    }

    /// The form after the peer has used `seen`: the original takes only the form that it sends.
    pub(super) fn learn(self, seen: Self, peer: Extensions, immediates: bool) -> Self {
        if peer.contains(Extensions::BOTH_FORMS) || seen == Self::Immediate && !immediates {
            self
        } else {
            seen
        }
    }

    /// Requests of a message that goes with a Write, or by itself.
    pub(super) const fn requests(self, with_write: bool) -> usize {
        match self {
            Self::Send if with_write => 2,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Extensions, Form, Wire};

    /// Covers: RS-MSG-04
    #[test]
    fn the_form_follows_wire_and_peer() {
        let stranger = Extensions::empty();
        for immediates in [false, true] {
            let form = |wire, peer| Form::choose(wire, peer, immediates);
            assert_eq!(form(Wire::Iwarp, stranger), Form::Send);
            assert_eq!(form(Wire::InfiniBand, stranger), Form::Immediate);
            assert_eq!(form(Wire::InfiniBand, Extensions::BOTH_FORMS), Form::Immediate);
        }
        assert_eq!(Form::choose(Wire::Iwarp, Extensions::BOTH_FORMS, true), Form::Immediate);
        assert_eq!(Form::choose(Wire::Iwarp, Extensions::BOTH_FORMS, false), Form::Send);
    }

    /// The original over this library's device of the other kind.
    ///
    /// Covers: RS-MSG-04
    #[test]
    fn a_stranger_gets_the_form_that_it_uses() {
        let stranger = Extensions::empty();
        assert_eq!(Form::Send.learn(Form::Immediate, stranger, true), Form::Immediate);
        assert_eq!(Form::Immediate.learn(Form::Send, stranger, true), Form::Send);
        assert_eq!(Form::Send.learn(Form::Immediate, stranger, false), Form::Send);
        let own_kind = Extensions::BOTH_FORMS;
        assert_eq!(Form::Immediate.learn(Form::Send, own_kind, true), Form::Immediate);
    }
}
