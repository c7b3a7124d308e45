// SPDX-License-Identifier: MIT OR Apache-2.0

//! A queue pair's way to its peer.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_os::Ready;
use iwarp_proto::mpa::startup::{Negotiated, Reply, Role};
use iwarp_types::Time;

use crate::connect::{ConnectError, ConnectParams, Meeting, Peer, Retry, closed};
use crate::engine::Engine;
use crate::engine::endpoint::Endpoint;
use crate::engine::gid::Gid;
use crate::engine::numbers::{Number, PSN_BITS, port_of};
use crate::engine::options::Options;
use crate::engine::sync::Mutex;
use crate::engine::tasks::{Task, Tasks};
use crate::engine::timers::Alarm;
use crate::port::Port;
use crate::report;
use crate::wire::iwarp::link::Link;
use crate::wire::iwarp::rendezvous::RendezvousListeners;
use crate::wire::iwarp::rendezvous::introduction::{Answer, Introduction, Secret, reason};
use crate::wire::iwarp::rendezvous::listener::send_away;
use crate::wire::iwarp::rendezvous::proof::{Claim, Opening, PROOF, Party, Side, TAG, Tries};
use crate::wire::iwarp::rendezvous::roce_probe::RoceProbe;
use crate::wire::iwarp::rendezvous::unproven::{Moved, Proving, UnprovenPeers, Waiting};
use crate::wire::iwarp::rendezvous::users::{self, Unwelcome};
use crate::wire::iwarp::rendezvous::wait::{LOOK, WaitedTime};
use crate::wire::iwarp::startup::line::{Answering, Calling, Line, Served, operate};
use crate::wire::iwarp::startup::terms::terms;

/// The time that the higher end leaves it to the lower one to connect.
const PRECEDENCE: Duration = Duration::from_millis(2);
/// The time that an end waits for its own secret, which programs say as their next step if they do.
const STEP: Duration = Duration::from_millis(2);
/// The time that an attempt that proves the peer's secret goes on when our own is there: a peer
/// that is in RTR knows the latter only.
const OUTDATED: Duration = Duration::from_millis(20);
/// Pause after the first refusal, doubled after each further one.
const FIRST_PAUSE: Duration = Duration::from_micros(250);
/// The longest pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);
/// The time that an attempt of our own is put off while an unproven peer is about to prove that it
/// is the peer.
const DEFERENCE: Duration = Duration::from_millis(200);

/// One queue pair, and how it comes to its connection. All of this happens under one lock, by the
/// program's thread or the worker's; nothing here is called with the queue pair's own lock held.
pub(crate) struct Rendezvous {
    rendezvous: Arc<RendezvousListeners>,
    endpoint: Arc<Endpoint>,
    pub(super) state: Mutex<MeetingState>,
    itself: Weak<Self>,
}

#[derive(Default)]
pub(super) struct MeetingState {
    /// Peers find the queue pair.
    listed: bool,
    retry: Retry,
    /// The peer that the program expects, from RTR on.
    pub(super) peer: Option<Peer>,
    /// Our own secret, from RTS on.
    psn: Option<u32>,
    /// The peer's claim of it, where there was a connection before.
    claim: Option<Claim>,
    /// The way there, while there is no connection.
    pub(super) search: Option<Search>,
    /// Connections that are not known to be the peer's.
    unproven: UnprovenPeers,
    tries: Tries,
    /// The user was told that a stranger is where the peer should be.
    reported: bool,
}

pub(super) struct Search {
    /// True if this end's own connection wins over the peer's.
    leads: bool,
    attempt: Option<Attempt>,
    /// When to try next, if no attempt is under way.
    next: Time,
    pause: Duration,
    /// The time that work has been waiting.
    waited: WaitedTime,
    /// The outcome of the last attempt, or the fault if that is known.
    failure: Option<String>,
    /// Present while it is not known what the peer speaks.
    pub(super) question: Option<RoceProbe>,
    timer: Option<Alarm>,
}

struct Attempt {
    secret: Secret,
    deadline: Time,
    stage: Stage,
}

enum Stage {
    Calling {
        calling: Calling,
        /// Until the answer is there.
        opening: Box<Opening>,
        /// The request that was said.
        request: Vec<u8>,
    },
    /// The peer has proven to be the peer. It is told so unless a connection of its own is due to
    /// win.
    Held(Held),
}

struct Held {
    line: Line,
    terms: Negotiated,
    proof: [u8; PROOF],
    /// Present if this end did not know its own secret.
    claim: Option<Claim>,
}

impl Search {
    /// Keeps an earlier finding that the numbers differ: it says more than the outcome of later
    /// attempts.
    fn note(&mut self, failure: String) {
        if self.failure.as_deref() != Some(UNPROVEN) {
            self.failure = Some(failure);
        }
    }
}

impl Attempt {
    /// True if there is a connection.
    fn is_connected(&self) -> bool {
        match &self.stage {
            Stage::Calling { calling, .. } => calling.is_connected(),
            Stage::Held(_) => true,
        }
    }
}

impl fmt::Debug for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rendezvous").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Meeting for Rendezvous {
    /// The program says whom it expects: peers find the queue pair, but have to wait.
    fn list(self: Arc<Self>, peer: &Peer) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.listed && !self.is_itself(peer) {
            self.rendezvous.list(&self, peer.own_addr())?;
            state.listed = true;
        }
        Ok(())
    }

    /// The queue pair is in RTR: finds the peer. Returns at once.
    fn seek(self: Arc<Self>, peer: &Peer) -> io::Result<()> {
        let mut state = self.state.lock();
        state.peer = Some(Peer { psn: peer.psn & PSN_BITS, ..*peer });
        if self.is_itself(peer) {
            return self.meet_itself(peer);
        }
        let ours = (Gid::raw_of(peer.local), self.number().value());
        let leads = ours < (Gid::raw_of(peer.gid), peer.qpn);
        state.search = Some(Search {
            leads,
            attempt: None,
            next: self.now().plus(STEP).plus(if leads { Duration::ZERO } else { PRECEDENCE }),
            pause: FIRST_PAUSE,
            waited: WaitedTime::default(),
            failure: None,
            question: self.question(),
            timer: None,
        });
        self.go_on(&mut state);
        Ok(())
    }

    /// The queue pair is in RTS: this is the number that its packets start from, 24 bits.
    fn tell_psn(&self, psn: u32) {
        let mut state = self.state.lock();
        if state.psn.replace(psn).is_some() {
            return;
        }
        let claim = state.claim.take();
        if let Some(peer) = state.peer {
            let is_mistaken = claim.map_or_else(
                || peer.psn != psn && self.is_itself(&peer),
                |claim| !claim.is_about(psn),
            );
            if is_mistaken {
                self.report(&mut state, &peer, UNPROVEN);
                return self.endpoint.mistaken();
            }
        }
        if let Some(search) = &mut state.search {
            let now = self.now();
            self.ask_soon(search);
            match &mut search.attempt {
                Some(attempt) if attempt.secret == Secret::Responders => {
                    attempt.deadline = attempt.deadline.min(now.plus(OUTDATED));
                }
                Some(_) => {}
                None => {
                    let first = if search.leads { now } else { now.plus(PRECEDENCE) };
                    search.next = search.next.min(first);
                }
            }
        }
        self.serve(&mut state);
        self.go_on(&mut state);
    }

    /// The queue pair is in RESET or ERR, or gone: it takes no connection and makes none.
    fn withdraw(&self) {
        let mut state = self.state.lock();
        if state.listed {
            self.rendezvous.withdraw(self);
            state.listed = false;
        }
        state.peer = None;
        state.psn = None;
        state.claim = None;
        self.end_search(&mut state);
    }

    /// The peer that the program expects.
    fn peer(&self) -> Option<Peer> {
        self.state.lock().peer
    }

    /// Sets how long work waits for the connection.
    fn set_retry(&self, retry: Retry) {
        let mut state = self.state.lock();
        state.retry = retry;
        self.go_on(&mut state);
    }
}

impl Rendezvous {
    pub(crate) fn new(
        rendezvous: &Arc<RendezvousListeners>,
        endpoint: &Arc<Endpoint>,
    ) -> Arc<Self> {
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

    pub(super) const fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    pub(super) fn itself(&self) -> Weak<Self> {
        self.itself.clone()
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.endpoint.engine
    }

    fn options(&self) -> &Options {
        &self.endpoint.profile.options
    }

    pub(super) fn now(&self) -> Time {
        self.engine().timers.now()
    }

    fn tasks(&self) -> &Tasks {
        self.engine().worker.tasks()
    }

    /// Ends the search, and sends all unproven peers away.
    pub(super) fn end_search(&self, state: &mut MeetingState) {
        self.drop_search(state.search.take());
        state.unproven.send_all_away(&self.endpoint.engine);
    }

    /// A peer wants the connection. Called by the worker.
    pub(crate) fn called_on(
        self: &Arc<Self>,
        introduction: &Introduction,
        words: Vec<u8>,
        mut answering: Answering,
    ) {
        answering.is_for(self.options());
        let mut state = self.state.lock();
        let sought = state.listed && state.search.is_some();
        let Some(peer) = state.peer.filter(|_| sought) else {
            return send_away(answering, "it has a connection, or wants none yet");
        };
        let ends = answering.ends();
        if introduction.from != peer.qpn
            || answering.peer_ip() != peer.gid
            || ends.local.map(|addr| addr.ip().to_canonical()) != Some(peer.local)
        {
            return send_away(answering, "it expects another peer, or at another address");
        }
        if let Err(unwelcome) = self.check_user(ends.peer, ends.local) {
            if unwelcome.is_somebody() {
                self.report(&mut state, &peer, &unwelcome.to_string());
                return send_away(answering, "it is another user's");
            }
            return send_away(answering, "it was given up by the peer");
        }
        if !state.unproven.make_room(self.tasks(), self.now()) {
            return send_away(answering, "too many came at once");
        }
        let Introduction { secret, share, .. } = *introduction;
        let waiting = Waiting { answering, secret, share, words };
        if let Err(error) = state.unproven.keep(&self.itself, self.tasks(), self.now(), waiting) {
            report!(WARN, %error, "a connection cannot be kept");
        }
        self.serve(&mut state);
        self.go_on(&mut state);
    }

    /// Answers the requests that can be answered, unless our own attempt may still win.
    fn serve(&self, state: &mut MeetingState) {
        let Some(peer) = state.peer else { return };
        let Some(search) = &mut state.search else { return };
        if search.leads && search.attempt.as_ref().is_some_and(Attempt::is_connected) {
            return;
        }
        let tasks = self.tasks();
        let (now, told) = (self.now(), state.psn.is_some());
        while let Some(waiting) = state.unproven.next_waiting(tasks, now, told) {
            let secrets = match (waiting.secret, state.psn) {
                (Secret::Responders, Some(psn)) => (psn, Some(peer.psn)),
                (_, psn) => (peer.psn, psn),
            };
            if !state.tries.take(self.now()) {
                send_away(waiting.answering, "too many have failed to prove what they know");
                continue;
            }
            let answered = self.answer(waiting, secrets, &peer);
            let kept = answered.and_then(|proving| {
                Ok(state.unproven.expect(&self.itself, tasks, self.now(), proving)?)
            });
            if let Err(error) = kept {
                tracing::debug!(%error, "a peer that came to a queue pair cannot be answered");
            }
        }
    }

    /// Agrees on a key by the one secret and claims the other, if it is known.
    fn answer(
        &self,
        waiting: Waiting,
        (secret, other): (u32, Option<u32>),
        peer: &Peer,
    ) -> Result<Proving, ConnectError> {
        let Waiting { answering, share, words, .. } = waiting;
        let opening = Opening::new(Side::Responder, secret, &peer.party(), &self.party(peer))?;
        let mut said = Answer::begin(&opening.share, other.is_some());
        let key =
            opening.finish(&share).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let tag = key.prove(Side::Responder, &words, &said);
        let claim = other.map(|psn| key.claim(Side::Responder, psn, &words, &said));
        said.extend(tag);
        said.extend(claim.iter().flatten());
        let (ird, ord) = (peer.ird, peer.ord);
        let params = ConnectParams::new().private_data(said.clone()).ird(ird).ord(ord);
        Ok(Proving::new(answering.reply(&params)?, key, words, said))
    }

    /// Something has come from an unproven peer, or it has closed.
    pub(crate) fn unproven_moved(&self, serial: u64) {
        let mut state = self.state.lock();
        let (line, terms, claim) = match state.unproven.moved(self.tasks(), serial) {
            Moved::No => return,
            Moved::Gone(why) => {
                report!(
                    INFO,
                    qp = self.number().value(),
                    why,
                    "an unproven connection of a queue pair has ended"
                );
                return self.go_on(&mut state);
            }
            Moved::Proven(line, terms, claim) => (line, terms, claim),
        };
        self.admit(&mut state, line, &terms, claim);
    }

    /// An unproven peer has proven to be the peer.
    fn admit(&self, state: &mut MeetingState, line: Line, terms: &Negotiated, claim: Claim) {
        if let (Some(psn), Some(peer)) = (state.psn, state.peer)
            && !claim.is_about(psn)
        {
            if let Some(search) = &mut state.search {
                search.note(UNPROVEN.to_owned());
            }
            self.report(state, &peer, UNPROVEN);
            return self.go_on(state);
        }
        match operate(line, &self.engine().options) {
            Ok(stream) => self.met(state, stream, terms, Some(claim)),
            Err(error) => {
                if let Some(search) = &mut state.search {
                    search.note(error.to_string());
                }
                self.go_on(state);
            }
        }
    }

    /// Does what is due now and sees to it that the rest is done in time.
    fn go_on(&self, state: &mut MeetingState) {
        let Some(peer) = state.peer else { return };
        let limit = state.retry.limit();
        let Some(search) = &mut state.search else { return };
        let now = self.now();
        let waits = self.endpoint.with(|core| core.outstanding().0 > 0);
        let waited = search.waited.look(waits, now);
        // A connection is under way, so somebody is there.
        let is_met = state.unproven.any_proving()
            || search.attempt.as_ref().is_some_and(Attempt::is_connected);
        let more = if is_met { self.engine().options.startup_timeout } else { Duration::ZERO };
        let left = limit.filter(|_| waits).map(|limit| (limit + more).saturating_sub(waited));
        if left.is_some_and(|left| left.is_zero()) {
            return self.give_up(state, &peer);
        }
        let end = left.map(|left| now.plus(left));
        if let Some((line, terms, claim)) = state.unproven.expire(self.tasks(), now) {
            return self.admit(state, line, &terms, claim);
        }
        if search.attempt.as_ref().is_some_and(|attempt| now >= attempt.deadline) {
            self.failed(search, "no answer".to_owned());
        }
        let busy = state.unproven.any_proving();
        if let Some(held) = self.take_held(search, busy) {
            return self.conclude(state, held);
        }
        if self.ask(search, &peer) {
            return self.choose_roce(state, &peer);
        }
        let due = if busy { search.next.plus(DEFERENCE) } else { search.next };
        if search.attempt.is_none() && now >= due {
            match self.try_once(&peer, state.psn) {
                Ok(attempt) => search.attempt = Some(attempt),
                Err(error) => self.failed(search, error.to_string()),
            }
        }
        let step = search.attempt.as_ref().map_or(due.max(search.next), |attempt| attempt.deadline);
        let asks = search.question.as_ref().map_or(step, RoceProbe::due);
        let held = state.unproven.next_due(now).unwrap_or(step);
        let at = step.min(now.plus(LOOK)).min(end.unwrap_or(step)).min(asks).min(held);
        let weak = self.itself.clone();
        let tick = move || {
            if let Some(meeting) = weak.upgrade() {
                meeting.tick();
            }
        };
        search.timer = Some(self.engine().timers.at(at, Box::new(tick)));
    }

    fn tick(&self) {
        let mut state = self.state.lock();
        self.go_on(&mut state);
        // The connection that was kept for the case that our own attempt fails.
        self.serve(&mut state);
    }

    fn try_once(&self, peer: &Peer, psn: Option<u32>) -> Result<Attempt, ConnectError> {
        let engine = self.engine();
        let config = RendezvousListeners::startup(self.options(), peer.ird, peer.ord);
        // Within the host a refusal comes at once: there is no need to think of a share first.
        let port = engine.network.connect(Some(peer.origin()), peer.addr(), None)?;
        let (secret, value) = match psn {
            Some(psn) => (Secret::Initiators, psn),
            None => (Secret::Responders, peer.psn),
        };
        let (ours, theirs) = (self.party(peer), peer.party());
        let opening = Box::new(Opening::new(Side::Initiator, value, &ours, &theirs)?);
        let (from, to, share) = (self.number().value(), peer.qpn, opening.share);
        let request = Introduction { secret, from, to, share }.encode();
        let itself = self.itself.upgrade().ok_or_else(closed)?;
        let served = Served::ByWorker(itself);
        let calling = Calling::start(engine, port, config, &request, served)?;
        let deadline = self.now().plus(engine.options.startup_timeout);
        Ok(Attempt { secret, deadline, stage: Stage::Calling { calling, opening, request } })
    }

    /// An attempt came to nothing: there will be another.
    fn failed(&self, search: &mut Search, why: String) {
        let attempt = search.attempt.take();
        self.drop_attempt(attempt);
        search.note(why);
        search.next = self.now().plus(search.pause);
        search.pause = (search.pause * 2).min(PAUSE);
    }

    /// The peer's answer is there, if it is the peer.
    fn answered(&self, state: &mut MeetingState, peer: &Peer, reply: Reply) {
        let Some(search) = &mut state.search else { return };
        if !reply.accepted {
            return self.failed(search, reason(&reply.private_data).to_owned());
        }
        let Some(Attempt { secret, deadline, stage }) = search.attempt.take() else { return };
        let Stage::Calling { calling, opening, request } = stage else { return };
        let line = calling.leave(&self.engine().worker);
        let said = reply.private_data;
        let Some(answer) = Answer::parse(&said) else {
            return self.failed(search, "something else answers there".to_owned());
        };
        let key = opening.finish(&answer.share);
        let begun = &said[..Answer::SAID];
        let proven = key.filter(|key| key.is_proven(&answer.tag, Side::Responder, &request, begun));
        let Some(key) = proven else {
            self.failed(search, UNPROVEN.to_owned());
            return self.report(state, peer, UNPROVEN);
        };
        let tag = key.prove(Side::Initiator, &request, &said);
        let claim = key.claim(Side::Initiator, peer.psn, &request, &said);
        let proof = std::array::from_fn(|at| if at < TAG { tag[at] } else { claim[at - TAG] });
        // The number that the key is not about: as this end knows it, if it does.
        let other = match secret {
            Secret::Initiators => Some(peer.psn),
            Secret::Responders => state.psn,
        };
        let theirs = answer.claim.map(|tag| {
            let (side, reply) = (Side::Responder, begun.to_vec());
            Claim { key, side, request, reply, tag }
        });
        let claim = match (theirs, other) {
            // The responder does not know its own number, and will look at ours when it does.
            (None, _) if secret == Secret::Initiators => None,
            (None, _) => return self.failed(search, "something else answers there".to_owned()),
            (Some(claim), None) => Some(claim),
            (Some(claim), Some(psn)) if claim.is_about(psn) => None,
            (Some(_), Some(_)) => {
                self.failed(search, UNPROVEN.to_owned());
                return self.report(state, peer, UNPROVEN);
            }
        };
        let ends = line.ends();
        if let Err(unwelcome) = self.check_user(ends.peer, ends.local) {
            self.failed(search, unwelcome.to_string());
            if unwelcome.is_somebody() {
                self.report(state, peer, &unwelcome.to_string());
            }
            return;
        }
        let stage = Stage::Held(Held { line, terms: reply.negotiated, proof, claim });
        search.attempt = Some(Attempt { secret, deadline, stage });
    }

    /// The connection of our own that the peer has answered, if it is to be the one: always at the
    /// end that leads; at the other one, which may have answered that end, when nothing comes of
    /// that.
    fn take_held(&self, search: &mut Search, busy: bool) -> Option<Held> {
        if busy && !search.leads {
            return None;
        }
        match search.attempt.take() {
            Some(Attempt { stage: Stage::Held(held), .. }) => Some(held),
            other => {
                search.attempt = other;
                None
            }
        }
    }

    fn conclude(&self, state: &mut MeetingState, held: Held) {
        let Held { line, terms, proof, claim } = held;
        if let (Some(psn), Some(claim), Some(peer)) = (state.psn, &claim, state.peer)
            && !claim.is_about(psn)
        {
            if let Some(search) = &mut state.search {
                self.failed(search, UNPROVEN.to_owned());
            }
            self.report(state, &peer, UNPROVEN);
            return self.go_on(state);
        }
        // The peer does not wait for ever, and this process may have slept since it answered.
        let is_there = if line.is_quiet() { Ok(()) } else { Err(closed()) };
        line.set_aside(true, proof.len());
        let sent = is_there.and_then(|()| line.send(&proof));
        match sent.and_then(|()| operate(line, &self.engine().options)) {
            Ok(stream) => self.met(state, stream, &terms, claim),
            Err(error) => {
                if let Some(search) = &mut state.search {
                    self.failed(search, error.to_string());
                }
                self.go_on(state);
            }
        }
    }

    /// Checks that the process at the other end of a connection may have it.
    fn check_user(&self, theirs: SocketAddr, ours: Option<SocketAddr>) -> Result<(), Unwelcome> {
        let ours = ours.ok_or(Unwelcome::Gone)?;
        let engine = self.engine();
        users::check(&*engine.network, &engine.options.allow_users, theirs, ours)
    }

    /// Tells the user, once, that a stranger is in the peer's place.
    fn report(&self, state: &mut MeetingState, peer: &Peer, what: &str) {
        let own = self.number().value();
        let (gid, qpn) = (peer.gid, peer.qpn);
        report!(INFO, qp = own, peer = qpn, %gid, what, "a stranger answers in place of the peer");
        if !std::mem::replace(&mut state.reported, true) {
            report!(
                WARN,
                "queue pair {own:#08x} at {} and its peer {qpn:#08x} at {gid}: {what}",
                peer.local,
            );
        }
    }

    /// There is a connection. The peer's claim is still to be judged if this end has not been told
    /// its own number.
    fn met(
        &self,
        state: &mut MeetingState,
        stream: Box<dyn Port>,
        terms: &Negotiated,
        claim: Option<Claim>,
    ) {
        self.end_search(state);
        state.claim = claim.filter(|_| state.psn.is_none());
        let peer_qp = state.peer.map_or_else(|| self.number().value(), |peer| peer.qpn);
        if let Err(error) = Link::attach_in_place(&self.endpoint, stream, terms, peer_qp) {
            report!(WARN, %error, "a queue pair's connection cannot be served");
            // No other one would be looked for.
            self.endpoint.unreachable();
        }
    }

    fn give_up(&self, state: &mut MeetingState, peer: &Peer) {
        let Some(search) = state.search.take() else { return };
        let failure = search.failure.clone().unwrap_or_else(|| "no answer".to_owned());
        let asked = search.question.is_some().then_some(", nor did it answer to RoCE v2");
        self.drop_search(Some(search));
        self.end_search(state);
        let own = self.number().value();
        report!(
            WARN,
            "queue pair {own:#08x} at {} and its peer {:#08x} at {} could not meet: connecting to \
             {}: {failure}; the peer did not connect to port {} here{}",
            peer.local,
            peer.qpn,
            peer.gid,
            peer.addr(),
            port_of(own),
            asked.unwrap_or_default(),
        );
        self.endpoint.unreachable();
    }

    /// True if the queue pair is its own peer. No other on this host has its number.
    fn is_itself(&self, peer: &Peer) -> bool {
        let here = |ip: IpAddr| {
            ip == peer.local
                || ip.is_loopback()
                || self
                    .engine()
                    .network
                    .source_for(SocketAddr::new(ip, 0))
                    .is_ok_and(|own| own == ip)
        };
        peer.qpn == self.number().value() && here(peer.gid)
    }

    fn meet_itself(&self, peer: &Peer) -> io::Result<()> {
        let port = self.engine().network.looped(peer.local, peer.scope)?;
        let options = self.options();
        let depth = peer.ird.min(peer.ord);
        let spare = terms(options, peer.ird, peer.ord).spare;
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
        let stream = operate(Line::new(port), options)?;
        Link::attach_in_place(&self.endpoint, stream, &terms, peer.qpn)
    }

    fn drop_search(&self, search: Option<Search>) {
        if let Some(search) = search {
            if search.question.is_some() {
                self.endpoint.stop_listening();
            }
            self.drop_attempt(search.attempt);
        }
    }

    fn drop_attempt(&self, attempt: Option<Attempt>) {
        if let Some(Attempt { stage: Stage::Calling { calling, .. }, .. }) = attempt {
            drop(calling.leave(&self.engine().worker));
        }
    }

    fn party(&self, peer: &Peer) -> Party {
        Party { gid: peer.local, qpn: self.number().value() }
    }
}

/// The secrets differ.
const UNPROVEN: &str = "what answers there does not know what the two programs have told each \
                        other: rq_psn of each must be sq_psn of the other";

impl Task for Rendezvous {
    /// The attempt goes on.
    fn ready(&self, _: Ready) {
        let mut state = self.state.lock();
        let Some(peer) = state.peer else { return };
        let Some(search) = &mut state.search else { return };
        let Some(Stage::Calling { calling, .. }) = search.attempt.as_mut().map(|at| &mut at.stage)
        else {
            return;
        };
        match calling.advance(&self.engine().worker) {
            Ok(None) => return,
            Ok(Some(reply)) => self.answered(&mut state, &peer, reply),
            Err(error) => self.failed(search, error.to_string()),
        }
        self.serve(&mut state);
        self.go_on(&mut state);
    }
}
