// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections that have come to a queue pair, up to the proof that they are its peer's.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_os::{Interest, Ready};
use iwarp_proto::mpa::startup::Negotiated;
use iwarp_types::Time;

use crate::engine::Engine;
use crate::engine::tasks::{Task, Tasks};
use crate::port::Descriptors;
use crate::wire::iwarp::rendezvous::Rendezvous;
use crate::wire::iwarp::rendezvous::introduction::Secret;
use crate::wire::iwarp::rendezvous::listener::send_away;
use crate::wire::iwarp::rendezvous::parting::Parting;
use crate::wire::iwarp::rendezvous::proof::{Claim, Key, PROOF, SHARE, Side, TAG};
use crate::wire::iwarp::startup::line::{Answering, Line};

/// The number of them at a time.
const MOST: usize = 8;
/// The time that one that has proven nothing keeps its place where another wants it: longer than
/// most networks take to bring a proof.
const GRACE: Duration = Duration::from_millis(200);
/// A request waits so long for a queue pair that is still in RTR to come to RTS, as most do at
/// once: then both numbers are proven before there is a connection.
const HOLD: Duration = Duration::from_millis(10);
/// The time that a proof may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// The unproven peers of one queue pair.
#[derive(Default)]
pub(crate) struct UnprovenPeers {
    list: Vec<UnprovenPeer>,
    serial: u64,
}

struct UnprovenPeer {
    serial: u64,
    since: Time,
    /// Under which the worker watches its port.
    task: u64,
    stage: Stage,
}

enum Stage {
    /// Not answered yet.
    Waiting(Waiting),
    /// Answered; it is to prove that it knows the secret.
    Proving(Proving),
}

/// A request without an answer.
pub(crate) struct Waiting {
    pub(crate) answering: Answering,
    pub(crate) secret: Secret,
    pub(crate) share: [u8; SHARE],
    /// All that it said.
    pub(crate) words: Vec<u8>,
}

/// A connection of which all is there but the proof.
pub(crate) struct Proving {
    pub(crate) line: Line,
    pub(crate) terms: Negotiated,
    /// The key of a peer that knows the secret.
    key: Key,
    request: Vec<u8>,
    reply: Vec<u8>,
    received: Vec<u8>,
}

/// The fate of an unproven peer.
pub(crate) enum Moved {
    /// Not decided yet.
    No,
    /// It has gone, or was sent away.
    Gone(&'static str),
    /// It is the peer, if its claim is right as well.
    Proven(Line, Negotiated, Claim),
}

enum Proof {
    Awaited,
    Right,
    None(&'static str),
}

impl Proving {
    /// `key` is that of one who knows the secret, `request` and `reply` what the two have said.
    pub(crate) fn new(
        (line, terms): (Line, Negotiated),
        key: Key,
        request: Vec<u8>,
        reply: Vec<u8>,
    ) -> Self {
        line.set_aside(false, PROOF);
        Self { line, terms, key, request, reply, received: Vec::new() }
    }

    fn advance(&mut self) -> Proof {
        let mut room = [0; PROOF];
        // No more than that: what follows is the stream.
        let due = &mut room[self.received.len()..];
        match self.line.receive(due) {
            Ok(0) => return Proof::None("it closed without a proof"),
            Ok(n) => self.received.extend_from_slice(&due[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Proof::Awaited,
            Err(_) => return Proof::None("it broke off"),
        }
        if self.received.len() < PROOF {
            return Proof::Awaited;
        }
        if self.key.is_proven(&tag_of(&self.received), Side::Initiator, &self.request, &self.reply)
        {
            Proof::Right
        } else {
            Proof::None("its proof is wrong")
        }
    }

    /// Of one that has been advanced to the proof.
    fn proven(self) -> Moved {
        let Self { line, terms, key, request, reply, received } = self;
        let tag = tag_of(&received[TAG..]);
        Moved::Proven(line, terms, Claim { key, side: Side::Initiator, request, reply, tag })
    }
}

fn tag_of(octets: &[u8]) -> [u8; TAG] {
    octets.first_chunk().copied().unwrap_or_default()
}

impl UnprovenPeer {
    fn descriptors(&self) -> Descriptors<'_> {
        match &self.stage {
            Stage::Waiting(waiting) => waiting.answering.port().descriptors(),
            Stage::Proving(proving) => proving.line.descriptors(),
        }
    }

    /// When one that this end in RTR could answer has waited long enough for more.
    fn held_until(&self) -> Option<Time> {
        match &self.stage {
            Stage::Waiting(waiting) if waiting.secret == Secret::Initiators => {
                Some(self.since.plus(HOLD))
            }
            _ => None,
        }
    }

    fn leave(self, tasks: &Tasks) -> Stage {
        tasks.remove(self.task, self.descriptors());
        self.stage
    }

    fn go(self, tasks: &Tasks, why: &str) {
        match self.leave(tasks) {
            Stage::Waiting(waiting) => send_away(waiting.answering, why),
            Stage::Proving(_) => tracing::debug!(why, "a queue pair is not to be had"),
        }
    }
}

impl UnprovenPeers {
    /// True if there is room for another. If there are many, the one that has had the longest time
    /// to prove something goes.
    pub(crate) fn make_room(&mut self, tasks: &Tasks, now: Time) -> bool {
        if self.list.len() >= MOST {
            let oldest = self.list.iter().position(|unproven| now >= unproven.since.plus(GRACE));
            let Some(oldest) = oldest else { return false };
            self.list.remove(oldest).go(tasks, "others came");
        }
        true
    }

    /// Keeps a request until it can be answered.
    pub(crate) fn keep(
        &mut self,
        meeting: &Weak<Rendezvous>,
        tasks: &Tasks,
        now: Time,
        waiting: Waiting,
    ) -> io::Result<()> {
        self.add(meeting, tasks, now, Stage::Waiting(waiting))
    }

    /// Awaits the proof.
    pub(crate) fn expect(
        &mut self,
        meeting: &Weak<Rendezvous>,
        tasks: &Tasks,
        now: Time,
        proving: Proving,
    ) -> io::Result<()> {
        self.add(meeting, tasks, now, Stage::Proving(proving))
    }

    fn add(
        &mut self,
        meeting: &Weak<Rendezvous>,
        tasks: &Tasks,
        now: Time,
        stage: Stage,
    ) -> io::Result<()> {
        self.serial += 1;
        let serial = self.serial;
        let mut unproven = UnprovenPeer { serial, since: now, task: 0, stage };
        let watch = Arc::new(Watch { meeting: Weak::clone(meeting), serial });
        unproven.task = tasks.add(unproven.descriptors(), Interest::READ, watch)?;
        self.list.push(unproven);
        Ok(())
    }

    /// True if one was answered and may turn out to be the peer.
    pub(crate) fn any_proving(&self) -> bool {
        self.list.iter().any(|unproven| matches!(unproven.stage, Stage::Proving(_)))
    }

    /// A request that can be answered, where this end has been told its own number (`told`) or has
    /// not.
    pub(crate) fn next_waiting(&mut self, tasks: &Tasks, now: Time, told: bool) -> Option<Waiting> {
        let is_due = |unproven: &UnprovenPeer| match &unproven.stage {
            Stage::Waiting(_) => told || unproven.held_until().is_some_and(|due| now >= due),
            Stage::Proving(_) => false,
        };
        let place = self.list.iter().position(is_due)?;
        match self.list.remove(place).leave(tasks) {
            Stage::Waiting(waiting) => Some(waiting),
            Stage::Proving(_) => None,
        }
    }

    /// When the next request can be answered without this end's own number.
    pub(crate) fn next_due(&self, now: Time) -> Option<Time> {
        self.list.iter().filter_map(UnprovenPeer::held_until).filter(|due| *due > now).min()
    }

    /// Something has come from one of them, or it has closed.
    pub(crate) fn moved(&mut self, tasks: &Tasks, serial: u64) -> Moved {
        let Some(place) = self.list.iter().position(|unproven| unproven.serial == serial) else {
            return Moved::No;
        };
        let proof = match &mut self.list[place].stage {
            Stage::Waiting(_) => Proof::None("it closed, or broke the silence due until the Reply"),
            Stage::Proving(proving) => proving.advance(),
        };
        if matches!(proof, Proof::Awaited) {
            return Moved::No;
        }
        match (proof, self.list.remove(place).leave(tasks)) {
            (Proof::Right, Stage::Proving(proving)) => proving.proven(),
            (Proof::None(why), _) => Moved::Gone(why),
            _ => Moved::No,
        }
    }

    /// Drops unproven peers that were asked for a proof long ago. If this process has slept itself,
    /// a proof may have come unread.
    pub(crate) fn expire(&mut self, tasks: &Tasks, now: Time) -> Option<(Line, Negotiated, Claim)> {
        let is_late = |unproven: &&UnprovenPeer| {
            matches!(unproven.stage, Stage::Proving(_)) && now >= unproven.since.plus(PATIENCE)
        };
        while let Some(UnprovenPeer { serial, .. }) = self.list.iter().find(is_late) {
            let serial = *serial;
            if let Moved::Proven(line, terms, claim) = self.moved(tasks, serial) {
                return Some((line, terms, claim));
            }
            let left = self.list.extract_if(.., |unproven| unproven.serial == serial);
            left.for_each(|unproven| unproven.go(tasks, "no proof came"));
        }
        None
    }

    /// All of them go. One that is about to send its proof, or has sent it, may be the peer.
    pub(crate) fn send_all_away(&mut self, engine: &Arc<Engine>) {
        const WHY: &str = "there is a connection, or none due";
        let tasks = engine.worker.tasks();
        for unproven in self.list.drain(..) {
            match unproven.leave(tasks) {
                Stage::Waiting(waiting) => send_away(waiting.answering, WHY),
                Stage::Proving(proving) => {
                    tracing::debug!(why = WHY, "a queue pair is not to be had");
                    Parting::begin(engine, proving.line);
                }
            }
        }
    }
}

/// Notices what an unproven peer does.
struct Watch {
    meeting: Weak<Rendezvous>,
    serial: u64,
}

impl Task for Watch {
    fn ready(&self, _: Ready) {
        if let Some(meeting) = self.meeting.upgrade() {
            meeting.unproven_moved(self.serial);
        }
    }
}
