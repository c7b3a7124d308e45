// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ids that listen.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use iwarp_os::FamilyClaim;

use super::owner::ListeningId;
use super::{Id, IdCore, IdState, Phase};
use crate::connect::Arrivals;
use crate::engine::accept_set::AcceptSet;
use crate::engine::sync::Guard;
use crate::port::Acceptor;
use crate::wire::choice::Offer;

/// Least number of connections that the system holds for the worker, even if the program says
/// fewer: they have not been asked yet what they want. With fewer, a good peer's attempt would be
/// dropped in a flood, and repeated after a second only.
const LEAST_BACKLOG: u32 = 4096;

impl Id {
    /// Listens. Requests arrive as events. The larger of `backlog` and [`Options::max_pending`]
    /// limits the number of connections that may be in start-up or wait for the program's answer.
    /// Beyond that, the listener closes the oldest connection without a request; if all wait for
    /// the program's answer, it closes further ones, unless they come from an address that has few.
    /// A `backlog` of 0 leaves the choice to the options.
    ///
    /// [`Options::max_pending`]: crate::Options::max_pending
    ///
    /// # Errors
    ///
    /// Errors of listening; `InvalidInput` when the id connects or listens already.
    pub fn listen(&self, backlog: u32) -> io::Result<()> {
        let max_pending = self.core.check()?.engine().options.max_pending;
        self.listen_at(None, Some(max_pending.max(backlog as usize)))
    }

    /// As [`Self::listen`], with exactly so many connections, or as many as the options say.
    ///
    /// # Errors
    ///
    /// As there.
    #[doc(hidden)]
    pub fn listen_for(&self, max_pending: Option<usize>) -> io::Result<()> {
        self.listen_at(None, max_pending)
    }

    /// As [`Self::listen_for`]. The thread that drives `accept_set` receives them, the worker
    /// without one.
    pub(crate) fn listen_at(
        &self,
        accept_set: Option<&AcceptSet>,
        max_pending: Option<usize>,
    ) -> io::Result<()> {
        let core = self.core.check()?;
        let max_pending = max_pending.unwrap_or(core.engine().options.max_pending);
        if core.has_own_ports() {
            return core.serve(max_pending);
        }
        let mut state = core.state.lock();
        if !matches!(state.phase, Phase::Idle) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
        let reserved = match state.reserved.take() {
            Some(reserved) => reserved,
            None => {
                let addr = state.local.unwrap_or(any);
                state.choices.reserve_to_listen(core.network(), addr)?
            }
        };
        reserved.bequeath();
        reserved.admit_program();
        if let Some(class) = state.choices.traffic_class {
            reserved.set_traffic_class(class)?;
        }
        let local = reserved.local_addr()?;
        state.local = Some(local);
        let backlog = u32::try_from(max_pending).unwrap_or(u32::MAX).max(LEAST_BACKLOG);
        let acceptor = match reserved.listen(backlog) {
            Ok(acceptor) => acceptor,
            Err((reserved, error)) => {
                state.reserved = Some(reserved);
                return Err(error);
            }
        };
        let claim = Arc::new(FamilyClaim::new()?);
        core.take_streams(state, acceptor, max_pending, accept_set, claim)?;
        core.serve_beside(local, max_pending)
            .unwrap_or_else(|error| tracing::debug!(%error, %local, "no connections over RoCE v2"));
        Ok(())
    }
}

impl IdCore {
    /// Streams come in at `acceptor` from now on.
    pub(super) fn take_streams(
        self: &Arc<Self>,
        mut state: Guard<'_, IdState>,
        acceptor: Box<dyn Acceptor>,
        max_pending: usize,
        accept_set: Option<&AcceptSet>,
        claim: Arc<FamilyClaim>,
    ) -> io::Result<()> {
        let id = ListeningId::new(self);
        let streams = self.wires().take_streams(acceptor, max_pending, id, accept_set, claim)?;
        state.phase = Phase::Listening(vec![streams]);
        state.max_pending = max_pending;
        Ok(())
    }

    /// Takes what peers ask for by packets: a datagram service, or connections.
    pub(super) fn serve(self: &Arc<Self>, max_pending: usize) -> io::Result<()> {
        self.wires().prepare()?;
        let local = {
            let mut state = self.state.lock();
            if !matches!(state.phase, Phase::Idle) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
            let local = state.local.unwrap_or(any);
            if state.service_port.is_none() {
                self.take_port(&mut state, local)?;
            }
            state.local.unwrap_or(local)
        };
        let served = self.offer(local, max_pending)?;
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Idle) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        state.phase = Phase::Listening(vec![served]);
        state.max_pending = max_pending;
        Ok(())
    }

    /// Takes connections over packets beside those over streams, where that can be.
    pub(super) fn serve_beside(
        self: &Arc<Self>,
        local: SocketAddr,
        max_pending: usize,
    ) -> io::Result<()> {
        if !self.wires().has_packets_beside() {
            return Ok(());
        }
        let beside = self.offer(local, max_pending)?;
        let mut state = self.state.lock();
        if let Phase::Listening(arrivals) = &mut state.phase {
            arrivals.push(beside);
        }
        Ok(())
    }

    /// Has peers ask at the port of the local address, which is this id's.
    fn offer(
        self: &Arc<Self>,
        local: SocketAddr,
        max_pending: usize,
    ) -> io::Result<Arc<dyn Arrivals>> {
        let ipv6_only = self.state.lock().choices.ipv6_only;
        let super::Kind { space, datagrams } = self.kind;
        let offer = Offer { space, datagrams, local, ipv6_only, max_pending };
        self.wires().offer(ListeningId::new(self), offer)
    }
}
