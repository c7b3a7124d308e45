// SPDX-License-Identifier: MIT OR Apache-2.0

//! The readiness of a socket, as its descriptor shows it.
//!
//! The descriptor is changed only when the readiness has changed, and not for a direction in which
//! a thread waits in the library, which is about to change it back. A call of the program's leaves
//! it exact; between calls only what comes from outside changes: data, room, connections, the end.

use std::io;

use iwarp_os::readiness::ReadinessPair;
use iwarp_sockets::stream::Readiness;

/// The occasion of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// A call in which the program has named the descriptor.
    Call,
    /// Anything else: the number may be another file's by now.
    Event,
}

/// The directions that are left alone.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Waited {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// A descriptor, and what it shows.
#[derive(Debug)]
pub(crate) struct Shown {
    pair: ReadinessPair,
    now: Readiness,
    /// The program has read since `POLLIN` was shown last: more data are a new edge.
    was_read: bool,
}

impl Shown {
    pub(crate) fn new(cloexec: bool, nonblocking: bool) -> io::Result<Self> {
        let pair = ReadinessPair::new(cloexec, nonblocking)?;
        let now = Readiness { writable: true, ..Readiness::default() };
        Ok(Self { pair, now, was_read: false })
    }

    pub(crate) fn pair(&self) -> &ReadinessPair {
        &self.pair
    }

    /// The number is another file's.
    pub(crate) fn disown(self) {
        self.pair.disown();
    }

    /// The program has read.
    pub(crate) fn was_read(&mut self) {
        self.was_read = true;
    }

    /// Has the descriptor show `wanted`; `is_news` if data have come.
    pub(crate) fn show(&mut self, wanted: Readiness, by: By, waited: Waited, is_news: bool) {
        let Self { pair, now, was_read } = self;
        if wanted.hangup {
            if !now.hangup {
                pair.hang_up(wanted.error);
                *now = wanted;
            } else if now.error && !wanted.error && by == By::Call {
                pair.clear_error();
                now.error = false;
            }
            return;
        }
        if wanted.read_closed && !now.read_closed {
            pair.end_reading();
            now.read_closed = true;
            now.readable = true;
        }
        if !now.read_closed && !waited.read {
            let is_edge = !now.readable || (is_news && *was_read && by == By::Event);
            if wanted.readable && is_edge {
                pair.put();
                now.readable = true;
                *was_read = false;
            } else if !wanted.readable && now.readable && by == By::Call {
                pair.take();
                now.readable = false;
            }
        }
        if wanted.writable && !now.writable {
            pair.release();
            now.writable = true;
        } else if !wanted.writable && now.writable && by == By::Call && !waited.write {
            pair.fill();
            now.writable = false;
        }
    }
}
