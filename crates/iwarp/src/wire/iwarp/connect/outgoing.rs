// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connecting: the MPA Request, the Reply.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_os::Ready;
use iwarp_proto::mpa::startup::Reply;
use iwarp_types::{StartupError, Time};

use super::{Connection, NO_STREAMS, established};
use crate::connect::{
    By, Call, ConnectError, ConnectParams, EventKind, Meanwhile, NamedQp, Owner, PATIENCE, Retries,
    closed, nobody_listens,
};
use crate::engine::connect_order::{self, Turn};
use crate::engine::ended::ConnectionObserver;
use crate::engine::fate::{self, IWARP};
use crate::engine::poll_set::wait_beside;
use crate::engine::profile::Profile;
use crate::engine::sync::{AtomicBool, Mutex, Ordering};
use crate::engine::tasks::Task;
use crate::engine::timers::Alarm;
use crate::engine::{Engine, now};
use crate::port::{Network, Port, Reservation, canonical};
use crate::report;
use crate::wire::iwarp::link::{Agreed, Link};
use crate::wire::iwarp::startup::line::{Calling, Line, Served, operate};
use crate::wire::iwarp::startup::terms::terms;

/// The time that others stand in line behind a connection that the transport has not made yet.
/// Across a distance all go at once after that.
const IN_LINE: Duration = Duration::from_millis(5);

/// A connection being made, served by the worker or by a caller that is blocked.
pub(super) struct Outgoing {
    engine: Arc<Engine>,
    /// The device that asks.
    profile: Arc<Profile>,
    owner: Arc<dyn Owner>,
    connection: Weak<Connection>,
    /// The queue pair that is going to use the connection, where that is known.
    qp: Option<NamedQp>,
    params: ConnectParams,
    origin: Mutex<Origin>,
    /// The local address, as far as it is known.
    local: Option<SocketAddr>,
    peer: SocketAddr,
    retries: Retries,
    deadline: Time,
    cancelled: AtomicBool,
    attempt: Mutex<Option<Attempt>>,
    /// Held until the Request is sent: no program listens yet, or the transport needs time.
    turn: Mutex<Option<Turn>>,
    /// No program listened at first.
    refused: AtomicBool,
    timer: Mutex<Option<Alarm>>,
    /// The next attempt.
    next: Mutex<Option<Alarm>>,
    itself: Weak<Outgoing>,
}

/// The end from which a connection is made.
#[derive(Debug)]
struct Origin {
    /// Holds the local port, where the program chose one.
    reserved: Option<Box<dyn Reservation>>,
    /// The local address, where the program chose one; its port may be 0.
    local: Option<SocketAddr>,
    traffic_class: Option<u8>,
    /// The peer has no other address to try.
    is_last: bool,
}

impl Origin {
    fn connect(&mut self, network: &dyn Network, peer: SocketAddr) -> io::Result<Box<dyn Port>> {
        match self.reserved.take() {
            Some(reserved) => reserved.connect(peer, self.traffic_class),
            None => network.connect(self.local, peer, self.traffic_class),
        }
    }
}

struct Attempt {
    calling: Calling,
    enhanced: bool,
    /// When those in line need not wait for it any more.
    _opens: Option<Alarm>,
}

impl Attempt {
    /// True if a caller serves it.
    const fn is_callers(&self) -> bool {
        self.calling.is_callers()
    }
}

/// The end of an attempt.
enum End {
    Reply(Reply),
    Failed(ConnectError),
}

impl Outgoing {
    pub(super) fn new(
        engine: &Arc<Engine>,
        profile: &Arc<Profile>,
        call: Call,
        connection: Weak<Connection>,
    ) -> Arc<Self> {
        let Call { owner, peer, local, source, reserved, traffic_class, is_last, qp, params } =
            call;
        let retries = Retries::begin(&engine.timers);
        let began = engine.timers.now();
        Arc::new_cyclic(|itself| Self {
            engine: Arc::clone(engine),
            profile: Arc::clone(profile),
            owner,
            connection,
            qp,
            params,
            origin: Mutex::new(Origin { reserved, local: source, traffic_class, is_last }),
            local,
            peer,
            retries,
            deadline: began.plus(engine.options.startup_timeout),
            cancelled: AtomicBool::new(false),
            attempt: Mutex::new(None),
            turn: Mutex::new(None),
            refused: AtomicBool::new(false),
            timer: Mutex::new(None),
            next: Mutex::new(None),
            itself: itself.clone(),
        })
    }

    /// Makes the first attempt, which that thread serves. Later ones are the worker's.
    pub(super) fn start(&self, by: By) -> Result<(), ConnectError> {
        let qp = self.qp.as_ref().map(|qp| qp.number);
        fate::step(qp, self.origin.lock().local, self.peer, IWARP, "connecting");
        let begun = self.begin(self.engine.options.revision, by);
        begun.inspect_err(|error| {
            fate::not_made(qp, self.origin.lock().local, self.peer, IWARP, error);
        })?;
        let is_callers = self.attempt.lock().as_ref().is_some_and(Attempt::is_callers);
        if !is_callers {
            self.watch_time();
        }
        Ok(())
    }

    /// From now on the worker ends it in time.
    fn watch_time(&self) {
        let weak = Weak::clone(&self.itself);
        let too_late = move || {
            if let Some(outgoing) = weak.upgrade() {
                outgoing.timed_out();
            }
        };
        let timer = self.engine.timers.at(self.deadline, Box::new(too_late));
        *self.timer.lock() = Some(timer);
    }

    /// Goes on with the attempt that was left to the caller, if there is one: until it has ended in
    /// any way, or `until`. `meanwhile` moves in the meantime.
    ///
    /// # Errors
    ///
    /// When waiting fails.
    pub(super) fn drive(&self, meanwhile: &Meanwhile, until: Time) -> io::Result<()> {
        let attempt = self.attempt.lock().take_if(|attempt| attempt.is_callers());
        let Some(mut attempt) = attempt else { return Ok(()) };
        let worker = &self.engine.worker;
        let end = loop {
            let left = self.deadline.0.saturating_sub(self.engine.timers.now().0);
            if left.is_zero() {
                break too_late(&attempt);
            }
            // The caller's timeout is by the system's clock, even if the device has another.
            let callers = until.0.saturating_sub(now().0);
            if callers.is_zero() {
                return Ok(());
            }
            let left = left.min(callers);
            let calling = &mut attempt.calling;
            let waiting = meanwhile.waiting();
            let interest = calling.interest();
            let fd = calling.line().descriptors().of(interest);
            let fd = fd.ok_or(io::ErrorKind::Unsupported)?;
            let woken = wait_beside(waiting, fd, interest, Some(left))?;
            if woken.own {
                let advanced = calling.advance(worker);
                if calling.has_asked() {
                    self.end_turn();
                }
                match advanced {
                    Ok(None) => {}
                    Ok(Some(reply)) => break End::Reply(reply),
                    Err(error) => break End::Failed(error),
                }
            }
            woken.drive(waiting);
        };
        let failed = matches!(end, End::Failed(_));
        self.end(attempt, end);
        if failed {
            // There may be another attempt, which is the worker's.
            self.watch_time();
        }
        Ok(())
    }

    /// Begins a connection, or stands in line for it.
    fn begin(&self, revision: u8, by: By) -> Result<(), ConnectError> {
        if self.turn.lock().is_none() && self.stand_in_line(revision) {
            return Ok(());
        }
        self.go(revision, by)
    }

    /// Begins a connection out of line.
    fn go(&self, revision: u8, by: By) -> Result<(), ConnectError> {
        match self.try_once(revision, by) {
            Err(error) if self.is_premature(&error) => {
                self.knock(revision);
                Ok(())
            }
            result => result,
        }
    }

    /// False where there is no line.
    fn stand_in_line(&self, revision: u8) -> bool {
        let weak = Weak::clone(&self.itself);
        self.engine.connect_order.wait(self.peer, move |call| {
            let Some(outgoing) = weak.upgrade() else { return };
            let begun = match call {
                connect_order::Call::Turn(turn) => {
                    *outgoing.turn.lock() = Some(turn);
                    outgoing.go(revision, By::Worker)
                }
                connect_order::Call::Open => outgoing.go(revision, By::Worker),
                connect_order::Call::Refused => Err(refused()),
            };
            outgoing.unless_begun(begun);
        })
    }

    /// Tries again after a pause, with those that come later behind it.
    fn knock(&self, revision: u8) {
        self.refused.store(true, Ordering::Relaxed);
        {
            let mut turn = self.turn.lock();
            turn.take_if(|turn| !turn.is_current());
            while turn.is_none() {
                *turn = self.engine.connect_order.take(self.peer);
                if turn.is_none() && self.stand_in_line(revision) {
                    return;
                }
            }
        }
        let weak = Weak::clone(&self.itself);
        let again = move || {
            if let Some(outgoing) = weak.upgrade() {
                outgoing.try_again(revision);
            }
        };
        // Locked first: the next try may come, and set its own successor, before this is done.
        let mut next = self.next.lock();
        *next = Some(self.retries.later(Box::new(again)));
    }

    /// The peer was asked, or nothing will come of it: the next one's turn.
    fn end_turn(&self) {
        let turn = self.turn.lock().take();
        drop(turn);
    }

    /// Gives the turn up after a failure. If no program listens, those in line are told so: were
    /// they to try by themselves, a server that begins to listen at that moment would see them and
    /// not the first (perftest takes the second connection for the first then).
    fn fail_turn(&self, error: &ConnectError) {
        let turn = self.turn.lock().take();
        if let Some(turn) = turn
            && is_refusal(error)
        {
            turn.refuse();
        }
    }

    /// It is this one's turn until it has asked, unless it is another's. Says when others may go
    /// nevertheless: not where they would find no listener.
    fn keep_turn(&self) -> Option<Alarm> {
        let mut turn = self.turn.lock();
        if turn.is_none() {
            *turn = self.engine.connect_order.take(self.peer);
        }
        let opens = !self.refused.load(Ordering::Relaxed);
        let at = self.engine.timers.now().plus(IN_LINE);
        turn.as_ref().filter(|_| opens).map(|turn| turn.open_at(at))
    }

    /// Begins a connection whose start-up is of that revision.
    fn try_once(&self, revision: u8, by: By) -> Result<(), ConnectError> {
        let mut config = terms(&self.profile.options, self.params.ird, self.params.ord);
        if revision == 1 {
            config = config.downgraded();
        }
        let network = &*self.engine.network;
        let port = self.origin.lock().connect(network, self.peer);
        let port = port.map_err(ConnectError::Unreachable)?;
        // Locked first: who cancels looks for an attempt afterwards.
        let mut slot = self.attempt.lock();
        if self.cancelled.load(Ordering::SeqCst) {
            return Err(closed().into());
        }
        let served = match by {
            By::Worker => Served::ByWorker(self.itself.upgrade().ok_or_else(closed)?),
            By::Caller => Served::ByCaller,
        };
        let private_data = &self.params.private_data;
        let calling = Calling::start(&self.engine, port, config, private_data, served)?;
        let asked = calling.has_asked();
        // With the slot locked: the worker may go on with the attempt as soon as it is not.
        let opens = if asked { None } else { self.keep_turn() };
        *slot = Some(Attempt { calling, enhanced: revision > 1, _opens: opens });
        drop(slot);
        if asked {
            self.end_turn();
        }
        Ok(())
    }

    /// The program does not want the connection any more.
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        if let Some(attempt) = self.attempt.lock().take() {
            drop(attempt.calling.leave(&self.engine.worker));
        }
        self.end_turn();
    }

    fn timed_out(&self) {
        let attempt = self.attempt.lock().take();
        if let Some(attempt) = attempt {
            let end = too_late(&attempt);
            self.end(attempt, end);
        }
    }

    fn end(&self, attempt: Attempt, end: End) {
        let wanted = !self.owner.is_gone() && !self.cancelled.load(Ordering::SeqCst);
        let fall_back = wanted && self.may_retry(&attempt, &end);
        if wanted && !fall_back && matches!(end, End::Failed(ConnectError::Startup(_))) {
            self.report_no_mpa(attempt.calling.heard());
        }
        let enhanced = attempt.enhanced;
        let line = attempt.calling.leave(&self.engine.worker);
        if fall_back {
            drop(line);
            return self.try_again(1);
        }
        if wanted
            && let End::Failed(error) = &end
            && self.is_premature(error)
        {
            drop(line);
            return self.knock(if enhanced { self.engine.options.revision } else { 1 });
        }
        match &end {
            End::Failed(error) if wanted => self.fail_turn(error),
            _ => self.end_turn(),
        }
        let result = match end {
            End::Failed(error) => Err(error),
            End::Reply(Reply { accepted: false, private_data, .. })
                if private_data == NO_STREAMS =>
            {
                Err(refused())
            }
            End::Reply(Reply { accepted: false, negotiated, private_data }) => {
                let (ird, ord) = (negotiated.peer_ird, negotiated.peer_ord);
                Err(ConnectError::Rejected { private_data, ird, ord })
            }
            End::Reply(reply) => Ok((line, reply)),
        };
        self.report(result);
    }

    fn try_again(&self, revision: u8) {
        let begun = self.begin(revision, By::Worker);
        self.unless_begun(begun);
    }

    fn unless_begun(&self, begun: Result<(), ConnectError>) {
        if let Err(error) = begun {
            self.fail_turn(&error);
            self.report(Err(error));
        }
    }

    /// True if no program listens, and one may before long.
    fn is_premature(&self, error: &ConnectError) -> bool {
        is_refusal(error) && self.origin.lock().is_last && self.retries.lasted() < PATIENCE
    }

    /// A peer that knows revision 1 only closes the connection (RFC 6581 §10): try that on a new
    /// one.
    fn may_retry(&self, attempt: &Attempt, end: &End) -> bool {
        let refused = match end {
            End::Failed(ConnectError::Startup(error)) => {
                matches!(error, StartupError::Closed | StartupError::NotEnhanced)
            }
            End::Failed(ConnectError::Io(error)) => {
                matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            }
            _ => false,
        };
        let in_time = self.engine.timers.now() < self.deadline;
        refused && attempt.enhanced && self.engine.options.fall_back && in_time
    }

    fn report(&self, result: Result<(Line, Reply), ConnectError>) {
        let Some(connection) = self.connection.upgrade() else { return };
        if self.cancelled.load(Ordering::SeqCst) {
            return;
        }
        if result.as_ref().is_err_and(is_refusal)
            && let Some(qp) = &self.qp
            && self.owner.goes_on(&*connection, qp, &self.params)
        {
            return;
        }
        let attached = result.and_then(|(line, reply)| self.attach(&connection, line, reply));
        let Err(error) = attached else { return };
        let qp = self.qp.as_ref().map(|qp| qp.number);
        fate::not_made(qp, self.local, self.peer, IWARP, &error);
        if is_refusal(&error) && self.origin.lock().is_last {
            nobody_listens(self.peer, self.retries.lasted());
        }
        self.owner.failed(&*connection);
        self.owner.tell(error.into());
    }

    /// Something answers at the peer's address that does not speak MPA.
    #[cold]
    fn report_no_mpa(&self, heard: &[u8]) {
        const KEY: &[u8] = b"MPA ID Rep Frame";
        if heard.is_empty() || heard.iter().zip(KEY).all(|(heard, key)| heard == key) {
            return;
        }
        let peer = canonical(self.peer);
        report!(
            WARN,
            "{peer} answers, but not as an RDMA (iWARP) server does: it began with \"{}\"; is this \
             the address and port of the right program?",
            heard.escape_ascii(),
        );
    }

    fn attach(
        &self,
        connection: &Connection,
        line: Line,
        reply: Reply,
    ) -> Result<(), ConnectError> {
        let local = line.ends().local;
        let stream = operate(line, &self.engine.options)?;
        let agreed = Agreed { terms: reply.negotiated, rnr_retry: self.params.rnr_retry };
        let terms = &reply.negotiated;
        let is_at = || local.into_iter().for_each(|local| self.owner.is_at(local));
        let endpoint = self.qp.as_ref().and_then(|qp| qp.endpoint.as_ref());
        let Some(endpoint) = endpoint else {
            let (ird, ord, private_data) = (terms.ird, terms.ord, reply.private_data);
            is_at();
            connection.responded(stream, agreed)?;
            self.owner.tell(EventKind::Responded { private_data, ird, ord });
            return Ok(());
        };
        let number = self.engine.worker.next_id();
        if let Some(fault) = terms.fault {
            Link::attach(endpoint, stream, &agreed, number, None, || {})?;
            return Err(ConnectError::Terms(fault));
        }
        is_at();
        let watch =
            Arc::new(connection.connected(endpoint, number)?) as Arc<dyn ConnectionObserver>;
        Link::attach(endpoint, stream, &agreed, number, Some(watch), || {
            self.owner.tell(established(terms, reply.private_data));
        })?;
        connection.end_if_closed(endpoint, number);
        Ok(())
    }
}

fn refused() -> ConnectError {
    ConnectError::Unreachable(io::ErrorKind::ConnectionRefused.into())
}

/// True if no program listens.
fn is_refusal(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Unreachable(error)
        if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The end of an attempt for which there is no more time.
fn too_late(attempt: &Attempt) -> End {
    End::Failed(if attempt.calling.is_connected() {
        ConnectError::Startup(StartupError::Timeout)
    } else {
        ConnectError::Unreachable(io::ErrorKind::TimedOut.into())
    })
}

impl Task for Outgoing {
    fn ready(&self, _: Ready) {
        let ended = {
            let mut slot = self.attempt.lock();
            let Some(attempt) = slot.as_mut() else { return };
            let result = attempt.calling.advance(&self.engine.worker);
            if attempt.calling.has_asked() {
                self.end_turn();
            }
            let end = match result {
                Ok(None) => return,
                Ok(Some(reply)) => End::Reply(reply),
                Err(error) => End::Failed(error),
            };
            slot.take().map(|attempt| (attempt, end))
        };
        if let Some((attempt, end)) = ended {
            self.end(attempt, end);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;
    use crate::cm::{EventChannel, Id};
    use crate::port::{Ipv6Listen, Sharing};
    use crate::{Device, Options};

    /// An attempt of a connection that `id` owns.
    fn attempt(id: &Id, peer: SocketAddr) -> (Arc<Connection>, Arc<Outgoing>) {
        let core = id.core().unwrap();
        let call = Call {
            owner: Arc::new(core.downgrade()),
            peer,
            local: None,
            source: None,
            reserved: None,
            traffic_class: None,
            is_last: true,
            qp: None,
            params: ConnectParams::default(),
        };
        let connection = Connection::outgoing(core.engine(), &core.wires().profile, call).unwrap();
        let outgoing = connection.attempt().unwrap();
        outgoing.start(By::Worker).unwrap();
        (connection, outgoing)
    }

    /// Connections to a peer are asked for in the program's order, unless the first takes long.
    #[test]
    fn connections_do_not_overtake_one_that_is_not_made_yet() {
        let device = Device::with_options(Options::default()).unwrap();
        let channel = EventChannel::new(&device).unwrap();
        // Time stands still, so no timer opens the line.
        let engine = device.engine().unwrap();
        engine.worker.stop();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let network = Arc::clone(&engine.network);
        let reserved = network.reserve(any, Ipv6Listen::Only, Sharing::Exclusive).unwrap();
        let peer = reserved.local_addr().unwrap();
        let listener = reserved.listen(0).unwrap();
        // There is room for one, which is never taken: the system drops what comes after it.
        let _one = network.connect(None, peer, None).unwrap();
        let connecting = || {
            let id = Id::new(&channel).unwrap();
            let (connection, outgoing) = attempt(&id, peer);
            ((id, connection), outgoing)
        };
        let (_first_id, first) = connecting();
        assert!(first.attempt.lock().as_ref().is_some_and(|first| !first.calling.has_asked()));
        // Now there is room.
        listener.accept().unwrap();
        let (_second_id, second) = connecting();
        assert!(second.attempt.lock().is_none(), "it was faster than the first");
        assert!(listener.accept().is_err());
        // A task that waits at a worker that was stopped before is dropped by stopping it again.
        engine.worker.stop();
    }

    /// Tries that follow each other on the worker, while the thread that began the first is still
    /// at it, do not undo each other: every attempt ends.
    #[test]
    fn attempts_that_nobody_listens_to_all_end() {
        const THREADS: u8 = 100;
        const PATIENCE: Duration = Duration::from_secs(60);
        let device = Device::with_options(Options::default()).unwrap();
        std::thread::scope(|scope| {
            for host in 1..=THREADS {
                let device = &device;
                scope.spawn(move || {
                    // Each has a peer, and so a line, of its own. No program listens there.
                    let peer = SocketAddr::from(([127, 1, 1, host], 9));
                    let channel = EventChannel::new(device).unwrap();
                    for _ in 0..3 {
                        let id = Id::new(&channel).unwrap();
                        let _attempt = attempt(&id, peer);
                        let event = channel.wait(Some(PATIENCE)).unwrap().expect("it ends");
                        assert!(matches!(event.kind, EventKind::Unreachable(_)), "{event:?}");
                    }
                });
            }
        });
    }
}
