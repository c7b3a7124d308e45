// SPDX-License-Identifier: MIT OR Apache-2.0

//! The services that one of the members does for all: it hands out slots, and reads what comes for
//! QP 1.
//!
//! A process that connects may be broken: messages are bounded, no connection is waited for, one
//! that does not read is not read either, and strangers have a second to say what they want.
//! Members tell the successor of a broker again what they told it; the system knows which slots are
//! taken, as each member holds the place of its slot in a register. A member that has such a place
//! and has not come back may be stopped: packets that may be meant for it are not refused, so that
//! peers go on asking. The register says roughly what services it has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use iwarp_os::poll::wait_ready;
use iwarp_os::slots::{SlotReader, SlotSocket};
use iwarp_os::socket::is_shortage;
use iwarp_os::unix::SeqSocket;
use iwarp_os::{Epoll, Interest};
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use super::home::{Home, Inheritance};
use super::protocol::{Answer, Mad, ROOM, Refusal, Request, Slot, VERSION};
use super::route::{PACKET, Route, route, slot_of};

/// Tokens in the poll set; those of connections are larger.
pub(super) const LISTENER: u64 = 0;
pub(super) const GSI: u64 = 1;

/// The most that is done in one turn, so that the thread that gives it has others' work to do too.
const ACCEPTS: usize = 16;
const MESSAGES: usize = 16;
const CALLS: usize = 8;
/// Pieces that one system call brings, each of one packet or several.
const PIECES: usize = 8;

/// Connections that have not said yet what they want.
const STRANGERS: usize = 16;
/// Time that strangers have for that.
const PATIENCE: Duration = Duration::from_secs(1);
/// Members that stay connected although they need no broker, so that there is one of them at once
/// when it ends. Others come when they do: there may be more members than a process may have
/// descriptors.
const STAYING: usize = 64;
/// Service ids of one member.
const SERVICES: usize = 1024;
/// Connections that wait to be accepted.
pub(super) const BACKLOG: u16 = 64;
/// Packets that wait for the program of the broker's own process.
pub(super) const INBOX: usize = 256;
/// Time that members of an earlier broker have to come back before their services count as free.
const GRACE: Duration = Duration::from_millis(500);
/// The time that no connection is accepted when descriptors are short.
const PAUSE: Duration = Duration::from_millis(100);
/// The interval at which a broker that leaves something waiting says that it lives.
const BEAT: Duration = Duration::from_millis(20);

/// The broker's work.
#[derive(Debug)]
pub(super) struct Broker {
    generation: u64,
    connections: SlotMap<DefaultKey, Connection>,
    /// The connection of each slot that has one.
    members: BTreeMap<u16, DefaultKey>,
    /// Slots that no connection has; the one that was given back last is the last. Members that
    /// have not come back yet may have some of them.
    free: VecDeque<u16>,
    services: BTreeMap<u64, Listener>,
    /// Slot 0's socket.
    gsi: SlotReader,
    /// Members of an earlier broker that have not come back, and until when they are awaited; those
    /// that are stopped are not, nor one that was the broker and did not answer.
    absent: BTreeSet<u16>,
    passed_over: BTreeSet<u16>,
    awaited: Option<Duration>,
    /// Connections are accepted and packets received again then.
    paused: Option<Duration>,
    /// When to say that it lives.
    beat: Option<Duration>,
    user: u32,
}

/// The progress with a service id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listening {
    /// The broker has not answered yet.
    Asked,
    /// REQs and SIDR_REQs for it come to this process.
    Granted,
    /// It is another process's, or there are too many (1,024).
    Taken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listener {
    Own,
    Member(DefaultKey),
}

#[derive(Debug)]
struct Connection {
    socket: SeqSocket,
    slot: Option<u16>,
    since: Duration,
    services: usize,
    /// A request that it made and has to wait for, and an answer that it has not taken. It is not
    /// read meanwhile.
    held: Option<Request>,
    unsent: Option<Vec<u8>>,
}

/// The end of a connection.
struct Gone;

impl Broker {
    /// Serves all that connect to the home's listener.
    pub(super) fn new(
        home: &Home,
        inheritance: Inheritance,
        services: impl Iterator<Item = u64>,
        epoll: &Epoll,
        now: Duration,
        user: u32,
    ) -> io::Result<Self> {
        let Inheritance { generation, members: absent, passed_over, .. } = inheritance;
        let awaits = !absent.is_empty();
        let gsi = SlotReader::new(&home.gsi, PIECES)?;
        epoll.add(&home.listener, LISTENER, Interest::READ)?;
        if !awaits {
            epoll.add(&gsi, GSI, Interest::READ)?;
        }
        // From now on this process is seen at the other end.
        home.listener.listen(BACKLOG)?;
        let mut free: VecDeque<u16> =
            (1..home.vault.slots()).filter(|slot| *slot != home.slot).collect();
        // Begins with a random slot: packets for the last owner may still be on their way.
        let turn = getrandom::u32().unwrap_or(0) as usize % free.len().max(1);
        free.rotate_left(turn);
        Ok(Self {
            generation,
            connections: SlotMap::new(),
            members: BTreeMap::new(),
            free,
            services: services.map(|service| (service, Listener::Own)).collect(),
            gsi,
            absent,
            passed_over,
            awaited: awaits.then_some(now + GRACE),
            paused: None,
            beat: awaits.then_some(now + BEAT),
            user,
        })
    }

    /// Its number among the group's brokers.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Another process has its place.
    pub(super) fn end(mut self, home: &Home, epoll: &Epoll) {
        let _ = epoll.delete(&home.listener);
        // It is not there where members were awaited.
        let _ = epoll.delete(&self.gsi);
        for key in self.connections.keys().collect::<Vec<_>>() {
            self.close(key, epoll);
        }
        home.resign(self.generation);
    }

    /// Registers a service of the broker's own process.
    pub(super) fn listen(&mut self, service: u64) -> Listening {
        if self.awaited.is_some() {
            // It may be that of a member which has not come back yet.
            return Listening::Asked;
        }
        match self.services.entry(service).or_insert(Listener::Own) {
            Listener::Own => Listening::Granted,
            Listener::Member(_) => Listening::Taken,
        }
    }

    /// True if members of an earlier broker may still come back with what they have.
    pub(super) fn awaits(&self) -> bool {
        self.awaited.is_some()
    }

    pub(super) fn unlisten(&mut self, service: u64) {
        if self.services.get(&service) == Some(&Listener::Own) {
            self.services.remove(&service);
        }
    }

    /// When there is something to do although nothing has come.
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        let strangers = self.connections.values().filter(|c| c.slot.is_none() && c.held.is_none());
        let patience = strangers.map(|connection| connection.since + PATIENCE).min();
        [patience, self.awaited, self.paused, self.beat].into_iter().flatten().min()
    }

    /// Does what is due by the time.
    pub(super) fn tick(&mut self, home: &Home, epoll: &Epoll, now: Duration) {
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
            // Each fails where it is not in the set, and then nothing matters.
            let _ = epoll.modify(&home.listener, LISTENER, Interest::READ);
            let _ = epoll.modify(&self.gsi, GSI, Interest::READ);
        }
        if self.beat.is_some_and(|at| at <= now) {
            home.count_beat();
            self.beat = Some(now + BEAT);
        }
        let late =
            |c: &Connection| c.slot.is_none() && c.held.is_none() && c.since + PATIENCE <= now;
        let late = self.connections.iter().filter(|(_, c)| late(c)).map(|(key, _)| key);
        for key in late.collect::<Vec<_>>() {
            self.close(key, epoll);
        }
        if self.awaited.is_some_and(|until| self.absent.is_empty() || until <= now) {
            self.awaited = None;
            let _ = epoll.add(&self.gsi, GSI, Interest::READ);
            for key in self.connections.keys().collect::<Vec<_>>() {
                let Some(connection) = self.connections.get_mut(key) else { continue };
                let held = connection.held.take();
                if held.is_some_and(|request| self.answer(key, request, home, epoll).is_err()) {
                    self.close(key, epoll);
                } else {
                    self.wait_for(key, epoll);
                }
            }
        }
        if self.awaited.is_none() && self.paused.is_none() {
            self.beat = None;
        }
    }

    /// Accepts connections.
    pub(super) fn accept(&mut self, home: &Home, epoll: &Epoll, now: Duration) {
        for _ in 0..ACCEPTS {
            let socket = match home.listener.accept() {
                Ok(socket) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    if !is_shortage(&error) {
                        crate::report!(
                            burst 1, WARN, %error,
                            "the system lets no process join the RoCE port: they wait"
                        );
                    }
                    self.paused = Some(now + PAUSE);
                    self.beat = Some(now + BEAT);
                    let _ = epoll.modify(&home.listener, LISTENER, Interest::NONE);
                    return;
                }
            };
            match socket.peer_user() {
                Ok(user) if user == self.user => {}
                user => {
                    crate::report!(
                        WARN,
                        user = user.ok(),
                        "another user's process asked for a share of the RoCE port and was refused"
                    );
                    continue;
                }
            }
            let strangers = self.connections.iter().filter(|(_, c)| c.slot.is_none());
            if strangers.clone().count() >= STRANGERS
                && let Some((oldest, _)) = strangers.min_by_key(|(_, c)| c.since)
            {
                self.close(oldest, epoll);
            }
            let key = self.connections.insert(Connection {
                socket,
                slot: None,
                since: now,
                services: 0,
                held: None,
                unsent: None,
            });
            let socket = &self.connections[key].socket;
            if epoll.add(socket, key.data().as_ffi(), Interest::READ).is_err() {
                self.close(key, epoll);
            }
        }
    }

    /// Goes on with a connection that is ready.
    pub(super) fn serve(&mut self, token: u64, home: &Home, epoll: &Epoll) {
        let key = DefaultKey::from(KeyData::from_ffi(token));
        for _ in 0..MESSAGES {
            let Some(connection) = self.connections.get_mut(key) else { return };
            if let Some(answer) = &connection.unsent {
                match connection.socket.send(answer, &[]) {
                    Ok(()) => connection.unsent = None,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => return self.close(key, epoll),
                }
            }
            if connection.held.is_some() {
                // It is not read; only its end is reported.
                if connection.hung_up() {
                    self.close(key, epoll);
                }
                break;
            }
            let mut room = [0; ROOM];
            let said = match connection.socket.recv(&mut room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(len) => Request::parse(&room[..len]),
                Err(_) => None,
            };
            if said.is_none_or(|request| self.answer(key, request, home, epoll).is_err()) {
                return self.close(key, epoll);
            }
        }
        self.wait_for(key, epoll);
    }

    /// Passes on packets for QP 1; those for this process go to `inbox`.
    pub(super) fn pass(&mut self, home: &Home, inbox: &mut VecDeque<Mad>, epoll: &Epoll) {
        let mut broken = Vec::new();
        for _ in 0..CALLS {
            match self.gsi.receive() {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    crate::report!(
                        burst 1, WARN, %error,
                        "cannot receive from queue pair 1: nobody connects by datagrams"
                    );
                    // It stays ready all the time.
                    let now = iwarp_os::clock::now();
                    self.paused = Some(now + PAUSE);
                    self.beat = Some(now + BEAT);
                    let _ = epoll.modify(&self.gsi, GSI, Interest::NONE);
                    break;
                }
            }
            for (from, to, packet) in self.gsi.packets() {
                let Ok(octets) = <[u8; PACKET]>::try_from(packet) else { continue };
                let Some(route) = route(&octets) else { continue };
                let whose = self.addressee(route, home);
                let unclaimed = whose.is_none();
                if unclaimed && self.may_be_of_absent(route, home) {
                    continue;
                }
                let mad = Mad { from, to, unclaimed, octets: Box::new(octets) };
                match whose {
                    Some(Listener::Member(key)) => {
                        if !self.hand_on(key, mad) {
                            broken.push(key);
                        }
                    }
                    Some(Listener::Own) | None => {
                        if inbox.len() < INBOX {
                            inbox.push_back(mad);
                        }
                    }
                }
            }
        }
        broken.into_iter().for_each(|key| self.close(key, epoll));
    }

    /// The member that a message is for.
    fn addressee(&self, route: Route, home: &Home) -> Option<Listener> {
        match route {
            Route::Service(service) => self.services.get(&service).copied(),
            Route::Connection(id) => match slot_of(id, home.layout()) {
                slot if slot == home.slot => Some(Listener::Own),
                slot => self.members.get(&slot).copied().map(Listener::Member),
            },
        }
    }

    /// True if a message may be a member's that has not come back, or not come yet.
    fn may_be_of_absent(&self, route: Route, home: &Home) -> bool {
        match route {
            Route::Service(service) => {
                let may = |slot: &u16| home.may_serve(*slot, service).is_ok_and(|may| may);
                self.absent.iter().chain(&self.passed_over).any(may)
            }
            Route::Connection(id) => {
                let slot = slot_of(id, home.layout());
                !self.members.contains_key(&slot) && home.has_member(slot).is_ok_and(|has| has)
            }
        }
    }

    /// False where the member has ended. One that does not read loses the message, as a network
    /// loses packets.
    fn hand_on(&self, to: DefaultKey, mad: Mad) -> bool {
        let Some(connection) = self.connections.get(to) else { return true };
        let sent = connection.socket.send(&Answer::Mad(mad).encode(), &[]);
        sent.map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |()| true)
    }

    fn answer(
        &mut self,
        key: DefaultKey,
        request: Request,
        home: &Home,
        epoll: &Epoll,
    ) -> Result<(), Gone> {
        // It may be the service of a member that has not come back yet.
        let waits = matches!(request, Request::Listen { again: false, .. });
        let awaits = self.awaited.is_some();
        let connection = self.connections.get_mut(key).ok_or(Gone)?;
        if waits && awaits {
            connection.held = Some(request);
            return Ok(());
        }
        match (connection.slot, request) {
            (None, Request::Hello { version, .. }) if version != VERSION => {
                connection.refuse(Refusal::Version)
            }
            (None, Request::Hello { had: None, .. }) => self.hand_out(key, home),
            (None, Request::Hello { had: Some(slot), .. }) => {
                self.take_back(key, slot, home, epoll)
            }
            (Some(_), Request::Listen { service, .. }) => {
                let granted = match self.services.get(&service) {
                    Some(listener) => *listener == Listener::Member(key),
                    None if connection.services >= SERVICES => false,
                    None => {
                        connection.services += 1;
                        self.services.insert(service, Listener::Member(key));
                        true
                    }
                };
                connection.say(&Answer::Listening { service, granted })
            }
            (Some(_), Request::Unlisten { service }) => {
                if self.services.get(&service) == Some(&Listener::Member(key)) {
                    self.services.remove(&service);
                    connection.services -= 1;
                }
                Ok(())
            }
            (Some(slot), Request::Settled) => {
                self.has_come(slot);
                Ok(())
            }
            _ => Err(Gone),
        }
    }

    /// This member of an earlier broker is not awaited any more.
    fn has_come(&mut self, slot: u16) {
        self.absent.remove(&slot);
        self.passed_over.remove(&slot);
    }

    /// Gives a new member a slot: its socket, and what a member holds for the others.
    fn hand_out(&mut self, key: DefaultKey, home: &Home) -> Result<(), Gone> {
        let stays = self.members.len() < STAYING;
        let connection = self.connections.get_mut(key).ok_or(Gone)?;
        let mut left = self.free.len();
        loop {
            if left == 0 {
                match home.grow() {
                    Ok(new) => {
                        left = new.len();
                        new.rev().for_each(|slot| self.free.push_front(slot));
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        return connection.refuse(Refusal::Full);
                    }
                    Err(_) => return connection.refuse(Refusal::Shortage),
                }
            }
            left -= 1;
            let Some(slot) = self.free.pop_front() else { break };
            // A member that has not come back yet.
            if !home.has_member(slot).is_ok_and(|has| !has) {
                self.free.push_back(slot);
                continue;
            }
            let number = Slot { number: slot, bits: home.bits };
            let generation = self.generation;
            let welcome = Answer::Welcome { slot: number, generation, stays }.encode();
            let sent = home.vault.socket(slot).and_then(|data| {
                let passed = [data.as_fd(), home.vault.as_fd(), home.register.as_fd()];
                connection.socket.send(&welcome, &passed)
            });
            if sent.is_err() {
                self.free.push_front(slot);
                return connection.refuse(Refusal::Shortage);
            }
            connection.slot = Some(slot);
            self.members.insert(slot, key);
            self.has_come(slot);
            return Ok(());
        }
        Err(Gone)
    }

    /// A member of an earlier broker has come back.
    fn take_back(
        &mut self,
        key: DefaultKey,
        slot: Slot,
        home: &Home,
        epoll: &Epoll,
    ) -> Result<(), Gone> {
        let number = slot.number;
        // Its connection before this one may have ended without our having seen it.
        if let Some(before) = self.members.get(&number).copied()
            && self.connections.get(before).is_some_and(Connection::hung_up)
        {
            self.close(before, epoll);
        }
        let connection = self.connections.get_mut(key).ok_or(Gone)?;
        let place = self.free.iter().position(|free| *free == number);
        let has_it = || home.has_member(number).is_ok_and(|has| has);
        let Some(place) = place.filter(|_| slot.bits == home.bits && has_it()) else {
            return connection.refuse(Refusal::Slot);
        };
        self.free.remove(place);
        connection.slot = Some(number);
        self.members.insert(number, key);
        connection.say(&Answer::Welcome { slot, generation: self.generation, stays: true })
    }

    fn close(&mut self, key: DefaultKey, epoll: &Epoll) {
        let Some(connection) = self.connections.remove(key) else { return };
        // A forked child may have the file open.
        let _ = epoll.delete(&connection.socket);
        if connection.services > 0 {
            self.services.retain(|_, listener| *listener != Listener::Member(key));
        }
        if let Some(slot) = connection.slot {
            self.members.remove(&slot);
            self.free.push_back(slot);
            self.has_come(slot);
        }
    }

    /// Sets what the poll set reports of a connection.
    fn wait_for(&self, key: DefaultKey, epoll: &Epoll) {
        let Some(connection) = self.connections.get(key) else { return };
        let interest = match connection {
            Connection { unsent: Some(_), .. } => Interest::WRITE,
            Connection { held: Some(_), .. } => Interest::NONE,
            _ => Interest::READ,
        };
        let _ = epoll.modify(&connection.socket, key.data().as_ffi(), interest);
    }
}

impl Connection {
    /// Says it now, or when there is room.
    fn say(&mut self, answer: &Answer) -> Result<(), Gone> {
        let answer = answer.encode();
        match self.socket.send(&answer, &[]) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.unsent = Some(answer);
                Ok(())
            }
            Err(_) => Err(Gone),
        }
    }

    fn refuse(&mut self, reason: Refusal) -> Result<(), Gone> {
        // Heard or not, that is the end.
        let _ = self.say(&Answer::Refused { reason, version: VERSION });
        Err(Gone)
    }

    fn hung_up(&self) -> bool {
        let ends = [(self.socket.as_fd(), Interest::NONE)];
        matches!(wait_ready(ends, Some(Duration::ZERO)), Ok([true]))
    }
}

/// Drops what an earlier owner of the slot was sent.
pub(super) fn empty(socket: &SlotSocket) {
    /// More small packets than a receive buffer of 64 MiB holds.
    const MOST: usize = 1 << 16;
    socket.drain(MOST);
}
