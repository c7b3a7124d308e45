// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections over RoCE v2: made by management datagrams, not by start-up frames on a stream.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_roce::Attributes;
use iwarp_roce::cm::{
    Accept, Connect, EventKind as News, Parameters, RejectReason, Request, Response, ServiceId,
};
use iwarp_roce::wire::{Mtu, PORT, Transport};
use iwarp_types::{QpId, QpState};

use crate::cm::datagrams::{Ends, Retries};
use crate::cm::id::{IdCore, WeakId};
use crate::cm::outgoing::nobody_listens;
use crate::cm::{ConnectParams, EventKind};
use crate::engine::ended::{Ended, Observer};
use crate::engine::endpoint::Endpoint;
use crate::engine::fate::{self, ROCE};
use crate::engine::live;
use crate::engine::sync::Mutex;
use crate::engine::timers::Alarm;
use crate::wire::roce::manager::{Communication, ConnectionManager, Party};
use crate::wire::roce::prospect::set_attributes;

/// A connection of an id, from the first message on.
pub(crate) struct Exchange {
    id: WeakId,
    /// The question to the peer; `None` of one that asks.
    asks: Option<Asks>,
    state: Mutex<State>,
}

/// The question to a peer.
struct Asks {
    manager: Arc<ConnectionManager>,
    ends: Ends,
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

struct State {
    step: Step,
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
}

/// The progress of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
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

impl Exchange {
    fn new(
        id: WeakId,
        asks: Option<Asks>,
        step: Step,
        endpoint: Option<Arc<Endpoint>>,
    ) -> Arc<Self> {
        let state = Mutex::new(State {
            step,
            communication: None,
            endpoint,
            attributes: None,
            depths: (0, 0),
            early: None,
            next: None,
        });
        Arc::new(Self { id, asks, state })
    }

    /// One that this end begins, by [`Self::ask`]. `number`: of the queue pair.
    pub(crate) fn outgoing(
        id: WeakId,
        manager: Arc<ConnectionManager>,
        ends: Ends,
        service: ServiceId,
        (number, endpoint): (u32, Option<Arc<Endpoint>>),
        params: &ConnectParams,
        in_vain: bool,
    ) -> Arc<Self> {
        let (retries, params) = (Retries::begin(&id), params.clone());
        let asks = Asks { manager, ends, service, number, params, retries, in_vain };
        Self::new(id, Some(asks), Step::Asked, endpoint)
    }

    /// Asks the peer. The outcome may be reported before this returns.
    pub(crate) fn ask(self: &Arc<Self>) -> io::Result<()> {
        let asks = self.asks.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
        let connect = Connect {
            path: asks.ends.path(),
            service: asks.service,
            source_port: Some(asks.ends.local.port()),
            qp: QpId(asks.number),
            transport: Transport::Rc,
            mtu: Mtu::Mtu4096,
            parameters: parameters(&asks.params),
            private_data: &asks.params.private_data,
        };
        if asks.in_vain {
            self.bound_time();
        }
        let (local, peer) = (Some(asks.ends.local), asks.ends.peer);
        fate::step(Some(asks.number), local, peer, ROCE, "connecting");
        let communication = Communication::connect(&asks.manager, &connect, self.as_party())?;
        let communication = Arc::new(communication);
        let mut state = self.state.lock();
        if !matches!(state.step, Step::Ended | Step::Over) {
            state.communication = Some(Arc::clone(&communication));
        }
        // The answer may have come before there was anything to answer with.
        let early = state.early.take();
        drop(state);
        if let (Some(private_data), Some(id)) = (early, self.id.upgrade()) {
            self.go_on(&id, private_data);
        }
        Ok(())
    }

    /// The peer is to answer soon.
    fn bound_time(self: &Arc<Self>) {
        let Some(id) = self.id.upgrade() else { return };
        let weak = Arc::downgrade(self);
        let too_late = move || {
            let Some(exchange) = weak.upgrade().filter(|it| it.step() == Step::Asked) else {
                return;
            };
            if let Some(id) = exchange.id.upgrade() {
                let refused = io::ErrorKind::ConnectionRefused;
                exchange.refused(&id, EventKind::Unreachable(refused.into()));
            }
        };
        let timers = &id.engine().timers;
        let alarm = timers.at(timers.now().plus(LAST_CHANCE), Box::new(too_late));
        self.state.lock().next = Some(alarm);
    }

    /// Asks again, if that is not too late: the peer's program may be about to listen.
    fn ask_again(self: &Arc<Self>) -> bool {
        let Some(asks) = self.asks.as_ref().filter(|asks| !asks.in_vain) else { return false };
        let weak = Arc::downgrade(self);
        let again = move || {
            let Some(exchange) = weak.upgrade() else { return };
            let alarm = exchange.state.lock().next.take();
            drop(alarm);
            if exchange.step() == Step::Asked
                && let Err(error) = exchange.ask()
                && let Some(id) = exchange.id.upgrade()
            {
                exchange.refused(&id, EventKind::Unreachable(error));
            }
        };
        let Some(alarm) = asks.retries.again(&self.id, Box::new(again)) else { return false };
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

    pub(crate) fn step(&self) -> Step {
        self.state.lock().step
    }

    /// The queue pair that uses the connection, if it is known.
    pub(crate) fn endpoint(&self) -> Option<Arc<Endpoint>> {
        self.state.lock().endpoint.clone()
    }

    fn communication(&self) -> io::Result<Arc<Communication>> {
        let state = self.state.lock();
        state.communication.clone().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// The attributes for a program that sets up a queue pair itself.
    pub(crate) fn attributes(&self, params: &ConnectParams) -> Option<Attributes> {
        let (step, known) = {
            let state = self.state.lock();
            (state.step, state.attributes)
        };
        if step != Step::Requested {
            return known;
        }
        let accept = Accept { qp: NOBODY, parameters: parameters(params), private_data: &[] };
        self.communication().ok()?.attributes(&accept).ok()
    }

    /// Accepts what the peer asks for, for the queue pair with that number: `endpoint` is set up,
    /// without one the program has done so.
    pub(crate) fn accept(
        self: &Arc<Self>,
        number: u32,
        endpoint: Option<&Arc<Endpoint>>,
        params: &ConnectParams,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.step != Step::Requested {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // It can be answered once only, even if that fails.
        state.step = Step::Accepted;
        state.endpoint = endpoint.cloned();
        drop(state);
        self.try_accept(number, endpoint, params).inspect_err(|_| self.close())
    }

    fn try_accept(
        self: &Arc<Self>,
        number: u32,
        endpoint: Option<&Arc<Endpoint>>,
        params: &ConnectParams,
    ) -> io::Result<()> {
        let parameters = parameters(params);
        let accept = Accept { qp: QpId(number), parameters, private_data: &params.private_data };
        let communication = self.communication()?;
        let attributes = communication.attributes(&accept)?;
        self.state.lock().depths =
            (attributes.max_dest_rd_atomic.into(), attributes.max_rd_atomic.into());
        if let Some(endpoint) = endpoint {
            self.raise(endpoint, &attributes)?;
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
        endpoint.carry_on();
        // When the process exits the peer is told.
        endpoint.engine.live.add(self)?;
        Ok(())
    }

    /// The program has set up a queue pair of its own for a peer that has accepted.
    pub(crate) fn establish(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.step != Step::Responded {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        state.step = Step::Established;
        drop(state);
        self.communication()?.ready()
    }

    /// Refuses what the peer asks for.
    pub(crate) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        if self.step() != Step::Requested {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let rejected = self.communication()?.reject(RejectReason::Consumer, private_data);
        self.finish(Step::Over);
        rejected
    }

    /// Ends the connection; the program is told.
    pub(crate) fn disconnect(self: &Arc<Self>) {
        self.ends("this end disconnected");
        self.fail();
        if let Ok(communication) = self.communication() {
            // If the peer was faster there is nothing to do.
            let _ = communication.disconnect();
        }
    }

    /// Gives it up: the program is told nothing of it any more.
    pub(crate) fn close(self: &Arc<Self>) {
        if let Ok(communication) = self.communication() {
            // At once, where there is something to be ended: the process may exit next.
            let _ = communication.disconnect();
        }
        self.finish(Step::Over);
        self.ends("this end gave up its id");
        self.fail();
    }

    /// The program has taken the event that says that it is over.
    pub(crate) fn is_told_of_the_end(&self) {
        let mut state = self.state.lock();
        if state.step == Step::Ended {
            state.step = Step::Over;
        }
    }

    /// There is nothing more to be said to the peer.
    fn finish(&self, step: Step) {
        let mut state = self.state.lock();
        state.step = step;
        let before = (state.communication.take(), state.next.take());
        drop(state);
        drop(before);
    }

    /// Says for the log why the connection ends.
    fn ends(&self, why: &str) {
        if let Some(endpoint) = self.endpoint() {
            endpoint.ends(why);
        }
    }

    /// The queue pair is of no more use.
    fn fail(self: &Arc<Self>) {
        if let Some(endpoint) = self.endpoint() {
            endpoint.engine.live.remove(self);
            // Every state may become that of an error.
            let _ = endpoint.modify(QpState::Err);
        }
    }

    /// The peer has accepted.
    fn respond(self: &Arc<Self>, id: &Arc<IdCore>, response: &Response) {
        let depths = (response.responder_resources.into(), response.initiator_depth.into());
        let mut state = self.state.lock();
        if state.step != Step::Asked {
            return;
        }
        state.attributes = Some(response.attributes);
        state.depths = depths;
        if state.endpoint.is_none() {
            state.step = Step::Responded;
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
            id.push(EventKind::Responded { private_data, ird, ord });
        } else {
            self.go_on(id, private_data);
        }
    }

    /// Sets up the queue pair as the peer has answered, and tells it.
    fn go_on(self: &Arc<Self>, id: &Arc<IdCore>, private_data: Vec<u8>) {
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
            self.state.lock().step = Step::Established;
            communication.ready()
        });
        match ready {
            Ok(()) => id.push(established(depths, private_data)),
            Err(error) => self.refused(id, EventKind::ConnectError(error.into())),
        }
    }

    /// The connection is not made.
    fn refused(self: &Arc<Self>, id: &Arc<IdCore>, kind: EventKind) {
        self.finish(Step::Over);
        self.tell_failure(id, &kind);
        if let Some(endpoint) = self.endpoint() {
            endpoint.engine.live.remove(self);
        }
        id.exchange_failed(self, self.asks.is_some());
        id.push(kind);
    }

    /// Says for the log why it is not made.
    fn tell_failure(&self, id: &IdCore, kind: &EventKind) {
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
            nobody_listens(asks.ends.peer, asks.retries.lasted(&self.id));
        }
        let endpoint = self.endpoint();
        // At the side that had accepted it was ready to send.
        if let Some(endpoint) = &endpoint {
            endpoint.ends(&why);
        }
        let qp = endpoint.map(|endpoint| endpoint.id());
        if let Some(asks) = &self.asks {
            let (local, peer) = (Some(asks.ends.local), asks.ends.peer);
            fate::not_made(Some(asks.number), local, peer, ROCE, &why);
        } else if let Some((local, peer)) = id.ends() {
            fate::not_made(qp, local, peer, ROCE, &why);
        }
    }

    /// The queue pair is locked, so this is for another thread.
    fn packet_arrived(&self) {
        let number = self.endpoint().map(|endpoint| endpoint.qp_id());
        if let (Some(number), Ok(communication)) = (number, self.communication()) {
            communication.packet_arrived(number);
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("step", &self.step()).finish_non_exhaustive()
    }
}

impl live::Connection for Exchange {
    fn id(&self) -> u32 {
        self.endpoint().map_or(0, |endpoint| endpoint.id())
    }

    fn hold_back_receives(&self) {
        if let Some(endpoint) = self.endpoint() {
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

impl Party for Exchange {
    fn happened(self: Arc<Self>, what: News) {
        let Some(id) = self.id.upgrade() else { return };
        match what {
            News::ConnectResponse(response) => self.respond(&id, &response),
            News::Established { private_data } => {
                let mut state = self.state.lock();
                if state.step != Step::Accepted {
                    return;
                }
                state.step = Step::Established;
                let depths = state.depths;
                drop(state);
                id.push(established(depths, private_data.to_vec()));
            }
            News::Rejected { reason: RejectReason::InvalidServiceId, .. }
                if self.step() == Step::Asked && self.ask_again() => {}
            News::Rejected { reason, private_data, .. } => {
                let private_data = private_data.to_vec();
                let reason = Some(reason.code());
                let kind = EventKind::Rejected { private_data, ird: None, ord: None, reason };
                self.refused(&id, kind);
            }
            // The peer cannot be waiting any more: the program learns it when it answers.
            News::Unreachable(_) if self.step() == Step::Requested => self.finish(Step::Requested),
            News::Unreachable(_) => {
                let kind = EventKind::Unreachable(io::ErrorKind::TimedOut.into());
                self.refused(&id, kind);
            }
            News::Disconnected { .. } => {
                self.state.lock().step = Step::Ended;
                self.ends("the peer disconnected (DREQ)");
                self.fail();
                id.push(EventKind::Disconnected(Ended::Closed));
            }
            News::TimewaitExit { .. } => {
                let step = self.step();
                self.finish(step);
                id.push(EventKind::TimewaitExit);
            }
            News::ConnectRequest(_) | News::Resolved(_) => {}
        }
    }
}

fn established((ird, ord): (u16, u16), private_data: Vec<u8>) -> EventKind {
    EventKind::Established { private_data, ird, ord, peer_ird: None, peer_ord: None }
}

/// Tells the connection manager that packets have come, which are worth an RTU.
struct Watch(Weak<Exchange>);

impl Observer for Watch {
    fn first_heard(&self) {
        let Self(exchange) = self;
        let Some(exchange) = exchange.upgrade() else { return };
        let Some(id) = exchange.id.upgrade() else { return };
        id.engine().timers.soon(Box::new(move || exchange.packet_arrived()));
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
pub(crate) fn requested(
    listener: &WeakId,
    communication: Communication,
    local: SocketAddr,
    peer: SocketAddr,
    request: &Request,
) {
    fate::step(None, Some(local), peer, ROCE, "a peer asks for a connection");
    let communication = Arc::new(communication);
    // The peer's requests under way are those that are served here, and the other way round.
    let ird = Some(request.initiator_depth.into());
    let ord = Some(request.responder_resources.into());
    let private_data = request.private_data.to_vec();
    let mut exchange = None;
    listener.with_channel(|channel| {
        let id = IdCore::asked(channel, local, peer, |id| {
            let made = Exchange::new(id, None, Step::Requested, None);
            made.state.lock().communication = Some(Arc::clone(&communication));
            exchange = Some(Arc::clone(&made));
            made
        });
        let rnr_retry = Some(request.rnr_retry);
        let retry_count = Some(request.retry_count);
        let kind = EventKind::ConnectRequest { private_data, ird, ord, rnr_retry, retry_count };
        channel.push_request(id, listener.clone(), kind);
    });
    if let Some(exchange) = exchange {
        communication.introduce(exchange.as_party());
    }
}
