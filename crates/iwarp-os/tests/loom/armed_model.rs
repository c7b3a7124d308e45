// SPDX-License-Identifier: MIT OR Apache-2.0

//! A model of a program that arms its completion queue and sleeps, while others send what completes
//! there.
//!
//! As in the library, a sender marks what it has sent, and then either signals the program or wakes
//! the worker if that listens. The program arms the queue, and has the worker listen and look.

use std::array;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;

use crate::armed::Armed;
use crate::words::{Line, Words};

const DESCRIPTOR: u32 = 7;

struct Shared {
    words: Words<1>,
    armed: Armed<1>,
    /// Signals of the program's descriptor.
    signals: AtomicU32,
    /// Rings of the worker's bell.
    rings: AtomicU32,
}

fn shared() -> Arc<Shared> {
    let marks = Line(array::from_fn(|_| AtomicU64::new(0)));
    Arc::new(Shared {
        words: Words { summary: AtomicU64::new(0), marks },
        armed: Armed([AtomicU32::new(0)]),
        signals: AtomicU32::new(0),
        rings: AtomicU32::new(0),
    })
}

impl Shared {
    fn send(&self, is_solicited: bool) {
        let sleeps = self.words.put(0);
        let known = |number| (number == DESCRIPTOR).then_some(());
        if self.armed.take(0, is_solicited, known).is_some() {
            self.signals.fetch_add(1, Ordering::SeqCst);
        } else if sleeps && self.words.wakes() {
            self.rings.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The program arms the queue. True if the look that follows has found something.
    fn arm_and_look(&self, solicited_only: bool) -> bool {
        self.armed.arm(0, DESCRIPTOR, solicited_only);
        if !self.words.listen() {
            return false;
        }
        let mut found = false;
        self.words.take(|_| found = true);
        found
    }

    fn woken(&self) -> u32 {
        self.signals.load(Ordering::SeqCst) + self.rings.load(Ordering::SeqCst)
    }
}

#[test]
fn a_program_that_has_armed_its_queue_hears_of_a_message() {
    loom::model(|| {
        let shared = shared();
        let sender = Arc::clone(&shared);
        let sender = thread::spawn(move || sender.send(false));
        let found = shared.arm_and_look(false);
        sender.join().unwrap();
        assert!(found || shared.woken() > 0, "it sleeps on");
    });
}

#[test]
fn one_of_two_senders_signals() {
    loom::model(|| {
        let shared = shared();
        shared.armed.arm(0, DESCRIPTOR, false);
        let senders = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.send(false))
        });
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(shared.signals.load(Ordering::SeqCst), 1);
    });
}

/// An armed queue, and a sender that sends to it now.
fn armed_with_sender() -> (Arc<Shared>, thread::JoinHandle<()>) {
    let shared = shared();
    shared.armed.arm(0, DESCRIPTOR, false);
    let sender = Arc::clone(&shared);
    (shared, thread::spawn(move || sender.send(false)))
}

/// Another thread of the program raises the event meanwhile.
#[test]
fn a_queue_is_disarmed_or_its_program_signalled() {
    loom::model(|| {
        let (shared, sender) = armed_with_sender();
        let was_first = shared.armed.disarm(0);
        sender.join().unwrap();
        assert_eq!(shared.signals.load(Ordering::SeqCst), u32::from(!was_first));
        assert!(!shared.armed.is_armed(0));
    });
}

/// The program arms the queue again before it looks at the descriptor.
#[test]
fn a_word_that_was_taken_out_is_told_when_the_queue_is_armed_again() {
    loom::model(|| {
        let (shared, sender) = armed_with_sender();
        let was_armed = shared.armed.arm(0, DESCRIPTOR, false);
        sender.join().unwrap();
        assert_eq!(shared.signals.load(Ordering::SeqCst), 1);
        assert_eq!(shared.armed.is_armed(0), !was_armed);
    });
}

#[test]
fn only_a_solicited_message_counts_where_that_was_asked_for() {
    loom::model(|| {
        let shared = shared();
        let sender = Arc::clone(&shared);
        let sender = thread::spawn(move || {
            sender.send(false);
            sender.send(true);
        });
        let found = shared.arm_and_look(true);
        sender.join().unwrap();
        assert!(found || shared.woken() > 0, "it sleeps on");
        assert!(shared.signals.load(Ordering::SeqCst) <= 1);
    });
}
