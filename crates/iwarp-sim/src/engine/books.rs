// SPDX-License-Identifier: MIT OR Apache-2.0

//! The oracle: judges completions and memory by what was posted.

use iwarp::{WcOp, WcStatus, WorkCompletion};

use super::end::{End, Fetches, Kind, SLOT, WRITTEN};
use super::pool::Pool;
use crate::choice::pattern;

/// Two ends, and what may be asked of them.
pub(super) struct Couple {
    pub(super) ends: [End; 2],
    /// One of them has ended it, so that requests may fail.
    pub(super) is_ending: bool,
    pub(super) is_up: bool,
    /// An end has been told that it is over.
    pub(super) is_over: [bool; 2],
    /// Its id of the connection manager's, for each end.
    pub(super) ids: [Option<iwarp::cm::Id>; 2],
    pub(super) by_number: bool,
}

fn filled(len: usize, seed: u64) -> Vec<u8> {
    let mut octets = vec![0; len];
    pattern(seed, &mut octets);
    octets
}

impl Couple {
    /// True if an end has its receives from a pool.
    pub(super) fn is_shared(&self) -> bool {
        self.ends.iter().any(|end| end.is_shared)
    }

    /// Judges a completion of the end `which`.
    pub(super) fn judge(
        &mut self,
        which: usize,
        wc: &WorkCompletion,
        pool: Option<&mut Pool>,
    ) -> Result<(), String> {
        let judged = if wc.wr_id % 2 == 1 {
            self.judge_receive(which, wc, pool)
        } else {
            self.judge_send(which, wc)
        };
        judged.map_err(|why| format!("{why}: {wc:?}"))
    }

    fn judge_send(&mut self, which: usize, wc: &WorkCompletion) -> Result<(), String> {
        let good = wc.status == WcStatus::Success;
        if !good && !self.is_ending {
            return Err("a request failed on a connection that is well".to_owned());
        }
        let end = &mut self.ends[which];
        let Some(place) = end.sends.iter().position(|sent| sent.id == wc.wr_id) else {
            return Err("a completion of what was not posted, or has completed before".to_owned());
        };
        for _ in 0..place {
            let before = end.sends.pop_front().expect("counted");
            if before.signaled {
                return Err(format!("request {} has been passed over", before.id));
            }
            before.slot.into_iter().for_each(|slot| end.give_back(false, slot));
        }
        let sent = end.sends.pop_front().expect("counted");
        if good && !sent.signaled {
            return Err("a request that is not signalled says that it succeeded".to_owned());
        }
        let Some(slot) = sent.slot else { return Ok(()) };
        end.give_back(false, slot);
        match sent.fetches {
            _ if !good => {}
            Fetches::Nothing => {}
            Fetches::Octets { from, len } => {
                let fetched = self.ends[which].fetched(slot, len);
                if fetched != self.ends[1 - which].readable(from, len) {
                    return Err("a Read brought wrong octets".to_owned());
                }
            }
            Fetches::Count(count) => {
                let fetched = self.ends[which].fetched(slot, 8);
                if fetched != count.to_ne_bytes() {
                    return Err(format!("an Atomic brought {fetched:?}, not {count:#x}"));
                }
            }
        }
        Ok(())
    }

    fn judge_receive(
        &mut self,
        which: usize,
        wc: &WorkCompletion,
        mut pool: Option<&mut Pool>,
    ) -> Result<(), String> {
        let end = &mut self.ends[which];
        pool = pool.filter(|_| end.is_shared);
        let receive = match &mut pool {
            // Queue pairs that share them complete in queues of their own: no order is due.
            Some(pool) => pool.take(wc.wr_id),
            None => end.receives.pop_front(),
        };
        let Some(receive) = receive else {
            return Err("a completion of a receive that is not posted".to_owned());
        };
        if receive.id != wc.wr_id {
            return Err(format!("receive {} was next", receive.id));
        }
        if pool.is_none() {
            end.give_back(true, receive.slot);
        }
        if wc.status != WcStatus::Success {
            let why = "a receive failed on a connection that is well";
            return if self.is_ending { Ok(()) } else { Err(why.to_owned()) };
        }
        let Some(message) = self.ends[1 - which].messages.pop_front() else {
            return Err("a message that was not sent".to_owned());
        };
        let (op, len) = match message.kind {
            Kind::Send => (WcOp::Recv, message.len),
            Kind::Immediate => (WcOp::RecvImmediate, 0),
            Kind::Write => (WcOp::RecvWriteImmediate, 0),
        };
        let told = (wc.op, wc.immediate, wc.solicited);
        if told != (op, message.immediate, message.solicited) || wc.byte_len as usize != message.len
        {
            return Err(format!("{message:?} was next"));
        }
        let received = match pool {
            Some(pool) => pool.received(receive.slot, len),
            None => self.ends[which].received(receive.slot, len),
        };
        if received != filled(len, message.seed) {
            return Err(format!("wrong octets of {message:?}"));
        }
        // The Write before it, unless that has been written over since.
        if let Some(written) = message.behind
            && let Some(last) = self.ends[1 - which].writes[written.slot]
            && last.number == written.number
        {
            let there = self.ends[which].octets(WRITTEN + written.slot * SLOT, written.len);
            if there != filled(written.len, written.seed) {
                return Err(format!("{written:?} has not come before its message"));
            }
        }
        Ok(())
    }

    /// When all has arrived: what was written last to each slot is there.
    pub(super) fn judge_memory(&self) -> Result<(), String> {
        for which in 0..2 {
            for written in self.ends[which].writes.iter().flatten() {
                let peer = &self.ends[1 - which];
                let there = peer.octets(WRITTEN + written.slot * SLOT, written.len);
                if there != filled(written.len, written.seed) {
                    return Err(format!("{written:?} of end {which} has not arrived"));
                }
            }
        }
        Ok(())
    }
}
