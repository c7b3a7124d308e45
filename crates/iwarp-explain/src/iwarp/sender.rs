// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages that one end sends, put together from segments.

use iwarp_proto::ddp::wire::Header;
use iwarp_proto::rdmap::wire::{NOT_SENT, Opcode};

use crate::findings::{Findings, Moment};
use crate::statistics::Messages;

use super::segment::Segment;

/// A message that has begun.
#[derive(Clone, Copy, Debug)]
struct Open {
    msn: u32,
    /// The offset at which the next segment belongs.
    next: u64,
    bytes: u64,
    frames: u64,
    from: Moment,
    kind: &'static str,
}

/// A message that is whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) kind: &'static str,
    pub(super) bytes: u64,
    pub(super) from: Moment,
}

/// Queues of untagged buffers.
const QUEUES: usize = 4;

/// One end's messages.
#[derive(Debug, Default)]
pub(super) struct Sender {
    pub(super) messages: Messages,
    /// The next message number of each queue, where it is known.
    next: [Option<u32>; QUEUES],
    untagged: [Option<Open>; QUEUES],
    write: Option<Open>,
    response: Option<Open>,
}

impl Sender {
    /// The stream is seen from its first FPDU on, so numbers begin at 1 (RFC 5041 §4.3).
    pub(super) fn begins(&mut self) {
        self.next = [Some(1); QUEUES];
    }

    /// Forgets what it expects: bytes are missing from the capture.
    pub(super) fn lose(&mut self) {
        self.next = Default::default();
        self.untagged = Default::default();
        self.write = None;
        self.response = None;
    }

    /// The message that has begun and is not whole, and its bytes so far.
    pub(super) fn unfinished(&self) -> Option<(&'static str, u64, Moment)> {
        let open = self.untagged.iter().flatten().chain(&self.write).chain(&self.response);
        open.map(|open| (open.kind, open.bytes, open.from)).next()
    }

    /// Takes a segment. Gives the message that it ends.
    pub(super) fn segment(
        &mut self,
        segment: &Segment,
        when: Moment,
        (by, name): (usize, &str),
        findings: &mut Findings,
    ) -> Option<Message> {
        let place = match segment.header {
            Header::Tagged(_) => match segment.opcode {
                Opcode::ReadResponse => &mut self.response,
                _ => &mut self.write,
            },
            Header::Untagged(header) => {
                let queue = header.qn.0 as usize;
                if header.msn.0 == 0 && header.rsvd_ulp[1..] == NOT_SENT {
                    // An operation within a host, between the messages that were sent.
                    let bytes = segment.asked().unwrap_or(segment.length);
                    self.messages.add(segment.kind(), bytes, 1);
                    return Some(Message { kind: segment.kind(), bytes, from: when });
                }
                self.number(queue, header.msn.0, header.mo.0, (by, name), when, findings);
                let place = self.untagged.get_mut(queue)?;
                place.get_or_insert(Open {
                    msn: header.msn.0,
                    next: u64::from(header.mo.0),
                    bytes: u64::from(header.mo.0),
                    frames: 0,
                    from: when,
                    kind: segment.kind(),
                });
                place
            }
        };
        let open = place.get_or_insert(Open {
            msn: 0,
            next: 0,
            bytes: 0,
            frames: 0,
            from: when,
            kind: segment.kind(),
        });
        open.bytes += segment.length;
        open.frames += 1;
        open.next = match segment.header {
            Header::Tagged(header) => header.to.0.wrapping_add(segment.length),
            Header::Untagged(header) => u64::from(header.mo.0) + segment.length,
        };
        if !segment.last {
            return None;
        }
        let open = place.take()?;
        let bytes = segment.asked().unwrap_or(open.bytes);
        self.messages.add(open.kind, bytes, open.frames);
        Some(Message { kind: open.kind, bytes, from: open.from })
    }

    /// Checks the number and the offset of an untagged segment.
    fn number(
        &mut self,
        queue: usize,
        msn: u32,
        mo: u32,
        (by, name): (usize, &str),
        when: Moment,
        findings: &mut Findings,
    ) {
        let advice = "The sending stack is at fault, unless the capture lacks packets; report it \
                      with this capture.";
        let (Some(open), Some(next)) = (self.untagged.get_mut(queue), self.next.get_mut(queue))
        else {
            return;
        };
        if let Some(begun) = open {
            if begun.msn == msn {
                if u64::from(mo) != begun.next {
                    let text = format!(
                        "{name} sent a segment of message {msn} of queue {queue} with offset (MO) \
                         {mo}; the one before it ended at {}",
                        begun.next
                    );
                    findings.fault(when, "wrong-offset", by, text, advice);
                }
                return;
            }
            let text = format!(
                "{name} began message {msn} of queue {queue} before the last segment of message {}",
                begun.msn
            );
            findings.fault(when, "message-unfinished", by, text, advice);
            *open = None;
        }
        if let Some(expected) = *next
            && msn != expected
        {
            let text = format!(
                "{name} sent message {msn} of queue {queue}, where message {expected} was due (MSN \
                 {})",
                if msn.wrapping_sub(expected) < 1 << 31 { "gap" } else { "repeated" }
            );
            findings.fault(when, "msn-gap", by, text, advice);
        } else if mo != 0 && next.is_some() {
            let text = format!(
                "{name} began message {msn} of queue {queue} with offset (MO) {mo} instead of 0"
            );
            findings.fault(when, "wrong-offset", by, text, advice);
        }
        *next = Some(msn.wrapping_add(1));
    }
}
