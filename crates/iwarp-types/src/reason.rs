// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reason why a connection was broken off, in any wire's codes.

use core::fmt;

/// The protocol whose code a [`Reason`] is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Protocol {
    /// iWARP: layer (4 bits), error type (4 bits) and error code (8 bits) of a Terminate message,
    /// as its first 16 bits have them (RFC 5040 §4.8).
    Iwarp,
    /// RoCE: the syndrome of a NAK as its AETH has it, or a number from 0x100 on where one end
    /// gave up without one.
    Roce,
    /// Another: its documentation says what the code means.
    Other,
}

/// The reason why one end broke off a connection: the code that the wire carries, and what it
/// means.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason {
    protocol: Protocol,
    code: u32,
    name: &'static str,
    no_receive: bool,
    access: bool,
    request: bool,
}

impl Reason {
    /// A code of `protocol` and what its specification calls it.
    pub const fn new(protocol: Protocol, code: u32, name: &'static str) -> Self {
        Self { protocol, code, name, no_receive: false, access: false, request: false }
    }

    /// As it is, and it says that a message found no receive.
    #[must_use]
    pub const fn for_want_of_a_receive(self) -> Self {
        Self { no_receive: true, ..self }
    }

    /// As it is, and it says that the peer's access to memory was refused.
    #[must_use]
    pub const fn for_a_refused_access(self) -> Self {
        Self { access: true, ..self }
    }

    /// As it is, and it says that the peer asked for what it may not ask for, or in a wrong way.
    #[must_use]
    pub const fn for_an_invalid_request(self) -> Self {
        Self { request: true, ..self }
    }

    /// The protocol that defines the code.
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The code on the wire.
    pub const fn code(&self) -> u32 {
        self.code
    }

    /// The name in the specification.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The code as its specification writes it: `1/2/02` for iWARP.
    pub const fn notation(&self) -> impl fmt::Display + use<> {
        Notation(self.protocol, self.code)
    }

    /// True if a message found no receive posted.
    pub const fn is_no_receive(&self) -> bool {
        self.no_receive
    }

    /// True if an access to the other end's memory was refused.
    pub const fn is_refused_access(&self) -> bool {
        self.access
    }

    /// True if one end asked for what it may not ask for, or in a wrong way.
    pub const fn is_invalid_request(&self) -> bool {
        self.request
    }
}

/// The name in the specification, and the code.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.notation())
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

struct Notation(Protocol, u32);

impl fmt::Display for Notation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(protocol, code) = *self;
        match protocol {
            Protocol::Iwarp => {
                write!(f, "{}/{}/{:02x}", code >> 12, (code >> 8) & 0xf, code & 0xff)
            }
            Protocol::Roce => write!(f, "{code:#04x}"),
            Protocol::Other => write!(f, "{code:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::{Protocol, Reason};

    #[test]
    fn codes_are_written_as_their_specification_does() {
        let iwarp = Reason::new(Protocol::Iwarp, 0x120a, "no buffer");
        assert_eq!(iwarp.to_string(), "no buffer (1/2/0a)");
        assert_eq!(Reason::new(Protocol::Roce, 0x61, "bad").to_string(), "bad (0x61)");
        assert_eq!(Reason::new(Protocol::Other, 0x120a, "odd").to_string(), "odd (0x120a)");
    }

    #[test]
    fn want_of_a_receive_is_part_of_the_reason() {
        let reason = Reason::new(Protocol::Other, 1, "none");
        assert!(!reason.is_no_receive());
        assert!(reason.for_want_of_a_receive().is_no_receive());
    }
}
