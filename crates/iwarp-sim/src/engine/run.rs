// SPDX-License-Identifier: MIT OR Apache-2.0

//! The next thing to happen: a program does something, a worker takes its turn, time passes.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use iwarp::cm::{ConnectParams, EventKind, Id};
use iwarp::{CompletionChannel, LocalPath, Look, Peer, QpState, WorkCompletion};

use super::books::Couple;
use super::end::{End, What};
use super::host::{Common, Host};
use super::process::Turn;
use super::settle::Stands;
use super::stage::Stage;
use super::{Options, Summary};
use crate::choice::Choices;
use crate::failure::{Failure, verdict};

/// A connection is up by then.
const CONNECTED: Duration = Duration::from_secs(20);
/// Work that a caller drives, or a worker has to serve without having been called, is done by then.
pub(super) const SERVED: Duration = Duration::from_millis(20);
/// Connections of a run at most.
const CONNECTIONS: usize = 6;
/// Messages that may wait for receives.
const PARKED: usize = 6;

/// See the [module](self).
pub(super) struct Run<'a> {
    pub(super) stage: Stage,
    pub(super) choices: Choices<'a>,
    pub(super) common: Common,
    pub(super) hosts: Vec<Host>,
    pub(super) couples: Vec<Couple>,
    /// The host that looks after its connections, as its program sleeps in its channel.
    pub(super) blocked: Option<usize>,
    completions: u64,
    moved: u64,
    direct: u64,
    #[cfg(feature = "flaws")]
    pub(super) flaw: iwarp::flaw::Flaw,
}

/// Runs one seed.
///
/// # Errors
///
/// The rule that was broken.
pub fn run_seed(seed: u64, options: &Options) -> Result<Summary, Failure> {
    #[cfg(feature = "flaws")]
    let _planted = iwarp::flaw::plant(options.flaw);
    let _turn = Turn::take();
    let mut run = Run::new(seed, options);
    let outcome = catch_unwind(AssertUnwindSafe(|| run.all(options.steps)));
    // In any state: the run is not looked at any more.
    CompletionChannel::stop_looking();
    let trace = run.stage.trace();
    let (turns, pauses) = run.stage.counts();
    let failed = |why| Failure { seed, place: None, why, trace };
    verdict(outcome).map_err(failed).map(|steps| Summary {
        steps,
        turns,
        pauses,
        connections: run.couples.len() as u64,
        completions: run.completions,
        moved: run.moved,
        direct: run.direct,
        digest: run.stage.digest(),
    })
}

impl Run<'_> {
    fn new(seed: u64, options: &Options) -> Self {
        let mut choices = Choices::from_seed(seed);
        let mut stage = Stage::new(seed, options.verbose);
        let common = Common::draw(seed, &mut choices);
        stage.note(|| format!("{:?}", common.options.personality));
        let hosts = (0..2).map(|number| {
            let (host, turns) = Host::new(number, &common, &stage.clock, &mut choices);
            stage.add(turns);
            host
        });
        let hosts = hosts.collect();
        let (couples, blocked) = (Vec::new(), None);
        Self {
            stage,
            choices,
            common,
            hosts,
            couples,
            blocked,
            completions: 0,
            moved: 0,
            direct: 0,
            #[cfg(feature = "flaws")]
            flaw: options.flaw,
        }
    }

    fn all(&mut self, steps: u64) -> Result<u64, String> {
        self.connect_all()?;
        let rounds = self.choices.range(1, 3);
        for _ in 0..rounds {
            for _ in 0..steps {
                self.step()?;
            }
            let stands = match self.choices.below(4) {
                0 => Stands::Absent,
                1 => Stands::Blocked(self.choices.below(2) as usize),
                _ => Stands::Armed,
            };
            self.settle(stands)?;
        }
        self.count_moved();
        self.end_all()?;
        Ok(rounds * steps)
    }

    fn count_moved(&mut self) {
        let ends = self.couples.iter().flat_map(|couple| &couple.ends);
        for qp in ends.filter_map(|end| end.qp.as_ref()) {
            self.moved += u64::from(qp.local_path() == LocalPath::Rings);
            self.direct += qp.direct_reads() + qp.direct_writes();
        }
    }

    fn connect_all(&mut self) -> Result<(), String> {
        for number in 0..self.choices.range(1, 3) as usize {
            self.begin(number)?;
        }
        let end = self.stage.clock.now() + CONNECTED;
        loop {
            for host in 0..self.hosts.len() {
                self.take_connection_events(host)?;
            }
            if self.couples.iter().all(|couple| couple.is_up || couple.is_ending) {
                return Ok(());
            }
            if !self.stage.turn(&mut self.choices) && !self.stage.advance_to_wake(end) {
                return Err("a connection is not made".to_owned());
            }
        }
    }

    fn begin(&mut self, number: usize) -> Result<(), String> {
        // Of two devices on one host, either listens for strangers in its own process.
        let by_number = !self.common.is_one_host() && self.choices.one_in(3);
        let first = self.choices.below(2) as usize;
        let places = [first, 1 - first];
        let ends =
            places.map(|place| End::new(place, &self.hosts[place], by_number, &mut self.choices));
        let mut couple = Couple {
            ends,
            is_ending: false,
            is_up: false,
            is_over: [false; 2],
            ids: [None, None],
            by_number,
        };
        self.stage.note(|| format!("connection {number}, by number: {by_number}"));
        if by_number {
            for which in 0..2 {
                let [own, peer] = [&couple.ends[which], &couple.ends[1 - which]];
                let [addr, gid] = [own, peer].map(|end| self.hosts[end.host].addr);
                let (Some(qp), Some(to)) = (&own.qp, &peer.qp) else { continue };
                let peer = Peer::at(addr, gid, to.number(), to.psn());
                let done = qp
                    .modify(QpState::Init)
                    .and_then(|()| qp.connect_to(&peer))
                    .and_then(|()| qp.modify(QpState::Rts));
                done.map_err(|error| format!("a queue pair is not to be connected: {error}"))?;
                while self.choices.below(2) == 0 && self.stage.turn(&mut self.choices) {}
            }
        } else {
            let id = Id::new(&self.hosts[places[0]].events).map_err(|error| error.to_string())?;
            id.set_context(Arc::new((number, 0usize)));
            let to = self.hosts[places[1]].listens_at();
            id.resolve_addr(None, to).map_err(|error| error.to_string())?;
            couple.ids[0] = Some(id);
        }
        self.couples.push(couple);
        Ok(())
    }

    /// Takes the events that the connection manager tells the program of a host.
    pub(super) fn take_connection_events(&mut self, host: usize) -> Result<(), String> {
        for couple in self.couples.iter_mut().filter(|couple| couple.by_number) {
            let is_up = |end: &End| end.qp.as_ref().is_some_and(|qp| qp.is_connected());
            couple.is_up |= couple.ends.iter().all(is_up);
        }
        while let Some(event) = self.hosts[host].events.try_next() {
            let who = event
                .id
                .context()
                .and_then(|context| context.downcast_ref::<(usize, usize)>().copied());
            match (event.kind, who) {
                (EventKind::AddressResolved, Some((number, which))) => {
                    let private_data = vec![number as u8];
                    let params = ConnectParams::new().private_data(private_data);
                    let Some(qp) = &self.couples[number].ends[which].qp else { continue };
                    event.id.connect(qp, &params).map_err(|error| error.to_string())?;
                }
                (EventKind::ConnectRequest { private_data, .. }, _) => {
                    let number = usize::from(*private_data.first().ok_or("no private data")?);
                    event.id.set_context(Arc::new((number, 1usize)));
                    if self.choices.one_in(12) {
                        self.stage.note(|| format!("connection {number} is rejected"));
                        let ending = mem::replace(&mut self.couples[number].is_ending, true);
                        match event.id.reject(b"no") {
                            // The other end has gone meanwhile, or hears it.
                            Err(error) if !ending => return Err(error.to_string()),
                            _ => continue,
                        }
                    }
                    let Some(qp) = &self.couples[number].ends[1].qp else { continue };
                    match event.id.accept(qp, &ConnectParams::default()) {
                        Ok(()) => {}
                        // The other end has gone meanwhile.
                        Err(_) if self.couples[number].is_ending => continue,
                        Err(error) => return Err(error.to_string()),
                    }
                    self.couples[number].ids[1] = Some(event.id);
                }
                (EventKind::Established { .. }, Some((number, which))) => {
                    self.stage.note(|| format!("connection {number} is up at end {which}"));
                    let connected = |end: &End| end.qp.as_ref().is_some_and(|qp| qp.is_connected());
                    let couple = &mut self.couples[number];
                    couple.is_up = couple.ends.iter().all(connected);
                }
                (EventKind::Disconnected(why), Some((number, which))) => {
                    self.stage.note(|| format!("connection {number} is over at end {which}"));
                    self.couples[number].is_over[which] = true;
                    if !self.couples[number].is_ending {
                        return Err(format!("connection {number} has ended: {why:?}"));
                    }
                }
                (EventKind::Disconnected(_), None) => {}
                (
                    EventKind::Rejected { .. }
                    | EventKind::Unreachable(_)
                    | EventKind::ConnectError(_),
                    Some((number, _)),
                ) if self.couples[number].is_ending => {}
                (kind, _) => return Err(format!("the connection manager says {kind:?}")),
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        match self.choices.below(12) {
            0..=2 if self.stage.turn(&mut self.choices) => Ok(()),
            0..=3 => {
                self.let_time_pass();
                Ok(())
            }
            _ => {
                let host = self.choices.below(2) as usize;
                if self.blocked == Some(host) { self.look(host) } else { self.act(host) }
            }
        }
    }

    fn let_time_pass(&mut self) {
        if self.choices.below(4) > 0 {
            let by = Duration::from_nanos(self.choices.range(100, 50_000));
            self.stage.advance(by);
        } else {
            let end = self.stage.clock.now() + Duration::from_millis(10);
            self.stage.advance_to_wake(end);
        }
    }

    /// The ends of a host that can be worked on: connection and end.
    fn ends_of(&self, host: usize) -> Vec<(usize, usize)> {
        let all = (0..self.couples.len()).flat_map(|number| [(number, 0), (number, 1)]);
        all.filter(|(number, which)| {
            let couple = &self.couples[*number];
            let end = &couple.ends[*which];
            end.host == host && couple.is_up && !couple.is_ending && end.qp.is_some()
        })
        .collect()
    }

    /// The program of a host does something.
    fn act(&mut self, host: usize) -> Result<(), String> {
        self.take_connection_events(host)?;
        let queue = self.choices.below(self.hosts[host].queues.len() as u64) as usize;
        let ends = self.ends_of(host);
        let kind = self.choices.below(200);
        if ends.is_empty() || (56..120).contains(&kind) {
            let max = self.choices.pick(&[1, 4, 64]);
            return self.poll(host, queue, max).map(drop);
        }
        let (number, which) = self.choices.pick(&ends);
        match kind {
            0..=55 => self.send(number, which),
            120..=155 => self.receive(number, which),
            156..=169 => {
                self.arm(host, queue);
                self.poll(host, queue, 64).map(drop)
            }
            170..=179 => {
                let told = self.hosts[host].channel.try_next();
                let of =
                    |number| self.hosts[host].queues.iter().position(|q| q.cq.number() == number);
                match told.and_then(of) {
                    Some(queue) => self.poll(host, queue, 64).map(drop),
                    None => Ok(()),
                }
            }
            180..=185 if self.blocked.is_none() => self.look(host),
            186..=190 => self.spin(number),
            191..=196 => self.play(number),
            #[cfg(feature = "flaws")]
            197 | 198 => self.pretend(number, which),
            // The messages of one that ends may have taken receives that others count on.
            199 if self.choices.one_in(3) && !self.couples[number].is_shared() => {
                self.end(number, which)
            }
            199 if self.couples.len() < CONNECTIONS => self.begin(self.couples.len()),
            _ => Ok(()),
        }
    }

    /// Receives that are there for messages to an end, when all others have theirs.
    pub(super) fn available(&self, number: usize, which: usize) -> usize {
        let end = &self.couples[number].ends[which];
        let pool = self.hosts[end.host].pool.as_ref().filter(|_| end.is_shared);
        let Some(pool) = pool else { return end.receives.len() };
        let mut others = 0;
        for (of, couple) in self.couples.iter().enumerate() {
            for (at, other) in couple.ends.iter().enumerate() {
                if other.is_shared && other.host == end.host && (of, at) != (number, which) {
                    others += couple.ends[1 - at].messages.len();
                }
            }
        }
        pool.posted.len().saturating_sub(others)
    }

    /// True if messages wait for receives: Reads behind them are not answered, and fenced requests
    /// wait for those Reads.
    fn waits(&self, number: usize) -> bool {
        let ends = &self.couples[number].ends;
        (0..2).any(|which| ends[1 - which].messages.len() > self.available(number, which))
    }

    /// Completions that are due to an end when all is done: sends' and receives'.
    pub(super) fn due(&self, number: usize, which: usize) -> [usize; 2] {
        let ends = &self.couples[number].ends;
        let messages = ends[1 - which].messages.len();
        [ends[which].due_sends(), messages.min(self.available(number, which))]
    }

    /// True if a receive can be posted for an end.
    pub(super) fn can_receive(&self, number: usize, which: usize) -> bool {
        let end = &self.couples[number].ends[which];
        match self.hosts[end.host].pool.as_ref().filter(|_| end.is_shared) {
            Some(pool) => pool.can_receive(),
            None => end.can_receive(),
        }
    }

    /// True if an end may send a message that takes a receive.
    fn may_send(&self, number: usize, which: usize) -> bool {
        let own = &self.couples[number].ends[which];
        let beyond = if self.common.parks() { PARKED } else { 0 };
        own.messages.len() < self.available(number, 1 - which) + beyond
    }

    fn send(&mut self, number: usize, which: usize) -> Result<(), String> {
        let what = if self.may_send(number, which) { What::Any } else { What::NoMessage };
        self.send_what(number, which, what).map(drop)
    }

    /// False when there is no room for it.
    fn send_what(&mut self, number: usize, which: usize, what: What) -> Result<bool, String> {
        let couple = &mut self.couples[number];
        let remote = couple.ends[1 - which].remote();
        if !couple.ends[which].can_send() {
            return Ok(false);
        }
        let done = couple.ends[which].post_send(remote, what, &mut self.choices)?;
        self.stage.note(|| format!("{number}.{which} {done}"));
        Ok(true)
    }

    pub(super) fn receive(&mut self, number: usize, which: usize) -> Result<(), String> {
        if self.can_receive(number, which) {
            let end = &mut self.couples[number].ends[which];
            let done = match self.hosts[end.host].pool.as_mut().filter(|_| end.is_shared) {
                Some(pool) => pool.post()?,
                None => end.post_recv()?,
            };
            self.stage.note(|| format!("{number}.{which} {done}"));
        }
        Ok(())
    }

    pub(super) fn arm(&mut self, host: usize, queue: usize) {
        self.stage.note(|| format!("host {host} arms queue {queue}"));
        self.hosts[host].queues[queue].cq.request_notify(false);
    }

    /// Polls and judges; says how many completions there were.
    pub(super) fn poll(&mut self, host: usize, queue: usize, max: usize) -> Result<usize, String> {
        let mut found = Vec::new();
        self.hosts[host].queues[queue].cq.poll(&mut found, max);
        self.stage.note(|| format!("host {host} polls queue {queue}: {}", found.len()));
        self.judge(host, &found)?;
        Ok(found.len())
    }

    pub(super) fn judge(&mut self, host: usize, found: &[WorkCompletion]) -> Result<(), String> {
        self.completions += found.len() as u64;
        for wc in found {
            let of = |couple: &Couple| {
                let is = |end: &End| end.host == host && end.qp.is_some() && end.number == wc.qp.0;
                couple.ends.iter().position(is)
            };
            let whose =
                self.couples.iter().enumerate().find_map(|(number, c)| Some((number, of(c)?)));
            // Of a queue pair that was dropped nothing is expected.
            let Some((number, which)) = whose else { continue };
            self.stage
                .note(|| format!("  {number}.{which} completes {}: {:?}", wc.wr_id, wc.status));
            self.couples[number].judge(which, wc, self.hosts[host].pool.as_mut())?;
        }
        Ok(())
    }

    /// The program of a host goes to sleep in its channel, or does so again.
    pub(super) fn look(&mut self, host: usize) -> Result<(), String> {
        self.hosts[host].has_blocked = true;
        if self.blocked == Some(host) && self.choices.one_in(8) {
            self.wake_up(host);
            return Ok(());
        }
        let looked = self.hosts[host].channel.look().map_err(|error| error.to_string())?;
        self.stage.note(|| format!("host {host} looks: {}", matches!(looked, Look::Event(_))));
        match looked {
            Look::Nothing(_) => self.blocked = Some(host),
            Look::Event(told) => {
                self.blocked = None;
                let queues = &self.hosts[host].queues;
                let queue = queues.iter().position(|queue| queue.cq.number() == told);
                self.poll(host, queue.ok_or("an event of no queue")?, 64)?;
            }
            other => return Err(format!("looking found {other:?}")),
        }
        Ok(())
    }

    /// A program that slept goes on.
    pub(super) fn wake_up(&mut self, host: usize) {
        self.stage.note(|| format!("host {host} stops looking"));
        CompletionChannel::stop_looking();
        self.blocked = None;
    }

    /// Both programs spin on memory: each answers the other's mark by one of its own.
    fn spin(&mut self, number: usize) -> Result<(), String> {
        let (rounds, polls) = (self.choices.range(2, 12), self.choices.below(2) == 0);
        self.stage.note(|| format!("connection {number}: both spin, polls: {polls}"));
        for _ in 0..rounds {
            for which in 0..2 {
                let waits = self.waits(number);
                let couple = &mut self.couples[number];
                let (host, queue) = (couple.ends[which].host, couple.ends[which].queues[0]);
                if waits || self.blocked.is_some() || !couple.ends[which].can_send() {
                    return Ok(());
                }
                let remote = couple.ends[1 - which].remote();
                let mark = self.choices.word();
                couple.ends[which].post_mark(remote, mark)?;
                if polls {
                    self.poll(host, queue, 1)?;
                }
                let end = self.stage.clock.now() + SERVED;
                while !self.couples[number].ends[1 - which].has_mark(mark) {
                    let by = Duration::from_nanos(self.choices.range(100, 5_000));
                    self.stage.advance(by);
                    if !self.stage.turn(&mut self.choices) && self.stage.clock.now() > end {
                        return Err(format!("{number}.{which}: what was written has not come"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Both programs poll: a message there, one back.
    fn play(&mut self, number: usize) -> Result<(), String> {
        let rounds = self.choices.pick(&[3, 10, 100]);
        self.stage.note(|| format!("connection {number}: both poll"));
        for _ in 0..rounds {
            for which in 0..2 {
                let (peer, host) = (1 - which, self.couples[number].ends[which].host);
                if self.blocked.is_some() || self.waits(number) {
                    return Ok(());
                }
                self.receive(number, peer)?;
                if !self.may_send(number, which) || !self.send_what(number, which, What::Message)? {
                    return Ok(());
                }
                let [send, _] = self.couples[number].ends[which].queues;
                self.poll(host, send, 1)?;
                let [_, recv] = self.couples[number].ends[peer].queues;
                let end = self.stage.clock.now() + SERVED;
                while self.due(number, peer)[1] > 0 {
                    let by = Duration::from_nanos(self.choices.range(100, 3_000));
                    self.stage.advance(by);
                    self.poll(self.couples[number].ends[peer].host, recv, 4)?;
                    if self.choices.one_in(16) {
                        self.stage.turn(&mut self.choices);
                    }
                    if self.stage.clock.now() > end {
                        return Err(format!("{number}.{peer}: polls bring nothing"));
                    }
                }
            }
        }
        Ok(())
    }

    /// A program ends a connection, in one of the ways there are.
    pub(super) fn end(&mut self, number: usize, which: usize) -> Result<(), String> {
        let couple = &mut self.couples[number];
        couple.is_ending = true;
        let way = self.choices.below(4);
        self.stage.note(|| format!("{number}.{which} ends its connection: {way}"));
        match (way, &couple.ids[which]) {
            (0, Some(id)) => id.disconnect(),
            (1, Some(_)) => couple.ids[which] = None,
            (0..=2, _) => {
                let Some(qp) = &couple.ends[which].qp else { return Ok(()) };
                qp.modify(QpState::Err).map_err(|error| error.to_string())?;
            }
            _ => {
                let end = &mut couple.ends[which];
                end.qp = None;
                end.sends.clear();
                end.receives.clear();
            }
        }
        Ok(())
    }
}
