// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers of queue pairs that a datagram port serves.

use std::any::Any;
use std::io;
use std::sync::Arc;

use super::Mux;
use crate::engine::numbers::{Lodging, Number, Numbers};
use crate::engine::sync::Ordering;

/// The part that a number keeps of the port to which it leads.
#[derive(Debug)]
struct Lodger(Arc<Mux>);

impl Lodger {
    fn new(mux: &Arc<Mux>) -> Box<Self> {
        mux.lodgers.fetch_add(1, Ordering::AcqRel);
        Box::new(Self(Arc::clone(mux)))
    }
}

impl Lodging for Lodger {
    fn take_back(&self, number: u32) {
        self.0.gsi.free_qpn(number);
    }
}

impl Drop for Lodger {
    fn drop(&mut self) {
        if self.0.lodgers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.rest_later();
        }
    }
}

impl Numbers {
    /// A number under which a peer finds the queue pair by datagrams that come to `mux`: of UD and
    /// UC, and of RC that meets its peer by the connection manager.
    pub(crate) fn of_datagrams(mux: &Arc<Mux>) -> io::Result<Number> {
        Ok(Self::lodged(mux.gsi.allocate_qpn()?, Lodger::new(mux)))
    }

    /// A number under which a peer finds the queue pair either way: as [`Self::addressable`], and
    /// by datagrams that come to `mux`. If the user has set the TCP ports it is found by TCP alone,
    /// and [`Number::mux`] is `None`.
    pub(crate) fn addressable_by_both(&self, mux: &Arc<Mux>) -> io::Result<Number> {
        self.addressable_within(mux.gsi.ports()?, Lodger::new(mux))
    }
}

impl Number {
    /// Port at which datagrams for it come, if they do.
    pub(crate) fn mux(&self) -> Option<&Arc<Mux>> {
        let lodging: &dyn Any = self.lodging()?;
        lodging.downcast_ref().map(|Lodger(mux)| mux)
    }
}
