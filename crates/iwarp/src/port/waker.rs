// SPDX-License-Identifier: MIT OR Apache-2.0

//! The way in which a port without a descriptor says that it is ready.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use bitflags::bitflags;

bitflags! {
    /// The calls that a port takes without saying `WouldBlock`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Readiness: u8 {
        /// It has input, or says that the stream has ended or failed.
        const INPUT = 1;
        /// It takes bytes, or says that the stream has failed.
        const ROOM = 2;
    }
}

/// The object that is told.
pub(crate) trait Wake: Send + Sync + Debug {
    /// The port has become ready for `what`.
    fn wake(&self, what: Readiness);
}

/// Tells the library that a port has become ready. Clones wake alike.
#[derive(Clone, Debug)]
pub struct Waker(Arc<dyn Wake>);

impl Waker {
    pub(crate) fn new(wake: Arc<dyn Wake>) -> Self {
        Self(wake)
    }

    /// The port has become ready for `what`: [`Port::readiness`](super::Port::readiness) has it by
    /// now, and the calling thread holds no lock that a call of the port takes. Costs a lock and no
    /// system call, unless a thread sleeps. To wake for nothing is harmless.
    pub fn wake(&self, what: Readiness) {
        self.0.wake(what);
    }
}

/// The place for the waker of a port, empty until it was given one.
#[derive(Debug, Default)]
pub struct WakerSlot(Mutex<Option<Waker>>);

impl WakerSlot {
    /// As [`Port::set_waker`](super::Port::set_waker) has it.
    pub fn set(&self, waker: Waker) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
    }

    /// Wakes, if there is a waker.
    pub fn wake(&self, what: Readiness) {
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(waker) = waker {
            waker.wake(what);
        }
    }
}
