// SPDX-License-Identifier: MIT OR Apache-2.0

//! The waker of the poll groups of a member without a descriptor.

use std::sync::{Arc, Weak};

use iwarp_mem::OutOfMemory;
use iwarp_os::{Interest, Ready};

use super::GroupList;
use crate::engine::sync::Mutex;
use crate::port::{DatagramPort, Port, Readiness, Wake, Waker};

/// Puts the stream into the ready lists of the poll groups that it is in.
#[derive(Debug, Default)]
pub(crate) struct MemberWaker {
    lists: Mutex<Vec<(Weak<GroupList>, u64)>>,
}

impl MemberWaker {
    /// That of a stream which has no descriptor.
    pub(crate) fn of(stream: &dyn Port) -> Option<Arc<Self>> {
        if !stream.descriptors().is_none() {
            return None;
        }
        let waker = Arc::new(Self::default());
        stream.set_waker(Waker::new(Arc::clone(&waker) as Arc<dyn Wake>));
        Some(waker)
    }

    /// That of a datagram port which has no descriptor.
    pub(crate) fn of_datagrams(port: &dyn DatagramPort) -> Option<Arc<Self>> {
        if !port.descriptors().is_none() {
            return None;
        }
        let waker = Arc::new(Self::default());
        port.set_waker(Waker::new(Arc::clone(&waker) as Arc<dyn Wake>));
        Some(waker)
    }

    /// Puts the stream into that list as well from now on, where it has that token.
    pub(crate) fn add(&self, list: &Arc<GroupList>, token: u64) -> Result<(), OutOfMemory> {
        let mut lists = self.lists.lock();
        lists.try_reserve(1).map_err(|_| OutOfMemory)?;
        lists.push((Arc::downgrade(list), token));
        Ok(())
    }

    /// And no more.
    pub(crate) fn remove(&self, list: &Arc<GroupList>) {
        self.lists.lock().retain(|(other, _)| other.as_ptr() != Arc::as_ptr(list));
    }
}

impl Wake for MemberWaker {
    fn wake(&self, _: Readiness) {
        for (list, token) in self.lists.lock().iter() {
            if let Some(list) = list.upgrade() {
                list.put(*token);
            }
        }
    }
}

/// The readiness of a member with that token, of that which is of interest.
pub(crate) fn ready_of(ready: Readiness, interest: Interest, token: u64) -> Option<Ready> {
    let readable = ready.contains(Readiness::INPUT) && interest.contains(Interest::READ);
    let writable = ready.contains(Readiness::ROOM) && interest.contains(Interest::WRITE);
    (readable || writable).then_some(Ready { token, readable, writable, ..Ready::default() })
}
