// SPDX-License-Identifier: MIT OR Apache-2.0

//! The bytes of one direction of a TCP connection, put in order.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::findings::Moment;
use crate::statistics::Durations;

use super::header::Segment;

/// Bytes of a stream, in order.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    /// The place of the first byte in the stream.
    pub(crate) at: i64,
    /// The bytes that were kept.
    pub(crate) bytes: Vec<u8>,
    /// The bytes that there were.
    pub(crate) length: usize,
    pub(crate) when: Moment,
    /// The capture lacks all of them.
    pub(crate) gap: bool,
}

/// The meaning of a segment for its direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// No payload.
    Empty,
    /// Bytes that were not sent before, in order.
    New,
    /// Bytes behind some that are missing so far.
    Early,
    /// Missing bytes that came a moment late: packets overtook each other.
    Late,
    /// Bytes that were sent again.
    Again,
    /// A question whether the peer is still there, or whether its window has opened.
    Probe,
}

/// Missing bytes that come within this time were overtaken, not lost.
const OVERTAKEN: Duration = Duration::from_millis(3);
/// Packets after which bytes that were acknowledged and not seen are missing from the capture.
const PATIENCE: u32 = 32;
/// Segments whose times are remembered until they are acknowledged.
const TIMED: usize = 1 << 16;

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// The sequence number of the first byte.
    origin: Option<u32>,
    /// Its SYN was seen, so the stream begins in the capture.
    pub(crate) whole: bool,
    next: i64,
    highest: i64,
    pending: BTreeMap<i64, Chunk>,
    hole_since: Option<Duration>,
    ahead: Option<u32>,
    acked: i64,
    pub(crate) fin: Option<Moment>,
    /// The shift of the windows that the *sender* of this direction announces.
    pub(crate) scale: Option<u8>,
    pub(crate) mss: Option<u16>,
    sent: VecDeque<(i64, Duration)>,
    last_sent: Option<Moment>,
    pub(crate) round_trips: Durations,
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
    pub(crate) sent_again: u64,
    pub(crate) overtaken: u64,
    pub(crate) probes: u64,
    pub(crate) duplicate_acks: u64,
    pub(crate) missing: u64,
    pub(crate) syns: u64,
}

impl Direction {
    fn place(&self, seq: u32) -> i64 {
        let origin = self.origin.unwrap_or(seq);
        let highest = origin.wrapping_add(self.highest as u32);
        self.highest + i64::from(seq.wrapping_sub(highest) as i32)
    }

    /// Takes a segment that this direction's end sent. `probing`: the peer's window is closed.
    pub(crate) fn segment(
        &mut self,
        segment: &Segment<'_>,
        when: Moment,
        probing: bool,
        out: &mut Vec<Chunk>,
    ) -> Arrival {
        let first = segment.seq.wrapping_add(segment.syn.into());
        if segment.syn {
            self.syns += 1;
            self.scale = segment.scale;
            self.mss = segment.mss;
            if self.origin.is_none() {
                self.whole = true;
            }
        }
        self.origin.get_or_insert(first);
        let start = self.place(first);
        let end = start + segment.length as i64;
        if segment.fin {
            self.fin.get_or_insert(when);
        }
        if segment.length == 0 {
            let asks = start == self.highest - 1 && !segment.syn && !segment.fin && !segment.rst;
            if segment.fin {
                self.highest = self.highest.max(end + 1);
            }
            if asks {
                self.probes += 1;
                return Arrival::Probe;
            }
            return Arrival::Empty;
        }
        self.segments += 1;
        let arrival = self.judge(start, end, when.at, probing);
        match arrival {
            Arrival::Again => self.sent_again += 1,
            Arrival::Late => self.overtaken += 1,
            Arrival::Probe => self.probes += 1,
            _ => {}
        }
        if end > self.highest {
            self.bytes += (end - self.highest.max(start)) as u64;
            self.highest = end;
            if self.sent.len() < TIMED {
                self.sent.push_back((end, when.at));
            }
            self.last_sent = Some(when);
        } else {
            // The acknowledgement of bytes sent twice tells no time (RFC 6298 §3).
            self.sent.clear();
        }
        self.highest = self.highest.max(end + i64::from(segment.fin));
        if end > self.next {
            let skip = usize::try_from(self.next - start).unwrap_or(0);
            let bytes = segment.payload.get(skip..).unwrap_or_default();
            let length = segment.length - skip.min(segment.length);
            let bytes = bytes[..bytes.len().min(length)].to_vec();
            let at = start + skip as i64;
            let chunk = Chunk { at, bytes, length, when, gap: false };
            self.insert(chunk, out);
        }
        arrival
    }

    fn judge(&self, start: i64, end: i64, at: Duration, probing: bool) -> Arrival {
        if end > self.highest {
            return if start > self.next { Arrival::Early } else { Arrival::New };
        }
        if probing && end - start <= 1 {
            return Arrival::Probe;
        }
        let seen = end <= self.next || self.pending.contains_key(&start);
        if seen {
            // A keep-alive repeats the last byte.
            let asks = end - start == 1 && end == self.highest && self.acked >= end;
            return if asks { Arrival::Probe } else { Arrival::Again };
        }
        match self.hole_since {
            Some(since) if at.saturating_sub(since) >= OVERTAKEN => Arrival::Again,
            _ => Arrival::Late,
        }
    }

    fn insert(&mut self, chunk: Chunk, out: &mut Vec<Chunk>) {
        if chunk.at > self.next {
            self.hole_since.get_or_insert(chunk.when.at);
            let longer = |known: &Chunk| known.length >= chunk.length;
            if !self.pending.get(&chunk.at).is_some_and(longer) {
                self.pending.insert(chunk.at, chunk);
            }
            return;
        }
        self.deliver(chunk, out);
        self.drain(out);
    }

    fn deliver(&mut self, mut chunk: Chunk, out: &mut Vec<Chunk>) {
        let skip = usize::try_from(self.next - chunk.at).unwrap_or(0);
        if skip >= chunk.length {
            return;
        }
        chunk.bytes.drain(..skip.min(chunk.bytes.len()));
        chunk.length -= skip;
        chunk.at += skip as i64;
        self.next = chunk.at + chunk.length as i64;
        out.push(chunk);
    }

    fn drain(&mut self, out: &mut Vec<Chunk>) {
        while let Some((&at, _)) = self.pending.first_key_value() {
            if at > self.next {
                return;
            }
            if let Some((_, chunk)) = self.pending.pop_first() {
                self.deliver(chunk, out);
            }
        }
        self.hole_since = None;
        self.ahead = None;
    }

    /// Takes an acknowledgement of this direction's bytes.
    pub(crate) fn acknowledged(&mut self, ack: u32, at: Duration) {
        if self.origin.is_none() {
            self.origin = Some(ack);
        }
        let place = self.place(ack);
        let mut covered = None;
        while let Some((end, sent)) = self.sent.front().copied() {
            if end > place {
                break;
            }
            covered = Some(sent);
            self.sent.pop_front();
        }
        if let Some(sent) = covered {
            self.round_trips.add(at.saturating_sub(sent));
        }
        self.acked = self.acked.max(place);
        self.highest = self.highest.max(place);
    }

    /// Gives bytes up that the peer has and the capture has not, after some packets, or at once.
    pub(crate) fn give_up(&mut self, now: bool, when: Moment, out: &mut Vec<Chunk>) {
        let acked = self.acked_bytes();
        let behind = self.pending.first_key_value().map(|(at, _)| *at);
        let target = match behind {
            Some(at) if now => at,
            Some(at) => at.min(acked),
            None => acked,
        };
        if target <= self.next {
            self.ahead = None;
            return;
        }
        let waited = self.ahead.get_or_insert(0);
        *waited += 1;
        if !now && *waited < PATIENCE {
            return;
        }
        let length = (target - self.next) as usize;
        self.missing += length as u64;
        out.push(Chunk { at: self.next, bytes: Vec::new(), length, when, gap: true });
        self.next = target;
        self.drain(out);
    }

    /// The end of the acknowledged bytes. A FIN has a place of its own behind them.
    fn acked_bytes(&self) -> i64 {
        self.acked - i64::from(self.fin.is_some() && self.acked == self.highest)
    }

    /// True if the peer has acknowledged bytes that the capture has not shown.
    pub(super) fn is_ahead(&self) -> bool {
        self.acked_bytes() > self.next
    }

    /// Bytes that were sent and not acknowledged.
    pub(crate) fn in_flight(&self) -> u64 {
        u64::try_from(self.highest - self.acked).unwrap_or(0)
    }

    /// The last segment with new bytes.
    pub(crate) fn last_sent(&self) -> Option<Moment> {
        self.last_sent
    }

    /// True if the acknowledgement says nothing new while bytes are on their way.
    pub(crate) fn is_duplicate(&self, ack: u32) -> bool {
        self.in_flight() > 0 && self.place(ack) == self.acked && self.acked > 0
    }
}
