// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads, Writes and Atomics that the end which posts them carries out by itself, in the memory of
//! a process that lets it.
//!
//! The first two requests for some memory go by the stream. If the requester may access all of it,
//! the peer then shows it (`port/local`): name, range, address, rights. Memory that lies in an
//! arena of the peer's the requester maps; in other memory it can only read, by the system's copy.
//! Further requests that find all that was sent arrived and placed are carried out there at once,
//! without the peer, which may sleep. One that does not succeed so goes by the stream: the core
//! there says why.

use iwarp_mem::{Guard, Span};
use iwarp_os::local::Heap;
use iwarp_os::{IoPart, IoPartMut};
use iwarp_proto::qp::{Named, Qp};
use iwarp_types::{Access, Payload, RemoteAccess, Sge};

use super::Link;
use super::pipes::Incoming;
use crate::capture::{self, Remote};
use crate::engine::mover::{AtOnce, DirectAtomic, DirectRead, DirectWrite};
use crate::engine::policy::table::DIRECT_READ;
use crate::engine::sync::Ordering;
use crate::port::local::{LocalPort, Reach, Stored};

/// Elements of a request that is carried out at once.
const ELEMENTS: usize = 4;

type Guards<'a> = [Option<Guard<'a>>; ELEMENTS];

impl Link {
    /// See [`StreamMover::read_at_once`].
    pub(super) fn read_from_peer(&self, read: &DirectRead<'_>) -> bool {
        let len: usize = read.room.iter().map(|sge| sge.length as usize).sum();
        let Some(port) = self.stream.local() else { return false };
        let reach = port.reach(read.stag.0, read.to.0, len, Access::REMOTE_READ);
        let is_cheap = read.is_alone && len as u64 <= DIRECT_READ;
        let Some(reach) = reach.filter(|reach| reach.is_mapped() || is_cheap) else {
            return false;
        };
        let Some(guards) = self.guards(read.room, true) else { return false };
        let mut room = [const { IoPartMut::EMPTY }; ELEMENTS];
        for (part, guard) in room.iter_mut().zip(guards.iter().flatten()) {
            *part = IoPartMut::from(guard);
        }
        let room = &mut room[..read.room.len()];
        if !reach.copy(room) {
            return false;
        }
        if capture::is_on()
            && let Some(mut watch) = port.watch()
        {
            watch.read(Remote { stag: read.stag, to: read.to }, room, len);
        }
        self.observe(&guards, true);
        true
    }

    /// See [`StreamMover::write_at_once`].
    pub(super) fn write_to_peer(&self, write: &DirectWrite<'_>) -> AtOnce {
        self.try_write(write).unwrap_or(AtOnce::No)
    }

    fn try_write(&self, write: &DirectWrite<'_>) -> Option<AtOnce> {
        let (skipped, len) = (write.range.start, write.range.end - write.range.start);
        let to = write.to.advanced(skipped);
        let port = self.stream.local()?;
        let reach = port.reach(write.stag.0, to.0, len as usize, Access::REMOTE_WRITE)?;
        if !reach.is_mapped() {
            return None;
        }
        let sges = match write.payload {
            Payload::Sges(sges) => sges,
            Payload::Inline(octets) => {
                let part = octets.get(skipped as usize..write.range.end as usize)?;
                let from = [IoPart::new(part)];
                return Some(write_to(port, &reach, Remote { stag: write.stag, to }, &from));
            }
            _ => return None,
        };
        let guards = self.guards(sges, false)?;
        let mut from = [const { IoPart::EMPTY }; ELEMENTS];
        for (part, guard) in from.iter_mut().zip(guards.iter().flatten()) {
            *part = IoPart::from(guard);
        }
        let from = cut(&mut from, skipped as usize, len as usize);
        let written = write_to(port, &reach, Remote { stag: write.stag, to }, from);
        if written == AtOnce::Done && write.range.end == write.payload.len() {
            self.observe(&guards, false);
        }
        Some(written)
    }

    /// See [`StreamMover::update_at_once`].
    pub(super) fn update_at_peer(&self, atomic: &DirectAtomic<'_>) -> AtOnce {
        self.try_update(atomic).unwrap_or(AtOnce::No)
    }

    fn try_update(&self, atomic: &DirectAtomic<'_>) -> Option<AtOnce> {
        let [room] = atomic.room else { return None };
        let port = self.stream.local()?;
        let reach = port.reach(atomic.stag.0, atomic.to.0, 8, Access::REMOTE_ATOMIC)?;
        let memory = &*self.endpoint.engine.memory;
        let guard = memory.guard_local(self.endpoint.who, *room, true).ok()?;
        // The value must have a place before there is one.
        if guard.len() != 8 || guard.find().is_err() {
            return None;
        }
        let before = match reach.update(atomic.op) {
            Stored::Done(before) => before,
            Stored::No => return None,
            Stored::Lost => return Some(AtOnce::Lost),
        };
        if capture::is_on()
            && let Some(mut watch) = port.watch()
        {
            watch.updated(Remote { stag: atomic.stag, to: atomic.to }, atomic.op, before);
        }
        let _ = IoPartMut::scatter(&mut [IoPartMut::from(&guard)], &before.to_ne_bytes());
        self.observe(&[Some(guard), None, None, None], true);
        Some(AtOnce::Done)
    }

    /// Guards of the elements. An element that is refused is the core's to judge.
    #[inline]
    fn guards(&self, sges: &[Sge], writable: bool) -> Option<Guards<'_>> {
        let memory = &*self.endpoint.engine.memory;
        let mut guards: Guards<'_> = [const { None }; ELEMENTS];
        if sges.len() > guards.len() {
            return None;
        }
        for (guard, sge) in guards.iter_mut().zip(sges) {
            *guard = Some(memory.guard_local(self.endpoint.who, *sge, writable).ok()?);
        }
        Some(guards)
    }

    fn observe(&self, guards: &Guards<'_>, placed: bool) {
        let Some(observer) = self.endpoint.engine.memory.observer() else { return };
        for guard in guards.iter().flatten() {
            let span = Span { addr: guard.as_ptr().addr(), len: guard.len() };
            match placed {
                true => observer.placed(self.endpoint.id(), span),
                false => observer.gathered(self.endpoint.id(), span),
            }
        }
    }

    /// See [`StreamMover::was_done_at_once`].
    #[inline]
    pub(super) fn count_done(&self, read: u64, written: u64) {
        let (read, written) = (read as usize, written as usize);
        if let Some(fate) = &self.fate {
            fate.received(read);
            fate.sent(written);
        }
        if let Some(port) = self.stream.local() {
            port.count_read(read);
            port.count_written(written);
        }
        let count = if written == 0 { &self.direct_reads } else { &self.direct_writes };
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Bytes were taken apart but for the last `have`: tells a peer on this host with how many this
    /// end has dealt, and shows it the memory that it has named.
    #[inline]
    pub(super) fn settle_with_peer(&self, incoming: &mut Incoming, have: usize) {
        let Some(port) = self.stream.local() else { return };
        if let Some(waiting) = incoming.waiting(&self.endpoint) {
            port.settle(waiting + have as u64);
        }
        // A program without arenas lets others read only.
        if let Some(named) = incoming.take_named()
            && (named.read || Heap::is_used())
            && port.may_show()
            && port.is_asked_again(named.stag.0)
        {
            self.show(named);
        }
    }

    /// Shows the peer the memory that it has named, if it may access it and without waiting for the
    /// server of a file.
    #[cold]
    fn show(&self, named: Named) {
        let stag = named.stag;
        let Some(port) = self.stream.local().filter(|port| !port.shows(stag.0)) else { return };
        let (memory, who) = (&*self.endpoint.engine.memory, self.endpoint.who);
        let guard = |access| memory.guard_granted(who, stag, access).ok();
        let all = [RemoteAccess::Read, RemoteAccess::Write, RemoteAccess::Atomic];
        // Asked without the core's lock: the system may take a while to tell.
        let Some((_, any)) = all.into_iter().find_map(guard) else { return };
        let is_mapped = port.prepare_to_show(Span { addr: any.as_ptr().addr(), len: any.len() });
        // Other memory is read only.
        if !(is_mapped || named.read) || !any.may_be_shown() {
            return;
        }
        drop(any);
        self.endpoint.with_core_of(self, |qp: &mut Qp| {
            // A thread that ends the connection, or takes the right, locks the core before it has
            // the table emptied.
            let granted = qp.granted();
            let may = |access: &RemoteAccess| granted.contains(access.right());
            let grants = |access| guard(access).map(|found| (access.right(), found));
            let mut rights = all.into_iter().filter(may).filter_map(grants);
            let Some((access, (first, guard))) = rights.next() else { return };
            let access = rights.fold(access, |all, (access, _)| all | access);
            if !guard.may_be_shown() {
                return;
            }
            qp.keep_while_operating(|| Box::new(port.end_of_showing()));
            let memory = Span { addr: guard.as_ptr().addr(), len: guard.len() };
            port.show(stag.0, first.0, memory, access);
        });
    }
}

/// Writes bytes to the peer's memory.
#[inline]
fn write_to(port: &LocalPort, reach: &Reach<'_>, there: Remote, from: &[IoPart<'_>]) -> AtOnce {
    if capture::is_on() {
        write_watched(port, reach, there, from)
    } else {
        reach.write(from).into()
    }
}

/// As [`write_to`], with the capture locked: the answer comes behind it.
#[cold]
fn write_watched(
    port: &LocalPort,
    reach: &Reach<'_>,
    there: Remote,
    from: &[IoPart<'_>],
) -> AtOnce {
    let watch = port.watch();
    let stored = reach.write(from);
    if let (Some(mut watch), Stored::Done(())) = (watch, &stored) {
        let len = from.iter().map(IoPart::len).sum();
        watch.wrote(there, from, len);
    }
    stored.into()
}

impl From<Stored<()>> for AtOnce {
    fn from(stored: Stored<()>) -> Self {
        match stored {
            Stored::Done(()) => Self::Done,
            Stored::No => Self::No,
            Stored::Lost => Self::Lost,
        }
    }
}

/// The `len` bytes of `parts` behind the first `skipped`.
fn cut<'p, 'a>(parts: &'p mut [IoPart<'a>], skipped: usize, len: usize) -> &'p [IoPart<'a>] {
    let mut rest = parts;
    IoPart::advance(&mut rest, skipped);
    let mut left = len;
    for part in rest.iter_mut() {
        *part = part.take(left.min(part.len()));
        left -= part.len();
    }
    rest
}
