// SPDX-License-Identifier: MIT OR Apache-2.0

//! Agreement on a way past TCP, between two processes of one host.
//!
//! Start-up is the one of any connection. In their hello frames both ends say that they would move.
//! The responder then sends an *offer* in the stream: the name of its process and a secret. The
//! initiator's process connects to that name (an abstract Unix socket, which belongs to the network
//! namespace as the TCP connection does), unless it has a [`Line`] to that process already. It
//! makes the ring, receives by it from then on, and passes it with the secret and the addresses of
//! its TCP socket. The responder knows by the secret which connection is meant, and by the
//! addresses that no relay or NAT is between the ends, which the ring would go around. It takes the
//! ring and answers; each end then sends by it.
//!
//! If both processes can read each other's memory, each carries out Reads by itself. Each shows the
//! other a page that tells whether it lives, reads a few random bytes out of the other as a
//! test, and says what came of it. An end with `IWARP_LOCAL=share` takes part if its own test
//! fails, and lets the other take part whose test has failed.
//!
//! Only processes of one user do this: a process could have the other wait, by the bells that they
//! share.
//!
//! A step that fails leaves the connection with TCP. The end that finds the [`Hindrance`] tells the
//! other, in the stream or in its answer, and a line of the log at each end says what is missing.
//! With `IWARP_LOCAL=require` that is the end of the connection.
//!
//! A line stays for as long as connections use it: the end of one process is the end of the rings
//! that it shares.

mod end;
mod hindrance;
mod host;
mod line;
mod message;
mod name;
mod outbox;
mod over;
#[cfg(all(test, not(model)))]
mod tests;
mod trial;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_mem::Readers;
use iwarp_os::owner::own_users;
use iwarp_os::unix::SeqListener;
use iwarp_os::{Interest, PassedFd, Ready};
use iwarp_types::Time;

pub(crate) use self::end::LocalEnd;
use self::hindrance::Cannot;
pub(crate) use self::hindrance::{Cause, Hindrance};
pub(crate) use self::host::{have_one_address, is_within_host};
use self::line::{Line, Offers};
use self::message::Join;
use self::name::{random, socket_name};
pub(crate) use self::trial::hindrance_here;
use crate::engine::sync::Mutex;
use crate::engine::tasks::Task;
use crate::engine::worker::Worker;
use crate::port::Descriptors;
use crate::port::local::{Showings, Shown};
use crate::report;

/// Offers that wait for the initiator at most; those of connections that have ended are not
/// counted, nor those that were not followed in time.
const OFFERS: usize = 4096;
/// Lines of processes that have not told a secret yet at most. One more ends the oldest.
const UNPROVEN: usize = 32;
/// Initiators that may wait to connect to the listener.
const BACKLOG: u16 = 64;
/// Time for which the listener rests when nothing can be accepted, as without descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Time after which an initiator asks again whose peer has too many that wait.
const AGAIN: Duration = Duration::from_millis(10);
/// Time within which the ends of a connection agree.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Terms of an offer, as the responder tells them to its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    /// The process.
    pub(crate) name: u64,
    /// The connection.
    pub(crate) secret: u64,
}

/// The ways of a process to others of its host.
pub(crate) struct Locals {
    itself: Weak<Self>,
    worker: Arc<Worker>,
    demands_crc: bool,
    /// The memory that other processes may read, where they may.
    showings: Option<Arc<Showings>>,
    /// Processes that may not read it map arenas of it, too.
    shares: bool,
    /// The name under which this process listens, and the user that others see there.
    name: Mutex<Option<(u64, u32)>>,
    offers: Mutex<HashMap<u64, Offered>>,
    /// The lines that this process has begun, by the name of the other. The worker has them.
    lines: Mutex<HashMap<u64, Weak<Line>>>,
    /// Lines that others have begun and that are not proven, oldest first.
    unproven: Mutex<Vec<Weak<Line>>>,
}

/// A connection whose initiator may come.
struct Offered {
    end: Weak<dyn LocalEnd>,
    /// It is the first to go from then on.
    until: Time,
}

/// The listener of the process.
struct Listening {
    itself: Weak<Self>,
    task: AtomicU64,
    socket: SeqListener,
    locals: Weak<Locals>,
}

impl fmt::Debug for Locals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locals").finish_non_exhaustive()
    }
}

impl Locals {
    /// The ways of the process whose worker this is. `demands_crc`: rings have CRCs like TCP.
    /// `readers`: those of this process's memory, if other processes may read it; `shares`: others
    /// of this user may map arenas of it also where they cannot.
    pub(crate) fn new(
        worker: &Arc<Worker>,
        demands_crc: bool,
        readers: Option<&Arc<Readers>>,
        shares: bool,
    ) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            itself: Weak::clone(itself),
            worker: Arc::clone(worker),
            demands_crc,
            showings: readers.map(|readers| Showings::of(readers)),
            shares,
            name: Mutex::default(),
            offers: Mutex::default(),
            lines: Mutex::default(),
            unproven: Mutex::default(),
        })
    }

    /// The offer that the responder of a connection makes.
    pub(crate) fn offer(&self, end: Weak<dyn LocalEnd>) -> Result<Offer, Hindrance> {
        let name = {
            let mut name = self.name.lock();
            let [user, _] = own_users();
            match *name {
                Some((name, listens)) if listens == user => name,
                // A process that could not listen may be able to now, and one that has become
                // another user listens as such.
                _ => name.insert((self.listen()?, user)).0,
            }
        };
        let secret = random()?;
        let now = self.worker.clock().now();
        let mut offers = self.offers.lock();
        if offers.len() >= OFFERS {
            offers.retain(|_, offered| offered.end.strong_count() > 0 && now < offered.until);
        }
        if offers.len() >= OFFERS {
            return Err(Cause::Full.into());
        }
        offers.try_reserve(1).map_err(|_| Cause::Memory)?;
        offers.insert(secret, Offered { end, until: now.plus(2 * PATIENCE) });
        Ok(Offer { name, secret })
    }

    /// Listens under a new name.
    fn listen(&self) -> io::Result<u64> {
        let name = random()?;
        let socket = SeqListener::bind(socket_name(name).as_bytes())?;
        socket.listen(BACKLOG)?;
        let listener = Arc::new_cyclic(|itself| Listening {
            itself: Weak::clone(itself),
            task: AtomicU64::new(0),
            socket,
            locals: Weak::clone(&self.itself),
        });
        let fds = Descriptors::one(listener.socket.as_fd());
        let task = Arc::clone(&listener) as Arc<dyn Task>;
        let task = self.worker.tasks().add(fds, Interest::READ, task)?;
        listener.task.store(task, Ordering::Release);
        Ok(name)
    }

    /// The initiator of a connection has heard the offer: the worker follows it.
    pub(crate) fn follow(&self, offer: Offer, end: Arc<dyn LocalEnd>) {
        let now = self.worker.clock().now();
        self.follow_at(now, offer, end, now.plus(PATIENCE));
    }

    fn follow_at(&self, at: Time, offer: Offer, end: Arc<dyn LocalEnd>, until: Time) {
        let locals = Weak::clone(&self.itself);
        let follow = move || {
            let Some(locals) = locals.upgrade() else { return };
            let next = locals.worker.clock().now().plus(AGAIN);
            match locals.join(offer, &end) {
                Ok(()) => {}
                Err(Cannot::Yet) if next < until => locals.follow_at(next, offer, end, until),
                Err(Cannot::Yet) => end.decline(Cause::Late.into()),
                Err(Cannot::AtAll(why)) => end.decline(why),
            }
        };
        self.worker.at(at, Box::new(follow));
    }

    fn join(&self, Offer { name, secret }: Offer, end: &Arc<dyn LocalEnd>) -> Result<(), Cannot> {
        iwarp_mem::afford().map_err(|_| Hindrance::from(Cause::Memory))?;
        let line = self.line_to(name)?;
        let asked = line.ask(secret, self.demands_crc, end);
        if asked.is_err() && line.is_over() {
            // It was about to be closed.
            return self.line_to(name)?.ask(secret, self.demands_crc, end);
        }
        asked
    }

    /// The line to the process with that name.
    fn line_to(&self, name: u64) -> Result<Arc<Line>, Cannot> {
        let mut lines = self.lines.lock();
        lines.retain(|_, line| line.strong_count() > 0);
        if let Some(line) = lines.get(&name).and_then(Weak::upgrade)
            && !line.is_over()
            && line.is_users()
        {
            return Ok(line);
        }
        lines.try_reserve(1).map_err(|_| Hindrance::from(Cause::Memory))?;
        let line = Line::begin(socket_name(name).as_bytes(), self.as_offers(), &self.worker)?;
        lines.insert(name, Arc::downgrade(&line));
        Ok(line)
    }

    fn as_offers(&self) -> Weak<dyn Offers> {
        Weak::<Self>::clone(&self.itself)
    }

    /// A process has connected.
    fn came(&self, line: &Arc<Line>) {
        let mut unproven = self.unproven.lock();
        unproven.retain(|line| line.upgrade().is_some_and(|line| !line.is_proven()));
        let oldest = (unproven.len() >= UNPROVEN).then(|| unproven.remove(0));
        if unproven.try_reserve(1).is_ok() {
            unproven.push(Arc::downgrade(line));
        }
        drop(unproven);
        if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
            oldest.end();
        }
    }
}

impl Offers for Locals {
    fn take(&self, join: &Join) -> Option<Arc<dyn LocalEnd>> {
        self.offers.lock().remove(&join.secret)?.end.upgrade()
    }

    fn demands_crc(&self) -> bool {
        self.demands_crc
    }

    fn shares(&self) -> bool {
        self.shares
    }

    fn show(&self) -> Option<(Arc<Shown>, PassedFd)> {
        let told = |error: &io::Error| {
            report!(burst 1, INFO, %error, "other processes cannot read this one's memory");
        };
        self.showings.as_ref()?.begin().inspect_err(told).ok()
    }
}

impl Task for Listening {
    fn ready(&self, _: Ready) {
        let Some(locals) = self.locals.upgrade() else { return };
        for _ in 0..BACKLOG {
            match self.socket.accept() {
                Ok(socket) => match Line::came(socket, locals.as_offers(), &locals.worker) {
                    Ok(line) => {
                        locals.came(&line);
                        // A process that has told a secret already keeps its line however many
                        // others come.
                        line.listen();
                    }
                    Err(why) => not_with_process(why),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // The connection still waits, and would be reported again and again.
                    self.pause(&locals.worker);
                    not_with_process(error.into());
                    return;
                }
            }
        }
    }
}

/// A process has asked for shared memory, for a connection that is not known yet.
fn not_with_process(why: Hindrance) {
    let error = why.error().map(tracing::field::display);
    report!(INFO, error, "a process of this host asks for shared memory in vain: {}", why.line());
}

impl Listening {
    /// Listens on after a while: the process that asks is there still.
    fn pause(&self, worker: &Worker) {
        if self.listen_for(worker, Interest::NONE).is_ok() {
            self.go_on_later(worker);
        }
    }

    fn go_on_later(&self, worker: &Worker) {
        worker.after(PAUSE, &self.itself, |listening: &Self| {
            if let Some(locals) = listening.locals.upgrade()
                && listening.listen_for(&locals.worker, Interest::READ).is_err()
            {
                listening.go_on_later(&locals.worker);
            }
        });
    }

    fn listen_for(&self, worker: &Worker, interest: Interest) -> io::Result<()> {
        let fds = Descriptors::one(self.socket.as_fd());
        worker.tasks().update(self.task.load(Ordering::Acquire), fds, interest)
    }
}
