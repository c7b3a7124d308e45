// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state of a send queue, for people who ask why it does not go on.

use crate::WcOp;

/// The oldest send work request that has not ended, and the reason why the next one has not begun.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Standing {
    /// Requests that have ended since the queue pair was made or reset.
    pub ended: u64,
    /// Bytes of the payloads of all requests that were posted since then.
    pub octets: u64,
    /// The oldest; `None` where there is none.
    pub oldest: Option<OldestSend>,
    /// The reason why the first request that has not begun is held back, where one is.
    pub held: Option<HeldBy>,
}

/// A send work request that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldestSend {
    /// Its number, as the program gave it.
    pub wr_id: u64,
    /// The kind of its completion.
    pub op: WcOp,
    /// Bytes of its payload.
    pub length: u32,
    /// The event that it waits for.
    pub awaits: Awaits,
}

/// The event that the oldest request waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaits {
    /// Its turn to be sent, or the transport below to take it.
    Transmission,
    /// The peer's word that it has arrived.
    Acknowledgement {
        /// So often it was sent again without one.
        tries: u8,
    },
    /// The answer to a Read or Atomic.
    Answer {
        /// So often it was sent again without one.
        tries: u8,
    },
    /// A receive at the peer, which has none (RNR NAK).
    Receive {
        /// So often it was told so.
        tries: u8,
    },
}

/// The reason why a request has not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldBy {
    /// Its fence: a Read or Atomic before it has not ended.
    Fence,
    /// As many Reads and Atomics are under way as may be.
    ReadDepth,
    /// The state of the queue pair, or of its connection.
    State,
    /// Others that are before it.
    Turn,
}
