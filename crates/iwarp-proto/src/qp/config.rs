// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings with which a queue pair is made.

use core::time::Duration;

use iwarp_types::{Extensions, PdId, QpId};

use crate::qp::inbound::park::Park;
use crate::rdmap::hello::Capabilities;

/// The settings with which a queue pair is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Its number.
    pub qp: QpId,
    /// Its protection domain.
    pub pd: PdId,
    /// Send work requests that may be outstanding.
    pub max_send_wr: usize,
    /// Receive work requests that may be outstanding.
    pub max_recv_wr: usize,
    /// Elements of a send work request.
    pub max_send_sge: usize,
    /// Elements of a receive work request.
    pub max_recv_sge: usize,
    /// Octets of inline data.
    pub max_inline: usize,
    /// Receives come from a shared receive queue.
    pub shared_receive: bool,
    /// The use of the operations of RFC 7306.
    pub extensions: Extensions,
    /// The time that such operations wait to learn what the peer knows.
    pub extension_wait: Duration,
    /// After how long an initiator that has heard nothing sends an empty Write: Linux siw may
    /// overlook what arrives right behind its Reply until more comes.
    pub nudge: Option<Duration>,
    /// After how long a responder whose work waits for an initiator that says nothing
    /// (RFC 5044 §7.1.2(4)) tells of it, once ([`Event::HeldBack`](super::Event::HeldBack)).
    pub tell_held_back: Option<Duration>,
    /// After how long a message that waits for its receive is told of, once
    /// ([`Event::NoReceive`](super::Event::NoReceive)).
    pub tell_no_receive: Option<Duration>,
    /// A signalled one-way request completes only when the peer is known to have received it.
    /// Start-up should ask for one Read more than the program wants
    /// ([`crate::mpa::startup::Config::spare`]). The peer is asked for its farewell.
    pub acknowledge: bool,
    /// Messages that find no receive wait for one. `None`: they end the stream.
    pub park: Option<Park>,
    /// For how long work requests outlive a stream that the peer has closed in good order, as over
    /// InfiniBand, where a peer's leaving is not seen before an answer fails to come. `None`: they
    /// are flushed at once.
    pub outlive: Option<Duration>,
    /// As `outlive`, for a queue pair that the program itself takes through its states.
    pub outlive_in_place: Option<Duration>,
    /// The capability that the hello frame tells beside what this end does:
    /// [`Capabilities::SEES_RNIC`] or [`Capabilities::SEES_INFINIBAND`], or nothing.
    pub tells: Capabilities,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            qp: QpId(0),
            pd: PdId(0),
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 256,
            shared_receive: false,
            extensions: Extensions::Ask,
            extension_wait: Duration::from_secs(3),
            nudge: None,
            tell_held_back: None,
            tell_no_receive: None,
            acknowledge: false,
            park: None,
            outlive: None,
            outlive_in_place: None,
            tells: Capabilities::default(),
        }
    }
}
