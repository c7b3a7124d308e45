// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packets of a connection.
//!
//! A stream has no packets that the library sees, so they are made up: one for each unit of MPA
//! that a call has moved, with the true addresses, order and times.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::SystemTime;

use iwarp_os::{IoPart, IoPartMut};
use iwarp_proto::mpa::wire::MARKER_INTERVAL;

use super::file::{Medium, Output};
use super::frames::Frames;
use super::packet::{ACK, FIN, MOST, PSH, RST, SYN, Way};
use super::pcapng::About;
use super::{begun, is_on, lock, output};

/// A connection, as a capture sees it. Without one it costs a load and a branch for each call that
/// moves bytes.
#[derive(Debug)]
pub(crate) struct Tap {
    /// This end has begun it.
    connects: bool,
    /// The capture that has seen all bytes behind start-up, or one of the words below.
    since: AtomicU64,
    /// The part of start-up that no capture has seen: readers need it to make sense of the rest.
    kept: Mutex<Option<Box<Kept>>>,
    flow: OnceLock<Box<Mutex<Flow>>>,
}

/// All bytes that have passed were kept, or seen by a capture.
const STARTUP: u64 = u64::MAX;
/// Bytes have passed that were neither.
const UNKNOWN: u64 = u64::MAX - 1;

/// The next message unit of a stream in one direction, as the connection knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextUnit<'a> {
    /// The place in Full Operation at which it begins.
    pub(crate) at: u64,
    pub(crate) has_markers: bool,
    /// Bytes to come before it.
    pub(crate) rest: usize,
    /// The bytes of it, and of more behind it, that have come.
    pub(crate) begun: &'a [u8],
}

/// The bytes of start-up that have passed, of each direction.
#[derive(Debug, Default)]
struct Kept {
    octets: [Vec<u8>; 2],
    /// Bytes to come that are left out.
    aside: [usize; 2],
}

#[derive(Debug)]
struct Flow {
    /// This end, and the peer's.
    ends: [SocketAddr; 2],
    /// Of each direction, sent and received.
    numbers: [u32; 2],
    /// The numbers with which Full Operation has begun.
    full: [u32; 2],
    frames: [Frames; 2],
    held: [Held; 2],
    /// It goes by memory, so the end of TCP is not that of the stream.
    in_memory: [bool; 2],
    ended: [bool; 2],
    /// The times that a capture had begun when it was seen last.
    begun: u32,
    /// For the next packet.
    comments: Vec<String>,
}

/// Bytes that stand for those that were not seen.
const UNSEEN: u32 = 1 << 20;

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
        let since = AtomicU64::new(STARTUP);
        Self { connects, since, kept: Mutex::default(), flow: OnceLock::new() }
    }

    /// These bytes have passed in start-up, and are kept for a capture that begins later. Does
    /// nothing for want of memory, or where a capture has them.
    pub(crate) fn keep(&self, sent: bool, octets: &[u8]) {
        if self.flow.get().is_some() {
            return;
        }
        match iwarp_mem::afford() {
            Ok(()) => lock(&self.kept).get_or_insert_default().add(direction(sent), octets),
            Err(_) => self.since.store(UNKNOWN, Ordering::Relaxed),
        }
    }

    /// Bytes that pass from now on are not kept. To be called before they can; once they can, a
    /// capture that is on has to hear of [`Watch::goes_on`].
    pub(crate) fn keeps_no_more(&self) {
        let since = if is_on() { begun().into() } else { UNKNOWN };
        // Unless it is unknown already.
        let relaxed = Ordering::Relaxed;
        let _ = self.since.compare_exchange(STARTUP, since, relaxed, relaxed);
    }

    /// True if a capture that sees the connection for the first time has missed bytes.
    fn has_missed(&self) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        since != STARTUP && since != u64::from(begun())
    }

    /// The next `len` bytes in this direction belong to no unit of MPA, and are left out.
    pub(crate) fn set_aside(&self, sent: bool, len: usize) {
        if let Some(mut watch) = self.watched() {
            watch.set_aside(sent, len);
        } else if iwarp_mem::afford().is_ok() {
            lock(&self.kept).get_or_insert_default().aside[direction(sent)] = len;
        }
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
        Some(self.watch_for(output()?, ends))
    }

    /// As [`Self::watch`], for this capture.
    fn watch_for<'a>(
        &'a self,
        output: &'a Output,
        ends: impl FnOnce() -> (Option<SocketAddr>, SocketAddr),
    ) -> Watch<'a> {
        let flow = self.flow.get_or_init(|| {
            let (local, peer) = ends();
            let flow = Flow::new(local.unwrap_or(peer), peer, self.connects);
            let flow = Box::new(Mutex::new(flow));
            let kept = lock(&self.kept).take();
            let mut watch = Watch::new(output, &flow);
            match kept {
                Some(kept) => {
                    watch.begin(self.connects);
                    watch.catch_up(&kept, self.connects, self.has_missed());
                }
                None if !self.has_missed() => watch.begin(self.connects),
                None => watch.flow.frames = [Frames::of_the_rest(), Frames::of_the_rest()],
            }
            drop(watch);
            flow
        });
        Watch::new(output, flow)
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

impl Kept {
    fn add(&mut self, direction: usize, octets: &[u8]) {
        let aside = self.aside[direction].min(octets.len());
        self.aside[direction] -= aside;
        self.octets[direction].extend_from_slice(&octets[aside..]);
    }
}

impl Flow {
    fn new(local: SocketAddr, peer: SocketAddr, connects: bool) -> Self {
        Self {
            ends: [local, peer],
            // Equal in the captures of both ends, of which a reader may have both.
            numbers: if connects { [1000, 500_000] } else { [500_000, 1000] },
            full: [0; 2],
            frames: [Frames::new(), Frames::new()],
            held: [Held::default(), Held::default()],
            in_memory: [false; 2],
            ended: [false; 2],
            begun: begun(),
            comments: Vec::new(),
        }
    }

    /// Bytes have passed that were not seen, as the numbers are to say.
    fn skip(&mut self) {
        for direction in [SENT, RECEIVED] {
            if self.frames[direction].lose() {
                self.held[direction] = Held::default();
                self.numbers[direction] = self.numbers[direction].wrapping_add(UNSEEN);
            }
        }
    }
}

/// A connection while a call moves its bytes.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    output: &'a Output,
    flow: MutexGuard<'a, Flow>,
    medium: Medium,
    /// The packet is kept whole, in spite of the snap length.
    whole: bool,
}

impl<'a> Watch<'a> {
    fn new(output: &'a Output, flow: &'a Mutex<Flow>) -> Self {
        let mut flow = lock(flow);
        if flow.begun != begun() {
            // The capture had ended for a while.
            flow.begun = begun();
            flow.skip();
        }
        Self { output, flow, medium: Medium::Stream, whole: false }
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

    /// Adds what has passed in start-up before the capture: first of the end that has begun the
    /// connection. `missed`: more than that has passed.
    fn catch_up(&mut self, kept: &Kept, connects: bool, missed: bool) {
        for sent in [connects, !connects] {
            let octets = &kept.octets[direction(sent)];
            if !octets.is_empty() {
                self.comment("from before the capture began".to_owned());
                self.moved(sent, &[IoPart::new(octets)], octets.len());
            }
        }
        if missed {
            self.flow.skip();
        }
        for (frames, aside) in self.flow.frames.iter_mut().zip(kept.aside) {
            frames.set_aside(aside);
        }
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

    /// The connection says where its next unit begins, which tells nothing new to a capture that
    /// has seen all of it.
    pub(crate) fn goes_on(&mut self, sent: bool, next: NextUnit<'_>) {
        let NextUnit { at, has_markers, rest, begun } = next;
        let direction = direction(sent);
        let flow = &mut *self.flow;
        if !flow.frames[direction].resume(at, rest, has_markers) {
            return;
        }
        flow.held[direction] = Held::default();
        if has_markers {
            // Readers look for markers by the numbers.
            let right = flow.full[direction].wrapping_add(at as u32);
            let number = &mut flow.numbers[direction];
            let missing = right.wrapping_sub(*number) % MARKER_INTERVAL as u32;
            *number = number.wrapping_add(missing);
        }
        self.moved(sent, &[IoPart::new(begun)], begun.len());
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
            if piece.is_rest {
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
            if self.whole && !self.flow.frames[direction].is_in_startup() {
                self.flow.full[direction] = self.flow.numbers[direction];
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

    /// True if markers stand between the bytes of units in this direction.
    pub(super) fn has_markers(&self, direction: usize) -> bool {
        self.flow.frames[direction].has_markers()
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

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs;

    use super::*;
    use crate::Capture;

    /// A capture of the test alone: what these do with a new connection.
    fn captured(name: &str, act: impl FnOnce(&Tap, &dyn Fn(&mut dyn FnMut(Watch<'_>)))) -> String {
        let file = env::temp_dir().join(format!("iwarp-tap-{}-{name}", std::process::id()));
        let output = Output::open(Capture::to(&file)).expect("a file");
        let tap = Tap::new(true);
        let end = SocketAddr::from(([192, 0, 2, 1], 5));
        act(&tap, &|act| act(tap.watch_for(&output, || (None, end))));
        output.write_out();
        let octets = fs::read(&file).expect("a file");
        fs::remove_file(&file).expect("it goes");
        String::from_utf8_lossy(&octets).into_owned()
    }

    fn send(octets: &[u8]) -> impl FnMut(Watch<'_>) {
        move |mut watch| watch.moved(true, &[IoPart::new(octets)], octets.len())
    }

    const REQUEST: &[u8] = b"MPA ID Req Frame\x40\x02\0\0";

    #[test]
    fn bytes_are_left_out_that_were_set_aside_before_the_first() {
        let text = captured("aside", |tap, with| {
            tap.set_aside(true, 5);
            with(&mut send(b"proof"));
            with(&mut send(REQUEST));
        });
        assert!(text.contains("left out before this: 5 bytes of a proof"), "{text}");
        assert!(text.contains("MPA ID Req Frame") && !text.contains("proof\0"), "{text}");
    }

    /// They come when the capture does, which was announced when the connection began.
    #[test]
    fn bytes_are_left_out_that_were_set_aside_behind_kept_ones() {
        let text = captured("kept", |tap, with| {
            tap.keep(true, REQUEST);
            tap.set_aside(true, 5);
            tap.keep(true, b"pr");
            with(&mut send(b"oof"));
        });
        assert!(text.contains("from before the capture began"), "{text}");
        assert!(!text.contains("oof\0"), "{text}");
    }

    /// A capture that begins in start-up has seen all.
    #[test]
    fn bytes_behind_start_up_that_was_kept_whole_are_seen() {
        let text = captured("start-up", |tap, with| {
            tap.keep(true, REQUEST);
            with(&mut send(b"\0\x08message!\0\0crc."));
        });
        assert!(text.contains("MPA ID Req Frame") && text.contains("message!"), "{text}");
    }

    /// Until the connection says where a unit begins, readers would take all for one.
    #[test]
    fn bytes_of_a_unit_whose_begin_was_missed_are_left_out() {
        let text = captured("missed", |tap, with| {
            tap.keep(true, REQUEST);
            tap.keeps_no_more();
            with(&mut send(b"unseen"));
            let next = NextUnit { at: 40, has_markers: false, rest: 4, begun: b"" };
            with(&mut |mut watch| watch.goes_on(true, next));
            with(&mut send(b"rest\0\x08message!\0\0crc."));
        });
        assert!(text.contains("MPA ID Req Frame") && text.contains("message!"), "{text}");
        assert!(!text.contains("unseen") && !text.contains("rest\0"), "{text}");
    }
}
