// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads that the end which posts them carries out by itself, from the memory of a process that
//! lets it.
//!
//! The first two Reads of some memory go by the stream. If the reader may read all of it, the peer
//! then shows it (`port/local`): name, range, address. Further Reads that find all that was sent
//! arrived and placed are copied from there at once, without the peer, which may sleep. A Read that
//! does not succeed so goes by the stream: the core there says why.

use iwarp_mem::{Guard, Span};
use iwarp_os::IoPartMut;
use iwarp_proto::qp::Qp;
use iwarp_types::{RemoteAccess, Stag};

use super::Link;
use super::pipes::Incoming;
use crate::engine::mover::DirectRead;
use crate::engine::sync::Ordering;

/// Elements of a Read that is carried out at once.
const ELEMENTS: usize = 4;

impl Link {
    /// See [`StreamMover::read_at_once`].
    pub(super) fn read_from_peer(&self, read: &DirectRead<'_>) -> bool {
        let len: usize = read.room.iter().map(|sge| sge.length as usize).sum();
        let Some(port) = self.stream.local() else { return false };
        let Some(readable) = port.readable(read.stag.0, read.to.0, len) else { return false };
        let memory = &*self.endpoint.engine.memory;
        let mut guards: [Option<Guard<'_>>; ELEMENTS] = [const { None }; ELEMENTS];
        if read.room.len() > guards.len() {
            return false;
        }
        for (guard, sge) in guards.iter_mut().zip(read.room) {
            // An element that is refused is the core's to judge.
            let Ok(room) = memory.guard_local(self.endpoint.who, *sge, true) else { return false };
            *guard = Some(room);
        }
        let mut room = [const { IoPartMut::EMPTY }; ELEMENTS];
        for (part, guard) in room.iter_mut().zip(guards.iter().flatten()) {
            *part = IoPartMut::from(guard);
        }
        if !readable.copy(&mut room[..read.room.len()]) {
            return false;
        }
        if let Some(observer) = memory.observer() {
            for guard in guards.iter().flatten() {
                let span = Span { addr: guard.as_ptr().addr(), len: guard.len() };
                observer.placed(self.endpoint.id(), span);
            }
        }
        true
    }

    /// See [`StreamMover::has_read_at_once`].
    pub(super) fn count_read(&self, len: u64) {
        let len = len as usize;
        if let Some(fate) = &self.fate {
            fate.received(len);
        }
        if let Some(port) = self.stream.local() {
            port.count_read(len);
        }
        self.direct_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes were taken apart but for the last `have`: tells a peer on this host if all that has
    /// come was dealt with, and shows it the memory that it has read.
    #[inline]
    pub(super) fn settle_with_peer(&self, incoming: &mut Incoming, have: usize) {
        let Some(port) = self.stream.local() else { return };
        if have == 0 && !incoming.has_waiting(&self.endpoint) {
            port.settle();
        }
        if let Some(stag) = incoming.take_read()
            && port.may_show()
            && port.is_asked_again(stag.0)
        {
            self.show(stag);
        }
    }

    /// Shows the peer the memory in which it has read, if it may read there and without waiting for
    /// the server of a file.
    #[cold]
    fn show(&self, stag: Stag) {
        let Some(port) = self.stream.local().filter(|port| !port.shows(stag.0)) else { return };
        let (memory, who) = (&*self.endpoint.engine.memory, self.endpoint.who);
        let guard = || memory.guard_granted(who, stag, RemoteAccess::Read);
        // Asked without the core's lock: the system may take a while to tell.
        if !guard().is_ok_and(|(_, guard)| guard.may_be_shown()) {
            return;
        }
        self.endpoint.with_core_of(self, |qp: &mut Qp| {
            // A thread that ends the connection, or takes the right, locks the core before it has
            // the table emptied.
            let Ok((first, guard)) = guard() else { return };
            if !qp.may_be_read() || !guard.may_be_shown() {
                return;
            }
            qp.keep_while_operating(|| Box::new(port.end_of_showing()));
            port.show(stag.0, first.0, Span { addr: guard.as_ptr().addr(), len: guard.len() });
        });
    }
}
