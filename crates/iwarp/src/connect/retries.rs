// SPDX-License-Identifier: MIT OR Apache-2.0

//! Repeated attempts at a peer at which no program listens yet.

use std::net::SocketAddr;
use std::time::Duration;

use iwarp_types::Time;

use crate::engine::timers::{Alarm, Timers};
use crate::port::canonical;
use crate::report;

/// Refused connections are retried for this long, unless the peer has another address to try:
/// qperf and perftest announce their port before they listen on it. On a machine with more to do
/// than CPUs, a server takes a few hundred milliseconds in between. Other connections to that
/// address meanwhile stand in line.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// The pauses before the next attempt, at first and at last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(40));

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Retries {
    timers: Timers,
    began: Time,
}

impl Retries {
    /// The first attempt is about to be made.
    pub(crate) fn begin(timers: &Timers) -> Self {
        Self { timers: timers.clone(), began: timers.now() }
    }

    /// The time for which the peer has been asked.
    pub(crate) fn lasted(&self) -> Duration {
        self.timers.now().0.saturating_sub(self.began.0)
    }

    /// Calls `what` after a pause, whose length grows with the time that has passed.
    pub(crate) fn later(&self, what: Box<dyn FnOnce() + Send>) -> Alarm {
        let (first, last) = PAUSES;
        let pause = (self.lasted() / 8).clamp(first, last);
        self.timers.at(self.timers.now().plus(pause), what)
    }

    /// As [`Self::later`]; `None` where enough was tried.
    pub(crate) fn again(&self, what: Box<dyn FnOnce() + Send>) -> Option<Alarm> {
        (self.lasted() < PATIENCE).then(|| self.later(what))
    }
}

/// Says that a program wanted to connect to a server that is not there.
#[cold]
pub(crate) fn nobody_listens(peer: SocketAddr, waited: Duration) {
    let peer = canonical(peer);
    report!(
        WARN,
        "nobody listens at {peer}: it has refused the connection for {:.1} s; start the server \
         first, and compare address and port (the peer's firewall may refuse as well)",
        waited.as_secs_f64(),
    );
}
