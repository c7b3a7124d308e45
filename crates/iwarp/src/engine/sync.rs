// SPDX-License-Identifier: MIT OR Apache-2.0

//! Locks and atomics, replaced by a model checker's with `--cfg model` (`cargo xtask test --only
//! loom`), and counted in unit tests.

#[cfg(all(test, not(model)))]
pub(crate) mod counted;

#[cfg(all(test, not(model)))]
pub(crate) use std::sync::atomic::Ordering;

#[cfg(all(test, not(model)))]
pub(crate) use self::counted::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

#[cfg(not(any(test, model)))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

#[cfg(model)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use std::ops::{Deref, DerefMut};

#[cfg(not(model))]
use std::sync as imp;

#[cfg(model)]
use loom::sync as imp;

/// A mutex that a panicking holder does not poison: what it guards is kept consistent call by
/// call, and one connection's failure must not spread.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

pub(crate) struct Guard<'a, T>(imp::MutexGuard<'a, T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        #[cfg(all(test, not(model)))]
        counted::count_lock::<T>();
        Guard(self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        #[cfg(all(test, not(model)))]
        counted::count_lock::<T>();
        match self.0.try_lock() {
            Ok(guard) => Some(Guard(guard)),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(Guard(poisoned.into_inner())),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Runs a model in all interleavings with so many preemptions. Complete exploration of one that has
/// several locks takes hours, and tokens can be passed to and fro without end; every known bug of
/// this kind needs two preemptions.
#[cfg(all(test, model))]
pub(crate) fn explore(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}
