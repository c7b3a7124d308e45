// SPDX-License-Identifier: MIT OR Apache-2.0

//! Atomics of the unit tests, and counts of what a thread does to them and to locks: a test holds a
//! bound on both ([`lock_bounds`](crate::lock_bounds)).

use std::any::type_name;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{self, Ordering};

thread_local! {
    static COUNTS: RefCell<Counts> = RefCell::default();
}

/// The locks that a thread took, and its atomic read-modify-writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// By the type that is locked.
    locks: BTreeMap<&'static str, u32>,
    /// Including locks: one to take each and one to free it.
    pub(crate) read_modify_writes: u32,
}

impl Counts {
    /// The counts of `work`, done by this thread.
    pub(crate) fn of(work: impl FnOnce()) -> Self {
        COUNTS.take();
        work();
        COUNTS.take()
    }

    /// All locks.
    pub(crate) fn locks(&self) -> u32 {
        self.locks.values().sum()
    }

    /// Locks of types whose name ends like this.
    pub(crate) fn locks_of(&self, name: &str) -> u32 {
        let named = self.locks.iter().filter(|(of, _)| of.ends_with(name));
        named.map(|(_, count)| count).sum()
    }
}

/// A lock of a `T` is taken.
pub(super) fn count_lock<T>() {
    count(|counts| {
        *counts.locks.entry(type_name::<T>()).or_default() += 1;
        counts.read_modify_writes += 2;
    });
}

fn count(add: impl FnOnce(&mut Counts)) {
    // An ending thread has none.
    let _ = COUNTS.try_with(|counts| add(&mut counts.borrow_mut()));
}

/// Declares an atomic type with its loads and stores, and with these read-modify-writes.
macro_rules! atomic {
    ($name:ident($value:ty): $($method:ident),*) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(atomic::$name);

        #[allow(dead_code, reason = "as many as std has")]
        impl $name {
            pub(crate) const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
            }

            $(pub(crate) fn $method(&self, value: $value, order: Ordering) -> $value {
                count(|counts| counts.read_modify_writes += 1);
                self.0.$method(value, order)
            })*

            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                count(|counts| counts.read_modify_writes += 1);
                self.0.compare_exchange(current, new, success, failure)
            }

            pub(crate) fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                to: impl Fn($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let changed = self.0.fetch_update(success, failure, to);
                count(|counts| counts.read_modify_writes += u32::from(changed.is_ok()));
                changed
            }
        }
    };
}

atomic!(AtomicBool(bool): swap, fetch_or, fetch_and);
atomic!(AtomicU8(u8): swap, fetch_or, fetch_and, fetch_add, fetch_sub, fetch_max);
atomic!(AtomicU32(u32): swap, fetch_or, fetch_and, fetch_add, fetch_sub, fetch_max);
atomic!(AtomicU64(u64): swap, fetch_or, fetch_and, fetch_add, fetch_sub, fetch_max);
atomic!(AtomicUsize(usize): swap, fetch_or, fetch_and, fetch_add, fetch_sub, fetch_max);
