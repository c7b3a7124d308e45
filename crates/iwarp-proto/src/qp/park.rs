//! Messages that came before their receive ([`Config::park`](super::Config::park)).
//!
//! The queue pair counts them, the receiver keeps their octets.

use alloc::vec::Vec;
use core::time::Duration;

use crate::ddp::wire::Untagged;
use crate::rdmap::wire::Opcode;
use crate::types::Time;

/// How many messages may wait for a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Park {
    /// Octets of their payloads. A message that is longer waits on the way.
    pub octets: usize,
    /// How many messages.
    pub messages: usize,
    /// How long the stream may stand still when there is no room for the next one; then it is
    /// terminated as it would be at once without a park. `None`: for ever.
    pub wait: Option<Duration>,
}

/// The message that a parked segment belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parking {
    pub(crate) header: Untagged,
    pub(crate) opcode: Opcode,
    /// Octets of the Write that this Immediate Data belongs to.
    pub(crate) write: Option<u32>,
}

/// A message that waits for a receive.
#[derive(Debug)]
pub(crate) struct Parked {
    /// Of its last segment.
    pub(crate) header: Untagged,
    pub(crate) opcode: Opcode,
    pub(crate) write: Option<u32>,
    pub(crate) octets: Vec<u8>,
    /// All of it is here.
    pub(crate) whole: bool,
}

/// Whether the stream stands still because the park is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stall {
    No,
    /// It does, since a moment that is not known yet.
    New,
    /// Until then.
    Until(Time),
    /// As long as it takes.
    Endless,
}
