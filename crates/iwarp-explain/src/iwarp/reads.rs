// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMA Reads and Atomics: each request and its answer.

use std::collections::VecDeque;
use std::time::Duration;

use crate::findings::{Findings, Moment};
use crate::statistics::Durations;
use crate::words::{bytes, time};

use super::names::Names;

/// A request without a whole answer.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) when: Moment,
    pub(super) atomic: Option<u32>,
    /// Sink of the answer: STag and TO.
    pub(super) sink: (u32, u64),
    pub(super) size: u64,
    /// Bytes of the answer that have come.
    got: u64,
}

impl Asked {
    pub(super) fn read(when: Moment, sink: (u32, u64), size: u64) -> Self {
        Self { when, atomic: None, sink, size, got: 0 }
    }

    pub(super) fn atomic(when: Moment, id: u32) -> Self {
        Self { when, atomic: Some(id), sink: (0, 0), size: 8, got: 0 }
    }

    pub(super) fn text(&self) -> String {
        match self.atomic {
            Some(_) => format!("the answer to the Atomic Request of packet {}", self.when.packet),
            None => format!(
                "the Read Response to the Read Request of packet {} ({})",
                self.when.packet,
                bytes(self.size)
            ),
        }
    }
}

/// The most requests that are remembered.
const OPEN: usize = 1 << 15;

/// The requests that one end has under way.
#[derive(Debug, Default)]
pub(super) struct Asking {
    open: VecDeque<Asked>,
    /// The last that was answered.
    answered: Option<Asked>,
    /// The most that may be under way, as the answering end said.
    pub(super) limit: Option<u16>,
    /// Requests may have been missed, so answers without one are no fault.
    pub(super) uncertain: bool,
    pub(super) reads: Durations,
    pub(super) atomics: Durations,
    pub(super) most: usize,
}

/// A request that an answer has completed.
pub(super) type Done = Asked;

impl Asking {
    pub(super) fn ask(&mut self, asked: Asked, by: usize, names: Names, findings: &mut Findings) {
        let when = asked.when;
        // The ready-to-receive frame of the start-up is a Read of nothing.
        let counts = asked.size > 0;
        if self.open.len() == OPEN {
            self.open.pop_front();
        }
        self.open.push_back(asked);
        if self.uncertain {
            return;
        }
        self.most = self.most.max(self.open.len());
        if let Some(limit) = self.limit
            && counts
            && self.open.len() > usize::from(limit)
        {
            let (one, other) = (names.of(by), names.of(1 - by));
            let text = format!(
                "{one} had {} Reads or Atomics under way, but {other}'s IRD is {limit}",
                self.open.len(),
            );
            let advice = "The requesting stack must hold requests back beyond the ORD that \
                          start-up agreed on; the other end may terminate the stream.";
            findings.fault(when, "ird-exceeded", by, text, advice);
        }
    }

    /// Takes a segment of a Read Response. Gives the Read that it completes.
    pub(super) fn response(
        &mut self,
        (stag, to, length, last): (u32, u64, u64, bool),
        when: Moment,
        (by, names): (usize, Names),
        findings: &mut Findings,
    ) -> Option<Done> {
        let one = names.of(by);
        let fits = |read: &Asked| {
            let place = (read.sink.0, read.sink.1.wrapping_add(read.got));
            read.atomic.is_none() && (read.size == 0 && length == 0 || place == (stag, to))
        };
        let Some(index) = self.open.iter().position(fits) else {
            self.misplaced((stag, to), when, (by, names), findings);
            return None;
        };
        if index > 0 && !self.uncertain {
            let owed = self.open[0].text();
            let text = format!("{one} passed over {owed} and answered a later one first");
            let advice = "Answers must come in the order of the requests (RFC 5040, 5.5).";
            findings.fault(when, "answers-out-of-order", by, text, advice);
        }
        let read = &mut self.open[index];
        read.got += length;
        let (got, size) = (read.got, read.size);
        if got > size || last && got < size {
            let text = format!("{one} answered a Read of {} with {}", bytes(size), bytes(got));
            let advice = "The answering stack is at fault; report it with this capture.";
            findings.fault(when, "read-response-length", by, text, advice);
        }
        if !last {
            return None;
        }
        let read = self.open.remove(index)?;
        self.reads.add(when.at.saturating_sub(read.when.at));
        self.answered = Some(read.clone());
        Some(read)
    }

    fn misplaced(
        &mut self,
        (stag, to): (u32, u64),
        when: Moment,
        (by, names): (usize, Names),
        findings: &mut Findings,
    ) {
        if self.uncertain {
            return;
        }
        let one = names.of(by);
        let twice = self.answered.as_ref().is_some_and(|read| {
            read.sink.0 == stag && (read.sink.1..=read.sink.1.wrapping_add(read.size)).contains(&to)
        });
        let advice = "The answering stack is at fault; report it with this capture.";
        if twice {
            let text = format!(
                "{one} sent a Read Response again that it had sent before (STag {stag:#010x}, TO \
                 {to:#x})"
            );
            findings.fault(when, "read-response-twice", by, text, advice);
        } else if self.open.iter().any(|asked| asked.atomic.is_none()) {
            let text = format!(
                "{one} sent a Read Response to STag {stag:#010x}, TO {to:#x}, where no Read asked \
                 for it"
            );
            findings.fault(when, "read-response-misplaced", by, text, advice);
        } else {
            let text = format!("{one} sent a Read Response without a Read Request");
            findings.fault(when, "read-response-unasked", by, text, advice);
        }
    }

    /// Takes an Atomic Response. Gives the request.
    pub(super) fn atomic_response(
        &mut self,
        id: u32,
        when: Moment,
        (by, names): (usize, Names),
        findings: &mut Findings,
    ) -> Option<Done> {
        let Some(index) = self.open.iter().position(|asked| asked.atomic == Some(id)) else {
            if !self.uncertain {
                let one = names.of(by);
                let text = format!("{one} sent an Atomic Response ({id:#x}) without a request");
                findings.fault(when, "atomic-response-unasked", by, text, "");
            }
            return None;
        };
        let asked = self.open.remove(index)?;
        self.atomics.add(when.at.saturating_sub(asked.when.at));
        Some(asked)
    }

    /// The oldest request without an answer; `None` where the answer may be missing from the
    /// capture.
    pub(super) fn oldest(&self) -> Option<&Asked> {
        self.open.front().filter(|_| !self.uncertain)
    }

    /// Forgets all requests: bytes are missing from the capture.
    pub(super) fn lose(&mut self) {
        self.uncertain = true;
        self.open.clear();
    }

    /// Judges the requests without an answer at the end.
    pub(super) fn finish(
        &self,
        (closed, excused): (bool, bool),
        last: Moment,
        stall: Duration,
        (by, names): (usize, Names),
        findings: &mut Findings,
    ) {
        let Some(asked) = self.oldest() else { return };
        let waited = last.at.saturating_sub(asked.when.at);
        let more = match self.open.len() {
            1 => String::new(),
            all => format!(", and {} more", all - 1),
        };
        let owed = asked.text();
        if excused || !closed && waited < stall {
            let text = format!("the capture ends without {owed}{more}");
            findings.remark(asked.when, "open-request", by, text);
            return;
        }
        let until = if closed { "the connection ended" } else { "the capture ended" };
        let text =
            format!("{} never sent {owed}{more}: {until} {} later", names.of(1 - by), time(waited));
        let advice = "The answering end was stopped, or closed the connection with work pending.";
        findings.fault(asked.when, "read-unanswered", 1 - by, text, advice);
    }
}
