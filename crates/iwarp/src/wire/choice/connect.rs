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
use iwarp_types::{Accessor, AddressVector, QpType};

use super::core::{Begun, begin};
use super::foreign::{self, Meet};
use super::wing::Wing;
use crate::connect::{Arrivals, Call, EventKind, Exchange, Listener, Meeting, NamedQp, Question};
use crate::engine::Engine;
use crate::engine::accept_set::AcceptSet;
use crate::engine::endpoint::{CoreConfig, Endpoint, EndpointCore};
use crate::engine::options::Wire;
use crate::engine::profile::{Profile, Profiles, no_device};
use crate::port::{Acceptor, traffic};
use crate::wire::iwarp::rendezvous::{Rendezvous, RendezvousListeners};
use crate::wire::roce::manager::ConnectionManager;
use crate::wire::roce::mux::MuxPlace;
use crate::wire::roce::service::{Offer, Serving};
use crate::wire::roce::sidr::SidrRequest;
use crate::wire::{iwarp, roce};

/// The wires of a device, or of any device of the process, where it is not known yet which one it
/// is.
#[derive(Debug)]
pub(crate) struct Wires {
    pub(crate) engine: Arc<Engine>,
    /// The device.
    pub(crate) profile: Arc<Profile>,
    common: Arc<Common>,
}

/// The parts of the wires that the devices of a process have in common.
#[derive(Debug)]
struct Common {
    profiles: Arc<Profiles>,
    /// The port for datagrams.
    mux: Arc<MuxPlace>,
    /// Queue pairs that meet their peers without the connection manager.
    rendezvous: Arc<RendezvousListeners>,
    /// In place of all others.
    wing: Option<Arc<dyn Wing>>,
}

impl Wires {
    /// The wires of any device. `wing`: the program's own, in place of both.
    pub(crate) fn new(engine: &Arc<Engine>, wing: Option<Arc<dyn Wing>>) -> Arc<Self> {
        let profiles = Arc::new(Profiles::new(&engine.options));
        traffic::set_ports(profiles.port_interfaces());
        let profile = Arc::clone(profiles.any());
        let rendezvous = RendezvousListeners::new(engine);
        let common = Arc::new(Common { profiles, mux: Arc::default(), rendezvous, wing });
        Arc::new(Self { engine: Arc::clone(engine), profile, common })
    }

    fn with(&self, profile: &Arc<Profile>) -> Arc<Self> {
        let (engine, common) = (Arc::clone(&self.engine), Arc::clone(&self.common));
        Arc::new(Self { engine, profile: Arc::clone(profile), common })
    }

    /// The devices of the process.
    pub(crate) fn profiles(&self) -> &Arc<Profiles> {
        &self.common.profiles
    }

    /// The wires of the device at that place.
    pub(crate) fn of(&self, place: usize) -> Option<Arc<Self>> {
        self.profiles().get(place).map(|profile| self.with(profile))
    }

    /// The wires of any device.
    pub(crate) fn of_any(&self) -> Arc<Self> {
        self.with(self.profiles().any())
    }

    /// True if they are those of any device.
    pub(crate) fn is_any(&self) -> bool {
        Arc::ptr_eq(&self.profile, self.profiles().any())
    }

    /// The wires of the device that has an address of this host.
    ///
    /// # Errors
    ///
    /// `ENODEV` where that is not this one.
    pub(crate) fn at(self: &Arc<Self>, local: IpAddr) -> io::Result<Arc<Self>> {
        let found = self.profiles().at_within(&self.profile, local);
        match found.ok_or_else(no_device)? {
            own if Arc::ptr_eq(own, &self.profile) => Ok(Arc::clone(self)),
            other => Ok(self.with(other)),
        }
    }

    /// True if they are those of one device, which has all addresses.
    pub(crate) fn is_one_with_all(&self) -> bool {
        !self.profile.is_bound() && (!self.is_any() || self.profiles().is_one_with_all())
    }

    /// True if a queue pair of that device can have a connection of this one.
    pub(crate) fn admits(&self, profile: &Arc<Profile>) -> bool {
        Arc::ptr_eq(&self.profile, profile) || self.is_any()
    }

    pub(super) fn wing(&self) -> Option<&Arc<dyn Wing>> {
        self.common.wing.as_ref()
    }

    pub(super) fn mux(&self) -> &Arc<MuxPlace> {
        &self.common.mux
    }

    pub(super) fn spoken(&self) -> Wire {
        self.profile.options.spoken()
    }

    /// True if connections are over packets always.
    pub(crate) fn has_packets_only(&self) -> bool {
        self.wing().is_none() && self.spoken() == Wire::Roce
    }

    /// True if ports are the connection manager's, and not TCP's.
    pub(crate) fn has_own_ports(&self) -> bool {
        self.wing().is_some() || self.has_packets_only()
    }

    /// The core that a queue pair begins with.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a type that no wire has.
    pub(crate) fn begin(&self, config: &CoreConfig, packets: bool) -> io::Result<Begun> {
        let begun = match self.wing() {
            None => begin(&self.profile.options, config, packets),
            Some(_) if config.qp_type != QpType::Rc => None,
            Some(wing) => {
                let core = wing.core(Accessor { pd: config.pd, qp: config.qp });
                Some((Box::new(core) as Box<dyn EndpointCore>, None))
            }
        };
        begun.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Has a queue pair meet its peer without the connection manager.
    pub(crate) fn meeting(&self, endpoint: &Arc<Endpoint>) -> Arc<dyn Meeting> {
        match self.wing() {
            Some(wing) => Meet::new(wing, endpoint),
            None => Rendezvous::new(&self.common.rendezvous, endpoint),
        }
    }

    /// Opens UDP port 4791 for connections over packets, which may take a second.
    ///
    /// # Errors
    ///
    /// Errors of opening UDP port 4791.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        if self.wing().is_none() {
            self.manager()?;
        }
        Ok(())
    }

    fn manager(&self) -> io::Result<Arc<ConnectionManager>> {
        self.mux().connection_manager(&self.engine)
    }

    /// Makes the exchange by which a program asks a peer for a connection.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; those of opening UDP port 4791, and `InvalidInput` for a call without a local
    /// address or a queue pair, where connections are over packets.
    pub(crate) fn connect(&self, call: Call) -> io::Result<Arc<dyn Exchange>> {
        if let Some(wing) = self.wing() {
            return Ok(foreign::Connection::outgoing(wing, &self.engine.timers, call)?);
        }
        if self.has_packets_only() {
            return self.connect_by_packets(call, false);
        }
        Ok(iwarp::connect::Connection::outgoing(&self.engine, &self.profile, call)?)
    }

    /// True if a peer that takes no stream for this queue pair may be asked by packets.
    pub(crate) fn has_another(&self, qp: &NamedQp) -> bool {
        let endpoint = qp.endpoint.as_ref();
        self.wing().is_none()
            && self.spoken() == Wire::Auto
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
        if self.wing().is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(SidrRequest::new(self.manager()?, &self.engine.timers, question))
    }

    /// Has streams come in. The thread that drives `accept_set` serves them, the worker without
    /// one.
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
        match self.wing() {
            None => {}
            Some(_) if offer.datagrams => return Err(io::ErrorKind::Unsupported.into()),
            Some(wing) => {
                return Ok(foreign::Listening::start(
                    wing,
                    &self.engine.timers,
                    offer.local,
                    listener,
                )?);
            }
        }
        Ok(Serving::start(&self.manager()?, &self.engine.timers, listener, offer)?)
    }

    /// True if a listener for streams takes connections over packets as well.
    pub(crate) fn has_packets_beside(&self) -> bool {
        self.spoken() == Wire::Auto && self.mux().open_if_any(&self.engine).is_some()
    }
}

/// The event that tells how datagrams are sent to a group: `address` is the way there.
pub(crate) fn joined(group: IpAddr, address: AddressVector) -> EventKind {
    EventKind::MulticastJoined { group, address, qp: MULTICAST_QP, qkey: UDP_QKEY }
}
