// SPDX-License-Identifier: MIT OR Apache-2.0

//! The streams of a poll group that have no descriptor, beside the epoll that has the others.

use std::io;
use std::sync::{Arc, OnceLock};

use iwarp_os::{Epoll, EventFd, EventFdKind, FdPlace, Interest};
use slotmap::{DefaultKey, Key};

use super::{Group, MemberWaker, Served};
use crate::engine::poll_set::By;
use crate::engine::ready_list::{Bell, ReadyList};
use crate::engine::sync::{AtomicUsize, Ordering};

/// The ready list of a poll group.
pub(crate) type GroupList = ReadyList<EpollBell>;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Woken {
    list: Arc<GroupList>,
    /// The number of them.
    count: AtomicUsize,
}

/// A descriptor in the group's epoll, made for the first stream that needs it.
#[derive(Debug, Default)]
pub(crate) struct EpollBell(OnceLock<EventFd>);

impl Bell for EpollBell {
    // Both fail only on a descriptor that was closed under us.

    fn ring(&self) {
        let _ = self.0.get().map(EventFd::signal);
    }

    fn silence(&self) {
        let _ = self.0.get().map(EventFd::drain);
    }
}

impl Woken {
    pub(super) fn new() -> Self {
        let list = Arc::new(ReadyList::new(EpollBell::default()));
        Self { list, count: AtomicUsize::new(0) }
    }

    pub(super) const fn list(&self) -> &Arc<GroupList> {
        &self.list
    }

    /// True if there are such streams.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// True if a group of so many has no others.
    pub(super) fn is_all(&self, members: usize) -> bool {
        self.count.load(Ordering::Relaxed) == members
    }
}

impl Group {
    pub(super) fn add_woken(
        &self,
        waker: &MemberWaker,
        token: u64,
        epoll: &Epoll,
    ) -> io::Result<()> {
        self.hang_bell(epoll)?;
        let list = self.woken.list();
        waker.add(list, token)?;
        self.woken.count.fetch_add(1, Ordering::Relaxed);
        list.add(token).inspect_err(|_| self.remove_woken(waker, token))
    }

    pub(super) fn remove_woken(&self, waker: &MemberWaker, token: u64) {
        let list = self.woken.list();
        waker.remove(list);
        list.remove(token);
        self.woken.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sees to it that there is a bell in the epoll.
    fn hang_bell(&self, epoll: &Epoll) -> io::Result<()> {
        let place = &self.woken.list.bell().0;
        if place.get().is_some() {
            return Ok(());
        }
        let bell = EventFd::new(EventFdKind::Counter, FdPlace::Internal)?;
        // No stream has that token.
        epoll.add(&bell, DefaultKey::null().data().as_ffi(), Interest::READ)?;
        if let Err(second) = place.set(bell) {
            // Another thread was faster.
            let _ = epoll.delete(&second);
        }
        Ok(())
    }

    /// Moves those that are ready, and hushes the bell where no thread waits for it.
    pub(super) fn drive_woken(&self, by: By) -> Served {
        let mut served = Served::default();
        let list = self.woken.list();
        // Streams that come meanwhile, or stay ready, have their turn with the next call.
        let waiting = list.len();
        let _call = (by != By::Worker && waiting > 0).then(|| self.handover.call());
        for _ in 0..waiting {
            let Some(token) = list.take() else { break };
            let Some(member) = self.member(token) else { continue };
            let Some(ready) = member.readiness(token) else { continue };
            if by == By::Worker && self.is_left_to_others(&*member) {
                served.left = true;
                list.put(token);
                continue;
            }
            member.ready(ready, by);
            served.moved = true;
            if member.readiness(token).is_some() {
                list.put(token);
            }
        }
        if by != By::Worker {
            if served.moved {
                self.handover.renew_short_lease(|| self.nanos());
            }
            list.hush(|| self.handover.is_watched());
        }
        served
    }
}
