// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections that a queue pair lets go of while it waits for their proof.
//!
//! A peer has its connection as soon as it has sent the proof, which may cross the end of the queue
//! pair. A socket that was closed with the proof unread, or before it comes, answers with a reset,
//! and the peer would report a connection that broke. So the peer is told of the end in good order,
//! and what it still says is read and dropped, until it closes as well.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use iwarp_os::{Interest, Ready};

use crate::engine::Engine;
use crate::engine::sync::Mutex;
use crate::engine::tasks::Task;
use crate::engine::timers::Alarm;
use crate::wire::iwarp::startup::line::Line;

/// The time that the other end has to close. It may be a stranger, which is to cost little.
const PATIENCE: Duration = Duration::from_secs(3);
/// The bytes that it may say meanwhile.
const MOST: usize = 64 * 1024;

/// See the [module](self).
pub(super) struct Parting {
    engine: Arc<Engine>,
    state: Mutex<Option<Leaving>>,
}

struct Leaving {
    line: Line,
    /// Under which the worker watches its port.
    task: u64,
    heard: usize,
    _deadline: Alarm,
}

impl Leaving {
    /// Drops what has come. True if the other end has closed, or says too much.
    fn is_over(&mut self) -> bool {
        match self.line.receive(&mut [0; 4096]) {
            Ok(0) => true,
            Ok(n) => {
                self.heard += n;
                self.heard > MOST
            }
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

impl Parting {
    /// Ends a connection. The worker sees to the rest.
    pub(super) fn begin(engine: &Arc<Engine>, line: Line) {
        // Fails where the other end has gone.
        if line.end_sending().is_err() {
            return;
        }
        let parting = Arc::new(Self { engine: Arc::clone(engine), state: Mutex::new(None) });
        let mut state = parting.state.lock();
        let itself = Arc::clone(&parting) as Arc<dyn Task>;
        let Ok(task) = engine.worker.tasks().add(line.descriptors(), Interest::READ, itself) else {
            return;
        };
        let weak = Arc::downgrade(&parting);
        let too_late = move || {
            if let Some(parting) = weak.upgrade() {
                parting.close();
            }
        };
        let timers = &engine.timers;
        let deadline = timers.at(timers.now().plus(PATIENCE), Box::new(too_late));
        *state = Some(Leaving { line, task, heard: 0, _deadline: deadline });
    }

    fn close(&self) {
        let leaving = self.state.lock().take();
        if let Some(Leaving { line, task, .. }) = leaving {
            self.engine.worker.tasks().remove(task, line.descriptors());
        }
    }
}

impl Task for Parting {
    fn ready(&self, _: Ready) {
        let is_over = self.state.lock().as_mut().is_some_and(Leaving::is_over);
        if is_over {
            self.close();
        }
    }
}
