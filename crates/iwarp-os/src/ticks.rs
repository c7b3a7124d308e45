// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time, read often.
//!
//! A caller that asks for it with every message does not need a call of the system each time: where
//! that is no more than a read of memory it costs as much as a short lock, elsewhere
//! (User-Mode-Linux, gVisor, clocks that no vDSO knows) a system call. Between two looks at the
//! clock, a third of a millisecond or so apart, the ticks of the processor are counted; how long
//! one is follows from looks of before. The clock is asked wherever ticks make no sense.
//!
//! (Considered: `quanta`, which calibrates for up to 200 ms when first used, and never looks at the
//! system's clock again.)

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock;

/// Ticks after which the clock is asked again. A processor that is stopped, or whose ticks change
/// their length, puts the time wrong for no longer.
const WINDOW: u64 = 1 << 20;
/// The unit in which the length of a tick is kept: 2^-24 ns.
const FRACTION: u32 = 24;
/// Lengths that a tick can have, from 10 GHz to 100 MHz.
const SANE: std::ops::RangeInclusive<u64> = (1 << FRACTION) / 10..=10 << FRACTION;
/// Looks at the clock tell the length of a tick when they are so many nanoseconds apart.
const APART: u64 = 1_000_000;

/// A look at the clock.
#[derive(Clone, Copy, Debug)]
struct Look {
    ticks: u64,
    nanos: u64,
}

/// A thread's knowledge of the time.
#[derive(Clone, Copy, Debug)]
struct Seen {
    look: Look,
    /// The length of a tick; 0 where it is not known.
    tick: u64,
    /// The time that was told last.
    told: u64,
}

// Has no destructor, so a thread has it to its very end.
thread_local! {
    static SEEN: Cell<Seen> =
        const { Cell::new(Seen { look: Look { ticks: 0, nanos: 0 }, tick: 0, told: 0 }) };
}

/// Nanoseconds of the clock of [`clock::now`], much cheaper where it is read often. A thread never
/// sees them go back; threads may differ by some microseconds, and by a third of a millisecond at
/// worst.
pub fn nanos() -> u64 {
    let Some(ticks) = ticks() else { return exact() };
    let seen = SEEN.get().at(ticks, || Look { ticks, nanos: exact() }, first);
    SEEN.set(seen);
    seen.told
}

impl Seen {
    fn at(self, ticks: u64, look: impl FnOnce() -> Look, first: impl FnOnce(Look) -> Look) -> Self {
        let since = ticks.wrapping_sub(self.look.ticks);
        if self.tick != 0 && since < WINDOW {
            let nanos = self.look.nanos + ((since * self.tick) >> FRACTION);
            return Self { told: self.told.max(nanos), ..self };
        }
        let look = look();
        let tick = length(first(look), look);
        Self { look, tick, told: self.told.max(look.nanos) }
    }
}

/// The length of a tick between two looks; 0 where that cannot be told.
fn length(first: Look, last: Look) -> u64 {
    let nanos = last.nanos.saturating_sub(first.nanos);
    let ticks = last.ticks.wrapping_sub(first.ticks);
    if nanos < APART || ticks == 0 {
        return 0;
    }
    let tick = (u128::from(nanos) << FRACTION) / u128::from(ticks);
    u64::try_from(tick).ok().filter(|tick| SANE.contains(tick)).unwrap_or(0)
}

/// The first look of the process.
fn first(now: Look) -> Look {
    static CLAIMED: AtomicBool = AtomicBool::new(false);
    static TICKS: AtomicU64 = AtomicU64::new(0);
    static NANOS: AtomicU64 = AtomicU64::new(0);

    // No thread waits for another's look: a forked child would wait for ever.
    match NANOS.load(Ordering::Acquire) {
        0 => {
            if !CLAIMED.swap(true, Ordering::Relaxed) {
                TICKS.store(now.ticks, Ordering::Relaxed);
                NANOS.store(now.nanos, Ordering::Release);
            }
            now
        }
        nanos => Look { ticks: TICKS.load(Ordering::Relaxed), nanos },
    }
}

fn exact() -> u64 {
    u64::try_from(clock::now().as_nanos()).unwrap_or(u64::MAX)
}

/// The processor's counter that runs at a steady pace.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn ticks() -> Option<u64> {
    // SAFETY: reads a register that every x86-64 has.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn ticks() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock of 2 GHz that was looked at some time ago.
    fn seen() -> Seen {
        let look = Look { ticks: 2_000_000_000, nanos: 1_000_000_000 };
        Seen { look, tick: 1 << (FRACTION - 1), told: 0 }
    }

    fn no_look() -> Look {
        panic!("the clock is not asked")
    }

    #[test]
    fn ticks_are_counted_between_two_looks() {
        let seen = seen().at(2_000_002_000, no_look, |look| look);
        assert_eq!(seen.told, 1_000_001_000);
    }

    #[test]
    fn the_clock_is_asked_when_a_look_is_old_or_ticks_jump() {
        for ticks in [2_000_000_000 + WINDOW, 1_999_999_999, 0, u64::MAX] {
            let look = Look { ticks, nanos: 1_500_000_000 };
            let seen = seen().at(ticks, || look, |_| Look { ticks: 0, nanos: 0 });
            assert_eq!(seen.told, 1_500_000_000);
        }
    }

    #[test]
    fn time_never_goes_back() {
        let late = Seen { told: 1_000_000_500, ..seen() };
        assert_eq!(late.at(2_000_000_100, no_look, |look| look).told, 1_000_000_500);
        assert_eq!(late.at(2_000_002_000, no_look, |look| look).told, 1_000_001_000);
    }

    #[test]
    fn a_tick_is_as_long_as_it_was() {
        let at = |ticks, nanos| Look { ticks, nanos };
        assert_eq!(length(at(0, 0), at(4_000_000, 2_000_000)), 1 << (FRACTION - 1));
        // Too soon to tell, and what no processor does.
        assert_eq!(length(at(0, 0), at(1_000, 500)), 0);
        assert_eq!(length(at(0, 0), at(10, 2_000_000)), 0);
        assert_eq!(length(at(9_000_000, 0), at(0, 2_000_000)), 0);
        assert_eq!(length(at(7, 0), at(7, 2_000_000)), 0);
    }

    #[test]
    fn it_is_the_time() {
        let end = exact() + 20_000_000;
        let mut last = 0;
        while exact() < end {
            let before = exact();
            let told = nanos();
            let after = exact();
            assert!(told >= last);
            last = told;
            // A thread that was stopped between two of these lines has learned nothing.
            if after - before < 20_000 {
                assert!(told + 1_100_000 > before && told < after + 1_100_000);
            }
        }
    }
}
