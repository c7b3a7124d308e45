// SPDX-License-Identifier: MIT OR Apache-2.0

//! One broker after the other.
//!
//! The system tells members that a broker's process has ended. They find out that one is stopped or
//! hangs as soon as it matters: they watch what it should see to, new connections and packets for
//! QP 1. If its process is stopped when anything comes, or the broker has not moved for a while
//! afterwards, one of them takes its place: all have what a broker needs, and a place in the
//! register decides which. The bell has the others look for the new broker. The former one checks
//! at each turn whether it still is the broker, and goes on as a member.
//!
//! If no member is left that could notice, a process that wants to join takes what it needs from
//! the broker, or from any member if the broker has ended, as far as the system gives it.
//!
//! Members act at once when the broker has ended, or is stopped when something comes to the
//! listener or queue pair 1, and about 0.1 s after that where the broker has not counted a turn of
//! its own. A successor takes the place of the next generation in the register, and then writes its
//! number there. If all members are stopped or hang, a process that wants to join takes register
//! and vault out of the broker's process by `pidfd_getfd`, or out of any member's where the broker
//! has ended (`/proc/locks` names those). The system allows that as it allows debugging. Without
//! that right the process fails after 0.1 s if such a process is stopped, else after a second.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use iwarp_os::poll::wait_readable;
use iwarp_os::register::Register;
use iwarp_os::{Epoll, Interest, process};

use super::broker::{Broker, Listening};
use super::error::ShareError;
use super::home::{Home, Inheritance, Office};
use super::member::{Inner, Link, QUICK, Role, Share};

/// Tokens in a member's poll set, for the broker's work as others see it.
pub(super) const LISTENER: u64 = 2;
pub(super) const GSI: u64 = 3;
/// There is another broker.
pub(super) const BELL: u64 = 4;

/// The time that a broker may leave something waiting and do nothing.
pub(super) const MUTE: Duration = Duration::from_millis(70);
/// The time for which members that need no broker look away: they are only needed if no others are
/// left.
const PAUSE: Duration = Duration::from_secs(1);
/// The time that it has then: what waits may have come at this moment.
const LAST: Duration = Duration::from_millis(20);
/// A member that looks so much later than it wanted to got no CPU on this host: nor may the broker
/// have had any.
const LATE: Duration = Duration::from_millis(30);
/// The time for which a process without a share leaves it to those that have one to take a stopped
/// broker's place. Then it notes the progress of a broker that is not stopped.
pub(super) const GENTLE: Duration = Duration::from_millis(20);

/// Processes besides the broker that are looked at.
const OTHERS: usize = 64;

/// The suspicion that a broker is stopped or hangs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspicion {
    /// The time to look again. The suspicion holds if generation and turn are still these, and
    /// something waits.
    pub(super) due: Duration,
    generation: u64,
    beat: u64,
    /// It held once.
    twice: bool,
}

impl Suspicion {
    fn new(home: &Home, due: Duration) -> Self {
        Self { due, generation: home.generation(), beat: home.beat(), twice: false }
    }

    fn holds(&self, home: &Home) -> bool {
        (home.generation(), home.beat()) == (self.generation, self.beat)
    }
}

impl Inner {
    /// True if the other end of the link is not the broker.
    pub(super) fn link_is_old(&self) -> bool {
        match (&self.role, &self.share) {
            (Role::Linked(link), Some(Share { home, .. })) => {
                link.welcome != Some(home.generation())
            }
            _ => false,
        }
    }

    /// Something waits for the broker: it has to do something soon.
    pub(super) fn suspect(&mut self, now: Duration) {
        let Some(Share { home, .. }) = &self.share else { return };
        let office = home.office(home.generation());
        // Of those that need no broker there may be very many.
        let pause = if matches!(self.role, Role::Apart) { PAUSE } else { MUTE };
        let suspicion = Suspicion::new(home, now + pause);
        let before = self.suspicion.get_or_insert(suspicion);
        before.due = before.due.min(suspicion.due);
        if office.is_ok_and(|office| office != Office::Held) {
            self.take_over(now);
        }
    }

    /// Takes the broker's place if it has done nothing, and there was something to do.
    pub(super) fn judge(&mut self, now: Duration) {
        let (Some(Share { home, .. }), Some(suspicion)) = (&self.share, self.suspicion.take())
        else {
            return;
        };
        let asks = match &self.role {
            Role::Linked(link) => {
                link.welcome.is_none() || self.services.values().any(|how| *how == Listening::Asked)
            }
            _ => false,
        };
        let holds = suspicion.holds(home) && (asks || has_input(home));
        let in_time = now < suspicion.due + LATE;
        self.suspicion = match (holds, in_time, suspicion.twice) {
            (true, true, false) => Some(Suspicion { due: now + LAST, twice: true, ..suspicion }),
            (true, ..) => Some(Suspicion { due: now + MUTE, twice: false, ..suspicion }),
            (false, ..) => asks.then(|| Suspicion::new(home, now + MUTE)),
        };
        if holds && in_time && suspicion.twice {
            self.take_over(now);
        } else if !holds {
            // In vain where a program has closed our descriptors, and then nothing matters.
            let read = Interest::READ.one_shot();
            let _ = self.epoll.modify(&home.listener, LISTENER, read);
            let _ = self.epoll.modify(&home.gsi, GSI, read);
        }
    }

    /// Becomes the broker if no other member does.
    fn take_over(&mut self, now: Duration) {
        let result = self.succeed(now);
        // Told there, and not needed here.
        let _ = self.settle(result, now);
    }

    /// Becomes the broker, unless another member is faster.
    pub(super) fn succeed(&mut self, now: Duration) -> Result<(), ShareError> {
        let Some(Share { home, .. }) = &self.share else { return Ok(()) };
        // One that has changed its user since is not believed to be the broker by those of the
        // former.
        if iwarp_os::owner::own_users()[0] != self.user {
            return Ok(());
        }
        let inheritance = home.succeed(home.generation());
        match inheritance.map_err(|error| ShareError::of(self.addr, error))? {
            Some(inheritance) => self.preside(inheritance, now),
            None => Ok(()),
        }
    }

    /// Is the broker from now on.
    fn preside(&mut self, inheritance: Inheritance, now: Duration) -> Result<(), ShareError> {
        self.lose(now);
        let Some(Share { home, .. }) = &self.share else { return Ok(()) };
        if inheritance.displaces {
            crate::report!(
                INFO,
                "the process that serves those that share the RoCE port does not answer: this one \
                 does it from now on"
            );
        }
        let granted =
            self.services.iter().filter(|(_, listening)| **listening == Listening::Granted);
        let granted = granted.map(|(service, _)| *service);
        // It sees to them itself.
        let _ = self.epoll.delete(&home.listener);
        let _ = self.epoll.delete(&home.gsi);
        match Broker::new(home, inheritance, granted, &self.epoll, now, self.user) {
            Ok(broker) => self.role = Role::Broker(Box::new(broker)),
            Err(error) => {
                let _ = self.epoll.delete(&home.listener);
                watch_work(&self.epoll, home);
                return Err(ShareError::of(self.addr, error));
            }
        }
        self.suspicion = None;
        home.is_to_be_known(true);
        self.asks = true;
        self.told = false;
        Ok(())
    }

    /// Is a member from now on if another process has become the broker, as this one was stopped.
    pub(super) fn abdicate_if_succeeded(&mut self, now: Duration) {
        let (Role::Broker(broker), Some(Share { home, .. })) = (&self.role, &self.share) else {
            return;
        };
        if broker.generation() == home.generation() {
            return;
        }
        crate::report!(
            INFO,
            "another process serves those that share the RoCE port, as this one did not answer"
        );
        // Of what these were there is nothing left.
        self.events.clear();
        if let Role::Broker(broker) = std::mem::replace(&mut self.role, Role::Seeking(now, QUICK)) {
            broker.end(home, &self.epoll);
        }
        self.asks = false;
        watch_work(&self.epoll, home);
    }

    /// Called if a process that has no share yet gets no answer: takes part without the broker's
    /// help, or asks again.
    pub(super) fn go_around(&mut self, now: Duration) -> Result<(), ShareError> {
        let (None, Role::Linked(link)) = (&self.share, &self.role) else { return Ok(()) };
        let waited = now.saturating_sub(link.since);
        let mute = waited >= MUTE;
        if waited < GENTLE || !mute && self.seen.is_some() {
            return Ok(());
        }
        match self.look_in() {
            Ok(home) if self.is_idle(&home, mute) => {
                if self.take_part(home).map_err(|error| ShareError::of(self.addr, error))? {
                    self.lose(now);
                    return self.succeed(now);
                }
            }
            Ok(_) => {}
            Err(Some(stopped)) if mute => {
                return Err(ShareError::Silent { addr: self.addr, process: Some(stopped) });
            }
            Err(_) => {}
        }
        if mute {
            self.lose(now);
        }
        Ok(())
    }

    /// The home of a process of the group: the broker's, or another one's where that has ended.
    /// Else a member that is stopped.
    fn look_in(&self) -> Result<Home, Option<u32>> {
        let Role::Linked(Link { process: broker, socket, .. }) = &self.role else {
            return Err(None);
        };
        let is_here = |home: &Home| {
            let [here, there] = [socket.network(), home.gsi.network()];
            here.is_ok_and(|here| there.is_ok_and(|there| here == there))
        };
        let mut stopped = broker.filter(|broker| process::is_stopped(*broker));
        let others = std::iter::once_with(Register::holders).flatten().take(OTHERS);
        let broker = broker.iter().copied().map(|process| (process, true));
        for (process, is_broker) in broker.chain(others.map(|process| (process, false))) {
            if process == std::process::id() {
                continue;
            }
            match Home::of_process(self.addr, process, self.user) {
                // The broker was found by a name of this network.
                Ok(home) if is_broker || is_here(&home) => return Ok(home),
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, process, "what a process has cannot be had");
                    let may_be_it = error.kind() == io::ErrorKind::PermissionDenied;
                    if stopped.is_none() && may_be_it && process::is_stopped(process) {
                        stopped = Some(process);
                    }
                }
            }
        }
        Err(stopped)
    }

    /// True if the broker has ended, or is stopped, or has done nothing between two looks.
    fn is_idle(&mut self, home: &Home, mute: bool) -> bool {
        let seen = (home.generation(), home.beat());
        let hangs = self.seen.replace(seen) == Some(seen) && mute;
        hangs || home.office(seen.0).is_ok_and(|office| office != Office::Held)
    }

    /// Takes a slot of the group; false where the broker would have to make some.
    fn take_part(&mut self, mut home: Home) -> io::Result<bool> {
        match home.take_any_slot() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            taken => taken?,
        }
        self.settle_in(home).map_err(io::Error::from)?;
        Ok(true)
    }
}

/// Notices what waits for the broker, and that there is another one.
pub(super) fn watch(epoll: &Epoll, home: &Home) -> io::Result<()> {
    epoll.add(&home.bell, BELL, Interest::READ.edge())?;
    watch_work(epoll, home);
    Ok(())
}

fn watch_work(epoll: &Epoll, home: &Home) {
    let read = Interest::READ.one_shot();
    // Without them a broker that hangs is not noticed.
    let _ = epoll.add(&home.listener, LISTENER, read);
    let _ = epoll.add(&home.gsi, GSI, read);
}

/// True if anything waits for the broker.
fn has_input(home: &Home) -> bool {
    let waits = wait_readable([home.listener.as_fd(), home.gsi.as_fd()], Some(Duration::ZERO));
    waits.is_ok_and(|waits| waits.contains(&true))
}
