// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections that an acceptor takes, up to their Request.
//!
//! [`PendingBySource`] bounds the number of connections that may be here at a time. Descriptors are
//! the other thing that runs out: then connections without a Request give theirs up, the oldest
//! first. If there are none, the listener rests; connections that still wait after that are refused
//! with a descriptor that was kept for it, so that peers learn what is the matter.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_os::socket::{is_of_connection, is_shortage};
use iwarp_os::{Interest, Ready};
use iwarp_proto::mpa::startup::{Config, Request, Responder};
use iwarp_types::Source;

use crate::engine::Engine;
use crate::engine::accept_set::AcceptSet;
use crate::engine::fate::{self, IWARP};
use crate::engine::sync::Mutex;
use crate::engine::tasks::{Task, Tasks};
use crate::engine::timers::Alarm;
use crate::port::{Acceptor, Ends, Port};
use crate::report;
use crate::wire::iwarp::startup::line::{Answering, Called};
use crate::wire::iwarp::startup::pending::{BacklogSlot, Pending, PendingBySource, Victim};

/// Connections taken in one go where many come, before others get their turn.
const IN_ONE_GO: usize = 16;
/// So many connections without a Request are a rush.
const RUSH: usize = 8;
/// Connections refused in one go when there are no descriptors.
const REFUSED: usize = 64;
/// `EINVAL`: the socket listens no more.
const STOPPED: i32 = 22;
/// The time that a listener rests that finds no descriptor for a connection.
const REST: Duration = Duration::from_millis(100);

/// The host that the connections are for.
pub(crate) trait Host: Send + Sync {
    /// A Request has come: it waits for an answer as long as `answering` exists.
    fn requested(&self, request: Request, answering: Answering);
}

/// See the [module](self).
pub(crate) struct Reception {
    engine: Arc<Engine>,
    /// The tasks in which connections are waited for.
    tasks: Arc<Tasks>,
    config: Config,
    host: Arc<dyn Host>,
    pending: Arc<PendingBySource>,
    entrance: Mutex<Option<Entrance>>,
}

/// The entrance that is served when a connection waits.
struct Entrance {
    task: u64,
    itself: Weak<dyn Task>,
    /// It is not, until then.
    rest: Option<Alarm>,
    /// It was not, and there was no descriptor afterwards either.
    was_in_vain: bool,
}

impl Reception {
    /// `config` is what start-up asks of the peers. The thread that drives `accept_set` serves it,
    /// the worker without one.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        accept_set: Option<&AcceptSet>,
        config: Config,
        max_pending: usize,
        host: Arc<dyn Host>,
    ) -> Self {
        engine.spare.lock().keep();
        Self {
            engine: Arc::clone(engine),
            tasks: Arc::clone(accept_set.map_or_else(|| engine.worker.tasks(), AcceptSet::tasks)),
            config,
            host,
            pending: PendingBySource::new(max_pending),
            entrance: Mutex::new(None),
        }
    }

    /// `task` has connections taken, by [`Self::take`]: has it served whenever one waits at
    /// `acceptor`, until [`Self::close`].
    pub(crate) fn open(&self, acceptor: &dyn Acceptor, task: Arc<dyn Task>) -> io::Result<()> {
        let itself = Arc::downgrade(&task);
        let mut entrance = self.entrance.lock();
        let task = self.tasks.add(acceptor.descriptors(), Interest::READ, task)?;
        *entrance = Some(Entrance { task, itself, rest: None, was_in_vain: false });
        Ok(())
    }

    /// Takes no more.
    pub(crate) fn close(&self, acceptor: &dyn Acceptor) {
        if let Some(entrance) = self.entrance.lock().take() {
            self.tasks.remove(entrance.task, acceptor.descriptors());
        }
    }

    /// Takes connections that wait at `acceptor`: one, as the thread that looks comes again for the
    /// next, and to find none costs the system as much as to take one; several where many come.
    pub(crate) fn take(&self, acceptor: &dyn Acceptor) {
        self.end_rest(acceptor);
        let most = if self.pending.arriving() < RUSH { 1 } else { IN_ONE_GO };
        for _ in 0..most {
            match acceptor.accept() {
                Ok(taken) => {
                    self.has_descriptors();
                    self.welcome(taken);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_shortage(&error) => {
                    if !self.make_do(acceptor, &error) {
                        return;
                    }
                }
                Err(error) if error.raw_os_error() == Some(STOPPED) => {
                    report!(
                        burst 1, WARN,
                        "the process that made this listener has closed it: nobody can connect here any \
                         more, in this forked child neither"
                    );
                    self.close(acceptor);
                    return;
                }
                Err(error) if is_of_connection(&error) => {
                    report!(burst 1, WARN, %error, "a connection that came in is lost");
                }
                Err(error) => {
                    report!(
                        burst 1, WARN, %error,
                        "the system lets no connection be accepted (a sandbox that forbids accept4?): \
                         connections wait"
                    );
                    self.rest(acceptor);
                    return;
                }
            }
        }
    }

    fn welcome(&self, port: Box<dyn Port>) {
        let peer = port.ends().peer;
        let Some((slot, victim)) = self.pending.enter(Source::of(peer.ip())) else {
            report!(
                burst 1, WARN, %peer,
                "too many requests wait for the program's answer: a connection is refused"
            );
            return;
        };
        if let Some(victim) = victim {
            report!(
                burst 1, WARN, source = %victim.source,
                "too many connections in start-up: the oldest goes that has asked for nothing"
            );
            send_off(victim);
        }
        if let Err(error) = Arriving::start(self, port, slot) {
            report!(burst 1, WARN, %error, "a connection cannot be served");
        }
    }

    /// There is no descriptor for a connection that waits. True if there may be one now.
    fn make_do(&self, acceptor: &dyn Acceptor, error: &io::Error) -> bool {
        if let Some(victim) = self.pending.evict() {
            report!(
                burst 1, WARN, %error, source = %victim.source,
                "no descriptor for a connection: one goes that has asked for nothing"
            );
            send_off(victim);
            return true;
        }
        if self.entrance.lock().as_ref().is_some_and(|entrance| entrance.was_in_vain) {
            let mut spare = self.engine.spare.lock();
            let refused = (0..REFUSED).take_while(|_| acceptor.refuse_one(&mut spare).is_ok());
            let count = refused.count();
            report!(burst 1, WARN, %error, count, "no descriptors: connections are refused");
        } else {
            report!(burst 1, WARN, %error, "no descriptor for a connection: it has to wait");
        }
        if let Some(entrance) = &mut *self.entrance.lock() {
            entrance.was_in_vain = true;
        }
        self.rest(acceptor);
        false
    }

    /// Has the acceptor looked at only after a while: it stays ready all the time.
    fn rest(&self, acceptor: &dyn Acceptor) {
        let mut entrance = self.entrance.lock();
        let Some(entrance) = &mut *entrance else { return };
        if self.tasks.update(entrance.task, acceptor.descriptors(), Interest::NONE).is_err() {
            return;
        }
        let itself = Weak::clone(&entrance.itself);
        let again = move || {
            if let Some(task) = itself.upgrade() {
                task.ready(Ready { readable: true, ..Ready::default() });
            }
        };
        let timers = &self.engine.timers;
        entrance.rest = Some(timers.at(timers.now().plus(REST), Box::new(again)));
    }

    fn end_rest(&self, acceptor: &dyn Acceptor) {
        let mut entrance = self.entrance.lock();
        if let Some(entrance) = &mut *entrance
            && entrance.rest.take().is_some()
        {
            // Fails only on a descriptor that was closed under us.
            let _ = self.tasks.update(entrance.task, acceptor.descriptors(), Interest::READ);
        }
    }

    fn has_descriptors(&self) {
        if let Some(entrance) = &mut *self.entrance.lock() {
            entrance.was_in_vain = false;
        }
    }
}

/// Not with its lock held.
fn send_off(victim: Victim) {
    victim.connection.make_room();
}

/// A connection whose Request is on its way.
struct Arriving {
    tasks: Arc<Tasks>,
    host: Arc<dyn Host>,
    state: Mutex<Option<Arrival>>,
}

struct Arrival {
    called: Called,
    slot: BacklogSlot,
    _deadline: Alarm,
}

impl Arriving {
    fn start(reception: &Reception, port: Box<dyn Port>, slot: BacklogSlot) -> io::Result<()> {
        iwarp_mem::afford()?;
        let responder = Responder::new(reception.config, reception.engine.timers.now());
        let deadline = responder.deadline();
        let mut called = Called::new(port, responder);
        // Initiators send it as soon as they are connected: it is here, more often than not.
        match called.advance() {
            Ok(None) => {}
            Ok(Some(request)) => {
                elders_first(&slot);
                hand_over(&*reception.host, &reception.tasks, request, called, slot);
                return Ok(());
            }
            Err(error) => {
                refuse(&called, &error.to_string());
                return Ok(());
            }
        }
        let arriving = Arc::new(Self {
            tasks: Arc::clone(&reception.tasks),
            host: Arc::clone(&reception.host),
            state: Mutex::new(None),
        });
        let mut state = arriving.state.lock();
        called.wait(&reception.tasks, Arc::clone(&arriving) as Arc<dyn Task>)?;
        let weak: Weak<Self> = Arc::downgrade(&arriving);
        slot.belongs_to(Weak::clone(&weak) as Weak<dyn Pending>);
        let too_late = move || {
            if let Some(arriving) = weak.upgrade() {
                arriving.drop_it("the start-up frame did not arrive in time");
            }
        };
        let deadline = reception.engine.timers.at(deadline, Box::new(too_late));
        *state = Some(Arrival { called, slot, _deadline: deadline });
        Ok(())
    }

    fn look(&self, order: Order) {
        let result = match self.state.lock().as_mut() {
            Some(arrival) => arrival.called.advance(),
            None => return,
        };
        let request = match result {
            Ok(None) => return,
            Ok(Some(request)) => request,
            Err(error) => return self.drop_it(&error.to_string()),
        };
        let Some(arrival) = self.state.lock().take() else { return };
        if order == Order::EldersFirst {
            elders_first(&arrival.slot);
        }
        hand_over(&*self.host, &self.tasks, request, arrival.called, arrival.slot);
    }

    /// Closes the connection without an answer (RFC 5044 §7.1.2(2)).
    fn drop_it(&self, why: &str) {
        if let Some(arrival) = self.state.lock().take() {
            refuse(&arrival.called, why);
            drop(arrival.called.leave(&self.tasks, arrival.slot));
        }
    }
}

/// Selects whether earlier connections of the peer are looked at first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    EldersFirst,
    AsItComes,
}

/// Programs count their connections in the order in which they make them, and expect their requests
/// in that order (perftest does). A connection whose Request is there when it is taken would pass
/// the one before it, whose Request came a moment earlier and waits to be read.
fn elders_first(slot: &BacklogSlot) {
    for elder in slot.elders() {
        elder.look();
    }
}

/// The Request of a connection has come.
fn hand_over(
    host: &dyn Host,
    tasks: &Tasks,
    request: Request,
    called: Called,
    mut slot: BacklogSlot,
) {
    let waits = slot.wait();
    if !waits {
        refuse(&called, "too many requests wait for the program's answer");
    }
    let answering = called.leave(tasks, slot);
    if waits {
        host.requested(request, answering);
    }
}

fn refuse(called: &Called, why: &str) {
    let Ends { local, peer } = called.ends();
    fate::refused(local, peer, IWARP, why);
}

impl Pending for Arriving {
    fn make_room(&self) {
        self.drop_it("others needed the place");
    }

    fn look(&self) {
        self.look(Order::AsItComes);
    }
}

impl Task for Arriving {
    fn ready(&self, _: Ready) {
        self.look(Order::EldersFirst);
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::net::SocketAddr;

    use iwarp_proto::mpa::startup::Initiator;

    use super::super::terms::terms;
    use super::*;
    use crate::Device;
    use crate::port::{IoPart, Ipv6Listen, Sharing};

    #[derive(Default)]
    struct Heard(Mutex<Vec<Vec<u8>>>);

    impl Host for Heard {
        fn requested(&self, request: Request, _: Answering) {
            self.0.lock().push(request.private_data);
        }
    }

    #[test]
    fn requests_are_heard_in_the_order_in_which_they_were_sent() {
        let device = Device::open().unwrap();
        let engine = device.engine().unwrap();
        // This thread does what the worker would, in the order that is to be tried.
        engine.worker.stop();
        let config = terms(&engine.options, 1, 1);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let network = &engine.network;
        let reserved = network.reserve(any, Ipv6Listen::Only, Sharing::Exclusive).unwrap();
        let addr = reserved.local_addr().unwrap();
        let acceptor = reserved.listen(64).unwrap();
        let heard = Arc::new(Heard::default());
        let host = Arc::clone(&heard) as Arc<dyn Host>;
        let reception = Reception::new(engine, None, config, 64, host);
        let called = |count: usize| -> Vec<Box<dyn Port>> {
            (0..count).map(|_| network.connect(None, addr, None).unwrap()).collect()
        };
        let ask = |port: &dyn Port, number: u8| {
            let initiator = Initiator::new(config, &[number], engine.timers.now()).unwrap();
            let request = initiator.request();
            assert_eq!(port.send(&[IoPart::new(request)], false).unwrap(), request.len());
        };
        // Some are taken before they ask, one never asks, and the last has asked when it is taken.
        let early = called(5);
        (0..early.len()).for_each(|_| reception.take(&*acceptor));
        let late = called(1);
        let asking = early[..2].iter().chain(&early[3..]).chain(&late);
        for (number, port) in (0..).zip(asking) {
            ask(&**port, number);
        }
        reception.take(&*acceptor);
        assert_eq!(*heard.0.lock(), [[0], [1], [2], [3], [4]]);
        // The one that never asks is dropped by this.
        engine.worker.stop();
    }
}
