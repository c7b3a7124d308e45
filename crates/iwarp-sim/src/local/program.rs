// SPDX-License-Identifier: MIT OR Apache-2.0

//! A program of two ends, by lot. Its outcome does not depend on when an end gets its turn: each
//! end alone writes to what it reads, and a Write to bytes that a Read has yet to fetch is fenced.

use std::ops::Range;

use iwarp::{Options, Personality};

use crate::choice::Choices;

/// Regions that each end exposes.
pub(super) const REGIONS: usize = 2;
/// Octets of a region. The peer writes into the middle part, and counts behind it.
pub(super) const REGION: usize = 48 << 10;
pub(super) const WRITTEN: Range<usize> = 16 << 10..REGION - 64;
/// Octets of the longest message.
pub(super) const MESSAGE: usize = 20 << 10;
/// Requests of an end in a part at most, and its receives.
pub(super) const REQUESTS: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Write,
    WriteImmediate,
    Read,
    Add,
    Swap,
    Send,
    SendImmediate,
    Immediate,
}

impl Kind {
    /// True if it uses a receive of the peer's.
    pub(super) const fn takes_receive(self) -> bool {
        matches!(self, Self::WriteImmediate | Self::Send | Self::SendImmediate | Self::Immediate)
    }

    /// True if an answer has to come.
    pub(super) const fn is_answered(self) -> bool {
        matches!(self, Self::Read | Self::Add | Self::Swap)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) region: usize,
    pub(super) offset: usize,
    pub(super) len: usize,
    /// Of its octets.
    pub(super) seed: u64,
    pub(super) inline: bool,
    pub(super) signaled: bool,
    pub(super) fence: bool,
    pub(super) solicited: bool,
    pub(super) wrong: Option<Wrong>,
}

/// The defect of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wrong {
    /// Another key than the region has.
    Key,
    /// The last octet lies behind the region.
    Beyond,
    /// The region has been deregistered.
    Withdrawn,
    /// An Atomic at an odd address.
    Misaligned,
    /// A message that is longer than its receive.
    TooLong,
}

/// Requests of both ends, at the end of which all is quiet.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) requests: [Vec<Request>; 2],
    /// Regions that their owners register anew before.
    pub(super) renewed: [Option<usize>; 2],
    /// An end posts all of them by one call.
    pub(super) as_list: [bool; 2],
}

/// The end of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    Quiet,
    /// That end disconnects behind the last part, which is its alone.
    Leaves(usize),
    /// The last request of the last part, which is that end's alone, is wrong.
    Fault(usize),
    /// That end writes in the last part, while the other one deregisters the memory.
    Race(usize),
    /// That end aborts the connection amid the last part.
    Aborts(usize),
}

impl Ending {
    /// True if both ends see something determined.
    pub(super) const fn is_determined(self) -> bool {
        matches!(self, Self::Quiet | Self::Leaves(_) | Self::Fault(_))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) options: Options,
    pub(super) parts: Vec<Part>,
    pub(super) ending: Ending,
}

impl Program {
    pub(super) fn draw(seed: u64) -> Self {
        let mut choices = Choices::from_seed(seed);
        let choices = &mut choices;
        let options = Options::new()
            .personality(choices.pick(&[Personality::Iwarp, Personality::Roce]))
            .crc(choices.below(2) == 0)
            .peer_to_peer(choices.one_in(4))
            .workers(choices.pick(&[1, 1, 2]));
        let mut parts: Vec<_> = (0..choices.range(1, 8)).map(|_| part(choices)).collect();
        let side = choices.below(2) as usize;
        let ending = match choices.below(8) {
            0 => Ending::Quiet,
            1 | 2 => Ending::Leaves(side),
            3..=5 => Ending::Fault(side),
            6 => Ending::Race(side),
            _ => Ending::Aborts(side),
        };
        match ending {
            Ending::Quiet => {}
            Ending::Leaves(_) => parts.push(one_way(side, choices)),
            Ending::Fault(_) => parts.push(fault(side, choices)),
            Ending::Race(_) => parts.push(race(side, choices)),
            Ending::Aborts(_) => parts.push(part(choices)),
        }
        Self { options, parts, ending }
    }

    /// True if a message waits for its receive.
    pub(super) fn waits(&self) -> bool {
        self.options.personality == Personality::Roce
    }
}

fn part(choices: &mut Choices<'_>) -> Part {
    Part {
        requests: [(); 2].map(|()| requests(choices)),
        renewed: [(); 2].map(|()| choices.one_in(6).then(|| choices.below(2) as usize)),
        as_list: [(); 2].map(|()| choices.one_in(3)),
    }
}

/// A part that is one end's alone, and has no answers.
fn one_way(side: usize, choices: &mut Choices<'_>) -> Part {
    let mut part = part(choices);
    part.requests[1 - side].clear();
    let own = &mut part.requests[side];
    own.retain(|request| !request.kind.is_answered());
    if own.is_empty() {
        own.push(Request { signaled: true, ..request(choices, Kind::Send) });
    }
    part.renewed = [None; 2];
    part
}

fn fault(side: usize, choices: &mut Choices<'_>) -> Part {
    let mut part = one_way(side, choices);
    let wrong = choices.pick(&[
        Wrong::Key,
        Wrong::Beyond,
        Wrong::Withdrawn,
        Wrong::Withdrawn,
        Wrong::Misaligned,
        Wrong::TooLong,
    ]);
    let kind = match wrong {
        Wrong::Misaligned => Kind::Add,
        Wrong::TooLong => Kind::Send,
        _ => choices.pick(&[Kind::Write, Kind::Read, Kind::Add]),
    };
    let mut last = request(choices, kind);
    (last.wrong, last.signaled) = (Some(wrong), true);
    // A request for no octets need not be right.
    last.len = last.len.max(1);
    match wrong {
        Wrong::Beyond => last.offset = REGION - last.len + 1,
        Wrong::Misaligned => last.offset += 1 + choices.below(7) as usize,
        Wrong::TooLong => (last.len, last.inline) = (MESSAGE + 1, false),
        Wrong::Withdrawn => {
            last.region = 1;
            part.requests[side].iter_mut().for_each(|request| request.region = 0);
        }
        Wrong::Key => {}
    }
    part.requests[side].truncate(REQUESTS - 1);
    part.requests[side].push(last);
    // The queue pair may take no more once the fault is known.
    part.as_list[side] = true;
    part
}

fn race(side: usize, choices: &mut Choices<'_>) -> Part {
    let mut requests: [Vec<Request>; 2] = [Vec::new(), Vec::new()];
    requests[side] = (0..REQUESTS)
        .map(|_| Request { signaled: true, region: 1, ..request(choices, Kind::Write) })
        .collect();
    Part { requests, renewed: [None; 2], as_list: [choices.one_in(3); 2] }
}

fn requests(choices: &mut Choices<'_>) -> Vec<Request> {
    let mut read: Vec<(usize, Range<usize>)> = Vec::new();
    let mut requests = Vec::new();
    for _ in 0..choices.below(REQUESTS as u64) {
        let kind = choices.pick(&[
            Kind::Write,
            Kind::Write,
            Kind::Write,
            Kind::WriteImmediate,
            Kind::Read,
            Kind::Read,
            Kind::Add,
            Kind::Swap,
            Kind::Send,
            Kind::Send,
            Kind::SendImmediate,
            Kind::Immediate,
        ]);
        let mut request = request(choices, kind);
        let range = request.offset..request.offset + request.len;
        let meets = |(region, octets): &(usize, Range<usize>)| {
            *region == request.region && octets.start < range.end && range.start < octets.end
        };
        request.fence |= kind != Kind::Read && read.iter().any(meets);
        if request.fence {
            read.clear();
        }
        if kind.is_answered() {
            read.push((request.region, range));
        }
        requests.push(request);
    }
    // When the message behind them has come, all of them have.
    if !requests.is_empty() {
        requests.push(Request { signaled: true, ..request(choices, Kind::Send) });
    }
    requests
}

fn request(choices: &mut Choices<'_>, kind: Kind) -> Request {
    let len = match kind {
        Kind::Add | Kind::Swap => 8,
        Kind::Immediate => 0,
        _ => choices.length(MESSAGE as u32) as usize,
    };
    let offset = match kind {
        Kind::Add | Kind::Swap => WRITTEN.end + 8 * choices.below(8) as usize,
        // Many requests meet others.
        _ if choices.below(2) == 0 => WRITTEN.start + choices.below(64) as usize,
        // Also where nothing is ever written.
        Kind::Read => choices.below((WRITTEN.end - len) as u64) as usize,
        _ => WRITTEN.start + choices.below((WRITTEN.len() - len) as u64) as usize,
    };
    Request {
        kind,
        region: choices.below(REGIONS as u64) as usize,
        offset,
        len,
        seed: choices.word(),
        inline: !kind.is_answered() && len <= 64 && choices.below(2) == 0,
        signaled: choices.below(2) == 0,
        fence: choices.one_in(10),
        solicited: choices.one_in(4),
        wrong: None,
    }
}
