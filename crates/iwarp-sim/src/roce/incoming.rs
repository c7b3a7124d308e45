// SPDX-License-Identifier: MIT OR Apache-2.0

//! The effects that a packet has to have: UC and UD leave nothing to chance but the network.

use std::net::IpAddr;

use iwarp_roce::wire::MULTICAST_QP;
use iwarp_types::{SourceQp, WcOp, WcStatus, WorkCompletion};

use super::Kind;
use super::end::{Coming, End, GRH, Posted, PostedReceive, SLOT, Simulated};
use super::net::Tag;
use super::run::Run;

/// A completion of a receive that is due, and what its buffer has to hold.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) wc: WorkCompletion,
    pub(super) receive: PostedReceive,
    /// Octets ahead of the message's.
    pub(super) ahead: usize,
    /// The message's octets; `None` where the buffer is left alone, or the message is broken.
    pub(super) octets: Option<Vec<u8>>,
    /// The way that a datagram has come.
    pub(super) way: Option<(IpAddr, IpAddr)>,
}

impl<C: Simulated> Run<'_, C> {
    /// The effects that a packet has to have at end `e`, before it is handed over.
    pub(super) fn foresee(&mut self, e: usize, tag: &Tag) -> Result<Vec<Due>, String> {
        let posted = self.ends[tag.from].posted[tag.message].clone();
        if !self.ends[e].hears() {
            return Ok(Vec::new());
        }
        match self.kind {
            Kind::Rc => Err("packets of RC have no tags".to_owned()),
            Kind::Ud => Ok(self.foresee_datagram(e, tag.from, &posted).into_iter().collect()),
            Kind::Uc => Ok(self.foresee_part(e, tag, &posted)),
        }
    }

    fn foresee_datagram(&mut self, e: usize, from: usize, posted: &Posted) -> Option<Due> {
        let to = posted.destination?;
        let sender = &self.ends[from];
        let key = if to.qkey >> 31 == 1 { sender.attributes.qkey } else { to.qkey };
        let (number, way) = (sender.config.qp.0, (to.address.source, to.address.destination));
        let octets = sender.stock(posted.from, posted.len);
        let end = &mut self.ends[e];
        let is_mine = match to.qp {
            MULTICAST_QP => end.groups.contains(&to.address.destination),
            to => to == end.config.qp.0,
        };
        if !is_mine || key != end.attributes.qkey {
            return None;
        }
        let receive = end.receives.front().copied()?;
        if receive.len < GRH + posted.len {
            return None;
        }
        let mut due = end.due(posted, WcOp::Recv, GRH + posted.len)?;
        due.wc.source_qp = SourceQp::new(number, way.1.is_ipv4());
        due.octets = Some(octets);
        (due.ahead, due.way) = (GRH, Some(way));
        Some(due)
    }

    /// A part of a message that is the next one of those that have come goes on with it; one that
    /// begins a message does so.
    fn foresee_part(&mut self, e: usize, tag: &Tag, posted: &Posted) -> Vec<Due> {
        let mut due = Vec::new();
        let mtu = self.ends[e].attributes.mtu.octets();
        let from = tag.part * mtu;
        let all = self.ends[tag.from].stock(posted.from, posted.len);
        let part = &all[from..posted.len.min(from + mtu)];
        let end = &mut self.ends[e];
        let before = end.coming.take();
        let goes_on = tag.part > 0
            && before
                .is_some_and(|coming| (coming.message, coming.parts) == (tag.message, tag.part));
        if !goes_on {
            due.extend(end.give_up(before));
            let may_begin = match posted.is_write() {
                true => posted.granted,
                false => !end.receives.is_empty(),
            };
            if tag.part > 0 || !may_begin {
                return due;
            }
        }
        let is_last = tag.part + 1 == tag.parts;
        let coming = Coming { message: tag.message, parts: tag.part + 1, is_send: false };
        if posted.is_write() {
            if is_last && posted.immediate().is_some() && end.receives.is_empty() {
                return due;
            }
            let at = posted.slot * SLOT + from;
            end.target[at..at + part.len()].copy_from_slice(part);
            if !is_last {
                end.coming = Some(coming);
            } else if posted.immediate().is_some() {
                due.extend(end.due(posted, WcOp::RecvWriteImmediate, posted.len));
            }
            return due;
        }
        let room = end.receives.front().map_or(0, |receive| receive.len);
        let coming = Coming { is_send: true, ..coming };
        if from + part.len() > room {
            due.extend(end.give_up(Some(coming)));
        } else if !is_last {
            end.coming = Some(coming);
        } else if let Some(mut done) = end.due(posted, WcOp::Recv, posted.len) {
            done.octets = Some(all);
            due.push(done);
        }
        due
    }
}

impl<C: Simulated> End<C> {
    /// The oldest receive has to complete with a message.
    fn due(&mut self, posted: &Posted, op: WcOp, len: usize) -> Option<Due> {
        let receive = self.receives.pop_front()?;
        let mut wc = WorkCompletion::new(receive.id, self.config.qp, op, WcStatus::Success);
        wc.byte_len = len as u32;
        wc.immediate = posted.immediate().map(|[a, b, c, d]| [a, b, c, d, 0, 0, 0, 0]);
        wc.solicited = posted.solicited();
        Some(Due { wc, receive, ahead: 0, octets: None, way: None })
    }

    /// The message that was coming does not: a receive from a shared queue ends with it.
    fn give_up(&mut self, coming: Option<Coming>) -> Option<Due> {
        if !coming?.is_send || !self.config.shared_receive {
            return None;
        }
        let receive = self.receives.pop_front()?;
        let status = WcStatus::RemoteInvalidRequest;
        let wc = WorkCompletion::new(receive.id, self.config.qp, WcOp::Recv, status);
        Some(Due { wc, receive, ahead: 0, octets: None, way: None })
    }
}
