// SPDX-License-Identifier: MIT OR Apache-2.0

//! A model of memory that is taken back while another process copies it.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::revocations::Revocations;

struct Shared {
    revocations: Revocations,
    /// Memory of the owner, which others copy as they like.
    words: [AtomicU64; 2],
    /// The number of times that the owner has passed the address.
    passed: AtomicU64,
}

fn shared() -> Arc<Shared> {
    let zero = || AtomicU64::new(0);
    Arc::new(Shared { revocations: Revocations(zero()), words: [zero(), zero()], passed: zero() })
}

impl Shared {
    fn write(&self, value: u64) {
        for word in &self.words {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The words that a copy at this count has, if it counts.
    fn copy(&self, at: u64) -> Option<[u64; 2]> {
        self.revocations
            .since(at, || self.words.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }
}

#[test]
fn a_copy_has_nothing_that_was_written_after_a_revocation() {
    loom::model(|| {
        let shared = shared();
        let owner = Arc::clone(&shared);
        let owner = thread::spawn(move || {
            owner.revocations.add();
            owner.write(7);
        });
        if let Some(copied) = shared.copy(0) {
            assert_eq!(copied, [0, 0]);
        }
        owner.join().unwrap();
        assert_eq!(shared.copy(0), None);
    });
}

#[test]
fn a_copy_by_an_address_that_was_passed_later_has_what_was_there_then() {
    loom::model(|| {
        let shared = shared();
        let owner = Arc::clone(&shared);
        let owner = thread::spawn(move || {
            owner.revocations.add();
            owner.write(1);
            owner.passed.store(1, Ordering::Release);
            owner.revocations.add();
            owner.write(2);
        });
        if shared.passed.load(Ordering::Acquire) == 1
            && let Some(copied) = shared.copy(1)
        {
            assert_eq!(copied, [1, 1]);
        }
        owner.join().unwrap();
    });
}

/// Two threads of the owner take memory back, of which one has the word that is read.
#[test]
fn revocations_by_several_threads_are_all_seen() {
    loom::model(|| {
        let shared = shared();
        let owners = [0, 1].map(|at| {
            let owner = Arc::clone(&shared);
            thread::spawn(move || {
                owner.revocations.add();
                owner.words[at].store(7, Ordering::Relaxed);
            })
        });
        if let Some(copied) = shared.copy(0) {
            assert_eq!(copied, [0, 0]);
        }
        for owner in owners {
            owner.join().unwrap();
        }
        assert_eq!(shared.revocations.count(), 2);
    });
}
