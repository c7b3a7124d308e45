// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bytes that go out on a stream: built, and given to the system.

use std::io;
use std::sync::Weak;
use std::time::Duration;

use iwarp_mem::{AccessObserver, Guard, Span};
use iwarp_os::IoPart;
use iwarp_os::stream::is_bad_address;
use iwarp_proto::mpa::startup::Negotiated;
use iwarp_proto::qp::{Piece, Taken, Transmit};
use iwarp_types::{Accessor, Disposition, Time};

use super::close::Intent;
use super::flags::{AWAITS_WRITING, HALTED, PEER_WATCHED, WRITE_BLOCKED, WRITE_ENDED};
use super::pipes::Outgoing;
use super::waiting::Hold;
use super::{Link, bad_address};
use crate::capture::NextUnit;
use crate::engine::group::Member;
use crate::engine::mover::StreamMover;
use crate::port::Port;
use crate::port::local::LocalPort;

/// Bytes that wait in a transmit queue before nothing more is built.
pub(super) const TRANSMIT_BUDGET: usize = 256 * 1024;
/// Elements of one system call when some are registered memory, each with its guard.
const GUARDED_PARTS: usize = 24;
/// Elements of one system call when all are staged.
const PARTS: usize = 64;
/// The segment size is looked up again after this many bytes, which grow from the first time on: a
/// connection learns its real one (and the path may change) only as it goes.
const FIRST_MSS_CHECK: u64 = 64 * 1024;
const MSS_CHECK: u64 = 64 * 1024 * 1024;
/// The time that bytes to be sent wait for memory before they are tried again.
const MEMORY_WAIT: Duration = Duration::from_millis(10);

/// The state that belongs to the holder of the transmit token.
#[derive(Debug)]
pub(super) struct Tx {
    outgoing: Outgoing,
    out: Option<Box<Transmit>>,
    sent: u64,
    next_mss_check: u64,
    /// The stream may move past TCP and has not yet.
    may_switch: bool,
    /// It has moved.
    has_switched: bool,
    /// The bytes that wait begin amid a message unit.
    is_amid: bool,
    /// There was no memory for a transmit queue, or in a ring, and a timer tries again at this
    /// time.
    starved_until: Option<Time>,
    /// Requests that wait to be carried out.
    hold: Hold,
}

impl Tx {
    /// `unit`: bytes of a message unit at most, if that is fixed.
    pub(super) fn new(
        terms: Option<&Negotiated>,
        who: Accessor,
        unit: Option<usize>,
        stream: &dyn Port,
    ) -> Self {
        Self {
            outgoing: Outgoing::new(terms, who, unit, || stream.max_segment()),
            out: None,
            sent: 0,
            next_mss_check: if unit.is_some() { u64::MAX } else { FIRST_MSS_CHECK },
            may_switch: stream.local().is_some(),
            has_switched: false,
            is_amid: false,
            starved_until: None,
            hold: Hold::default(),
        }
    }

    /// The next message unit that no byte is built of.
    pub(super) fn next_unit(&self) -> Option<NextUnit<'static>> {
        self.outgoing.next_unit(self.out.as_deref().map_or(0, Transmit::len))
    }

    /// Bytes that the stream has taken.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }
}

impl Link {
    /// Sends what can be sent. False when this thread has sent nothing.
    pub(super) fn send(&self) -> bool {
        self.send_on().0
    }

    /// As [`Self::send`], and says what the queue pair wanted with the stream when all was sent,
    /// where this thread has seen that.
    pub(super) fn send_on(&self) -> (bool, Option<Intent>) {
        self.release();
        let (mut moved, mut intent) = (false, None);
        self.tx.request(|tx| {
            let before = tx.sent;
            intent = self.transmit_some(tx);
            moved |= tx.sent != before;
        });
        if moved && !self.flags.has(PEER_WATCHED) {
            self.watch_peer();
        }
        self.endpoint.watch_time();
        self.hear_at_once();
        (moved, intent)
    }

    /// Returns what the queue pair wants with the stream, if bytes were sent and all of them were.
    fn transmit_some(&self, tx: &mut Tx) -> Option<Intent> {
        let endpoint = &*self.endpoint;
        let memory = &*endpoint.engine.memory;
        let mut intent = None;
        endpoint.hand_on_postponed();
        while !self.flags.has(WRITE_BLOCKED | WRITE_ENDED | HALTED) {
            if tx.out.is_none() {
                tx.out = self.spare.take();
            }
            let Some(out) = tx.out.as_deref_mut() else {
                self.transmit_later(tx);
                return None;
            };
            if tx.may_switch && out.is_empty() {
                // Between two message units.
                let switched = self.stream.local().and_then(LocalPort::switch);
                if let Some(crc) = switched {
                    tx.may_switch = false;
                    tx.has_switched = true;
                    self.moves_at(tx.sent);
                    tx.outgoing.switched(crc);
                    let may_read = self.stream.local().is_some_and(LocalPort::may_read);
                    endpoint.access_directly(may_read);
                    if self.flags.has(AWAITS_WRITING) {
                        // TCP was full, and is not to tell of room any more.
                        self.update_interest();
                    }
                }
            }
            if endpoint.leaves_to_do() || self.dealt.holds() {
                self.carry_out_waiting(&mut tx.hold);
            }
            // A stream that always has more to send would find no end between two units.
            let ends_unit = tx.may_switch && !out.is_empty() && self.moves();
            let more = ends_unit || {
                let _admitted = iwarp_mem::admit_faults();
                tx.outgoing.transmit(endpoint, memory, out, self.budget)
            };
            if out.is_empty() {
                break;
            }
            let is_whole = tx.has_switched && !tx.is_amid;
            let taken: io::Result<Taken> = self.writing.during(|| {
                if is_whole {
                    self.announce(&tx.outgoing, out);
                }
                let n = self.write(&tx.outgoing, out)?;
                if tx.has_switched {
                    tx.is_amid = n < out.len();
                }
                tx.sent += n as u64;
                if let Some(fate) = &self.fate {
                    fate.sent(n);
                }
                Ok(tx.outgoing.taken(endpoint, out, n))
            });
            endpoint.hand_on_postponed();
            let taken = match taken {
                Ok(taken) => taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.await_writing();
                    return None;
                }
                Err(error) if self.lacks_pages(&error) => {
                    self.transmit_later(tx);
                    return None;
                }
                Err(error) => {
                    self.failed(&error);
                    break;
                }
            };
            if taken.awaited {
                self.await_dealing();
            }
            if tx.sent >= tx.next_mss_check {
                tx.next_mss_check = tx.sent + MSS_CHECK;
                tx.outgoing.set_max_segment(self.stream.max_segment());
            }
            if out.is_empty() && !more && !taken.more {
                let Taken { disposition, connected, .. } = taken;
                // Handing on the completions of what was taken may have ended the connection.
                let is_known = !endpoint.has_overrun();
                intent = is_known.then_some(Intent { disposition, connected });
                break;
            }
        }
        if tx.out.as_ref().is_some_and(|out| out.is_empty()) {
            self.give_back(tx);
            let disposition = intent.map(|Intent { disposition, .. }| disposition);
            let disposition =
                disposition.unwrap_or_else(|| endpoint.with(|core| core.disposition()));
            if disposition == Disposition::Finish
                && !self.flags.has(HALTED)
                && self.flags.set(WRITE_ENDED) & WRITE_ENDED == 0
            {
                // Fails where the peer has reset the stream already.
                let _ = self.stream.shutdown_write();
            }
        } else if self.flags.has(WRITE_ENDED) {
            self.give_back(tx);
        }
        intent
    }

    /// The ring that the stream has moved to has no memory for more bytes.
    #[cold]
    fn lacks_pages(&self, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::OutOfMemory
            && self.stream.local().is_some_and(LocalPort::has_switched)
    }

    /// There is no memory for a transmit queue, or in a ring: what is to be sent waits until there
    /// is, or until another connection needs its own no more. The worker's thread has a transmit
    /// queue of its own.
    #[cold]
    fn transmit_later(&self, tx: &mut Tx) {
        let now = self.endpoint.now();
        if tx.starved_until.is_some_and(|until| now < until) {
            return;
        }
        tracing::debug!(qp = self.endpoint.id(), "out of memory: what is to be sent waits");
        let at = now.plus(MEMORY_WAIT);
        tx.starved_until = Some(at);
        let weak = Weak::clone(&self.itself);
        let again = move || {
            if let Some(link) = weak.upgrade() {
                link.send();
                link.settle();
            }
        };
        self.endpoint.engine.worker.at(at, Box::new(again));
    }

    /// Reports the receives that have waited, or leaves them to the thread that sends.
    #[inline]
    pub(super) fn hand_on_postponed(&self) {
        self.endpoint.hand_on_or_leave(&self.writing, || {
            self.tx.request(|tx| {
                self.transmit_some(tx);
            });
        });
        self.hear_at_once();
    }

    pub(super) fn give_back(&self, tx: &mut Tx) {
        if let Some(out) = tx.out.take() {
            self.spare.give(out);
        }
    }

    /// Tells of the registered bytes among the first `sent` of `out`, which the stream took from
    /// where they lie.
    #[cold]
    fn tell_gathered(
        &self,
        observer: &dyn AccessObserver,
        out: &Transmit,
        guards: &[Option<Guard<'_>>],
        sent: usize,
    ) {
        let mut left = sent;
        for (piece, guard) in out.pieces().zip(guards) {
            let len = piece.octets().min(left);
            if let (Some(guard), 1..) = (guard, len) {
                let span = Span { addr: guard.as_ptr().addr(), len };
                observer.gathered(self.endpoint.id(), span);
            }
            left -= len;
        }
    }

    /// Tells a stream within the host what is sent next.
    fn announce(&self, outgoing: &Outgoing, out: &Transmit) {
        if let Some(port) = self.stream.local() {
            port.announce(|| outgoing.delivery(out));
        }
    }

    /// One system call for as much as goes into it.
    fn write(&self, outgoing: &Outgoing, out: &Transmit) -> io::Result<usize> {
        if let Some(octets) = out.sole() {
            return self.stream.send(&[IoPart::new(octets)], false);
        }
        let mut guards: [Option<Guard<'_>>; GUARDED_PARTS] = [const { None }; GUARDED_PARTS];
        let mut staged_only = true;
        for (number, (piece, slot)) in out.pieces().zip(&mut guards).enumerate() {
            if let Piece::Memory(source) = piece {
                staged_only = false;
                *slot = Some(self.guard(source, false).map_err(|error| {
                    outgoing.lost(&self.endpoint, out, number, error);
                    io::Error::other(error)
                })?);
            }
        }
        let limit = if staged_only { PARTS } else { GUARDED_PARTS };
        let mut parts = [IoPart::EMPTY; PARTS];
        let mut used = 0;
        let mut total = 0;
        for (number, piece) in out.pieces().take(limit).enumerate() {
            let part = match piece {
                Piece::Staged(range) => IoPart::new(out.octets(range.clone())),
                Piece::Memory(_) => match guards.get(number).and_then(Option::as_ref) {
                    Some(guard) => IoPart::from(guard),
                    None => break,
                },
            };
            total += part.len();
            parts[used] = part;
            used += 1;
        }
        let sent = self.stream.send(&parts[..used], total < out.len());
        if let (Some(observer), Ok(sent)) = (self.endpoint.engine.memory.observer(), &sent) {
            self.tell_gathered(observer, out, &guards, *sent);
        }
        if sent.as_ref().is_err_and(is_bad_address) {
            let gone = guards
                .iter()
                .enumerate()
                .find_map(|(number, guard)| Some((number, guard.as_ref()?.find().err()?)));
            // Should it have come back, the first one was at fault.
            let gone = gone.or_else(|| {
                let number = guards.iter().position(Option::is_some)?;
                Some((number, bad_address(guards[number].as_ref()?)))
            });
            if let Some((number, error)) = gone {
                outgoing.lost(&self.endpoint, out, number, error);
            }
        }
        sent
    }
}
