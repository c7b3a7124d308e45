// SPDX-License-Identifier: MIT OR Apache-2.0

//! All connections and SIDR requests of a process, indexed by the ids in messages.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::net::IpAddr;

use iwarp_types::{QpId, Time};

use super::connection::{CmState, Connection};
use super::sidr::Sidr;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Table {
    connections: BTreeMap<u32, Box<Connection>>,
    sidrs: BTreeMap<u32, Box<Sidr>>,
    /// By GUID and communication id of the peer.
    by_remote_id: BTreeMap<(u64, u32), u32>,
    /// By GUID and queue pair of the peer; not in timewait.
    by_remote_qp: BTreeMap<(u64, u32), u32>,
    /// By own queue pair.
    by_qp: BTreeMap<u32, u32>,
    /// SIDR requests of peers, by address and request id.
    by_request: BTreeMap<(IpAddr, u32), u32>,
    deadlines: BTreeMap<u32, Time>,
    timers: BTreeSet<(Time, u32)>,
    /// Connections that are kept for repeated messages only, by age.
    answers: VecDeque<u32>,
}

impl Table {
    pub(super) fn is_taken(&self, id: u32) -> bool {
        self.connections.contains_key(&id) || self.sidrs.contains_key(&id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.sidrs.is_empty()
    }

    /// True if every index is empty.
    pub(super) fn is_clean(&self) -> bool {
        self.is_empty()
            && self.by_remote_id.is_empty()
            && self.by_remote_qp.is_empty()
            && self.by_qp.is_empty()
            && self.by_request.is_empty()
            && self.deadlines.is_empty()
            && self.timers.is_empty()
            && self.answers.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.connections.len() + self.sidrs.len()
    }

    pub(super) fn insert(&mut self, connection: Connection) {
        let id = connection.id;
        if let Some(qp) = connection.qp {
            self.by_qp.insert(qp.0, id);
        }
        self.connections.insert(id, Box::new(connection));
        self.meet(id);
    }

    pub(super) fn get(&self, id: u32) -> Option<&Connection> {
        self.connections.get(&id).map(|connection| &**connection)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Connection> {
        self.connections.get_mut(&id).map(|connection| &mut **connection)
    }

    /// Indexes the connection by the peer's ids, once they are known.
    pub(super) fn meet(&mut self, id: u32) {
        let Some(connection) = self.connections.get(&id) else { return };
        let Some(remote_id) = connection.remote_id else { return };
        self.by_remote_id.insert((connection.guid, remote_id), id);
        self.by_remote_qp.insert((connection.guid, connection.remote_qpn), id);
    }

    pub(super) fn set_qp(&mut self, id: u32, qp: QpId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.qp = Some(qp);
            self.by_qp.insert(qp.0, id);
        }
    }

    /// Frees the peer's queue pair for other connections.
    pub(super) fn release_remote_qp(&mut self, id: u32) {
        let Some(connection) = self.connections.get(&id) else { return };
        remove_if(&mut self.by_remote_qp, &(connection.guid, connection.remote_qpn), id);
    }

    /// Frees the own queue pair for other connections.
    pub(super) fn release_qp(&mut self, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(qp) = connection.qp.take() {
            remove_if(&mut self.by_qp, &qp.0, id);
        }
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Box<Connection>> {
        self.release_remote_qp(id);
        self.set_deadline(id, None);
        let connection = self.connections.remove(&id)?;
        if let Some(qp) = connection.qp {
            remove_if(&mut self.by_qp, &qp.0, id);
        }
        if let Some(remote_id) = connection.remote_id {
            remove_if(&mut self.by_remote_id, &(connection.guid, remote_id), id);
        }
        self.answers.retain(|answer| *answer != id);
        Some(connection)
    }

    pub(super) fn by_remote_id(&self, guid: u64, remote_id: u32) -> Option<u32> {
        self.by_remote_id.get(&(guid, remote_id)).copied()
    }

    pub(super) fn by_remote_qp(&self, guid: u64, qpn: u32) -> Option<u32> {
        self.by_remote_qp.get(&(guid, qpn)).copied()
    }

    pub(super) fn by_qp(&self, qp: QpId) -> Option<u32> {
        self.by_qp.get(&qp.0).copied()
    }

    /// Own queue pairs in timewait.
    pub(super) fn timewait(&self) -> impl Iterator<Item = QpId> + '_ {
        let waiting = self.by_qp.iter().filter(|(_, id)| {
            self.connections.get(id).is_some_and(|one| one.state == CmState::Timewait)
        });
        waiting.map(|(qp, _)| QpId(*qp))
    }

    pub(super) fn insert_sidr(&mut self, sidr: Sidr, of_peer: bool) {
        if of_peer {
            let peer = sidr.way.address.destination;
            self.by_request.insert((peer, sidr.request_id), sidr.id);
        }
        self.sidrs.insert(sidr.id, Box::new(sidr));
    }

    pub(super) fn sidr(&self, id: u32) -> Option<&Sidr> {
        self.sidrs.get(&id).map(|sidr| &**sidr)
    }

    pub(super) fn sidr_mut(&mut self, id: u32) -> Option<&mut Sidr> {
        self.sidrs.get_mut(&id).map(|sidr| &mut **sidr)
    }

    pub(super) fn by_request(&self, peer: IpAddr, request_id: u32) -> Option<u32> {
        self.by_request.get(&(peer, request_id)).copied()
    }

    pub(super) fn remove_sidr(&mut self, id: u32) -> Option<Box<Sidr>> {
        self.set_deadline(id, None);
        let sidr = self.sidrs.remove(&id)?;
        remove_if(&mut self.by_request, &(sidr.way.address.destination, sidr.request_id), id);
        self.answers.retain(|answer| *answer != id);
        Some(sidr)
    }

    /// Keeps the answer of `id` until its deadline, but no more than `limit` answers.
    pub(super) fn keep_answer(&mut self, id: u32, limit: usize) {
        self.answers.push_back(id);
        while self.answers.len() > limit {
            let Some(oldest) = self.answers.pop_front() else { return };
            self.remove(oldest);
            self.remove_sidr(oldest);
        }
    }

    pub(super) fn set_deadline(&mut self, id: u32, deadline: Option<Time>) {
        if let Some(before) = self.deadlines.remove(&id) {
            self.timers.remove(&(before, id));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert(id, deadline);
            self.timers.insert((deadline, id));
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// Returns an id whose deadline has passed by `now`, and clears that deadline.
    pub(super) fn expired(&mut self, now: Time) -> Option<u32> {
        let (_, id) = *self.timers.first().filter(|(deadline, _)| *deadline <= now)?;
        self.set_deadline(id, None);
        Some(id)
    }
}

fn remove_if<K: Ord>(index: &mut BTreeMap<K, u32>, key: &K, id: u32) {
    if index.get(key) == Some(&id) {
        index.remove(key);
    }
}
