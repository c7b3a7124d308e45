// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connections of ids: by which wire they are asked for, and by which they come in.
//!
//! A device that may speak both asks for a stream first. Where no program takes one, it asks for
//! packets, and an id that listens takes both. The ports of an id are those of TCP wherever streams
//! are possible, and else the connection manager's own, as on a RoCE card.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use iwarp_os::FamilyClaim;
use iwarp_roce::cm::UDP_QKEY;
use iwarp_roce::wire::MULTICAST_QP;
use iwarp_types::AddressVector;

use crate::connect::{Arrivals, Call, EventKind, Exchange, Listener, NamedQp, Question};
use crate::engine::Engine;
use crate::engine::accept_set::AcceptSet;
use crate::engine::options::Wire;
use crate::port::Acceptor;
use crate::wire::iwarp::rendezvous::RendezvousListeners;
use crate::wire::roce::manager::ConnectionManager;
use crate::wire::roce::mux::MuxPlace;
use crate::wire::roce::service::{Offer, Serving};
use crate::wire::roce::sidr::SidrRequest;
use crate::wire::{iwarp, roce};

/// The wires of a device.
#[derive(Debug)]
pub(crate) struct Wires {
    pub(crate) engine: Arc<Engine>,
    /// Its port for datagrams.
    pub(super) mux: Arc<MuxPlace>,
    /// Its queue pairs that meet their peers without the connection manager.
    pub(crate) rendezvous: Arc<RendezvousListeners>,
}

impl Wires {
    pub(crate) fn new(engine: &Arc<Engine>) -> Self {
        let rendezvous = RendezvousListeners::new(engine);
        Self { engine: Arc::clone(engine), mux: Arc::default(), rendezvous }
    }

    /// True if connections are over packets always.
    pub(crate) fn has_packets_only(&self) -> bool {
        self.engine.options.spoken() == Wire::Roce
    }

    fn manager(&self) -> io::Result<Arc<ConnectionManager>> {
        self.mux.connection_manager(&self.engine)
    }

    /// Makes the exchange by which a program asks a peer for a connection.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; those of opening UDP port 4791, and `InvalidInput` for a call without a local
    /// address or a queue pair, where connections are over packets.
    pub(crate) fn connect(&self, call: Call) -> io::Result<Arc<dyn Exchange>> {
        if self.has_packets_only() {
            return self.connect_by_packets(call, false);
        }
        Ok(iwarp::connect::Connection::outgoing(&self.engine, call)?)
    }

    /// True if a peer that takes no stream for this queue pair may be asked by packets.
    pub(crate) fn has_another(&self, qp: &NamedQp) -> bool {
        let endpoint = qp.endpoint.as_ref();
        self.engine.options.spoken() == Wire::Auto
            && endpoint.is_some_and(|endpoint| endpoint.has_packets())
    }

    /// Makes the exchange for a peer that takes no stream: it has to answer soon.
    ///
    /// # Errors
    ///
    /// As [`Self::connect`].
    pub(crate) fn connect_otherwise(&self, call: Call) -> io::Result<Arc<dyn Exchange>> {
        self.connect_by_packets(call, true)
    }

    fn connect_by_packets(&self, call: Call, in_vain: bool) -> io::Result<Arc<dyn Exchange>> {
        let timers = &self.engine.timers;
        Ok(roce::connect::Connection::outgoing(self.manager()?, timers, call, in_vain)?)
    }

    /// Makes the exchange by which a program asks for the queue pair of a datagram service.
    ///
    /// # Errors
    ///
    /// Errors of opening UDP port 4791.
    pub(crate) fn ask(&self, question: Question<'_>) -> io::Result<Arc<dyn Exchange>> {
        Ok(SidrRequest::new(self.manager()?, &self.engine.timers, question))
    }

    /// Has streams come in. The thread that drives `accept_set` serves them, the worker without one.
    ///
    /// # Errors
    ///
    /// When the socket cannot be waited for.
    pub(crate) fn take_streams(
        &self,
        acceptor: Box<dyn Acceptor>,
        max_pending: usize,
        listener: Arc<dyn Listener>,
        accept_set: Option<&AcceptSet>,
        claim: Arc<FamilyClaim>,
    ) -> io::Result<Arc<dyn Arrivals>> {
        let engine = &self.engine;
        let listening = iwarp::connect::Listening::start(
            engine,
            acceptor,
            max_pending,
            listener,
            accept_set,
            claim,
        )?;
        Ok(listening)
    }

    /// Offers a datagram service, or takes connections over packets.
    ///
    /// # Errors
    ///
    /// `AddrInUse`; those of opening UDP port 4791.
    pub(crate) fn offer(
        &self,
        listener: Arc<dyn Listener>,
        offer: Offer,
    ) -> io::Result<Arc<dyn Arrivals>> {
        Ok(Serving::start(&self.manager()?, &self.engine.timers, listener, offer)?)
    }

    /// True if a listener for streams takes connections over packets as well.
    pub(crate) fn has_packets_beside(&self) -> bool {
        self.engine.options.spoken() == Wire::Auto && self.mux.open_if_any(&self.engine).is_some()
    }
}

/// The event that tells how datagrams are sent to a group: `address` is the way there.
pub(crate) fn joined(group: IpAddr, address: AddressVector) -> EventKind {
    EventKind::MulticastJoined { group, address, qp: MULTICAST_QP, qkey: UDP_QKEY }
}
