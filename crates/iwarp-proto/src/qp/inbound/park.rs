// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages that came before their receive ([`Config::park`](crate::qp::Config::park)).
//!
//! The queue pair counts them, the receiver keeps their octets.

use alloc::vec::Vec;
use core::time::Duration;

use iwarp_types::{Receive, Sge, Time, WcStatus};

use super::{Beyond, Come, Inbound, Pending, Plan};
use crate::ddp::error::DdpError;
use crate::ddp::rx::check_offset;
use crate::ddp::wire::{Header, UNTAGGED_LEN, Untagged};
use crate::qp::{Event, Extensions, Qp};
use crate::rdmap::hello;
use crate::rdmap::terminate::Fault;
use crate::rdmap::wire::Opcode;
use crate::types::Mo;
use iwarp_types::list::sub_list;

/// The bounds of messages that may wait for a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Park {
    /// Octets of their payloads. A message that is longer waits on the way.
    pub octets: usize,
    /// The number of messages.
    pub messages: usize,
    /// The time that the oldest one waits for each repetition that the peer would make
    /// ([`OwnFrame::RnrRetry`](crate::rdmap::hello::OwnFrame::RnrRetry)); then the stream is
    /// terminated as it would be at once without a park. A peer for which neither end has said
    /// anything waits for ever.
    pub timer: Duration,
}

/// The message that a parked segment belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parking {
    pub(crate) header: Untagged,
    pub(crate) opcode: Opcode,
    /// Octets of the Write that this Immediate Data belongs to.
    pub(crate) write: Option<u32>,
    /// The messages that came before this one.
    pub(crate) before: Come,
}

/// A message that waits for a receive.
#[derive(Debug)]
pub(crate) struct Parked {
    /// Of its last segment.
    pub(crate) header: Untagged,
    pub(crate) opcode: Opcode,
    pub(crate) write: Option<u32>,
    pub(crate) before: Come,
    pub(crate) octets: Vec<u8>,
    /// The position of the stream at which it begins.
    pub(crate) start: u64,
    /// All of it is here.
    pub(crate) whole: bool,
}

/// Since when the oldest message without a receive waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// There is none.
    No,
    /// Since a moment that is not known yet.
    New,
    Since(Time),
}

/// The place that the octets of a message for queue 0 go to.
pub(super) enum Room {
    /// To the receive at hand.
    Receive,
    /// Not known before the pool was asked.
    Ask,
    /// To the park.
    Park,
}

impl Inbound {
    /// A message waits, if none did before.
    fn begin_wait(&mut self) {
        if self.wait == Wait::No {
            self.wait = Wait::New;
        }
    }
}

impl Qp {
    /// Sets how long this end has a peer wait before each repetition of a message without a
    /// receive.
    pub fn set_rnr_timer(&mut self, timer: Duration) {
        if let Some(park) = &mut self.config.park {
            park.timer = timer;
        }
    }

    /// Sets how often this end would send a message again that finds no receive: 0 to 6, or 7 for
    /// without end. The peer is told, which is the one to count.
    pub fn set_rnr_retry(&mut self, count: u8) {
        let count = count.min(hello::RNR_WITHOUT_END);
        if self.config.park.is_some() && core::mem::replace(&mut self.rnr_retry, count) != count {
            self.tell_rnr_retry();
        }
    }

    /// Sets how often the peer is to send a message again that finds no receive, unless it says
    /// another number: as [`Self::set_rnr_retry`] has it.
    pub fn set_peer_rnr_retry(&mut self, count: u8) {
        self.peer_rnr_retry = Some(count);
    }

    /// Has the next frame say it, where there is a peer that may understand it.
    pub(crate) fn tell_rnr_retry(&mut self) {
        if self.is_connected() && self.config.extensions == Extensions::Ask {
            self.outbound.say_rnr_retry(self.rnr_retry);
        }
    }

    /// The time that a message may wait for its receive. `None`: for ever.
    fn rnr_limit(&self) -> Option<Duration> {
        let count = self.peer_rnr_retry.filter(|count| *count < hello::RNR_WITHOUT_END)?;
        Some(self.config.park?.timer * u32::from(count))
    }

    /// When something is to be done about the oldest message without a receive.
    pub(crate) fn wait_ends(&self) -> Option<Time> {
        let untold = self.config.tell_no_receive.filter(|_| !self.told_no_receive);
        let first = [self.rnr_limit(), untold].into_iter().flatten().min()?;
        match self.inbound.wait {
            _ if !self.receives() => None,
            Wait::No => None,
            Wait::New => Some(Time::default()),
            Wait::Since(begin) => Some(begin.plus(first)),
        }
    }

    /// Does it.
    #[cold]
    pub(crate) fn judge_wait(&mut self, now: Time) {
        if self.inbound.wait == Wait::New {
            self.inbound.wait = Wait::Since(now);
        }
        let Wait::Since(begin) = self.inbound.wait else { return };
        if !self.receives() {
            return;
        }
        let is_over = |after: Duration| now >= begin.plus(after);
        if self.rnr_limit().is_some_and(is_over) {
            self.remember_oldest();
            self.fail(DdpError::NoBuffer.into());
        } else if !self.told_no_receive && self.config.tell_no_receive.is_some_and(is_over) {
            self.told_no_receive = true;
            self.events.push_back(Event::NoReceive);
        }
    }

    /// Has a Terminate quote the message that waits longest, if it is in the park, in place of what
    /// came last. The sender's request is found by it.
    fn remember_oldest(&mut self) {
        if let Some((header, len)) = self.inbound.oldest {
            let mut head = [0; UNTAGGED_LEN];
            let head_len = Header::Untagged(header).emit(&mut head);
            self.inbound.remember(&head[..head_len], head_len + len);
        }
    }

    /// The place that message `h.msn` of queue 0 goes to: behind those that wait for a receive, to
    /// one, or where there is none and the program wants it so, to the park.
    #[inline(always)]
    pub(super) fn room_for(&mut self, h: &Untagged) -> Result<Room, Fault> {
        let ours = u32::from(self.inbound.has_receive);
        let posted = if self.config.shared_receive { ours } else { self.rq.len() as u32 + ours };
        let no_pool = core::mem::take(&mut self.inbound.pool_is_empty);
        let waits = self.inbound.parked > 0;
        let none = posted == 0 && (no_pool || !self.config.shared_receive);
        if waits || (none && self.config.park.is_some()) {
            self.inbound.sends.check_msn(h, 1)?;
            return Ok(Room::Park);
        }
        if self.config.shared_receive && posted == 0 {
            self.inbound.sends.check_msn(h, 1)?;
            return Ok(Room::Ask);
        }
        self.inbound.sends.check_msn(h, posted)?;
        if !self.inbound.has_receive {
            self.inbound.has_receive = self.rq.take(&mut self.inbound.receive);
        }
        self.inbound.stalled = false;
        self.inbound.wait = Wait::No;
        Ok(Room::Receive)
    }

    /// Hands over a receive of the pool. When it has none there is no buffer (RFC 5041 §7.1), or
    /// the message is parked.
    pub(crate) fn give_receive(&mut self, take: impl FnOnce(&mut Receive) -> bool) {
        if take(&mut self.inbound.receive) {
            self.inbound.has_receive = true;
        } else if self.config.park.is_some() {
            self.inbound.pool_is_empty = true;
        } else {
            self.fail(DdpError::NoBuffer.into());
        }
    }

    /// A segment of a message that finds no receive.
    pub(super) fn park(
        &mut self,
        h: &Untagged,
        opcode: Opcode,
        len: usize,
        write: Option<u32>,
    ) -> Result<Plan, Fault> {
        let Some(limits) = self.config.park else { return Err(DdpError::NoBuffer.into()) };
        check_offset(h, len, u64::from(u32::MAX))?;
        if h.mo.0 != self.inbound.parking.unwrap_or(0) {
            // On an ordered stream every segment follows the one before.
            return Err(DdpError::InvalidMo.into());
        }
        let begins = self.inbound.parking.is_none();
        if len > limits.octets.saturating_sub(self.inbound.parked_octets)
            || (begins && self.inbound.parked >= limits.messages)
        {
            self.inbound.stalled = true;
            self.inbound.begin_wait();
            self.tell_received();
            return Ok(Plan::Stall);
        }
        self.inbound.stalled = false;
        self.inbound.open = Some(opcode);
        self.inbound.pending = Pending::Park { header: *h, len: len as u32 };
        Ok(Plan::Park(Parking { header: *h, opcode, write, before: self.inbound.come }))
    }

    /// A segment was parked.
    pub(super) fn segment_parked(&mut self, header: &Untagged, len: u32) {
        let inbound = &mut self.inbound;
        let before = inbound.parking.take();
        if inbound.parked == 0 {
            inbound.come_before_parked = inbound.come;
        }
        inbound.parked += usize::from(before.is_none());
        inbound.begin_wait();
        inbound.parked_octets += len as usize;
        if inbound.parked == 1 {
            inbound.oldest = Some((*header, len as usize));
        }
        if header.last {
            inbound.open = None;
            inbound.late += 1;
            inbound.come.whole += 1;
            inbound.sends.delivered();
        } else {
            inbound.parking = Some(before.unwrap_or(0) + len);
        }
    }

    /// Gives the oldest parked message, which need not have come whole, a receive. Returns the plan
    /// for its octets; `None` without a receive, or when the stream has ended.
    pub(crate) fn unpark(
        &mut self,
        message: &Parked,
        next: Option<&Parked>,
        take: impl FnOnce(&mut Receive) -> bool,
        sges: &mut Vec<Sge>,
    ) -> Option<Plan> {
        if !self.receives() {
            return None;
        }
        debug_assert!(!self.inbound.has_receive);
        self.inbound.come_before_parked = message.before;
        let taken = match self.config.shared_receive {
            true => take(&mut self.inbound.receive),
            false => self.rq.take(&mut self.inbound.receive),
        };
        if !taken {
            // Messages before this one may have got theirs.
            self.tell_received();
            return None;
        }
        let (opcode, write, whole) = (message.opcode, message.write, message.whole);
        let len = message.octets.len();
        self.inbound.has_receive = true;
        self.inbound.parked -= 1;
        self.inbound.parked_octets -= len;
        self.inbound.stalled = false;
        self.inbound.wait = if self.inbound.parked > 0 { Wait::New } else { Wait::No };
        self.inbound.oldest = next.map(|next| (next.header, next.octets.len()));
        if !whole {
            // The octets that are still to come go to the receive like those of any message.
            self.inbound.parking = None;
        }
        if matches!(opcode, Opcode::Immediate | Opcode::ImmediateSolicited) {
            let data = message.octets.first_chunk().copied().unwrap_or_default();
            self.inbound.pending = Pending::Immediate { opcode, data, write, parked: true };
            return Some(Plan::Nothing);
        }
        let header = Untagged { last: whole, mo: Mo(0), ..message.header };
        if let Err(error) = check_offset(&header, len, self.inbound.receive.capacity()) {
            let mut head = [0; UNTAGGED_LEN];
            let head_len = Header::Untagged(header).emit(&mut head);
            self.inbound.remember(&head[..head_len], head_len + len);
            self.inbound.end_receive(self.config.qp, WcStatus::LocalLength, &mut self.events);
            self.fail(error.into());
            return Some(Plan::Discard);
        }
        self.inbound.pending = Pending::Send { header, opcode, len: len as u32, parked: whole };
        sub_list(&self.inbound.receive.sges, 0, len, sges);
        Some(Plan::Local(Beyond::NOTHING))
    }
}
