// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waiting for the events of ids.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use iwarp::cm::EventChannel;

/// Waits until a channel has events. False at the deadline. In a forked child none would come.
pub(super) fn wait_readable(channel: &EventChannel, deadline: Option<Instant>) -> io::Result<bool> {
    channel.check()?;
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    if left == Some(Duration::ZERO) {
        return Ok(false);
    }
    match iwarp_os::poll::wait_readable([channel.as_fd()], left) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(error),
    }
}
