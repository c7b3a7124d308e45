// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings of sessions.

use iwarp::cm::ConnectParams;
use iwarp_types::setters;

/// The settings of a session: the defaults, and by chained setters what differs from them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Operations other than receives that may be under way.
    pub max_sends: usize,
    /// Receives that may be under way.
    pub max_recvs: usize,
    /// Bytes of a message that [`Session::send_inline`](crate::Session::send_inline)
    /// takes.
    pub max_inline: usize,
    /// Blocks that one operation may take ([`Blocks`](crate::Blocks)), a receive as well.
    pub max_blocks: usize,
    /// The private data for the peer, and how many Reads are under way each way.
    pub params: ConnectParams,
}

impl Default for Config {
    fn default() -> Self {
        let params = ConnectParams::default();
        Self { max_sends: 128, max_recvs: 128, max_inline: 256, max_blocks: 16, params }
    }
}

impl Config {
    /// 128 operations and 128 receives under way, 256 bytes of inline data, and 16 blocks of one
    /// operation.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        max_sends: usize,
        max_recvs: usize,
        max_inline: usize,
        max_blocks: usize,
        params: ConnectParams,
    }
}
