// SPDX-License-Identifier: MIT OR Apache-2.0

//! The handles for users of the connection manager.

use std::io;
use std::sync::{Arc, Weak};

use iwarp_roce::Attributes;
use iwarp_roce::cm::{
    Accept, Answer, CommId, Connect, ListenerId, RejectReason, Resolve, ServiceId,
};
use iwarp_types::QpId;

use super::{ConnectionManager, Party, error_of};

/// A connection, or a question for a datagram service. Dropping it ends it in any state: it is
/// given up, refused or disconnected, and its party hears of it no more.
pub(crate) struct Communication {
    manager: Arc<ConnectionManager>,
    id: CommId,
}

impl std::fmt::Debug for Communication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Communication").field(&self.id.0).finish()
    }
}

impl Communication {
    pub(super) const fn new(manager: Arc<ConnectionManager>, id: CommId) -> Self {
        Self { manager, id }
    }

    /// Asks for the queue pair of a datagram service.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: too much private data.
    pub(crate) fn resolve(
        manager: &Arc<ConnectionManager>,
        resolve: &Resolve<'_>,
        party: Weak<dyn Party>,
    ) -> io::Result<Self> {
        manager.begin(party, |protocol, now| protocol.resolve(resolve, now))
    }

    /// Asks a peer for a connection.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: too much private data; `AddrInUse`: a queue pair with a connection, or in
    /// timewait.
    pub(crate) fn connect(
        manager: &Arc<ConnectionManager>,
        connect: &Connect<'_>,
        party: Weak<dyn Party>,
    ) -> io::Result<Self> {
        manager.begin(party, |protocol, now| protocol.connect(connect, now))
    }

    /// `party` hears of it from now on, first of what has happened since the peer asked.
    pub(crate) fn introduce(&self, party: Weak<dyn Party>) {
        self.manager.run(|state, _| state.introduce(self.id, party));
    }

    /// Answers a peer's question for a datagram service.
    ///
    /// # Errors
    ///
    /// `NotConnected` where the peer cannot be waiting any more; `InvalidInput`: too much private
    /// data, or it was answered.
    pub(crate) fn answer(&self, answer: &Answer<'_>) -> io::Result<()> {
        self.manager
            .run(|state, now| state.protocol.answer_datagrams(self.id, answer, now))
            .map_err(error_of)
    }

    /// The attributes with which the queue pair is to be set up before [`Self::accept`].
    ///
    /// # Errors
    ///
    /// As for [`Self::accept`].
    pub(crate) fn attributes(&self, accept: &Accept<'_>) -> io::Result<Attributes> {
        self.manager.run(|state, _| state.protocol.attributes(self.id, accept)).map_err(error_of)
    }

    /// Accepts a connection.
    ///
    /// # Errors
    ///
    /// As [`Self::answer`]; `AddrInUse`: a queue pair with a connection, or in timewait.
    pub(crate) fn accept(&self, accept: &Accept<'_>) -> io::Result<()> {
        self.manager.run(|state, now| state.protocol.accept(self.id, accept, now)).map_err(error_of)
    }

    /// The queue pair of a connection that the peer has accepted is set up.
    ///
    /// # Errors
    ///
    /// As [`Self::answer`].
    pub(crate) fn ready(&self) -> io::Result<()> {
        self.manager.run(|state, _| state.protocol.ready(self.id, &[])).map_err(error_of)
    }

    /// A packet has come for the queue pair.
    pub(crate) fn packet_arrived(&self, qp: QpId) {
        self.manager.run(|state, _| state.protocol.packet_arrived(qp));
    }

    /// Refuses what a peer asks for or has answered.
    ///
    /// # Errors
    ///
    /// As [`Self::answer`].
    pub(crate) fn reject(&self, reason: RejectReason, private_data: &[u8]) -> io::Result<()> {
        self.manager
            .run(|state, now| state.protocol.reject(self.id, reason, private_data, now))
            .map_err(error_of)
    }

    /// Ends a connection.
    ///
    /// # Errors
    ///
    /// `NotConnected`; `InvalidInput` where it is not established yet.
    pub(crate) fn disconnect(&self) -> io::Result<()> {
        self.manager
            .run(|state, now| state.protocol.disconnect(self.id, &[], now))
            .map_err(error_of)
    }
}

impl Drop for Communication {
    fn drop(&mut self) {
        let before = self.manager.run_in_passing(|state, now| {
            state.protocol.close(self.id, now);
            state.audience.remove(&self.id)
        });
        drop(before);
    }
}

/// A listener, until it is dropped.
pub(crate) struct Listening {
    manager: Arc<ConnectionManager>,
    listener: ListenerId,
    service: ServiceId,
}

impl Listening {
    pub(super) const fn new(
        manager: Arc<ConnectionManager>,
        listener: ListenerId,
        service: ServiceId,
    ) -> Self {
        Self { manager, listener, service }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.manager.unlisten(self.listener, self.service);
    }
}
