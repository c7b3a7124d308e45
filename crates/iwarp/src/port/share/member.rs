// SPDX-License-Identifier: MIT OR Apache-2.0

//! A process's share of the port.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use iwarp_os::owner::{Owner, udp_owners};
use iwarp_os::unix::SeqSocket;
use iwarp_os::{Epoll, Events, FdPlace, Interest, ProcessOwned, clock};
use iwarp_types::CommIds;

use super::broker::{self, Broker, INBOX, Listening};
use super::error::ShareError;
use super::home::{Home, Office, broker_name, find_broker};
use super::numbers::{self, Numbers};
use super::protocol::{Answer, Mad, ROOM, Refusal, Request, Slot, VERSION};
use super::route::ids_of;
use super::succession::{BELL, GENTLE, GSI, LISTENER, MUTE, Suspicion, watch};

/// A share of a UDP port: a socket for some of the queue pair numbers, those numbers, and messages
/// of the connection manager.
///
/// It has no thread. Its owner calls [`Self::turn`] whenever the [descriptor](Self::descriptor) is
/// readable or [`Self::next_timeout`] has passed; every turn is short and waits for nothing. If
/// that process happens to be the broker, this does the broker's work too. In a forked child it is
/// dead, and every call says `ENODEV`.
#[derive(Debug)]
pub struct Member {
    inner: ProcessOwned<Inner>,
}

/// Token in a member's poll set.
const LINK: u64 = 0;
/// The most that is done in one turn.
const MESSAGES: usize = 64;
const EVENTS: usize = 32;
/// Requests that the broker has not taken yet.
const UNSENT: usize = 4096;
/// The longest time that joining takes.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time that the port may be in use without a sign of a group: processes that end, or begin, at
/// this moment.
const DOUBT: Duration = Duration::from_millis(300);
/// Between tries to find the broker: at first, at most, and where something is amiss.
pub(super) const QUICK: Duration = Duration::from_millis(1);
const SLOW: Duration = Duration::from_millis(100);
const AMISS: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) addr: SocketAddr,
    pub(super) user: u32,
    pub(super) epoll: Epoll,
    pub(super) events: Events,
    /// `None` until there is a slot. Dropped before what others see the end of.
    pub(super) share: Option<Share>,
    pub(super) role: Role,
    /// The broker seems to do nothing.
    pub(super) suspicion: Option<Suspicion>,
    pub(super) services: BTreeMap<u64, Listening>,
    pub(super) inbox: VecDeque<Mad>,
    /// Services of this process wait until it, as the broker, may grant them.
    pub(super) asks: bool,
    /// The port has been in use since then, and no group seen.
    pub(super) doubt: Option<Duration>,
    /// Of a broker that did not answer: its generation and its turn then.
    pub(super) seen: Option<(u64, u64)>,
    /// The obstacle to finding the broker was told.
    pub(super) told: bool,
}

#[derive(Debug)]
pub(super) struct Share {
    pub(super) home: Home,
    pub(super) numbers: Numbers,
}

#[derive(Debug)]
pub(super) enum Role {
    /// Has no broker; tries at that time, and then after so long.
    Seeking(Duration, Duration),
    /// Has a broker.
    Linked(Link),
    /// Needs no broker: new members can do without this one.
    Apart,
    /// Is the broker.
    Broker(Box<Broker>),
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: SeqSocket,
    /// The process at the other end, if it has a number here.
    pub(super) process: Option<u32>,
    pub(super) since: Duration,
    /// The broker's generation, once it has answered.
    pub(super) welcome: Option<u64>,
    pub(super) unsent: VecDeque<Request>,
}

impl Member {
    /// Takes a share of the port at `addr`, that of `::` for IPv4 as well. Waits for the broker, if
    /// that is another process, 1 s at most. One that is stopped, or does not answer within 0.1 s,
    /// is gone around: by another process that has a share, or by this one if the system lets it
    /// have what that process has (as debuggers do); if not, a stopped one is waited for no longer.
    /// A process has one share of an address: a second one would wait for a broker that may be the
    /// first, which does not turn meanwhile.
    ///
    /// # Errors
    ///
    /// See [`ShareError`]; its text is for the user.
    pub fn join(addr: SocketAddr) -> Result<Self, ShareError> {
        Self::join_within(addr, PATIENCE)
    }

    /// As [`Self::join`], with another patience.
    pub(crate) fn join_within(addr: SocketAddr, patience: Duration) -> Result<Self, ShareError> {
        let addr = plain(addr);
        let ip = addr.ip();
        if ip.is_multicast() || addr.port() == 0 {
            return Err(ShareError::Address { addr });
        }
        let mut inner = Inner::new(addr).map_err(|error| ShareError::of(addr, error))?;
        let deadline = clock::now() + patience;
        loop {
            inner.turn(clock::now())?;
            inner.go_around(clock::now())?;
            if inner.share.is_some() {
                return Ok(Self { inner: ProcessOwned::new(inner) });
            }
            let now = clock::now();
            if now >= deadline {
                return Err(inner.overdue());
            }
            inner.wait(deadline - now);
        }
    }

    /// The descriptor that becomes readable when there is something to do.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child, as everywhere.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.inner.check()?.epoll.as_fd())
    }

    /// Does what there is to do.
    ///
    /// # Errors
    ///
    /// `ENODEV`.
    pub fn turn(&mut self, now: Duration) -> io::Result<()> {
        // A fault after joining is told where it is found.
        let _ = self.alive()?.turn(now);
        Ok(())
    }

    /// When [`Self::turn`] is to be called although nothing has come, by [`clock::now`].
    pub fn next_timeout(&self) -> Option<Duration> {
        self.inner.alive()?.next_timeout()
    }

    /// Does what there is to do until `done` says so, and whether it did within `patience`. For
    /// owners without a loop of their own.
    ///
    /// # Errors
    ///
    /// `ENODEV`.
    pub fn drive(
        &mut self,
        patience: Duration,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> io::Result<bool> {
        let deadline = clock::now() + patience;
        loop {
            self.turn(clock::now())?;
            if done(self) {
                return Ok(true);
            }
            let now = clock::now();
            if now >= deadline {
                return Ok(false);
            }
            self.alive()?.wait(deadline - now);
        }
    }

    /// The socket of the slot at the shared port, for packets in and out. Non-blocking, and with no
    /// options set but those that receiving needs. It can be taken once.
    pub fn take_socket(&mut self) -> Option<OwnedFd> {
        Some(self.inner.alive_mut()?.share.as_mut()?.home.data.take()?.into())
    }

    /// TCP ports of this process's, in a manner of speaking: a queue pair number that begins with
    /// one is in the slot, and none of those that [`Self::allocate_qpn`] gives.
    ///
    /// # Errors
    ///
    /// `ENODEV`.
    pub fn ports(&self) -> io::Result<RangeInclusive<u16>> {
        let home = &self.share()?.home;
        Ok(numbers::ports(home.slot, home.layout()))
    }

    /// A queue pair number whose packets come to this process.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` where all (2^17, and 2^11 from the 48th process on) are in use, `ENODEV`.
    pub fn allocate_qpn(&mut self) -> io::Result<u32> {
        self.share_mut()?.numbers.allocate()
    }

    /// Gives a number back. It rests as long as others can be had.
    pub fn free_qpn(&mut self, number: u32) {
        if let Ok(share) = self.share_mut() {
            share.numbers.free(number);
        }
    }

    /// Communication ids for the connection manager, and request ids of SIDR: answers that name one
    /// come to this process, from now on.
    ///
    /// # Errors
    ///
    /// `ENODEV`.
    pub fn comm_ids(&mut self) -> io::Result<CommIds> {
        let inner = self.alive()?;
        inner.need_broker();
        let Share { home, .. } = inner.share.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        Ok(ids_of(home.slot, home.layout()))
    }

    /// Asks for the REQs and SIDR_REQs that name a service. [`Self::listening`] tells the outcome.
    ///
    /// # Errors
    ///
    /// `ENODEV`.
    pub fn listen(&mut self, service: u64) -> io::Result<Listening> {
        self.alive().map(|inner| inner.listen(service))
    }

    /// The progress with a service; `None` if it was not asked for.
    pub fn listening(&self, service: u64) -> Option<Listening> {
        self.inner.alive()?.services.get(&service).copied()
    }

    /// Gives a service back.
    pub fn unlisten(&mut self, service: u64) {
        if let Some(inner) = self.inner.alive_mut() {
            inner.unlisten(service);
        }
    }

    /// The next packet for QP 1 that is this process's. Answers go out by the sockets.
    pub fn next_mad(&mut self) -> Option<Mad> {
        self.inner.alive_mut()?.inbox.pop_front()
    }

    /// True if this process does the broker's work now.
    pub fn is_broker(&self) -> bool {
        self.inner.alive().is_some_and(Inner::is_broker)
    }

    /// True if there is a broker that knows of this member.
    pub fn has_broker(&self) -> bool {
        self.inner.alive().is_some_and(|inner| match &inner.role {
            Role::Broker(_) | Role::Apart => true,
            Role::Linked(link) => link.welcome.is_some(),
            Role::Seeking(..) => false,
        })
    }

    fn alive(&mut self) -> io::Result<&mut Inner> {
        const ENODEV: i32 = 19;
        self.inner.alive_mut().ok_or_else(|| io::Error::from_raw_os_error(ENODEV))
    }

    fn share(&self) -> io::Result<&Share> {
        self.inner.check()?.share.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn share_mut(&mut self) -> io::Result<&mut Share> {
        self.alive()?.share.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Inner {
    fn new(addr: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            addr,
            user: iwarp_os::owner::own_users()[0],
            epoll: Epoll::new(FdPlace::Internal)?,
            events: Events::with_capacity(EVENTS),
            share: None,
            role: Role::Seeking(Duration::ZERO, QUICK),
            suspicion: None,
            services: BTreeMap::new(),
            inbox: VecDeque::new(),
            asks: false,
            doubt: None,
            seen: None,
            told: false,
        })
    }

    fn turn(&mut self, now: Duration) -> Result<(), ShareError> {
        // A wait that is interrupted has found nothing.
        let _ = self.epoll.wait(&mut self.events, Some(Duration::ZERO));
        self.abdicate_if_succeeded(now);
        let Self { epoll, events, role, share, inbox, services, asks, .. } = self;
        let (Role::Broker(broker), Some(Share { home, .. })) = (role, share) else {
            return self.turn_as_member(now);
        };
        if !events.is_empty() {
            home.count_beat();
        }
        for ready in events.iter() {
            match ready.token {
                broker::LISTENER => broker.accept(home, epoll, now),
                broker::GSI => broker.pass(home, inbox, epoll),
                // Its own succession.
                BELL => {}
                connection => broker.serve(connection, home, epoll),
            }
        }
        broker.tick(home, epoll, now);
        if *asks && !broker.awaits() {
            *asks = false;
            let asked = services.iter_mut().filter(|(_, how)| **how == Listening::Asked);
            asked.for_each(|(service, listening)| *listening = broker.listen(*service));
        }
        Ok(())
    }

    fn turn_as_member(&mut self, now: Duration) -> Result<(), ShareError> {
        let has = |tokens: &[u64]| self.events.iter().any(|ready| tokens.contains(&ready.token));
        let (said, waits, rings) = (has(&[LINK]), has(&[LISTENER, GSI]), has(&[BELL]));
        if rings && self.link_is_old() {
            self.lose(now);
        }
        if waits {
            self.suspect(now);
        }
        match &self.role {
            Role::Linked(_) if said => self.hear(now)?,
            Role::Seeking(next, _) if *next <= now => self.seek(now)?,
            _ => {}
        }
        if self.suspicion.is_some_and(|suspicion| suspicion.due <= now) {
            self.judge(now);
        }
        Ok(())
    }

    pub(super) fn is_broker(&self) -> bool {
        matches!(self.role, Role::Broker(_))
    }

    fn next_timeout(&self) -> Option<Duration> {
        let next = match &self.role {
            Role::Seeking(next, _) => Some(*next),
            // Until it is gone around.
            Role::Linked(link) if self.share.is_none() => {
                let gentle = link.since + GENTLE;
                Some(if gentle > clock::now() { gentle } else { link.since + MUTE })
            }
            Role::Linked(_) | Role::Apart => None,
            Role::Broker(broker) => return broker.next_timeout(),
        };
        let due = self.suspicion.map(|suspicion| suspicion.due);
        [next, due].into_iter().flatten().min()
    }

    /// Until there is something to do, or that time has passed.
    fn wait(&self, most: Duration) {
        let due = self.next_timeout().map(|next| next.saturating_sub(clock::now()));
        let timeout = due.map_or(most, |due| due.min(most));
        // Rounded up: what is due is then due.
        let timeout = timeout + Duration::from_micros(1);
        let _ = iwarp_os::poll::wait_readable([self.epoll.as_fd()], Some(timeout));
    }

    /// Looks for the broker, or becomes it.
    fn seek(&mut self, now: Duration) -> Result<(), ShareError> {
        let result = match &self.share {
            Some(Share { home, .. }) => match home.office(home.generation()) {
                Ok(Office::Held) => self.find(now),
                Ok(Office::Vacant | Office::Stopped) => self.succeed(now),
                Err(error) => Err(ShareError::of(self.addr, error)),
            },
            None => self.find(now),
        };
        if let Role::Seeking(next, pause) = &mut self.role {
            *next = now + *pause;
            *pause = (*pause * 2).min(SLOW);
        }
        self.settle(result, now)
    }

    fn find(&mut self, now: Duration) -> Result<(), ShareError> {
        let name = broker_name(self.addr, self.user);
        match find_broker(&name, self.user) {
            Ok(Some(socket)) => self.introduce(socket, now),
            Ok(None) if self.share.is_none() => self.found(&name, now),
            // Too many ask at this moment.
            Ok(None) => Ok(()),
            Err(error) => Err(ShareError::of(self.addr, error)),
        }
    }

    /// A fault ends joining. Later it is told, once, and the share lives on without a broker.
    pub(super) fn settle(
        &mut self,
        result: Result<(), ShareError>,
        now: Duration,
    ) -> Result<(), ShareError> {
        let Err(error) = result else { return Ok(()) };
        if self.share.is_none() {
            return Err(error);
        }
        self.lose(now + AMISS);
        if !std::mem::replace(&mut self.told, true) {
            crate::report!(WARN, "new connections by RoCE's connection manager wait: {error}");
        }
        Ok(())
    }

    fn introduce(&mut self, socket: SeqSocket, now: Duration) -> Result<(), ShareError> {
        let addr = self.addr;
        let failed = |error| ShareError::of(addr, error);
        let had = self.share.as_ref().map(|share| share.slot());
        let hello = Request::Hello { version: VERSION, had }.encode();
        if socket.send(&hello, &[]).is_err() {
            // It has ended this moment.
            return Ok(());
        }
        self.epoll.add(&socket, LINK, Interest::READ).map_err(failed)?;
        let (process, unsent) = (socket.peer_process(), VecDeque::new());
        self.role = Role::Linked(Link { socket, process, since: now, welcome: None, unsent });
        self.suspect(now);
        self.hear(now)
    }

    /// The process that was asked for a share, if it has a number here.
    fn broker_process(&self) -> Option<u32> {
        match &self.role {
            Role::Linked(link) => link.process,
            _ => None,
        }
    }

    /// No process listens under the name: there is no group yet.
    fn found(&mut self, name: &[u8], now: Duration) -> Result<(), ShareError> {
        match Home::found(self.addr, name) {
            Ok(home) => {
                self.settle_in(home)?;
                self.succeed(now)
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => self.in_use(now),
            Err(error) => Err(ShareError::of(self.addr, error)),
        }
    }

    /// The port is in use, and no process hands out shares. Members of a group are there, one of
    /// which is going to; or another user has it.
    fn in_use(&mut self, now: Duration) -> Result<(), ShareError> {
        if now < *self.doubt.get_or_insert(now) + DOUBT {
            return Ok(());
        }
        let owners = udp_owners(self.addr);
        if owners.len() > 1 && self.all_ours(&owners) { Ok(()) } else { Err(self.taken(&owners)) }
    }

    /// The reason for which no share was given in time.
    pub(super) fn overdue(&self) -> ShareError {
        let (addr, process) = (self.addr, self.broker_process());
        if process.is_none() && self.doubt.is_some() {
            let owners = udp_owners(addr);
            // One of ours may be about to make a group, though not for long.
            if owners.is_empty() || !self.all_ours(&owners) {
                return self.taken(&owners);
            }
        }
        ShareError::Silent { addr, process }
    }

    fn all_ours(&self, owners: &[Owner]) -> bool {
        owners.iter().all(|owner| *owner == Owner::User(self.user))
    }

    fn taken(&self, owners: &[Owner]) -> ShareError {
        let user = owners.iter().find_map(|owner| match owner {
            Owner::User(user) => Some(*user),
            Owner::None | Owner::Elsewhere => None,
        });
        ShareError::Taken { addr: self.addr, user }
    }

    /// Takes possession of a slot.
    pub(super) fn settle_in(&mut self, home: Home) -> Result<(), ShareError> {
        if let Some(data) = &home.data {
            broker::empty(data);
        }
        let numbers = Numbers::new(home.slot, home.layout());
        let failed = |error| ShareError::of(self.addr, error);
        let numbers = numbers.map_err(|error| failed(error.into()))?;
        watch(&self.epoll, &home).map_err(failed)?;
        // An earlier owner of the slot had others.
        home.tell_services(self.services.keys().copied());
        self.share = Some(Share { home, numbers });
        Ok(())
    }

    /// Takes what the broker says, and says what there was no room for.
    fn hear(&mut self, now: Duration) -> Result<(), ShareError> {
        for _ in 0..MESSAGES {
            let Role::Linked(link) = &mut self.role else { return Ok(()) };
            let mut room = [0; ROOM];
            // Descriptors come with the first welcome, and are closed otherwise.
            let heard = if self.share.is_none() {
                link.socket.recv_passed(&mut room)
            } else {
                link.socket.recv(&mut room).map(|len| (len, Vec::new()))
            };
            let (len, passed) = match heard {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(heard) => heard,
                Err(_) => (0, Vec::new()),
            };
            let Some(answer) = Answer::parse(&room[..len]) else {
                self.lose(now);
                return Ok(());
            };
            let result = self.take(answer, passed, now);
            if result.is_err() {
                return self.settle(result, now);
            }
        }
        self.flush(now);
        Ok(())
    }

    fn take(
        &mut self,
        answer: Answer,
        passed: Vec<OwnedFd>,
        now: Duration,
    ) -> Result<(), ShareError> {
        match answer {
            Answer::Welcome { slot, generation, stays } => {
                self.enter(slot, passed, now)?;
                self.is_welcome(generation, stays, now);
            }
            Answer::Refused { reason, .. } => {
                let addr = self.addr;
                return Err(match reason {
                    Refusal::Version => ShareError::Version { addr },
                    Refusal::Full => ShareError::Full { addr },
                    Refusal::Shortage => ShareError::Shortage { addr, source: None },
                    Refusal::Slot => ShareError::Silent { addr, process: self.broker_process() },
                });
            }
            Answer::Listening { service, granted } => {
                if let Some(listening) = self.services.get_mut(&service) {
                    if *listening == Listening::Granted && !granted {
                        crate::report!(
                            WARN,
                            service,
                            "another process has taken a service of the connection manager"
                        );
                    }
                    *listening = if granted { Listening::Granted } else { Listening::Taken };
                }
            }
            Answer::Mad(mad) => {
                if self.inbox.len() < INBOX {
                    self.inbox.push_back(mad);
                }
            }
        }
        Ok(())
    }

    /// Has the slot that the broker has given, or has it still.
    fn enter(&mut self, slot: Slot, passed: Vec<OwnedFd>, now: Duration) -> Result<(), ShareError> {
        match &self.share {
            None => {
                let Some(home) = Home::received(self.addr, slot, passed) else {
                    // Without room in the table of descriptors they do not come.
                    return Err(ShareError::Shortage { addr: self.addr, source: None });
                };
                if !home.hold().map_err(|error| ShareError::of(self.addr, error))? {
                    // One that is the broker no more has handed it out.
                    self.lose(now);
                    return Ok(());
                }
                self.settle_in(home)?;
            }
            Some(share) if share.slot() == slot => {}
            Some(_) => {
                self.lose(now + AMISS);
                return Ok(());
            }
        }
        Ok(())
    }

    /// The broker of that generation knows this member, and will if that is apart, when it comes.
    fn is_welcome(&mut self, generation: u64, stays: bool, now: Duration) {
        let (Some(share), Role::Linked(link)) = (&self.share, &mut self.role) else { return };
        if share.home.generation() != generation {
            return self.lose(now);
        }
        self.told = false;
        share.home.is_to_be_known(stays);
        if !stays {
            self.lose(now);
            self.role = Role::Apart;
            return;
        }
        link.welcome = Some(generation);
        link.unsent.extend(self.services.iter().filter_map(|(service, listening)| {
            let again = match listening {
                Listening::Asked => false,
                Listening::Granted => true,
                Listening::Taken => return None,
            };
            Some(Request::Listen { service: *service, again })
        }));
        link.unsent.push_back(Request::Settled);
    }

    /// The broker is to know this member.
    fn need_broker(&mut self) {
        if let Role::Apart = self.role {
            self.role = Role::Seeking(clock::now(), QUICK);
        }
    }

    fn listen(&mut self, service: u64) -> Listening {
        if let Some(listening @ (Listening::Asked | Listening::Granted)) =
            self.services.get(&service)
        {
            return *listening;
        }
        let now = clock::now();
        self.abdicate_if_succeeded(now);
        self.need_broker();
        let listening = match &mut self.role {
            Role::Broker(broker) => broker.listen(service),
            _ => Listening::Asked,
        };
        self.services.insert(service, listening);
        self.tell_others();
        self.asks |= listening == Listening::Asked;
        self.say(Request::Listen { service, again: false });
        if listening == Listening::Asked {
            self.suspect(now);
        }
        listening
    }

    fn unlisten(&mut self, service: u64) {
        if self.services.remove(&service).is_some_and(|listening| listening != Listening::Taken) {
            if let Role::Broker(broker) = &mut self.role {
                broker.unlisten(service);
            }
            self.say(Request::Unlisten { service });
        }
        self.tell_others();
    }

    /// Notes its services in the register, for brokers that this process says nothing to.
    fn tell_others(&self) {
        if let Some(Share { home, .. }) = &self.share {
            home.tell_services(self.services.keys().copied());
        }
    }

    /// Tells the broker, if it is another process and knows of this one; else it will be told all.
    fn say(&mut self, request: Request) {
        if let Role::Linked(link) = &mut self.role
            && link.welcome.is_some()
        {
            link.unsent.push_back(request);
            if link.unsent.len() > UNSENT {
                // A broker that does not read. The next one is told only what counts then.
                return self.lose(clock::now());
            }
            self.flush(clock::now());
        }
    }

    fn flush(&mut self, now: Duration) {
        let Role::Linked(link) = &mut self.role else { return };
        let mut interest = Interest::READ;
        while let Some(request) = link.unsent.front() {
            match link.socket.send(&request.encode(), &[]) {
                Ok(()) => drop(link.unsent.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    interest = Interest::READ | Interest::WRITE;
                    break;
                }
                Err(_) => return self.lose(now),
            }
        }
        // Cannot fail of a member of the set.
        let _ = self.epoll.modify(&link.socket, LINK, interest);
    }

    /// The broker has ended, or is none; looks for another at `next`.
    pub(super) fn lose(&mut self, next: Duration) {
        if let Role::Linked(link) = &self.role {
            // A forked child may have the file open.
            let _ = self.epoll.delete(&link.socket);
        }
        self.role = Role::Seeking(next, QUICK);
    }
}

impl Share {
    fn slot(&self) -> Slot {
        Slot { number: self.home.slot, bits: self.home.bits }
    }
}

/// The address as sockets have it: IPv4 as such, and of IPv6 nothing but address, port and scope.
fn plain(addr: SocketAddr) -> SocketAddr {
    match (addr.ip().to_canonical(), addr) {
        (IpAddr::V6(ip), SocketAddr::V6(from)) => {
            SocketAddrV6::new(ip, addr.port(), 0, from.scope_id()).into()
        }
        (ip, _) => SocketAddr::new(ip, addr.port()),
    }
}
