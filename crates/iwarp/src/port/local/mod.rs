// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection within the host whose bytes move from TCP to rings in memory that both processes
//! share.
//!
//! Start-up goes by TCP, and so does everything until the ends have found each other
//! (`engine/local`). Then each direction switches by itself: its sender writes into the ring's
//! memory how many bytes it has sent by TCP, and sends what follows by the ring. The receiver takes
//! so many bytes from TCP before it reads the ring. TCP stays as the *life line*: its end, or a
//! reset, says that the peer has closed or died, and counts once the ring is read out.
//!
//! If the processes may read each other's memory, an end carries out Reads by itself
//! ([`reach`](LocalPort::reach)): it copies from where the bytes lie. Each end shows the other in
//! the ring's memory which of its own may be read so, once the other has asked for some of it. What
//! lies in an arena of its process (the memory of buffers) the other maps: Reads, Writes and
//! Atomics are plain loads and stores there.
//!
//! A peer that dies sends a FIN like one that has ended in good order. The latter says in the ring
//! that it has ended, before its FIN, so a FIN without that is taken for a reset.

mod alerts;
mod annex;
mod channel;
mod shown;
mod writers;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use iwarp_mem::Span;
use iwarp_os::local::{
    Found, Heap, MappedArena, PeerMemory, ReadError, RemotePart, Ring, ShownRange,
};
use iwarp_os::{IoPart, IoPartMut, Vitals};
use iwarp_types::{Access, AtomicOp, Delivery};

pub(crate) use self::alerts::KnownQueue;
pub use self::annex::Annex;
pub(crate) use self::channel::{Channel, Passing};
pub(crate) use self::shown::{Showings, Shown};
use super::{Descriptors, Ends, Port, Readiness, Settings, Waker, WakerSlot};
use crate::capture::{self, Tap, Watch};
use crate::faults;
use crate::flaw::{self, Flaw};
use crate::port::traffic::Account;

/// Bytes of a ring for one direction, of which only those are present that were used. On a busy
/// machine an end fills the ring while the other waits for a CPU: with 512 KiB large messages were
/// slower than over TCP, whose buffers grow to some megabytes.
pub(crate) const ROOM: usize = 2 << 20;

/// The ring of a connection, and the place where the two processes tell each other of it.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) ring: Arc<Ring>,
    pub(crate) channel: Arc<Channel>,
    pub(crate) slot: u16,
}

/// Bit of the count of bytes that went by TCP: what follows in the ring has CRCs, if the connection
/// has any.
const CRC: u64 = 1 << 63;

/// The right to send by the way.
const MAY: u8 = 1;
/// With CRCs.
const MAY_WITH_CRC: u8 = 2;

/// Values of what was announced.
const MESSAGE: u8 = 1;
const SOLICITED: u8 = 2;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct LocalPort {
    line: Box<dyn Port>,
    /// Bytes that went by TCP: written by the one thread that sends, and receives.
    sent: AtomicU64,
    received: AtomicU64,
    way: OnceLock<Way>,
    /// The peer has the way as well: see [`MAY`].
    may_send: AtomicU8,
    sends: AtomicBool,
    receives: AtomicBool,
    /// Bytes have come by the way.
    came_by_way: AtomicBool,
    /// It is reset when it is closed.
    resets: AtomicBool,
    /// The life line has something to say.
    line_spoke: AtomicBool,
    /// One more than the bytes with which the peer is known to have dealt, while more is awaited.
    awaits: AtomicU64,
    /// Memory that the peer has asked for, the last of each place.
    asked: [AtomicU32; 64],
    /// The completions that the bytes bring about which are sent next: see [`Self::announce`].
    announced: AtomicU8,
    /// The peer's program was woken for what was sent last, and its worker was not.
    alerted: AtomicBool,
    /// Bytes of a segment of TCP, once that was asked for.
    segment: OnceLock<usize>,
    waker: Arc<WakerSlot>,
    account: Account,
}

impl LocalPort {
    /// A connection by TCP that may move.
    pub(crate) fn new(line: Box<dyn Port>) -> Self {
        let none = || AtomicBool::new(false);
        let account = Account::at(line.ends().local.map(|local| local.ip()));
        Self {
            line,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            way: OnceLock::new(),
            may_send: AtomicU8::new(0),
            sends: none(),
            receives: none(),
            came_by_way: none(),
            resets: none(),
            line_spoke: none(),
            awaits: AtomicU64::new(0),
            asked: [const { AtomicU32::new(0) }; 64],
            announced: AtomicU8::new(0),
            alerted: none(),
            segment: OnceLock::new(),
            waker: Arc::default(),
            account,
        }
    }

    /// The waker of the port, by which a channel knows it.
    pub(crate) const fn waker(&self) -> &Arc<WakerSlot> {
        &self.waker
    }

    /// Receives what the peer sends by the way from now on. A second one is not taken.
    pub(crate) fn set_way(&self, way: Way) -> bool {
        self.way.set(way).is_ok()
    }

    /// The memory beside the ring, once there is a way.
    pub(crate) fn annex(&self) -> Option<Annex> {
        Some(Annex::new(&self.way.get()?.ring, self.line.max_segment(), &self.account))
    }

    /// The peer has the way as well, and wants CRCs there or not.
    pub(crate) fn permit(&self, crc: bool) {
        self.may_send.store(if crc { MAY_WITH_CRC } else { MAY }, Ordering::Release);
    }

    /// True if the peer has the way as well: what is sent next goes by it.
    pub(crate) fn may_send(&self) -> bool {
        self.may_send.load(Ordering::Acquire) != 0
    }

    /// True if that has no CRCs.
    pub(crate) fn may_send_bare(&self) -> bool {
        self.may_send.load(Ordering::Acquire) == MAY
    }

    /// Sends by the way from now on, if that is possible and begins with this call: what was sent
    /// is whole messages up to here. Says whether what follows is to have CRCs.
    pub(crate) fn switch(&self) -> Option<bool> {
        let permit = self.may_send.load(Ordering::Acquire);
        let way = self.way.get().filter(|_| permit != 0)?;
        if self.sends.swap(true, Ordering::Release) {
            return None;
        }
        let crc = permit == MAY_WITH_CRC;
        way.ring.begin_at(self.sent.load(Ordering::Relaxed) | if crc { CRC } else { 0 });
        way.channel.mark(way.slot);
        Some(crc)
    }

    /// True if it sends by the way.
    #[inline]
    pub(crate) fn has_switched(&self) -> bool {
        self.sends.load(Ordering::Acquire)
    }

    /// If the bytes that were received last came by the way: whether they have CRCs.
    #[inline]
    pub(crate) fn came_with(&self) -> Option<bool> {
        let way = self.way.get().filter(|_| self.came_by_way.load(Ordering::Relaxed))?;
        Some(way.ring.peer_began_at()? & CRC != 0)
    }

    /// Tells the peer in which of the queues that it knows receives complete.
    pub(crate) fn receives_complete_in(&self, queue: &KnownQueue) {
        if let Some(way) = self.way.get() {
            way.ring.receives_complete_in(queue.number());
        }
    }

    /// Likewise, what is sent.
    pub(crate) fn sends_complete_in(&self, queue: &KnownQueue) {
        if let Some(way) = self.way.get() {
            way.ring.sends_complete_in(queue.number());
        }
    }

    /// The bytes that are sent next are all of a stretch with this delivery, which is looked at
    /// where the peer's program waits for an event.
    pub(crate) fn announce(&self, delivery: impl FnOnce() -> Delivery) {
        let queue =
            self.way_out().and_then(|way| Some((way, way.ring.peers_receives_complete_in()?)));
        if queue.is_some_and(|(way, queue)| way.channel.marks.peer_is_armed(queue)) {
            let announced = match delivery() {
                Delivery::Nothing => 0,
                Delivery::Message => MESSAGE,
                Delivery::Solicited => SOLICITED,
            };
            self.announced.store(announced, Ordering::Relaxed);
        }
    }

    /// Tells the peer that `sent` bytes were put into the ring, which are `all` that was announced
    /// or not.
    fn tell(&self, way: &Way, all: bool) {
        let announced = self.announced.load(Ordering::Relaxed);
        if announced != 0 {
            self.announced.store(0, Ordering::Relaxed);
            if all && let Some(queue) = way.ring.peers_receives_complete_in() {
                let is_solicited = announced == SOLICITED;
                let alerted = way.channel.mark_completion(way.slot, queue, is_solicited);
                self.alerted.store(alerted, Ordering::Relaxed);
                return;
            }
        }
        way.channel.mark(way.slot);
        if self.alerted.load(Ordering::Relaxed) {
            self.alerted.store(false, Ordering::Relaxed);
        }
    }

    /// All that has come was dealt with, but for the last `rest` bytes: the others are placed, and
    /// no message of them waits.
    #[inline]
    pub(crate) fn settle(&self, rest: u64) {
        if self.receives.load(Ordering::Relaxed)
            && let Some(way) = self.way.get()
            && way.ring.settle(rest)
        {
            // Mostly a request of the peer's completes.
            match way.ring.peers_sends_complete_in() {
                Some(queue) => _ = way.channel.mark_completion(way.slot, queue, false),
                None => way.channel.mark(way.slot),
            }
        }
    }

    /// The bytes with which the peer has dealt of those that went by the way, once it says so.
    #[inline]
    pub(crate) fn dealt_with(&self) -> Option<u64> {
        self.way_out()?.ring.peer_settled()
    }

    /// Has the port woken, and ready, when the peer has dealt with more than so many bytes of
    /// those. False where it has already: the port is ready, and no thread is woken.
    #[must_use]
    pub(crate) fn await_dealing(&self, upto: u64) -> bool {
        self.awaits.store(upto.saturating_add(1), Ordering::SeqCst);
        self.way_out().is_none_or(|way| way.ring.await_peer(upto))
    }

    /// True if the peer's program was woken for what was sent last, and its worker was not.
    pub(crate) fn has_alerted(&self) -> bool {
        self.alerted.load(Ordering::Relaxed)
    }

    /// Has the peer's worker deal with what was sent, if nothing but its program was woken, which
    /// may be long in coming.
    pub(crate) fn hurry(&self) {
        if let Some(way) = self.way_out().filter(|_| self.alerted.swap(false, Ordering::Relaxed)) {
            way.channel.mark(way.slot);
        }
    }

    /// Ends that. To be called before the peer's word is looked at.
    pub(crate) fn await_no_dealing(&self) {
        self.awaits.store(0, Ordering::SeqCst);
    }

    /// True if the peer has dealt with more than what was [awaited](Self::await_dealing).
    #[inline]
    pub(crate) fn has_dealt(&self) -> bool {
        let awaits = self.awaits.load(Ordering::Acquire);
        awaits != 0 && self.dealt_with().is_some_and(|upto| upto >= awaits)
    }

    /// Prepares [`Self::show`] for memory of which the peer may map the arena. False if it is in
    /// none. Not to be called with locks that the worker waits for.
    pub(crate) fn prepare_to_show(&self, memory: Span) -> bool {
        let place = Heap::find(memory.addr, memory.len);
        if let (Some(way), Some(place)) = (self.way.get(), place) {
            way.channel.pass_arena(place.arena);
        }
        place.is_some()
    }

    /// The peer may access this memory of the process, if it can, with these rights. To be called
    /// while the caller has a guard for it.
    pub(crate) fn show(&self, key: u32, first: u64, memory: Span, access: Access) {
        let Some(way) = self.way.get() else { return };
        let Some(shown) = way.channel.shown() else { return };
        let place = Heap::find(memory.addr, memory.len);
        let place = place.filter(|place| {
            way.channel.has_passed(place.arena) && shown.let_write(&way.ring, &way.channel)
        });
        let range = ShownRange {
            key,
            first,
            len: memory.len as u64,
            address: memory.addr as u64,
            revocations: shown.revocations(),
            place,
            access,
        };
        if way.ring.show(&range) {
            let is_mapped = place.is_some();
            tracing::debug!(
                key,
                len = memory.len,
                is_mapped,
                "the peer may access memory by itself"
            );
        }
    }

    /// True if the peer has asked for this memory before, not long ago. Showing it costs more than
    /// a Read, and many programs register memory for one only.
    pub(crate) fn is_asked_again(&self, key: u32) -> bool {
        let last = &self.asked[(key >> 8) as usize % self.asked.len()];
        last.swap(key, Ordering::Relaxed) == key
    }

    /// True if the peer is shown this memory, and none was revoked since.
    pub(crate) fn shows(&self, key: u32) -> bool {
        let shown = |way: &Way| {
            let revocations = way.channel.shown()?.revocations();
            Some(way.ring.showing(key)?.revocations == revocations)
        };
        self.way.get().and_then(shown).unwrap_or(false)
    }

    /// An object whose drop empties the table of what the peer is shown.
    pub(crate) fn end_of_showing(&self) -> Option<EndOfShowing> {
        let Way { ring, channel, .. } = self.way.get()?;
        Some(EndOfShowing { ring: Arc::clone(ring), channel: Arc::clone(channel) })
    }

    /// This end has read so many bytes of the peer's memory.
    pub(crate) fn count_read(&self, len: usize) {
        self.account.received(len, || self.packets(len));
    }

    /// This end has written so many bytes into the peer's memory.
    pub(crate) fn count_written(&self, len: usize) {
        self.account.sent(len, || self.packets(len));
    }

    /// True if this process can read the peer's memory. Not where bytes become visible as rules
    /// say: the process that has the rules places them itself, and all others leave it to that.
    pub(crate) fn may_read(&self) -> bool {
        self.way.get().is_some_and(|way| way.channel.peer().is_some()) && !faults::are_placing()
    }

    /// True if the peer can read memory of this process; not with such rules either.
    #[inline]
    pub(crate) fn may_show(&self) -> bool {
        self.way.get().is_some_and(|way| way.channel.shown().is_some()) && !faults::are_placing()
    }

    /// The peer accesses nothing by itself any more that it was shown: nothing counts that it
    /// copies from now on, and it stores nothing.
    pub(crate) fn show_nothing(&self) {
        if let Some(way) = self.way.get() {
            writers::show_nothing(&way.ring, &way.channel);
        }
    }

    /// The `len` bytes of the peer's memory from `first` on, by that name, if this process can
    /// access them in this way, the peer shows them, and it has dealt with all that was sent.
    #[inline]
    pub(crate) fn reach(
        &self,
        key: u32,
        first: u64,
        len: usize,
        access: Access,
    ) -> Option<Reach<'_>> {
        let may = self.is_settled() || flaw::is(Flaw::DirectOvertakes);
        if may { self.shown(key, first, len, access) } else { None }
    }

    /// True if the peer has dealt with all that was sent. False is no promise: it says so only once
    /// it was asked here.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.way_out().is_some_and(|way| way.ring.is_settled())
    }

    /// As [`Self::reach`], also before the peer has dealt with all that was sent.
    #[inline]
    pub(crate) fn shown(
        &self,
        key: u32,
        first: u64,
        len: usize,
        access: Access,
    ) -> Option<Reach<'_>> {
        let way = self.way_out()?;
        let peer = way.channel.peer()?;
        // Mostly the core knows of an end first.
        if way.ring.is_ended() || way.channel.is_over() {
            return None;
        }
        let (range, found) = way.ring.shown(key)?;
        let at = first.checked_sub(range.first)?;
        let is_within = at.checked_add(len as u64).is_some_and(|end| end <= range.len);
        let part = RemotePart::new(range.address.checked_add(at)?, len as u64)?;
        let mapped = range.place.and_then(|place| {
            Some((way.channel.arena(place.arena)?, place.offset.checked_add(at)?))
        });
        let may =
            is_within && range.access.contains(access) && (mapped.is_some() || peer.is_read());
        may.then_some(Reach { way, peer, part, mapped, range, found })
    }

    /// The descriptor of TCP was reported ready.
    pub(crate) fn line_speaks(&self) {
        if self.way.get().is_some() {
            self.line_spoke.store(true, Ordering::Release);
        }
    }

    /// The way, once all that came by TCP before it was received.
    #[inline]
    fn way_in(&self) -> Option<&Way> {
        let way = self.way.get()?;
        if !self.receives.load(Ordering::Relaxed) {
            if way.ring.peer_began_at()? & !CRC != self.received.load(Ordering::Relaxed) {
                return None;
            }
            self.receives.store(true, Ordering::Relaxed);
        }
        Some(way)
    }

    fn way_out(&self) -> Option<&Way> {
        self.way.get().filter(|_| self.has_switched())
    }

    /// Packets that TCP would have made of so many bytes.
    fn packets(&self, octets: usize) -> usize {
        // TCP is idle by now, and to ask the system costs more than most messages do here.
        let segment = self.segment.get_or_init(|| self.line.max_segment().max(1));
        octets.div_ceil(*segment)
    }

    /// The connection, where a capture is on.
    #[cold]
    pub(crate) fn watch(&self) -> Option<Watch<'_>> {
        let ends = || {
            let Ends { local, peer } = self.line.ends();
            (local, peer)
        };
        self.line.tap()?.watch(ends)
    }

    fn receive_by(&self, way: &Way, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        match way.ring.recv(parts) {
            Ok(n) => {
                self.taken(way, parts, n);
                Ok(n)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let spoke = self.line_spoke.swap(false, Ordering::AcqRel);
                if spoke || way.channel.is_over() {
                    return self.hear_line(way, parts);
                }
                Err(error)
            }
            error => error,
        }
    }

    /// Bytes were received by the way.
    #[inline]
    fn taken(&self, way: &Way, parts: &mut [IoPartMut<'_>], n: usize) {
        self.came_by_way.store(true, Ordering::Relaxed);
        if capture::is_on() {
            self.tell_taken(parts, n);
        }
        self.account.received(n, || self.packets(n));
        if way.ring.owes_room() {
            way.channel.mark(way.slot);
        }
    }

    /// Tells the capture.
    #[cold]
    fn tell_taken(&self, parts: &mut [IoPartMut<'_>], n: usize) {
        if let Some(mut watch) = self.watch() {
            watch.by_memory(self.came_with() == Some(false), false);
            watch.received(parts, &Ok(n));
        }
    }

    /// Sends by the way, with the capture locked.
    #[cold]
    fn send_watched(&self, way: &Way, parts: &[IoPart<'_>]) -> io::Result<usize> {
        let watch = self.watch();
        let sent = way.ring.send(parts)?;
        if let Some(mut watch) = watch {
            watch.by_memory(self.may_send_bare(), true);
            watch.moved(true, parts, sent);
        }
        Ok(sent)
    }

    /// The ring is empty, and the life line may have ended.
    #[cold]
    fn hear_line(&self, way: &Way, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        let error = match self.line.recv(&mut [IoPartMut::new(&mut [0])]) {
            Ok(0) => io::ErrorKind::ConnectionReset.into(),
            // Bytes behind those that the peer has counted.
            Ok(_) => io::ErrorKind::InvalidData.into(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !way.channel.is_over() {
                    return Err(error);
                }
                io::ErrorKind::ConnectionReset.into()
            }
            Err(error) => error,
        };
        // The peer has put bytes into the ring, and ended it, before its line ended.
        match way.ring.recv(parts) {
            Err(nothing) if nothing.kind() == io::ErrorKind::WouldBlock => {
                if capture::is_on()
                    && let Some(mut watch) = self.watch()
                {
                    watch.by_memory(false, false);
                    watch.reset(false);
                }
                Err(error)
            }
            rest => {
                self.line_spoke.store(true, Ordering::Release);
                if let Ok(n) = rest {
                    self.taken(way, parts, n);
                }
                rest
            }
        }
    }
}

impl Port for LocalPort {
    fn send(&self, parts: &[IoPart<'_>], more: bool) -> io::Result<usize> {
        if let Some(way) = self.way_out() {
            if way.channel.is_over() {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            let sent = match capture::is_on() {
                true => self.send_watched(way, parts)?,
                false => way.ring.send(parts)?,
            };
            self.account.sent(sent, || self.packets(sent));
            if !flaw::is(Flaw::MarkLost) {
                self.tell(way, !more && sent == IoPart::total(parts));
            }
            return Ok(sent);
        }
        let sent = self.line.send(parts, more)?;
        self.sent.fetch_add(sent as u64, Ordering::Relaxed);
        Ok(sent)
    }

    fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        if let Some(way) = self.way_in() {
            return self.receive_by(way, parts);
        }
        let received = match self.line.recv(parts) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            Ok(received @ 1..) => received,
            // The peer may have gone on by the way, and left, since that was looked at.
            ended => match self.way_in() {
                Some(way) => {
                    self.line_spoke.store(true, Ordering::Release);
                    return self.receive_by(way, parts);
                }
                None => return ended,
            },
        };
        self.received.fetch_add(received as u64, Ordering::Relaxed);
        if self.way_in().is_some() {
            // The mark for what is in the ring may have been taken already.
            self.waker.wake(Readiness::INPUT);
        }
        Ok(received)
    }

    fn has_input(&self) -> io::Result<bool> {
        match self.way_in() {
            Some(way) => Ok(way.ring.has_input()),
            None => self.line.has_input(),
        }
    }

    fn shutdown_write(&self) -> io::Result<()> {
        if let Some(way) = self.way_out() {
            way.ring.end();
            way.channel.mark(way.slot);
        }
        self.line.shutdown_write()
    }

    fn ends(&self) -> Ends {
        self.line.ends()
    }

    /// The descriptor of TCP, which no longer tells everything.
    fn descriptors(&self) -> Descriptors<'_> {
        self.line.descriptors().among_others()
    }

    fn readiness(&self) -> Readiness {
        let mut ready = Readiness::empty();
        if let Some(way) = self.way_in() {
            let has_input = way.ring.has_input()
                || way.channel.is_over()
                || self.line_spoke.load(Ordering::Acquire);
            ready.set(Readiness::INPUT, has_input);
        }
        if self.has_dealt() {
            ready |= Readiness::INPUT;
        }
        if let Some(way) = self.way_out() {
            ready.set(Readiness::ROOM, way.ring.has_room() || way.channel.is_over());
        }
        ready
    }

    fn set_waker(&self, waker: Waker) {
        self.waker.set(waker);
    }

    fn begin(&mut self, settings: &Settings<'_>) -> io::Result<()> {
        self.line.begin(settings)
    }

    fn tap(&self) -> Option<&Tap> {
        self.line.tap()
    }

    fn count_on(&mut self, port: usize) {
        self.account = Account::of(port);
        self.line.count_on(port);
    }

    fn reset_on_close(&self) {
        self.resets.store(true, Ordering::Relaxed);
        self.line.reset_on_close();
    }

    fn take_error(&self) -> io::Result<()> {
        self.line.take_error()
    }

    fn max_segment(&self) -> usize {
        self.line.max_segment()
    }

    fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        self.line.set_traffic_class(class)
    }

    fn limit_unsent(&self, octets: usize) {
        self.line.limit_unsent(octets);
    }

    fn vitals(&self) -> io::Result<Option<Vitals>> {
        self.line.vitals()
    }

    fn ask_within(&self, pause: Duration) {
        self.line.ask_within(pause);
    }

    fn ask_idle(&self, patience: Option<Duration>) {
        self.line.ask_idle(patience);
    }

    fn bound_silence(&self, patience: Option<Duration>) {
        self.line.bound_silence(patience);
    }

    fn local(&self) -> Option<&LocalPort> {
        Some(self)
    }
}

/// True once this process maps memory of another one.
#[inline]
pub(crate) fn maps_arenas() -> bool {
    MappedArena::is_any()
}

/// Its drop empties the table of what a peer is shown, and waits for one that stores there.
#[derive(Debug)]
pub(crate) struct EndOfShowing {
    ring: Arc<Ring>,
    channel: Arc<Channel>,
}

impl Drop for EndOfShowing {
    fn drop(&mut self) {
        writers::show_nothing(&self.ring, &self.channel);
    }
}

/// Bytes of the peer's memory that this process can access.
#[derive(Debug)]
pub(crate) struct Reach<'a> {
    way: &'a Way,
    peer: &'a PeerMemory,
    part: RemotePart,
    /// The arena in which they are, and the place of the first, if this process maps it.
    mapped: Option<(&'a MappedArena, u64)>,
    range: ShownRange,
    found: Found,
}

impl Reach<'_> {
    /// True if they are in a mapping of this process.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    /// Copies all of them, if `room` takes them. False where they do not count: the room may hold
    /// some already.
    pub(crate) fn copy(&self, room: &mut [IoPartMut<'_>]) -> bool {
        let len = self.part.len();
        let at = self.range.revocations;
        let read = match self.mapped {
            Some((arena, offset)) => self
                .peer
                .since(at, || arena.read(offset, room).then_some(len).ok_or(ReadError::Gone)),
            None => self.peer.read(at, &[self.part], room),
        };
        if let Err(error) = &read {
            let key = self.range.key;
            tracing::debug!(key, %error, "memory of the peer is not read directly this time");
        }
        if matches!(read, Err(ReadError::Refused | ReadError::Dead)) {
            self.way.channel.read_peer_no_more();
        }
        // The peer may have sent something before it wrote what was read: the program finds that
        // first, as it does where a Read's answer comes behind it.
        read.is_ok_and(|read| read == len)
            && self.way.ring.still_shows(self.found)
            && self.way.ring.has_settled()
    }

    /// Places `from` there, as long as they are. Unless that is done, they are not all there, and
    /// the last was not placed.
    pub(crate) fn write(&self, from: &[IoPart<'_>]) -> Stored<()> {
        self.store(|arena, offset| arena.write(offset, from).then_some(()))
    }

    /// Performs an atomic operation there, and returns the value before.
    pub(crate) fn update(&self, op: AtomicOp) -> Stored<u64> {
        // The peer may have sent something before it wrote what will be read, as for a copy.
        if !self.way.ring.has_settled() {
            return Stored::No;
        }
        self.store(|arena, offset| arena.update(offset, op))
    }

    /// Calls `store` while the peer waits for its end before it has other use for the memory.
    #[inline]
    fn store<T>(&self, store: impl FnOnce(&MappedArena, u64) -> Option<T>) -> Stored<T> {
        let Some((arena, offset)) = self.mapped else { return Stored::No };
        let ring = &self.way.ring;
        if !ring.begin_access(self.found, self.range.key) {
            return Stored::No;
        }
        // The peer may have revoked any memory meanwhile.
        let is_there = self.peer.is_at(self.range.revocations);
        let stored = if is_there { store(arena, offset) } else { None };
        match (ring.end_access(), stored) {
            (true, Some(value)) => Stored::Done(value),
            (false, Some(_)) => Stored::Lost,
            (_, None) => Stored::No,
        }
    }
}

/// The outcome of a store into the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stored<T> {
    Done(T),
    /// No byte was stored, or some without the last.
    No,
    /// The peer has waited for it for too long, and has other pages there. It may have some of what
    /// was stored, or all.
    Lost,
}

impl Drop for LocalPort {
    fn drop(&mut self) {
        if let Some(way) = self.way.get() {
            // As a socket that is closed sends a FIN. The peer of one that is reset hears of that
            // by TCP.
            if !self.resets.load(Ordering::Relaxed) {
                way.ring.end();
            }
            way.ring.close();
            way.channel.mark(way.slot);
            way.channel.free_slot(way.slot, &self.waker);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests;
