// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers of queue pairs that a datagram port serves.

use std::any::Any;
use std::io;
use std::sync::Arc;

use super::Mux;
use crate::engine::numbers::{Lodging, Number, Numbers};

impl Lodging for Arc<Mux> {
    fn take_back(&self, number: u32) {
        self.gsi.free_qpn(number);
    }
}

impl Numbers {
    /// A number under which a peer finds the queue pair by datagrams that come to `mux`: of UD and
    /// UC, and of RC that meets its peer by the connection manager.
    pub(crate) fn of_datagrams(mux: &Arc<Mux>) -> io::Result<Number> {
        Ok(Self::lodged(mux.gsi.allocate_qpn()?, Box::new(Arc::clone(mux))))
    }

    /// A number under which a peer finds the queue pair either way: as [`Self::addressable`], and by
    /// datagrams that come to `mux`. Where the user has said which TCP ports there are it is found
    /// by TCP alone, and [`Number::mux`] says nothing.
    pub(crate) fn addressable_by_both(&self, mux: &Arc<Mux>) -> io::Result<Number> {
        self.addressable_within(mux.gsi.ports()?, Box::new(Arc::clone(mux)))
    }
}

impl Number {
    /// Where datagrams for it come, if they do.
    pub(crate) fn mux(&self) -> Option<&Arc<Mux>> {
        let lodging: &dyn Any = self.lodging()?;
        lodging.downcast_ref()
    }
}
