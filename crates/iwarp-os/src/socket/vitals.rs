// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection's health, as the system knows it (`TCP_INFO`).

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::TcpSocket;
use crate::sockopt;

/// Offsets in `struct tcp_info`, which has only ever grown at its end.
mod offset {
    pub(super) const RETRANSMITS: usize = 2;
    pub(super) const PROBES: usize = 3;
    pub(super) const SND_MSS: usize = 16;
    pub(super) const UNACKED: usize = 24;
    pub(super) const LAST_DATA_RECV: usize = 52;
    pub(super) const LAST_ACK_RECV: usize = 56;
    pub(super) const RTT: usize = 68;
    pub(super) const RTTVAR: usize = 72;
    pub(super) const SND_CWND: usize = 80;
    pub(super) const TOTAL_RETRANS: usize = 100;
    /// So much of it is needed.
    pub(super) const NEEDED: usize = 104;
    /// Zero before Linux 4.6, like what follows.
    pub(super) const BYTES_ACKED: usize = 120;
    pub(super) const BYTES_RECEIVED: usize = 128;
    pub(super) const NOTSENT_BYTES: usize = 144;
    pub(super) const END: usize = 148;
}

/// The state of affairs between a connection and its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Bytes that the socket has taken and the peer has not acknowledged, sent or not.
    pub outstanding: usize,
    /// Segments on their way.
    pub in_flight: u32,
    /// The number of times that the oldest of them was sent again for want of an answer; wraps.
    pub retransmits: u8,
    /// Probes of a closed window since the peer's last acknowledgement; wraps.
    pub probes: u8,
    /// Segments that were sent again since the connection began; wraps.
    pub total_retransmits: u32,
    /// The time since the peer acknowledged something, if only a probe or that its window is
    /// closed.
    pub last_ack: Duration,
    /// The time since bytes came.
    pub last_data: Duration,
    /// The round-trip time, smoothed.
    pub rtt: Duration,
    /// Its mean deviation.
    pub rtt_variance: Duration,
    /// Bytes of payload of the largest segment that is sent.
    pub mss: u32,
    /// Segments that may be on their way.
    pub congestion_window: u32,
    /// Bytes that the peer has acknowledged since the connection began.
    pub acknowledged: u64,
    /// Bytes that were received since then.
    pub received: u64,
    /// Bytes that the socket has taken and not yet sent even once.
    pub unsent: u32,
}

impl TcpSocket {
    /// The connection's health; `None` where the system does not say (gVisor has the option and
    /// leaves most of it empty).
    ///
    /// # Errors
    ///
    /// As for `getsockopt(2)`, on a descriptor that is not ours any more.
    pub fn vitals(&self) -> io::Result<Option<Vitals>> {
        let mut info = [0; offset::END];
        let len = sockopt::octets(self.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
        let word = |at: usize| {
            let octets = &info[at..at + 4];
            octets.try_into().map_or(0, u32::from_ne_bytes)
        };
        let long = |at: usize| {
            let octets = &info[at..at + 8];
            octets.try_into().map_or(0, u64::from_ne_bytes)
        };
        let micros = |at| Duration::from_micros(word(at).into());
        let millis = |at| Duration::from_millis(word(at).into());
        // Each connection has a segment size.
        if len < offset::NEEDED || word(offset::SND_MSS) == 0 {
            return Ok(None);
        }
        Ok(Some(Vitals {
            outstanding: self.unacknowledged()?,
            in_flight: word(offset::UNACKED),
            retransmits: info[offset::RETRANSMITS],
            probes: info[offset::PROBES],
            total_retransmits: word(offset::TOTAL_RETRANS),
            last_ack: millis(offset::LAST_ACK_RECV),
            last_data: millis(offset::LAST_DATA_RECV),
            rtt: micros(offset::RTT),
            rtt_variance: micros(offset::RTTVAR),
            mss: word(offset::SND_MSS),
            congestion_window: word(offset::SND_CWND),
            acknowledged: long(offset::BYTES_ACKED),
            received: long(offset::BYTES_RECEIVED),
            unsent: word(offset::NOTSENT_BYTES),
        }))
    }

    /// Asks a silent peer again after so long at the latest, whether by sending a segment again or
    /// by probing its closed window (`TCP_RTO_MAX_MS`, from 1 s to 2 min, which is the system's
    /// limit).
    ///
    /// # Errors
    ///
    /// `ENOPROTOOPT` before Linux 6.15.
    pub fn set_longest_pause(&self, pause: Duration) -> io::Result<()> {
        /// `TCP_RTO_MAX_MS`.
        const RTO_MAX_MS: i32 = 44;
        let millis = pause.as_millis().clamp(1_000, 120_000) as i32;
        sockopt::set_int(self.as_fd(), libc::IPPROTO_TCP, RTO_MAX_MS, millis)
    }

    /// Takes no more bytes while so many wait to be sent for the first time
    /// (`TCP_NOTSENT_LOWAT`): of a peer that does not read, the system keeps that much and what one
    /// call brought on top, instead of as much as a socket's buffer grows to.
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn limit_unsent(&self, octets: usize) -> io::Result<()> {
        let octets = i32::try_from(octets).unwrap_or(i32::MAX);
        sockopt::set_int(self.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, octets)
    }
}
