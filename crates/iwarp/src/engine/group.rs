// SPDX-License-Identifier: MIT OR Apache-2.0

//! The poll group of a completion queue: the streams, and the datagrams, whose progress its callers
//! wait for.
//!
//! A poll of a group with one stream reads that stream without asking the epoll, which would cost a
//! call on top of the read. A full socket is left to the epoll, which reports room when it is worth
//! a call. That interest stays registered while callers poll, and the next thread that sleeps
//! removes it.
//!
//! A stream is in the poll groups of both its completion queues. If callers of one queue serve the
//! stream, the worker does not move it on behalf of the other: a program that polls its receive
//! queue and only sometimes its send queue would otherwise race with its own worker. This does not
//! apply to a queue that was armed, on whose channel a thread may sleep.
//!
//! A program that polls an idle queue while the worker moves another queue's streams would take
//! half a CPU from the worker. So before such a poll yields, it moves the streams of the other
//! queues in turn, if they are few, and holds their leases (`Group::lend_a_hand`).
//!
//! # Writers of the fields
//!
//! The *driver* is the thread that holds the token of the group.
//!
//! - `id`, `itself`, `without`, `worker`: the thread that creates the completion queue, before it
//!   is shared.
//! - `epoll`: the thread that adds the first member or waits first, once, with `making` locked.
//! - `members` (links, muxes): a thread that adds or closes one. Guard: its lock, under which the
//!   epoll changes too.
//! - `woken` (ready list, bell): ports that wake, the driver, a thread that arms, blocks or naps,
//!   one that adds or closes a member. Guard: its own lock.
//! - `driver` (events, the only stream, drives since it asked the epoll, backoff): the
//!   driver.
//! - `known` (queues): the worker that moves a stream, and threads that arm the queue or complete
//!   something there. Guard: its own lock.
//! - `polls`: the polling caller, and a post that is held. It is a hint: several threads may store
//!   it at once, and a lost store costs only some time.

mod known;
mod member;
mod waker;
mod woken;

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use iwarp_mem::OutOfMemory;
use iwarp_os::{Epoll, Events, FdPlace, Interest, poll};
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

pub(crate) use self::known::Known;
pub(crate) use self::member::{Member, Memberships};
pub(crate) use self::waker::{MemberWaker, ready_of};
pub(crate) use self::woken::GroupList;
use self::woken::{BELL, Woken};
use crate::engine::attend;
use crate::engine::handover::Handover;
use crate::engine::policy::Behaviours;
use crate::engine::policy::backoff::{Backoff, Rest};
use crate::engine::policy::polls::Polls;
use crate::engine::poll_set::{By, PollSet, Served, Waiting};
use crate::engine::sync::Mutex;
use crate::engine::tasks::next_id;
use crate::engine::token::Token;
use crate::engine::worker::Worker;
use crate::port::Clock;

/// Drives for each look at an epoll that tells of nothing but the death of peers.
const UNASKED: u32 = 64;
/// Streams that one look at the epoll reports at most.
const EVENTS: usize = 64;

/// The streams of a group, and which of them its epoll has: both change under one lock.
#[derive(Debug, Default)]
struct Members {
    /// Their keys are the tokens that the epoll reports.
    streams: SlotMap<DefaultKey, Joined>,
}

/// A member as it has joined: what wakes it may be another by the time that it leaves.
#[derive(Debug)]
struct Joined {
    member: Arc<dyn Member>,
    /// See [`Member::waker`].
    waker: Option<Arc<MemberWaker>>,
    /// The epoll has a descriptor of it.
    described: bool,
}

/// The state of the driver, the thread that moves the streams.
#[derive(Debug)]
struct Driver {
    events: Events,
    /// The only stream there is, as long as the members have not changed.
    sole: Option<Arc<dyn Member>>,
    /// The number of drives since the epoll was asked, where it tells of next to nothing.
    unasked: u32,
    backoff: Backoff,
}

/// The result of a poll that moves streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Polled {
    /// Something was there.
    Moved,
    /// No member was ready, and the caller had better do this.
    Nothing(Rest),
    /// Another thread drives.
    Taken,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Group {
    /// Its number, by which the worker knows it.
    id: u64,
    itself: Weak<Self>,
    /// Made for the first stream, or the first thread that waits: programs have queues without
    /// either, by the thousand.
    epoll: OnceLock<Epoll>,
    making: Mutex<()>,
    members: Mutex<Members>,
    /// Streams that the epoll does not report, as they have no descriptor.
    woken: Woken,
    /// A request asks the driver to look again at the members.
    driver: Token<Driver>,
    /// The number of times that the queue was polled.
    pub(crate) polls: Polls,
    without: Behaviours,
    pub(crate) handover: Handover,
    /// The processes that know its queue.
    pub(crate) known: Known,
    worker: Arc<Worker>,
}

impl Members {
    /// The only stream, if a descriptor tells of it.
    fn sole(&self) -> Option<&Arc<dyn Member>> {
        let first = self.streams.values().next().filter(|_| self.streams.len() == 1);
        first.filter(|joined| joined.waker.is_none()).map(|joined| &joined.member)
    }

    /// The only stream, if a driver may try it without a report.
    fn tried_alone(&self) -> Option<&Arc<dyn Member>> {
        let first = self.streams.values().next().filter(|_| self.streams.len() == 1);
        let first = first.filter(|joined| joined.waker.is_none() || joined.member.looks_itself());
        first.map(|joined| &joined.member)
    }
}

fn key(token: u64) -> DefaultKey {
    KeyData::from_ffi(token).into()
}

impl Group {
    /// An empty group, which the worker looks after once there is something in it.
    pub(crate) fn new(worker: &Arc<Worker>, without: Behaviours) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            id: next_id(),
            itself: Weak::clone(itself),
            epoll: OnceLock::new(),
            making: Mutex::default(),
            members: Mutex::default(),
            woken: Woken::new(),
            driver: Token::new(Driver {
                events: Events::with_capacity(EVENTS),
                sole: None,
                unasked: 0,
                backoff: Backoff::new(without),
            }),
            polls: Polls::new(),
            without,
            handover: Handover::new(),
            known: Known::default(),
            worker: Arc::clone(worker),
        })
    }

    /// The epoll that reports its streams, made if it is not there. The worker looks after the
    /// group from then on.
    fn made_epoll(&self) -> io::Result<&Epoll> {
        if let Some(made) = self.epoll.get() {
            return Ok(made);
        }
        let _one_at_a_time = self.making.lock();
        if self.epoll.get().is_none() {
            let epoll = Epoll::new(FdPlace::Internal)?;
            let itself: Weak<dyn PollSet> = Weak::<Self>::clone(&self.itself);
            // It reports nothing before there is a stream, which comes when it has its place.
            self.worker.add_group(self.id, itself, &epoll)?;
            let _ = self.epoll.set(epoll);
        }
        self.epoll.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Adds a stream; the token names it from now on. To be followed by [`Self::note_change`].
    pub(crate) fn add(&self, member: &Arc<dyn Member>) -> io::Result<u64> {
        let epoll = self.made_epoll()?;
        let mut members = self.members.lock();
        members.streams.try_reserve(1).map_err(|_| OutOfMemory)?;
        let waker = member.waker().cloned();
        let described = !member.descriptors().is_none();
        let joined = Joined { member: Arc::clone(member), waker: waker.clone(), described };
        let key = members.streams.insert(joined);
        let token = key.data().as_ffi();
        let added = member.descriptors().add(epoll, token, member.interest_of_descriptors());
        let added = added.and_then(|()| match waker {
            Some(waker) => self.add_woken(&waker, token, described, epoll).inspect_err(|_| {
                let _ = member.descriptors().delete(epoll);
            }),
            None => Ok(()),
        });
        if added.is_err() {
            members.streams.remove(key);
        }
        added.map(|()| token)
    }

    /// Tells the epoll what a member waits for now.
    pub(crate) fn update(&self, member: &dyn Member, token: u64) {
        if member.waker().is_some() {
            self.woken.list().put(token);
            if member.descriptors().is_none() {
                return;
            }
        }
        let _members = self.members.lock();
        let Some(epoll) = self.epoll.get() else { return };
        let interest = member.interest_of_descriptors();
        let updated = member.descriptors().modify(epoll, token, interest);
        // One that could not be put back is lost at this moment.
        if let Err(error) = updated
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::error!(%error, "cannot wait for a stream: was its descriptor closed?");
        }
    }

    /// Removes a stream.
    pub(crate) fn remove(&self, member: &dyn Member, token: u64) {
        let removed = {
            let mut members = self.members.lock();
            // The descriptor may have been closed under us, which removes it as well.
            let _ = self.epoll.get().map(|epoll| member.descriptors().delete(epoll));
            let removed = members.streams.remove(key(token));
            if let Some(Joined { waker: Some(waker), described, .. }) = &removed {
                self.remove_woken(waker, token, *described);
            }
            removed
        };
        if removed.is_some() {
            // Without the lock: it may be the last reference.
            drop(removed);
            self.note_change();
        }
    }

    fn member(&self, token: u64) -> Option<Arc<dyn Member>> {
        self.members.lock().streams.get(key(token)).map(|joined| Arc::clone(&joined.member))
    }

    /// Has the driver look again at the members: this thread, or the one that drives at this moment
    /// when it is done.
    pub(crate) fn note_change(&self) {
        let mut gone = Vec::new();
        self.driver.request(|driver| gone.extend(self.look_again(driver)));
    }

    /// Finds out whether there is but one stream. Returns the one there was, to be dropped without
    /// the token: this may be its last reference.
    fn look_again(&self, driver: &mut Driver) -> Option<Arc<dyn Member>> {
        let sole = self.members.lock().tried_alone().map(Arc::clone);
        std::mem::replace(&mut driver.sole, sole)
    }

    /// Does `work` as the driver; `None` where another thread drives.
    fn as_driver<R>(&self, work: impl FnOnce(&mut Driver) -> R) -> Option<R> {
        let mut gone = Vec::new();
        self.driver.attempt(work, |driver| gone.extend(self.look_again(driver)))
    }

    /// Moves all that is ready. False when nothing was, or another thread drives.
    pub(crate) fn drive(&self, by: By) -> bool {
        self.as_driver(|driver| self.drive_as(driver, by)).unwrap_or(false)
    }

    fn drive_as(&self, driver: &mut Driver, by: By) -> bool {
        match &driver.sole {
            Some(sole) if by != By::Worker && sole.can_be_tried() => {
                let moved = self.try_sole(&**sole, by);
                moved | (sole.looks_itself() && self.look_beside(driver, by))
            }
            _ => {
                need_epoll(driver);
                self.drive_ready(driver, by).moved
            }
        }
    }

    /// After the only stream was tried, which looks itself: takes what tells of it, and now and
    /// then asks the epoll whether it has ended.
    fn look_beside(&self, driver: &mut Driver, by: By) -> bool {
        driver.unasked += 1;
        if self.is_to_ask(driver) {
            return self.drive_ready(driver, by).moved;
        }
        self.woken.list().len() > 0 && self.drive_woken(by).moved
    }

    /// A caller asks the epoll of a group that it tells of next to nothing: now and then, and where
    /// a bell may have rung for a thread that has slept on it, as it rings until it is asked.
    fn is_to_ask(&self, driver: &Driver) -> bool {
        driver.unasked >= UNASKED || self.handover.has_waiters()
    }

    /// As [`Self::drive`], but not the streams that callers of other groups look after: this one's
    /// completions come of that as well. No stream is left so while a caller sleeps until the
    /// worker has some.
    fn serve_as(&self, driver: &mut Driver) -> Served {
        if let Some(sole) = &driver.sole
            && self.is_left_to_others(&**sole)
        {
            self.woken.list().hush(|| self.handover.may_be_left());
            return Served { moved: false, left: true };
        }
        need_epoll(driver);
        self.drive_ready(driver, By::Worker)
    }

    /// A caller that begins to wait for this group has the bell ring afterwards, so it may be
    /// hushed while none waits.
    fn is_left_to_others(&self, member: &dyn Member) -> bool {
        self.handover.may_be_left() && member.memberships().is_leased_beside(self)
    }

    /// Tries the only stream there is. That costs no more than a look at the epoll, which would
    /// come on top.
    fn try_sole(&self, sole: &dyn Member, by: By) -> bool {
        let _call = self.handover.call();
        let moved = sole.attempt(by);
        if moved {
            self.handover.renew_short_lease(|| self.nanos());
        } else if self.handover.has_waiters() && sole.awaits_in_vain() {
            sole.update_interest();
        }
        moved
    }

    fn drive_ready(&self, driver: &mut Driver, by: By) -> Served {
        let mut served = Served::default();
        if self.woken.is_used() {
            let _quiet = self.woken.look();
            served = self.drive_woken(by);
            if self.woken.is_all(self.members.lock().streams.len()) {
                // The epoll tells of nothing but the end of those that have a descriptor as well,
                // and of what comes by it before they have moved.
                driver.unasked = driver.unasked.wrapping_add(1);
                let spares = by != By::Worker && !self.is_to_ask(driver);
                if !self.woken.has_described() || spares {
                    return served;
                }
            }
        }
        driver.unasked = 0;
        let Some(epoll) = self.epoll.get() else { return served };
        match epoll.wait(&mut driver.events, Some(Duration::ZERO)) {
            Ok(0) | Err(_) => return served,
            Ok(_) => {}
        }
        let call = (by != By::Worker).then(|| self.handover.call());
        let mut rang = false;
        for ready in driver.events.iter() {
            let Some(member) = self.member(ready.token) else {
                rang |= ready.token == BELL;
                continue;
            };
            if by == By::Worker && self.is_left_to_others(&*member) {
                served.left = true;
            } else {
                member.reported();
                member.ready(ready, by);
                served.moved = true;
            }
        }
        if rang && self.woken.rang(epoll) {
            let woken = self.drive_woken(by);
            served.moved |= woken.moved;
            served.left |= woken.left;
        }
        if call.is_some() {
            self.handover.renew_short_lease(|| self.nanos());
        }
        served
    }

    /// A caller found nothing to do and drives: the worker may stay away for a while.
    pub(crate) fn poll(&self) -> Polled {
        let found = self.polls.count_in_vain();
        self.handover.lease(self.nanos());
        let polled = self.as_driver(|driver| {
            if self.drive_as(driver, By::Caller) {
                driver.backoff.moved();
                Polled::Moved
            } else {
                Polled::Nothing(driver.backoff.found_nothing(found))
            }
        });
        polled.unwrap_or(Polled::Taken)
    }

    /// Tells the policy that advised a rest how it went.
    pub(crate) fn has_rested(&self, tell: impl FnOnce(&mut Backoff)) {
        self.as_driver(|driver| tell(&mut driver.backoff));
    }

    /// Likewise, of a yield that took so many nanoseconds.
    pub(crate) fn has_yielded(&self, took: u64) {
        self.as_driver(|driver| {
            if driver.backoff.has_yielded(took)
                && let Some(sole) = &driver.sole
            {
                driver.backoff.input_came_by(sole.descriptors().input_cpu());
            }
        });
    }

    /// A caller whose polls have found nothing for long does the worker's work for another group,
    /// which would otherwise take another CPU or half of the caller's. Returns whether there was
    /// some; `None` where no other group can have any.
    pub(crate) fn lend_a_hand(&self) -> Option<bool> {
        if self.without.contains(Behaviours::LEND) {
            return None;
        }
        Some(self.worker.other_group(self.id)?.help())
    }

    /// Sleeps until a stream is ready, for `time` at most. True when one is.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        self.woken.list().will_sleep();
        self.listen();
        // A signal ends it as well; what came is found by the next poll.
        let time = self.clock().sleep(time);
        let ready = match self.epoll.get() {
            Some(epoll) => {
                let ready = poll::wait_ready([(epoll.as_fd(), Interest::READ)], Some(time));
                ready.is_ok_and(|[ready]| ready)
            }
            None => {
                let _ = poll::wait_ready([], Some(time));
                false
            }
        };
        self.woken.list().has_slept();
        if ready && self.woken.has_described() {
            self.as_driver(|driver| driver.unasked = UNASKED);
        }
        ready
    }

    /// True if that behaviour is switched off.
    pub(crate) const fn without(&self, which: Behaviours) -> bool {
        self.without.contains(which)
    }

    /// The worker that looks after it while no caller does.
    pub(crate) const fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// The clock of its connections.
    pub(crate) fn clock(&self) -> &Clock {
        self.worker.clock()
    }

    fn nanos(&self) -> u64 {
        self.clock().nanos()
    }

    /// A post is held back until the next poll, which will come soon: the worker need not hurry.
    pub(crate) fn note_hold(&self, now: u64) {
        self.handover.lease_in_full(now);
        self.polls.hold();
    }

    /// A caller goes to sleep elsewhere: from now on the worker serves the group at once.
    pub(crate) fn leave_to_worker(&self) {
        attend::leave_to_worker(self as &dyn PollSet);
    }

    /// A caller may go to sleep elsewhere, and most likely polls again before: the worker serves
    /// the group when its lease is over.
    pub(crate) fn linger(&self) {
        attend::linger(self as &dyn PollSet);
    }

    /// A caller blocks on the group until the result is dropped.
    pub(crate) fn wait_on(self: &Arc<Self>) -> Waiting {
        Waiting::on(Arc::clone(self) as Arc<dyn PollSet>)
    }
}

/// The driver looks at the epoll: interest in room to send for which nothing waits goes first.
fn need_epoll(driver: &Driver) {
    if let Some(sole) = &driver.sole
        && sole.awaits_in_vain()
    {
        sole.update_interest();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.epoll.get().is_some() {
            self.worker.forget_group(self.id);
        }
        self.woken.end();
    }
}

impl PollSet for Group {
    fn id(&self) -> u64 {
        self.id
    }

    fn epoll(&self) -> io::Result<&Epoll> {
        self.made_epoll()
    }

    fn handover(&self) -> &Handover {
        &self.handover
    }

    fn clock(&self) -> &Clock {
        self.clock()
    }

    fn report_once(&self) {
        // It reports itself once from when it is made.
        if let Some(epoll) = self.epoll.get() {
            self.worker.report_once(self.id, epoll);
        }
    }

    fn look_again(&self, at: u64) {
        self.worker.look_again(self, at);
    }

    fn help(&self) -> bool {
        if self.handover.has_waiters() {
            return false;
        }
        self.handover.lease(self.nanos());
        self.drive(By::Caller)
    }

    fn listen(&self) {
        let in_vain = {
            let members = self.members.lock();
            members.sole().filter(|sole| sole.awaits_in_vain()).cloned()
        };
        if let Some(sole) = in_vain {
            sole.update_interest();
        }
        self.woken.list().listen();
    }

    fn drive(&self, by: By) -> bool {
        self.drive(by)
    }

    fn alerts(&self) -> u64 {
        self.known.alerts()
    }

    fn is_alerted(&self) -> bool {
        self.known.is_alerted()
    }

    fn answer_alert(&self) {
        if self.as_driver(|driver| self.drive_as(driver, By::Caller)).is_none() {
            self.woken.hear();
        }
    }

    fn may_be_alerted(&self) -> bool {
        self.known.is_any()
    }

    fn serve(&self) -> Served {
        self.as_driver(|driver| self.serve_as(driver)).unwrap_or_default()
    }
}

#[cfg(all(test, not(model)))]
mod tests;
