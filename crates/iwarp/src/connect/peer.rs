// SPDX-License-Identifier: MIT OR Apache-2.0

//! The peer that a queue pair is to talk to without the connection manager.

use std::net::IpAddr;
use std::time::Duration;

use iwarp_types::setters;

use crate::engine::MAX_READS;
use crate::engine::gid::Gid;

/// The other end of a queue pair that is connected without the connection manager, as in `struct
/// ibv_qp_attr` when the queue pair goes to RTR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Peer {
    /// The local address: the GID that the program has told the peer.
    pub local: IpAddr,
    /// The peer's address: its GID.
    pub gid: IpAddr,
    /// Index of the interface if the peer's address is link-local; otherwise 0.
    pub scope: u32,
    /// Number of the peer's queue pair.
    pub qpn: u32,
    /// The number from which the peer's packets start (`rq_psn`, 24 bits). The peer's program has
    /// set it for its queue pair ([`QueuePair::set_psn`](crate::QueuePair::set_psn)) and sent it to
    /// this program. iWARP numbers no packets, but the number proves that the other end is the
    /// peer.
    pub psn: u32,
    /// Number of the peer's Reads and Atomics that are served at a time (`max_dest_rd_atomic`).
    pub ird: u16,
    /// Number of this end's Reads and Atomics that may be outstanding at a time, but no more than
    /// the peer serves. (Programs for InfiniBand give `max_rd_atomic` only when they go to RTS.)
    pub ord: u16,
}

impl Peer {
    /// The queue pair `qpn` at `gid`, whose packets start from `psn`. It may have 16 Reads and
    /// Atomics outstanding at this end, and this end as many as the peer serves.
    pub fn new(local: &Gid, gid: IpAddr, qpn: u32, psn: u32) -> Self {
        let scope = if iwarp_os::addr::is_link_local(gid) { local.interface_index } else { 0 };
        Self::at(local.addr, gid, qpn, psn).scope(scope)
    }

    /// As [`Self::new`], from the local address `local`, for which no interface need be named.
    pub const fn at(local: IpAddr, gid: IpAddr, qpn: u32, psn: u32) -> Self {
        Self { local, gid, scope: 0, qpn, psn, ird: 16, ord: MAX_READS }
    }

    setters! {
        scope: u32,
        ird: u16,
        ord: u16,
    }
}

/// The time for which a peer may be silent, as in `struct ibv_qp_attr` when a queue pair goes to
/// RTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Retry {
    /// Time limit for an answer (`timeout`: 4.096 µs · 2^n); `None`: no limit.
    pub timeout: Option<Duration>,
    /// Number of timeouts before work fails (`retry_cnt`).
    pub count: u8,
}

/// The common choice of programs for InfiniBand: 67 ms, 7 times.
impl Default for Retry {
    fn default() -> Self {
        Self { timeout: Some(Self::local_ack_timeout(14)), count: 7 }
    }
}

/// Finding each other takes two programs, and the second end begins after a while only: less time
/// than this would never be enough.
const LEAST: Duration = Duration::from_secs(3);

impl Retry {
    /// Work fails after `count` answers that took longer than `timeout` each; without a timeout,
    /// never.
    pub fn new(timeout: impl Into<Option<Duration>>, count: u8) -> Self {
        Self { timeout: timeout.into(), count }
    }

    /// The time for the values 1 to 31 of the field `timeout` in `struct ibv_qp_attr`.
    pub const fn local_ack_timeout(n: u8) -> Duration {
        let n = if n > 31 { 31 } else { n };
        Duration::from_nanos(4096 << n)
    }

    /// The time that work waits for a connection.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let timeout = self.timeout?;
        Some(timeout.saturating_mul(u32::from(self.count) + 1).max(LEAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_verbs() {
        assert_eq!(Retry::local_ack_timeout(14).as_micros(), 67_108);
        assert_eq!(Retry::local_ack_timeout(31).as_secs(), 8796);
        assert_eq!(Retry::default().limit(), Some(LEAST));
        let patient = Retry::new(Duration::from_secs(2), 4);
        assert_eq!(patient.limit(), Some(Duration::from_secs(10)));
        assert_eq!(Retry::new(None, 7).limit(), None);
    }
}
