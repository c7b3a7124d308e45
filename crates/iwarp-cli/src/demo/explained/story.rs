// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two journals as one story.

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use super::Deed;
use super::frames::{self, Frame};
use super::journal::{Log, Piece, What};

/// One of the two processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Story {
    /// Process numbers of client and server.
    pub(crate) processes: [u32; 2],
    pub(crate) chapters: Vec<Chapter>,
}

/// An operation.
#[derive(Debug)]
pub(crate) struct Chapter {
    pub(crate) title: String,
    pub(crate) lead: String,
    pub(crate) outcomes: Vec<String>,
    pub(crate) parts: Vec<Part>,
}

/// Things that happened one after the other.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// The reason for them, if they are not the operation itself.
    pub(crate) aside: Option<String>,
    pub(crate) happened: Vec<Happened>,
}

/// Something that happened.
#[derive(Debug)]
pub(crate) struct Happened {
    /// Nanoseconds since the first event.
    pub(crate) at: u64,
    /// The side on which it happened, or from which it came.
    pub(crate) side: Side,
    pub(crate) what: Thing,
}

#[derive(Debug)]
pub(crate) enum Thing {
    Deed(Deed),
    /// A frame and how many nanoseconds it took, if it arrived.
    Frame(Frame, Option<u64>),
    /// The end of the stream from this side was received.
    End,
}

enum StoryEntry {
    Mark(What),
    Happened(Side, Thing),
}

impl Story {
    /// Makes one story of both processes' journals. The bytes that one sent must be those that the
    /// other received.
    pub(crate) fn new(client: &Log, server: &Log) -> Result<Self> {
        let mut steps: Vec<(u64, StoryEntry)> = Vec::new();
        for (side, log) in [(Side::Client, client), (Side::Server, server)] {
            steps.extend(log.events.iter().map(|event| {
                let step = match &event.what {
                    What::Deed(deed) => StoryEntry::Happened(side, Thing::Deed(deed.clone())),
                    mark => StoryEntry::Mark(mark.clone()),
                };
                (event.at, step)
            }));
        }
        for connection in Connection::all(client, server) {
            steps.extend(connection.steps()?);
        }
        // Stable: events with equal times keep their order.
        steps.sort_by_key(|(at, _)| *at);
        let began = steps.first().map_or(0, |(at, _)| *at);
        let mut story = Self { processes: [client.process, server.process], chapters: Vec::new() };
        let mut early = Vec::new();
        for (at, step) in steps {
            match step {
                StoryEntry::Mark(mark) => story.mark(mark, &mut early),
                StoryEntry::Happened(side, what) => {
                    let happened = Happened { at: at - began, side, what };
                    match story.part() {
                        Some(part) => part.happened.push(happened),
                        // The server's acts before the client began to tell.
                        None => early.push(happened),
                    }
                }
            }
        }
        for chapter in &mut story.chapters {
            chapter.parts.retain(|part| !part.happened.is_empty());
        }
        Ok(story)
    }

    fn mark(&mut self, mark: What, early: &mut Vec<Happened>) {
        let aside = match mark {
            What::Chapter { title, lead } => {
                let parts = vec![Part { aside: None, happened: std::mem::take(early) }];
                return self.chapters.push(Chapter { title, lead, outcomes: Vec::new(), parts });
            }
            What::Outcome(text) => {
                if let Some(chapter) = self.chapters.last_mut() {
                    chapter.outcomes.push(text);
                }
                return;
            }
            What::Aside(why) => Some(why),
            What::Back | What::Deed(_) => None,
        };
        if let Some(chapter) = self.chapters.last_mut() {
            chapter.parts.push(Part { aside, happened: Vec::new() });
        }
    }

    fn part(&mut self) -> Option<&mut Part> {
        self.chapters.last_mut()?.parts.last_mut()
    }
}

/// The pieces of one connection, as each end saw them.
struct Connection<'a> {
    /// Sent and received, of client and server.
    sent: [Vec<&'a Piece>; 2],
    received: [Vec<&'a Piece>; 2],
}

impl<'a> Connection<'a> {
    fn all(client: &'a Log, server: &'a Log) -> Vec<Self> {
        let count = client.pieces.iter().map(|piece| piece.connection + 1).max().unwrap_or(0);
        let all = (0..count).map(|number| {
            let own = || client.pieces.iter().filter(move |piece| piece.connection == number);
            let ends: Vec<(SocketAddr, SocketAddr)> =
                own().filter_map(|piece| Some((piece.local?, piece.peer))).collect();
            let theirs = || {
                let ends = ends.clone();
                server.pieces.iter().filter(move |piece| {
                    piece.local.is_some_and(|local| ends.contains(&(piece.peer, local)))
                })
            };
            Self {
                sent: [
                    own().filter(|piece| piece.sent).collect(),
                    theirs().filter(|piece| piece.sent).collect(),
                ],
                received: [
                    own().filter(|piece| !piece.sent).collect(),
                    theirs().filter(|piece| !piece.sent).collect(),
                ],
            }
        });
        all.collect()
    }

    fn steps(&self) -> Result<Vec<(u64, StoryEntry)>> {
        let mut steps = Vec::new();
        let sides = [Side::Client, Side::Server];
        let streams = [0, 1].map(|side| {
            let (sent, came) = (stream(&self.sent[side]), stream(&self.received[1 - side]));
            // A peer that was killed has told nothing.
            let told = !self.sent[side].is_empty();
            (if told { sent.clone() } else { came.clone() }, !told || sent.starts_with(&came))
        });
        for (side, (_, same)) in sides.into_iter().zip(&streams) {
            ensure!(*same, "other bytes were received than the {} sent", side.name());
        }
        let decoded = frames::decode([&streams[0].0, &streams[1].0]);
        for ((side, frames), number) in sides.into_iter().zip(decoded).zip(0..) {
            for frame in frames {
                let last = frame.end() - 1;
                let left = time_of(&self.sent[number], last);
                let came = time_of(&self.received[1 - number], last);
                let Some(at) = left.or(came) else { continue };
                let took = left.zip(came).map(|(left, came)| came.saturating_sub(left));
                steps.push((at, StoryEntry::Happened(side, Thing::Frame(frame, took))));
            }
            if let Some(end) = self.received[1 - number].iter().find(|piece| piece.bytes.is_empty())
            {
                steps.push((end.at, StoryEntry::Happened(side, Thing::End)));
            }
        }
        Ok(steps)
    }
}

fn stream(pieces: &[&Piece]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| &piece.bytes).copied().collect()
}

/// The time at which the byte at this place of the stream passed.
fn time_of(pieces: &[&Piece], place: usize) -> Option<u64> {
    let mut end = 0;
    let holds = |piece: &&&Piece| {
        end += piece.bytes.len();
        place < end
    };
    pieces.iter().find(holds).map(|piece| piece.at)
}
