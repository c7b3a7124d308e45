// SPDX-License-Identifier: MIT OR Apache-2.0

//! A model of the marks: an end that falls asleep while the other marks.

use std::array;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::words::{Line, Words};

struct Shared {
    words: Words<3>,
    /// The news that a mark of each slot is about.
    news: [AtomicU64; 3],
}

/// The summary has one bit for the first and the last of them.
const SLOTS: [usize; 3] = [5, 130, 6];

fn shared() -> Arc<Shared> {
    let word = |_: usize| AtomicU64::new(0);
    let marks = Line(array::from_fn(word));
    Arc::new(Shared {
        words: Words { summary: AtomicU64::new(0), marks },
        news: array::from_fn(word),
    })
}

impl Shared {
    /// Says whether the taker is to be woken.
    fn mark(&self, which: usize) -> bool {
        self.news[which].store(1, Ordering::Relaxed);
        self.words.mark(SLOTS[which])
    }

    /// Takes marks, whose news must be there. Says how many.
    fn take(&self) -> usize {
        let mut taken = 0;
        self.words.take(|slot| {
            let which = SLOTS.iter().position(|known| *known == slot).expect("it was marked");
            assert_eq!(self.news[which].load(Ordering::Relaxed), 1, "a mark without its news");
            taken += 1;
        });
        taken
    }

    /// Looks, and falls asleep if there is nothing. True if it sleeps.
    fn look_or_sleep(&self) -> bool {
        self.take() == 0 && !self.words.listen()
    }
}

#[test]
fn an_end_that_sleeps_is_woken() {
    loom::model(|| {
        let shared = shared();
        let marker = Arc::clone(&shared);
        let marker = thread::spawn(move || marker.mark(0));
        let sleeps = shared.look_or_sleep();
        let rings = marker.join().unwrap();
        assert!(!sleeps || rings, "it sleeps on");
        shared.take();
        assert!(!shared.words.any());
    });
}

/// Two threads mark, one connection each or both the one.
fn two_markers(slots: [usize; 2]) {
    loom::model(move || {
        let shared = shared();
        let markers = slots.map(|which| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.mark(which))
        });
        let sleeps = shared.look_or_sleep();
        let rings = markers.map(|marker| u32::from(marker.join().unwrap()));
        let rings = rings.iter().sum::<u32>();
        assert!(rings <= 1, "rung twice for one sleep");
        assert!(!sleeps || rings == 1, "it sleeps on");
        shared.take();
        assert_eq!(shared.take(), 0);
    });
}

#[test]
fn two_markers_ring_once() {
    two_markers([0, 1]);
}

#[test]
fn two_markers_of_one_slot_ring_once() {
    two_markers([0, 0]);
}

/// A taker comes while two threads mark.
fn taker_of_two(slots: [usize; 2]) {
    loom::model(move || {
        let shared = shared();
        let markers = slots.map(|which| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.mark(which);
            })
        });
        let early = shared.take();
        markers.into_iter().for_each(|marker| marker.join().unwrap());
        assert_eq!(early + shared.take(), 2);
    });
}

#[test]
fn all_marks_are_taken() {
    taker_of_two([0, 1]);
}

#[test]
fn all_marks_of_one_word_are_taken() {
    taker_of_two([0, 2]);
}
