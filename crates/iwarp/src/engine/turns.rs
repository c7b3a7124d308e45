//! Who wants the same address takes turns.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::engine::now;
use crate::engine::sync::Mutex;
use crate::engine::worker::Worker;

/// Called on the worker when the turn has come.
type Waiter = Box<dyn FnOnce(Turn) + Send>;

/// Lines in front of addresses.
pub(crate) struct Turns {
    /// A line exists as long as somebody has the turn, and is in the order of coming.
    lines: Mutex<HashMap<SocketAddr, VecDeque<Waiter>>>,
    worker: Arc<Worker>,
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl Turns {
    pub(crate) fn new(worker: &Arc<Worker>) -> Arc<Self> {
        Arc::new(Self { lines: Mutex::new(HashMap::new()), worker: Arc::clone(worker) })
    }

    /// It is the caller's turn until the result is dropped, unless it is somebody else's.
    pub(crate) fn take(self: &Arc<Self>, addr: SocketAddr) -> Option<Turn> {
        let mut lines = self.lines.lock();
        if lines.contains_key(&addr) {
            return None;
        }
        lines.insert(addr, VecDeque::new());
        Some(Turn { turns: Arc::clone(self), addr })
    }

    /// Stands in line. False when it is nobody's turn.
    pub(crate) fn wait(
        &self,
        addr: SocketAddr,
        waiter: impl FnOnce(Turn) + Send + 'static,
    ) -> bool {
        match self.lines.lock().get_mut(&addr) {
            Some(line) => {
                line.push_back(Box::new(waiter));
                true
            }
            None => false,
        }
    }

    fn pass(self: &Arc<Self>, addr: SocketAddr) {
        let next = {
            let mut lines = self.lines.lock();
            let next = lines.get_mut(&addr).and_then(VecDeque::pop_front);
            if next.is_none() {
                lines.remove(&addr);
            }
            next
        };
        if let Some(next) = next {
            next(Turn { turns: Arc::clone(self), addr });
        }
    }
}

/// Somebody's turn, which ends when this is dropped.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    addr: SocketAddr,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let turns = Arc::downgrade(&self.turns);
        let addr = self.addr;
        let pass = move || {
            if let Some(turns) = turns.upgrade() {
                turns.pass(addr);
            }
        };
        // Not here: whoever drops it may hold what the next one needs.
        self.turns.worker.at(now(), Box::new(pass));
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::engine::options::Options;

    #[test]
    fn turns_come_in_the_order_of_coming_and_end_with_the_line() {
        let worker = Worker::start(&Options::default()).unwrap();
        let turns = Turns::new(&worker);
        let addr = SocketAddr::from(([127, 0, 0, 1], 1));
        let (tell, told) = mpsc::channel();
        assert!(!turns.wait(addr, |_| panic!("nobody is there to wait for")));
        let first = turns.take(addr).unwrap();
        assert!(turns.take(addr).is_none());
        for number in 0..3 {
            let tell = tell.clone();
            assert!(turns.wait(addr, move |turn| tell.send((number, turn)).unwrap()));
        }
        assert!(told.try_recv().is_err());
        drop(first);
        for number in 0..3 {
            let (who, turn) = told.recv_timeout(Duration::from_secs(10)).unwrap();
            assert_eq!(who, number);
            assert!(told.try_recv().is_err(), "one at a time");
            drop(turn);
        }
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while turns.take(addr).is_none() {
            assert!(std::time::Instant::now() < deadline, "the line stays");
            std::thread::yield_now();
        }
        worker.stop();
    }
}
