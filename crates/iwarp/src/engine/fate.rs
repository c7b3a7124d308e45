// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fate of a connection, as lines of the log: one when it is there, one when it has ended.
//!
//! A connection has a [`Fate`] only if these lines are read when it begins, so that it costs others
//! no more than a look for one.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use iwarp_os::clock;
use iwarp_types::{Protocol, Reason};
use tracing::Level;

use super::ended::Ended;
use super::sync::{AtomicU64, Mutex, Ordering};
use crate::port::canonical;
use crate::report;
use crate::report::FATE;

/// The names of the protocols.
pub(crate) const IWARP: &str = "iWARP";
pub(crate) const ROCE: &str = "RoCE v2";

/// A connection whose end is to be told.
#[derive(Debug)]
pub(crate) struct Fate {
    qp: u32,
    peer_qp: Option<u32>,
    local: Option<SocketAddr>,
    peer: SocketAddr,
    wire: &'static str,
    began: Duration,
    /// It has a stream, and ends with it; others end as soon as it is known why.
    has_stream: bool,
    sent: AtomicU64,
    received: AtomicU64,
    end: Mutex<End>,
}

#[derive(Debug)]
enum End {
    Open,
    /// The reason of its end, while its stream is still there.
    Known(String),
    Told,
}

/// True if these lines are read.
pub(crate) fn is_read() -> bool {
    tracing::enabled!(target: FATE, Level::INFO)
}

impl Fate {
    /// The fate of a connection that begins. The wing has written the first line, and calls this
    /// only if the log [is read](is_read). With a stream it ends when the stream does; others end
    /// as soon as it is known why.
    pub(crate) fn new(
        qp: u32,
        peer_qp: Option<u32>,
        (local, peer): (Option<SocketAddr>, SocketAddr),
        wire: &'static str,
        has_stream: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            qp,
            peer_qp,
            local,
            peer,
            wire,
            began: clock::now(),
            has_stream,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            end: Mutex::new(End::Open),
        })
    }

    /// Bytes have gone out.
    pub(crate) fn sent(&self, octets: usize) {
        self.sent.fetch_add(octets as u64, Ordering::Relaxed);
    }

    /// Bytes have come.
    pub(crate) fn received(&self, octets: usize) {
        self.received.fetch_add(octets as u64, Ordering::Relaxed);
    }

    /// Notes why it ends. The cause found first is that of all that follows.
    pub(crate) fn ends(&self, why: impl Display) {
        let mut end = self.end.lock();
        if !matches!(*end, End::Open) {
            return;
        }
        let why = why.to_string();
        if self.has_stream {
            let Self { qp, peer, .. } = *self;
            report!(fate DEBUG, qp, %peer, why, "the connection is to end");
            *end = End::Known(why);
        } else {
            *end = End::Told;
            drop(end);
            self.tell(&why);
        }
    }

    /// It ends as a core has found.
    pub(crate) fn ended(&self, how: Ended) {
        match how {
            Ended::Closed => self.ends("the peer closed it in good order"),
            Ended::Terminated(reason) => self.ends(by("the peer", reason)),
            Ended::Fault(reason) => self.ends(by("this end", reason)),
            Ended::Lost if self.has_stream => {
                self.ends("the peer closed it in the middle of a message");
            }
            Ended::Lost => self.ends("the peer did not answer any more: retries exceeded"),
        }
    }

    /// Its stream is closed.
    pub(crate) fn closed(&self) {
        let end = std::mem::replace(&mut *self.end.lock(), End::Told);
        match end {
            End::Open => self.tell("its stream was closed"),
            End::Known(why) => self.tell(&why),
            End::Told => {}
        }
    }

    fn tell(&self, why: &str) {
        let Self { qp, peer_qp, local, peer, wire, .. } = *self;
        let bytes_sent = self.sent.load(Ordering::Relaxed);
        let bytes_received = self.received.load(Ordering::Relaxed);
        let lasted_ms = clock::now().saturating_sub(self.began).as_millis() as u64;
        report!(
            fate INFO,
            qp,
            peer_qp,
            local = shown(local),
            %peer,
            wire,
            bytes_sent,
            bytes_received,
            lasted_ms,
            why,
            "the connection has ended"
        );
    }
}

/// Goes with its queue pair, if nothing ended it before.
impl Drop for Fate {
    fn drop(&mut self) {
        self.closed();
    }
}

/// A step on the way to a connection, or away from one.
pub(crate) fn step(
    qp: Option<u32>,
    local: Option<SocketAddr>,
    peer: SocketAddr,
    wire: &'static str,
    what: &'static str,
) {
    report!(
        fate DEBUG,
        qp,
        local = shown(local.map(canonical)),
        peer = %canonical(peer),
        wire,
        "{what}"
    );
}

/// A connection that the program wanted was not made.
pub(crate) fn not_made(
    qp: Option<u32>,
    local: Option<SocketAddr>,
    peer: SocketAddr,
    wire: &'static str,
    why: impl Display,
) {
    report!(
        fate INFO,
        qp,
        local = shown(local.map(canonical)),
        peer = %canonical(peer),
        wire,
        why = why.to_string().as_str(),
        "no connection was made"
    );
}

/// The program does not want a connection that a peer has asked for.
pub(crate) fn rejected(
    local: Option<SocketAddr>,
    peer: SocketAddr,
    wire: &'static str,
    private_data: usize,
) {
    report!(
        fate INFO,
        local = shown(local.map(canonical)),
        peer = %canonical(peer),
        wire,
        private_data,
        "the program rejected a connection"
    );
}

/// The library does not take a connection. A stranger may cause any number of these.
pub(crate) fn refused(
    local: Option<SocketAddr>,
    peer: SocketAddr,
    wire: &'static str,
    why: impl Display,
) {
    report!(
        fate INFO,
        local = shown(local.map(canonical)),
        peer = %canonical(peer),
        wire,
        why = why.to_string().as_str(),
        "a connection was refused"
    );
}

fn by(whom: &str, reason: Reason) -> String {
    /// A reason that no NAK says has a number from here on.
    const NO_NAK: u32 = 0x100;
    match reason.protocol() {
        Protocol::Iwarp => format!("{whom} sent a Terminate: {reason}"),
        Protocol::Roce if reason.code() < NO_NAK => format!("{whom} sent a NAK: {reason}"),
        _ => format!("{whom} gave it up: {reason}"),
    }
}

/// An address as the lines show it.
pub(crate) fn shown(addr: Option<SocketAddr>) -> Option<tracing::field::DisplayValue<SocketAddr>> {
    addr.map(tracing::field::display)
}
