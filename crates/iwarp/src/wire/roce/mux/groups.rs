// SPDX-License-Identifier: MIT OR Apache-2.0

//! Multicast groups, and the queue pairs that get the packets to them.
//!
//! A queue pair of a device with all addresses joins a group at every interface of this host, and
//! one of a device or a port with an interface there alone. The socket is the process's, so a
//! packet is handed to the queue pairs that have joined at the interface where it has arrived.

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
pub(super) struct Groups(Mutex<HashMap<IpAddr, Vec<Attached>>>);

#[derive(Debug)]
struct Attached {
    endpoint: Weak<Endpoint>,
    /// Indices of the interfaces at which it has joined; `None`: all.
    at: Option<Vec<u32>>,
}

impl Attached {
    fn hears(&self, arrived_at: Option<u32>) -> bool {
        match (&self.at, arrived_at) {
            (Some(at), Some(interface)) => at.contains(&interface),
            _ => true,
        }
    }
}

impl Mux {
    /// Packets to the group are handed to the queue pair from now on.
    pub(super) fn join(&self, group: IpAddr, endpoint: &Arc<Endpoint>) -> io::Result<()> {
        let at = endpoint.home().interface_indices()?;
        let mut groups = self.groups.0.lock();
        groups.try_reserve(1).map_err(|_| OutOfMemory)?;
        let attached = groups.entry(group).or_default();
        attached.try_reserve(1).map_err(|_| OutOfMemory)?;
        let joined = match &at {
            None if attached.iter().any(|other| other.at.is_none()) => Ok(()),
            None => self.port.join(group),
            Some(at) => self.port.join_at(group, at),
        };
        if let Err(error) = joined {
            if attached.is_empty() {
                groups.remove(&group);
            }
            return Err(error);
        }
        attached.push(Attached { endpoint: Arc::downgrade(endpoint), at });
        Ok(())
    }

    /// They are not any more, to this group or to all (`None`).
    pub(super) fn leave(&self, group: Option<IpAddr>, endpoint: &Endpoint) {
        let mut groups = self.groups.0.lock();
        groups.retain(|ip, attached| {
            let before = attached.len();
            if group.is_none_or(|group| group == *ip) {
                // An endpoint that cannot be reached any more is about to be detached as well.
                attached.retain(|Attached { endpoint: other, .. }| {
                    !std::ptr::eq(other.as_ptr(), endpoint) && other.strong_count() > 0
                });
            }
            if attached.len() < before {
                self.leave_unheard(*ip, attached);
            }
            !attached.is_empty()
        });
    }

    /// Leaves the group at the interfaces at which no queue pair has joined any more.
    fn leave_unheard(&self, group: IpAddr, attached: &[Attached]) {
        if attached.is_empty() {
            return self.port.leave(group);
        }
        let heard: Option<Vec<_>> = attached.iter().map(|one| one.at.as_deref()).collect();
        if let Some(heard) = heard {
            self.port.leave_but(group, &heard.concat());
        }
    }

    /// The queue pairs that get a packet to a group, the one that was handed out last.
    pub(super) fn attached(&self, group: IpAddr) -> Vec<Arc<Endpoint>> {
        let arrived_at = self.port.arrived_at(group);
        let groups = self.groups.0.lock();
        let attached = groups.get(&group).into_iter().flatten();
        let hearing = attached.filter(|one| one.hears(arrived_at));
        hearing.filter_map(|one| one.endpoint.upgrade()).collect()
    }
}
