// SPDX-License-Identifier: MIT OR Apache-2.0

//! The calls of the program.

use core::time::Duration;

use iwarp_types::{AddressVector, QpId, Time};

use super::super::call::{Accept, CallError, Connect, Listen, Parameters};
use super::super::connection::{CmState, Connection, Retry, Setup, access};
use super::super::event::{CommId, ListenerId};
use super::super::message::{
    CMA_HEADER_LEN, CmaHeader, PathRecord, PrivateData, Rejected, Rep, Req, Rtu, TransportType,
    field, gid, limits,
};
use super::super::own_kind::{self, Told};
use super::super::reason::RejectReason;
use super::super::settings::Random;
use super::super::way;
use super::{INTERVALS, Manager};
use crate::config::Attributes;
use crate::wire::{MULTICAST_QP, Path, Pkey, Psn, Transport};

const MOST_RETRIES: u8 = 7;
/// "Elsewhere" of InfiniBand's local identifiers.
const PERMISSIVE_LID: u16 = 0xffff;
const DEFAULT_HOP_LIMIT: u8 = 64;

impl<R: Random> Manager<R> {
    /// Reports requests for a service to the program from now on.
    ///
    /// # Errors
    ///
    /// [`CallError::ServiceInUse`]
    pub fn listen(&mut self, listen: &Listen) -> Result<ListenerId, CallError> {
        let listener = self.listeners.add(listen)?;
        self.vacancies.end(listen.service);
        Ok(listener)
    }

    /// Refuses further requests, unless there is a listener again within a second. Requests already
    /// reported to the program stay.
    pub fn unlisten(&mut self, listener: ListenerId) {
        if let Some(service) = self.listeners.remove(listener) {
            self.vacancies.begin(service);
        }
    }

    /// Asks a peer for a connection. `ConnectResponse`, `Rejected` or `Unreachable` follows.
    ///
    /// # Errors
    ///
    /// [`CallError`]: too much private data, a queue pair with a connection or in timewait.
    pub fn connect(&mut self, connect: &Connect<'_>, now: Time) -> Result<CommId, CallError> {
        let Connect { path, service, qp, transport, parameters, .. } = *connect;
        let kind = match transport {
            Transport::Rc => TransportType::Rc,
            Transport::Uc => TransportType::Uc,
            Transport::Ud => return Err(CallError::Invalid),
        };
        self.check_qp(qp)?;
        let private_data = headed(&path, connect.source_port, connect.private_data, limits::REQ)?;
        let id = self.fresh_id().ok_or(CallError::Invalid)?;
        let starting_psn = Psn::new(self.random.next());
        let tid = self.fresh_tid(id);
        let told =
            self.settings.own_kind.map_or(Told::default(), |own| own.tell(own_kind::Role::Request));
        let mtu = connect.mtu.min(self.mtu(path.address.source));
        let settings = &self.settings;
        let address = path.address;
        let req = Req {
            local_comm_id: id,
            vendor_id: told.vendor_id,
            service_id: service,
            local_ca_guid: settings.guid,
            local_qkey: told.qkey,
            local_qpn: qp.0,
            responder_resources: parameters.responder_resources,
            local_eecn: 0,
            initiator_depth: parameters.initiator_depth,
            remote_eecn: 0,
            remote_response_timeout: settings.response_timeout,
            transport: kind,
            flow_control: parameters.flow_control,
            starting_psn,
            local_response_timeout: settings.response_timeout,
            retry_count: parameters.retry_count.min(MOST_RETRIES),
            pkey: Pkey::DEFAULT,
            mtu: mtu.code(),
            rdc_exists: false,
            rnr_retry: parameters.rnr_retry.min(MOST_RETRIES),
            max_cm_retries: settings.retries(),
            srq: parameters.srq,
            extended_transport: 0,
            primary: PathRecord {
                local_lid: PERMISSIVE_LID,
                remote_lid: PERMISSIVE_LID,
                local_gid: gid(address.source),
                remote_gid: gid(address.destination),
                flow_label: address.flow_label,
                traffic_class: address.traffic_class,
                hop_limit: match address.hop_limit {
                    0 | 1 => DEFAULT_HOP_LIMIT,
                    limit => limit,
                },
                local_ack_timeout: settings.ack_timeout(),
                ..PathRecord::default()
            },
            alternate: PathRecord::default(),
            private_data,
        };
        let retries = settings.retries();
        let mut connection = Connection {
            id,
            remote_id: None,
            active: true,
            state: CmState::ReqSent(Retry::new(retries)),
            way: path,
            tid,
            guid: 0,
            remote_qpn: 0,
            qp: Some(qp),
            setup: Setup {
                address,
                pkey: Pkey::DEFAULT,
                mtu,
                sq_psn: Psn::default(),
                rq_psn: starting_psn,
                ack_timeout: settings.ack_timeout(),
                retry_count: req.retry_count,
                rnr_retry: 0,
                depth: parameters.initiator_depth,
                resources: parameters.responder_resources,
            },
            interval: settings.interval(),
            retries,
            peer_waits: believed(settings.response_timeout.duration()),
            stored: None,
            slot: None,
            own_kind: false,
            silent: false,
        };
        let mut mad = connection.mad(req);
        mad.modifier = told.options;
        let octets = connection.store(&mad);
        let deadline = now.plus(connection.interval);
        self.table.insert(connection);
        self.table.set_deadline(id, Some(deadline));
        self.send(path, octets);
        Ok(CommId(id))
    }

    /// The attributes with which the queue pair is to be set up before the program accepts with it.
    ///
    /// # Errors
    ///
    /// As [`Self::accept`].
    pub fn attributes(&self, id: CommId, accept: &Accept<'_>) -> Result<Attributes, CallError> {
        let connection = self.table.get(id.0).ok_or(CallError::Unknown)?;
        if !matches!(connection.state, CmState::ReqReceived(_)) {
            return Err(CallError::State);
        }
        self.check_qp(accept.qp)?;
        let (resources, depth) = granted(&connection.setup, &accept.parameters);
        let mut attributes = connection.attributes();
        attributes.path.source_port = way::source_port(
            attributes.path.address.flow_label,
            accept.qp.0,
            connection.remote_qpn,
        );
        attributes.max_rd_atomic = depth;
        attributes.max_dest_rd_atomic = resources;
        attributes.access = access(resources);
        Ok(attributes)
    }

    /// Accepts a connection with a queue pair that has been set up by [`Self::attributes`].
    /// `Established`, `Rejected` or `Unreachable` follows.
    ///
    /// # Errors
    ///
    /// [`CallError`]; [`CallError::Unknown`] where the peer has given up.
    pub fn accept(&mut self, id: CommId, accept: &Accept<'_>, now: Time) -> Result<(), CallError> {
        self.attributes(id, accept)?;
        let private_data = field(accept.private_data, limits::REP)?;
        let settings = self.settings;
        let connection = self.table.get_mut(id.0).ok_or(CallError::Unknown)?;
        let parameters = &accept.parameters;
        let (resources, depth) = granted(&connection.setup, parameters);
        (connection.setup.resources, connection.setup.depth) = (resources, depth);
        let own = settings.own_kind.filter(|_| connection.own_kind);
        let told = own.map_or(Told::default(), |own| own.tell(own_kind::Role::Reply));
        let mut mad = connection.mad(Rep {
            local_comm_id: id.0,
            remote_comm_id: connection.peer_id(),
            local_qkey: told.qkey,
            local_qpn: accept.qp.0,
            vendor_id: told.vendor_id,
            local_eecn: 0,
            starting_psn: connection.setup.rq_psn,
            responder_resources: resources,
            initiator_depth: depth,
            target_ack_delay: settings.ack_delay,
            failover_accepted: 0,
            flow_control: parameters.flow_control,
            rnr_retry: parameters.rnr_retry.min(MOST_RETRIES),
            srq: parameters.srq,
            local_ca_guid: settings.guid,
            private_data,
        });
        mad.modifier = told.options;
        let octets = connection.store(&mad);
        let (way, deadline) = (connection.way, now.plus(connection.interval));
        let state = CmState::RepSent(Retry::new(connection.retries));
        self.table.set_qp(id.0, accept.qp);
        self.enter(id.0, state, Some(deadline));
        self.send(way, octets);
        Ok(())
    }

    /// Establishes a connection that the peer has accepted, once its queue pair is set up.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub fn ready(&mut self, id: CommId, private_data: &[u8]) -> Result<(), CallError> {
        let private_data = field(private_data, limits::RTU)?;
        let connection = self.table.get_mut(id.0).ok_or(CallError::Unknown)?;
        if !matches!(connection.state, CmState::RepReceived(_)) {
            return Err(CallError::State);
        }
        let (local_comm_id, remote_comm_id) = (connection.id, connection.peer_id());
        let mad = connection.mad(Rtu { local_comm_id, remote_comm_id, private_data });
        let octets = connection.store(&mad);
        let way = connection.way;
        self.enter(id.0, CmState::Established, None);
        self.send(way, octets);
        Ok(())
    }

    /// Refuses a peer's REQ, SIDR_REQ or REP. The id is forgotten.
    ///
    /// # Errors
    ///
    /// [`CallError`]
    pub fn reject(
        &mut self,
        id: CommId,
        reason: RejectReason,
        private_data: &[u8],
        now: Time,
    ) -> Result<(), CallError> {
        if self.table.sidr(id.0).is_some() {
            return self.refuse_datagrams(id, private_data, now);
        }
        let private_data = field(private_data, limits::REJ)?;
        let connection = self.table.get(id.0).ok_or(CallError::Unknown)?;
        let rejected = match connection.state {
            CmState::ReqReceived(_) => Rejected::Req,
            CmState::RepReceived(_) => Rejected::Rep,
            _ => return Err(CallError::State),
        };
        self.refuse(id.0, rejected, reason, private_data, now);
        Ok(())
    }

    /// Ends a connection. `Disconnected` follows, if it has not been told already.
    ///
    /// # Errors
    ///
    /// [`CallError`]: for a connection that is not established yet, use [`Self::reject`] or
    /// [`Self::close`].
    pub fn disconnect(
        &mut self,
        id: CommId,
        private_data: &[u8],
        now: Time,
    ) -> Result<(), CallError> {
        let private_data = field(private_data, limits::DREQ)?;
        let connection = self.table.get(id.0).ok_or(CallError::Unknown)?;
        match connection.state {
            CmState::Established | CmState::RepSent(_) => self.start_dreq(id.0, private_data, now),
            // The other end was faster.
            CmState::DreqSent(_) | CmState::Timewait => {}
            CmState::RepReceived(_) => {
                let reason = RejectReason::Consumer;
                let rej = connection.rej(Rejected::Rep, reason, None, [0; 148]);
                let way = connection.way;
                self.answer(way, &rej);
                self.disconnected(id.0, PrivateData::EMPTY, now);
            }
            CmState::ReqSent(_) | CmState::ReqReceived(_) | CmState::Refused => {
                return Err(CallError::State);
            }
        }
        Ok(())
    }

    /// Gives up, refuses or ends a connection, by its state; it raises no more events. The caller
    /// need not wait, but [`Self::holds`] tells when the queue pair is free.
    pub fn close(&mut self, id: CommId, now: Time) {
        if !self.is_known(id) {
            return;
        }
        let known = |event: &super::Event| event.id != id;
        self.events.retain(known);
        if self.table.sidr(id.0).is_some() {
            return self.close_sidr(id, now);
        }
        let Some(connection) = self.table.get_mut(id.0) else { return };
        connection.silent = true;
        match connection.state {
            CmState::ReqSent(_) => self.give_up(id.0),
            CmState::ReqReceived(_) => {
                self.refuse(id.0, Rejected::Req, RejectReason::Consumer, [0; 148], now);
            }
            CmState::RepReceived(_) => {
                self.refuse(id.0, Rejected::Rep, RejectReason::Consumer, [0; 148], now);
            }
            CmState::RepSent(_) | CmState::Established => self.start_dreq(id.0, [0; 220], now),
            CmState::DreqSent(_) | CmState::Timewait | CmState::Refused => {}
        }
    }

    /// A packet has come for a queue pair: its peer has had the REP, even if the RTU is lost
    /// (ROCE-157). `Established` follows, unless it was raised before.
    pub fn packet_arrived(&mut self, qp: QpId) {
        let Some(id) = self.table.by_qp(qp) else { return };
        self.establish(id, PrivateData::EMPTY);
    }

    fn check_qp(&self, qp: QpId) -> Result<(), CallError> {
        match qp.0 {
            2..MULTICAST_QP if !self.holds(qp) => Ok(()),
            2..MULTICAST_QP => Err(CallError::QueuePairInUse),
            _ => Err(CallError::QueuePair),
        }
    }

    /// Sends a REJ, and keeps it for repeated messages (ROCE-153).
    fn refuse(
        &mut self,
        id: u32,
        rejected: Rejected,
        reason: RejectReason,
        private_data: [u8; limits::REJ],
        now: Time,
    ) {
        let Some(connection) = self.table.get_mut(id) else { return };
        let mad = connection.rej(rejected, reason, None, private_data);
        let octets = connection.store(&mad);
        // Until the peer would have asked twice more.
        let (way, until) = (connection.way, now.plus(connection.peer_waits * 3));
        self.free_slot(id);
        self.table.release_remote_qp(id);
        self.table.release_qp(id);
        self.enter(id, CmState::Refused, Some(until));
        self.send(way, octets);
        self.table.keep_answer(id, self.settings.stored_answers);
    }
}

/// A time that a peer gives, within bounds.
pub(super) fn believed(time: Duration) -> Duration {
    let (shortest, longest) = INTERVALS;
    time.clamp(shortest.duration(), longest.duration())
}

/// Reads and Atomics of the peer's and of this end's: no more than either end has asked for
/// (ROCE-166).
fn granted(setup: &Setup, parameters: &Parameters) -> (u8, u8) {
    let resources = setup.resources.min(parameters.responder_resources);
    (resources, setup.depth.min(parameters.initiator_depth))
}

/// Private data behind the header of `rdma_cm`, if there is to be one (ROCE-150, ROCE-171).
pub(super) fn headed<const N: usize>(
    path: &Path,
    source_port: Option<u16>,
    private_data: &[u8],
    limit: usize,
) -> Result<[u8; N], CallError> {
    let AddressVector { source, destination, .. } = path.address;
    let (source, destination) = (source.to_canonical(), destination.to_canonical());
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(CallError::Invalid);
    }
    let Some(source_port) = source_port else {
        return Ok(field(private_data, N)?);
    };
    // Checks the limit only.
    field::<N>(private_data, limit)?;
    let mut whole = [0; N];
    let (header, data) = whole.split_at_mut(CMA_HEADER_LEN);
    header.copy_from_slice(&CmaHeader { source_port, source, destination }.write());
    for (to, from) in data.iter_mut().zip(private_data) {
        *to = *from;
    }
    Ok(whole)
}
