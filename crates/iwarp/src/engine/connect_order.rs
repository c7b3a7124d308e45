// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections to one address are made in the order in which the program asked for them.
//!
//! Programs take the order in which they connect for the order in which the peer is asked (perftest
//! does), as InfiniBand's connection manager has it. Over TCP each is a connection of its own: a
//! later one may be made while an earlier one is still on its way, or before the peer listens.
//!
//! So for each address one connection at a time has the *turn*, and the others wait in line.
//!
//! Programs announce their port before they listen on it. So the connection manager does not
//! believe a refusal for 1 s (`PATIENCE` in `connect/retries.rs`), unless the peer has another
//! address to try, and connections to the same address queue up meanwhile.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use iwarp_types::Time;

use crate::engine::sync::Mutex;
use crate::engine::timers::{Alarm, Timers};

/// The call of the worker to a connection in line.
pub(crate) enum Call {
    /// It has the turn now.
    Turn(Turn),
    /// The line is dissolved: each may connect at once.
    Open,
    /// The peer refused the one in front, and so refuses all of them.
    Refused,
}

type Waiter = Box<dyn FnOnce(Call) + Send>;

/// The turn that goes on, and the connections that wait for the next, in order.
struct Line {
    turn: u64,
    waiters: VecDeque<Waiter>,
}

#[derive(Default)]
struct Lines {
    serial: u64,
    /// A line exists as long as one connection has the turn.
    by_addr: HashMap<SocketAddr, Line>,
}

impl Lines {
    fn next_turn(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// The line in which that turn goes on.
    fn of(&mut self, addr: SocketAddr, turn: u64) -> Option<&mut Line> {
        self.by_addr.get_mut(&addr).filter(|line| line.turn == turn)
    }
}

/// The lines of all addresses.
pub(crate) struct ConnectOrder {
    lines: Mutex<Lines>,
    timers: Timers,
}

impl std::fmt::Debug for ConnectOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectOrder").finish_non_exhaustive()
    }
}

impl ConnectOrder {
    pub(crate) fn new(timers: &Timers) -> Arc<Self> {
        Arc::new(Self { lines: Mutex::default(), timers: timers.clone() })
    }

    /// Takes the turn, until the result is dropped. `None` where another connection has it.
    pub(crate) fn take(self: &Arc<Self>, addr: SocketAddr) -> Option<Turn> {
        let mut lines = self.lines.lock();
        if lines.by_addr.contains_key(&addr) {
            return None;
        }
        let turn = lines.next_turn();
        lines.by_addr.insert(addr, Line { turn, waiters: VecDeque::new() });
        Some(Turn { order: Arc::clone(self), addr, number: turn })
    }

    /// Stands in line. False where there is none, as no connection has the turn.
    pub(crate) fn wait(
        &self,
        addr: SocketAddr,
        waiter: impl FnOnce(Call) + Send + 'static,
    ) -> bool {
        match self.lines.lock().by_addr.get_mut(&addr) {
            Some(line) => {
                line.waiters.push_back(Box::new(waiter));
                true
            }
            None => false,
        }
    }

    /// Ends that turn: the next in line has it.
    fn pass(self: &Arc<Self>, addr: SocketAddr, turn: u64) {
        let mut lines = self.lines.lock();
        let Some(line) = lines.of(addr, turn) else { return };
        let Some(next) = line.waiters.pop_front() else {
            lines.by_addr.remove(&addr);
            return;
        };
        let number = lines.next_turn();
        if let Some(line) = lines.by_addr.get_mut(&addr) {
            line.turn = number;
        }
        drop(lines);
        next(Call::Turn(Turn { order: Arc::clone(self), addr, number }));
    }

    /// Dissolves the line in which that turn goes on, and tells each in it what `call` says.
    fn end_line(&self, addr: SocketAddr, turn: u64, call: fn() -> Call) {
        let waiters = {
            let mut lines = self.lines.lock();
            if lines.of(addr, turn).is_none() {
                return;
            }
            lines.by_addr.remove(&addr).map(|line| line.waiters)
        };
        for waiter in waiters.into_iter().flatten() {
            waiter(call());
        }
    }
}

/// A connection's turn, which ends when this is dropped.
pub(crate) struct Turn {
    order: Arc<ConnectOrder>,
    addr: SocketAddr,
    number: u64,
}

impl Turn {
    /// True if it goes on: its line was not dissolved.
    pub(crate) fn is_current(&self) -> bool {
        self.order.lines.lock().of(self.addr, self.number).is_some()
    }

    /// Dissolves the line at that time, unless the result is dropped before.
    pub(crate) fn open_at(&self, at: Time) -> Alarm {
        let open = self.doing(|order, addr, number| order.end_line(addr, number, || Call::Open));
        self.order.timers.at(at, open)
    }

    /// The peer refuses: those in line are told so, too.
    pub(crate) fn refuse(self) {
        // Comes before the end of the turn, which finds no line any more.
        let tell = self.doing(|order, addr, number| order.end_line(addr, number, || Call::Refused));
        self.order.timers.soon(tell);
    }

    /// Left to the worker, as the thread that ends a turn may hold locks that the next one needs.
    fn doing(&self, what: fn(&Arc<ConnectOrder>, SocketAddr, u64)) -> Box<dyn FnOnce() + Send> {
        let (order, addr, number) = (Arc::downgrade(&self.order), self.addr, self.number);
        Box::new(move || {
            if let Some(order) = order.upgrade() {
                what(&order, addr, number);
            }
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.order.timers.soon(self.doing(ConnectOrder::pass));
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::Duration;

    use super::*;
    use crate::engine::worker::Worker;
    use crate::port::ManualClock;

    const ADDR: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
    const DEADLINE: Duration = Duration::from_secs(10);

    struct Scene {
        worker: Arc<Worker>,
        clock: ManualClock,
        timers: Timers,
        order: Arc<ConnectOrder>,
        tell: Sender<(usize, Call)>,
        told: Receiver<(usize, Call)>,
    }

    impl Scene {
        fn new() -> Self {
            let worker = Worker::start().unwrap();
            let clock = ManualClock::new();
            let timers = Timers::new(Arc::clone(&worker), clock.clone().into());
            let order = ConnectOrder::new(&timers);
            let (tell, told) = mpsc::channel();
            Self { worker, clock, timers, order, tell, told }
        }

        fn stand(&self, number: usize) {
            let tell = self.tell.clone();
            assert!(self.order.wait(ADDR, move |call| tell.send((number, call)).unwrap()));
        }

        fn line_ends(&self) {
            let deadline = std::time::Instant::now() + DEADLINE;
            while self.order.take(ADDR).is_none() {
                assert!(std::time::Instant::now() < deadline, "the line stays");
                // The worker needs the CPU.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            self.worker.stop();
        }
    }

    #[test]
    fn turns_come_in_the_order_of_coming_and_end_with_the_line() {
        let scene = Scene::new();
        assert!(!scene.order.wait(ADDR, |_| panic!("nobody is there to wait for")));
        let first = scene.order.take(ADDR).unwrap();
        assert!(scene.order.take(ADDR).is_none());
        (0..3).for_each(|number| scene.stand(number));
        assert!(scene.told.try_recv().is_err());
        drop(first);
        for number in 0..3 {
            let (who, call) = scene.told.recv_timeout(DEADLINE).unwrap();
            assert_eq!(who, number);
            assert!(matches!(call, Call::Turn(_)));
            assert!(scene.told.try_recv().is_err(), "one at a time");
            drop(call);
        }
        scene.line_ends();
    }

    /// Connections behind one that was refused are told so, too: were they to try by themselves, a
    /// later one might be the first that a server sees when it begins to listen just then.
    #[test]
    fn a_refusal_is_told_to_all_in_line() {
        let scene = Scene::new();
        let first = scene.order.take(ADDR).unwrap();
        (0..3).for_each(|number| scene.stand(number));
        first.refuse();
        for number in 0..3 {
            let (who, call) = scene.told.recv_timeout(DEADLINE).unwrap();
            assert_eq!(who, number);
            assert!(matches!(call, Call::Refused));
        }
        scene.line_ends();
    }

    #[test]
    fn a_line_opens_in_time_and_the_turn_that_ends_later_is_nobody_s() {
        let scene = Scene::new();
        let first = scene.order.take(ADDR).unwrap();
        (0..3).for_each(|number| scene.stand(number));
        let _opens = first.open_at(scene.timers.now().plus(DEADLINE));
        scene.clock.advance(DEADLINE / 2);
        assert!(scene.told.try_recv().is_err(), "it is too early");
        scene.clock.advance(DEADLINE / 2);
        for number in 0..3 {
            let (who, call) = scene.told.recv_timeout(DEADLINE).unwrap();
            assert_eq!(who, number);
            assert!(matches!(call, Call::Open));
        }
        assert!(!first.is_current());
        let second = scene.order.take(ADDR).unwrap();
        scene.stand(7);
        drop(first);
        // Behind the end of the first turn, on the thread that ends it.
        let (tell, told) = mpsc::channel();
        scene.timers.soon(Box::new(move || tell.send(()).unwrap()));
        told.recv_timeout(DEADLINE).unwrap();
        assert!(scene.told.try_recv().is_err(), "it is not the end of this one");
        drop(second);
        assert_eq!(scene.told.recv_timeout(DEADLINE).unwrap().0, 7);
    }
}
