// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waiting for other threads.

use std::thread;
use std::time::{Duration, Instant};

/// Waits until another thread has come so far; panics after a minute. It leaves the CPU to that
/// thread: one that only yields keeps it away under a sanitizer.
pub(crate) fn until(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut idle = Idle::default();
    loop {
        let late = Instant::now() >= deadline;
        if is_there() {
            return;
        }
        assert!(!late, "waited too long for {what}");
        idle.pause();
    }
}

/// Looks in a row that found nothing.
#[derive(Default)]
pub(crate) struct Idle(u32);

impl Idle {
    /// Lets others run, the longer the longer nothing was found.
    pub(crate) fn pause(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            ..64 => thread::yield_now(),
            64..1024 => thread::sleep(Duration::from_micros(50)),
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
}
