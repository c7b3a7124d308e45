//! The poll group of a completion queue: the streams whose progress its callers wait for.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use iwarp_mem::OutOfMemory;
use iwarp_os::{Epoll, Events, FdPlace, Interest};
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use crate::engine::endpoint::Endpoint;
use crate::engine::handover::Handover;
use crate::engine::link::Link;
use crate::engine::poll_set::{By, PollSet, Served, Waiting};
use crate::engine::sync::{AtomicBool, AtomicU32, Ordering};
use crate::engine::tasks::next_id;
use crate::engine::token::Token;
use crate::engine::worker::Worker;
use crate::flaw::{self, Flaw};
use crate::port::Clock;

/// Streams that one look at the epoll reports at most.
const EVENTS: usize = 64;
/// Tries of a sole stream before it is silenced.
const TRIES: u32 = 64;

/// A link and its endpoint.
type Member = Arc<(Arc<Endpoint>, Arc<Link>)>;
type Members = SlotMap<DefaultKey, Member>;

/// What belongs to the driver, the thread that moves the streams.
#[derive(Debug)]
struct Driver {
    events: Events,
    /// The only stream there is, as long as the members have not changed.
    sole: Option<Member>,
    /// It is not in the epoll. A sender within the host pays for telling the epolls that have its
    /// stream, which is for nothing while callers try the stream itself.
    silenced: bool,
    /// How often callers have tried it since the epoll was needed.
    tries: u32,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Group {
    /// Its number, by which the worker knows it.
    id: u64,
    epoll: Epoll,
    /// Their keys are the tokens that the epoll reports.
    members: RwLock<Members>,
    /// A request asks the driver to look again at the members.
    driver: Token<Driver>,
    /// Messages that have come from peers; several at once may count as one.
    arrivals: AtomicU32,
    /// How often the queue was polled.
    polls: AtomicU32,
    /// How often a poll found it empty.
    polls_in_vain: AtomicU32,
    /// Some stream holds back what was posted.
    holds: AtomicBool,
    pub(crate) handover: Handover,
    worker: Arc<Worker>,
}

impl Driver {
    /// From now on the epoll reports the stream; that it can be written only where octets wait.
    fn unsilence(&mut self, group: &Group) {
        self.tries = 0;
        if flaw::is(Flaw::StaysSilenced) {
            return;
        }
        let silenced = std::mem::take(&mut self.silenced);
        let Some((_, link)) = self.sole.as_deref() else { return };
        if silenced {
            link.restore(group);
        } else if link.awaits_in_vain() {
            link.update_interest();
        }
    }
}

fn key(token: u64) -> DefaultKey {
    KeyData::from_ffi(token).into()
}

impl Group {
    /// An empty group that the worker looks after.
    pub(crate) fn new(worker: &Arc<Worker>) -> io::Result<Arc<Self>> {
        let group = Arc::new(Self {
            id: next_id(),
            epoll: Epoll::new(FdPlace::Internal)?,
            members: RwLock::default(),
            driver: Token::new(Driver {
                events: Events::with_capacity(EVENTS),
                sole: None,
                silenced: false,
                tries: 0,
            }),
            arrivals: AtomicU32::new(0),
            polls: AtomicU32::new(0),
            polls_in_vain: AtomicU32::new(0),
            holds: AtomicBool::new(false),
            handover: Handover::new(),
            worker: Arc::clone(worker),
        });
        worker.add_group(Arc::clone(&group) as Arc<dyn PollSet>)?;
        Ok(group)
    }

    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Adds a stream; the token names it from now on. To be followed by [`Self::note_change`].
    pub(crate) fn add(&self, endpoint: &Arc<Endpoint>, link: &Arc<Link>) -> io::Result<u64> {
        let token = {
            let mut members = self.write();
            members.try_reserve(1).map_err(|_| OutOfMemory)?;
            let key = members.insert(Arc::new((Arc::clone(endpoint), Arc::clone(link))));
            key.data().as_ffi()
        };
        let added = link.stream().descriptors().add(&self.epoll, token, link.interest());
        if added.is_err() {
            self.forget(token);
        }
        added.map(|()| token)
    }

    /// Tells the epoll what the link waits for now.
    pub(crate) fn update(&self, link: &Link, token: u64, interest: Interest) {
        // A silenced stream is not found. It comes back with the interest that it has then.
        if let Err(error) = link.stream().descriptors().modify(&self.epoll, token, interest)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::error!(%error, "cannot wait for a stream: was its descriptor closed?");
        }
    }

    /// Puts a silenced stream back into the epoll.
    pub(crate) fn restore(&self, link: &Link, token: u64, interest: Interest) {
        let added = link.stream().descriptors().add(&self.epoll, token, interest);
        let Some(error) = added.err().filter(|e| e.kind() != io::ErrorKind::AlreadyExists) else {
            return;
        };
        let Some(member) = self.member(token) else { return };
        // Left to the worker: this thread holds locks that losing a stream needs.
        let lose = move || {
            let (endpoint, link) = &*member;
            endpoint.lose(link, &error);
        };
        self.worker.soon(Box::new(lose));
    }

    /// Removes a stream.
    pub(crate) fn remove(&self, link: &Link, token: u64) {
        // The descriptor may have been closed under us, which removes it as well.
        let _ = link.stream().descriptors().delete(&self.epoll);
        self.forget(token);
    }

    fn forget(&self, token: u64) {
        let member = self.write().remove(key(token));
        if member.is_some() {
            drop(member);
            self.note_change();
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Members> {
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn member(&self, token: u64) -> Option<Member> {
        self.read().get(key(token)).cloned()
    }

    /// Has the driver look again at the members and put all of them back into the epoll: this
    /// thread, or the one that drives at this moment when it is done.
    pub(crate) fn note_change(&self) {
        let mut gone = Vec::new();
        self.driver.request(|driver| gone.extend(self.look_again(driver)));
    }

    /// Finds out whether there is but one stream. Returns the one there was, to be dropped without
    /// the token: this may be its last reference.
    fn look_again(&self, driver: &mut Driver) -> Option<Member> {
        driver.unsilence(self);
        let members = self.read();
        let sole = if members.len() == 1 { members.values().next().cloned() } else { None };
        drop(members);
        let same = driver.sole.as_ref().map(Arc::as_ptr) == sole.as_ref().map(Arc::as_ptr);
        if same { None } else { std::mem::replace(&mut driver.sole, sole) }
    }

    /// Does `work` as the driver; `None` where another thread drives.
    fn as_driver<R>(&self, work: impl FnOnce(&mut Driver) -> R) -> Option<R> {
        let mut gone = Vec::new();
        self.driver.attempt(work, |driver| gone.extend(self.look_again(driver)))
    }

    /// Moves whatever is ready. False when nothing was, or another thread drives.
    pub(crate) fn drive(&self, by: By) -> bool {
        self.as_driver(|driver| self.drive_as(driver, by)).unwrap_or(false)
    }

    fn drive_as(&self, driver: &mut Driver, by: By) -> bool {
        let moved = match driver.sole.as_deref() {
            Some((endpoint, link)) if by != By::Worker && link.can_be_tried() => {
                self.try_sole(endpoint, link, by)
            }
            _ => {
                driver.unsilence(self);
                self.drive_ready(&mut driver.events, by).moved
            }
        };
        self.count_try(driver);
        moved
    }

    /// As [`Self::drive`], but not the streams that callers of other groups look after: this one's
    /// completions come of that as well. Not where a caller sleeps until the worker has some.
    fn serve_as(&self, driver: &mut Driver) -> Served {
        if let Some((_, link)) = driver.sole.as_deref()
            && self.is_left_to_others(link)
        {
            self.silence(driver);
            return Served { moved: false, left: true };
        }
        driver.unsilence(self);
        self.drive_ready(&mut driver.events, By::Worker)
    }

    /// A caller that begins to wait for this group unsilences the stream afterwards, so it may be
    /// silenced while none waits.
    fn is_left_to_others(&self, link: &Link) -> bool {
        self.handover.may_be_left() && link.is_leased_beside(self)
    }

    /// Tries the only stream there is. That costs no more than a look at the epoll, which would come
    /// on top.
    fn try_sole(&self, endpoint: &Arc<Endpoint>, link: &Arc<Link>, by: By) -> bool {
        let _call = self.handover.call();
        let moved = endpoint.try_stream(link, by);
        if moved {
            self.handover.renew_short_lease(|| self.nanos());
        } else if link.awaits_in_vain() && self.handover.has_waiters() {
            link.update_interest();
        }
        moved
    }

    fn drive_ready(&self, events: &mut Events, by: By) -> Served {
        let mut served = Served::default();
        match self.epoll.wait(events, Some(Duration::ZERO)) {
            Ok(0) | Err(_) => return served,
            Ok(_) => {}
        }
        let call = (by != By::Worker).then(|| self.handover.call());
        for ready in events.iter() {
            let Some(member) = self.member(ready.token) else { continue };
            let (endpoint, link) = &*member;
            if by == By::Worker && self.is_left_to_others(link) {
                served.left = true;
            } else {
                endpoint.ready(link, ready, by);
                served.moved = true;
            }
        }
        if call.is_some() {
            self.handover.renew_short_lease(|| self.nanos());
        }
        served
    }

    /// Silences a stream that callers have tried often, while the worker does no more than to watch
    /// and no caller sleeps on the epoll. A thread that changes either unsilences it afterwards.
    fn count_try(&self, driver: &mut Driver) {
        if driver.silenced || driver.sole.is_none() {
            return;
        }
        driver.tries = driver.tries.saturating_add(1);
        if driver.tries >= TRIES && self.handover.is_watched() {
            self.silence(driver);
        }
    }

    fn silence(&self, driver: &mut Driver) {
        if let Some((_, link)) = driver.sole.as_deref()
            && !driver.silenced
        {
            // Fails only where the stream is not in the epoll, and then it is silent as well.
            let _ = link.stream().descriptors().delete(&self.epoll);
            driver.silenced = true;
        }
    }

    /// A caller found nothing to do and drives: the worker may stay away for a while.
    pub(crate) fn poll(&self) -> bool {
        self.polls_in_vain.store(self.polls_in_vain().wrapping_add(1), Ordering::Relaxed);
        self.handover.lease(self.nanos());
        self.drive(By::Caller)
    }

    /// A caller whose polls have found nothing for long does the worker's work for another group,
    /// which would otherwise take another CPU or half of the caller's. Returns whether there was
    /// some; `None` where no other group can have any.
    pub(crate) fn lend_a_hand(&self) -> Option<bool> {
        Some(self.worker.other_group(self.id)?.help())
    }

    /// Sleeps until a stream is ready, for `time` at most. True when one is.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        self.unsilence();
        // A signal ends it as well; what came is found by the next poll.
        let time = self.clock().sleep(time);
        iwarp_os::poll::wait_ready([(self.epoll.as_fd(), Interest::READ)], Some(time))
            .is_ok_and(|[ready]| ready)
    }

    /// By which its connections go.
    pub(crate) fn clock(&self) -> &Clock {
        self.worker.clock()
    }

    fn nanos(&self) -> u64 {
        self.clock().nanos()
    }

    /// A number that changes when a poll finds nothing in the completion queue.
    pub(crate) fn polls_in_vain(&self) -> u32 {
        self.polls_in_vain.load(Ordering::Relaxed)
    }

    /// A number that changes when the completion queue is polled.
    pub(crate) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Counts a poll of the completion queue. True when posts were held back that must go out now.
    pub(crate) fn note_poll(&self) -> bool {
        self.polls.store(self.polls().wrapping_add(1), Ordering::Relaxed);
        self.holds.load(Ordering::Relaxed) && self.holds.swap(false, Ordering::Relaxed)
    }

    /// A post is held back until the next poll, which will come soon: the worker need not hurry.
    pub(crate) fn note_hold(&self, now: u64) {
        self.handover.lease_in_full(now);
        self.holds.store(true, Ordering::Relaxed);
    }

    /// Messages of peers that have come: a number that changes with each of them, or some.
    pub(crate) fn arrivals(&self) -> u32 {
        self.arrivals.load(Ordering::Relaxed)
    }

    /// A peer has sent a message.
    pub(crate) fn note_arrival(&self) {
        self.arrivals.fetch_add(1, Ordering::Relaxed);
    }

    /// A caller goes to sleep elsewhere: from now on the worker serves the group at once.
    pub(crate) fn leave_to_worker(&self) {
        if self.handover.end_lease() && !flaw::is(Flaw::SleeperArmsNothing) {
            self.arm();
        }
    }

    /// A caller blocks on the group until the result is dropped.
    pub(crate) fn wait_on(self: &Arc<Self>) -> Waiting {
        Waiting::on(Arc::clone(self) as Arc<dyn PollSet>)
    }
}

impl PollSet for Group {
    fn id(&self) -> u64 {
        self.id
    }

    fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    fn handover(&self) -> &Handover {
        &self.handover
    }

    fn clock(&self) -> &Clock {
        self.clock()
    }

    fn arm(&self) {
        self.worker.arm(self);
    }

    fn help(&self) -> bool {
        !self.handover.has_waiters() && self.poll()
    }

    fn unsilence(&self) {
        self.note_change();
    }

    fn drive(&self, by: By) -> bool {
        self.drive(by)
    }

    fn serve(&self) -> Served {
        self.as_driver(|driver| self.serve_as(driver)).unwrap_or_default()
    }
}
