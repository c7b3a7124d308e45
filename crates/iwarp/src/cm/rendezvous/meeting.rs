//! A queue pair's way to its peer.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_os::{Interest, Ready, TcpSocket};
use iwarp_proto::mpa::startup::{Negotiated, Reply, Role};
use iwarp_proto::qp::Shared;
use iwarp_proto::types::Time;

use crate::REPORT;
use crate::cm::rendezvous::door::send_away;
use crate::cm::rendezvous::introduction::{Introduction, Refusal};
use crate::cm::rendezvous::{Peer, Rendezvous, Retry};
use crate::cm::startup::{Answering, Calling, Line, Served, operate};
use crate::cm::{ConnectError, ConnectParams, closed};
use crate::engine::endpoint::Endpoint;
use crate::engine::numbers::{Number, port_of};
use crate::engine::stream::Stream;
use crate::engine::sync::Mutex;
use crate::engine::tasks::Task;
use crate::engine::worker::Deadline;
use crate::engine::{Engine, now};
use crate::verbs::Gid;

/// How long the higher end leaves it to the lower one to connect.
const PRECEDENCE: Duration = Duration::from_millis(500);
/// Pause after the first refusal, doubled after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause while work waits, and how often it is seen whether any does.
const PAUSE: Duration = Duration::from_millis(500);
/// Requests kept for a queue pair whose program has not said yet whom it expects.
const MAX_KEPT: usize = 4;

/// One queue pair, and how it comes to its connection. All of this happens under one lock, by the
/// program's thread or the worker's; nothing here is called with the queue pair's own lock held.
pub(crate) struct Meeting {
    rendezvous: Arc<Rendezvous>,
    endpoint: Arc<Endpoint>,
    state: Mutex<State>,
    itself: Weak<Self>,
}

#[derive(Default)]
struct State {
    /// Peers find the queue pair.
    listed: bool,
    retry: Retry,
    /// Whom the program expects, from RTR on.
    peer: Option<Peer>,
    /// The way there, while there is no connection.
    search: Option<Search>,
    /// Requests that cannot be answered yet.
    kept: Vec<Kept>,
    serial: u64,
}

struct Search {
    /// Whether this end's own connection wins over the peer's.
    leads: bool,
    attempt: Option<Attempt>,
    /// When to try next, where nothing is under way.
    next: Time,
    pause: Duration,
    /// Since when work has been waiting.
    waiting: Option<Time>,
    /// What became of the last attempt.
    failure: Option<String>,
    timer: Option<Deadline>,
}

struct Attempt {
    calling: Calling,
    deadline: Time,
}

struct Kept {
    serial: u64,
    from: u32,
    ip: IpAddr,
    answering: Answering,
    task: u64,
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meeting").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Meeting {
    pub(crate) fn new(rendezvous: &Arc<Rendezvous>, endpoint: &Arc<Endpoint>) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            rendezvous: Arc::clone(rendezvous),
            endpoint: Arc::clone(endpoint),
            state: Mutex::default(),
            itself: itself.clone(),
        })
    }

    pub(crate) fn number(&self) -> &Number {
        self.endpoint.number()
    }

    fn engine(&self) -> &Engine {
        &self.endpoint.engine
    }

    /// The queue pair is in INIT: peers may come, and wait.
    pub(crate) fn list(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.listed {
            self.rendezvous.list(self)?;
            state.listed = true;
        }
        Ok(())
    }

    /// The queue pair is in RTR: finds the peer. Returns at once.
    pub(crate) fn seek(self: &Arc<Self>, peer: &Peer) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.listed {
            self.rendezvous.list(self)?;
            state.listed = true;
        }
        state.peer = Some(*peer);
        if self.is_itself(peer) {
            return self.meet_itself(peer);
        }
        let ours = (Gid::raw_of(peer.local), self.number().value());
        let leads = ours < (Gid::raw_of(peer.gid), peer.qpn);
        let start = now();
        state.search = Some(Search {
            leads,
            attempt: None,
            next: if leads { start } else { start.plus(PRECEDENCE) },
            pause: FIRST_PAUSE,
            waiting: None,
            failure: None,
            timer: None,
        });
        self.sort_kept(&mut state);
        self.go_on(&mut state);
        Ok(())
    }

    /// The queue pair is in RESET or ERR, or gone: nobody comes, nobody is sought.
    pub(crate) fn withdraw(&self) {
        let (search, kept) = {
            let mut state = self.state.lock();
            if state.listed {
                self.rendezvous.withdraw(self);
                state.listed = false;
            }
            state.peer = None;
            (state.search.take(), std::mem::take(&mut state.kept))
        };
        self.drop_search(search);
        kept.into_iter().for_each(|kept| send_away(self.take(kept), Refusal::Unknown));
    }

    /// Whom the program expects.
    pub(crate) fn peer(&self) -> Option<Peer> {
        self.state.lock().peer
    }

    /// How long work waits for the connection.
    pub(crate) fn set_retry(&self, retry: Retry) {
        let mut state = self.state.lock();
        state.retry = retry;
        self.go_on(&mut state);
    }

    /// `from` wants the connection. Called by the worker.
    pub(crate) fn called_on(self: &Arc<Self>, from: u32, answering: Answering) {
        let mut state = self.state.lock();
        if !state.listed {
            return send_away(answering, Refusal::Unknown);
        }
        if state.peer.is_some() && state.search.is_none() {
            return send_away(answering, Refusal::Taken);
        }
        if let Err(error) = self.keep(&mut state, from, answering) {
            tracing::warn!(%error, "a connection cannot be kept");
        }
        self.sort_kept(&mut state);
    }

    /// Keeps a request until it can be answered.
    fn keep(&self, state: &mut State, from: u32, answering: Answering) -> io::Result<()> {
        state.serial += 1;
        let serial = state.serial;
        let ip = answering.peer_ip();
        let watch = Arc::new(Watch { meeting: self.itself.clone(), serial });
        let worker = &self.engine().worker;
        let task = worker.tasks().add(answering.socket().as_fd(), Interest::READ, watch)?;
        // The same peer once more has given its former connection up.
        let former = state.kept.iter().position(|kept| kept.from == from && kept.ip == ip);
        let full = (state.kept.len() == MAX_KEPT).then_some(0);
        if let Some(place) = former.or(full) {
            drop(self.take(state.kept.remove(place)));
        }
        state.kept.push(Kept { serial, from, ip, answering, task });
        Ok(())
    }

    /// Nobody but the meeting looks after its connection any more.
    fn take(&self, kept: Kept) -> Answering {
        self.engine().worker.tasks().remove(kept.task, kept.answering.socket().as_fd());
        kept.answering
    }

    /// Answers the requests that are kept, now that the peer is known: sends strangers away, and
    /// takes the peer's unless our own attempt may still win.
    fn sort_kept(&self, state: &mut State) {
        let Some(peer) = state.peer else { return };
        let is_peer = |kept: &Kept| kept.from == peer.qpn && kept.ip == peer.gid;
        let (ours, strangers): (Vec<_>, Vec<_>) = state.kept.drain(..).partition(is_peer);
        state.kept = ours;
        for kept in strangers {
            tracing::info!(
                from = kept.from,
                ip = ?kept.ip,
                expected = ?peer,
                "somebody else came to a queue pair"
            );
            send_away(self.take(kept), Refusal::Stranger);
        }
        let Some(search) = &mut state.search else { return };
        let may_win = |attempt: &Attempt| search.leads && attempt.calling.is_connected();
        if search.attempt.as_ref().is_some_and(may_win) {
            return;
        }
        while let Some(kept) = state.kept.pop() {
            let attempt = search.attempt.take();
            self.drop_attempt(attempt);
            match self.accept(self.take(kept), &peer) {
                Ok((stream, terms)) => return self.met(state, stream, &terms),
                Err(error) => search.failure = Some(error.to_string()),
            }
        }
    }

    fn accept(
        &self,
        answering: Answering,
        peer: &Peer,
    ) -> Result<(Box<dyn Stream>, Negotiated), ConnectError> {
        let introduction = Introduction { from: self.number().value(), to: peer.qpn };
        let (ird, ord) = (peer.ird, peer.ord);
        let params = ConnectParams { private_data: introduction.encode(), ird, ord };
        answering.accept(self.engine(), &params)
    }

    /// Does what is due now and sees to it that the rest is done in time.
    fn go_on(&self, state: &mut State) {
        let Some(peer) = state.peer else { return };
        let limit = state.retry.limit();
        let Some(search) = &mut state.search else { return };
        let now = now();
        let waits = self.endpoint.with(|qp| qp.outstanding().0 > 0);
        search.waiting = if waits { search.waiting.or(Some(now)) } else { None };
        let end = match (search.waiting, limit) {
            (Some(since), Some(limit)) => Some(since.plus(limit)),
            _ => None,
        };
        if end.is_some_and(|end| now >= end) {
            return self.give_up(state, &peer);
        }
        if search.attempt.as_ref().is_some_and(|attempt| now >= attempt.deadline) {
            self.failed(search, "no answer".to_owned());
        }
        if search.attempt.is_none() && now >= search.next {
            match self.try_once(&peer) {
                Ok(attempt) => search.attempt = Some(attempt),
                Err(error) => self.failed(search, error.to_string()),
            }
        }
        let step = search.attempt.as_ref().map_or(search.next, |attempt| attempt.deadline);
        let at = step.min(now.plus(PAUSE)).min(end.unwrap_or(step));
        let weak = self.itself.clone();
        let tick = move || {
            if let Some(meeting) = weak.upgrade() {
                meeting.tick();
            }
        };
        search.timer = Some(self.engine().worker.deadline(at, Box::new(tick)));
    }

    fn tick(&self) {
        let mut state = self.state.lock();
        self.go_on(&mut state);
        // What was kept for the case that our own attempt fails.
        self.sort_kept(&mut state);
    }

    fn try_once(&self, peer: &Peer) -> Result<Attempt, ConnectError> {
        let engine = self.engine();
        let config = Rendezvous::startup(engine, peer.ird, peer.ord);
        let introduction = Introduction { from: self.number().value(), to: peer.qpn };
        let socket = TcpSocket::connect_start(Some(peer.origin()), peer.addr())?;
        let itself = self.itself.upgrade().ok_or_else(closed)?;
        let private_data = introduction.encode();
        let served = Served::ByWorker(itself);
        let addr = peer.addr();
        let calling = Calling::start(&engine.worker, socket, addr, config, &private_data, served)?;
        Ok(Attempt { calling, deadline: now().plus(engine.options.startup_timeout) })
    }

    /// An attempt came to nothing: there will be another.
    fn failed(&self, search: &mut Search, why: String) {
        let attempt = search.attempt.take();
        self.drop_attempt(attempt);
        search.failure = Some(why);
        search.next = now().plus(search.pause);
        search.pause = (search.pause * 2).min(PAUSE);
    }

    /// The peer's answer is there.
    fn answered(&self, state: &mut State, peer: &Peer, reply: &Reply) {
        let Some(search) = &mut state.search else { return };
        let expected = Introduction { from: peer.qpn, to: self.number().value() };
        if !reply.accepted {
            let why = Refusal::parse(&reply.private_data).unwrap_or(Refusal::Other);
            return self.failed(search, why.reason().to_owned());
        }
        if Introduction::parse(&reply.private_data) != Some(expected) {
            return self.failed(search, "something else answers there".to_owned());
        }
        let Some(attempt) = search.attempt.take() else { return };
        let line = attempt.calling.leave(&self.engine().worker);
        match operate(line, &self.engine().options) {
            Ok(stream) => self.met(state, stream, &reply.negotiated),
            Err(error) => self.failed(search, error.to_string()),
        }
    }

    /// There is a connection.
    fn met(&self, state: &mut State, stream: Box<dyn Stream>, terms: &Negotiated) {
        self.drop_search(state.search.take());
        let kept = std::mem::take(&mut state.kept);
        kept.into_iter().for_each(|kept| send_away(self.take(kept), Refusal::Taken));
        if let Err(error) = self.endpoint.attach_in_place(stream, terms) {
            tracing::warn!(target: REPORT, %error, "a queue pair's connection cannot be served");
        }
    }

    fn give_up(&self, state: &mut State, peer: &Peer) {
        let Some(search) = state.search.take() else { return };
        let failure = search.failure.clone().unwrap_or_else(|| "no answer".to_owned());
        self.drop_search(Some(search));
        let own = self.number().value();
        tracing::warn!(
            target: REPORT,
            "queue pair {own:#08x} at {} and its peer {:#08x} at {} could not meet: connecting to \
             {}: {failure}; and nobody came from there to port {} here",
            peer.local,
            peer.qpn,
            peer.gid,
            peer.addr(),
            port_of(own),
        );
        self.endpoint.unreachable();
    }

    /// Whether the queue pair is its own peer. Nobody else on this host has its number.
    fn is_itself(&self, peer: &Peer) -> bool {
        let here = |ip: IpAddr| {
            ip == peer.local
                || ip.is_loopback()
                || iwarp_os::addr::source_for(ip).is_ok_and(|source| source == ip)
        };
        peer.qpn == self.number().value() && here(peer.gid)
    }

    fn meet_itself(&self, peer: &Peer) -> io::Result<()> {
        let socket = TcpSocket::looped(peer.local, peer.scope)?;
        let options = &self.engine().options;
        let depth = peer.ird.min(peer.ord);
        let spare = options.startup(peer.ird, peer.ord).spare;
        let terms = Negotiated {
            role: Role::Initiator,
            rev: 2,
            enhanced: true,
            crc: options.crc,
            send_markers: options.markers,
            receive_markers: options.markers,
            ird: peer.ird,
            ord: depth,
            spare_ird: spare,
            spare_ord: spare,
            peer_ird: Some(peer.ird),
            peer_ord: Some(depth),
            rtr: None,
            peer_to_peer: false,
            fault: None,
        };
        self.endpoint.attach_in_place(operate(Line::of(socket)?, options)?, &terms)
    }

    fn drop_search(&self, search: Option<Search>) {
        if let Some(search) = search {
            self.drop_attempt(search.attempt);
        }
    }

    fn drop_attempt(&self, attempt: Option<Attempt>) {
        if let Some(attempt) = attempt {
            drop(attempt.calling.leave(&self.engine().worker));
        }
    }
}

impl Task for Meeting {
    /// The attempt goes on.
    fn ready(&self, _: Ready) {
        let mut state = self.state.lock();
        let Some(peer) = state.peer else { return };
        let Some(search) = &mut state.search else { return };
        let Some(attempt) = &mut search.attempt else { return };
        match attempt.calling.advance(&self.engine().worker) {
            Ok(None) => return,
            Ok(Some(reply)) => self.answered(&mut state, &peer, &reply),
            Err(error) => self.failed(search, error.to_string()),
        }
        self.sort_kept(&mut state);
        self.go_on(&mut state);
    }
}

/// Notices when somebody whose request is kept goes away.
struct Watch {
    meeting: Weak<Meeting>,
    serial: u64,
}

impl Task for Watch {
    fn ready(&self, _: Ready) {
        let Some(meeting) = self.meeting.upgrade() else { return };
        let mut state = meeting.state.lock();
        let place = state.kept.iter().position(|kept| kept.serial == self.serial);
        if let Some(place) = place {
            // Has closed, or breaks the silence that is due until our Reply.
            drop(meeting.take(state.kept.remove(place)));
        }
    }
}
