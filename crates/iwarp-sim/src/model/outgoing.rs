// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages that an end sends: each for a work request or an answer that is due, in order, with
//! the right octets.

use iwarp_proto::mpa::startup::Rtr;
use iwarp_types::{AtomicOp, SendOp, Stag};

use super::{Arriving, Asking, Meaning, Model, Request, Sending, Verdict};
use crate::bank::Bank;
use crate::wire::{Segment, Target};

/// The second half of Immediate Data that belongs to a Write.
const WRITE_MARK: &[u8; 4] = b"wimm";

impl Model {
    /// The stream took a segment of this end's. Returns what it means to the peer.
    pub fn sent(&mut self, segment: Segment, bank: &Bank) -> Result<Arriving, String> {
        demand!(
            !self.gated || segment.opcode == 7,
            "a responder sends before it has received (RFC 5044 §7.1.2)"
        );
        demand!(
            !self.refuses || segment.opcode < 8,
            "opcode {:#x} where extensions are refused",
            segment.opcode
        );
        demand!(
            self.own || segment.opcode < 0xc,
            "opcode {:#x}, which was not announced",
            segment.opcode
        );
        if segment.first {
            self.sending = None;
            let sending = self.begins(&segment, bank)?;
            self.sending = Some(sending);
        }
        let Some(sending) = self.sending.clone() else {
            return Err("segment of no message".into());
        };
        let mut octets = Vec::new();
        let meaning = match sending {
            Sending::Posted(index) => {
                self.check_payload(index, &segment, bank)?;
                self.note_asking(&segment, Asking::Posted(index))?;
                let halved = matches!(self.sends[index].op, SendOp::WriteImmediate { .. });
                if segment.last {
                    let wqe = &mut self.sends[index];
                    demand!(
                        wqe.asks()
                            || matches!(wqe.op, SendOp::Immediate { .. })
                            || segment.offset as usize + segment.payload.len()
                                == wqe.length as usize,
                        "message of {} octets ends early",
                        wqe.length
                    );
                    if halved {
                        self.half = Some(index);
                    } else {
                        wqe.wire_end = Some(segment.end);
                    }
                }
                self.meaning(&segment)
            }
            Sending::Half(index) => {
                let wqe = &mut self.sends[index];
                wqe.wire_end = Some(segment.end);
                let write = self.own.then_some(wqe.length);
                match self.meaning(&segment) {
                    Meaning::Immediate { number, opcode, .. } => {
                        Meaning::Immediate { number, opcode, write }
                    }
                    other => other,
                }
            }
            Sending::Acknowledgement => {
                self.note_asking(&segment, Asking::Acknowledgement(self.wire_next))?;
                self.meaning(&segment)
            }
            Sending::Response { asked } => {
                self.check_response(&segment, bank)?;
                if segment.opcode == 0xb {
                    let old = u64::from_be_bytes(segment.payload[4..12].try_into().unwrap());
                    octets = old.to_ne_bytes().to_vec();
                }
                if segment.last {
                    self.requests.pop_front();
                }
                Meaning::Response { asked }
            }
            Sending::Received(received) => Meaning::Received(received),
            Sending::Other => {
                self.note_asking(&segment, Asking::Rtr)?;
                self.meaning(&segment)
            }
        };
        if matches!(meaning, Meaning::Write { .. } | Meaning::Send { .. })
            || (matches!(meaning, Meaning::Response { .. }) && segment.opcode == 2)
        {
            octets = segment.payload;
        } else if matches!(meaning, Meaning::Immediate { .. }) {
            // Kept for the completion: nothing of it is placed.
            octets = segment.payload;
        }
        let arriving = Arriving {
            meaning,
            end: segment.end,
            last: segment.last,
            offset: segment.offset,
            placed: 0,
            joined: false,
            octets,
        };
        if segment.last {
            let sending = self.sending.take();
            if arriving.ends_a_message() {
                self.sent_messages.push(match sending {
                    Some(Sending::Posted(index)) if self.half != Some(index) => index + 1,
                    Some(Sending::Half(index)) => index + 1,
                    Some(Sending::Posted(index)) => index,
                    _ => 0,
                });
            }
        }
        Ok(arriving)
    }

    /// An end that leaves has received everything, unless something went wrong.
    fn check_farewell(&mut self, received: u64) -> Verdict {
        self.said_farewell = true;
        self.check_count(received)?;
        let (received, all) = (received as usize, self.whole_messages.len());
        demand!(received == all || self.disturbed, "farewell: {received} of {all} received");
        Ok(())
    }

    /// Messages that this end says it has received were placed, and delivered where they need a
    /// receive.
    fn check_count(&self, received: u64) -> Verdict {
        let received = received as usize;
        let all = self.whole_messages.len();
        demand!(received <= all, "{received} messages received, {all} came");
        for recv in self.whole_messages[..received].iter().flatten() {
            let delivered =
                *recv < self.ended_recvs && self.failed_recv.is_none_or(|failed| *recv < failed);
            demand!(delivered, "the message of receive {recv} is counted");
        }
        Ok(())
    }

    /// Finds out what a message is sent for.
    fn begins(&mut self, segment: &Segment, bank: &Bank) -> Result<Sending, String> {
        demand!(
            !self.said_farewell || segment.opcode == 7,
            "opcode {:#x} behind the farewell",
            segment.opcode
        );
        let rtr = self.rtr.take();
        let is_rtr = match rtr {
            None => false,
            Some(Rtr::Write) => segment.opcode == 0 && segment.payload.is_empty(),
            Some(Rtr::Send) => segment.opcode == 3 && segment.payload.is_empty() && segment.last,
            Some(Rtr::Read) => {
                segment.opcode == 1 && segment.payload.get(12..16) == Some(&[0; 4][..])
            }
        };
        demand!(rtr.is_none() || is_rtr || segment.opcode == 7, "first FPDU is not the RTR frame");
        if is_rtr {
            if rtr == Some(Rtr::Write) && is_greeting(segment) {
                self.greets = false;
            }
            return Ok(Sending::Other);
        }
        if let Some(index) = self.half.take_if(|_| segment.opcode != 7) {
            self.check_second_half(index, segment)?;
            return Ok(Sending::Half(index));
        }
        if self.bids_farewell
            && self.disconnected
            && let Some(received) = farewell_of(segment)
        {
            self.check_farewell(received)?;
            return Ok(Sending::Received(received));
        }
        if self.bids_farewell
            && self.parks
            && let Some(received) = count_of(segment)
        {
            self.check_count(received)?;
            return Ok(Sending::Received(received));
        }
        match segment.opcode {
            1 if self.acknowledges && is_acknowledgement(segment) => Ok(Sending::Acknowledgement),
            7 => {
                let (first, code) = (segment.payload[0], segment.payload[1]);
                self.terminate = Some((first >> 4, first & 0x0f, code));
                Ok(Sending::Other)
            }
            0 if self.greets && is_greeting(segment) => {
                self.greets = false;
                Ok(Sending::Other)
            }
            0 if self.nudges && is_nudge(segment) => {
                self.nudges = false;
                Ok(Sending::Other)
            }
            2 | 0xb => {
                let (_, before) = self.requests.front().ok_or("answer to no request")?;
                demand!(
                    self.ended_recvs >= *before,
                    "answer before {before} messages were received: {} were",
                    self.ended_recvs
                );
                self.answers_begun += 1;
                Ok(Sending::Response { asked: self.answers_begun - 1 })
            }
            _ => self.next_posted(segment, bank).map(Sending::Posted),
        }
    }

    /// The message that follows the Write directly and belongs to it.
    fn check_second_half(&self, index: usize, segment: &Segment) -> Verdict {
        let SendOp::WriteImmediate { solicited, data, .. } = self.sends[index].op else {
            return Err("half of a request that has none".into());
        };
        let opcode = if solicited { 9 } else { 8 };
        demand!(
            segment.opcode == opcode,
            "opcode {:#x} between a Write and its immediate data",
            segment.opcode
        );
        let mark = if self.own { WRITE_MARK } else { &[0; 4] };
        demand!(segment.payload == [&data[..], mark].concat(), "immediate data differ");
        Ok(())
    }

    /// The work request that a message is for: they go out in the order they were posted.
    fn next_posted(&mut self, segment: &Segment, bank: &Bank) -> Result<usize, String> {
        loop {
            let index = self.wire_next;
            let Some(wqe) = self.sends.get_mut(index) else {
                return Err(format!("message {:#x} was never asked for", segment.opcode));
            };
            self.wire_next += 1;
            if wqe.is_local() {
                demand!(wqe.performed, "a message overtakes a local operation");
                continue;
            }
            let elsewhere = matches!(
                (wqe.op, segment.target),
                (SendOp::WriteImmediate { stag, to, .. }, Target::Tagged { stag: s, to: t })
                    if (stag.0, to.0) != (s, t)
            );
            let differs = wqe.opcode() != segment.opcode || elsewhere;
            if self.extensions_may_fail
                && wqe.op.extension().is_some()
                && (differs || self.check_payload(index, segment, bank).is_err())
            {
                self.sends[index].passed_over = true;
                continue;
            }
            let wqe = &self.sends[index];
            demand!(
                wqe.opcode() == segment.opcode,
                "opcode {:#x} where {:?} is next",
                segment.opcode,
                wqe.op
            );
            match (wqe.op, segment.target) {
                (
                    SendOp::Write { stag, to } | SendOp::WriteImmediate { stag, to, .. },
                    Target::Tagged { stag: s, to: t },
                ) => {
                    demand!(stag.0 == s && to.0 == t, "Write to {s:#x}, {t:#x}");
                }
                (SendOp::Send { invalidate, .. }, _) => demand!(
                    invalidate.unwrap_or_default().0 == segment.invalidate,
                    "wrong Invalidate STag"
                ),
                (SendOp::SendImmediate { data, .. }, _) => {
                    demand!(segment.invalidate.to_be_bytes() == data, "immediate data differ")
                }
                _ => {}
            }
            if wqe.fence {
                let open = self.sends[..index]
                    .iter()
                    .any(|earlier| earlier.asks() && !earlier.answered && !earlier.passed_over);
                demand!(!open, "a fenced request overtakes a Read");
            }
            return Ok(index);
        }
    }

    fn check_payload(&self, index: usize, segment: &Segment, bank: &Bank) -> Verdict {
        let wqe = &self.sends[index];
        let octets = &segment.payload[..];
        match wqe.op {
            SendOp::Write { .. }
            | SendOp::WriteImmediate { .. }
            | SendOp::Send { .. }
            | SendOp::SendImmediate { .. } => {
                let mut at = segment.offset as usize;
                if let Some(inline) = &wqe.inline {
                    demand!(
                        inline.get(at..at + octets.len()) == Some(octets),
                        "inline octets differ"
                    );
                    return Ok(());
                }
                let mut left = octets;
                for sge in &wqe.sges {
                    let size = sge.length as usize;
                    if at >= size {
                        at -= size;
                        continue;
                    }
                    let (now, later) = left.split_at(left.len().min(size - at));
                    let same = bank.judged().any(|(region, shadow)| {
                        region.stag.index() == sge.lkey.index()
                            && (sge.addr + at as u64)
                                .checked_sub(region.base)
                                .and_then(|offset| shadow.get(offset as usize..)?.get(..now.len()))
                                == Some(now)
                    });
                    demand!(same || now.is_empty(), "octets differ from what was posted");
                    left = later;
                    at = 0;
                }
                demand!(left.is_empty(), "more octets than were posted");
            }
            SendOp::Immediate { data, .. } => demand!(octets == data, "immediate data differ"),
            SendOp::Read { stag, to, .. } => {
                let same = octets[16..20] == stag.0.to_be_bytes()
                    && octets[20..28] == to.0.to_be_bytes()
                    && octets[12..16] == wqe.length.to_be_bytes();
                demand!(same, "Read Request differs from what was posted");
            }
            SendOp::Atomic { stag, to, op: posted } => {
                let (op, ..) = atomic_of(octets);
                let same = octets[8..12] == stag.0.to_be_bytes()
                    && octets[12..20] == to.0.to_be_bytes()
                    && op == posted;
                demand!(same, "Atomic Request differs from what was posted");
            }
            _ => {}
        }
        Ok(())
    }

    fn note_asking(&mut self, segment: &Segment, what: Asking) -> Verdict {
        if matches!(segment.opcode, 1 | 0xa) {
            self.asked.push(what);
            let open = &self.asked[self.answered..];
            let own = open.iter().filter(|asking| matches!(asking, Asking::Acknowledgement(_)));
            let (all, own, [ord, spare]) = (open.len(), own.count(), self.ord);
            demand!(own <= 1, "{own} acknowledgements outstanding");
            demand!(
                all <= ord + spare && (all - own <= ord || what == Asking::Rtr),
                "{all} requests outstanding, {own} for acknowledgement; ORD {ord} and {spare}"
            );
        }
        Ok(())
    }

    fn check_response(&mut self, segment: &Segment, bank: &Bank) -> Verdict {
        match self.requests.front().map(|(request, _)| request) {
            Some(Request::Read { sink, size, source, since }) if segment.opcode == 2 => {
                let Target::Tagged { stag, to } = segment.target else { unreachable!() };
                let end = segment.offset as usize + segment.payload.len();
                demand!(
                    stag == sink.0 && to == sink.1.wrapping_add(u64::from(segment.offset)),
                    "Read Response for another sink"
                );
                demand!(
                    segment.last == (end == *size as usize) && end <= *size as usize,
                    "Read Response of the wrong length"
                );
                if let Some((index, offset)) = *source
                    && !segment.payload.is_empty()
                {
                    let place = (index, offset + segment.offset as usize);
                    demand!(
                        bank.was_there(place, &segment.payload, *since),
                        "Read Response holds octets that were not there since the request came: {:?} at {place:?}, \
                         {} octets of {size}, since {since}",
                        segment.target,
                        segment.payload.len()
                    );
                }
                Ok(())
            }
            Some(Request::Atomic { id, old: Some(old), .. }) if segment.opcode == 0xb => {
                let same = segment.payload[..4] == id.to_be_bytes()
                    && segment.payload[4..] == old.to_be_bytes();
                demand!(same, "Atomic Response differs from what was performed");
                Ok(())
            }
            other => Err(format!("answer {:#x} where {other:?} is due", segment.opcode)),
        }
    }

    fn meaning(&mut self, segment: &Segment) -> Meaning {
        match (segment.opcode, segment.target) {
            (0, Target::Tagged { stag, to }) => {
                Meaning::Write { stag: Stag(stag), to: to.wrapping_sub(u64::from(segment.offset)) }
            }
            (3..=6 | 0xc | 0xd, Target::Untagged { msn, .. }) => Meaning::Send {
                number: msn.wrapping_sub(1) as usize,
                opcode: segment.opcode,
                invalidate: Stag(segment.invalidate),
            },
            (8 | 9, Target::Untagged { msn, .. }) => {
                let number = msn.wrapping_sub(1) as usize;
                Meaning::Immediate { number, opcode: segment.opcode, write: None }
            }
            (1, _) => {
                let p = &segment.payload;
                let word = |at: usize| u32::from_be_bytes(p[at..at + 4].try_into().unwrap());
                let long = |at: usize| u64::from_be_bytes(p[at..at + 8].try_into().unwrap());
                // The source is kept in `since` until the request is delivered.
                Meaning::Request(Request::Read {
                    sink: (word(0), long(4)),
                    size: word(12),
                    source: Some((word(16) as usize, long(20) as usize)),
                    since: 0,
                })
            }
            (0xa, _) => {
                let (op, id, stag, to) = atomic_of(&segment.payload);
                Meaning::Request(Request::Atomic { id, stag, to, op, old: None })
            }
            _ => Meaning::Terminate,
        }
    }
}

/// True if a zero-length Write is the one by which our kind of end makes itself known.
fn is_greeting(segment: &Segment) -> bool {
    segment.payload.is_empty() && matches!(segment.target, Target::Tagged { stag: 0x6957_4152, .. })
}

/// The number that the last frame of an end of our kind says: messages it has received.
pub(crate) fn farewell_of(segment: &Segment) -> Option<u64> {
    match (segment.opcode, segment.target) {
        (0, Target::Tagged { stag: 0x6957_4642, to }) if segment.payload.is_empty() => Some(to),
        _ => None,
    }
}

/// The number that a frame says of an end at which messages wait: messages it has received.
pub(crate) fn count_of(segment: &Segment) -> Option<u64> {
    match (segment.opcode, segment.target) {
        (0, Target::Tagged { stag: 0x6957_434e, to }) if segment.payload.is_empty() => Some(to),
        _ => None,
    }
}

/// True if a Read is of no octets and names no buffer.
fn is_acknowledgement(segment: &Segment) -> bool {
    segment.payload.get(12..) == Some(&[0; 16][..])
}

/// True if a zero-length Write is there only to be the first FPDU.
fn is_nudge(segment: &Segment) -> bool {
    segment.payload.is_empty() && segment.target == Target::Tagged { stag: 0, to: 0 }
}

/// Operation, identifier, STag and TO of an Atomic Request header.
fn atomic_of(p: &[u8]) -> (AtomicOp, u32, Stag, u64) {
    let word = |at: usize| u32::from_be_bytes(p[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_be_bytes(p[at..at + 8].try_into().unwrap());
    let op = match word(0) & 0xf {
        0 => AtomicOp::FetchAdd { add: long(20), mask: long(28) },
        _ => AtomicOp::CompareSwap {
            swap: long(20),
            swap_mask: long(28),
            compare: long(36),
            compare_mask: long(44),
        },
    };
    (op, word(4), Stag(word(8)), long(12))
}
