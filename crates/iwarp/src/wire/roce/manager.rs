// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connection manager over management datagrams, and the threads and timers that drive it.
//!
//! The protocol ([`iwarp_roce::cm::Manager`]) does nothing by itself. Datagrams come from the
//! worker, calls from any thread, and time from a timer; each has the protocol locked for a moment.
//! The results, datagrams and news for programs, are handed on by one thread at a time and without
//! that lock, in the order in which they came about.

mod carrier;
mod communication;
mod grants;
mod random;
#[cfg(all(test, not(model)))]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Weak};

use iwarp_roce::cm::{
    CallError, CommId, EventKind, Listen, ListenerId, MAD_LEN, Manager, Request, ServiceId,
    Settings,
};
use iwarp_roce::wire::{Mtu, Path};
use iwarp_types::Time;

pub(crate) use self::carrier::Carrier;
pub(crate) use self::communication::{Communication, Listening};
use self::grants::Grants;
use self::random::SystemRandom;
use crate::engine::clock::now;
use crate::engine::sync::Mutex;
use crate::engine::timers::{Alarm, Timers};
use crate::wire::roce::gsi::MadHandler;

impl MadHandler for ConnectionManager {
    fn received(&self, path: &Path, mad: &[u8; MAD_LEN], _unclaimed: bool) {
        self.receive(path, mad);
    }

    fn listening(&self, service: u64, granted: bool) {
        self.grants.settle(service, granted);
    }

    fn rest(self: Arc<Self>) -> bool {
        let cells = {
            let state = self.state.lock();
            if !state.is_idle() {
                return false;
            }
            state.cells.clone()
        };
        drop(self);
        for cell in cells.iter().filter_map(Weak::upgrade) {
            let mut cell = cell.0.lock();
            let unused = cell.as_ref().is_some_and(Membership::is_unused);
            let unused = if unused { cell.take() } else { None };
            drop(cell);
            // Without the lock: it has the manager end.
            drop(unused);
        }
        true
    }
}

/// The cell in which an engine keeps the one that it uses, once it does.
#[derive(Debug, Default)]
pub(crate) struct ManagerCell(Mutex<Option<Membership>>);

impl ManagerCell {
    /// The one that is used, or what `find` finds, which is used from now on.
    pub(crate) fn get(
        self: &Arc<Self>,
        timers: &Timers,
        find: impl FnOnce() -> io::Result<Arc<ConnectionManager>>,
    ) -> io::Result<Arc<ConnectionManager>> {
        let mut kept = self.0.lock();
        if let Some(membership) = &*kept {
            return Ok(Arc::clone(&membership.manager));
        }
        let manager = find()?;
        let number = manager.enter(timers, Arc::downgrade(self));
        *kept = Some(Membership { manager: Arc::clone(&manager), number });
        Ok(manager)
    }
}

/// News kept of a communication that no party hears yet; an end that has more to say is broken.
const MOST_EARLY: usize = 8;

/// Hears what becomes of a communication. Called without a lock, by any thread.
pub(crate) trait Party: Send + Sync {
    /// Something happened.
    fn happened(self: Arc<Self>, what: EventKind);
}

/// Hears what peers ask for at a listener. Called as a [`Party`] is.
pub(crate) trait Host: Send + Sync {
    /// A peer asks. Dropping the communication refuses.
    fn requested(self: Arc<Self>, communication: Communication, request: Box<Request>);
}

/// See the [module](self).
///
/// There is one for all devices of a process that share the port: the times of all go by the
/// [`Timers`] of any that is there.
pub(crate) struct ConnectionManager {
    itself: Weak<Self>,
    carrier: Arc<dyn Carrier>,
    state: Mutex<ManagerState>,
    grants: Grants,
}

/// A device's part in it.
#[derive(Debug)]
struct Membership {
    manager: Arc<ConnectionManager>,
    number: u64,
}

impl Membership {
    /// True if only devices keep the manager.
    fn is_unused(&self) -> bool {
        let state = self.manager.state.lock();
        state.is_idle() && Arc::strong_count(&self.manager) == state.timers.len()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.manager.leave(self.number);
    }
}

struct ManagerState {
    protocol: Manager<SystemRandom>,
    audience: HashMap<CommId, Audience>,
    hosts: HashMap<ListenerId, Weak<dyn Host>>,
    /// The number of listeners of each service, of those that the carrier was told of.
    services: HashMap<u64, usize>,
    /// Timers of the devices that use it.
    timers: Vec<(u64, Timers)>,
    members: u64,
    /// The cells in which they keep it.
    cells: Vec<Weak<ManagerCell>>,
    alarm: Option<(Time, Alarm)>,
    outgoing: VecDeque<Outgoing>,
    /// Some thread hands on what is outgoing.
    handing_on: bool,
}

/// The party that hears of a communication.
enum Audience {
    /// None yet: the news that it is to hear first.
    Expected(Vec<EventKind>),
    Here(Weak<dyn Party>),
}

enum Outgoing {
    Datagram(Box<(Path, [u8; MAD_LEN])>),
    News(Weak<dyn Party>, Box<EventKind>),
    Request(Weak<dyn Host>, Communication, Box<Request>),
}

impl std::fmt::Debug for ConnectionManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionManager").finish_non_exhaustive()
    }
}

impl ConnectionManager {
    pub(crate) fn new(carrier: Arc<dyn Carrier>, settings: Settings) -> Arc<Self> {
        let state = ManagerState {
            protocol: Manager::new(settings, SystemRandom::new()),
            audience: HashMap::new(),
            hosts: HashMap::new(),
            services: HashMap::new(),
            timers: Vec::new(),
            members: 0,
            cells: Vec::new(),
            alarm: None,
            outgoing: VecDeque::new(),
            handing_on: false,
        };
        Arc::new_cyclic(|itself| Self {
            itself: Weak::clone(itself),
            carrier,
            state: Mutex::new(state),
            grants: Grants::default(),
        })
    }

    /// A device uses it from now on.
    fn enter(&self, timers: &Timers, cell: Weak<ManagerCell>) -> u64 {
        let mut state = self.state.lock();
        state.cells.retain(|other| other.strong_count() > 0);
        state.cells.push(cell);
        state.members += 1;
        let number = state.members;
        state.timers.push((number, timers.clone()));
        number
    }

    /// A device is closed: another's worker keeps the times.
    fn leave(&self, number: u64) {
        let mut state = self.state.lock();
        state.timers.retain(|(other, _)| *other != number);
        let before = state.alarm.take();
        self.set_alarm(&mut state);
        drop(state);
        drop(before);
        self.hand_on();
    }

    /// A datagram has come to queue pair 1; the source of the path is its sender.
    pub(crate) fn receive(&self, path: &Path, mad: &[u8; MAD_LEN]) {
        self.run(|state, now| state.protocol.receive(mad, path, now));
    }

    /// Finds out the path MTU of each own address.
    pub(crate) fn look_at_interfaces(&self) {
        let Ok(interfaces) = iwarp_os::addr::interfaces() else { return };
        let mut state = self.state.lock();
        for interface in &interfaces {
            let Some(mtu) = interface.mtu.map(Mtu::of_interface) else { continue };
            for address in &interface.addrs {
                state.protocol.set_mtu(address.ip, Some(mtu));
            }
        }
    }

    /// Connections and questions that are not forgotten yet.
    #[cfg(all(test, not(model)))]
    pub(crate) fn len(&self) -> usize {
        self.state.lock().protocol.len()
    }

    /// When something is due.
    #[cfg(all(test, not(model)))]
    fn next_timeout(&self) -> Option<Time> {
        self.state.lock().protocol.next_timeout()
    }

    /// True if nothing is remembered of any peer.
    #[cfg(all(test, not(model)))]
    pub(crate) fn is_clean(&self) -> bool {
        let state = self.state.lock();
        state.protocol.is_clean() && state.audience.is_empty() && state.outgoing.is_empty()
    }

    /// True if none of them has anything left to hand on. All are looked at together: one that
    /// hands on makes work for another.
    #[cfg(all(test, not(model)))]
    fn all_is_handed_on(managers: &[Arc<Self>]) -> bool {
        let states: Vec<_> = managers.iter().map(|manager| manager.state.lock()).collect();
        states.iter().all(|state| state.outgoing.is_empty() && !state.handing_on)
    }

    /// Requests for a service are told to `host` from now on. Waits until the other processes of
    /// this host know, which takes no longer than the carrier allows.
    ///
    /// # Errors
    ///
    /// `AddrInUse` where another listens; others from the carrier.
    pub(crate) fn listen(
        self: &Arc<Self>,
        listen: &Listen,
        host: Weak<dyn Host>,
    ) -> io::Result<Listening> {
        let service = listen.service;
        let listener = self.run(|state, _| {
            let listener = state.protocol.listen(listen).map_err(error_of)?;
            state.hosts.insert(listener, host);
            *state.services.entry(service.0).or_default() += 1;
            io::Result::Ok(listener)
        })?;
        let listening = Listening::new(Arc::clone(self), listener, service);
        let waits = self.state.lock().has_threads();
        self.grants.ask(&*self.carrier, service.0, waits)?;
        Ok(listening)
    }

    fn unlisten(&self, listener: ListenerId, service: ServiceId) {
        let is_last = self.run_in_passing(|state, _| {
            state.protocol.unlisten(listener);
            state.hosts.remove(&listener);
            let Some(count) = state.services.get_mut(&service.0) else { return false };
            *count -= 1;
            let is_last = *count == 0;
            if is_last {
                state.services.remove(&service.0);
            }
            is_last
        });
        if is_last {
            self.carrier.unlisten(service.0);
        }
    }

    /// Begins a communication of this end's, of which `party` hears.
    fn begin(
        self: &Arc<Self>,
        party: Weak<dyn Party>,
        call: impl FnOnce(&mut Manager<SystemRandom>, Time) -> Result<CommId, CallError>,
    ) -> io::Result<Communication> {
        let id = self.run(|state, now| {
            state.audience.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
            let id = call(&mut state.protocol, now).map_err(error_of)?;
            state.audience.insert(id, Audience::Here(party));
            io::Result::Ok(id)
        })?;
        Ok(Communication::new(Arc::clone(self), id))
    }

    /// Does something with the protocol, and hands on what comes of it.
    fn run<R>(&self, work: impl FnOnce(&mut ManagerState, Time) -> R) -> R {
        let result = self.decide(work);
        self.hand_on();
        result
    }

    /// As [`Self::run`], for threads that may hold a lock: the worker hands on.
    fn run_in_passing<R>(&self, work: impl FnOnce(&mut ManagerState, Time) -> R) -> R {
        let result = self.decide(work);
        let timers = self.state.lock().timers.first().map(|(_, timers)| timers.clone());
        if let Some(timers) = timers {
            let weak = Weak::clone(&self.itself);
            timers.soon(Box::new(move || {
                if let Some(manager) = weak.upgrade() {
                    manager.hand_on();
                }
            }));
        }
        result
    }

    fn decide<R>(&self, work: impl FnOnce(&mut ManagerState, Time) -> R) -> R {
        let mut state = self.state.lock();
        let now = state.timers.first().map_or_else(now, |(_, timers)| timers.now());
        let result = work(&mut state, now);
        state.take_out(&self.itself, now);
        self.set_alarm(&mut state);
        let idle = state.is_idle();
        drop(state);
        if idle {
            self.carrier.idle();
        }
        result
    }

    /// Has the protocol called when it next wants to be. An alarm that comes too early does no
    /// harm.
    fn set_alarm(&self, state: &mut ManagerState) {
        let Some(due) = state.protocol.next_timeout() else { return };
        if state.alarm.as_ref().is_some_and(|(at, _)| *at <= due) {
            return;
        }
        let weak = Weak::clone(&self.itself);
        let ring = move || {
            if let Some(manager) = weak.upgrade() {
                manager.run(|state, now| {
                    state.alarm = None;
                    state.protocol.advance(now);
                });
            }
        };
        let timers = state.timers.first().map(|(_, timers)| timers.clone());
        state.alarm = timers.map(|timers| (due, timers.at(due, Box::new(ring))));
    }

    /// Hands on what is outgoing, unless another thread is at it.
    fn hand_on(&self) {
        let mut mine = false;
        loop {
            let mut state = self.state.lock();
            if state.handing_on && !mine {
                return;
            }
            let next = state.outgoing.pop_front();
            state.handing_on = next.is_some();
            drop(state);
            mine = true;
            match next {
                None => return,
                Some(Outgoing::Datagram(datagram)) => {
                    let (path, mad) = &*datagram;
                    self.carrier.send(path, mad);
                }
                Some(Outgoing::News(party, what)) => {
                    if let Some(party) = party.upgrade() {
                        party.happened(*what);
                    }
                }
                Some(Outgoing::Request(host, communication, request)) => {
                    if let Some(host) = host.upgrade() {
                        host.requested(communication, request);
                    }
                }
            }
        }
    }
}

impl ManagerState {
    /// True if it waits for no peer, and no peer can want anything of it.
    fn is_idle(&self) -> bool {
        self.protocol.is_empty() && self.hosts.is_empty() && self.audience.is_empty()
    }

    /// True if threads keep the times, so that something happens while a caller waits.
    fn has_threads(&self) -> bool {
        self.timers.iter().any(|(_, timers)| timers.has_thread())
    }

    /// Takes out of the protocol what is to be handed on.
    fn take_out(&mut self, manager: &Weak<ConnectionManager>, now: Time) {
        while let Some(event) = self.protocol.poll_event() {
            let id = event.id;
            match event.kind {
                EventKind::ConnectRequest(request) => {
                    let host = self.hosts.get(&request.listener).cloned();
                    let (Some(host), Some(manager)) = (host, manager.upgrade()) else {
                        self.protocol.close(id, now);
                        continue;
                    };
                    self.audience.insert(id, Audience::Expected(Vec::new()));
                    let communication = Communication::new(manager, id);
                    self.outgoing.push_back(Outgoing::Request(host, communication, request));
                }
                what => self.tell(id, what),
            }
        }
        while let Some(datagram) = self.protocol.poll_transmit() {
            self.outgoing.push_back(Outgoing::Datagram(Box::new(datagram)));
        }
    }

    fn tell(&mut self, id: CommId, what: EventKind) {
        match self.audience.get_mut(&id) {
            Some(Audience::Here(party)) => {
                self.outgoing.push_back(Outgoing::News(Weak::clone(party), Box::new(what)));
            }
            Some(Audience::Expected(early)) if early.len() < MOST_EARLY => early.push(what),
            Some(Audience::Expected(_)) | None => {}
        }
    }

    /// From now on `party` hears of a communication, first of what has happened already.
    fn introduce(&mut self, id: CommId, party: Weak<dyn Party>) {
        let before = self.audience.insert(id, Audience::Here(Weak::clone(&party)));
        if let Some(Audience::Expected(early)) = before {
            let news = |what| Outgoing::News(Weak::clone(&party), Box::new(what));
            self.outgoing.extend(early.into_iter().map(news));
        }
    }
}

/// The error of a call, in the system's words.
fn error_of(error: CallError) -> io::Error {
    use io::ErrorKind;

    let kind = match error {
        CallError::Unknown => ErrorKind::NotConnected,
        CallError::ServiceInUse | CallError::QueuePairInUse => ErrorKind::AddrInUse,
        CallError::State
        | CallError::PrivateData(_)
        | CallError::QueuePair
        | CallError::Invalid => ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}
