// SPDX-License-Identifier: MIT OR Apache-2.0

//! A capture that begins while the stream is in use hears where the next message unit begins in
//! each direction. Only the connection knows that: nothing in the bytes says it for certain.

use super::Link;
use super::receive::Received;
use crate::capture::Watch;
use crate::engine::poll_set::By;
use crate::port::Ends;

impl Link {
    /// Tells the capture. To be called by a thread that moves no stream at this moment.
    #[cold]
    pub(super) fn tell_capture(&self) {
        self.tx.look(|tx| {
            if let Some(next) = tx.next_unit()
                && let Some(mut watch) = self.captured()
            {
                if let Some(port) = self.stream.local().filter(|port| port.has_switched()) {
                    watch.by_memory(port.may_send_bare(), true);
                }
                watch.goes_on(true, next);
            }
        });
        self.rx.look(|rx| {
            if let Some(next) = rx.next_unit()
                && let Some(mut watch) = self.captured()
            {
                if let Some(crc) = self.stream.local().and_then(|port| port.came_with()) {
                    watch.by_memory(!crc, false);
                }
                watch.goes_on(false, next);
            }
        });
        // Threads that came meanwhile have left their work.
        self.send();
        let Received { seen, .. } = self.receive(By::Worker);
        self.answer(By::Worker, seen);
    }

    fn captured(&self) -> Option<Watch<'_>> {
        let Ends { local, peer } = self.stream.ends();
        self.stream.tap()?.watch(|| (local, peer))
    }
}
