// SPDX-License-Identifier: MIT OR Apache-2.0

//! A burst on its way to a port.

use std::io;

use iwarp_mem::OutOfMemory;
use iwarp_roce::wire::Burst;

use crate::port::{BurstCursor, DatagramPort, Sent};

/// Packets that a port has not taken yet: kept in order, and no more of them than one burst has.
#[derive(Debug)]
pub struct Outbox {
    burst: Burst,
    cursor: BurstCursor,
    waiting: bool,
}

impl Outbox {
    /// An empty one to that port, for bursts of `budget` bytes, give or take a packet.
    pub fn new(port: &dyn DatagramPort, budget: usize) -> Self {
        let burst = Burst::new(port.numbering(), budget);
        Self { burst, cursor: BurstCursor::default(), waiting: false }
    }

    /// Has storage for whole bursts of so many trains at most, so that none has to grow.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub fn reserve(&mut self, trains: usize) -> Result<(), OutOfMemory> {
        self.burst.reserve(trains).map_err(|_| OutOfMemory)
    }

    /// The burst into which packets are put; `None` while the port is full and some wait for it.
    pub fn fill(&mut self, port: &dyn DatagramPort) -> Option<&mut Burst> {
        if self.waiting {
            return None;
        }
        if self.burst.is_empty() && self.burst.numbering() != port.numbering() {
            self.burst.set_numbering(port.numbering());
        }
        Some(&mut self.burst)
    }

    /// True if it is empty.
    pub const fn is_empty(&self) -> bool {
        self.burst.is_empty()
    }

    /// The number of trains that the port has taken or lost of those in it.
    pub const fn trains_taken(&self) -> usize {
        self.cursor.trains
    }

    /// Gives the port what it takes. After [`Sent::TooLong`] there may be more to give.
    ///
    /// # Errors
    ///
    /// If the port is gone; then the outbox is empty.
    pub fn flush(&mut self, port: &dyn DatagramPort) -> io::Result<Sent> {
        let sent = port.send(&self.burst, &mut self.cursor);
        self.waiting = matches!(sent, Ok(Sent::Full));
        if matches!(sent, Ok(Sent::All) | Err(_)) {
            self.lose();
        }
        sent
    }

    /// Drops what is in it, as a network does.
    pub fn lose(&mut self) {
        self.burst.clear();
        self.cursor = BurstCursor::default();
        self.waiting = false;
    }
}
