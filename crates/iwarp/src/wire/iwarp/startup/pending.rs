// SPDX-License-Identifier: MIT OR Apache-2.0

//! The peers in start-up at a listener, and the one that goes when there are too many.
//!
//! Any stranger can connect and say nothing, or ask and ask again. Neither keeps others out:
//!
//! - A connection without a Request never stands in the way of a new one. When there are too many,
//!   the oldest goes of the address that has most of them: a client that means it has asked by
//!   then.
//! - Requests that wait for the program's answer are not taken back. One address may have them all,
//!   as many as there may be; a few other addresses have their share on top.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use iwarp_types::Source;

use crate::engine::sync::Mutex;

/// The part of the places that connections without a Request have even while all others are taken
/// by requests.
const KEPT_FREE: usize = 4;
/// The part of the places that further addresses may have on top, each.
const SHARE: usize = 16;

/// So many of those that came before one another are asked whether theirs has come first.
const ELDERS: usize = 16;

/// A connection whose Request has not come.
pub(crate) trait Pending: Send + Sync {
    /// Goes: others need the slot.
    fn make_room(&self);

    /// Looks whether its Request has come, as that of a later connection has.
    fn look(&self);
}

/// See the [module](self).
pub(crate) struct PendingBySource {
    limit: usize,
    state: Mutex<Backlog>,
}

#[derive(Default)]
struct Backlog {
    serial: u64,
    arriving: usize,
    waiting: usize,
    shares: HashMap<Source, Share>,
    /// By what makes them the first to lose a connection: how many they have, and how old the
    /// oldest is.
    order: BTreeMap<(usize, Reverse<u64>), Source>,
}

/// The share of one source.
#[derive(Default)]
struct Share {
    /// By age.
    arriving: BTreeMap<u64, Option<Weak<dyn Pending>>>,
    waiting: usize,
}

impl Share {
    fn rank(&self) -> Option<(usize, Reverse<u64>)> {
        let (oldest, _) = self.arriving.first_key_value()?;
        Some((self.arriving.len(), Reverse(*oldest)))
    }
}

impl Backlog {
    fn change<R>(&mut self, source: Source, change: impl FnOnce(&mut Share) -> R) -> R {
        let share = self.shares.entry(source).or_default();
        let before = share.rank();
        let result = change(share);
        let after = share.rank();
        let gone = after.is_none() && share.waiting == 0;
        if before != after {
            before.map(|rank| self.order.remove(&rank));
            after.map(|rank| self.order.insert(rank, source));
        }
        if gone {
            self.shares.remove(&source);
        }
        result
    }

    fn leave(&mut self, source: Source, serial: u64) -> bool {
        let there = self.change(source, |share| share.arriving.remove(&serial).is_some());
        self.arriving -= usize::from(there);
        there
    }

    /// Takes out the oldest of the source that has most.
    fn evict(&mut self) -> Option<Victim> {
        let (_, source) = self.order.last_key_value()?;
        let source = *source;
        let (_, connection) = self.change(source, |share| share.arriving.pop_first())?;
        self.arriving -= 1;
        Some(Victim { source, connection: connection?.upgrade()? })
    }
}

/// A connection that lost its slot, and has to be told so.
pub(crate) struct Victim {
    pub(crate) source: Source,
    pub(crate) connection: Arc<dyn Pending>,
}

impl PendingBySource {
    /// `limit` slots.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), state: Mutex::default() })
    }

    /// A slot for a connection from `source`, and the one that had to leave for it, if one had to.
    /// `None` where its Request could not wait anyway.
    pub(crate) fn enter(self: &Arc<Self>, source: Source) -> Option<(BacklogSlot, Option<Victim>)> {
        let mut state = self.state.lock();
        if !self.may_wait(&state, source) {
            return None;
        }
        let left = self.limit.saturating_sub(state.waiting);
        let room = left.max(self.limit / KEPT_FREE).max(1);
        let victim = if state.arriving >= room { state.evict() } else { None };
        state.serial += 1;
        let serial = state.serial;
        state.change(source, |share| share.arriving.insert(serial, None));
        state.arriving += 1;
        drop(state);
        let slot = BacklogSlot { pending: Arc::clone(self), source, held: Held::Arriving(serial) };
        Some((slot, victim))
    }

    /// Takes a slot from whom a new connection would take it.
    pub(crate) fn evict(&self) -> Option<Victim> {
        self.state.lock().evict()
    }

    /// Connections without a Request.
    pub(crate) fn arriving(&self) -> usize {
        self.state.lock().arriving
    }

    fn may_wait(&self, state: &Backlog, source: Source) -> bool {
        let own = state.shares.get(&source).map_or(0, |share| share.waiting);
        state.waiting < self.limit
            || own < (self.limit / SHARE).max(1) && state.waiting < 2 * self.limit
    }
}

#[derive(Clone, Copy)]
enum Held {
    Arriving(u64),
    Waiting,
}

/// The slot of a pending connection, until it is dropped.
pub(crate) struct BacklogSlot {
    pending: Arc<PendingBySource>,
    source: Source,
    held: Held,
}

impl BacklogSlot {
    /// Names the connection that is to go if the slot is needed.
    pub(crate) fn belongs_to(&self, connection: Weak<dyn Pending>) {
        let Held::Arriving(serial) = self.held else { return };
        let mut state = self.pending.state.lock();
        let share = state.shares.get_mut(&self.source);
        if let Some(slot) = share.and_then(|share| share.arriving.get_mut(&serial)) {
            *slot = Some(connection);
        }
    }

    /// Earlier connections of this source whose Request has not come, oldest first: the last few.
    pub(crate) fn elders(&self) -> Vec<Arc<dyn Pending>> {
        let Held::Arriving(serial) = self.held else { return Vec::new() };
        let state = self.pending.state.lock();
        let Some(share) = state.shares.get(&self.source) else { return Vec::new() };
        let before = share.arriving.range(..serial).rev().take(ELDERS);
        let mut elders: Vec<_> =
            before.filter_map(|(_, connection)| connection.as_ref()?.upgrade()).collect();
        drop(state);
        elders.reverse();
        elders
    }

    /// The Request has come, and waits for an answer. False where too many do.
    pub(crate) fn wait(&mut self) -> bool {
        let Held::Arriving(serial) = self.held else { return true };
        let mut state = self.pending.state.lock();
        if !self.pending.may_wait(&state, self.source) {
            return false;
        }
        state.waiting += 1;
        state.change(self.source, |share| share.waiting += 1);
        state.leave(self.source, serial);
        drop(state);
        self.held = Held::Waiting;
        true
    }
}

impl Drop for BacklogSlot {
    fn drop(&mut self) {
        let mut state = self.pending.state.lock();
        match self.held {
            Held::Arriving(serial) => _ = state.leave(self.source, serial),
            Held::Waiting => {
                state.waiting -= 1;
                state.change(self.source, |share| share.waiting -= 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Default)]
    struct Stranger(AtomicBool);

    impl Pending for Stranger {
        fn make_room(&self) {
            self.0.store(true, Ordering::SeqCst);
        }

        fn look(&self) {}
    }

    struct Arrived {
        slot: BacklogSlot,
        stranger: Arc<Stranger>,
    }

    impl Arrived {
        fn is_gone(&self) -> bool {
            self.stranger.0.load(Ordering::SeqCst)
        }
    }

    fn source(n: u8) -> Source {
        Source::of(IpAddr::from([192, 0, 2, n]))
    }

    fn enter(pending: &Arc<PendingBySource>, n: u8) -> Option<Arrived> {
        let (slot, victim) = pending.enter(source(n))?;
        if let Some(victim) = victim {
            victim.connection.make_room();
        }
        let stranger = Arc::new(Stranger::default());
        let connection = Arc::clone(&stranger) as Arc<dyn Pending>;
        slot.belongs_to(Arc::downgrade(&connection));
        Some(Arrived { slot, stranger })
    }

    /// Covers: SEC-5042-6.4.2-01
    #[test]
    fn the_oldest_of_the_greediest_goes() {
        let pending = PendingBySource::new(8);
        let good: Vec<_> = (0..2).map(|_| enter(&pending, 1).unwrap()).collect();
        let mut flood: Vec<_> = (0..6).map(|_| enter(&pending, 2).unwrap()).collect();
        assert!(flood.iter().chain(&good).all(|one| !one.is_gone()));
        for _ in 0..1000 {
            flood.push(enter(&pending, 2).unwrap());
            assert_eq!(pending.arriving(), 8);
        }
        assert!(good.iter().all(|one| !one.is_gone()), "older, but not greedy");
        let (young, old) = (flood.split_off(1000), flood);
        assert!(old.iter().all(Arrived::is_gone));
        assert!(young.iter().all(|one| !one.is_gone()));
        // Among equals age decides.
        drop((young, old, good));
        let all: Vec<_> = (0..9).map(|n| enter(&pending, n).unwrap()).collect();
        assert!(all[0].is_gone() && all[1..].iter().all(|one| !one.is_gone()));
    }

    #[test]
    fn requests_of_one_address_leave_room_for_another_s() {
        let pending = PendingBySource::new(32);
        let asks = |n| enter(&pending, n).map(|mut one| (one.slot.wait(), one));
        let flood: Vec<_> = (0..32).map(|_| asks(1).unwrap()).collect();
        assert!(flood.iter().all(|(waits, _)| *waits));
        assert!(asks(1).is_none(), "it has all there is");
        let others: Vec<_> = (2..20).map(|n| [asks(n), asks(n), asks(n)]).collect();
        for (number, [first, second, third]) in others.iter().enumerate() {
            // Until there are twice as many as there should be.
            assert_eq!((first.is_some(), second.is_some()), (number < 16, number < 16));
            assert!(third.is_none());
        }
        drop(others);
        drop(flood);
        let state = pending.state.lock();
        assert_eq!((state.arriving, state.waiting), (0, 0));
        assert!(state.shares.is_empty() && state.order.is_empty());
    }

    #[test]
    fn requests_may_come_too_late_for_their_slot() {
        let pending = PendingBySource::new(1);
        let mut first = enter(&pending, 1).unwrap();
        assert!(first.slot.wait());
        let mut second = enter(&pending, 2).unwrap();
        let third = enter(&pending, 3).unwrap();
        assert!(second.is_gone(), "one may arrive at a time");
        // It had asked already.
        assert!(second.slot.wait());
        drop(third);
        assert!(enter(&pending, 3).is_none());
        drop(second);
        assert!(enter(&pending, 3).is_some());
    }
}
