// SPDX-License-Identifier: MIT OR Apache-2.0

//! Multicast groups, and the queue pairs that get the packets to them.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use iwarp_mem::OutOfMemory;

use super::Mux;
use crate::engine::endpoint::Endpoint;
use crate::engine::sync::Mutex;

/// The groups that the port has joined, each with the queue pairs that are attached to it.
#[derive(Debug, Default)]
pub(super) struct Groups(Mutex<HashMap<IpAddr, Vec<Weak<Endpoint>>>>);

impl Mux {
    /// Packets to the group are handed to the queue pair from now on.
    pub(super) fn join(&self, group: IpAddr, endpoint: &Arc<Endpoint>) -> io::Result<()> {
        let mut groups = self.groups.0.lock();
        groups.try_reserve(1).map_err(|_| OutOfMemory)?;
        let attached = groups.entry(group).or_default();
        attached.try_reserve(1).map_err(|_| OutOfMemory)?;
        if attached.is_empty()
            && let Err(error) = self.port.join(group)
        {
            groups.remove(&group);
            return Err(error);
        }
        attached.push(Arc::downgrade(endpoint));
        Ok(())
    }

    /// They are not any more, to this group or to all (`None`).
    pub(super) fn leave(&self, group: Option<IpAddr>, endpoint: &Endpoint) {
        let mut groups = self.groups.0.lock();
        groups.retain(|ip, attached| {
            if group.is_none_or(|group| group == *ip) {
                // An endpoint that cannot be reached any more is about to be detached as well.
                attached.retain(|other| {
                    !std::ptr::eq(other.as_ptr(), endpoint) && other.strong_count() > 0
                });
            }
            if attached.is_empty() {
                self.port.leave(*ip);
            }
            !attached.is_empty()
        });
    }

    /// The queue pairs that are attached to a group.
    pub(super) fn attached(&self, group: IpAddr) -> Vec<Arc<Endpoint>> {
        let groups = self.groups.0.lock();
        groups.get(&group).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }
}
