// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cases: what a tester does and what it then wants to see, as text.

mod parse;
mod value;

use std::time::Duration;

use thiserror::Error;

use crate::wire::segment::Kind;
use crate::wire::startup;

pub use parse::parse;
pub use value::{Bytes, Number, Value};

/// One test.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, unique among all.
    pub name: String,
    /// One line that says what it is about.
    pub title: String,
    /// The requirements that it looks at, by id.
    pub covers: Vec<String>,
    /// The ends of a connection that it may be run from.
    pub role: Roles,
    /// The features that the peer must offer.
    pub needs: Vec<Need>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The file that it was read from.
    pub file: String,
}

/// The end that the tester is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The tester connects: the peer is the server, MPA's responder.
    Connect,
    /// The tester listens: the peer is the client, MPA's initiator.
    Listen,
}

/// The ends that a case may be run from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Roles {
    /// One.
    One(Role),
    /// Both.
    Either,
}

impl Roles {
    /// True if `role` is one of them.
    pub fn has(self, role: Role) -> bool {
        self == Self::Either || self == Self::One(role)
    }
}

/// A feature that a case wants the peer to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// `$rw`: memory that may be written and read.
    Memory,
    /// `$ro`, `$wo`, `$other`: memory with fewer rights, and of another protection domain.
    Rights,
    /// Receives that are posted, `$receives` of `$room` bytes, and a Send for each that was filled.
    Echo,
    /// Carries out [orders](crate::order).
    Orders,
    /// Has two Reads of its own under way at a time.
    Reads,
    /// Takes Atomics and Immediate Data of RFC 7306.
    Extensions,
    /// No kernel: some kernels are known not to survive the case.
    UserSpace,
    /// CRCs on the stream.
    Crc,
    /// No CRCs on the stream.
    NoCrc,
    /// The peer asks for markers.
    Markers,
    /// The peer has the RDMA Consortium's versions too (RFC 5044 Appendix C).
    Rdmac,
    /// A run that may take long.
    Time,
}

/// One line of a case.
#[derive(Clone, Debug)]
pub struct Step {
    /// The line, from 1.
    pub line: usize,
    /// As it is written.
    pub text: String,
    /// The action to be done.
    pub action: Action,
}

/// The action of a step.
#[derive(Clone, Debug)]
pub enum Action {
    /// Goes through the whole start-up in good order.
    Start(Fields),
    /// Sends a start-up frame.
    SendFrame(startup::Kind, Fields),
    /// Sends a message, or one segment of it.
    SendMessage(Kind, Fields),
    /// Sends bytes.
    SendBytes(Bytes),
    /// Wants a start-up frame.
    ExpectFrame(startup::Kind, Fields),
    /// Wants a message.
    ExpectMessage(Kind, Fields),
    /// Wants a Terminate.
    ExpectTerminate(Vec<(u8, u8, u8)>, Fields),
    /// Wants the end of the stream.
    ExpectEnd(End, Fields),
    /// Wants nothing to come for a time.
    ExpectSilence(Duration),
    /// Wants the answer to a Read of nothing.
    Ping,
    /// Writes all that follows in pieces of so many bytes.
    Split(usize),
    /// Writes all that follows a byte at a time, and waits so long after the first, and longer and
    /// longer after the others.
    Drip(Duration),
    /// Makes so many more connections to the peer that say nothing.
    Crowd(u64),
    /// Keeps what is sent, and sends it at once at `flush`.
    Hold,
    /// Sends what was kept.
    Flush,
    /// Closes this end's half of the stream.
    Close,
    /// Resets the connection.
    Reset,
    /// Lets time pass.
    Wait(Duration),
}

/// The ways in which a stream may end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By FIN.
    Closed,
    /// Either way.
    Any,
}

/// `name=value` of a step, in order; each value may have alternatives.
#[derive(Clone, Debug, Default)]
pub struct Fields(pub Vec<(String, Vec<Value>)>);

impl Fields {
    /// The first alternative of a field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.all(name).and_then(|values| values.first())
    }

    /// All alternatives of a field.
    pub fn all(&self, name: &str) -> Option<&[Value]> {
        self.0.iter().find(|field| field.0 == name).map(|field| &field.1[..])
    }
}

/// Reads one value.
pub(crate) fn value_of(text: &str) -> Result<Value, String> {
    Value::parse(text)
}

/// A fault in the text of a case.
#[derive(Debug, Error)]
#[error("{file}:{line}: {what}")]
pub struct CaseError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The fault.
    pub what: String,
}
