// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waits that end, and senders that keep to a pace.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::task::Task;

/// The time for which a wait may see no progress.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Turns of a loop between two looks at the clock.
const TURNS: u32 = 4096;
/// Time between two looks at whether the other end is still there.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Ends a loop that spins in vain.
#[derive(Debug, Default)]
pub(super) struct Patience {
    turns: u32,
    since: Option<Instant>,
    looked: Duration,
}

impl Patience {
    /// To be called in every turn. True from time to time: look then whether the peer is there.
    pub(super) fn check(&mut self) -> Result<bool> {
        self.turns += 1;
        if !self.turns.is_multiple_of(TURNS) {
            return Ok(false);
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        ensure!(waited < PATIENCE, "nothing has come for {PATIENCE:?}");
        let look = waited >= self.looked + BETWEEN_LOOKS;
        if look {
            self.looked = waited;
        }
        Ok(look)
    }
}

/// A sender that keeps to a pace sleeps once it is ahead by so much.
const AHEAD: Duration = Duration::from_micros(200);

/// Keeps a sender to the pace of its task.
#[derive(Debug)]
pub(super) struct Pace {
    start: Instant,
    sent: u64,
    size: u64,
    /// Bytes per second.
    rate: u64,
}

impl Pace {
    pub(super) fn new(task: &Task) -> Self {
        Self { start: Instant::now(), sent: 0, size: task.size as u64, rate: task.pace }
    }

    /// To be called before so many messages are sent.
    pub(super) fn keep(&mut self, messages: usize) {
        if self.rate == 0 {
            return;
        }
        let due = Duration::from_secs_f64(self.sent as f64 / self.rate as f64);
        let ahead = due.saturating_sub(self.start.elapsed());
        if ahead > AHEAD {
            std::thread::sleep(ahead);
        }
        self.sent += messages as u64 * self.size;
    }
}

/// Waits until there is something to read or to accept; false when `patience` ends first.
pub(super) fn wait_for(fd: &impl AsFd, patience: Duration) -> Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left)?;
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}
