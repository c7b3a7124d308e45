//! The poll group of a completion queue: the streams whose progress its callers wait for.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use iwarp_os::{Epoll, Events, FdPlace, ForkGeneration, Interest};

use crate::engine::endpoint::Endpoint;
use crate::engine::handover::Handover;
use crate::engine::link::Link;
use crate::engine::sync::{AtomicBool, AtomicU32, Mutex, Ordering};
use crate::engine::tended::{Tended, Waiting};
use crate::engine::worker::Worker;

/// Streams looked at in one go.
const EVENTS: usize = 64;

/// Who moves the streams of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// The worker, as no caller does.
    Worker,
    /// A caller that polls or is blocked.
    Caller,
    /// A caller that has posted and awaits an answer.
    Post,
}

type Member = (Arc<Endpoint>, Arc<Link>);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Group {
    /// Its name at the worker.
    id: u64,
    epoll: Epoll,
    members: RwLock<Members>,
    driver: Mutex<Events>,
    /// Messages of peers, as far as they were noticed.
    arrivals: AtomicU32,
    /// How often the queue was polled.
    polls: AtomicU32,
    /// Some stream holds back what was posted.
    holds: AtomicBool,
    pub(crate) handover: Handover,
    pub(crate) process: ForkGeneration,
    worker: Arc<Worker>,
}

#[derive(Debug, Default)]
struct Members {
    slots: Vec<(u32, Option<Member>)>,
    free: Vec<u32>,
}

impl Group {
    /// An empty group that the worker looks after.
    pub(crate) fn new(worker: &Arc<Worker>) -> io::Result<Arc<Self>> {
        let group = Arc::new(Self {
            id: worker.next_id(),
            epoll: Epoll::new(FdPlace::Internal)?,
            members: RwLock::default(),
            driver: Mutex::new(Events::with_capacity(EVENTS)),
            arrivals: AtomicU32::new(0),
            polls: AtomicU32::new(0),
            holds: AtomicBool::new(false),
            handover: Handover::new(),
            process: ForkGeneration::new(),
            worker: Arc::clone(worker),
        });
        worker.add_group(&group)?;
        Ok(group)
    }

    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    pub(crate) const fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    /// Adds a stream; the token names it from now on.
    pub(crate) fn add(&self, endpoint: &Arc<Endpoint>, link: &Arc<Link>) -> io::Result<u64> {
        let token = {
            let mut members = self.write();
            let index = members.free.pop().unwrap_or_else(|| {
                members.slots.push((0, None));
                (members.slots.len() - 1) as u32
            });
            let slot = &mut members.slots[index as usize];
            slot.0 = slot.0.wrapping_add(1);
            slot.1 = Some((Arc::clone(endpoint), Arc::clone(link)));
            u64::from(slot.0) << 32 | u64::from(index)
        };
        let added = self.epoll.add(link.stream().readiness(), token, link.interest());
        if added.is_err() {
            self.forget(token);
        }
        added.map(|()| token)
    }

    /// Waits for what the link wants now.
    pub(crate) fn update(&self, link: &Link, token: u64, interest: Interest) {
        if let Err(error) = self.epoll.modify(link.stream().readiness(), token, interest) {
            tracing::error!(%error, "cannot wait for a stream: was its descriptor closed?");
        }
    }

    /// Removes a stream.
    pub(crate) fn remove(&self, link: &Link, token: u64) {
        // The descriptor may have been closed under us, which removes it as well.
        let _ = self.epoll.delete(link.stream().readiness());
        self.forget(token);
    }

    fn forget(&self, token: u64) {
        let mut members = self.write();
        let index = token as u32;
        let slot = &mut members.slots[index as usize];
        if u64::from(slot.0) == token >> 32 && slot.1.is_some() {
            let member = slot.1.take();
            members.free.push(index);
            drop(members);
            drop(member);
        }
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Members> {
        self.members.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn member(&self, token: u64) -> Option<Member> {
        let members = self.members.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (generation, member) = members.slots.get(token as u32 as usize)?;
        if u64::from(*generation) != token >> 32 {
            return None;
        }
        member.clone()
    }

    /// The only stream there is.
    fn sole_member(&self) -> Option<Member> {
        let members = self.members.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        match members.slots.as_slice() {
            [(_, member)] => member.clone(),
            _ => None,
        }
    }

    /// Moves whatever is ready. False when nothing was, or somebody else is at it.
    pub(crate) fn drive(&self, by: By) -> bool {
        let Some(mut events) = self.driver.try_lock() else { return false };
        if by != By::Worker
            && let Some((endpoint, link)) = self.sole_member()
            && link.can_be_tried()
        {
            // A try costs no more than a look at the epoll, which would come on top.
            let _driven = self.handover.driven();
            let moved = endpoint.try_stream(&link, by);
            if moved {
                self.handover.moved();
                self.handover.renew_short_lease(clock);
            } else if link.awaits_in_vain() && self.handover.has_waiters() {
                link.update_interest();
            }
            return moved;
        }
        match self.epoll.wait(&mut events, Some(Duration::ZERO)) {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
        let driven = (by != By::Worker).then(|| self.handover.driven());
        for ready in events.iter() {
            if let Some((endpoint, link)) = self.member(ready.token) {
                endpoint.ready(&link, ready, by);
            }
        }
        self.handover.moved();
        if driven.is_some() {
            self.handover.renew_short_lease(clock);
        }
        true
    }

    /// A caller found nothing to do and drives: the worker may stay away for a while. `again`: it
    /// has done nothing else since it did that last.
    pub(crate) fn poll(&self, again: bool) -> bool {
        self.handover.lease(clock(), again);
        self.drive(By::Caller)
    }

    /// A caller polls and finds nothing for long: what it does next is the worker's work, which would
    /// else need another CPU or half of the caller's. Whether there was some; `None` where no other
    /// group can have any.
    pub(crate) fn lend_a_hand(&self) -> Option<bool> {
        let other = self.worker.other_group(self)?;
        Some(!other.handover.has_waiters() && other.poll(true))
    }

    /// A caller that polls sleeps until a stream is ready, for so long at most.
    pub(crate) fn sleep(&self, time: Duration) {
        if let Some((_, link)) = self.sole_member()
            && link.awaits_in_vain()
        {
            link.update_interest();
        }
        // A signal ends it as well; what came is found by the next poll.
        let _ = iwarp_os::poll::wait_ready([(self.epoll.as_fd(), Interest::READ)], Some(time));
    }

    /// A number that changes when the completion queue is polled.
    pub(crate) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// The completion queue is polled. Whether something was posted that has not gone out.
    pub(crate) fn note_poll(&self) -> bool {
        self.polls.store(self.polls().wrapping_add(1), Ordering::Relaxed);
        self.holds.load(Ordering::Relaxed) && self.holds.swap(false, Ordering::Relaxed)
    }

    /// What was posted on a stream does not go out before the next poll, which will come soon: the
    /// worker need not hurry.
    pub(crate) fn note_hold(&self, now: u64) {
        self.handover.lease_in_full(now);
        self.holds.store(true, Ordering::Relaxed);
    }

    /// Messages of peers that have come: a number that changes with each of them, or some.
    pub(crate) fn arrivals(&self) -> u32 {
        self.arrivals.load(Ordering::Relaxed)
    }

    /// A peer has sent something.
    pub(crate) fn note_arrival(&self) {
        self.arrivals.fetch_add(1, Ordering::Relaxed);
    }

    /// A caller goes to sleep elsewhere: from now on the worker serves the group at once.
    pub(crate) fn leave_to_worker(&self) {
        if self.handover.end_lease() {
            self.worker.arm(self);
        }
    }

    /// A caller blocks on the group until the result is dropped.
    pub(crate) fn wait_on(self: &Arc<Self>) -> Waiting {
        Waiting::on(Arc::clone(self) as Arc<dyn Tended>)
    }
}

impl Tended for Group {
    fn id(&self) -> u64 {
        self.id
    }

    fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    fn handover(&self) -> &Handover {
        &self.handover
    }

    fn worker(&self) -> &Worker {
        &self.worker
    }

    fn drive(&self, by: By) -> bool {
        self.drive(by)
    }
}

/// Nanoseconds of the monotonic clock, nearly.
pub(crate) fn clock() -> u64 {
    iwarp_os::ticks::nanos()
}
