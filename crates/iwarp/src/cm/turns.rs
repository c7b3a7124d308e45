// SPDX-License-Identifier: MIT OR Apache-2.0

//! The order in which a program is told of what peers ask for.
//!
//! A program takes its time for each request, and anybody can ask. So the sources of requests take
//! turns: each request has a round, one more than that of the source's last one that still waits,
//! and lower rounds come first. Within a round, things are told as they came.

use std::collections::HashMap;

use iwarp_types::Source;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The round of the last request that was told.
    told: u64,
    waiting: HashMap<Source, Waiting>,
}

/// The requests of a source.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    requests: usize,
    /// Of the last one.
    round: u64,
}

impl Turns {
    /// The first round that is not over.
    pub(super) const fn current(&self) -> u64 {
        self.told + 1
    }

    pub(super) fn nobody_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Reserves memory for one more source; true if there is some.
    pub(super) fn reserve(&mut self) -> bool {
        self.waiting.try_reserve(1).is_ok()
    }

    /// The round of a request that has come.
    pub(super) fn enter(&mut self, source: Source) -> u64 {
        let current = self.current();
        let waiting = self.waiting.entry(source).or_default();
        waiting.requests += 1;
        waiting.round = current.max(waiting.round + 1);
        waiting.round
    }

    /// The program is told of a request.
    pub(super) fn tell(&mut self, source: Source, round: u64) {
        self.told = self.told.max(round);
        self.leave(source);
    }

    /// A request waits no more.
    pub(super) fn leave(&mut self, source: Source) {
        let Some(waiting) = self.waiting.get_mut(&source) else { return };
        waiting.requests -= 1;
        if waiting.requests == 0 {
            self.waiting.remove(&source);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    fn source(last: u8) -> Source {
        Source::of([192, 0, 2, last].into())
    }

    #[test]
    fn sources_take_turns() {
        let mut turns = Turns::default();
        let many: Vec<_> = (0..100).map(|_| turns.enter(source(1))).collect();
        assert_eq!(many, (1..=100).collect::<Vec<_>>());
        assert_eq!([turns.enter(source(2)), turns.enter(source(2))], [1, 2]);
        for round in 1..=50 {
            turns.tell(source(1), round);
        }
        // A stranger that has not asked has lost nothing and saved nothing.
        assert_eq!([turns.enter(source(3)), turns.enter(source(3))], [51, 52]);
        assert_eq!(turns.enter(source(1)), 101);
        (0..51).for_each(|_| turns.leave(source(1)));
        (0..2).for_each(|_| [source(2), source(3)].into_iter().for_each(|gone| turns.leave(gone)));
        assert!(turns.nobody_waits());
        assert_eq!(turns.enter(source(1)), 51);
    }
}
