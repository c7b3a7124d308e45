// SPDX-License-Identifier: MIT OR Apache-2.0

//! iWARP in the two directions of a TCP connection.

mod buffer;
mod ending;
mod fpdu;
mod full;
mod names;
mod reads;
mod segment;
mod sender;
mod startup;
mod terminate;
mod told;

use std::time::Duration;

use iwarp_proto::mpa::wire::{FrameKind, ULP_NEGOTIATES};

use crate::Settings;
use crate::findings::{Findings, Moment};
use crate::report::{Frame, SpanKind};
use crate::spans::Spans;
use crate::tcp::Chunk;
use crate::words::bytes;
use buffer::Buffer;
pub(crate) use ending::Ending;
use fpdu::Framing;
use names::Names;
use reads::Asking;
use sender::Sender;
use startup::{Look, Seen};

/// The stage of a direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    /// A start-up frame may come.
    #[default]
    Start,
    /// The start-up frame has come; the peer's has not.
    Waiting,
    /// FPDUs.
    Full(Framing),
    /// The framing is being searched: the start was not seen, or a length is unknown.
    Lost(Option<Framing>),
    /// Not iWARP, or beyond hope.
    Foreign,
}

/// One direction.
#[derive(Debug, Default)]
struct Direction {
    buffer: Buffer,
    stage: Stage,
    /// It is seen from its first byte on.
    whole: bool,
    fpdus: u64,
    unread: u64,
    /// The capture lacks bytes of it.
    gapped: bool,
    /// Searches that found nothing.
    fruitless: u32,
    terminated: Option<Moment>,
}

/// Packets in which the framing is searched before it is searched in later ones.
const SEARCHED: usize = 512;
/// Fruitless searches after which a direction is given up.
const SEARCHES: u32 = 8;
/// Packets up to which each new one is a reason to search.
const EAGER: usize = 16;

/// The iWARP of a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    settings: Settings,
    names: Names,
    directions: [Direction; 2],
    frames: [Option<Seen>; 2],
    senders: [Sender; 2],
    asking: [Asking; 2],
    lines: Vec<Frame>,
    spans: Spans,
    setup: Option<Duration>,
    bad_crcs: [u64; 2],
    unverified: u64,
}

impl Stream {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            names: Names::default(),
            directions: Default::default(),
            frames: [None; 2],
            senders: Default::default(),
            asking: Default::default(),
            lines: Vec::new(),
            spans: Spans::default(),
            setup: None,
            bad_crcs: [0; 2],
            unverified: 0,
        }
    }

    pub(crate) fn name(&self, end: usize) -> String {
        self.names.of(end).to_owned()
    }

    pub(crate) fn role(&self, end: usize) -> &'static str {
        self.names.role(end)
    }

    pub(crate) fn initiator(&self) -> Option<usize> {
        self.names.initiator
    }

    /// True if a start-up frame or an FPDU was seen.
    pub(crate) fn is_iwarp(&self) -> bool {
        self.frames.iter().any(Option::is_some)
            || self.directions.iter().any(|direction| direction.fpdus > 0)
    }

    /// True if the start of a direction was seen and is not iWARP's.
    pub(crate) fn is_foreign(&self) -> bool {
        self.directions.iter().any(|direction| direction.stage == Stage::Foreign)
    }

    /// A wait ends that TCP or a pause has shown.
    pub(crate) fn stalled(&mut self, from: Duration, to: Duration, who: usize, text: &str) {
        self.spans.add((from, to), who, SpanKind::Stall, text);
    }

    /// Takes bytes that the end `from` sent.
    ///
    /// `whole`: the stream is seen from its first byte on.
    pub(crate) fn data(&mut self, from: usize, chunk: Chunk, whole: bool, findings: &mut Findings) {
        if chunk.gap {
            return self.gap(from, &chunk, findings);
        }
        let direction = &mut self.directions[from];
        if direction.stage == Stage::Foreign {
            return;
        }
        // Not from its first byte on.
        if direction.stage == Stage::Start && direction.buffer.len() == 0 && chunk.at != 0 {
            direction.stage = Stage::Lost(None);
        }
        direction.whole = whole;
        direction.buffer.push(&chunk);
        // A search looks at all packets again, so it is not made for each of many.
        let packets = direction.buffer.packets();
        let lost = matches!(direction.stage, Stage::Lost(_));
        if !lost || packets <= EAGER || packets.is_power_of_two() {
            self.advance(from, findings);
        }
    }

    fn gap(&mut self, from: usize, chunk: &Chunk, findings: &mut Findings) {
        let text = format!(
            "{} of {} are missing from the capture",
            bytes(chunk.length as u64),
            self.name(from)
        );
        findings.remark(chunk.when, "capture-gap", from, text);
        let direction = &mut self.directions[from];
        direction.gapped = true;
        direction.buffer.restart(chunk.at + chunk.length as i64);
        direction.stage = match direction.stage {
            Stage::Full(framing) | Stage::Lost(Some(framing)) => Stage::Lost(Some(framing)),
            Stage::Foreign => Stage::Foreign,
            _ => Stage::Lost(None),
        };
        self.lose(from);
    }

    /// Expects nothing of what the end `from` sends next.
    fn lose(&mut self, from: usize) {
        self.senders[from].lose();
        for asking in &mut self.asking {
            asking.lose();
        }
    }

    /// Takes apart what can be.
    fn advance(&mut self, from: usize, findings: &mut Findings) {
        loop {
            match self.directions[from].stage {
                Stage::Start => {
                    if !self.start(from, findings) {
                        return;
                    }
                }
                Stage::Waiting => return,
                Stage::Full(framing) => {
                    self.full(from, framing, findings);
                    if matches!(self.directions[from].stage, Stage::Full(_)) {
                        return;
                    }
                }
                Stage::Lost(framing) => {
                    if !self.search(from, framing) {
                        return;
                    }
                }
                Stage::Foreign => {
                    self.directions[from].buffer.restart(0);
                    return;
                }
            }
        }
    }

    /// Looks for a start-up frame. True if the stage has changed.
    fn start(&mut self, from: usize, findings: &mut Findings) -> bool {
        let direction = &mut self.directions[from];
        let when = direction.buffer.moment(0);
        let len = direction.buffer.len();
        // Bytes that a snap length cut are no key.
        let known = direction.buffer.known(0, len);
        let look = startup::look(&direction.buffer.bytes()[..known], when);
        match look {
            Look::Short if known == len => return false,
            Look::Short => direction.stage = Stage::Lost(None),
            // Each iWARP stream that is seen from its first byte on begins with the key.
            Look::Foreign if direction.whole => direction.stage = Stage::Foreign,
            Look::Foreign => direction.stage = Stage::Lost(None),
            Look::Wrong(why) => {
                let text = format!("the start-up frame is wrong: {why}");
                findings.fault(when, "start-up-frame", from, text, "");
                direction.stage = Stage::Foreign;
                self.frames[from] = None;
            }
            Look::Frame(seen, used) => self.started(from, seen, used, findings),
        }
        true
    }

    fn started(&mut self, from: usize, seen: Seen, used: usize, findings: &mut Findings) {
        let direction = &mut self.directions[from];
        direction.buffer.take(used);
        direction.stage = Stage::Waiting;
        let initiator = match seen.kind {
            FrameKind::Request => from,
            FrameKind::Reply => 1 - from,
        };
        self.names.initiator.get_or_insert(initiator);
        self.frames[from] = Some(seen);
        let kind = match seen.kind {
            FrameKind::Request => "MPA Request",
            FrameKind::Reply if seen.rejected => "MPA Reply that refuses",
            FrameKind::Reply => "MPA Reply",
        };
        self.spans.add((seen.when.at, seen.when.at), from, SpanKind::Control, kind);
        self.line(seen.when, from, || {
            let Seen { rev, crc, markers, private_data, .. } = seen;
            format!(
                "{kind}: revision {rev}, CRC {}, markers {}, {private_data} bytes of private data",
                if crc { "on" } else { "off" },
                if markers { "on" } else { "off" }
            )
        });
        let (Some(one), Some(other)) = (self.frames[0], self.frames[1]) else { return };
        self.setup = Some(one.when.at.abs_diff(other.when.at));
        startup::check(self.frames, self.names, findings);
        let frames = [one, other];
        for (end, own) in frames.iter().enumerate() {
            let peer = &frames[1 - end];
            let origin = self.directions[end].buffer.place();
            // Each end asks for markers in what it receives; CRCs are used if either asks.
            let framing = Framing { crc: Some(own.crc || peer.crc), markers: peer.markers, origin };
            self.directions[end].stage = Stage::Full(framing);
            self.senders[end].begins();
            let limit = peer.enhanced.map(|word| word.ird).filter(|ird| *ird != ULP_NEGOTIATES);
            self.asking[end].limit = limit;
        }
        // The peer's bytes may have waited for this frame.
        self.advance(1 - from, findings);
    }

    /// Looks for FPDUs where the framing, or the place of the next, is not known. True if found.
    fn search(&mut self, from: usize, known: Option<Framing>) -> bool {
        let whole = |frames: &[Option<Seen>; 2]| frames.iter().all(Option::is_some);
        let uncertain = !whole(&self.frames) || known.is_some();
        let direction = &mut self.directions[from];
        let found = match known {
            Some(framing) => fpdu::resume(&direction.buffer, 0, framing).map(|at| (at, framing)),
            None => fpdu::guess(&direction.buffer),
        };
        match found {
            Some((at, framing)) => {
                direction.unread += at as u64;
                direction.buffer.take(at);
                direction.stage = Stage::Full(framing);
                if uncertain {
                    self.lose(from);
                }
                true
            }
            None => {
                if direction.buffer.packets() > SEARCHED {
                    direction.unread += direction.buffer.len() as u64;
                    let end = direction.buffer.place() + direction.buffer.len() as i64;
                    direction.buffer.restart(end);
                    direction.fruitless += 1;
                    if direction.fruitless >= SEARCHES {
                        direction.stage = Stage::Foreign;
                    }
                }
                false
            }
        }
    }

    fn line(&mut self, when: Moment, by: usize, text: impl FnOnce() -> String) {
        if self.settings.frames {
            self.lines.push(Frame { packet: when.packet, at: when.at, by, text: text() });
        }
    }

    /// The end that owes the other something, and what.
    pub(crate) fn owed(&self) -> Option<(usize, String)> {
        match self.frames {
            [Some(frame), None] | [None, Some(frame)] if frame.kind == FrameKind::Request => {
                let debtor = if self.frames[0].is_some() { 1 } else { 0 };
                return Some((debtor, "the MPA Reply".to_owned()));
            }
            _ => {}
        }
        let asked = |end: usize| Some((1 - end, self.asking[end].oldest()?));
        let oldest = asked(0).into_iter().chain(asked(1)).min_by_key(|(_, asked)| asked.when.at);
        if let Some((debtor, asked)) = oldest {
            return Some((debtor, asked.text()));
        }
        [0, 1].into_iter().find_map(|end| {
            let direction = &self.directions[end];
            if direction.gapped {
                return None;
            }
            let begun = matches!(direction.stage, Stage::Full(_)) && direction.buffer.len() > 0;
            if begun {
                return Some((end, "the rest of an FPDU".to_owned()));
            }
            let (kind, sent, _) = self.senders[end].unfinished()?;
            Some((end, format!("the rest of a {kind}, of which it had sent {}", bytes(sent))))
        })
    }

    /// All bytes have come.
    pub(crate) fn complete(&mut self, findings: &mut Findings) {
        for from in [0, 1] {
            if self.directions[from].buffer.len() > 0 {
                self.advance(from, findings);
            }
        }
    }
}
