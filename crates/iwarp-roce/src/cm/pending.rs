// SPDX-License-Identifier: MIT OR Apache-2.0

//! The places of requests that wait for a program's answer, or were accepted and wait for the
//! peer's RTU.
//!
//! Any host can send requests, even from forged addresses, and leave the answers unanswered. A
//! request keeps its place once the program knows of it, but one address does not keep others out:
//! it may have all places, and a few other addresses get a share on top.

use alloc::collections::BTreeMap;

use iwarp_types::Source;

/// The fraction of the places that each further address may have on top.
const SHARE: usize = 16;

/// The places of a listener.
#[derive(Debug)]
pub(super) struct PendingBySource {
    limit: usize,
    waiting: usize,
    sources: BTreeMap<Source, usize>,
}

impl PendingBySource {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), waiting: 0, sources: BTreeMap::new() }
    }

    /// Takes a place. False if there is none for that source.
    pub(super) fn enter(&mut self, source: Source) -> bool {
        let own = self.sources.get(&source).copied().unwrap_or_default();
        let share = (self.limit / SHARE).max(1);
        let admitted =
            self.waiting < self.limit || own < share && self.waiting < self.limit.saturating_mul(2);
        if admitted {
            self.waiting += 1;
            self.sources.insert(source, own + 1);
        }
        admitted
    }

    /// Gives a place back.
    pub(super) fn leave(&mut self, source: Source) {
        let Some(own) = self.sources.get_mut(&source) else { return };
        *own -= 1;
        if *own == 0 {
            self.sources.remove(&source);
        }
        self.waiting -= 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0 && self.sources.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{PendingBySource, Source};

    #[test]
    fn one_address_leaves_room_for_others() {
        let of = |n: u8| Source::of([192, 0, 2, n].into());
        let mut pending = PendingBySource::new(32);
        assert!((0..32).all(|_| pending.enter(of(1))));
        assert!(!pending.enter(of(1)), "it has all there is");
        let others =
            (2..20).map(|n| [pending.enter(of(n)), pending.enter(of(n)), pending.enter(of(n))]);
        for (number, admitted) in others.collect::<std::vec::Vec<_>>().into_iter().enumerate() {
            assert_eq!(admitted, [number < 16, number < 16, false]);
        }
        for n in 1..20 {
            for _ in 0..if n == 1 { 32 } else { 2 } {
                pending.leave(of(n));
            }
        }
        assert!(pending.is_empty());
        pending.leave(of(1));
        assert!(pending.is_empty());
    }
}
