// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ids for connections over RoCE v2.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use iwarp_roce::Attributes;
use iwarp_roce::cm::ServiceId;
use iwarp_types::PortSpace;

use super::{CONNECTIONS, Id, IdCore, Phase, State, WeakId};
use crate::cm::ConnectParams;
use crate::cm::channel::ChannelCore;
use crate::cm::datagrams::Ends;
use crate::cm::packets::Exchange;
use crate::engine::endpoint::Endpoint;
use crate::engine::options::Wire;
use crate::verbs::DatagramAttributes;

impl Id {
    /// As [`Self::connect_first`], for a queue pair with that number, which over RoCE v2 the peer is
    /// told.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn connect_first_with(&self, number: u32, params: &ConnectParams) -> io::Result<()> {
        let core = self.core.check()?;
        if core.speaks_roce() {
            return core.start_exchange(number, None, params);
        }
        self.connect_first(params)
    }

    /// True if its connection is RoCE v2's: always ([`Options::wire`](crate::Options::wire)), or
    /// because either end has asked for one.
    pub fn speaks_roce(&self) -> bool {
        self.core.alive().is_some_and(|core| core.speaks_roce() || core.exchange().is_some())
    }

    /// Over RoCE v2: the program has set up a queue pair of its own as
    /// [`Self::packet_attributes`] says. Of an id that a peer has accepted this is the end of
    /// connecting, and no event follows on this side; a request of a peer's it accepts, and
    /// [`EventKind::Established`](crate::cm::EventKind::Established) follows.
    ///
    /// # Errors
    ///
    /// As [`Self::establish`] and [`Self::accept`].
    pub fn use_number(&self, number: u32, params: &ConnectParams) -> io::Result<()> {
        let exchange = self.core.check()?.exchange().ok_or(io::ErrorKind::InvalidInput)?;
        match exchange.establish() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                exchange.accept(number, None, params)
            }
            done => done,
        }
    }

    /// Over RoCE v2: how a queue pair of the program's own is to be set up; `None` where that is
    /// not known.
    #[doc(hidden)]
    pub fn packet_attributes(&self, params: &ConnectParams) -> Option<PacketAttributes> {
        self.core.alive()?.exchange()?.attributes(params).map(PacketAttributes)
    }
}

/// See [`Id::packet_attributes`].
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct PacketAttributes(Attributes);

impl PacketAttributes {
    /// Under the names of `struct ibv_qp_attr`; `min_rnr_timer` is 0 = 655 ms.
    pub fn datagram(&self) -> DatagramAttributes {
        let Self(attributes) = self;
        DatagramAttributes::default()
            .address(attributes.path.address)
            .dest_qp(attributes.dest_qp)
            .pkey(attributes.pkey.0)
            .path_mtu(attributes.mtu.octets() as u32)
            .sq_psn(attributes.sq_psn.number())
            .rq_psn(attributes.rq_psn.number())
            .timeout(attributes.timeout)
            .retry_count(attributes.retry_count)
            .rnr_retry(attributes.rnr_retry)
            .min_rnr_timer(0)
            .max_rd_atomic(attributes.max_rd_atomic)
            .max_dest_rd_atomic(attributes.max_dest_rd_atomic)
            .access(attributes.access)
    }
}

impl IdCore {
    /// The id of a connection that a peer asks for.
    pub(crate) fn asked(
        channel: &Arc<ChannelCore>,
        local: SocketAddr,
        peer: SocketAddr,
        exchange: impl FnOnce(WeakId) -> Arc<Exchange>,
    ) -> Arc<Self> {
        let state = State { local: Some(local), peer: Some(peer), ..State::default() };
        let id = Self::on(channel, CONNECTIONS, state);
        let exchange = exchange(id.downgrade());
        id.state.lock().phase = Phase::Exchanging(exchange);
        id
    }

    pub(super) fn speaks_roce(&self) -> bool {
        !self.kind.datagrams && self.engine.options.spoken() == Wire::Roce
    }

    pub(super) fn exchange(&self) -> Option<Arc<Exchange>> {
        match &self.state.lock().phase {
            Phase::Exchanging(exchange) => Some(Arc::clone(exchange)),
            _ => None,
        }
    }

    /// Asks the peer for a connection of the queue pair with that number.
    pub(super) fn start_exchange(
        self: &Arc<Self>,
        number: u32,
        endpoint: Option<Arc<Endpoint>>,
        params: &ConnectParams,
    ) -> io::Result<()> {
        self.start((number, endpoint), params, false)
    }

    fn start(
        self: &Arc<Self>,
        qp: (u32, Option<Arc<Endpoint>>),
        params: &ConnectParams,
        in_vain: bool,
    ) -> io::Result<()> {
        let manager = self.manager()?;
        let mut state = self.state.lock();
        let (Phase::Idle, Some(peer), Some(mut local)) = (&state.phase, state.peer, state.local)
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if local.port() == 0 {
            let port =
                self.engine.service_ports.take(PortSpace::CONNECTIONS, local, false, false)?;
            local.set_port(port.number());
            state.local = Some(local);
            state.service_port = Some(port);
        }
        let traffic_class = state.choices.traffic_class.unwrap_or(0);
        let service = ServiceId::new(PortSpace::CONNECTIONS, peer.port());
        let ends = Ends { local, peer, traffic_class };
        let exchange =
            Exchange::outgoing(self.downgrade(), manager, ends, service, qp, params, in_vain);
        state.phase = Phase::Exchanging(Arc::clone(&exchange));
        drop(state);
        exchange.ask().inspect_err(|_| {
            self.exchange_failed(&exchange, true);
        })
    }

    /// The peer takes no stream. If this end may speak RoCE v2, asks the peer for that, but gives
    /// up unless it answers soon; false if it may not.
    pub(crate) fn ask_for_packets(
        self: &Arc<Self>,
        endpoint: Option<&Arc<Endpoint>>,
        params: &ConnectParams,
    ) -> bool {
        let Some(endpoint) = endpoint.filter(|endpoint| endpoint.has_packets()) else {
            return false;
        };
        if self.kind.datagrams || self.engine.options.spoken() != Wire::Auto {
            return false;
        }
        {
            let mut state = self.state.lock();
            let Some(peer) = state.peer else { return false };
            let unknown = state.local.is_none_or(|local| local.ip().is_unspecified());
            if unknown && let Ok(source) = self.network().source_for(peer) {
                let port = state.local.map_or(0, |local| local.port());
                state.local = Some(SocketAddr::new(source, port));
            }
        }
        let number = (endpoint.id(), Some(Arc::clone(endpoint)));
        self.start(number, params, true).is_ok()
    }

    /// The connection was not made: the id may try again if it has asked.
    pub(crate) fn exchange_failed(&self, exchange: &Arc<Exchange>, active: bool) {
        let mut state = self.state.lock();
        if matches!(&state.phase, Phase::Exchanging(own) if Arc::ptr_eq(own, exchange)) {
            let phase = if active { Phase::Idle } else { Phase::Over(None) };
            let before = std::mem::replace(&mut state.phase, phase);
            drop(state);
            drop(before);
        }
    }
}
