// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packets of a connection.
//!
//! A stream has no packets that the library sees, so they are made up: one for each unit of MPA
//! that a call has moved, with the true addresses, order and times.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::SystemTime;

use iwarp_os::{IoPart, IoPartMut};

use super::file::{Medium, Output};
use super::frames::Frames;
use super::packet::{ACK, FIN, MOST, PSH, RST, SYN, Way};
use super::pcapng::About;
use super::{is_on, lock, output};

/// A connection, as a capture sees it. Without one it costs a load and a branch for each call that
/// moves bytes.
#[derive(Debug)]
pub(crate) struct Tap {
    /// This end has begun it.
    connects: bool,
    /// There was a capture when it began.
    is_whole: bool,
    flow: OnceLock<Box<Mutex<Flow>>>,
}

#[derive(Debug)]
struct Flow {
    /// This end, and the peer's.
    ends: [SocketAddr; 2],
    /// Of each direction, sent and received.
    numbers: [u32; 2],
    frames: [Frames; 2],
    held: [Held; 2],
    /// It goes by memory, so the end of TCP is not that of the stream.
    in_memory: [bool; 2],
    ended: [bool; 2],
    /// For the next packet.
    comments: Vec<String>,
}

/// Bytes of room that an idle connection keeps.
const SMALL: usize = 4096;

/// A unit that is not whole.
#[derive(Debug, Default)]
struct Held {
    /// Its beginning, as far as it is kept.
    octets: Vec<u8>,
    len: usize,
}

pub(super) const SENT: usize = 0;
pub(super) const RECEIVED: usize = 1;

impl Tap {
    /// Of a connection that this end has begun, or the peer.
    pub(crate) fn new(connects: bool) -> Self {
        Self { connects, is_whole: is_on(), flow: OnceLock::new() }
    }

    /// The connection, if a capture is on: what passes meanwhile comes behind what this adds.
    #[inline]
    pub(crate) fn watch(
        &self,
        ends: impl FnOnce() -> (Option<SocketAddr>, SocketAddr),
    ) -> Option<Watch<'_>> {
        if is_on() { self.watch_captured(ends) } else { None }
    }

    #[cold]
    fn watch_captured(
        &self,
        ends: impl FnOnce() -> (Option<SocketAddr>, SocketAddr),
    ) -> Option<Watch<'_>> {
        let output = output()?;
        let flow = self.flow.get_or_init(|| {
            let (local, peer) = ends();
            let mut flow = Flow::new(local.unwrap_or(peer), peer, self.connects);
            if !self.is_whole {
                flow.frames = [Frames::of_the_rest(), Frames::of_the_rest()];
            }
            let flow = Box::new(Mutex::new(flow));
            if self.is_whole {
                Watch::new(output, &flow).begin(self.connects);
            }
            flow
        });
        Some(Watch::new(output, flow))
    }

    /// The connection, if something of it was captured.
    pub(crate) fn watched(&self) -> Option<Watch<'_>> {
        if is_on() { Some(Watch::new(output()?, self.flow.get()?)) } else { None }
    }
}

impl Drop for Tap {
    /// The system ends what the connection has not ended itself.
    fn drop(&mut self) {
        if let Some(mut watch) = self.watched() {
            watch.ended(true);
        }
    }
}

impl Flow {
    fn new(local: SocketAddr, peer: SocketAddr, connects: bool) -> Self {
        Self {
            ends: [local, peer],
            // Equal in the captures of both ends, of which a reader may have both.
            numbers: if connects { [1000, 500_000] } else { [500_000, 1000] },
            frames: [Frames::new(), Frames::new()],
            held: [Held::default(), Held::default()],
            in_memory: [false; 2],
            ended: [false; 2],
            comments: Vec::new(),
        }
    }
}

/// A connection while a call moves its bytes.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    output: &'static Output,
    flow: MutexGuard<'a, Flow>,
    medium: Medium,
    /// The packet is kept whole, in spite of the snap length.
    whole: bool,
}

impl<'a> Watch<'a> {
    fn new(output: &'static Output, flow: &'a Mutex<Flow>) -> Self {
        Self { output, flow: lock(flow), medium: Medium::Stream, whole: false }
    }

    /// The bytes pass through memory that both ends share, and not by TCP. `bare`: without the CRCs
    /// that start-up has agreed on.
    pub(crate) fn by_memory(&mut self, bare: bool, sent: bool) {
        self.medium = Medium::Memory;
        self.flow.in_memory[direction(sent)] = true;
        if bare {
            self.flow.frames[direction(sent)].put_crcs();
        }
    }

    /// The connection is made, begun by this end or by the peer.
    fn begin(&mut self, connects: bool) {
        let own = direction(connects);
        self.packet(own, SYN, &[], 0);
        self.packet(1 - own, SYN | ACK, &[], 0);
        self.packet(own, ACK, &[], 0);
    }

    /// A comment for the next packet.
    pub(crate) fn comment(&mut self, text: String) {
        self.flow.comments.push(text);
    }

    /// The next `len` bytes in this direction belong to no unit of MPA. They are left out, as
    /// readers would take them for one.
    pub(crate) fn set_aside(&mut self, sent: bool, len: usize) {
        self.flow.frames[direction(sent)].set_aside(len);
    }

    /// A call has moved the first `len` bytes of these.
    pub(crate) fn moved(&mut self, sent: bool, parts: &[IoPart<'_>], len: usize) {
        let direction = direction(sent);
        let mut at = 0;
        while at < len {
            let source = Source { parts, at };
            let frames = &mut self.flow.frames[direction];
            // Readers need all of the start-up frames to make sense of what follows.
            self.whole = frames.is_in_startup();
            let piece = frames.next(len - at, |place, to| source.copy(place, to));
            if piece.asks_for_markers {
                self.flow.frames[1 - direction].put_markers();
            }
            at += piece.len;
            if piece.is_aside {
                self.comment(format!("left out before this: {} bytes of a proof", piece.len));
                continue;
            }
            let is_whole = self.is_between_units(direction);
            if is_whole && self.flow.held[direction].len == 0 {
                self.packet(direction, PSH | ACK, &[source], piece.len);
            } else {
                self.hold(direction, source, piece.len);
                if is_whole {
                    self.let_go(direction, true);
                }
            }
        }
    }

    /// Keeps a piece of a unit.
    fn hold(&mut self, direction: usize, source: Source<'_, '_>, len: usize) {
        if self.flow.held[direction].len + len > MOST {
            self.let_go(direction, false);
        }
        let snap = if self.whole { usize::MAX } else { self.snap() };
        let held = &mut self.flow.held[direction];
        let begin = held.octets.len();
        held.octets.resize(snap.min(held.len + len).max(begin), 0);
        source.copy(0, &mut held.octets[begin..]);
        held.len += len;
    }

    /// Adds the packet of a unit that was held.
    fn let_go(&mut self, direction: usize, is_whole: bool) {
        let Held { mut octets, len } = std::mem::take(&mut self.flow.held[direction]);
        if len > 0 {
            let source = Source { parts: &[IoPart::new(&octets)], at: 0 };
            self.add(direction, PSH | ACK, &[source], len, is_whole);
        }
        // Most connections are idle.
        if octets.capacity() <= SMALL {
            octets.clear();
            self.flow.held[direction].octets = octets;
        }
    }

    /// A call to receive has ended so.
    pub(crate) fn received(&mut self, parts: &mut [IoPartMut<'_>], result: &io::Result<usize>) {
        match result {
            Ok(0) => self.ended(false),
            Ok(len) => self.moved(false, IoPartMut::filled(parts), *len),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.reset(false),
            Err(_) => {}
        }
    }

    /// The stream has ended in this direction.
    pub(crate) fn ended(&mut self, sent: bool) {
        let goes_on = !sent && self.medium == Medium::Stream && self.flow.in_memory[RECEIVED];
        if !goes_on && !std::mem::replace(&mut self.flow.ended[direction(sent)], true) {
            self.let_go(direction(sent), false);
            self.packet(direction(sent), FIN | ACK, &[], 0);
        }
    }

    /// The connection was reset by this end, or by the peer.
    pub(crate) fn reset(&mut self, sent: bool) {
        if self.flow.ended != [true; 2] {
            self.flow.ended = [true; 2];
            self.let_go(SENT, false);
            self.let_go(RECEIVED, false);
            self.packet(direction(sent), RST | ACK, &[], 0);
        }
    }

    /// True if no unit of MPA in this direction has begun and is not whole.
    pub(super) fn is_between_units(&self, direction: usize) -> bool {
        self.flow.frames[direction].is_between_units()
    }

    /// Bytes of a packet that are kept.
    pub(super) const fn snap(&self) -> usize {
        self.output.snap()
    }

    /// Adds a unit of `len` bytes that was not in the stream, and begins with these.
    pub(super) fn made_up(&mut self, medium: Medium, direction: usize, unit: &[u8], len: usize) {
        let before = std::mem::replace(&mut self.medium, medium);
        let source = Source { parts: &[IoPart::new(unit)], at: 0 };
        self.add(direction, PSH | ACK, &[source], len, false);
        self.medium = before;
    }

    /// Adds a packet with `len` bytes of the source.
    fn packet(&mut self, direction: usize, flags: u8, source: &[Source<'_, '_>], len: usize) {
        self.add(direction, flags, source, len, true);
    }

    fn add(
        &mut self,
        direction: usize,
        flags: u8,
        source: &[Source<'_, '_>],
        len: usize,
        completes: bool,
    ) {
        let flow = &mut *self.flow;
        let way = Way::new(flow.ends[direction], flow.ends[1 - direction]);
        let acknowledged = if flags & ACK == 0 { 0 } else { flow.numbers[1 - direction] };
        let numbers = [flow.numbers[direction], acknowledged];
        let counted = len as u32 + u32::from(flags & (SYN | FIN) != 0);
        flow.numbers[direction] = flow.numbers[direction].wrapping_add(counted);
        let headers = way.tcp_headers();
        let about = About {
            interface: 0,
            at: SystemTime::now(),
            sent: direction == SENT,
            len: headers + len,
            comments: &std::mem::take(&mut flow.comments),
        };
        let frames = &flow.frames[direction];
        let snap = if self.whole { usize::MAX } else { self.output.snap() };
        let kept = len.min(snap.saturating_sub(headers));
        self.output.add(self.medium, about, |to| {
            way.put_tcp(to, numbers, flags, len);
            let begin = to.len();
            to.resize(begin + kept, 0);
            for source in source {
                source.copy(0, &mut to[begin..]);
            }
            if kept == len && len > 0 && completes && frames.is_between_units() {
                frames.complete(&mut to[begin..]);
            }
        });
    }
}

fn direction(sent: bool) -> usize {
    if sent { SENT } else { RECEIVED }
}

/// The bytes of some parts from a place on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'s, 'a> {
    pub(super) parts: &'s [IoPart<'a>],
    pub(super) at: usize,
}

impl Source<'_, '_> {
    /// Copies what lies `place` bytes behind its beginning. Memory that is gone reads as 0.
    pub(super) fn copy(&self, place: usize, to: &mut [u8]) {
        let mut skipped = self.at + place;
        let mut filled = 0;
        for part in self.parts {
            let skip = skipped.min(part.len());
            skipped -= skip;
            let part = part.skip(skip);
            let part = part.take(part.len().min(to.len() - filled));
            part.copy_to(&mut to[filled..filled + part.len()]);
            filled += part.len();
            if filled == to.len() {
                return;
            }
        }
    }
}
