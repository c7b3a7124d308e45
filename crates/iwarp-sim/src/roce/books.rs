// SPDX-License-Identifier: MIT OR Apache-2.0

//! Judges completions.

use std::net::IpAddr;

use iwarp_types::{Event, QpState, WcStatus, WorkCompletion};

use super::Kind;
use super::end::{End, GRH, Role, SLOT, Simulated};
use super::incoming::Due;
use super::run::Run;
use crate::choice::split_mix;

impl<C: Simulated> Run<'_, C> {
    /// Judges what an end tells when nothing has arrived.
    pub(super) fn judge(&mut self, e: usize) -> Result<(), String> {
        self.judge_receipt(e, Some(Vec::new()))
    }

    /// Judges what an end tells when a packet has arrived that has to bring these about.
    pub(super) fn judge_receipt(&mut self, e: usize, due: Option<Vec<Due>>) -> Result<(), String> {
        let is_foreseen = due.is_some() && self.kind != Kind::Rc && !self.hostile;
        let mut due = due.unwrap_or_default().into_iter();
        while let Some(event) = self.ends[e].core.poll_event() {
            self.note(|| format!("end {e} tells {event:?}"));
            let mut digest = self.summary.digest ^ self.now.0.as_nanos() as u64;
            self.summary.digest = split_mix(&mut digest);
            match event {
                Event::SilentSends(count) => {
                    (0..count).try_for_each(|_| self.ends[e].pass_over())?;
                }
                Event::SendCompleted(wc) => {
                    self.summary.completions += 1;
                    self.judge_send(e, &wc).map_err(|why| format!("{why}: {wc:?}"))?;
                }
                Event::ReceiveCompleted(wc) => {
                    self.summary.completions += 1;
                    let is_flushed =
                        wc.status == WcStatus::Flushed && self.ends[e].core.state() == QpState::Err;
                    let judged = match due.next() {
                        Some(due) => self.ends[e].judge_foreseen(&wc, &due),
                        None if is_flushed || !is_foreseen => self.judge_receive(e, &wc),
                        None => Err("nothing had to complete".to_owned()),
                    };
                    judged.map_err(|why| format!("end {e}: {why}: {wc:?}"))?;
                    self.summary.arrived += u64::from(wc.status == WcStatus::Success);
                }
                Event::SendQueueDrained | Event::LastReceiveReached => {}
                Event::Fault(_) | Event::Terminated(_) | Event::Lost
                    if self.hostile || (self.kind == Kind::Rc && self.may_fail(e)) => {}
                event => return Err(format!("end {e} tells {event:?}")),
            }
        }
        if let Some(due) = due.next() {
            return Err(format!("end {e} does not tell {:?}", due.wc));
        }
        // The record that is kept there grows without end.
        self.ends[e].host.touches();
        Ok(())
    }

    /// Judges what Writes have left at an end: what is foreseen, octet by octet.
    pub(super) fn judge_written(&self, e: usize) -> Result<(), String> {
        let end = &self.ends[e];
        match end.holds(Role::Target, 0, &end.target) {
            true => Ok(()),
            false => Err(format!("end {e} holds what no Write brought")),
        }
    }

    /// True if the connection may be given up: too many packets in a row were lost.
    fn may_fail(&self, e: usize) -> bool {
        !self.is_well || self.ends[e].has_failed
    }

    fn judge_send(&mut self, e: usize, wc: &WorkCompletion) -> Result<(), String> {
        let is_rc = self.kind == Kind::Rc;
        let end = &mut self.ends[e];
        let number = end.completed;
        if wc.wr_id != 2 * number as u64 {
            return Err(format!("request {number} was next"));
        }
        let posted = end.posted.get(number).ok_or("nothing is posted")?.clone();
        end.completed += 1;
        if wc.op != posted.op.completes_as() {
            return Err("wrong operation".to_owned());
        }
        if wc.status == WcStatus::Success {
            if !posted.signaled || posted.fails.is_some() {
                return Err("it may not succeed, or not say so".to_owned());
            }
            return match is_rc {
                true => self.judge_fetched(e, number),
                false if end.going.0 <= number => Err("it was not sent".to_owned()),
                false => Ok(()),
            };
        }
        end.going = end.going.max((number + 1, 0));
        let state = end.core.state();
        let is_due = match wc.status {
            WcStatus::Flushed => matches!(state, QpState::Sqe | QpState::Err),
            status if posted.fails == Some(status) => state == QpState::Sqe,
            _ if is_rc && self.hostile => true,
            WcStatus::RetryExceeded if is_rc && self.may_fail(e) => {
                self.fail_both();
                true
            }
            _ => false,
        };
        if is_due { Ok(()) } else { Err(format!("wrong status in {state:?}")) }
    }

    /// Judges a receive of which nothing is foreseen: in order, each once.
    fn judge_receive(&mut self, e: usize, wc: &WorkCompletion) -> Result<(), String> {
        let receive = self.ends[e].receives.pop_front().ok_or("no receive is posted")?;
        if receive.id != wc.wr_id {
            return Err(format!("receive {} was next", receive.id));
        }
        match self.kind {
            Kind::Rc if !self.hostile => self.judge_message(e, wc, receive),
            _ => Ok(()),
        }
    }

    /// Judges what is left when all is finished.
    pub(super) fn judge_end(&mut self) -> Result<(), String> {
        for e in 0..self.ends.len() {
            let end = &self.ends[e];
            if end.core.outstanding().0 != 0 && !end.has_failed {
                return Err(format!("sends of end {e} wait without end"));
            }
            if end.posted[end.completed..].iter().any(|posted| posted.signaled) && !end.has_failed {
                return Err(format!("end {e} has not told how all its sends ended"));
            }
            let stock = end.stock(0, super::end::STOCK);
            let mut before = vec![0; stock.len()];
            crate::choice::pattern(e as u64, &mut before);
            if stock != before {
                return Err(format!("the stock of end {e} has changed"));
            }
            match self.kind {
                _ if self.hostile => {}
                Kind::Rc => self.judge_memory(e)?,
                Kind::Uc | Kind::Ud => self.judge_written(e)?,
            }
        }
        Ok(())
    }
}

impl<C: Simulated> End<C> {
    /// A send ended well and silently.
    fn pass_over(&mut self) -> Result<(), String> {
        let number = self.completed;
        let posted = self.posted.get(number).ok_or("nothing is posted that could be silent")?;
        if posted.signaled || posted.fails.is_some() {
            return Err(format!("request {number} ended silently"));
        }
        self.completed += 1;
        Ok(())
    }

    fn judge_foreseen(&self, wc: &WorkCompletion, due: &Due) -> Result<(), String> {
        if *wc != due.wc {
            return Err(format!("{:?} was due", due.wc));
        }
        let Some(octets) = &due.octets else { return Ok(()) };
        let at = due.receive.slot * SLOT;
        if !self.holds(Role::Receives, at + due.ahead, octets) {
            return Err("wrong octets".to_owned());
        }
        let Some((source, destination)) = due.way else { return Ok(()) };
        let grh = self.octets(Role::Receives, |region| region[at..at + GRH].to_vec());
        judge_grh(&grh, source, destination, octets.len(), wc.immediate.is_some())?;
        // No octet of the buffer was touched behind the message.
        let (end, len) = (due.ahead + octets.len(), due.receive.len);
        self.octets(Role::Receives, |region| {
            let rest = &region[at + end..at + len];
            match rest.iter().all(|octet| *octet == super::end::UNTOUCHED) {
                true => Ok(()),
                false => Err("octets behind the message were touched".to_owned()),
            }
        })
    }
}

/// Judges the 40 octets ahead of a datagram.
fn judge_grh(
    grh: &[u8],
    source: IpAddr,
    destination: IpAddr,
    payload: usize,
    immediate: bool,
) -> Result<(), String> {
    let udp = 8 + 12 + 8 + if immediate { 4 } else { 0 } + payload.next_multiple_of(4) + 4;
    let word = |at: usize| usize::from(grh[at]) << 8 | usize::from(grh[at + 1]);
    let is_right = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let sum: usize = (20..40).step_by(2).map(word).sum();
            grh[..20] == [0; 20]
                && grh[20] == 0x45
                && word(22) == 20 + udp
                && grh[29] == 17
                && grh[32..36] == source.octets()
                && grh[36..] == destination.octets()
                && (sum >> 16) + (sum & 0xffff) == 0xffff
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            grh[0] >> 4 == 6
                && word(4) == udp
                && grh[6] == 17
                && grh[8..24] == source.octets()
                && grh[24..] == destination.octets()
        }
        _ => false,
    };
    if is_right { Ok(()) } else { Err(format!("wrong GRH {grh:02x?}")) }
}
