// SPDX-License-Identifier: MIT OR Apache-2.0

//! The manager: applies messages, calls and time to the connections.

mod calls;
mod datagrams;
mod inbound;
mod request;
mod timers;

use alloc::collections::{BTreeMap, VecDeque};
use core::net::IpAddr;
use core::time::Duration;

use iwarp_types::{QpId, Time};

use super::connection::{CmState, Patience, Retry};
use super::event::{CommId, Event, EventKind};
use super::listener::Listeners;
use super::mad::{MAD_LEN, Mad};
use super::message::PrivateData;
use super::settings::{Random, Settings};
use super::table::Table;
use super::time::TimeCode;
use super::vacancy::Vacancies;
use crate::wire::{Mtu, Path};

/// Datagrams that wait to be sent; further ones are lost, as on any network.
const MOST_OUTGOING: usize = 1024;
/// Draws for an id that is free.
const DRAWS: usize = 64;
/// Ids drawn last, which are not drawn again. Peers remember refusals and answers by them, and
/// would take a new message for a repeated one.
const RECENT: u64 = 1024;
/// Bounds of the time for which a peer says that it waits: 0.27 to 4.3 s.
const INTERVALS: (TimeCode, TimeCode) = (TimeCode::new(16), TimeCode::new(20));

/// All connections of one process.
///
/// After each call that may have changed something the caller takes out datagrams and events, and
/// sets its timer by [`Self::next_timeout`].
#[derive(Debug)]
pub struct Manager<R> {
    settings: Settings,
    random: R,
    recent: VecDeque<u32>,
    table: Table,
    listeners: Listeners,
    vacancies: Vacancies,
    outgoing: VecDeque<(Path, [u8; MAD_LEN])>,
    events: VecDeque<Event>,
    dropped: u64,
    /// Path MTUs of own addresses whose interface differs from the settings.
    mtus: BTreeMap<IpAddr, Mtu>,
}

impl<R: Random> Manager<R> {
    /// A manager without connections.
    pub fn new(settings: Settings, random: R) -> Self {
        Self {
            settings,
            random,
            recent: VecDeque::new(),
            table: Table::default(),
            listeners: Listeners::default(),
            vacancies: Vacancies::default(),
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
            dropped: 0,
            mtus: BTreeMap::new(),
        }
    }

    /// The settings with which it was made.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the facts told to ends of our own kind from now on.
    pub fn set_own_kind(&mut self, own_kind: Option<super::own_kind::OwnKind>) {
        self.settings.own_kind = own_kind;
    }

    /// Sets the largest path MTU of an own address, if its interface's is not [`Settings::mtu`];
    /// `None` takes that back.
    pub fn set_mtu(&mut self, address: IpAddr, mtu: Option<Mtu>) {
        let address = address.to_canonical();
        match mtu {
            Some(mtu) => self.mtus.insert(address, mtu),
            None => self.mtus.remove(&address),
        };
    }

    fn mtu(&self, address: IpAddr) -> Mtu {
        self.mtus.get(&address.to_canonical()).copied().unwrap_or(self.settings.mtu)
    }

    /// The next datagram to send, and the way that it goes.
    pub fn poll_transmit(&mut self) -> Option<(Path, [u8; MAD_LEN])> {
        self.outgoing.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Time at which [`Self::advance`] is due.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.table.next_deadline(), self.vacancies.next_deadline()].into_iter().flatten().min()
    }

    /// Connections, those in timewait included, SIDR requests, and answers that are kept.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// True if nothing at all is remembered: no connections, no slots taken by them, no untaken
    /// datagrams or events.
    #[doc(hidden)]
    pub fn is_clean(&self) -> bool {
        self.table.is_clean()
            && self.listeners.nobody_waits()
            && self.vacancies.nobody_waits()
            && self.outgoing.is_empty()
            && self.events.is_empty()
    }

    /// Number of datagrams that were no messages, or belonged to no connection.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// True if a queue pair has a connection, or one in timewait: its number must not be given to
    /// another queue pair, nor another connection to it (ROCE-149).
    pub fn holds(&self, qp: QpId) -> bool {
        self.table.by_qp(qp).is_some()
    }

    /// The queue pairs in timewait.
    pub fn timewait(&self) -> impl Iterator<Item = QpId> + '_ {
        self.table.timewait()
    }

    fn send(&mut self, way: Path, octets: [u8; MAD_LEN]) {
        if self.outgoing.len() < MOST_OUTGOING {
            self.outgoing.push_back((way, octets));
        }
    }

    fn answer(&mut self, way: Path, mad: &Mad) {
        self.send(way, mad.write());
    }

    fn tell(&mut self, event: Option<Event>) {
        self.events.extend(event);
    }

    /// An unused id, not in timewait either (ROCE-148), and not drawn a short time ago.
    fn fresh_id(&mut self) -> Option<u32> {
        let comm_ids = self.settings.comm_ids;
        let id = (0..DRAWS).find_map(|_| {
            let id = comm_ids.id(self.random.next());
            let rests = self.table.is_taken(id) || self.recent.contains(&id);
            (id != 0 && !rests).then_some(id)
        })?;
        // Half of the ids can always be drawn.
        let most = RECENT.min(comm_ids.count() / 2);
        self.recent.push_back(id);
        while self.recent.len() as u64 > most {
            self.recent.pop_front();
        }
        Some(id)
    }

    fn fresh_tid(&mut self, id: u32) -> u64 {
        u64::from(self.random.next()) << 32 | u64::from(id)
    }

    /// Puts a connection in a state, until `deadline` at most.
    fn enter(&mut self, id: u32, state: CmState, deadline: Option<Time>) {
        if let Some(connection) = self.table.get_mut(id) {
            connection.state = state;
        }
        self.table.set_deadline(id, deadline);
    }

    /// The wait for the program, for a peer that waits so long: its end, and the time at which the
    /// peer is to be asked for more (ROCE-162).
    fn await_program(&self, waits: Duration, now: Time) -> (Patience, Time) {
        let patience = Patience { asked: false, gone: self.gone(waits, now) };
        (patience, now.plus(waits / 2).min(patience.gone))
    }

    /// Time from which a peer that was heard `now` cannot be waiting any more.
    fn gone(&self, waits: Duration, now: Time) -> Time {
        let longest = self.settings.service_timeout.duration();
        now.plus(waits.min(longest)).plus(longest)
    }

    /// Ends the connection; its ids and queue pair are not used again for a while (ROCE-149).
    fn enter_timewait(&mut self, id: u32, now: Time) {
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.state = CmState::Timewait;
        connection.stored = None;
        let until = now.plus(connection.timewait());
        self.free_slot(id);
        self.table.release_remote_qp(id);
        self.table.set_deadline(id, Some(until));
    }

    fn forget(&mut self, id: u32) {
        self.free_slot(id);
        self.table.remove(id);
    }

    fn free_slot(&mut self, id: u32) {
        let slot = match self.table.get_mut(id) {
            Some(connection) => connection.slot.take(),
            None => self.table.sidr_mut(id).and_then(|sidr| sidr.slot.take()),
        };
        if let Some(slot) = slot {
            self.listeners.leave(slot);
        }
    }

    /// Sends a DREQ, again until there is an answer (ROCE-161).
    fn start_dreq(&mut self, id: u32, private_data: [u8; 220], now: Time) {
        let tid = self.fresh_tid(id);
        let retries = self.settings.retries();
        let Some(connection) = self.table.get_mut(id) else { return };
        let mad = connection.dreq(tid, private_data);
        let octets = connection.store(&mad);
        connection.state = CmState::DreqSent(Retry::new(retries));
        let (way, deadline) = (connection.way, now.plus(connection.interval));
        self.table.set_deadline(id, Some(deadline));
        self.send(way, octets);
    }

    /// Ends the connection, and tells the program (ROCE-159).
    fn disconnected(&mut self, id: u32, private_data: PrivateData, now: Time) {
        self.end(id, EventKind::Disconnected { private_data, timed_out: false }, now);
    }

    /// Ends the connection with this event.
    fn end(&mut self, id: u32, kind: EventKind, now: Time) {
        let Some(connection) = self.table.get(id) else { return };
        let event = connection.event(kind);
        self.tell(event);
        self.enter_timewait(id, now);
    }

    fn is_known(&self, id: CommId) -> bool {
        self.table.is_taken(id.0)
    }
}
