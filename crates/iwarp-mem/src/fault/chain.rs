// SPDX-License-Identifier: MIT OR Apache-2.0

//! The handlers that were there before ours.
//!
//! One that a program installs after ours takes its place and may call ours for what it does not
//! know itself; when ours has come back, it calls that one first. So the two could call each other
//! without end. That is noticed by the signal's frame, whose address both pass on: who is called
//! for a frame from within another call for it goes to the handler before the last one.
//!
//! A program that puts back what it has found, which is ours, means the handlers of that time: one
//! that it had for a moment is not to be called any more. So ours is several functions, the
//! *entries*, each with an order of its own, and comes back as another one than it went.

use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Different handlers that are remembered; programs have one or two.
const MOST: usize = 16;
/// Of those, how many can stand before each other.
const DEEP: u32 = 8;
/// Our own functions; programs see two or three in their lives.
pub(super) const ENTRIES: usize = 8;
/// In [`Chain::orders`]: the default action.
const DEFAULT: u64 = 0xff;

/// The handlers that one signal had before ours.
pub(super) struct Chain {
    known: [Known; MOST],
    /// Of each entry, the numbers of handlers, each plus one, the last one that it replaced in the
    /// lowest byte.
    orders: [AtomicU64; ENTRIES],
    /// The entry that was in force when a thread looked last.
    last: AtomicUsize,
}

/// Written once, before its number is in any order.
struct Known {
    handler: AtomicUsize,
    flags: AtomicI32,
}

impl Known {
    const fn new() -> Self {
        Self { handler: AtomicUsize::new(0), flags: AtomicI32::new(0) }
    }
}

/// The way a signal was passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Called {
    /// A handler was called.
    Handler,
    /// The signal is to be ignored.
    Ignored,
    /// There is no handler.
    Default,
}

impl Chain {
    pub(super) const fn new() -> Self {
        Self {
            known: [const { Known::new() }; MOST],
            orders: [const { AtomicU64::new(0) }; ENTRIES],
            last: AtomicUsize::new(0),
        }
    }

    /// Notes the entry that is in force.
    pub(super) fn found(&self, entry: usize) {
        if self.last.load(Ordering::Relaxed) != entry {
            self.last.store(entry, Ordering::Relaxed);
        }
    }

    /// The entry that has the action before all others, to be installed. Not to be called by two
    /// threads at a time.
    pub(super) fn entry_before(&self, handler: usize, flags: c_int) -> usize {
        let number = if handler == libc::SIG_DFL { DEFAULT } else { self.number(handler, flags) };
        let last = self.last.load(Ordering::Relaxed);
        let order = self.orders[last].load(Ordering::Relaxed);
        // Its earlier place is left out.
        let mut new = number;
        let mut at = 8;
        for depth in 0..DEEP {
            let other = order >> (8 * depth) & 0xff;
            if other != number && at < 8 * DEEP {
                new |= other << at;
                at += 8;
            }
        }
        let with =
            |wanted| self.orders.iter().position(|order| order.load(Ordering::Relaxed) == wanted);
        // The next one in turn has a new order where there are more than there is room for.
        let entry = with(new).or_else(|| with(0)).unwrap_or((last + 1) % ENTRIES);
        self.orders[entry].store(new, Ordering::Release);
        entry
    }

    fn number(&self, handler: usize, flags: c_int) -> u64 {
        for (number, known) in (1..).zip(&self.known) {
            match known.handler.load(Ordering::Relaxed) {
                0 => {
                    known.flags.store(flags, Ordering::Relaxed);
                    known.handler.store(handler, Ordering::Relaxed);
                    return number;
                }
                same if same == handler && known.flags.load(Ordering::Relaxed) == flags => {
                    return number;
                }
                _ => {}
            }
        }
        // So many there are not; the last place serves all others.
        let last = &self.known[MOST - 1];
        last.flags.store(flags, Ordering::Relaxed);
        last.handler.store(handler, Ordering::Relaxed);
        MOST as u64
    }

    /// Calls the handler whose turn it is before an entry. `here` is an address on the stack of the
    /// caller's frame.
    ///
    /// # Safety
    ///
    /// The arguments are those of a handler's call.
    pub(super) unsafe fn call(
        &self,
        entry: usize,
        here: usize,
        signal: c_int,
        info: *mut libc::siginfo_t,
        context: *mut c_void,
    ) -> Called {
        let flight = Flight::begin(context.addr(), here, entry);
        let depth = flight.depth.min(DEEP);
        let order = self.orders[entry].load(Ordering::Acquire);
        let number = if depth == DEEP { 0 } else { order >> (8 * depth) & 0xff };
        if number == 0 || number == DEFAULT {
            return Called::Default;
        }
        let known = &self.known[number as usize - 1];
        let handler = known.handler.load(Ordering::Relaxed);
        let flags = known.flags.load(Ordering::Relaxed);
        if handler == libc::SIG_IGN {
            return Called::Ignored;
        }
        if flags & libc::SA_RESETHAND != 0 {
            // Once, as the kernel would.
            let gone = order | DEFAULT << (8 * depth);
            let order_now = &self.orders[entry];
            let _ = order_now.compare_exchange(order, gone, Ordering::Relaxed, Ordering::Relaxed);
        }
        // SAFETY: the program gave the kernel this address for a function of the type that the
        // flags tell, and the arguments are what the kernel calls it with.
        unsafe {
            if flags & libc::SA_SIGINFO != 0 {
                type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                mem::transmute::<usize, Handler>(handler)(signal, info, context);
            } else {
                type Handler = unsafe extern "C" fn(c_int);
                mem::transmute::<usize, Handler>(handler)(signal);
            }
        }
        Called::Handler
    }
}

/// Signals that are being passed on, in all threads.
static FLIGHTS: [Slot; 32] = [const { Slot::new() }; 32];
/// The slot to take when there are more: handlers that jump out never come back.
static OLDEST: AtomicUsize = AtomicUsize::new(0);

struct Slot {
    /// The signal's frame; 0: none.
    frame: AtomicUsize,
    /// The place on the stack of the first call for it.
    here: AtomicUsize,
    /// The calls for it that are under way, of each entry a byte.
    calls: AtomicU64,
}

impl Slot {
    const fn new() -> Self {
        Self { frame: AtomicUsize::new(0), here: AtomicUsize::new(0), calls: AtomicU64::new(0) }
    }
}

/// One call.
struct Flight {
    slot: &'static Slot,
    frame: usize,
    /// The calls that were under way before it.
    before: u64,
    /// The part of these calls that were of the entry.
    depth: u32,
}

impl Flight {
    fn begin(frame: usize, here: usize, entry: usize) -> Self {
        if let Some(slot) = FLIGHTS.iter().find(|slot| slot.frame.load(Ordering::Relaxed) == frame)
        {
            // A call within the first one stands below it. Else the first was left by a jump, and
            // this is another signal whose frame has its place.
            let nested = here < slot.here.load(Ordering::Relaxed);
            let before = if nested { slot.calls.load(Ordering::Relaxed) } else { 0 };
            return Self::at(slot, frame, here, before, entry);
        }
        let free = FLIGHTS.iter().find(|slot| {
            slot.frame.compare_exchange(0, frame, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
        let slot = free.unwrap_or_else(|| {
            let slot = &FLIGHTS[OLDEST.fetch_add(1, Ordering::Relaxed) % FLIGHTS.len()];
            slot.frame.store(frame, Ordering::Relaxed);
            slot
        });
        Self::at(slot, frame, here, 0, entry)
    }

    fn at(slot: &'static Slot, frame: usize, here: usize, before: u64, entry: usize) -> Self {
        if before == 0 {
            slot.here.store(here, Ordering::Relaxed);
        }
        let depth = before >> (8 * entry) & 0xff;
        let one = if depth < 0xff { 1 << (8 * entry) } else { 0 };
        slot.calls.store(before + one, Ordering::Relaxed);
        Self { slot, frame, before, depth: depth as u32 }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.slot.frame.load(Ordering::Relaxed) != self.frame {
            return;
        }
        self.slot.calls.store(self.before, Ordering::Relaxed);
        if self.before == 0 {
            self.slot.frame.store(0, Ordering::Relaxed);
        }
    }
}
