// SPDX-License-Identifier: MIT OR Apache-2.0

//! TCP connections: streams in order, and the troubles that TCP had.

mod direction;
mod facts;
mod header;
mod stall;
mod window;

use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use direction::Chunk;
pub(crate) use header::{Segment, parse};

use crate::Settings;
use crate::findings::{Findings, Moment};
use crate::iwarp::Stream;
use crate::report;
use crate::words::time;
use direction::{Arrival, Direction};
use window::Window;

/// A connection, and the iWARP in it.
#[derive(Debug)]
pub(crate) struct Connection {
    settings: Settings,
    /// The ends: that which sent the first packet, and the other.
    ends: [SocketAddr; 2],
    directions: [Direction; 2],
    windows: [Window; 2],
    /// The first end whose SYN was seen without an acknowledgement.
    opener: Option<usize>,
    stream: Stream,
    /// Bytes of each end that wait for bytes of the other.
    held: [Vec<Chunk>; 2],
    findings: Findings,
    packets: u64,
    first: Moment,
    last: Moment,
    /// The last packet but for probes.
    active: Moment,
    reset: Option<(usize, Moment)>,
}

impl Connection {
    pub(crate) fn new(ends: [SocketAddr; 2], when: Moment, settings: Settings) -> Self {
        Self {
            settings,
            ends,
            directions: Default::default(),
            windows: Default::default(),
            opener: None,
            stream: Stream::new(settings),
            held: Default::default(),
            findings: Findings::default(),
            packets: 0,
            first: when,
            last: when,
            active: when,
            reset: None,
        }
    }

    /// True if a SYN cannot belong to this connection, but opens the next one between the ends.
    pub(crate) fn is_over(&self) -> bool {
        self.reset.is_some() || self.directions.iter().any(|direction| direction.fin.is_some())
    }

    /// Takes a segment that the end `from` sent.
    pub(crate) fn segment(&mut self, from: usize, segment: &Segment<'_>, when: Moment) {
        let to = 1 - from;
        self.packets += 1;
        if segment.syn && segment.ack.is_none() {
            self.opener.get_or_insert(from);
        }
        let probing = self.windows[to].is_closed();
        let mut chunks = Vec::new();
        let before = self.silence(when.at);
        let arrival = self.directions[from].segment(segment, when, probing, &mut chunks);
        if let Some(ack) = segment.ack {
            let bare = segment.length == 0 && !segment.syn && !segment.fin && !segment.rst;
            if bare && arrival == Arrival::Empty && self.directions[to].is_duplicate(ack) {
                self.directions[from].duplicate_acks += 1;
            }
            // A reset acknowledges what its sender had, not what it has taken.
            if !segment.rst {
                self.directions[to].acknowledged(ack, when.at);
            }
        }
        // A pause in which the capture lacks packets says nothing about the ends.
        let lacks = self.directions.iter().any(Direction::is_ahead) || arrival == Arrival::Early;
        if let Some(silence) = before
            && !lacks
        {
            self.pause(&silence, from, arrival, when);
        }
        if !segment.rst && !segment.syn {
            self.window(from, segment, when);
        }
        self.held[from].append(&mut chunks);
        for side in [0, 1] {
            self.directions[side].give_up(false, when, &mut self.held[side]);
        }
        self.pass_on(false);
        if segment.rst && self.reset.is_none() {
            self.reset = Some((from, when));
        }
        self.last = when;
        if arrival != Arrival::Probe {
            self.active = when;
        }
    }

    /// Hands the bytes of both directions on. What an end sends may answer what it has received, so
    /// it waits while the capture seems to lack some of that.
    fn pass_on(&mut self, all: bool) {
        // A gap is told before what follows from it.
        let has_gap = |held: &[Chunk]| held.iter().any(|chunk| chunk.gap);
        let order = if has_gap(&self.held[1]) { [1, 0] } else { [0, 1] };
        for side in order {
            if all || !self.directions[1 - side].is_ahead() {
                let whole = self.directions[side].whole;
                for chunk in std::mem::take(&mut self.held[side]) {
                    self.stream.data(side, chunk, whole, &mut self.findings);
                }
            }
        }
    }

    fn window(&mut self, from: usize, segment: &Segment<'_>, when: Moment) {
        let scale = match (self.directions[from].scale, self.directions[1 - from].scale) {
            (Some(scale), Some(_)) => scale,
            // Both have to offer it; what was not seen is not known.
            _ => 0,
        };
        let bytes = u64::from(segment.window) << scale;
        if let Some((since, took)) = self.windows[from].announced(bytes, when) {
            self.closed(from, since, took, false);
        }
    }

    /// The window of the end `by` was closed for a time.
    fn closed(&mut self, by: usize, since: Moment, took: Duration, still: bool) {
        if took < self.settings.stall {
            return;
        }
        let how = if still { "to the end" } else { "and opened again" };
        let text = format!(
            "{}'s TCP window was closed for {} {how}: it took no bytes from the stream, and {} had \
             to wait",
            self.name(by),
            time(took),
            self.name(1 - by)
        );
        let advice = "The program or the stack at that end did not take what had arrived: look for \
                      a program that is stopped, or that posts no receives.";
        self.stream.stalled(since.at, since.at + took, 1 - by, &text);
        self.findings.trouble(since, "zero-window", by, text, advice);
    }

    /// An end, as the findings call it.
    fn name(&self, end: usize) -> String {
        self.stream.name(end)
    }

    /// Ends the reading. Gives the report, or says why there is none.
    pub(crate) fn finish(mut self) -> Result<report::Connection, NoReport> {
        for side in [0, 1] {
            self.directions[side].give_up(true, self.last, &mut self.held[side]);
        }
        self.pass_on(true);
        self.stream.complete(&mut self.findings);
        for side in [0, 1] {
            if let Some((since, took)) = self.windows[side].ends(self.last.at) {
                self.closed(side, since, took, true);
            }
        }
        if !self.stream.is_iwarp() {
            let carried = self.directions.iter().any(|direction| direction.bytes > 0);
            let unknown = carried && !self.stream.is_foreign();
            let [one, other] = self.ends;
            return Err(if unknown {
                NoReport::Unknown(format!("{one} and {other}"))
            } else {
                NoReport::Foreign
            });
        }
        self.unacknowledged();
        let ending = crate::iwarp::Ending {
            fins: [0, 1].map(|side| self.directions[side].fin),
            reset: self.reset,
            last: self.last,
        };
        self.stream.finish(&ending, &mut self.findings);
        Ok(self.report())
    }
}

/// The reason that a connection has no report.
#[derive(Debug)]
pub(crate) enum NoReport {
    /// Its bytes are not iWARP.
    Foreign,
    /// It began before the capture, and no FPDU could be made out.
    Unknown(String),
}
