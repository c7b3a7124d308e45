// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bytes that arrive on a stream: read, taken apart, placed.

use std::cell::Cell;
use std::io;
use std::sync::Weak;
use std::time::Duration;

use iwarp_mem::Span;
use iwarp_os::IoPartMut;
use iwarp_os::stream::is_bad_address;
use iwarp_proto::mpa::startup::Negotiated;
use iwarp_proto::qp::Direct;
use iwarp_types::{Accessor, PdId};

use super::flags::{CLOSED, END_HELD, HALTED, READ_ENDED, READ_STALLED};
use super::pipes::Incoming;
use super::send::Tx;
use super::shared::{How, Receiving, Seen};
use super::{Link, bad_address};
use crate::capture::NextUnit;
use crate::engine::group::Member;
use crate::engine::policy::habits::Arrival;
use crate::engine::poll_set::By;
use crate::faults;
use crate::port::local::LocalPort;

/// Bytes read in one go before others get their turn.
const RECEIVE_BUDGET: usize = 4 * 1024 * 1024;
/// The time that messages that came before the end of the stream wait for receives.
const LATE: Duration = Duration::from_millis(300);

/// Bytes that came into registered memory and into staging, and the room there was.
struct Read {
    direct: usize,
    staged: usize,
    room: usize,
}

/// One system call that reads into staging; `None` when nothing is there.
fn read_staged(link: &Link, spare: &mut [u8]) -> io::Result<Option<Read>> {
    let room = spare.len();
    let n = link.count_in(link.stream.recv(&mut [IoPartMut::new(spare)]));
    some_octets(n, |staged| Read { direct: 0, staged, room })
}

/// An empty stream is no error.
fn some_octets(n: io::Result<usize>, of: impl FnOnce(usize) -> Read) -> io::Result<Option<Read>> {
    match n {
        Ok(n) => Ok(Some(of(n))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// The state that belongs to the holder of the receive token.
#[derive(Debug)]
pub(super) struct Rx {
    incoming: Incoming,
    /// Bytes of a message unit of which the rest has not come.
    partial: Vec<u8>,
    /// The peer has closed, and the queue pair is told when [`END_HELD`] is set no more.
    end_held: bool,
    /// The stream may move past TCP and has not yet.
    may_switch: bool,
    /// It may move, or has moved.
    is_local: bool,
    /// The way in which the thread that holds the token receives, and the state in which it has
    /// left the core, if it has seen that.
    how: How,
    seen: Option<Seen>,
}

/// The result of a call that receives.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// This thread has seen something come.
    pub(super) moved: bool,
    /// The state in which it has left the core, if it has seen that.
    pub(super) seen: Option<Seen>,
}

impl Rx {
    pub(super) fn new(
        terms: Option<&Negotiated>,
        who: Accessor,
        receives: PdId,
        is_local: bool,
    ) -> Self {
        Self {
            incoming: Incoming::new(terms, who, receives),
            partial: Vec::new(),
            end_held: false,
            may_switch: is_local,
            is_local,
            how: None,
            seen: None,
        }
    }

    /// The next message unit, of which bytes may have come.
    pub(super) fn next_unit(&self) -> Option<NextUnit<'_>> {
        self.incoming.next_unit(&self.partial)
    }
}

impl Link {
    /// For the log.
    #[inline]
    fn count_in(&self, n: io::Result<usize>) -> io::Result<usize> {
        if let (Some(fate), Ok(n)) = (&self.fate, &n) {
            fate.received(*n);
        }
        n
    }

    /// Receives what is there, and delivers what waits for receives.
    pub(super) fn receive(&self, by: By) -> Received {
        let how = match by {
            // A completion decides whether the program had asked for it.
            By::Worker => None,
            By::Caller => Some(Arrival::Expected),
            By::Post => Some(Arrival::InPost),
        };
        // Twice when receives came after the first look. A message that cannot be delivered then
        // either waits for the rest of another one, which will come here.
        let mut received = Received::default();
        for _ in 0..2 {
            self.rx.request(|rx| {
                (rx.how, rx.seen) = (how, received.seen);
                received.moved |= self.receive_some(rx);
                received.seen = rx.seen;
            });
            let waits = received.seen.is_none_or(|seen| seen.waits);
            if !received.moved || !waits || self.endpoint.await_receives() {
                break;
            }
        }
        self.hear_of_dealing();
        self.endpoint.watch_time();
        if self.local.is_due() && received.moved {
            self.agree();
        }
        received
    }

    /// Goes on reading a stream that stood still, if it does no more.
    pub(super) fn resume(&self) {
        if self.flags.has(READ_STALLED) && !self.endpoint.with(|core| core.is_stalled()) {
            self.receive(By::Worker);
        }
    }

    /// False when nothing has come.
    fn receive_some(&self, rx: &mut Rx) -> bool {
        if self.flags.has(READ_ENDED | HALTED) {
            return self.reads_no_more(rx);
        }
        self.endpoint.engine.pool.with_staging(|staging| {
            let have = rx.partial.len();
            if have > 0 {
                staging[..have].copy_from_slice(&rx.partial);
            }
            let waits = self.flags.has(READ_STALLED) || rx.incoming.has_waiting(&self.endpoint);
            let places = have == 0 && rx.incoming.direct().is_some();
            let mut first = None;
            if !waits && !places {
                // A look that mostly finds nothing, and places nothing.
                match read_staged(self, &mut staging[have..]) {
                    Ok(None) => {
                        self.has_read(true);
                        return false;
                    }
                    read => first = Some(read),
                }
            }
            let mut left = None;
            self.endpoint.receiving(|| left = self.receive_on(rx, staging, have, waits, first));
            if let Some(left) = left {
                self.keep_partial(rx, &staging[..left]);
            }
            left.is_some()
        })
    }

    /// Reading has ended, or the port is down. False: nothing has come.
    #[cold]
    fn reads_no_more(&self, rx: &mut Rx) -> bool {
        if self.flags.has(READ_ENDED) {
            self.tell_end(rx);
        } else {
            // A reactor has nothing to tell of.
            self.has_read(true);
        }
        false
    }

    /// Takes apart what is in staging, where messages wait for receives, and what was and will be
    /// read. Returns the bytes then left in staging; `None` when nothing has come.
    fn receive_on(
        &self,
        rx: &mut Rx,
        staging: &mut [u8],
        mut have: usize,
        waits: bool,
        mut first: Option<io::Result<Option<Read>>>,
    ) -> Option<usize> {
        let mut moved = waits;
        if waits {
            let stalled = self.flags.has(READ_STALLED);
            self.take_apart(rx, staging, &mut have);
            if stalled && !self.flags.has(READ_STALLED) {
                self.update_interest();
            }
        }
        let mut budget = RECEIVE_BUDGET;
        // Bytes that a port holds are reported by nothing else.
        while (budget > 0 || self.may_hold) && !self.flags.has(READ_STALLED | HALTED) {
            let read = first.take().unwrap_or_else(|| self.read(&mut rx.incoming, staging, have));
            let Read { direct, staged, room } = match read {
                Ok(Some(read)) => read,
                Ok(None) => {
                    self.has_read(true);
                    break;
                }
                Err(error) => {
                    moved = true;
                    rx.seen = None;
                    self.failed(&error);
                    break;
                }
            };
            moved = true;
            self.has_read(direct + staged < room);
            if direct + staged == 0 {
                // Requests that were posted before are sent still: they may be held back, or their
                // thread is on the way. Nor has the peer closed in the middle of what another
                // thread is sending: what the stream took completes, and only the rest is flushed.
                rx.seen = None;
                self.send();
                self.tx.quiesce();
                if have > 0 || !self.hold_end(rx) {
                    self.peer_closed(rx, have);
                }
                self.flags.set(READ_ENDED);
                self.update_interest();
                break;
            }
            if rx.may_switch
                && let Some(crc) = self.stream.local().and_then(LocalPort::came_with)
            {
                rx.may_switch = false;
                rx.incoming.switched(crc);
            }
            rx.incoming.received_directly(direct);
            have += staged;
            self.take_apart(rx, staging, &mut have);
            if self.flags.has(READ_STALLED) {
                self.update_interest();
                break;
            }
            if direct + staged < room && !self.may_hold {
                break;
            }
            budget = budget.saturating_sub(direct + staged);
        }
        moved.then_some(have)
    }

    /// A read took all there was, or left something. A task that sleeps in a reactor is not told of
    /// what another thread has left.
    #[inline]
    fn has_read(&self, all: bool) {
        self.reactor.has_read(all);
    }

    /// Keeps the end of the stream from the queue pair for a moment, if messages wait for receives,
    /// which the program may be about to post. False if none wait.
    fn hold_end(&self, rx: &mut Rx) -> bool {
        if !self.endpoint.has_parked() {
            return false;
        }
        rx.end_held = true;
        self.flags.set(END_HELD);
        let weak = Weak::clone(&self.itself);
        let tell = move || {
            if let Some(link) = weak.upgrade() {
                link.flags.clear(END_HELD);
                // This thread, or the one that receives at this moment, tells the queue pair.
                link.receive(By::Worker);
                link.settle();
            }
        };
        self.endpoint.engine.worker.at(self.endpoint.now().plus(LATE), Box::new(tell));
        true
    }

    /// Ends [`Self::hold_end`], unless the queue pair may have another stream by now.
    fn tell_end(&self, rx: &mut Rx) {
        if rx.end_held && !self.flags.has(END_HELD | CLOSED) {
            rx.end_held = false;
            self.endpoint.receiving(|| self.peer_closed(rx, 0));
        }
    }

    /// Tells the queue pair of the end of the stream, behind `unused` bytes.
    fn peer_closed(&self, rx: &mut Rx, unused: usize) {
        rx.seen = None;
        rx.incoming.eof(&self.endpoint, unused, || self.acknowledged());
    }

    /// The number of the sent bytes that the peer's transport has acknowledged, if it is known.
    fn acknowledged(&self) -> Option<u64> {
        // First what was sent: what another thread sends meanwhile then counts as outstanding.
        let sent = self.tx.look(Tx::sent);
        let vitals = self.stream.vitals().ok().flatten()?;
        sent.checked_sub(vitals.outstanding as u64)
    }

    /// Hands the first `have` bytes of `staging` to the protocol; what it leaves is moved to the
    /// front.
    fn take_apart(&self, rx: &mut Rx, staging: &mut [u8], have: &mut usize) {
        let memory = &*self.endpoint.engine.memory;
        let admitted = iwarp_mem::admit_faults();
        let receiving =
            Receiving { endpoint: &self.endpoint, how: rx.how, seen: Cell::new(rx.seen) };
        let used = rx.incoming.receive(&receiving, memory, &mut staging[..*have]);
        drop(admitted);
        // Another look at the core follows what was postponed.
        rx.seen = receiving.seen.take().filter(|_| !self.endpoint.postpones());
        self.hand_on_postponed();
        staging.copy_within(used..*have, 0);
        *have -= used;
        let stalled = rx.incoming.is_stalled();
        if rx.is_local {
            self.settle_with_peer(&mut rx.incoming, *have);
        }
        if self.flags.has(READ_STALLED) != stalled {
            if stalled {
                self.flags.set(READ_STALLED)
            } else {
                self.flags.clear(READ_STALLED)
            };
        }
    }

    /// A connection owns memory for the part of a message unit only while it has one.
    fn keep_partial(&self, rx: &mut Rx, rest: &[u8]) {
        let pool = &self.endpoint.engine.pool;
        if rest.is_empty() {
            if rx.partial.capacity() > 0 {
                pool.give_block(std::mem::take(&mut rx.partial));
            }
            return;
        }
        if rx.partial.capacity() == 0 {
            rx.partial = pool.block();
        }
        rx.partial.clear();
        if rx.partial.try_reserve_exact(rest.len()).is_err() {
            // The stream cannot be followed any further.
            rx.seen = None;
            self.endpoint.with(|core| core.fail_locally("out of memory"));
            return;
        }
        rx.partial.extend_from_slice(rest);
    }

    /// One system call: into registered memory where the protocol says so, and into staging.
    /// `None` when nothing is there.
    fn read(
        &self,
        incoming: &mut Incoming,
        staging: &mut [u8],
        have: usize,
    ) -> io::Result<Option<Read>> {
        let spare = &mut staging[have..];
        let direct = if have == 0 { incoming.direct() } else { None };
        // Bytes that a stream that has ended still brings are dropped; a system call would write
        // bytes in an order of its own.
        let is_for_it = |_: &Direct| self.endpoint.is_connected() && !faults::are_placing();
        let Some(direct) = direct.filter(is_for_it) else {
            return read_staged(self, spare);
        };
        let guard = match self.guard(&direct.target, true) {
            Ok(guard) => guard,
            Err(error) => {
                incoming.direct_refused(error);
                return read_staged(self, spare);
            }
        };
        let room = guard.len() + spare.len();
        let n = self.stream.recv(&mut [IoPartMut::from(&guard), IoPartMut::new(spare)]);
        let n = self.count_in(n);
        if n.as_ref().is_err_and(is_bad_address) {
            // No bytes were taken from the stream: the rest of the segment comes by way of staging,
            // where it is dropped.
            incoming.direct_refused(bad_address(&guard));
            return read_staged(self, spare);
        }
        some_octets(n, |n| {
            let direct = n.min(guard.len());
            if let Some(observer) = self.endpoint.engine.memory.observer() {
                let span = Span { addr: guard.as_ptr().addr(), len: direct };
                observer.placed(self.endpoint.id(), span);
            }
            Read { direct, staged: n - direct, room }
        })
    }
}
