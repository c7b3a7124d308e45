//! What goes out on a stream: built, and given to the system.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use iwarp_mem::Guard;
use iwarp_os::IoPart;
use iwarp_os::stream::is_bad_address;
use iwarp_proto::qp::{Piece, Transmit};
use iwarp_types::Disposition;

use super::pipes::Outgoing;
use super::{Link, Send, bad_address};
use crate::engine::endpoint::Endpoint;
use crate::engine::sync::Ordering;

/// Octets that wait in a transmit queue before nothing more is built.
pub(super) const TRANSMIT_BUDGET: usize = 256 * 1024;
/// Elements of one system call when some are registered memory, each with its guard.
const GUARDED_PARTS: usize = 24;
/// Elements of one system call when all are staged.
const PARTS: usize = 64;
/// The segment size is looked up again after this many octets, which grow from the first time on: a
/// connection learns its real one (and the path may change) only as it goes.
pub(super) const FIRST_MSS_CHECK: u64 = 64 * 1024;
const MSS_CHECK: u64 = 64 * 1024 * 1024;
/// How long what is to be sent waits for memory before it is tried again.
const MEMORY_WAIT: Duration = Duration::from_millis(10);

impl Endpoint {
    /// Sends what can be sent. False when this thread has sent nothing.
    pub(crate) fn transmit(self: &Arc<Self>, link: &Arc<Link>) -> bool {
        link.release();
        let mut moved = false;
        link.transmit.request(|send| {
            let before = send.sent;
            self.transmit_some(link, send);
            moved |= send.sent != before;
        });
        if moved && !link.is_watched() {
            self.watch_peer(link);
        }
        self.watch_time();
        moved
    }

    fn transmit_some(self: &Arc<Self>, link: &Arc<Link>, send: &mut Send) {
        let mut disposition = None;
        while !link.write_blocked.load(Ordering::SeqCst) && !link.write_ended.load(Ordering::SeqCst)
        {
            if send.out.is_none() {
                send.out = self.engine.pool.transmit();
            }
            let Some(out) = &mut send.out else { return self.transmit_later(link) };
            let memory = &*self.engine.memory;
            let more = send.outgoing.transmit(self, memory, out, link.budget);
            if out.is_empty() {
                break;
            }
            let taken = match self.write(link, &send.outgoing, out) {
                Ok(n) => {
                    send.sent += n as u64;
                    send.outgoing.taken(self, out, n)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    link.await_writing();
                    return;
                }
                Err(error) => {
                    self.stream_failed(link, &error);
                    break;
                }
            };
            if send.sent >= send.next_mss_check {
                send.next_mss_check = send.sent + MSS_CHECK;
                send.outgoing.set_max_segment(link.stream.max_segment());
            }
            if out.is_empty() && !more && !taken.more {
                disposition = Some(taken.disposition);
                break;
            }
        }
        if send.out.as_ref().is_some_and(|out| out.is_empty()) {
            self.give_back(send);
            let disposition = disposition.unwrap_or_else(|| self.with(|core| core.disposition()));
            if disposition == Disposition::Finish && !link.write_ended.swap(true, Ordering::SeqCst)
            {
                // Fails where the peer has reset the stream already.
                let _ = link.stream.shutdown_write();
            }
        } else if link.write_ended.load(Ordering::SeqCst) {
            self.give_back(send);
        }
    }

    /// There is no memory for a transmit queue: what is to be sent waits until there is, or until
    /// another connection needs its own no more. The worker's thread has one of its own.
    #[cold]
    fn transmit_later(self: &Arc<Self>, link: &Arc<Link>) {
        if link.starved.swap(true, Ordering::SeqCst) {
            return;
        }
        tracing::debug!(qp = self.id(), "out of memory: what is to be sent waits");
        let (endpoint, link) = (Arc::downgrade(self), Arc::downgrade(link));
        let again = move || {
            if let (Some(endpoint), Some(link)) = (endpoint.upgrade(), link.upgrade()) {
                link.starved.store(false, Ordering::SeqCst);
                endpoint.transmit(&link);
                endpoint.settle(&link);
            }
        };
        self.engine.worker.at(self.now().plus(MEMORY_WAIT), Box::new(again));
    }

    pub(super) fn give_back(&self, send: &mut Send) {
        if let Some(out) = send.out.take() {
            self.engine.pool.give_transmit(out);
        }
    }

    /// One system call for as much as goes into it.
    fn write(&self, link: &Link, outgoing: &Outgoing, out: &Transmit) -> io::Result<usize> {
        let mut pieces = out.pieces();
        if let (Some(Piece::Staged(range)), None) = (pieces.next(), pieces.next()) {
            return link.stream.send(&[IoPart::new(out.octets(range.clone()))], false);
        }
        let mut guards: [Option<Guard<'_>>; GUARDED_PARTS] = [const { None }; GUARDED_PARTS];
        let mut staged_only = true;
        for (number, (piece, slot)) in out.pieces().zip(&mut guards).enumerate() {
            if let Piece::Memory(source) = piece {
                staged_only = false;
                *slot = Some(self.guard(source, false).map_err(|error| {
                    outgoing.lost(self, out, number, error);
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
        let sent = link.stream.send(&parts[..used], total < out.len());
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
                outgoing.lost(self, out, number, error);
            }
        }
        sent
    }
}
