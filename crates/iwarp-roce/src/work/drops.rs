// SPDX-License-Identifier: MIT OR Apache-2.0

//! Dropped packets, counted by the reason.

/// The numbers of packets that a queue pair has dropped, by the reason. No answer is sent
/// (ROCE-019).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Drops {
    /// The state, the type of queue pair, its number or the address did not fit.
    pub stray: u64,
    /// The partition key did not fit.
    pub pkey: u64,
    /// The Q_Key did not fit.
    pub qkey: u64,
    /// There was no receive (UC: ROCE-112, UD: ROCE-122).
    pub no_receive: u64,
    /// The receive was too short (UD: ROCE-121).
    pub too_short: u64,
    /// The packet was out of sequence, or an earlier one of its message was lost (ROCE-109).
    pub sequence: u64,
    /// The packet has a length that is not allowed.
    pub length: u64,
    /// The peer's buffer here, or the right to it, was refused.
    pub access: u64,
}

impl Drops {
    /// All of them.
    pub const fn total(&self) -> u64 {
        let Self { stray, pkey, qkey, no_receive, too_short, sequence, length, access } = *self;
        stray + pkey + qkey + no_receive + too_short + sequence + length + access
    }
}
