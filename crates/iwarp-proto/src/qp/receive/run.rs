// SPDX-License-Identifier: MIT OR Apache-2.0

//! Segments of one message that came together: the queue pair judges the first, and its verdict
//! holds for those that continue it. Any other is left to be judged by itself.

use iwarp_types::{Accessor, Memory, Sge, Usage, Use};

use crate::ddp::wire::Continuation;
use crate::qp::inbound::{Beyond, Continued, Plan};

/// Payload octets that are placed in one use of their buffer, at most: a thread that revokes it
/// waits no longer than for a system call.
const RUN_MAX: u32 = 64 * 1024;

/// Placement of a message's segments, each behind the one before, in one use of the buffer.
pub(super) struct Run<U> {
    sink: U,
    next: Continuation,
    /// The place of the next octet.
    at: u64,
    /// The octets that may follow those that were placed.
    beyond: Beyond,
    /// Payload octets of the segment that was placed last, and whether it ended the message.
    len: u32,
    last: bool,
    /// Payload octets of the segments behind the first.
    octets: u32,
}

impl<U: Use> Run<U> {
    /// Places the first segment, if others may continue it. `sges` belongs to the plan. `None`
    /// where nothing was placed. The accessors are the queue pair's, and that of receives.
    pub(super) fn begin<'a, M: Memory<Use<'a> = U>>(
        memory: &'a M,
        (who, receives): (Accessor, Accessor),
        plan: Plan,
        sges: &[Sge],
        ulpdu: &[u8],
    ) -> Option<Self> {
        let (who, usage, stag, at, beyond) = match (plan, sges) {
            (Plan::Tagged(stag, to), _) => {
                (who, Usage::RemoteWrite, stag, to.0, Beyond { room: RUN_MAX, due: None })
            }
            (Plan::Local(beyond), [sge]) if beyond.room > 0 => {
                let room = beyond.room.min(RUN_MAX);
                (receives, Usage::LocalWrite, sge.lkey, sge.addr, Beyond { room, ..beyond })
            }
            _ => return None,
        };
        let mut next = Continuation::of(ulpdu)?;
        let payload = &ulpdu[next.header_len()..];
        let sink = memory.begin_use(who, stag, usage).ok()?;
        sink.place(at, payload).ok()?;
        let len = payload.len() as u32;
        next.advance(len);
        let at = at.wrapping_add(u64::from(len));
        Some(Self { sink, next, at, beyond, len, last: false, octets: 0 })
    }

    /// True if no other segment will be placed: this was the last, or one more has no room.
    pub(super) const fn is_over(&self) -> bool {
        self.last || self.beyond.room < self.len
    }

    /// Places a segment if it continues the message and nothing is wrong with it.
    #[inline]
    pub(super) fn place(&mut self, ulpdu: &[u8]) -> bool {
        let Some(last) = self.next.is_next(ulpdu) else { return false };
        let payload = &ulpdu[self.next.header_len()..];
        let len = payload.len() as u32;
        let fits = len > 0 && len <= self.beyond.room;
        // The end of a message whose length is known has to be there.
        let ends_well = !last || self.beyond.due.is_none_or(|due| due == len);
        if !fits || !ends_well || self.sink.place(self.at, payload).is_err() {
            return false;
        }
        self.next.advance(len);
        self.at = self.at.wrapping_add(u64::from(len));
        self.beyond = self.beyond.behind(len);
        (self.len, self.last) = (len, last);
        self.octets += len;
        true
    }

    /// Ends the use of the buffer. Returns what was placed behind the first segment, if anything.
    pub(super) fn end(self) -> Option<Continued> {
        let Self { len, octets, .. } = self;
        (octets > 0).then_some(Continued { len, octets })
    }
}
