// SPDX-License-Identifier: MIT OR Apache-2.0

//! Judges what programs of RC are told: as if the network were well.

use iwarp_types::{SendOp, WcOp, WcStatus, WorkCompletion};

use super::end::{End, PostedReceive, Role, SLOT, SLOTS, Simulated, UNTOUCHED};
use super::run::Run;

impl<C: Simulated> Run<'_, C> {
    /// The connection is broken, as it may be while the network is not well.
    pub(super) fn fail_both(&mut self) {
        self.ends.iter_mut().for_each(|end| end.has_failed = true);
    }

    /// A receive completed: the peer's next message has come, whole.
    pub(super) fn judge_message(
        &mut self,
        e: usize,
        wc: &WorkCompletion,
        receive: PostedReceive,
    ) -> Result<(), String> {
        if wc.status == WcStatus::Flushed && self.ends[e].has_failed {
            return Ok(());
        }
        let peer = &self.ends[1 - e];
        let next = peer.posted[peer.arrived..].iter().position(|posted| posted.takes_receive());
        let number = next.ok_or("a message that was not sent")? + peer.arrived;
        let posted = &peer.posted[number];
        let (op, placed) = match posted.is_write() {
            true => (WcOp::RecvWriteImmediate, 0),
            false => (WcOp::Recv, posted.len),
        };
        let mut due = WorkCompletion::new(wc.wr_id, wc.qp, op, WcStatus::Success);
        due.byte_len = posted.len as u32;
        due.immediate = posted.immediate().map(|[a, b, c, d]| [a, b, c, d, 0, 0, 0, 0]);
        due.solicited = posted.solicited();
        if *wc != due {
            return Err(format!("{due:?} was due"));
        }
        let octets = peer.stock(posted.from, placed);
        if !self.ends[e].holds(Role::Receives, receive.slot * SLOT, &octets) {
            return Err("wrong octets".to_owned());
        }
        self.judge_written_before(e, number)?;
        self.ends[1 - e].arrived = number + 1;
        Ok(())
    }

    /// Checks that the octets that the peer wrote last before its message `number` are there,
    /// unless it writes over them.
    fn judge_written_before(&self, e: usize, number: usize) -> Result<(), String> {
        let (end, peer) = (&self.ends[e], &self.ends[1 - e]);
        let Some(last) = peer.posted[..=number].iter().rposition(|posted| posted.is_write()) else {
            return Ok(());
        };
        let write = &peer.posted[last];
        let again = |later: &super::end::Posted| later.is_write() && later.slot == write.slot;
        if peer.posted[last + 1..].iter().any(again) {
            return Ok(());
        }
        match end.holds(Role::Target, write.slot * SLOT, &peer.stock(write.from, write.len)) {
            true => Ok(()),
            false => Err(format!("Write {last} has not come before message {number}")),
        }
    }

    /// A request ended well: what it had to fetch is right.
    pub(super) fn judge_fetched(&mut self, e: usize, number: usize) -> Result<(), String> {
        let posted = self.ends[e].posted[number].clone();
        let at = posted.fetched * SLOT;
        match posted.op {
            SendOp::Atomic { op, .. } => {
                let counter = &mut self.ends[e].counters[posted.slot];
                let before = *counter;
                *counter = op.apply(before);
                match self.ends[e].holds(Role::Fetched, at, &before.to_ne_bytes()) {
                    true => Ok(()),
                    false => Err(format!("Atomic {number} did not find {before:#x}")),
                }
            }
            SendOp::Read { to, .. } if posted.slot == SLOTS => {
                let from = (to.0 - Role::Stock.remote(0).1.0) as usize;
                let octets = self.ends[1 - e].stock(from, posted.len);
                match self.ends[e].holds(Role::Fetched, at, &octets) {
                    true => Ok(()),
                    false => Err(format!("Read {number} brought wrong octets")),
                }
            }
            SendOp::Read { .. } => self.ends[e].judge_read(number),
            _ => Ok(()),
        }
    }

    /// When all has ended: what was written last is there, and each Atomic counted once.
    pub(super) fn judge_memory(&self, e: usize) -> Result<(), String> {
        let (end, peer) = (&self.ends[e], &self.ends[1 - e]);
        if end.has_failed {
            return Ok(());
        }
        if peer.posted[peer.arrived..].iter().any(|posted| posted.takes_receive()) {
            return Err(format!("messages for end {e} have not arrived"));
        }
        let mut target = vec![UNTOUCHED; Role::Target.len()];
        for write in peer.posted.iter().filter(|posted| posted.is_write()) {
            let at = write.slot * SLOT;
            target[at..at + write.len].copy_from_slice(&peer.stock(write.from, write.len));
        }
        if !end.holds(Role::Target, 0, &target) {
            return Err(format!("Writes have left something else at end {e}"));
        }
        let counters: Vec<u8> =
            peer.counters.iter().flat_map(|counter| counter.to_ne_bytes()).collect();
        match end.holds(Role::Counters, 0, &counters) {
            true => Ok(()),
            false => Err(format!("Atomics have left something else at end {e}")),
        }
    }
}

impl<C: Simulated> End<C> {
    /// A Read of what this end writes to, too: each octet is what stood there when the Read was
    /// done, or done again.
    fn judge_read(&self, number: usize) -> Result<(), String> {
        let posted = &self.posted[number];
        let writes: Vec<_> = self
            .posted
            .iter()
            .enumerate()
            .filter(|(_, write)| write.is_write() && write.slot == posted.slot)
            .map(|(at, write)| (at, self.stock(write.from, write.len)))
            .collect();
        let at = posted.fetched * SLOT;
        let fetched = self.octets(Role::Fetched, |region| region[at..at + posted.len].to_vec());
        for (place, octet) in fetched.iter().enumerate() {
            let mut versions =
                writes.iter().filter_map(|(at, octets)| Some((*at, *octets.get(place)?)));
            let before = versions.clone().take_while(|(at, _)| *at < number).last();
            let then = before.map_or(UNTOUCHED, |(_, octet)| octet);
            let is_later = versions.any(|(at, later)| at > number && later == *octet);
            if *octet != then && !is_later {
                return Err(format!("Read {number} brought a wrong octet at {place}"));
            }
        }
        Ok(())
    }
}
