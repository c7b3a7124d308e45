// SPDX-License-Identifier: MIT OR Apache-2.0

//! Services that a program offers to peers that ask by management datagrams: connections over
//! RoCE v2, and the queue pairs of datagram services.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use iwarp_roce::cm::{Listen, RejectReason, Request, ServiceId};
use iwarp_roce::wire::Transport;
use iwarp_types::PortSpace;

use super::ends::Ends;
use super::{connect, sidr};
use crate::connect::{Arrivals, Listener};
use crate::engine::options::Wire;
use crate::engine::sync::Mutex;
use crate::engine::timers::Timers;
use crate::wire::roce::manager::{Communication, ConnectionManager, Host, Listening};

/// The service that an id offers at a port of the connection manager's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) space: PortSpace,
    /// Queue pairs for datagrams, not connections.
    pub(crate) datagrams: bool,
    pub(crate) local: SocketAddr,
    pub(crate) ipv6_only: bool,
    pub(crate) max_pending: usize,
}

/// A service of an id's, as long as it is offered.
pub(crate) struct Serving {
    listening: Mutex<Option<Listening>>,
    _reception: Arc<Reception>,
}

impl Serving {
    /// Has peers ask `listener`.
    ///
    /// # Errors
    ///
    /// Errors of [`ConnectionManager::listen`].
    pub(crate) fn start(
        manager: &Arc<ConnectionManager>,
        timers: &Timers,
        listener: Arc<dyn Listener>,
        offer: Offer,
    ) -> io::Result<Arc<Self>> {
        let Offer { space, datagrams, local, ipv6_only, max_pending } = offer;
        let address = Some(local.ip().to_canonical());
        let listen = Listen {
            service: ServiceId::new(space, local.port()),
            // All addresses of IPv6 are those of IPv4, too, unless the program says otherwise.
            address: address.filter(|ip| !(ip.is_ipv6() && ip.is_unspecified()) || ipv6_only),
            transport: if datagrams { Transport::Ud } else { Transport::Rc },
            header: true,
            backlog: max_pending,
        };
        let reception = Arc::new(Reception { listener, datagrams, timers: timers.clone() });
        let host = Arc::downgrade(&reception);
        let listening = manager.listen(&listen, host)?;
        let listening = Mutex::new(Some(listening));
        Ok(Arc::new(Self { listening, _reception: reception }))
    }
}

impl Arrivals for Serving {
    fn stop(&self) {
        let listening = self.listening.lock().take();
        drop(listening);
    }
}

/// The program, which gets requests as events of its id.
struct Reception {
    listener: Arc<dyn Listener>,
    datagrams: bool,
    timers: Timers,
}

impl Host for Reception {
    fn requested(self: Arc<Self>, communication: Communication, request: Box<Request>) {
        let Self { listener, datagrams, timers } = &*self;
        if listener.is_gone() {
            return;
        }
        let ends = Ends::of(&request);
        let profile = listener.device_at(Some(ends.local));
        let speaks = |wire| wire != Wire::Iwarp || *datagrams;
        if !profile.is_some_and(|profile| speaks(profile.options.spoken())) {
            // As a peer hears it where nothing listens. One that has gone does not need to know.
            let _ = communication.reject(RejectReason::InvalidServiceId, &[]);
            return;
        }
        if *datagrams {
            sidr::requested(&**listener, communication, ends, &request);
        } else {
            connect::requested(&**listener, timers, communication, ends, &request);
        }
    }
}
