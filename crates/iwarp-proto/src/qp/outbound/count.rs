// SPDX-License-Identifier: MIT OR Apache-2.0

//! Saying how many messages were received, while one behind them waits for its receive.
//!
//! A peer that awaits acknowledgements ([`Config::acknowledge`](crate::qp::Config::acknowledge))
//! asks for them by one Read at a time, which may stand behind several messages. If one of these
//! waits for a receive, the answer waits with it, and says nothing of the others before. Over
//! InfiniBand each of them is acknowledged, and programs rely on that: they post a receive when
//! they know that an earlier message has arrived. So an end at which messages wait says in a frame
//! of our own how many it has received before them ([`hello`](crate::rdmap::hello)), to a peer that
//! asks for it:
//!
//! - where a Read waits for its answer, or
//! - where nothing more is read from the stream, so that a Read may stand in it unseen, and
//! - only if neither an answer nor an earlier frame has said it.
//!
//! The number is that of an earlier frame if only Writes of nothing have come in between, which it
//! does not count. It is never less, and never more than was sent: a peer that says so breaks the
//! stream's rules (`SendQueue::told_received`).
//!
//! No such frame is sent while receives are in time, nor where each message waits for its receive
//! before the next one is sent.
//!
//! One case remains: if the end that waits for word has stopped reading, because its own park is
//! full, the word stands behind a message that this end cannot take.

use super::{Due, Kind};
use crate::qp::Qp;
use crate::rdmap::hello::{self, Capabilities};
use crate::rdmap::wire::Opcode;

impl Qp {
    /// Has the peer told how much was received, if a message without a receive keeps it from
    /// learning that.
    pub(crate) fn tell_received(&mut self) {
        let keeps_it = self.inbound.is_stalled() || self.irq.waits(self.inbound.late_delivered());
        if keeps_it
            && self.peer.has(Capabilities::FAREWELL)
            && self.inbound.received_or_empty() > self.outbound.told
        {
            self.outbound.due.insert(Due::COUNT);
        }
    }

    #[cold]
    pub(super) fn start_count(&mut self) {
        self.outbound.due.remove(Due::COUNT);
        let received = self.inbound.received_or_empty();
        debug_assert!(received > self.outbound.told, "a count says nothing new");
        self.outbound.told = received;
        let (stag, to) = hello::encode_count(self.inbound.received());
        self.start_tagged(Opcode::Write, stag, to, 0, Kind::Own);
    }

    /// The oldest request of the peer's was answered, which tells it that all before was received.
    pub(super) fn note_answered(&mut self) {
        if let Some(before) = self.irq.pop() {
            self.outbound.told = self.outbound.told.max(before.all);
            // It was under way when the count became due.
            if self.inbound.received_or_empty() <= self.outbound.told {
                self.outbound.due.remove(Due::COUNT);
            }
        }
    }
}
