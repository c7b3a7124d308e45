// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two processes of one host that have rings for connections between them.
//!
//! Each connection has a *slot*. A process that has put something into a ring, or made room in one,
//! marks its slot; the other takes the marks and wakes the ports in those slots. It is polled for
//! that, and while it sleeps on the channel's *bell* a mark rings it. A poll group that may sleep
//! *listens*; one that is polled does not, so that no mark costs a system call.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use iwarp_os::EventFd;
use iwarp_os::local::{ARENAS, MappedArena, Marks, PeerMemory, SLOTS};

use super::Shown;
use super::alerts::Alerts;
use crate::port::{Readiness, WakerSlot, lock};

/// Times that marks are taken before others get their turn, of a process that marks all the time.
const ROUNDS: usize = 16;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Channel {
    pub(super) marks: Marks,
    /// By slot. The maker of the channel gives them out; the other end follows.
    ports: Mutex<Vec<Option<Weak<WakerSlot>>>>,
    /// Poll groups that may have a thread asleep.
    listeners: AtomicUsize,
    /// The other process is gone.
    is_over: AtomicBool,
    /// The memory of the other process, where this one may read it.
    peer: OnceLock<PeerMemory>,
    /// The system has refused a copy.
    is_peer_closed: AtomicBool,
    /// Arenas of the other one that this one maps, by their numbers.
    arenas: [OnceLock<MappedArena>; ARENAS],
    /// The memory of this one, where the other may read it.
    shown: OnceLock<Arc<Shown>>,
    /// Arenas of this one that were passed to the other: a bit for each.
    passed: AtomicU64,
    /// Called to pass one, or a descriptor on which a program waits.
    pass: OnceLock<Pass>,
    /// The queues whose programs wait for events, and those of the other process.
    pub(super) alerts: Alerts,
    /// Called when no port has a slot any more.
    unused: OnceLock<Unused>,
}

/// See [`Channel::when_unused`].
struct Unused(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unused")
    }
}

/// Descriptors of this process that the other may have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Passing<'a> {
    /// The memory of the arena of this number.
    Arena(u32),
    /// The descriptor on which a program waits for events, by this number from now on; none any
    /// more.
    Events(u32, Option<&'a EventFd>),
}

/// See [`Channel::pass_by`].
struct Pass(Box<dyn Fn(Passing<'_>) -> bool + Send + Sync>);

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pass")
    }
}

const _: () = assert!(ARENAS == u64::BITS as usize);

/// A port that went before it had moved leaves its slot to the next one.
fn is_used(ports: &[Option<Weak<WakerSlot>>]) -> bool {
    ports.iter().flatten().any(|port| port.strong_count() > 0)
}

impl Channel {
    pub(crate) fn new(marks: Marks) -> Arc<Self> {
        Arc::new(Self {
            marks,
            ports: Mutex::default(),
            listeners: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            peer: OnceLock::new(),
            is_peer_closed: AtomicBool::new(false),
            arenas: [const { OnceLock::new() }; ARENAS],
            shown: OnceLock::new(),
            passed: AtomicU64::new(0),
            pass: OnceLock::new(),
            alerts: Alerts::default(),
            unused: OnceLock::new(),
        })
    }

    /// Gives a free slot to the port with that waker; `None` where all are taken, or for want of
    /// memory.
    pub(crate) fn take_slot(&self, waker: &Arc<WakerSlot>) -> Option<u16> {
        let mut ports = lock(&self.ports);
        let is_free = |port: &Option<Weak<WakerSlot>>| {
            port.as_ref().is_none_or(|port| port.strong_count() == 0)
        };
        let slot = match ports.iter().position(is_free) {
            Some(slot) => slot,
            None if ports.len() == SLOTS => return None,
            None => {
                ports.try_reserve(1).ok()?;
                ports.push(None);
                ports.len() - 1
            }
        };
        ports[slot] = Some(Arc::downgrade(waker));
        u16::try_from(slot).ok()
    }

    /// The port with that waker has the slot from now on, as the maker of the channel says. False
    /// where there is no such slot, or no memory for it.
    pub(crate) fn set_slot(&self, slot: u16, waker: &Arc<WakerSlot>) -> bool {
        let mut ports = lock(&self.ports);
        let at = usize::from(slot);
        if at >= SLOTS {
            return false;
        }
        if at >= ports.len() {
            let more = at + 1 - ports.len();
            if ports.try_reserve(more).is_err() {
                return false;
            }
            ports.resize(at + 1, None);
        }
        ports[at] = Some(Arc::downgrade(waker));
        true
    }

    /// The port with that waker has the slot no more.
    pub(crate) fn free_slot(&self, slot: u16, waker: &Arc<WakerSlot>) {
        let mut ports = lock(&self.ports);
        let freed = ports
            .get_mut(usize::from(slot))
            .and_then(|port| port.take_if(|port| std::ptr::eq(port.as_ptr(), Arc::as_ptr(waker))));
        let is_last = freed.is_some() && !is_used(&ports);
        drop(ports);
        if is_last && let Some(Unused(tell)) = self.unused.get() {
            tell();
        }
    }

    /// Calls `tell` each time the last port leaves. To be called once.
    pub(crate) fn when_unused(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.unused.set(Unused(Box::new(tell)));
    }

    /// True if some port has a slot.
    pub(crate) fn is_used(&self) -> bool {
        is_used(&lock(&self.ports))
    }

    /// This process reads the other's memory from now on, where that shows it.
    pub(crate) fn set_peer(&self, peer: PeerMemory) {
        let _ = self.peer.set(peer);
    }

    /// The memory of the other process.
    #[inline]
    pub(super) fn peer(&self) -> Option<&PeerMemory> {
        self.peer.get().filter(|_| !self.is_peer_closed.load(Ordering::Relaxed))
    }

    /// True unless the other process is known to be dead.
    pub(super) fn peer_lives(&self) -> bool {
        self.peer.get().is_none_or(PeerMemory::lives)
    }

    /// The system does not let this process read the other any more.
    #[cold]
    pub(super) fn read_peer_no_more(&self) {
        self.is_peer_closed.store(true, Ordering::Relaxed);
    }

    /// The other process can read this one's memory, which it is shown from now on.
    pub(crate) fn show(&self, shown: Arc<Shown>) {
        let _ = self.shown.set(shown);
    }

    /// True if the other process can read this one's memory.
    pub(crate) fn is_shown(&self) -> bool {
        self.shown.get().is_some()
    }

    /// The memory that the other process can read.
    #[inline]
    pub(super) fn shown(&self) -> Option<&Arc<Shown>> {
        self.shown.get()
    }

    /// Passes descriptors of this process to the other by `pass`, which says whether it could. To
    /// be called once.
    pub(crate) fn pass_by(&self, pass: impl Fn(Passing<'_>) -> bool + Send + Sync + 'static) {
        let _ = self.pass.set(Pass(Box::new(pass)));
    }

    /// Passes a descriptor of this process to the other. False where that is not possible.
    pub(super) fn pass(&self, what: Passing<'_>) -> bool {
        self.pass.get().is_some_and(|Pass(pass)| pass(what))
    }

    /// Has the other process map an arena of this one, unless it was passed before. False where
    /// that is not possible.
    pub(super) fn pass_arena(&self, arena: u32) -> bool {
        let Some(bit) = 1_u64.checked_shl(arena) else { return false };
        if self.passed.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return true;
        }
        let passed = self.pass(Passing::Arena(arena));
        if !passed {
            self.passed.fetch_and(!bit, Ordering::Relaxed);
        }
        passed
    }

    /// True if the other process was passed the arena.
    pub(super) fn has_passed(&self, arena: u32) -> bool {
        let bit = 1_u64.checked_shl(arena).unwrap_or(0);
        self.passed.load(Ordering::Relaxed) & bit != 0
    }

    /// True if this process may map arenas of the other: it can read and write all of its memory.
    pub(crate) fn may_map(&self) -> bool {
        self.peer.get().is_some()
    }

    /// The other process has passed an arena, which this one maps from now on. A second one of that
    /// number is not taken.
    pub(crate) fn set_arena(&self, number: u32, arena: MappedArena) {
        if let Some(place) = self.arenas.get(number as usize) {
            let _ = place.set(arena);
        }
    }

    /// An arena of the other process, if this one maps it.
    #[inline]
    pub(super) fn arena(&self, number: u32) -> Option<&MappedArena> {
        self.arenas.get(number as usize)?.get()
    }

    /// Tells the other process that something is new in the slot.
    #[inline]
    pub(super) fn mark(&self, slot: u16) {
        // Fails where the bell cannot be rung, as of a process that has ended.
        let _ = self.marks.mark(slot);
    }

    /// Wakes the ports whose slots were marked.
    #[inline]
    pub(crate) fn look(&self) {
        if self.marks.any() {
            self.take_marks();
        }
    }

    /// Taking ends listening: where a group listens, it begins anew, on behalf of whichever it is.
    fn take_marks(&self) {
        for _ in 0..ROUNDS {
            {
                let ports = lock(&self.ports);
                self.marks.take(|slot| {
                    if let Some(Some(port)) = ports.get(usize::from(slot))
                        && let Some(port) = port.upgrade()
                    {
                        port.wake(Readiness::all());
                    }
                });
            }
            // A group that has begun to listen before the marks were taken was counted before.
            if self.listeners.load(Ordering::SeqCst) == 0 || !self.marks.listen() {
                return;
            }
        }
        // The rest is for the next look, which the bell brings about.
        self.marks.ring_own();
    }

    /// A poll group may have a thread asleep from now on, until [`Self::hush`]. To be followed by
    /// [`Self::look`], without locks that a waker takes.
    pub(crate) fn listen(&self) {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        self.marks.listen();
    }

    /// See [`Self::listen`].
    pub(crate) fn hush(&self) {
        self.listeners.fetch_sub(1, Ordering::SeqCst);
    }

    /// The bell has rung: for one of the poll groups, and it may be for all. It goes on once the
    /// channel is over, for the others.
    pub(crate) fn rang(&self) {
        if !self.is_over() {
            self.marks.drain();
        }
        self.take_marks();
    }

    /// The descriptor of its bell: readable once it has rung.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.marks.bell()
    }

    /// The other process is gone, or does not keep to the rules, or no port uses the channel. The
    /// poll groups forget it once they hear its bell.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.marks.ring_own();
        let ports: Vec<_> = {
            let ports = lock(&self.ports);
            ports.iter().flatten().filter_map(Weak::upgrade).collect()
        };
        ports.iter().for_each(|port| port.wake(Readiness::all()));
    }

    /// True once the other process is gone.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
