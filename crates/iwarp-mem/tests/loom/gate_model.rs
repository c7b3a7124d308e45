// SPDX-License-Identifier: MIT OR Apache-2.0

//! A model of the gate: every interleaving of uses and a revocation, under the memory model.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::gate::Gate;

/// The things that a gate protects: the grant, and the memory it grants.
struct Slot {
    gate: Gate,
    grant: UnsafeCell<u8>,
    memory: UnsafeCell<u32>,
}

impl Slot {
    fn open(key: u8) -> Arc<Self> {
        let slot =
            Self { gate: Gate::new(), grant: UnsafeCell::new(key), memory: UnsafeCell::new(0) };
        slot.gate.open(key);
        Arc::new(slot)
    }

    /// Reads the grant and places a byte, if the key fits.
    fn place(&self, key: u8) -> bool {
        if !self.gate.try_enter(key) {
            return false;
        }
        // Loom reports a write by the revoker that is not ordered with these.
        let granted = self.grant.with(|grant| unsafe { *grant });
        assert_eq!(granted, key, "entered with one key, found another's grant");
        self.gate.leave();
        true
    }

    /// Places like the above, but writes: only for models with one user at a time.
    fn place_alone(&self, key: u8) -> bool {
        if !self.gate.try_enter(key) {
            return false;
        }
        self.memory.with_mut(|memory| unsafe { *memory += 1 });
        self.gate.leave();
        true
    }
}

/// Covers: DDP-5041-8.3.1-06, RDMAP-5040-8.1.1-06, SEC-5042-6.2.2-02
#[test]
fn a_closed_gate_keeps_accesses_from_memory() {
    loom::model(|| {
        let slot = Slot::open(7);
        let user = Arc::clone(&slot);
        let user = thread::spawn(move || u32::from(user.place_alone(7)));
        slot.gate.close();
        // The owner has its memory back: an access by the user now would be a race, which loom
        // reports, and a late one would change what was read.
        let before = slot.memory.with_mut(|memory| unsafe { *memory });
        let placed = user.join().unwrap();
        assert_eq!(slot.memory.with(|memory| unsafe { *memory }), before);
        assert_eq!(before, placed);
    });
}

#[test]
fn two_users_do_not_outlive_a_revocation() {
    loom::model(|| {
        let slot = Slot::open(7);
        let users: Vec<_> = (0..2)
            .map(|_| {
                let slot = Arc::clone(&slot);
                thread::spawn(move || slot.place(7))
            })
            .collect();
        slot.gate.close();
        slot.grant.with_mut(|grant| unsafe { *grant = 0 });
        for user in users {
            user.join().unwrap();
        }
        assert!(!slot.place(7));
    });
}

#[test]
fn a_reopened_gate_admits_only_its_new_key() {
    loom::model(|| {
        let slot = Slot::open(7);
        let old = Arc::clone(&slot);
        let new = Arc::clone(&slot);
        let old = thread::spawn(move || old.place(7));
        let new = thread::spawn(move || new.place(8));
        slot.gate.close();
        slot.grant.with_mut(|grant| unsafe { *grant = 8 });
        slot.gate.open(8);
        old.join().unwrap();
        new.join().unwrap();
        assert!(!slot.place(7));
        assert!(slot.place(8));
    });
}
