// SPDX-License-Identifier: MIT OR Apache-2.0

//! A model of one direction of a ring: bytes that are seen once they were put in, places that are
//! filled anew once they were taken out, and a sender that waits for room.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use loom::thread;

use crate::flow::{Flow, Line, Receiving, SeldomWords, SenderWords, Sending};

struct Ring {
    flow: Flow,
    sending: Sending,
    receiving: Receiving,
    /// A number for each byte.
    bytes: Vec<UnsafeCell<u64>>,
}

fn ring(size: usize) -> Arc<Ring> {
    let zero = || AtomicU64::new(0);
    let seldom = SeldomWords {
        asks_at: zero(),
        closed: AtomicU32::new(0),
        began: AtomicU32::new(0),
        began_at: zero(),
        queue: AtomicU32::new(0),
        senders: AtomicU32::new(0),
    };
    Arc::new(Ring {
        flow: Flow {
            sender: Line(SenderWords { sent: zero(), origin: zero(), ended: AtomicU32::new(0) }),
            taken: Line(zero()),
            seldom: Line(seldom),
        },
        sending: Sending { sent: zero(), origin: zero(), taken: zero() },
        receiving: Receiving {
            taken: zero(),
            sent: zero(),
            origin: zero(),
            served: zero(),
            owes: AtomicBool::new(false),
        },
        bytes: (0..size).map(|_| UnsafeCell::new(u64::MAX)).collect(),
    })
}

impl Ring {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn place(&self, at: u64, origin: u64) -> &UnsafeCell<u64> {
        &self.bytes[(at.wrapping_sub(origin) % self.size()) as usize]
    }

    /// Sends one byte. False: there is no room, and the receiver was asked to tell of some.
    fn send(&self) -> bool {
        if self.flow.room(&self.sending, self.size(), 1).unwrap() == 0 {
            return false;
        }
        let at = unsafe { self.sending.sent.unsync_load() };
        let origin = unsafe { self.sending.origin.unsync_load() };
        // Loom reports a receiver that still reads there.
        self.place(at, origin).with_mut(|byte| unsafe { *byte = at });
        self.flow.put(&self.sending, 1);
        true
    }

    /// Takes one byte, if there is one. True if the sender is to be told of room.
    fn receive(&self) -> bool {
        if self.flow.filled(&self.receiving, self.size(), 1).unwrap() == 0 {
            return false;
        }
        let at = unsafe { self.receiving.taken.unsync_load() };
        let origin = unsafe { self.receiving.origin.unsync_load() };
        let byte = self.place(at, origin).with(|byte| unsafe { *byte });
        assert_eq!(byte, at);
        self.flow.take(&self.receiving, self.size(), 1);
        let owes = self.receiving.owes.swap(false, loom::sync::atomic::Ordering::Relaxed);
        if owes {
            let served = unsafe { self.receiving.served.unsync_load() };
            assert!(served - (at + 1) < self.size(), "the sender is told of room and has none");
        }
        owes
    }
}

/// A sender fills a ring and sends on until it has to wait, while a receiver takes what is there. A
/// mark has the receiver take all there is, and then the sender must have been told.
fn sender_that_waits(size: usize, more: usize) {
    loom::model(move || {
        let ring = ring(size);
        for _ in 0..size {
            assert!(ring.send());
        }
        let receiver = Arc::clone(&ring);
        let receiver = thread::spawn(move || {
            for _ in 0..size {
                receiver.receive();
            }
        });
        let waits = (0..more).any(|_| !ring.send());
        receiver.join().unwrap();
        for _ in 0..size {
            ring.receive();
        }
        if waits {
            let served = unsafe { ring.receiving.served.unsync_load() };
            let sent = unsafe { ring.sending.sent.unsync_load() };
            assert_eq!(served, sent, "the sender was not told of the room that it waits for");
        }
    });
}

#[test]
fn a_sender_that_waits_is_told() {
    sender_that_waits(1, 1);
}

#[test]
fn a_sender_that_waits_again_is_told_again() {
    sender_that_waits(1, 2);
}

#[test]
fn a_sender_is_told_of_a_part_of_the_ring() {
    sender_that_waits(2, 2);
}

#[test]
fn a_byte_that_is_there_was_put_in() {
    loom::model(|| {
        let ring = ring(2);
        let sender = Arc::clone(&ring);
        let sender = thread::spawn(move || assert!(sender.send() && sender.send()));
        for _ in 0..2 {
            ring.receive();
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_sender_that_begins_anew_disturbs_no_byte() {
    loom::model(|| {
        let ring = ring(4);
        assert!(ring.send());
        let sender = Arc::clone(&ring);
        let sender = thread::spawn(move || {
            for _ in 0..2 {
                sender.flow.begin_anew(&sender.sending);
                assert!(sender.send());
            }
        });
        for _ in 0..3 {
            ring.receive();
        }
        sender.join().unwrap();
        for _ in 0..3 {
            ring.receive();
        }
        assert_eq!(unsafe { ring.receiving.taken.unsync_load() }, 3);
    });
}

#[test]
fn no_byte_is_lost_before_the_end() {
    loom::model(|| {
        let ring = ring(2);
        let sender = Arc::clone(&ring);
        let sender = thread::spawn(move || {
            assert!(sender.send());
            sender.flow.end();
        });
        let there = ring.flow.filled_or_ended(&ring.receiving, 2, 1).unwrap();
        assert_ne!(there, Some(0), "an end without the byte before it");
        sender.join().unwrap();
        ring.receive();
        assert_eq!(ring.flow.filled_or_ended(&ring.receiving, 2, 1), Ok(Some(0)));
    });
}
