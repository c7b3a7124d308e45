// SPDX-License-Identifier: MIT OR Apache-2.0

//! The next thing to do.

use core::mem;

use iwarp_types::Time;

use super::Stream;
use super::action::{Action, Inline, Operation, Request, Source};
use super::form::Form;
use super::outbox::Target;
use super::queue::Use;
use crate::wire::Message;

/// A Write, and the message that goes with it.
struct Transfer {
    source: Source,
    addr: u64,
    key: u32,
}

impl Transfer {
    const NOTHING: Self = Self { source: Source::Empty, addr: 0, key: 0 };
}

impl Stream {
    /// The next action; `None` if there is nothing to do now.
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        if self.actions.is_empty() {
            self.decide(now);
        }
        if mem::take(&mut self.is_active) {
            self.idle_since = now;
        }
        self.actions.pop_front()
    }

    /// The time at which to poll for a keepalive.
    pub fn deadline(&self) -> Option<Time> {
        let is_alive = !self.is_gone && !self.ending.is_over();
        let idle = self.config.keepalive.filter(|_| is_alive)?;
        Some(self.idle_since.plus(idle))
    }

    /// Sets the time without traffic after which a keepalive goes out, from now on.
    pub fn set_keepalive(&mut self, idle: Option<core::time::Duration>) {
        self.config.keepalive = idle;
    }

    fn decide(&mut self, now: Time) {
        if self.is_disconnected {
            return;
        }
        if self.is_finished() {
            self.is_disconnected = true;
            self.actions.push_back(Action::Disconnect);
            return;
        }
        if self.receives > 0 {
            // Before the credits that they are for.
            self.actions.push_back(Action::PostReceives(mem::take(&mut self.receives)));
            return;
        }
        if self.ending.is_over() {
            return;
        }
        if self.give() || self.transfer() || self.say_end() {
            return;
        }
        // At most one look at the clock that the caller has: traffic of this turn counts first.
        if !self.is_active && self.deadline().is_some_and(|deadline| deadline <= now) {
            self.keep_alive();
        }
    }

    /// True if the queue pair is of no more use: all that this end wanted to say was taken by the
    /// transport, or the peer does not listen.
    fn is_finished(&self) -> bool {
        if self.is_gone || self.ending.is_closed_by_peer() {
            return true;
        }
        let is_taken = |id| !self.queue.is_pending(id);
        self.ending.is_over() && self.last_word.is_some_and(is_taken)
    }

    /// Gives credits, with a half of the ring if one is free.
    fn give(&mut self) -> bool {
        let has_half = self.ring.is_half_free() && !self.ending.is_read_over();
        let is_due = has_half || self.grants.is_due();
        if !is_due || !self.queue.fits(Use::Control, self.form.requests(has_half)) {
            return false;
        }
        let transfer = if has_half {
            let index = self.ring.announce();
            let entry = self.config.half_entry(index).write(self.peer_order);
            Transfer {
                source: Source::Inline(Inline::new(&entry)),
                addr: self.peer_sgl.sgl_entry_addr(index),
                key: self.peer_sgl.key,
            }
        } else {
            Transfer::NOTHING
        };
        let message = Message::Credits(self.grants.give());
        self.post_message(Use::Control, transfer, 0, message, false);
        true
    }

    /// Posts what comes next in the send buffer, and regions before the next data of the stream.
    fn transfer(&mut self) -> bool {
        let Some(segment) = self.outbox.next() else { return false };
        if let Target::Mapped { addr, key } = segment.target {
            if !self.queue.fits(Use::Transfer, 1) {
                return false;
            }
            let source = Source::Buffer(self.outbox.post(segment.len));
            let write = Operation::Write { source, addr, key, immediate: None };
            self.post(Use::Transfer, segment.len, write, false);
            return true;
        }
        if !self.credit.is_left() || !self.queue.fits(Use::Transfer, self.form.requests(true)) {
            return false;
        }
        let room = self.remote.room();
        if room == 0 {
            return false;
        }
        if self.own_maps.is_untold() {
            return self.tell_map();
        }
        let most = room.min(Message::MAX_DATA) as usize;
        let len = segment.len.min(most);
        let (addr, key) = self.remote.fill(len as u32);
        let source = Source::Buffer(self.outbox.post(len));
        self.credit.spend();
        let transfer = Transfer { source, addr, key };
        self.post_message(Use::Transfer, transfer, len, Message::Data(len as u32), false);
        true
    }

    fn tell_map(&mut self) -> bool {
        let Some((index, region)) = self.own_maps.tell() else { return false };
        let transfer = Transfer {
            source: Source::Inline(Inline::new(&region.write(self.peer_order))),
            addr: self.peer_sgl.iomap_entry_addr(index),
            key: self.peer_sgl.key,
        };
        self.credit.spend();
        self.post_message(Use::Transfer, transfer, 0, Message::Iomap(index), false);
        true
    }

    /// Says that this end writes no more, or that all is over, behind all data.
    fn say_end(&mut self) -> bool {
        let Some(control) = self.ending.due().filter(|_| self.outbox.is_posted()) else {
            return false;
        };
        if !self.queue.fits(Use::Control, self.form.requests(false)) {
            return false;
        }
        let message = Message::Control(control);
        let id = self.post_message(Use::Control, Transfer::NOTHING, 0, message, true);
        self.ending.say(control);
        self.last_word = Some(id);
        true
    }

    /// Posts an empty Write, for which the peer needs no receive (RS-KEEP-01).
    fn keep_alive(&mut self) {
        if self.queue.fits(Use::Transfer, 1) {
            let Transfer { source, addr, key } = Transfer::NOTHING;
            let write = Operation::Write { source, addr, key, immediate: None };
            self.post(Use::Transfer, 0, write, false);
        }
    }

    /// Posts a message behind its Write: the id of the last request. `octets` of the send buffer
    /// are free when it is done.
    fn post_message(
        &mut self,
        usage: Use,
        transfer: Transfer,
        octets: usize,
        message: Message,
        must_ask: bool,
    ) -> u64 {
        let Transfer { source, addr, key } = transfer;
        match self.form {
            Form::Immediate => {
                let immediate = Some(message.to_immediate());
                let write = Operation::Write { source, addr, key, immediate };
                self.post(usage, octets, write, must_ask)
            }
            Form::Send => {
                if source != Source::Empty {
                    let write = Operation::Write { source, addr, key, immediate: None };
                    self.post(usage, octets, write, false);
                }
                let send = Operation::Send(message.to_send(self.config.order));
                self.post(usage, 0, send, must_ask)
            }
        }
    }

    fn post(&mut self, usage: Use, octets: usize, operation: Operation, must_ask: bool) -> u64 {
        self.is_active = true;
        let (id, signaled) = self.queue.post(usage, octets, must_ask);
        self.actions.push_back(Action::Post(Request { id, operation, signaled }));
        id
    }
}
