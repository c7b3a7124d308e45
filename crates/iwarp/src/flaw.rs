// SPDX-License-Identifier: MIT OR Apache-2.0

//! Defects that the tests of the simulator plant, to see that they are found. Without the feature
//! `flaws` there are none, and asking for one costs nothing.

/// A defect of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flaw {
    /// None.
    #[default]
    None,
    /// A timer that is due earlier than the worker wakes does not wake it.
    TimerWakesNobody,
    /// A caller that goes to sleep elsewhere arms no group.
    SleeperArmsNothing,
    /// The worker does not arm a group again that it has served.
    ServedNotArmed,
    /// A completion is handed out twice.
    CompletionTwice,
    /// The lease of a poll never ends.
    LeaseForEver,
    /// A bell stays hushed for a thread that needs the epoll.
    StaysHushed,
    /// A stream without a descriptor that becomes ready wakes no thread that sleeps.
    WakeLost,
    /// An end that has put bytes into a ring does not tell its peer.
    MarkLost,
    /// An end accesses its peer's memory before the peer has placed what was sent before.
    DirectOvertakes,
    /// Peers go on accessing memory by themselves that is registered no more.
    RevokesNothing,
    /// A forked child is not found out. (The simulator leaves its pretence out.)
    ForkUnchecked,
}

#[cfg(feature = "flaws")]
mod planted {
    use std::cell::Cell;

    use super::Flaw;

    thread_local! {
        static PLANTED: Cell<Flaw> = const { Cell::new(Flaw::None) };
    }

    pub(crate) fn is(flaw: Flaw) -> bool {
        PLANTED.get() == flaw
    }

    /// Plants a defect in all that this thread does, until the result is dropped.
    pub fn plant(flaw: Flaw) -> Planted {
        PLANTED.set(flaw);
        Planted(())
    }

    /// See [`plant`].
    #[derive(Debug)]
    pub struct Planted(());

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.set(Flaw::None);
        }
    }
}

#[cfg(feature = "flaws")]
pub(crate) use planted::is;
#[cfg(feature = "flaws")]
pub use planted::{Planted, plant};

/// True if it was planted.
#[cfg(not(feature = "flaws"))]
#[inline(always)]
pub(crate) const fn is(_: Flaw) -> bool {
    false
}
