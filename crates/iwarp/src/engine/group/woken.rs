// SPDX-License-Identifier: MIT OR Apache-2.0

//! The streams of a poll group that have no descriptor, beside the epoll that has the others.

use std::io;
use std::sync::{Arc, OnceLock};

use iwarp_mem::OutOfMemory;
use iwarp_os::{Epoll, EventFd, EventFdKind, FdPlace, Interest};

use super::{Group, MemberWaker, Served};
use crate::engine::poll_set::By;
use crate::engine::ready_list::{Bell, Quiet, ReadyList};
use crate::engine::sync::{AtomicBool, AtomicUsize, Mutex, Ordering};
use crate::port::local::Channel;

/// The ready list of a poll group.
pub(crate) type GroupList = ReadyList<EpollBell>;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Woken {
    list: Arc<GroupList>,
    /// The number of them.
    count: AtomicUsize,
    /// The number of those that the epoll knows as well.
    described: AtomicUsize,
}

/// The token of the bells in the epoll: no stream has it.
pub(super) const BELL: u64 = u64::MAX;

/// A descriptor in the group's epoll, made for the first stream that needs it; and the channels to
/// other processes that tell of streams, whose bells are in the epoll as well.
#[derive(Debug, Default)]
pub(crate) struct EpollBell {
    fd: OnceLock<EventFd>,
    has_channels: AtomicBool,
    /// Replaced as a whole, so that a thread can go through them without the lock.
    channels: Mutex<Arc<Vec<Arc<Channel>>>>,
}

impl EpollBell {
    /// Calls `what` for each channel, without the lock: it may wake streams.
    fn each_channel(&self, what: impl Fn(&Channel)) {
        if self.has_channels.load(Ordering::Acquire) {
            let channels = Arc::clone(&self.channels.lock());
            channels.iter().for_each(|channel| what(channel));
        }
    }

    fn has_one_that_is_over(&self) -> bool {
        self.has_channels.load(Ordering::Acquire)
            && self.channels.lock().iter().any(|channel| channel.is_over())
    }

    /// Forgets the channels that are over, takes in `another`, and returns those that there were.
    fn renew(
        &self,
        epoll: &Epoll,
        hushed: bool,
        another: Option<&Arc<Channel>>,
    ) -> io::Result<Arc<Vec<Arc<Channel>>>> {
        let mut channels = self.channels.lock();
        let mut living = Vec::new();
        living.try_reserve_exact(channels.len() + 1).map_err(|_| OutOfMemory)?;
        living.extend(channels.iter().filter(|channel| !channel.is_over()).cloned());
        let is_there = |channel: &Arc<Channel>| living.iter().any(|one| Arc::ptr_eq(one, channel));
        if let Some(channel) = another.filter(|channel| !is_there(channel)) {
            epoll.add(channel.bell(), BELL, Interest::READ)?;
            living.push(Arc::clone(channel));
            if !hushed {
                channel.listen();
            }
        }
        for over in channels.iter().filter(|channel| channel.is_over()) {
            // The other process may have a duplicate, and go on ringing it.
            let _ = epoll.delete(over.bell());
            if !hushed {
                over.hush();
            }
        }
        self.has_channels.store(!living.is_empty(), Ordering::Release);
        Ok(std::mem::replace(&mut *channels, Arc::new(living)))
    }
}

impl Bell for EpollBell {
    // Both fail only on a descriptor that was closed under us.

    fn ring(&self) {
        let _ = self.fd.get().map(EventFd::signal);
    }

    fn silence(&self) {
        let _ = self.fd.get().map(EventFd::drain);
    }

    fn hushed(&self, hushed: bool) {
        if self.has_channels.load(Ordering::Acquire) {
            let change = if hushed { Channel::hush } else { Channel::listen };
            self.channels.lock().iter().for_each(|channel| change(channel));
        }
    }

    fn look(&self) {
        self.each_channel(Channel::look);
    }
}

impl Woken {
    pub(super) fn new() -> Self {
        let list = Arc::new(ReadyList::new(EpollBell::default()));
        Self { list, count: AtomicUsize::new(0), described: AtomicUsize::new(0) }
    }

    pub(super) const fn list(&self) -> &Arc<GroupList> {
        &self.list
    }

    /// True if there are such streams.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// True if the epoll tells of some of them as well. They outlive the channels of processes that
    /// are gone.
    #[inline]
    pub(super) fn has_described(&self) -> bool {
        self.described.load(Ordering::Relaxed) > 0
    }

    /// Puts the streams into the list of which other processes tell, for the caller to move: no
    /// thread is woken for them before the result is dropped.
    #[inline]
    pub(super) fn look(&self) -> Option<Quiet<'_, EpollBell>> {
        let bell = self.list.bell();
        let quiet = bell.has_channels.load(Ordering::Acquire).then(|| self.list.quiet());
        bell.look();
        quiet
    }

    /// Puts the streams into the list of which other processes tell, and wakes the threads that
    /// sleep until there are some.
    pub(super) fn hear(&self) {
        self.list.bell().look();
    }

    /// A bell in the epoll rings. True if it may be a channel's.
    pub(super) fn rang(&self, epoll: &Epoll) -> bool {
        self.list.bell().each_channel(Channel::rang);
        if self.list.bell().has_one_that_is_over() {
            // Dropped without the locks. Where there is no memory for the list, the next ring does.
            drop(self.list.change_bell(|bell, hushed| bell.renew(epoll, hushed, None)));
        }
        self.list.bell().has_channels.load(Ordering::Acquire)
    }

    /// The group is no more: no channel listens on its behalf.
    pub(super) fn end(&self) {
        let channels = self.list.change_bell(|bell, hushed| {
            let channels = std::mem::take(&mut *bell.channels.lock());
            bell.has_channels.store(false, Ordering::Release);
            if hushed { Arc::default() } else { channels }
        });
        channels.iter().for_each(|channel| channel.hush());
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
        described: bool,
        epoll: &Epoll,
    ) -> io::Result<()> {
        self.hang_bell(epoll)?;
        let list = self.woken.list();
        waker.add(list, token)?;
        self.woken.count.fetch_add(1, Ordering::Relaxed);
        self.woken.described.fetch_add(usize::from(described), Ordering::Relaxed);
        list.add(token).inspect_err(|_| self.remove_woken(waker, token, described))
    }

    pub(super) fn remove_woken(&self, waker: &MemberWaker, token: u64, described: bool) {
        let list = self.woken.list();
        waker.remove(list);
        list.remove(token);
        self.woken.count.fetch_sub(1, Ordering::Relaxed);
        self.woken.described.fetch_sub(usize::from(described), Ordering::Relaxed);
    }

    /// Sees to it that there is a bell in the epoll.
    fn hang_bell(&self, epoll: &Epoll) -> io::Result<()> {
        let place = &self.woken.list.bell().fd;
        if place.get().is_some() {
            return Ok(());
        }
        let bell = EventFd::new(EventFdKind::Counter, FdPlace::Internal)?;
        epoll.add(&bell, BELL, Interest::READ)?;
        if let Err(second) = place.set(bell) {
            // Another thread was faster.
            let _ = epoll.delete(&second);
        }
        Ok(())
    }

    /// The channel tells of streams of the group from now on.
    pub(crate) fn add_channel(&self, channel: &Arc<Channel>) -> io::Result<()> {
        let epoll = self.made_epoll()?;
        self.hang_bell(epoll)?;
        let add = |bell: &EpollBell, hushed: bool| bell.renew(epoll, hushed, Some(channel));
        // Dropped without the locks.
        drop(self.woken.list.change_bell(add)?);
        // Marked before it listened.
        channel.look();
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
        } else if served.left {
            // Their callers take what comes, and a timer looks after them.
            list.hush(|| self.handover.may_be_left());
        }
        served
    }
}
