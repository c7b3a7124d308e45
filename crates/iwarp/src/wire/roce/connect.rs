// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections of the connection manager's ids over RoCE v2: made by management datagrams, not by
//! start-up frames on a stream.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_roce::Attributes;
use iwarp_roce::cm::{
    Accept, Connect, EventKind as News, Parameters, RejectReason, Request, Response, ServiceId,
};
use iwarp_roce::wire::{Mtu, PORT, Transport};
use iwarp_types::{PortSpace, QpId, QpState};

use crate::connect::{
    By, Call, ConnectError, ConnectParams, ConnectionState, DatagramAttributes, EventKind,
    Exchange, Listener, NamedQp, Owner, Retries, nobody_listens,
};
use crate::engine::ended::{ConnectionObserver, Ended};
use crate::engine::endpoint::Endpoint;
use crate::engine::fate::{self, ROCE};
use crate::engine::live;
use crate::engine::sync::Mutex;
use crate::engine::timers::{Alarm, Timers};
use crate::wire::roce::attributes;
use crate::wire::roce::ends::Ends;
use crate::wire::roce::manager::{Communication, ConnectionManager, Party};
use crate::wire::roce::prospect::set_attributes;

/// A connection over RoCE v2, from the first message on.
pub(crate) struct Connection {
    owner: Arc<dyn Owner>,
    timers: Timers,
    ends: Ends,
    /// The question to the peer; `None` where the peer asks.
    asks: Option<Asks>,
    state: Mutex<PacketState>,
}

/// The question to a peer.
struct Asks {
    manager: Arc<ConnectionManager>,
    service: ServiceId,
    /// Of the queue pair.
    number: u32,
    params: ConnectParams,
    retries: Retries,
    /// Of a peer that has refused a stream, for some time by now.
    in_vain: bool,
}

/// The time that a peer that has refused a stream may take to answer: its connection manager
/// answers at once, if there is one, and a message that is lost comes again twice.
const LAST_CHANCE: Duration = Duration::from_millis(3500);

struct PacketState {
    phase: ExchangePhase,
    /// Goes with the end of the connection, timewait included.
    communication: Option<Arc<Communication>>,
    /// Absent where the program sets up a queue pair of its own.
    endpoint: Option<Arc<Endpoint>>,
    /// The attributes with which a queue pair is to be set up, once they are known.
    attributes: Option<Attributes>,
    /// Reads and Atomics of the peer's and of this end's.
    depths: (u16, u16),
    /// The peer's private data, where it was faster than the call that has asked it.
    early: Option<Vec<u8>>,
    /// When the peer is asked once more.
    next: Option<Alarm>,
    /// Number of the queue pair, once it is known.
    number: u32,
    usage: Usage,
}

/// The part that the queue pair has in a connection.
#[derive(Clone, Copy, Debug)]
enum Usage {
    /// It is not set up yet.
    None,
    /// It is set up for the connection of that number.
    Raised(u64),
    /// The program may use it for another connection.
    Released,
}

/// The progress of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ExchangePhase {
    /// The peer was asked.
    Asked,
    /// The peer has accepted, and the program is to set up a queue pair.
    Responded,
    /// The peer asks.
    Requested,
    /// This end has accepted.
    Accepted,
    Established,
    /// It has ended, and the program is being told.
    Ended,
    Over,
}

impl Connection {
    fn new(
        owner: Arc<dyn Owner>,
        timers: &Timers,
        ends: Ends,
        asks: Option<Asks>,
        endpoint: Option<Arc<Endpoint>>,
    ) -> Arc<Self> {
        let number = asks.as_ref().map_or(0, |asks| asks.number);
        let state = Mutex::new(PacketState {
            phase: if asks.is_some() { ExchangePhase::Asked } else { ExchangePhase::Requested },
            communication: None,
            endpoint,
            attributes: None,
            depths: (0, 0),
            early: None,
            next: None,
            number,
            usage: Usage::None,
        });
        Arc::new(Self { owner, timers: timers.clone(), ends, asks, state })
    }

    /// A connection that the program asks for. `in_vain`: of a peer that takes no stream.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the local address or the queue pair is not known.
    pub(crate) fn outgoing(
        manager: Arc<ConnectionManager>,
        timers: &Timers,
        call: Call,
        in_vain: bool,
    ) -> io::Result<Arc<Self>> {
        let Call { owner, peer, local, traffic_class, qp, params, .. } = call;
        let (Some(local), Some(NamedQp { number, endpoint })) = (local, qp) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let ends = Ends { local, peer, traffic_class: traffic_class.unwrap_or(0) };
        let service = ServiceId::new(PortSpace::CONNECTIONS, peer.port());
        let retries = Retries::begin(timers);
        let asks = Asks { manager, service, number, params, retries, in_vain };
        Ok(Self::new(owner, timers, ends, Some(asks), endpoint))
    }

    /// Asks the peer. The outcome may be reported before this returns.
    fn ask(self: &Arc<Self>) -> io::Result<()> {
        let asks = self.asks.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
        let connect = Connect {
            path: self.ends.path(),
            service: asks.service,
            source_port: Some(self.ends.local.port()),
            qp: QpId(asks.number),
            transport: Transport::Rc,
            mtu: Mtu::Mtu4096,
            parameters: parameters(&asks.params),
            private_data: &asks.params.private_data,
        };
        if asks.in_vain {
            self.bound_time();
        }
        let (local, peer) = (Some(self.ends.local), self.ends.peer);
        fate::step(Some(asks.number), local, peer, ROCE, "connecting");
        let communication = Communication::connect(&asks.manager, &connect, self.as_party())?;
        let communication = Arc::new(communication);
        let mut state = self.state.lock();
        if !matches!(state.phase, ExchangePhase::Ended | ExchangePhase::Over) {
            state.communication = Some(Arc::clone(&communication));
        }
        // The answer may have come before there was anything to answer with.
        let early = state.early.take();
        drop(state);
        if let Some(private_data) = early {
            self.go_on(private_data);
        }
        Ok(())
    }

    /// The peer is to answer soon.
    fn bound_time(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        let too_late = move || {
            if let Some(connection) = weak.upgrade().filter(|it| it.phase() == ExchangePhase::Asked)
            {
                let refused = io::ErrorKind::ConnectionRefused;
                connection.refused(EventKind::Unreachable(refused.into()));
            }
        };
        let timers = &self.timers;
        let alarm = timers.at(timers.now().plus(LAST_CHANCE), Box::new(too_late));
        self.state.lock().next = Some(alarm);
    }

    /// Asks again, if that is not too late: the peer's program may be about to listen.
    fn ask_again(self: &Arc<Self>) -> bool {
        let Some(asks) = self.asks.as_ref().filter(|asks| !asks.in_vain) else { return false };
        let weak = Arc::downgrade(self);
        let again = move || {
            let Some(connection) = weak.upgrade() else { return };
            let alarm = connection.state.lock().next.take();
            drop(alarm);
            if connection.phase() == ExchangePhase::Asked
                && let Err(error) = connection.ask()
            {
                connection.refused(EventKind::Unreachable(error));
            }
        };
        let Some(alarm) = asks.retries.again(Box::new(again)) else { return false };
        let mut state = self.state.lock();
        state.next = Some(alarm);
        let before = state.communication.take();
        drop(state);
        drop(before);
        true
    }

    fn as_party(self: &Arc<Self>) -> Weak<dyn Party> {
        let weak: Weak<Self> = Arc::downgrade(self);
        weak
    }

    fn phase(&self) -> ExchangePhase {
        self.state.lock().phase
    }

    /// The queue pair that uses the connection, if the library knows it.
    fn qp(&self) -> Option<Arc<Endpoint>> {
        self.state.lock().endpoint.clone()
    }

    fn communication(&self) -> io::Result<Arc<Communication>> {
        let state = self.state.lock();
        state.communication.clone().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn try_accept(
        self: &Arc<Self>,
        NamedQp { number, endpoint }: &NamedQp,
        params: &ConnectParams,
    ) -> io::Result<()> {
        let parameters = parameters(params);
        let accept = Accept { qp: QpId(*number), parameters, private_data: &params.private_data };
        let communication = self.communication()?;
        let attributes = communication.attributes(&accept)?;
        self.state.lock().depths =
            (attributes.max_dest_rd_atomic.into(), attributes.max_rd_atomic.into());
        if let Some(endpoint) = endpoint {
            self.raise(endpoint, &attributes)?;
            self.advance(ExchangePhase::Accepted, ExchangePhase::Accepted)?;
        }
        communication.accept(&accept)
    }

    /// Takes a queue pair to where it can send.
    fn raise(
        self: &Arc<Self>,
        endpoint: &Arc<Endpoint>,
        attributes: &Attributes,
    ) -> io::Result<()> {
        let mut attributes = *attributes;
        // All of a process's packets leave from the port that it shares.
        attributes.path.source_port = PORT;
        set_attributes(endpoint, attributes)?;
        endpoint.go_on_over_packets();
        endpoint.observe(Arc::new(Watch(Arc::downgrade(self))));
        endpoint.listen_for_datagrams()?;
        for step in [QpState::Rtr, QpState::Rts] {
            endpoint.modify(step).map_err(io::Error::other)?;
        }
        let connection = endpoint.engine.worker.next_id();
        endpoint.number_connection(connection);
        endpoint.carry_on();
        self.state.lock().usage = Usage::Raised(connection);
        // When the process exits the peer is told.
        endpoint.engine.live.add(self)?;
        Ok(())
    }

    /// Gives it up: the owner is told nothing of it any more.
    fn give_up(self: &Arc<Self>) {
        if let Ok(communication) = self.communication() {
            // At once, where there is something to be ended: the process may exit next.
            let _ = communication.disconnect();
        }
        self.finish(ExchangePhase::Over);
        self.because("this end gave up its id");
        self.fail();
    }

    /// There is nothing more to be said to the peer.
    fn finish(&self, phase: ExchangePhase) {
        let mut state = self.state.lock();
        state.phase = phase;
        let before = (state.communication.take(), state.next.take());
        drop(state);
        drop(before);
    }

    /// Says for the log why the connection ends.
    fn because(&self, why: &str) {
        let endpoint = {
            let state = self.state.lock();
            let is_released = matches!(state.usage, Usage::Released);
            state.endpoint.clone().filter(|_| !is_released)
        };
        if let Some(endpoint) = endpoint {
            endpoint.ends(why);
        }
    }

    /// The queue pair is of no more use. Once it was set up, that is said once only: the program
    /// may use it for another connection afterwards.
    fn fail(self: &Arc<Self>) {
        let (endpoint, usage) = {
            let mut state = self.state.lock();
            let usage = state.usage;
            if matches!(usage, Usage::Raised(_)) {
                state.usage = Usage::Released;
            }
            (state.endpoint.clone(), usage)
        };
        let Some(endpoint) = endpoint else { return };
        // Every state may become that of an error.
        match usage {
            Usage::None => _ = endpoint.modify(QpState::Err),
            Usage::Raised(connection) => {
                endpoint.engine.live.remove(self);
                if endpoint.has_connection(connection) {
                    let _ = endpoint.modify(QpState::Err);
                }
            }
            Usage::Released => {}
        }
    }

    /// Goes on to the phase `to` with a queue pair that was set up, unless it was given up
    /// meanwhile.
    fn advance(self: &Arc<Self>, from: ExchangePhase, to: ExchangePhase) -> io::Result<()> {
        {
            let mut state = self.state.lock();
            if state.phase == from {
                state.phase = to;
                return Ok(());
            }
        }
        self.fail();
        Err(io::ErrorKind::NotConnected.into())
    }

    /// The peer has accepted.
    fn respond(self: &Arc<Self>, response: &Response) {
        let depths = (response.responder_resources.into(), response.initiator_depth.into());
        let mut state = self.state.lock();
        if state.phase != ExchangePhase::Asked {
            return;
        }
        state.attributes = Some(response.attributes);
        state.depths = depths;
        if state.endpoint.is_none() {
            state.phase = ExchangePhase::Responded;
        }
        let private_data = response.private_data.to_vec();
        let is_the_programs = state.endpoint.is_none();
        if !is_the_programs && state.communication.is_none() {
            state.early = Some(private_data);
            return;
        }
        drop(state);
        if is_the_programs {
            let (ird, ord) = depths;
            self.owner.tell(EventKind::Responded { private_data, ird, ord });
        } else {
            self.go_on(private_data);
        }
    }

    /// Sets up the queue pair as the peer has answered, and tells it.
    fn go_on(self: &Arc<Self>, private_data: Vec<u8>) {
        let (endpoint, attributes, depths) = {
            let state = self.state.lock();
            (state.endpoint.clone(), state.attributes, state.depths)
        };
        let (Some(endpoint), Some(attributes)) = (endpoint, attributes) else { return };
        let ready = self.communication().and_then(|communication| {
            self.raise(&endpoint, &attributes).inspect_err(|_| {
                // The peer learns it at once.
                let _ = communication.reject(RejectReason::NoResources, &[]);
            })?;
            self.advance(ExchangePhase::Asked, ExchangePhase::Established)?;
            communication.ready()
        });
        match ready {
            Ok(()) => self.owner.tell(established(depths, private_data)),
            Err(error) => self.refused(EventKind::ConnectError(error.into())),
        }
    }

    /// The connection is not made.
    fn refused(self: &Arc<Self>, kind: EventKind) {
        self.finish(ExchangePhase::Over);
        self.tell_failure(&kind);
        if matches!(self.state.lock().usage, Usage::Raised(_)) {
            self.fail();
        }
        let endpoint = {
            let mut state = self.state.lock();
            // One that was never set up may be used again.
            state.usage = Usage::Released;
            state.endpoint.take()
        };
        drop(endpoint);
        if self.asks.is_none() || self.owner.failed(&**self) {
            self.owner.tell(kind);
        }
    }

    /// Says for the log why it is not made.
    fn tell_failure(&self, kind: &EventKind) {
        let why = match kind {
            EventKind::Rejected { reason: Some(code), private_data, .. } => {
                let (reason, len) = (RejectReason::from_code(*code), private_data.len());
                format!("{reason} (REJ {code}, {len} bytes of private data)")
            }
            EventKind::Unreachable(error) => format!("the peer cannot be reached: {error}"),
            EventKind::ConnectError(error) => error.to_string(),
            _ => "it was given up".to_owned(),
        };
        if let Some(asks) = &self.asks
            && match kind {
                EventKind::Rejected { reason: Some(code), .. } => {
                    *code == RejectReason::InvalidServiceId.code()
                }
                // Of a stream, before.
                EventKind::Unreachable(error) => error.kind() == io::ErrorKind::ConnectionRefused,
                _ => false,
            }
        {
            nobody_listens(self.ends.peer, asks.retries.lasted());
        }
        let endpoint = self.qp();
        // At the side that had accepted it was ready to send.
        if let Some(endpoint) = &endpoint {
            endpoint.ends(&why);
        }
        let asked_for = self.asks.as_ref().map(|asks| asks.number);
        let qp = asked_for.or_else(|| endpoint.map(|endpoint| endpoint.id()));
        fate::not_made(qp, Some(self.ends.local), self.ends.peer, ROCE, &why);
    }

    /// The queue pair is locked, so this is for another thread.
    fn packet_arrived(&self) {
        let number = self.qp().map(|endpoint| endpoint.qp_id());
        if let (Some(number), Ok(communication)) = (number, self.communication()) {
            communication.packet_arrived(number);
        }
    }
}

impl Exchange for Connection {
    fn state(&self) -> ConnectionState {
        match self.phase() {
            ExchangePhase::Asked => ConnectionState::Connecting,
            ExchangePhase::Responded => ConnectionState::Responded,
            ExchangePhase::Requested => ConnectionState::Requested,
            ExchangePhase::Accepted | ExchangePhase::Established | ExchangePhase::Ended => {
                ConnectionState::Connected
            }
            ExchangePhase::Over => ConnectionState::Over,
        }
    }

    fn wire(&self) -> &'static str {
        ROCE
    }

    fn speaks_roce(&self) -> bool {
        true
    }

    fn endpoint(&self) -> Option<Arc<Endpoint>> {
        self.qp()
    }

    fn begin(self: Arc<Self>, _: By) -> Result<(), ConnectError> {
        Ok(self.ask()?)
    }

    fn accept(
        self: Arc<Self>,
        qp: &NamedQp,
        params: &ConnectParams,
        _traffic_class: Option<u8>,
    ) -> Result<(), ConnectError> {
        let mut state = self.state.lock();
        if state.phase != ExchangePhase::Requested {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        // It can be answered once only, even if that fails.
        state.phase = ExchangePhase::Accepted;
        state.endpoint.clone_from(&qp.endpoint);
        state.number = qp.number;
        drop(state);
        Ok(self.try_accept(qp, params).inspect_err(|_| self.give_up())?)
    }

    fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        if self.phase() != ExchangePhase::Requested {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let rejected = self.communication()?.reject(RejectReason::Consumer, private_data);
        self.finish(ExchangePhase::Over);
        rejected
    }

    fn establish(self: Arc<Self>, qp: &NamedQp) -> io::Result<()> {
        let mut state = self.state.lock();
        // The peer has accepted the queue pair that it was told of, and the program has set it up.
        if state.phase != ExchangePhase::Responded || qp.endpoint.is_some() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        state.phase = ExchangePhase::Established;
        drop(state);
        self.communication()?.ready()
    }

    fn attributes(&self, params: &ConnectParams) -> Option<DatagramAttributes> {
        let (phase, known) = {
            let state = self.state.lock();
            (state.phase, state.attributes)
        };
        let found = if phase == ExchangePhase::Requested {
            let accept = Accept { qp: NOBODY, parameters: parameters(params), private_data: &[] };
            self.communication().ok()?.attributes(&accept).ok()
        } else {
            known
        };
        found.map(|found| attributes::named(&found))
    }

    fn disconnect(self: Arc<Self>) {
        self.because("this end disconnected");
        self.fail();
        if let Ok(communication) = self.communication() {
            // If the peer was faster there is nothing to do.
            let _ = communication.disconnect();
        }
    }

    fn close(self: Arc<Self>) {
        self.give_up();
    }

    fn abandon(self: Arc<Self>) {
        let timers = self.timers.clone();
        timers.soon(Box::new(move || self.give_up()));
    }

    fn is_told_of_the_end(&self) {
        let mut state = self.state.lock();
        if state.phase == ExchangePhase::Ended {
            state.phase = ExchangePhase::Over;
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("phase", &self.phase()).finish_non_exhaustive()
    }
}

impl live::Connection for Connection {
    fn id(&self) -> u32 {
        self.state.lock().number
    }

    fn hold_back_receives(&self) {
        if let Some(endpoint) = self.qp() {
            live::Connection::hold_back_receives(&*endpoint);
        }
    }

    fn end(self: Arc<Self>) {
        if let Ok(communication) = self.communication() {
            // If the peer was faster there is nothing to do.
            let _ = communication.disconnect();
        }
    }
}

/// A number that no queue pair of a share has.
const NOBODY: QpId = QpId(2);

impl Party for Connection {
    fn happened(self: Arc<Self>, what: News) {
        if self.owner.is_gone() {
            return;
        }
        match what {
            News::ConnectResponse(response) => self.respond(&response),
            News::Established { private_data } => {
                let mut state = self.state.lock();
                if state.phase != ExchangePhase::Accepted {
                    return;
                }
                state.phase = ExchangePhase::Established;
                let depths = state.depths;
                drop(state);
                self.owner.tell(established(depths, private_data.to_vec()));
            }
            News::Rejected { reason: RejectReason::InvalidServiceId, .. }
                if self.phase() == ExchangePhase::Asked && self.ask_again() => {}
            News::Rejected { reason, private_data, .. } => {
                let private_data = private_data.to_vec();
                let reason = Some(reason.code());
                let kind = EventKind::Rejected { private_data, ird: None, ord: None, reason };
                self.refused(kind);
            }
            // The peer cannot be waiting any more: the program learns it when it answers.
            News::Unreachable(_) if self.phase() == ExchangePhase::Requested => {
                self.finish(ExchangePhase::Requested)
            }
            News::Unreachable(_) => {
                let kind = EventKind::Unreachable(io::ErrorKind::TimedOut.into());
                self.refused(kind);
            }
            News::Disconnected { .. } => {
                self.state.lock().phase = ExchangePhase::Ended;
                self.because("the peer disconnected (DREQ)");
                self.fail();
                self.owner.tell(EventKind::Disconnected(Ended::Closed));
            }
            News::TimewaitExit { .. } => {
                let phase = self.phase();
                self.finish(phase);
                self.owner.tell(EventKind::TimewaitExit);
            }
            News::ConnectRequest(_) | News::Resolved(_) => {}
        }
    }
}

fn established((ird, ord): (u16, u16), private_data: Vec<u8>) -> EventKind {
    EventKind::Established { private_data, ird, ord, peer_ird: None, peer_ord: None }
}

/// Tells the connection manager that packets have come, which are worth an RTU.
struct Watch(Weak<Connection>);

impl ConnectionObserver for Watch {
    fn first_heard(&self) {
        let Self(connection) = self;
        let Some(connection) = connection.upgrade() else { return };
        let timers = connection.timers.clone();
        timers.soon(Box::new(move || connection.packet_arrived()));
    }

    fn disconnected(&self, _: Ended) {}
}

fn parameters(params: &ConnectParams) -> Parameters {
    let depth = |depth: u16| u8::try_from(depth).unwrap_or(u8::MAX);
    let (responder_resources, initiator_depth) = (depth(params.ird), depth(params.ord));
    Parameters {
        responder_resources,
        initiator_depth,
        rnr_retry: params.rnr_retry,
        retry_count: params.retry_count,
        ..Parameters::default()
    }
}

/// A peer asks for a connection: the program gets it as an event of the id that listens.
pub(super) fn requested(
    listener: &dyn Listener,
    timers: &Timers,
    communication: Communication,
    ends: Ends,
    request: &Request,
) {
    let Ends { local, peer, .. } = ends;
    fate::step(None, Some(local), peer, ROCE, "a peer asks for a connection");
    let communication = Arc::new(communication);
    // The peer's requests under way are those that are served here, and the other way round.
    let ird = Some(request.initiator_depth.into());
    let ord = Some(request.responder_resources.into());
    let private_data = request.private_data.to_vec();
    let rnr_retry = Some(request.rnr_retry);
    let retry_count = Some(request.retry_count);
    let kind = EventKind::ConnectRequest { private_data, ird, ord, rnr_retry, retry_count };
    let mut made = None;
    let make = |owner| {
        let connection = Connection::new(owner, timers, ends, None, None);
        connection.state.lock().communication = Some(Arc::clone(&communication));
        made = Some(Arc::clone(&connection));
        connection as Arc<dyn Exchange>
    };
    listener.requested(Some(local), peer, Box::new(make), kind);
    if let Some(connection) = made {
        communication.introduce(connection.as_party());
    }
}
